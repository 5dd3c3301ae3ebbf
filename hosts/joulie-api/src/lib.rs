//! Joulie's words on the wire: Kubernetes objects, labels and annotations, the extender's messages, quantities.
//!
//! - [`node_hardware`], [`node_power_profile`], [`node_power_grant`], [`telemetry_profile`], [`node_twin`], [`workload_profile`], [`gpu`]: the
//!   seven kinds, each field of each generation that was ever written, and what they mean to the core;
//! - [`crd`]: their definitions, from which `cargo xtask codegen` writes `hosts/deploy/chart-crds`;
//! - [`object`]: reading objects of which one may be malformed;
//! - [`labels`], [`names`]: what is written on nodes and pods, and how objects are called;
//! - [`extender`]: the messages between kube-scheduler and an extender;
//! - [`quantity`]: Kubernetes quantities.
//!
//! What comes from outside is read leniently and understood strictly: unknown fields are ignored, a missing one is
//! missing, whole numbers are numbers, a word that nobody knows is kept. But a value that decides something must be one:
//! every conversion into a type of the core names the field that is wrong. Nothing here does I/O or reads a clock.
#![forbid(unsafe_code)]
#![expect(unreachable_pub, reason = "the schema derive of kube puts a copy of every struct into a function")]
#![expect(clippy::duplicated_attributes, reason = "printer columns of the same type")]

pub mod caps;
pub mod condition;
pub mod crd;
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
pub mod quantity;
pub mod telemetry_profile;
pub mod word;
pub mod workload_profile;
