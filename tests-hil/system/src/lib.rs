//! The shipped programs on a real control plane: what the end-to-end suite (`tests/it`) and the bench of the scheduler
//! (`scheduler-bench`) and chaos (`system-chaos`) are made of.
//!
//! - [`world`]: everything as processes, with their own rights, around one control plane;
//! - [`rights`]: definitions, namespace, accounts and roles, as `hosts/deploy` has them;
//! - [`register`]: the limits of the node on virtual hardware; [`watt_seconds`]: what all nodes have drawn;
//! - [`objects`]: Joulie's kinds as kubectl shows them; [`http`], [`ports`]: the programs' own ports;
//! - [`field`]: nodes and pods by the thousand;
//! - [`echo`]: an extender that only repeats what it was asked, the ceiling for any other;
//! - [`bench`]: pods per second, and a burst;
//! - [`chaos`]: kills, an outage, boots and a cut, judged by the limits in force of all machines.
//!
//! Nothing here ships, and nothing here decides: programs run as they are shipped, as processes with their own rights.
#![forbid(unsafe_code)]

pub mod bench;
pub mod chaos;
pub mod echo;
pub mod field;
pub mod http;
pub mod objects;
pub mod ports;
pub mod register;
pub mod rights;
pub mod watt_seconds;
pub mod world;

use std::io::Write;
use std::time::Duration;

/// Whatever went wrong in a suite or bench is told to a person, and nobody branches on it.
pub type SystemError = Box<dyn std::error::Error + Send + Sync>;

/// How often something is looked at that somebody waits for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits until something is so.
///
/// # Errors
/// When it is not within the time.
pub async fn until(
    what: &str,
    within: Duration,
    mut is_so: impl AsyncFnMut() -> bool,
) -> Result<(), SystemError> {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(within, waiting).await.map_err(|_| format!("in vain for {within:?}: {what}").into())
}

/// Past the test runner, which would keep it until the end.
pub fn tell(text: &str) {
    // Nobody reads it when there is no standard error.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Says that a suite cannot look: to standard output for the count, and to standard error for the person.
#[expect(clippy::print_stdout, reason = "the test command counts these lines on standard output")]
pub fn skip(why: &str) {
    println!("SKIP({})", why.replace('\n', " "));
    tell(&format!("\nSKIP({why})\n"));
}
