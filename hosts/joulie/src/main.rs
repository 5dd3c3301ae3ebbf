//! `joulie`: the one-command binary.
//!
//! `joulie demo`, which is also the default command, runs the whole system in one process: an API server in memory,
//! simulated nodes, and the agent, operator and extender that ship, communicating as in a cluster. `joulie node …`
//! works on one machine without a cluster: it shows the ranges of the hardware, caps it, watches it, and restores it.
//! It has no control logic of its own: the hosts, the control loop, the journal of originals and the writer's lock
//! are those of `node-kit`, so that it behaves as an agent does.
//!
//! Terms: the *originals* are the limits that were in force before the first write; the *writer* is the process that
//! holds the lock of the state folder.
#![forbid(unsafe_code)]

mod args;
#[cfg(test)]
mod dashboards;
mod demo;
mod diary;
mod node;
mod out;
mod pages;
#[cfg(test)]
mod reference;
mod signals;
mod simulate;
mod value;

use args::{Cli, Command};
use clap::{CommandFactory, Parser, ValueEnum};
use pages::ClusterProgram;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Cli { command, demo } = Cli::parse();
    match command {
        Some(Command::Node(command)) => node::run(&command).into(),
        Some(Command::Demo(demo)) => demo::run(&demo).into(),
        Some(Command::Simulate(options)) => simulate::run(options),
        Some(Command::Replay(options)) => simulate::replay(options),
        Some(Command::Compare { first, second }) => simulate::compare(&first, &second),
        Some(Command::Kubectl(plugin)) => kubectl_joulie::start(plugin),
        Some(Command::Completion { shell, program }) => {
            let of = program.map_or_else(Cli::command, ClusterProgram::command);
            let name = of.get_name().to_owned();
            say(&kubectl_joulie::completion_of(of, &name, shell))
        }
        Some(Command::Man { folder }) => man(&folder),
        None => demo::run(&demo).into(),
    }
}

fn man(folder: &Path) -> ExitCode {
    let cluster = ClusterProgram::value_variants().iter().map(|program| program.command());
    let all = std::iter::once(Cli::command()).chain(cluster);
    let written = all.map(|command| kubectl_joulie::write_man(command, folder));
    // Each says the same.
    match written.collect::<Result<Vec<_>, _>>().map(|all| all.into_iter().next().unwrap_or_default()) {
        Ok(written) => say(&written),
        Err(error) => {
            // If standard error is closed, the exit code still tells.
            let _told = writeln!(std::io::stderr(), "joulie: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) -> ExitCode {
    let mut out = out::Out::new();
    out.text(text);
    if out.failure().is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
