//! What the scheduler extender decides.

pub mod assumed;
pub mod class;
pub mod cluster;
pub mod demand;
pub mod estimate;
pub mod filter;
pub mod freshness;
pub mod gpu;
pub mod kube_scheduler;
pub mod score;
pub mod sensitivity;
pub mod sleep;

mod wide;

#[cfg(test)]
mod dice;
