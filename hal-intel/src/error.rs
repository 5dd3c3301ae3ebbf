//! The errors of GPUs: the GPU, the operation, and one kind to branch on.

use hal_files::FileError;
use hal_files::devices::DeviceError;
use power_hal::{BadLimit, ErrorKind, Key};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Why an operation on a GPU failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntelError {
    /// A file operation failed, on this GPU if it is known.
    File(Option<Key>, FileError),
    /// The firmware refused the limit: this process may write the file, but the card does not accept it.
    Refused(Key, FileError),
    /// The GPU is asleep, and a read would wake it.
    Asleep(Key),
    /// The limit was switched off before the first write, and the driver cannot switch it off again; it is at its
    /// rated maximum if that is known.
    StaysOn(Key),
    /// Its reported range is not valid: it is described without a limit.
    Range(Key, BadLimit),
    /// The GPU has only a meter of its package, which shows less than the draw that the limit of the card covers.
    Narrow(Key),
    /// The folder does not identify its GPU, so it is ignored.
    Unidentified(Arc<Path>),
    /// Two folders identify the same GPU; the second one is ignored.
    Twice(Key, Arc<Path>),
    /// The journal's entry is not a valid limit, or nothing that its clock can have been.
    Unfit(Key),
    /// The GPU has no such control.
    Lacking,
    /// The GPU is not present any more, or the handle is from an earlier list.
    Gone,
}

impl power_hal::Error for IntelError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::File(_, error) => error.kind,
            Self::Refused(..) => ErrorKind::Locked,
            Self::Asleep(_) => ErrorKind::Busy,
            Self::StaysOn(_) | Self::Narrow(_) | Self::Lacking => ErrorKind::NotSupported,
            Self::Range(..) | Self::Unidentified(_) | Self::Twice(..) | Self::Unfit(_) => ErrorKind::BadData,
            Self::Gone => ErrorKind::Gone,
        }
    }
}

impl DeviceError for IntelError {
    fn gone() -> Self {
        Self::Gone
    }

    fn lacking() -> Self {
        Self::Lacking
    }

    fn unfit(key: Key) -> Self {
        Self::Unfit(key)
    }
}

impl fmt::Display for IntelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(Some(key), error) => write!(f, "{key}: {error}"),
            Self::File(None, error) => fmt::Display::fmt(error, f),
            Self::Refused(key, error) => write!(f, "{key}: its firmware does not accept the limit: {error}"),
            Self::Asleep(key) => write!(f, "{key}: it sleeps, and is not woken to be read"),
            Self::StaysOn(key) => write!(
                f,
                "{key}: its limit was switched off before, and the driver does not switch it off again; it stands at \
                 its rated maximum, where that is known"
            ),
            Self::Range(key, bad) => write!(f, "{key}: it cannot be capped: {bad}"),
            Self::Narrow(key) => {
                write!(f, "{key}: its limit is of the card and its meter of the package only; not metered")
            }
            Self::Unidentified(path) => {
                write!(f, "{}: its GPU cannot be identified; left out", path.display())
            }
            Self::Twice(key, path) => {
                write!(f, "{}: another folder is {key} already; left out", path.display())
            }
            Self::Unfit(key) => write!(f, "{key}: its original is nothing that could be put back"),
            Self::Lacking => f.write_str("the GPU has no such control"),
            Self::Gone => f.write_str("the GPU no longer exists, or was enumerated again; describe again"),
        }
    }
}

impl std::error::Error for IntelError {}
