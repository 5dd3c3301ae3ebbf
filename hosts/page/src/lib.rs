//! The live page, which `joulie demo` and the operator serve below `/ui/`: power against budget, the tree of budgets, racks and nodes,
//! the last placements, and what happened.
//!
//! ```text
//!  watches ──▶ rows ──▶ observe ──▶ picture ──▶ wire: what differs ──▶ hub ──▶ a stream for each open page
//!                                      ▲                                 │
//!                        extras of the demo                        the last changes, for pages that come back
//! ```
//!
//! - [`picture`]: what is shown at one moment; `told`: the lines that follow from two pictures;
//! - `rows`, `pods`, [`observe`]: the picture of a cluster, from its API server;
//! - [`wire`]: the format of the stream; [`hub`]: who gets what of it;
//! - [`explain`]: what `kubectl joulie explain` says, by its own code;
//! - [`serve`]: the paths. [`orders`]: what a person may do from the page, in the demo alone.
//!
//! It writes nothing. What a page may show is what the API server shows to the account of the program that serves it.
//!
//! # The stream
//!
//! `GET /ui/events` answers with server-sent events. The first is `full`; then comes a `change` at most every half second, and only
//! when something has changed; a comment line at least every five seconds says that the program lives. The data of each is a JSON
//! object, the format of which [`wire`] describes. An event has an identifier; a page that comes back with the `Last-Event-ID` of a
//! change that is still kept gets what it has missed, any other page gets `full`.
//!
//! Terms: a *picture* is the state of everything that is shown; a *point* is one place of the curve of power.
#![forbid(unsafe_code)]

mod assets;
pub mod explain;
pub mod hub;
pub mod observe;
pub mod orders;
pub mod picture;
mod pods;
mod rows;
pub mod serve;
mod told;
pub mod wire;
