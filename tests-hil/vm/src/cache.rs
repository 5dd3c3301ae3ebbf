//! The folder for packages, unpacked trees and modules: outside the checkout, shared by all checkouts.

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The folder `joulie/vm` in the user's cache, which is created if necessary.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub(crate) fn folder() -> Result<PathBuf> {
    let read = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = read("XDG_CACHE_HOME").or_else(|| read("HOME").map(|home| home.join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME says where to keep packages")?;
    if base.is_relative() {
        bail!("the cache folder {} is not absolute", base.display());
    }
    let folder = base.join("joulie/vm");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// A folder of the cache that is complete if it exists: it is filled under another name and then renamed. Processes
/// that need the same folder wait for each other.
pub(crate) fn filled(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().context("a folder of the cache has a parent")?;
    fs::create_dir_all(parent)?;
    let lock = File::create(folder.with_extension("lock"))?;
    lock.lock().context("waiting for another process that fills the cache")?;
    if folder.is_dir() {
        return Ok(());
    }
    let half = folder.with_extension("half");
    if half.exists() {
        fs::remove_dir_all(&half)?;
    }
    fs::create_dir_all(&half)?;
    fill(&half)?;
    fs::rename(&half, folder).with_context(|| format!("moving to {}", folder.display()))
}
