//! Simulated nodes: plants behind an HTTP contract, and pods that load them.

fn main() {}
