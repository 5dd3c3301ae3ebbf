//! Tests the kernel's own powercap, msr, cpufreq and hwmon code on simulated registers, in a virtual machine that
//! runs the shipped programs. `cargo xtask vm` builds the programs and starts this one.
//!
//! ```text
//! packages ─▶ modules ─▶ initramfs ─▶ machine, once for each scenario and kernel ─▶ verdicts
//! ```
//!
//! Everything that is downloaded or built is in the cache, outside the checkout. If QEMU or the packages are not
//! available, it prints `SKIP(reason)`; with `--require vm` that is a failure.
#![expect(clippy::print_stdout, reason = "it talks to the person who started it")]

mod api;
mod args;
mod cache;
mod golden;
mod initramfs;
mod machine;
mod modules;
mod packages;
mod run;
mod scenario;
mod verdict;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::Args::of_this_process() {
        Ok(args) => args,
        Err(why) => {
            println!("vm: {why:#}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    match run::all(&args) {
        Ok(run::Outcome::Passed) => ExitCode::SUCCESS,
        Ok(run::Outcome::Failed) => ExitCode::FAILURE,
        Ok(run::Outcome::Skipped(why)) if args.required => {
            println!("vm: required, but {why}");
            ExitCode::FAILURE
        }
        Ok(run::Outcome::Skipped(why)) => {
            println!("SKIP(vm: {why})");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("vm: {error:#}");
            ExitCode::FAILURE
        }
    }
}
