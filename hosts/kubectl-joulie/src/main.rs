//! `kubectl joulie` in the shell.

use clap::Parser;
use kubectl_joulie::args::PluginCli;
use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_joulie::start(PluginCli::parse())
}
