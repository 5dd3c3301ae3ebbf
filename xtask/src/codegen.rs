//! The generated files: the definitions of the Kubernetes kinds in `hosts/deploy/crds`.
//!
//! One test of `joulie-api` renders them and compares; told to, it writes them first. So this command builds no
//! Kubernetes libraries of its own, and `cargo xtask test` holds the files by running the tests.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// What to do with the files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write them.
    Write,
    /// Fail when they are not what the types say.
    Check,
}

/// Writes or checks the files.
pub(crate) fn run(root: &Path, mode: Mode) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root);
    cargo.args(["test", "--quiet", "--locked", "--package", "joulie-api", "--test", "it"]);
    cargo.args(["--", "--exact", "crds::the_definitions_that_are_checked_in_are_those_of_the_types"]);
    match mode {
        Mode::Write => cargo.env("JOULIE_WRITE_CRDS", "1"),
        Mode::Check => cargo.env_remove("JOULIE_WRITE_CRDS"),
    };
    super::succeed(&mut cargo).map(drop).context(match mode {
        Mode::Write => "hosts/deploy/crds could not be written",
        Mode::Check => "hosts/deploy/crds is not what the types say: run `cargo xtask codegen`",
    })
}
