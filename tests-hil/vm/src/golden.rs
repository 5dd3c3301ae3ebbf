//! The table of the kernel's answers, which the rig's tests read: compares it, or writes it on request.

use crate::packages::Kernel;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn path(root: &Path, kernel: &Kernel) -> PathBuf {
    root.join(format!("tests-hil/rig/src/golden/{}.txt", kernel.series))
}

fn table(kernel: &Kernel, lines: &[String]) -> Result<String> {
    let mut text = format!(
        "# What Linux {} (package version {}) answers. Written by `cargo xtask vm golden --update-golden`.\n",
        kernel.release, kernel.version
    );
    for line in lines {
        writeln!(text, "{line}")?;
    }
    Ok(text)
}

/// The differences from the table in the repository; empty if there are none or the table was written.
pub(crate) fn judge(root: &Path, kernel: &Kernel, lines: &[String], update: bool) -> Result<Vec<String>> {
    let path = path(root, kernel);
    let found = table(kernel, lines)?;
    if update {
        std::fs::write(&path, found).with_context(|| format!("writing {}", path.display()))?;
        return Ok(Vec::new());
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    // A newer package of the same series may give the same answers.
    let (kept, found): (Vec<&str>, Vec<&str>) =
        (kept.lines().skip(1).collect(), found.lines().skip(1).collect());
    let new = found.iter().filter(|line| !kept.contains(line)).map(|line| format!("the kernel: {line}"));
    let old = kept.iter().filter(|line| !found.contains(line)).map(|line| format!("the table: {line}"));
    Ok(new.chain(old).collect())
}
