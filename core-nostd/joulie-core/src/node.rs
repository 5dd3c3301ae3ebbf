//! What one node's agent decides.

pub mod law;
pub mod throttle;
