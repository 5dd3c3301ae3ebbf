//! The laws in closed loop with the plant: how fast, how exact, how quiet, how fast the work goes on.
//!
//! The report is a golden file: the laws calculate in fixed point and the plant with operations that are the same on
//! every machine, so that any difference is a difference of behaviour. `cargo xtask bench laws` prints it, and with
//! `--update` writes it.

mod closed;
mod figures;
mod report;
mod scene;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bench/laws.golden.md");

/// Prints the report; writes it where the words of the command ask for that.
pub(crate) fn run() -> Result<()> {
    let report = report::report()?;
    print!("{}", report.text);
    if std::env::args().any(|word| word == "--update") {
        std::fs::write(GOLDEN, &report.text).with_context(|| format!("writing {GOLDEN}"))?;
    }
    Ok(())
}
