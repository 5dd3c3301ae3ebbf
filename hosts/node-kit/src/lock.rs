//! One writer per node: a process that may write to the hardware holds the lock of the state folder as long as it
//! lives.
//!
//! The kernel releases the lock when its process ends in any way, so no stale lock can remain. The file's text only
//! tells people who holds it.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

const NAME: &str = "writer.lock";

/// The right to write to this node's hardware.
#[derive(Debug)]
pub struct NodeLock {
    file: File,
    before: Option<String>,
}

/// Why the lock was not obtained.
#[derive(Debug)]
pub enum LockError {
    /// Another process has it.
    Held {
        /// The file.
        path: PathBuf,
        /// The holder, as the file names it.
        holder: String,
    },
    /// The file cannot be used.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { path, holder } => write!(
                f,
                "this node's power limits are being written by {holder} already (lock {}); stop it first",
                path.display()
            ),
            Self::File { path, error } => write!(f, "cannot use the lock file {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for LockError {}

impl NodeLock {
    /// Takes the lock of a state folder.
    ///
    /// # Errors
    /// When another process has it, or the file cannot be used.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(NAME);
        let failed = |error| LockError::File { path: path.clone(), error };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = options.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { holder: holder(&mut file), path }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let before = said(&mut file);
        let write = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", me()));
        write.map_err(failed)?;
        Ok(Self { file, before })
    }

    /// The previous holder, as the file named it; `None` if there was none.
    #[must_use]
    pub fn last_holder(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// A second descriptor of the lock, for a child process: the lock is free when both are closed.
    ///
    /// # Errors
    /// When there is no free descriptor.
    pub fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

impl NodeLock {
    /// The holder of the lock of a state folder, if there is one. The check takes the lock for an instant, so a process
    /// that tries to take it at that time must retry.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn holder(folder: &Path) -> Result<Option<String>, LockError> {
        let path = folder.join(NAME);
        let failed = |error| LockError::File { path: path.clone(), error };
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(holder(&mut file))),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

fn me() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name).unwrap_or_default().display().to_string();
    format!("{name} (process {})", std::process::id())
}

fn holder(file: &mut File) -> String {
    said(file).unwrap_or_else(|| "another process".to_owned())
}

fn said(file: &mut File) -> Option<String> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.take(200).read_to_string(&mut text)).ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rig::test_machine::Folder;

    #[test]
    fn there_is_one_writer_and_the_next_one_is_told_who() {
        let folder = Folder::new();
        let lock = NodeLock::take(&folder.0).unwrap();
        let refused = NodeLock::take(&folder.0).unwrap_err().to_string();
        assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
        let seen = NodeLock::holder(&folder.0).unwrap().unwrap();
        assert!(seen.contains(&format!("(process {})", std::process::id())), "{seen}");
        drop(lock);
        assert_eq!(NodeLock::holder(&folder.0).unwrap(), None);
        assert!(NodeLock::take(&folder.0).is_ok());
    }

    #[test]
    fn the_next_holder_learns_who_the_last_one_was_and_leaves_only_itself_in_the_file() {
        let folder = Folder::new();
        std::fs::write(
            folder.0.join(NAME),
            "somebody-with-a-name-that-is-longer-than-ours-by-far (process 7)\n",
        )
        .unwrap();
        let lock = NodeLock::take(&folder.0).unwrap();
        let before = lock.last_holder();
        assert_eq!(before, Some("somebody-with-a-name-that-is-longer-than-ours-by-far (process 7)"));
        assert_eq!(std::fs::read_to_string(folder.0.join(NAME)).unwrap(), format!("{}\n", me()));
    }

    #[test]
    fn a_second_hold_keeps_the_lock() {
        let folder = Folder::new();
        let lock = NodeLock::take(&folder.0).unwrap();
        assert_eq!(lock.last_holder(), None);
        let second = lock.share().unwrap();
        drop(lock);
        assert!(NodeLock::take(&folder.0).is_err());
        drop(second);
        assert!(NodeLock::take(&folder.0).is_ok());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = Folder::new();
        std::fs::write(folder.0.join("file"), "").unwrap();
        let refused = NodeLock::take(&folder.0.join("file/state")).unwrap_err().to_string();
        assert!(refused.contains("file/state/writer.lock"), "{refused}");
    }
}
