//! The disks of the machines, on which agents keep what outlives them. They go with the hour.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder of its own for each hour: two may be played at the same time.
pub(crate) struct Disk(PathBuf);

static HOURS: AtomicU64 = AtomicU64::new(0);

impl Disk {
    /// An empty one. Agents make its folders when they first write.
    pub(crate) fn new() -> Self {
        let (process, hour) = (std::process::id(), HOURS.fetch_add(1, Ordering::Relaxed));
        // In memory where there is such a place: no power is cut here that a flush would have to survive.
        let memory = Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir());
        let folder = memory.unwrap_or_else(std::env::temp_dir);
        Self(folder.join(format!("joulie-world-{process}-{hour}")))
    }

    /// A node's part of it.
    pub(crate) fn of(&self, node: &str) -> PathBuf {
        self.0.join(node)
    }

    /// The disk of another machine: nobody has written to it.
    pub(crate) fn wipe(&self, node: &str) {
        // Where nobody wrote there is nothing to remove.
        let _ = std::fs::remove_dir_all(self.of(node));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let folder: &Path = &self.0;
        // Where nobody wrote there is nothing to remove.
        let _ = std::fs::remove_dir_all(folder);
    }
}
