//! Why a file operation failed.

use power_hal::{ErrorKind, Surface};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Opening it.
    Open,
    /// Listing a folder.
    List,
    /// Reading it.
    Read,
    /// Parsing what was read.
    Parse,
    /// Writing to it.
    Write,
}

/// A file operation that failed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub path: Arc<Path>,
    /// The operation.
    pub deed: FileOperation,
    /// What to branch on.
    pub kind: ErrorKind,
    /// The kernel's error number, if there is one.
    pub errno: Option<i32>,
}

impl FileError {
    /// A failure that the kernel reported, interpreted for `surface`.
    #[must_use]
    pub fn from_io(path: &Arc<Path>, deed: FileOperation, surface: Surface, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        let kind = errno.map_or(ErrorKind::Io, |number| ErrorKind::from_errno(number, surface));
        Self { path: Arc::clone(path), deed, kind, errno }
    }

    /// A text that does not have the expected form.
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
