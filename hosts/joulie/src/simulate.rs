//! `joulie simulate`, `joulie replay` and `joulie compare`: the experiments of the crate of that name, in a terminal.

use crate::args::{Replay, ResultArgs, Simulate, Trial};
use experiments::report::{self, Options, Outcome, PlacementExperiment};
use experiments::trace::ReadTrace;
use std::io::{BufReader, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// A result is some kilobytes for each run; a larger file is something else.
const RESULT_BYTES_MAX: u64 = 64 << 20;

pub(crate) fn run(options: Simulate) -> ExitCode {
    let Simulate { experiment, seeds, arms, result } = options;
    let experiment = match experiment {
        Trial::Compat => PlacementExperiment::Compat,
        Trial::Fair => PlacementExperiment::Fair,
        Trial::Curves => PlacementExperiment::Curves,
        Trial::Ablation => PlacementExperiment::Ablation,
        Trial::Caps => PlacementExperiment::Caps,
    };
    match report::simulate(&Options { experiment, seeds, arms }, &mut progress) {
        Ok(outcome) => tell(&outcome, &result),
        Err(error) => failed(&error.to_string()),
    }
}

pub(crate) fn replay(options: Replay) -> ExitCode {
    let Replay { trace, speed, arms, result } = options;
    let name = |error: &dyn std::fmt::Display| format!("{}: {error}", trace.display());
    let file = match std::fs::File::open(&trace) {
        Ok(file) => file,
        Err(error) => return failed(&name(&error)),
    };
    let read = match ReadTrace::read(BufReader::new(file), speed) {
        Ok(read) => read,
        Err(error) => return failed(&name(&error)),
    };
    // On standard error, so that the result can be read by a program.
    let _told = std::io::stderr().write_all(read.told().as_bytes());
    match report::replay(&read, &arms, &mut progress) {
        Ok(outcome) => tell(&outcome, &result),
        Err(error) => failed(&error.to_string()),
    }
}

fn tell(outcome: &Outcome, result: &ResultArgs) -> ExitCode {
    let ResultArgs { json, html, plots } = result;
    let page = html.iter().map(|file| (file.clone(), outcome.html()));
    let drawn = plots
        .iter()
        .flat_map(|folder| outcome.plots().into_iter().map(|(name, svg)| (folder.join(name), svg)));
    clear_progress();
    for (file, text) in page.chain(drawn) {
        if let Err(error) = std::fs::write(&file, text) {
            return failed(&format!("{}: {error}", file.display()));
        }
    }
    let text = if *json { format!("{}\n", outcome.json()) } else { outcome.table() };
    super::say(&text)
}

/// Says on standard error how many runs are done, where that is a terminal.
fn progress(done: usize, all: usize) {
    const WIDTH: usize = 30;
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let full = WIDTH * done / all.max(1);
        let _told = write!(out, "\r[{:<WIDTH$}] {done} of {all} runs", "#".repeat(full));
    }
}

fn clear_progress() {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _told = write!(out, "\r{:60}\r", "");
    }
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
