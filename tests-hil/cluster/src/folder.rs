//! The folder of one control plane: keys, kubeconfigs, logs and etcd's data. Only its owner can access it, and it is
//! removed with its owner.

use crate::error::ClusterError;
use std::fs::DirBuilder;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The part of a log that an error shows.
const TAIL_LINES: usize = 20;
const TAIL_BYTES: u64 = 16 * 1024;

/// A folder that is created and removed here.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates the folder at this path, which must not exist yet, because it will be removed.
    pub(crate) fn at(path: &Path) -> Result<Self, ClusterError> {
        let path = std::path::absolute(path).map_err(ClusterError::file("finding the folder", path))?;
        DirBuilder::new().mode(0o700).create(&path).map_err(ClusterError::file(
            "making a new folder (it must not exist yet, it will be removed)",
            &path,
        ))?;
        Ok(Self { path })
    }

    /// Creates a folder in the system's folder for temporary files.
    pub(crate) fn temporary() -> Result<Self, ClusterError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("joulie-cluster-{}-{number}", std::process::id()));
            match Self::at(&path) {
                // A folder that a killed process with the same id left is not removed here.
                Err(ClusterError::File { source, .. })
                    if source.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, ClusterError> {
        let path = self.join(name);
        std::fs::write(&path, text).map_err(ClusterError::file("writing", &path))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It may be removed already; after any other error the watchdog tries again.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The last lines of a log, or why there are none.
pub(crate) fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => last_lines(&String::from_utf8_lossy(&bytes)),
        Err(error) => format!("({}: {error})", path.display()),
    }
}

/// The last lines of a text.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines.get(from..).unwrap_or_default().join("\n")
}
