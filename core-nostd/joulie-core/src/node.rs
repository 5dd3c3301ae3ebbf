//! What one node's agent decides.

pub mod energy;
pub mod lease;
