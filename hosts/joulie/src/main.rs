//! `joulie`: the one-command binary.
//!
//! `joulie demo`, which is also what it does without a word, is the whole system in one process: an API server in memory,
//! simulated nodes, and the agent, operator and extender that ship, talking to each other as in a cluster. `joulie node …` works on one machine, without a cluster: it shows what the hardware can be told, caps it, watches it,
//! and puts it back. It decides nothing itself: the hosts, the control loop, the journal of originals and the writer's lock are
//! those of `node-kit`, so that what is tried here is what an agent does.
//!
//! Words: the *originals* are what was in force before the first write; the *writer* is the process that holds the lock
//! of the state folder.
#![forbid(unsafe_code)]

mod args;
mod demo;
mod diary;
mod node;
mod out;
#[cfg(test)]
mod reference;
mod signals;
mod value;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Cli { command, demo } = Cli::parse();
    match command {
        Some(Command::Node(command)) => node::run(&command).into(),
        Some(Command::Demo(demo)) => demo::run(&demo).into(),
        None => demo::run(&demo).into(),
    }
}
