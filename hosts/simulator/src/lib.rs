//! Simulated nodes: plants behind an HTTP contract, and pods that load them.
#![forbid(unsafe_code)]
