//! What one node's agent decides: which cap, by which backend, at which frequency, and for how long.
//!
//! - [`cap`], [`gpu_cap`]: what an intent in watts or percent means on this hardware;
//! - [`backend`]: power limit, closed loop or percent path, and the way from one to the other and back;
//! - [`law`]: what a control law is; [`classic`] and [`tracking`] are the two;
//! - [`grant`]: how the packages and GPUs share what the budget lets the node have;
//! - [`throttle`]: which frequency policies a throttle or a mean frequency limits;
//! - [`energy`]: what may be believed of energy counters;
//! - [`engine`]: the control loop over all of these, facts in and orders out;
//! - [`lease`]: what happens when nobody renews the desired state;
//! - [`actuation`], [`limiter`], [`drift`], [`backoff`]: what a thing that is ordered, confirmed and held goes through;
//! - [`ticket`]: which order an outcome is about.

pub mod actuation;
pub mod backend;
pub mod backoff;
pub mod cap;
pub mod classic;
pub mod drift;
pub mod energy;
pub mod engine;
pub mod gpu_cap;
pub mod grant;
pub mod law;
pub mod lease;
pub mod limiter;
pub mod throttle;
pub mod ticket;
pub mod tracking;
