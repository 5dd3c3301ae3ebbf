//! The project's own commands. `cargo xtask` lists them.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to the person who called it")]

mod bench;
mod codegen;
mod duplicates;
mod edges;
mod fuzz;
mod image;
mod pictures;
mod plugin;
mod proofs;
mod test;
mod tidy;
mod type_names;
mod vm;

use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Output};

const USAGE: &str = "\
usage: cargo xtask COMMAND
  test [--long]     what a change must pass: format, lints, tests, proofs, the image; --long waits out what else is shortened,
                    as ten minutes without Prometheus (25 minutes more)
  test --fuzz [--seconds N]
                    each fuzz target for N seconds (20): needs cargo-fuzz and the nightly compiler
  proofs            what the core promises, read off the linked machine code
  codegen [--check] the definitions of the kinds, docs/REFERENCE.md and hosts/deploy/kustomize, or whether they are what they come from
  bench [NAME ...]  costs beside their bars, and the tables of the control laws; bench list names them; bench budget [--mix A,..] [--seeds A..B] [--json]
  pictures          the pictures of the page in docs, from joulie demo in a headless Chromium: some minutes
  vm [SCENARIO ...] [--kernel 6.1|6.12] [--require vm]
                    the kernel's own power code on simulated registers, with the shipped programs inside
  image [--programs DIR] [--out DIR] [--rootfs DIR] [--target TRIPLE] [--check]
                    the container image as an OCI layout (target/image), without a container engine; --check runs the programs in it;
                    --target aarch64-unknown-linux-gnu: for arm64, by a cross compiler
  plugin --uri https://HOST/FOLDER [--programs DIR] [--out DIR] [--target TRIPLE]
                    kubectl joulie as an archive, and krew's manifest of the archives in target/plugin
  tidy              edges between crates, and what a machine can hold of the style";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Without a backtrace: it would hide what failed.
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts this program anew without the variables that cargo sets for what it runs, if there are any. Build scripts of dependencies
/// read some of them, so that cargo, called from here with them, would build much again that a person's own cargo has built.
fn without_the_variables_of_cargo() -> Result<()> {
    let of_cargo = |name: &std::ffi::OsString| {
        name.to_str()
            .is_some_and(|name| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start)))
    };
    let set: Vec<_> = std::env::vars_os().map(|(name, _)| name).filter(of_cargo).collect();
    if set.is_empty() {
        return Ok(());
    }
    let mut anew = Command::new(std::env::current_exe().context("the path of this program")?);
    anew.args(std::env::args_os().skip(1));
    for name in set {
        anew.env_remove(name);
    }
    Err(anew.exec()).context("starting this program anew")
}

fn run() -> Result<()> {
    without_the_variables_of_cargo()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the repository")?;
    match words.as_slice() {
        ["test"] => test::run(root, test::Waits::Short),
        ["test", "--long"] => test::run(root, test::Waits::Real),
        ["test", "--fuzz", rest @ ..] => fuzz::run(root, rest),
        ["proofs"] => proofs::run(root),
        ["codegen"] => codegen::run(root, codegen::Mode::Write),
        ["codegen", "--check"] => codegen::run(root, codegen::Mode::Check),
        ["bench", names @ ..] => bench::run(names),
        ["pictures"] => pictures::run(root),
        ["plugin", rest @ ..] => plugin::run(root, rest),
        ["vm", rest @ ..] => vm::run(root, rest),
        ["image", rest @ ..] => image::run(root, rest),
        ["tidy"] => edges::check(root).and_then(|()| tidy::check(root)),
        _ => bail!("{USAGE}"),
    }
}

/// Runs a command; if it fails, its output is the error.
fn succeed(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output)
}
