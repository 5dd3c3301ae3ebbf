//! The definitions of the kinds and the objects that they must take and refuse.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crds;
mod examples;
mod rules;
