//! Placement experiments in virtual time: a workload from a seed, a fleet, and the laws that place its jobs.
//!
//! `joulie simulate` runs them. The same seed gives the same figures on every run. A step of the virtual time is a
//! minute, as in upstream's experiment 04, whose fleet and workload these are; its draws are numpy's, so that its job
//! counts come out to the digit.
//!
//! - [`numpy`]: the generator of random numbers; [`workload`]: the jobs of a seed; [`fleet`]: nodes and their power;
//! - [`compat`]: upstream's experiment to the letter: a job that fits nowhere is dropped;
//! - [`fair`]: the same work for all: jobs wait, and each law may put empty nodes to sleep; [`caps`]: what caps cost;
//! - [`trace`]: the jobs of a file;
//! - [`figures`] and [`report`]: what was measured, and its table, JSON and HTML.
#![forbid(unsafe_code)]

pub mod caps;
pub mod compat;
pub mod fair;
pub mod figures;
pub mod fleet;
mod numbers;
pub mod numpy;
mod product;
pub mod report;
pub mod trace;
mod tree;
pub mod workload;

/// A step of the virtual time, in seconds.
pub const STEP_S: u32 = 60;
/// The seeds of upstream's experiment.
pub const SEEDS: [u64; 8] = [42, 123, 456, 789, 1337, 2024, 9999, 31415];
