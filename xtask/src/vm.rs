//! The ring in a virtual machine: builds the shipped programs, and lets `tests-hil/vm` run them on the kernel's own
//! power code.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// The programs for the guest, and the one that runs it.
const BUILD: &[&str] = &["build", "--locked", "-p", "joulie", "-p", "hil", "-p", "agent", "-p", "vm"];

/// Builds and runs, with the arguments of the command line after `vm`.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let words = match words {
        // The test command has built them, with the features of the whole workspace.
        ["--built", rest @ ..] => rest,
        _ => {
            let built =
                Command::new("cargo").current_dir(root).args(BUILD).status().context("starting cargo")?;
            if !built.success() {
                bail!("cargo {} failed", BUILD.join(" "));
            }
            words
        }
    };
    // cargo has put the other programs into the folder of this one.
    let here = std::env::current_exe().context("finding the folder of the programs")?;
    let programs = here.parent().context("a program lies in a folder")?;
    let vm = Command::new(programs.join("vm")).arg("--programs").arg(programs).args(words).status();
    if vm.context("starting vm")?.success() {
        Ok(())
    } else {
        bail!("the ring in the virtual machine failed")
    }
}
