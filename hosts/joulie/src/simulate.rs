//! `joulie simulate` and `joulie compare`: the experiments of the crate of that name, in a terminal.

use crate::args::{Simulate, Trial};
use experiments::report::{self, Options, PlacementExperiment};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// A result is some kilobytes for each run; a larger file is something else.
const RESULT_BYTES_MAX: u64 = 64 << 20;

pub(crate) fn run(options: Simulate) -> ExitCode {
    let Simulate { experiment, seeds, arms, json, html } = options;
    let experiment = match experiment {
        Trial::Compat => PlacementExperiment::Compat,
        Trial::Fair => PlacementExperiment::Fair,
    };
    let outcome = match report::simulate(&Options { experiment, seeds, arms }) {
        Ok(outcome) => outcome,
        Err(error) => return failed(&error.to_string()),
    };
    if let Some(file) = html
        && let Err(error) = std::fs::write(&file, outcome.html())
    {
        return failed(&format!("{}: {error}", file.display()));
    }
    let text = if json { format!("{}\n", outcome.json()) } else { outcome.table() };
    super::say(&text)
}

pub(crate) fn compare(first: &Path, second: &Path) -> ExitCode {
    let texts = read(first).and_then(|first| Ok((first, read(second)?)));
    match texts
        .and_then(|(first, second)| report::compare(&first, &second).map_err(|error| error.to_string()))
    {
        Ok(text) => super::say(&text),
        Err(error) => failed(&error),
    }
}

fn read(file: &Path) -> Result<String, String> {
    let name = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let bytes = std::fs::metadata(file).map_err(|error| name(&error))?.len();
    if bytes > RESULT_BYTES_MAX {
        return Err(name(&"larger than any result"));
    }
    std::fs::read_to_string(file).map_err(|error| name(&error))
}

fn failed(text: &str) -> ExitCode {
    // If standard error is closed, the exit code still tells.
    let _told = writeln!(std::io::stderr(), "joulie: {text}");
    ExitCode::FAILURE
}
