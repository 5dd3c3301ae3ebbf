//! The disks of the machines, on which agents keep persistent state. They are removed at the end of the hour.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A separate folder for each hour, because hours may run in parallel.
pub(crate) struct Disk(PathBuf);

static HOURS: AtomicU64 = AtomicU64::new(0);

impl Disk {
    /// An empty disk. Agents create its folders when they first write.
    pub(crate) fn new() -> Self {
        let (process, hour) = (std::process::id(), HOURS.fetch_add(1, Ordering::Relaxed));
        // In memory if possible, because no power failure is simulated that a flush would have to survive.
        let memory = Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir());
        let folder = memory.unwrap_or_else(std::env::temp_dir);
        Self(folder.join(format!("joulie-world-{process}-{hour}")))
    }

    /// The folder of a node.
    pub(crate) fn of(&self, node: &str) -> PathBuf {
        self.0.join(node)
    }

    /// Erases a node's disk, as if the machine were replaced.
    pub(crate) fn wipe(&self, node: &str) {
        // If nothing was written, there is nothing to remove.
        let _ = std::fs::remove_dir_all(self.of(node));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let folder: &Path = &self.0;
        // If nothing was written, there is nothing to remove.
        let _ = std::fs::remove_dir_all(folder);
    }
}
