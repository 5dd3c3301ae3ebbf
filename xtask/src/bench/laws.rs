//! The laws in closed loop with the plant: how fast they settle, how exact and how quiet they are, and the speed of
//! the work.
//!
//! The report is a golden file: the laws calculate in fixed point, and the plant uses operations that are the same on
//! every machine, so any difference is a difference of behaviour. `cargo xtask bench laws` prints the report, and
//! with `--update` writes it.

mod closed;
mod figures;
mod report;
mod scene;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bench/laws.golden.md");

/// Prints the report, and writes it if the command line has `--update`.
pub(crate) fn run() -> Result<()> {
    let report = report::report()?;
    print!("{}", report.text);
    if std::env::args().any(|word| word == "--update") {
        std::fs::write(GOLDEN, &report.text).with_context(|| format!("writing {GOLDEN}"))?;
    }
    Ok(())
}
