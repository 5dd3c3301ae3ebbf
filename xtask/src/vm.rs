//! The ring in a virtual machine: builds the programs that ship, and has `tests-hil/vm` run them under the kernel's own
//! power code.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Everything that goes into the guest, and what runs it.
const BUILD: &[&str] = &["build", "--locked", "-p", "joulie", "-p", "hil", "-p", "agent", "-p", "vm"];

/// Builds and runs, with the words of the command line after `vm`.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let built = Command::new("cargo").current_dir(root).args(BUILD).status().context("starting cargo")?;
    if !built.success() {
        bail!("cargo {} failed", BUILD.join(" "));
    }
    // Where this program lies, cargo has put the others.
    let here = std::env::current_exe().context("finding the folder of the programs")?;
    let programs = here.parent().context("a program lies in a folder")?;
    let vm = Command::new(programs.join("vm")).arg("--programs").arg(programs).args(words).status();
    if vm.context("starting vm")?.success() {
        Ok(())
    } else {
        bail!("the ring in the virtual machine failed")
    }
}
