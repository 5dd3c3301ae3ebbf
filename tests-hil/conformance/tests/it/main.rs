//! The suite on every available server.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "all of it is tests: what is not expected fails them, and the differences are printed"
)]

mod admission;
mod embedded;
mod hosts;
mod real;
mod servers;

use conformance::ConformanceReport;
use std::time::Duration;

/// Prints the differences and the time, and fails if there are errors.
fn report(server: &str, outcome: &ConformanceReport) {
    let whole: Duration = outcome.took.iter().map(|(_, took)| *took).sum();
    println!("{server}: {} cases in {whole:.1?}", outcome.took.len());
    for line in &outcome.differs {
        println!("{server}: {} differs: {}", line.case, line.why);
    }
    outcome.check();
}
