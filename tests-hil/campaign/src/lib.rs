//! Random faults and kills against a node on virtual hardware.
//!
//! ```text
//!  this process                                        its child, killed at any moment
//!  ────────────                                        ───────────────────────────────
//!  scenario ──faults, loads, rivals──▶ rig ◀──files──── node-kit
//!     │                                 │                  ▲
//!     │            every write          ▼                  │ cap, tick, stop
//!     ├────────────────────────────▶ ledger, power         │
//!     └────────────────────────────────────────────────────┘
//! ```
//!
//! A *scenario* is one machine, one node and a series of *points* that are drawn from a printed seed. At each point a
//! fault happens, or the desired state changes. The requirements are checked from the outside, against the true state
//! of the rig:
//!
//! - the ledger: every control that differs from its original has its original in the journal's file, at every write
//!   and after every point; only package zones and frequency policies are written; when nothing is desired any more,
//!   every control has its original value;
//! - the power: it is above 105 % of the cap for at most two seconds of the time in which the machine could have kept
//!   it; [`CapExcuse`] lists the reasons why it could not;
//! - a backend that hangs does not stop another one.
//!
//! There are two paces. In *lockstep* the scenario advances the time of the plant and of the node, so that a busy
//! machine does not affect the verdict. In *free* scenarios [`node_kit::OpenNode::run`] and the plant run many times
//! faster than real time; the power is not judged there, because delays of a busy machine are real delays.
#![forbid(unsafe_code)]

mod bench;
mod harm;
mod ledger;
mod node;
mod point;
mod power;
mod process;
mod random;
mod said;
mod scenario;
mod tally;
mod world;

pub use bench::MachineKind;
pub use node::serve;
pub use point::PointKind;
pub use power::CapExcuse;
pub use scenario::{CampaignPlan, FailedScenario, Sabotage, run, scenario};
pub use tally::Tally;
