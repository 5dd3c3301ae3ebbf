//! A cluster in virtual time: machines under a tree of limits, a demand that a seed makes, and arms that divide the
//! limit. `cargo xtask bench budget` compares the arms on the same demand.
//!
//! It measures the division of power and nothing else. A machine draws what its devices demand, or what its cap
//! leaves them; work that is not done is not done later, and a watt above idle is worth the same everywhere. A cap
//! takes 0.5 to 1.5 s until it is in force and 0.5 to 1 s more until its receipt is read, as measured on the real path.
//! The same seed gives the same figures on every machine.
//!
//! - [`site`]: the machines, the racks and the limits;
//! - [`demand`]: what the devices would draw without caps, for each mix and seed;
//! - [`cluster`]: time passes, caps come into force, receipts arrive;
//! - [`arms`]: the laws that are compared;
//! - [`bounds`]: what an observer who knows the demand would have served;
//! - [`figures`]: what was measured;
//! - [`trials`] and [`report`]: which experiments are run, their tables and bars.
#![forbid(unsafe_code)]

pub mod arms;
pub mod bounds;
pub mod cluster;
pub mod demand;
pub mod figures;
mod numbers;
pub mod report;
pub mod site;
pub mod trials;

/// A step of the virtual time, in seconds.
pub const STEP_S: f64 = 0.5;
/// Steps in a second.
pub const STEPS_A_SECOND: usize = 2;

#[cfg(test)]
mod tests;
