//! Checks the contract of the power port on a real machine: prints a report of the machine, then a line for each rule
//! of each backend: `PASS`, `FAIL` or `SKIP(reason)`.
//!
//! Without `--write` nothing is opened for writing. With it, limits are lowered and put back by a *worker*, a second
//! process of this program; the *guardian*, which a person started, watches it. The originals are in the node's
//! journal before anything is written. If one of the two ends, the other starts the *restorer*, again this program,
//! which puts the originals back. If both are gone, the next run does it, or `joulie node restore`.
//!
//! It must never raise a limit, write beside an agent, or end with an unreported change.
#![forbid(unsafe_code)]

mod args;
mod examine;
mod guardian;
mod kits;
mod limits;
mod report;
mod restorer;
mod verdict;
mod witness;
mod worker;

use args::{Args, Role};
use clap::Parser;
use examine::Examine;
use limits::Limits;
use std::process::ExitCode;
use verdict::Verdict;

fn main() -> ExitCode {
    let args = Args::parse();
    match args.role {
        Some(Role::Worker) => worker::run(&args),
        Some(Role::Restorer) => restorer::run(&args),
        Some(Role::Heir) => restorer::inherit(&args),
        None => start(&args),
    }
}

/// The process that a person started.
fn start(args: &Args) -> ExitCode {
    // The guardian writes nothing either; only the worker and the restorer do.
    hal_files::only_read();
    let mut verdict = Verdict::new(std::io::stdout());
    if args.write && !report::is_root() {
        verdict.fail("--write needs root");
        verdict.end();
        return ExitCode::from(2);
    }
    report::tell(args, &mut verdict);
    if args.write {
        guardian::run(args, &mut verdict);
    } else {
        look(args, &mut verdict);
    }
    verdict.end()
}

fn look(args: &Args, verdict: &mut Verdict) {
    verdict.tell("");
    verdict.tell("Contract, read-only: every file is opened to be read, nothing is asked for");
    let before = Limits::of(args);
    let mut examine = Examine::looking(args, verdict);
    kits::each(args, &mut examine);
    examine.end();
    before.hold(&Limits::of(args), verdict);
}
