//! The simulator from outside: over its port, and through the API server.
//!
//! Time is turned by hand: a test lets an hour pass and then waits until what must happen has happened.
#![expect(clippy::unwrap_used, reason = "all of it is tests: what is not expected fails them")]

mod contract;
mod lab;
mod life;
