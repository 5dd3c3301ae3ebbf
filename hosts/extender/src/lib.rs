//! Filters and scores nodes for kube-scheduler by their power.
//!
//! ```text
//! watches ──► rows ──► keeper ──► Snapshot (immutable) ──► decide(snapshot, request) ──► answer
//! ```
//!
//! - [`settings`]: what an operator may choose;
//! - `rows`: what is kept of NodeTwins, NodeHardwares, nodes, pods and the plan's Lease;
//! - `snapshot_builder`, `node_store`, `assumed_ledger`, `index`, `snapshot`: the picture of all nodes, worked out whenever something changes, and the watts
//!   of pods that no sample shows yet;
//! - `queue`, `expected`: the pods that wait for a node, and those of them that were just scored and are on their way;
//! - `scan`: what is asked, found in the body without a copy of it;
//! - `decide`, `reply`: filter and prioritize;
//! - `routes`, `explain`, `metrics`: the two ports.
//!
//! A request takes no lock, asks nobody and waits for nothing: it loads the picture, and answers. It does no API call and
//! never writes to the cluster.

mod assumed_ledger;
#[cfg(test)]
mod blind;
#[cfg(test)]
mod burst;
mod decide;
mod expected;
mod explain;
mod index;
mod kinds;
mod metrics;
mod node_store;
#[doc(hidden)]
pub mod probe;
mod queue;
mod reply;
mod routes;
mod rows;
mod scan;
pub mod settings;
mod snapshot;
mod snapshot_builder;
mod start;

pub use start::{BUILD, StartError, Started, described_metrics, start, start_on};
