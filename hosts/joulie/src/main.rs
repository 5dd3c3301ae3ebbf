//! `joulie`: the one-command binary.
//!
//! `joulie node …` works on one machine, without a cluster: it shows what the hardware can be told, caps it, watches it,
//! and puts it back. It decides nothing itself: the control loop, the journal of originals and the writer's lock are
//! those of `node-kit`, so that what is tried here is what an agent does.
//!
//! Words: the *originals* are what was in force before the first write; the *writer* is the process that holds the lock
//! of the state folder.
#![forbid(unsafe_code)]

mod args;
mod diary;
mod node;
mod out;
mod signals;
mod value;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Node(command) => node::run(&command).into(),
    }
}
