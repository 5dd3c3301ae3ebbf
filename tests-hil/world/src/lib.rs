//! The whole system in a test: two operators, an agent for each of six machines, an extender and an API server, all of
//! them the tasks that ship, in **one thread and virtual time**. An hour takes a second.
//!
//! ```text
//! script (from the seed) ──▶ kills, reboots, cuts of the limit, weather ──▶ processes, machines, lines
//!                                                                                │
//! story ◀── every request, every change of a limit ◀─────────────────────────────┤
//! judge ◀── the limits in force of the machines, at each change ◀────────────────┘
//! ```
//!
//! - [`script`]: what happens and when; `process`: the programs; `network`: what lies between them;
//! - `scene`: the machines; [`judge`]: their limits against the budget; `story`: what happened;
//! - [`machine`]: apart from all these, a machine with hardware of its own under the engine that runs on one;
//! - `budget`: the one file that knows how a budget is kept.
//!
//! **A seed plays again bit for bit.** Time is tokio's, paused, and moves when nobody has anything to do; every process
//! has a clock and a chance of its own; the programs choose by order and not by luck wherever order matters
//! (`select!` with `biased`). Nothing goes over a socket. The programs bind the ports of their metrics, and nobody
//! connects to them: the extender is started, killed and fed by its watches, but nobody asks it for scores.
#![forbid(unsafe_code)]

mod budget;
mod clock;
mod cluster;
mod disk;
mod draw;
mod log_capture;
pub mod machine;
mod network;
mod process;
mod run;
mod scene;
pub mod script;
mod story;

pub use judge::{Breach, Excess, Excuse};

/// An hour is a quarter shorter with it: most of it is small objects that come and go.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub use run::{WorldPlan, WorldReport, run};
