//! The definitions of the kinds, the objects that they must accept and refuse, and the other files that are installed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crds;
mod deploy;
mod examples;
mod rules;
