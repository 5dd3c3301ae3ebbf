//! A node without Kubernetes: everything that happens on one machine.
//!
//! ```text
//!                 desired, renewals                         report
//!  host ────────────────────────────▶  Node  ────────────────────────────▶ host
//!                                  ▲    │ orders
//!      readings, outcomes (latest) │    ▼        one thread per backend
//!                              powercap · cpufreq · NVML · hwmon · …
//!                                       │
//!                                       ▼ before the first write
//!                                    journal of originals
//! ```
//!
//! - [`OpenNode`] opens the hardware and drives the engine of the core with it;
//! - [`Journal`] stores on disk what was in force before the first write;
//! - [`Kept`] is the current grant, on disk;
//! - [`NodeLock`] makes this process the node's only writer;
//! - [`NodeReport`] is what the node knows of itself, all of it confirmed.
//!
//! Caps survive the process: its end restores no original. Originals are restored when the desired state is gone, or
//! on request ([`OpenNode::restore`]).
//!
//! This crate uses no Kubernetes, no HTTP and no asynchronous runtime: a driver call blocks, and a call that never
//! returns must block one thread and nothing else.
#![forbid(unsafe_code)]

mod backend;
mod cap_target;
mod cards;
mod clock_target;
mod config;
mod driver;
mod grant;
mod journal;
mod lock;
mod node;
mod policy_target;
mod report;
mod time;
mod uses;
mod worker;

pub use backend::{BackendKind, HalFacts, HalRow, HalTarget, Visit};
pub use cards::{CardFacts, CardInstance, Cards};
pub use config::{Config, ConfigError, HardwareSources, RegisterAccess};
pub use driver::DriverError;
pub use grant::{Kept, KeptError, replace_file};
pub use joulie_core::node::engine::{
    Desire, LeaseTerms, LoopCause, LoopLaw, NodeAccess, NodeGrant, NodeParts,
};
pub use journal::{Boot, Journal, JournalEntry, JournalError, JournalShare};
pub use lock::{LockError, NodeLock};
pub use node::{Left, NodeHandle, OpenError, OpenNode};
pub use report::{
    BackendReport, ClockReport, DeviceReport, DeviceState, DeviceValue, DeviceWants, NodeCounters,
    NodeReport, NodeWants, PolicyReport,
};
pub use time::Time;
pub use uses::{GpuGroupUse, GpuUseFiles, unified_group};
pub use worker::BackendState;
