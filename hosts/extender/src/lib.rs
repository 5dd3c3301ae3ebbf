//! Filters and scores nodes for kube-scheduler by their power.
//!
//! ```text
//! watches ──► rows ──► SnapshotBuilder ──► Snapshot (immutable) ──► decide(snapshot, request) ──► answer
//! ```
//!
//! - [`settings`]: the settings;
//! - `rows`: the data kept from NodeTwins, NodeHardwares, nodes, pods and the plan's Lease;
//! - `snapshot_builder`, `node_store`, `assumed_ledger`, `index`, `snapshot`: the snapshot of all nodes, computed
//!   whenever something changes, and the watts of pods that no sample includes yet; `dates`: of samples from the future;
//! - `budgets`: what the limits above a node can grant;
//! - `gpus`: the cards of all nodes, and what pods ask for of them; `cores`: what free cards need of processors;
//! - `instances`: MIG instances; `dra`: what ResourceSlices and ResourceClaims say of cards;
//! - `evictable`: pods with GPUs that preempt may name instead of useless victims;
//! - `queue`, `expected`: the pods that wait for a node, and those of them that were just scored and are not bound
//!   yet;
//! - `scan`: parses the request in its body without a copy;
//! - `decide`, `reply`: filter, prioritize and preempt;
//! - `shortlist`: filter's answer with the best candidates only;
//! - `request_log`, `offline`: a log of sampled requests, and answers from a saved cluster;
//! - `routes`, `explain`, `pods_by_name`, `metrics`: what the two ports serve;
//! - `seen`: up to which versions of objects a snapshot has them.
//!
//! - `bind`: takes the cards of a pod with GPUs, and binds it; opt-in.
//!
//! Except for bind, a request takes no lock, makes no API call and waits for nothing: it loads the snapshot, and answers,
//! and the extender never writes to the cluster.

mod assumed_ledger;
mod bind;
#[cfg(test)]
mod blind;
mod budgets;
#[cfg(test)]
mod burst;
mod cores;
mod dates;
mod decide;
mod dra;
mod evictable;
mod expected;
mod explain;
mod gpus;
mod index;
mod instances;
mod kinds;
mod listing;
mod metrics;
mod node_store;
pub mod offline;
#[doc(hidden)]
mod pods_by_name;
pub mod probe;
mod queue;
mod reply;
pub mod request_log;
mod routes;
mod rows;
mod scan;
mod seen;
pub mod settings;
pub mod shortlist;
mod snapshot;
mod snapshot_builder;
mod start;

pub use start::{BUILD, StartError, Started, described_metrics, start, start_on};
