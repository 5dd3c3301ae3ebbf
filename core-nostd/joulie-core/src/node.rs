//! What one node's agent decides: which cap, by which backend, at which frequency, and for how long.
//!
//! - [`cap`], [`gpu_cap`]: resolve an intent in watts or percent for this hardware;
//! - [`backend`]: power limit, closed loop or percent path, and the transitions between them;
//! - [`law`]: the interface of a control law; [`classic`] and [`tracking`] implement it;
//! - [`demand`]: what a device wants to draw, and whether its power limit holds it back;
//! - [`grant`]: divides the node's grant among its packages and GPUs;
//! - [`throttle`]: which frequency policies a throttle or a mean frequency limits;
//! - [`energy`]: which readings of energy counters are credible;
//! - [`engine`]: the control loop over all of these, facts in and orders out;
//! - [`lease`]: what happens when nobody renews the desired state;
//! - [`actuation`], [`limiter`], [`drift`], [`backoff`]: the states of a setting that is ordered, confirmed and held;
//! - [`ticket`]: which order an outcome is about.

pub mod actuation;
pub mod backend;
pub mod backoff;
pub mod cap;
pub mod classic;
pub mod demand;
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
