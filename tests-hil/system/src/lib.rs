//! The shipped programs on a real control plane: what the end-to-end suite (`tests/it`) and the bench of the scheduler
//! (`scheduler-bench`) are made of.
//!
//! - [`rights`]: definitions, namespace, accounts and roles, as `hosts/deploy` has them;
//! - [`field`]: nodes and pods by the thousand;
//! - [`echo`]: an extender that only repeats what it was asked, the ceiling for any other;
//! - [`bench`]: pods per second, and a burst.
//!
//! Nothing here ships, and nothing here decides: programs run as they are shipped, as processes with their own rights.
#![forbid(unsafe_code)]

pub mod bench;
pub mod echo;
pub mod field;
pub mod rights;

/// Whatever went wrong in a suite or bench is told to a person, and nobody branches on it.
pub type Trouble = Box<dyn std::error::Error + Send + Sync>;
