//! The operator: plans which nodes run at full power and which are capped, guards the transitions, and maintains the
//! digital twins.
//!
//! ```text
//! watches ──▶ rows ──▶ site: planner::node ──▶ decide ──▶ desired ──▶ diff ──▶ writers ──▶ API server
//!                       meters ──┘  ▲                                            │
//!                                   └─────────────────── outcomes ───────────────┘
//! ```
//!
//! - [`settings`]: the settings;
//! - `rows`: what is kept of each object; `site`: the rows combined for each node;
//! - `meters`: the power that nodes draw, with source and age;
//! - `reconciler`: one pass, synchronous; `publish`: what is written, and when a change is worth a write;
//! - `grants`: the grants that were sent and have not been seen to land;
//! - `writes`: sending, and the outcome; `lead`: the main loop; `lease`: the plan's Lease;
//! - `uninstall`: a separate command, which asks the operators to release all nodes.
//!
//! Only a leader writes. Everything that it remembers between passes can be lost: a new leader continues from labels
//! and objects. It decides nothing by itself: policy, guard, twin and budget are in `planner` and `joulie-core`.
#![forbid(unsafe_code)]

mod budget;
mod grants;
mod lead;
mod lease;
mod meters;
mod publish;
pub mod reasons;
mod reconciler;
mod rows;
pub mod settings;
mod site;
mod start;
mod stats;
mod uninstall;
mod writes;

pub use settings::Settings;
pub use start::{BUILD, StartError, Started, described_metrics, start};
pub use uninstall::{Tell, UNINSTALL_STATUSES, UNINSTALL_TABLE, release_all, uninstall};
