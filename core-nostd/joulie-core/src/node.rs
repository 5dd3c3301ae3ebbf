//! What one node's agent decides.

pub mod backend;
pub mod backoff;
pub mod cap;
pub mod drift;
pub mod energy;
pub mod gpu_cap;
pub mod lease;
pub mod lever;
pub mod limiter;
