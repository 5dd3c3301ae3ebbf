//! What one node's agent decides.

pub mod classic;
pub mod law;
pub mod throttle;
pub mod tracking;
