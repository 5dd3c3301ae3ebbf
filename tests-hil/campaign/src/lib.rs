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
//! A *scenario* is one machine, one node and a series of *points* drawn from a printed seed: at each something goes
//! wrong, or somebody wants something else. What must hold is looked at from the outside, by the truth of the rig:
//!
//! - the ledger: whatever differs from its original has its original in the journal's file, at every write and
//!   after every point; nothing is written outside of package zones and frequency policies; when nothing is desired any
//!   more everything is as it was;
//! - the power: not above the cap and a twentieth for longer than two seconds that the machine could have
//!   kept it, where [`CapExcuse`] says what it could not;
//! - a backend that hangs stops nobody else.
//!
//! Two paces. In *lockstep* time passes only when the scenario says so, in the plant and in the node alike, so that a
//! busy machine changes nothing of what is judged. *Free* scenarios let [`node_kit::OpenNode::run`] and the plant run, many
//! times as fast as the clock; there the power is not judged, as a machine that is late is late in real time only.
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
