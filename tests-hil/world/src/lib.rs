//! The whole system in a test: two operators, an agent for each of six machines, an extender and an API server. All
//! of them are the tasks of the shipped programs, in **one thread and virtual time**. An hour takes a second.
//!
//! ```text
//! script (from the seed) ──▶ kills, reboots, cuts of the limit, weather ──▶ processes, machines, lines
//!                                                                                │
//! story ◀── every request, every change of a limit ◀─────────────────────────────┤
//! judge ◀── the limits in force of the machines, at each change ◀────────────────┘
//! ```
//!
//! - [`script`]: the events and their times; `process`: the programs; `network`: the connections between them;
//! - `scene`: the machines; [`judge`]: their limits against the budget; `story`: the log of events;
//! - `armed`: PowerEvents, for hours in which budgets are armed;
//! - `sleep`: controllers, a scheduler and people, for hours in which nodes sleep;
//! - `older`: fields that one side does not know, for hours in which a part is of the version before;
//! - [`machine`]: a separate test of one machine with its own hardware and the engine that runs on it;
//! - `budget`: the only file that depends on the mechanism of a budget.
//!
//! **A run with the same seed is identical bit for bit.** Time is tokio's paused time, which advances when all tasks
//! wait. Every process has a clock and a random stream of its own. The programs choose by order and not at random
//! wherever order matters (`select!` with `biased`). Nothing uses a socket. The programs bind the ports of their
//! metrics, but nobody connects to them: the extender is started, killed and receives its watches, but it is not
//! asked for scores.
#![forbid(unsafe_code)]

mod armed;
mod budget;
mod clock;
mod cluster;
mod disk;
mod draw;
mod log_capture;
pub mod machine;
mod network;
mod older;
mod process;
mod run;
mod scene;
pub mod script;
mod sleep;
mod story;

pub use judge::{Breach, Excess, Excuse};

/// It reduces the run time by a quarter, because many small objects are allocated and freed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub use older::OlderPart;
pub use run::{WorldPlan, WorldReport, run};
