//! Caps CPUs and GPUs of a node as its desired state says, and reports what really happened.
//!
//! ```text
//!   API ──watches──▶ front ──Desire──▶ machine: host (node-kit, its own thread) or pool (HTTP, a task for each node)
//!       ◀──applies──       ◀──View────
//! ```
//!
//! - [`settings`]: the settings;
//! - `front`: what is wanted, its outcome, and how that is published: the same in both modes;
//! - `plug`: what the whole node draws, by its own meter;
//! - `machine`: the interface between the front and a machine; `host` and `pool` implement it.
//!
//! It plans nothing: it enforces the desired state of its nodes, and reports what was read back. Its control loops run
//! at their own period whether the API answers or not.
#![forbid(unsafe_code)]

mod claim;
mod counts;
mod energy;
mod front;
mod gpus;
mod host;
mod machine;
mod metrics;
mod own;
mod plug;
mod pool;
mod route;
pub mod settings;
mod standalone;
mod start;

pub use energy::{EnergyPrices, EnergySettings, held_devices, kepler_sums, pod_of_group};
pub use front::events::EVENT_REASONS;
pub use front::outcome::{cap_reasons, route_reasons};
pub use gpus::GpuSettings;
pub use host::StartError as HostError;
pub use host::restore::{RESTORE_STATUSES, run as restore};
pub use metrics::PowerDetail;
pub use plug::document as redfish;
pub use plug::{PlugSettings, PlugSource, PlugStartError, RedfishSettings};
pub use pool::PoolError;
pub use standalone::run as standalone;
pub use start::{BUILD, StartError, Started, described_metrics, start, start_over};
