//! The shipped programs on a real control plane: the library of the end-to-end suite (`tests/it`) and of the benches
//! of the scheduler (`scheduler-bench`) and of chaos (`system-chaos`).
//!
//! - [`world`]: everything as processes, with their own rights, around one control plane;
//! - [`rights`]: definitions, namespace, accounts and roles, as `hosts/deploy` has them;
//! - [`audit`]: which of those rights nobody uses;
//! - [`register`]: the limits of the node on virtual hardware; [`watt_seconds`]: the energy of all nodes;
//! - [`exporter`]: what a real Prometheus scrapes; [`proxy`]: what stands before it and misbehaves;
//! - [`objects`]: Joulie's kinds as kubectl shows them; [`http`], [`ports`]: the programs' own ports;
//! - [`field`]: thousands of nodes and pods;
//! - [`echo`]: an extender that returns what it received, which is the upper limit for any other;
//! - [`bench`]: pods per second, and a burst;
//! - [`chaos`]: kills, an outage, boots and a cut, judged by the limits in force of all machines.
//!
//! Nothing here is shipped or makes decisions: the programs run as they are shipped, as processes with their own
//! rights.
#![forbid(unsafe_code)]

pub mod audit;
pub mod bench;
pub mod chaos;
pub mod echo;
pub mod exporter;
pub mod field;
pub mod http;
pub mod objects;
pub mod ports;
pub mod proxy;
pub mod register;
pub mod rights;
pub mod watt_seconds;
pub mod world;

use std::io::Write;
use std::time::Duration;

/// An error of a suite or a bench is only shown to people; no code branches on it.
pub type SystemError = Box<dyn std::error::Error + Send + Sync>;

/// The polling interval of waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A wait of this length is told, so that a log says where the time went.
const TOLD_FROM: Duration = Duration::from_secs(3);

/// Waits until a condition holds.
///
/// # Errors
/// If it does not hold within the time.
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
    let begun = tokio::time::Instant::now();
    tokio::time::timeout(within, waiting).await.map_err(|_| format!("in vain for {within:?}: {what}"))?;
    let took = begun.elapsed();
    if took >= TOLD_FROM {
        tell(&format!("  waited {took:.1?}: {what}"));
    }
    Ok(())
}

/// Writes directly to standard error, because the test runner would hold the output back until the end.
pub fn tell(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Reports a skipped suite: on standard output for the count, and on standard error for people.
#[expect(clippy::print_stdout, reason = "the test command counts these lines on standard output")]
pub fn skip(why: &str) {
    println!("SKIP({})", why.replace('\n', " "));
    tell(&format!("\nSKIP({why})\n"));
}
