//! `kubectl joulie`: what is capped, why, since when and by whom; what is wrong; what may be done about it.
//!
//! It reads what the programs have written into the API server, and asks their debugging pages where it may. It decides
//! nothing itself: a pod is judged by the extender's own code, and a cap is put in force by the agents. It writes in two
//! commands alone, `cap` and `budget`, and there only with `--yes`.
//!
//! - [`args`]: the command line;
//! - `api`: requests, lists in pages; `object`: fields of objects; `clean`: what is safe on a terminal;
//! - `rights`: what the programs' accounts must be allowed;
//! - `decisions`: what was decided of the limits above a node;
//! - `fleet`: the objects by their nodes; `show`: tables and the formats of `-o`;
//! - a file for each command.
//!
//! Whatever objects say is shown through `clean`: a name or a message may hold escapes that a terminal
//! obeys.
#![forbid(unsafe_code)]

mod api;
pub mod args;
mod budget;
mod cap;
mod clean;
mod decisions;
mod doctor;
mod energy;
mod explain;
mod fleet;
pub mod object;
mod pages;
mod recommend;
mod remote;
mod rights;
mod run;
mod score;
mod show;
mod simulate;
mod status;
mod top;

pub use budget::budget_and_above;
pub use pages::{completion_of, write_man};
pub use rights::{ProgramRight, RightScope, RightsPart};
pub use run::{PluginSession, Reply, run, start};
