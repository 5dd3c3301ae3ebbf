//! The charts, what is rendered from them, and a real API server that takes it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of it is tests: what is not expected fails them")]

mod kustomize;
mod release;
mod server;
mod values;
