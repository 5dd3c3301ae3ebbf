//! The definitions of the kinds, the objects that they must take and refuse, and what is installed beside them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crds;
mod deploy;
mod examples;
mod rules;
