//! The cluster's decisions: which nodes run at full power and which are capped, when a node may change, what each
//! node's digital twin predicts, and which recommendations follow. Facts in, decision out: no I/O, no clock, and
//! the same answer for any order of the facts.
#![forbid(unsafe_code)]

pub mod budget;
pub mod catalog;
pub mod classify;
pub mod decide;
pub mod demand;
pub mod density;
pub mod facility;
pub mod guard;
pub mod hardware;
pub mod intent;
pub mod inventory;
pub mod migration;
pub mod names;
pub mod node;
pub mod places;
pub mod plan;
pub mod policy;
pub mod power;
pub mod profile;
mod share;
pub mod sleep;
pub mod slicing;
pub mod twin;
