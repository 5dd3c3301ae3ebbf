//! Tests of the charts, of the rendered objects, and of a real API server that accepts them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of it is tests: what is not expected fails them")]

mod audited;
mod kustomize;
mod release;
mod rights;
mod scheduler;
mod server;
mod values;
