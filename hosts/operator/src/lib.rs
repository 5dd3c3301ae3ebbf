//! The operator: plans which nodes run at full power and which are capped, guards the transitions, and maintains the
//! digital twins.
//!
//! ```text
//! watches ──▶ rows ──▶ site: planner::node ──▶ decide ──▶ desired ──▶ diff ──▶ writers ──▶ API server
//!                       meters ──┘  ▲                                            │
//!                                   └─────────────────── outcomes ───────────────┘
//! ```
//!
//! - [`settings`]: what it can be told;
//! - `rows`: what is kept of an object; `site`: rows put together node by node;
//! - `meters`: what nodes draw, with source and age; `facility`: what the building's sensors say; `queries`: what is asked of
//!   Prometheus;
//! - `reconciler`: one pass, synchronous; `publish`: what is written and when it is worth a write;
//! - `grid`: the signals that lower limits for a while;
//! - `grants`: what the budget has sent and not seen land yet;
//! - `evict`: moving a pod of a stressed node, where that is asked for;
//! - `sleep`: switching nodes off and on by their management controllers;
//! - `gpu_repair`: GPUs that were taken for pods and that nobody confirmed, in a loop of its own;
//! - `routes`: the port, with `/debug/plan` and the live page;
//! - `writes`: sending, and what came of it; `lead`: the loop; `lease`: the plan's sign of life;
//! - `classify`: what workloads do with their nodes, in a loop of its own;
//! - `uninstall`, `check`: commands of their own. The first asks the operators to release all nodes, the second reads in
//!   the API whether all is in order.
//!
//! Only a leader writes. Everything that it remembers between passes can be lost: a new leader continues from labels
//! and objects. It decides nothing by itself: policy, guard, twin and budget are in `planner` and `joulie-core`.
#![forbid(unsafe_code)]

mod budget;
mod check;
mod classify;
mod command;
mod evict;
mod facility;
mod gpu_repair;
mod grants;
mod grid;
mod lead;
mod lease;
mod meters;
mod publish;
mod queries;
pub mod reasons;
mod reconciler;
mod routes;
mod rows;
pub mod settings;
mod site;
mod sleep;
mod start;
mod stats;
mod uninstall;
mod writes;

pub use check::{CHECK_STATUSES, CHECK_TABLE, Checked, check, wait_for_order};
pub use settings::Settings;
pub use start::{BUILD, StartError, Started, described_metrics, start, start_over};
pub use uninstall::{Tell, UNINSTALL_STATUSES, UNINSTALL_TABLE, release_all, uninstall};
