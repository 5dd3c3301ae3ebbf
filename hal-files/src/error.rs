//! Why a file did not give or take a value.

use power_hal::{ErrorKind, Surface};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What was attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Opening it.
    Open,
    /// Listing a folder.
    List,
    /// Reading it.
    Read,
    /// Making sense of what was read.
    Parse,
    /// Writing to it.
    Write,
}

/// A file that failed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Which file.
    pub path: Arc<Path>,
    /// What was attempted.
    pub deed: FileOperation,
    /// What to branch on.
    pub kind: ErrorKind,
    /// The kernel's number, if it gave one.
    pub errno: Option<i32>,
}

impl FileError {
    /// A failure that the kernel reported, read as `surface` means it.
    #[must_use]
    pub fn from_io(path: &Arc<Path>, deed: FileOperation, surface: Surface, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        let kind = errno.map_or(ErrorKind::Io, |number| ErrorKind::from_errno(number, surface));
        Self { path: Arc::clone(path), deed, kind, errno }
    }

    /// A text that is not what it should be.
    #[must_use]
    pub fn bad_data(path: &Arc<Path>) -> Self {
        Self { path: Arc::clone(path), deed: FileOperation::Parse, kind: ErrorKind::BadData, errno: None }
    }
}

impl power_hal::Error for FileError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deed = match self.deed {
            FileOperation::Open => "opening",
            FileOperation::List => "listing",
            FileOperation::Read => "reading",
            FileOperation::Parse => "understanding",
            FileOperation::Write => "writing",
        };
        write!(f, "{deed} {}: {}", self.path.display(), self.kind)?;
        match self.errno {
            Some(number) => write!(f, " (errno {number})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FileError {}
