//! Helpers of this crate's tests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder that is deleted with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("node-kit-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed stays in the temporary folder.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}
