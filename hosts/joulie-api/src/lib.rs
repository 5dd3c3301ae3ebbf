//! Joulie's external formats: Kubernetes objects, labels and annotations, the extender's messages, quantities.
//!
//! - [`node_hardware`], [`node_power_profile`], [`node_power_grant`], [`power_budget`], [`power_event`], [`telemetry_profile`], [`node_twin`], [`workload_profile`],
//!   [`gpu`]: the nine kinds, each field of each generation that was ever written, and what they mean to the core;
//! - [`crd`]: their definitions, from which `cargo xtask codegen` writes `hosts/deploy/chart-crds`;
//! - [`dra`]: what drivers publish of devices, and which claims hold them;
//! - [`object`]: reading objects of which one may be malformed;
//! - [`labels`], [`names`]: the labels and annotations on nodes and pods, and the names of objects;
//! - [`sleep`]: what stands on a node that sleeps;
//! - [`extender`]: the messages between kube-scheduler and an extender;
//! - [`quantity`]: Kubernetes quantities.
//!
//! Input is parsed leniently and interpreted strictly. Unknown fields are ignored, a missing field stays missing, whole
//! numbers are accepted as numbers, an unknown word is kept. But a value that decides something must be valid: every
//! conversion into a type of the core names the field that is wrong. Nothing here does I/O or reads a clock.
#![forbid(unsafe_code)]
#![expect(unreachable_pub, reason = "the schema derive of kube puts a copy of every struct into a function")]
#![expect(clippy::duplicated_attributes, reason = "printer columns of the same type")]

pub mod caps;
pub mod condition;
pub mod crd;
pub mod dra;
pub mod extender;
pub mod field;
pub mod gpu;
pub mod labels;
mod macros;
pub mod names;
pub mod node_hardware;
pub mod node_power_grant;
pub mod node_power_profile;
pub mod node_twin;
pub mod number;
pub mod object;
pub mod power_budget;
pub mod power_event;
pub mod quantity;
pub mod sleep;
pub mod telemetry_profile;
pub mod word;
pub mod workload_profile;
