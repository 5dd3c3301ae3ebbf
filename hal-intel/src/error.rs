//! What a GPU fails with: which one, what was attempted, and one kind to branch on.

use hal_files::FileError;
use hal_files::devices::DeviceError;
use power_hal::{BadLimit, ErrorKind, Key};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Why a GPU did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntelError {
    /// A file failed, of this GPU where it is known.
    File(Option<Key>, FileError),
    /// The firmware refused the limit: this process may write the file, and the card does not take it.
    Refused(Key, FileError),
    /// The GPU sleeps, and to read it would wake it.
    Asleep(Key),
    /// The limit was switched off before the first write, and the driver cannot switch it off again; it stands at its
    /// rated maximum where that is known.
    StaysOn(Key),
    /// What it says of its range is none: it is described without a limit.
    Range(Key, BadLimit),
    /// The GPU has a meter of its package only, which would show less than the limit of its card holds.
    Narrow(Key),
    /// The folder does not say which GPU it is of, so it is left out.
    Unidentified(Arc<Path>),
    /// Two folders say that they are of the same GPU; the second one is left out.
    Twice(Key, Arc<Path>),
    /// What the journal holds is no limit.
    Unfit(Key),
    /// The GPU has a power limit and nothing else to set.
    Lacking,
    /// The GPU is not there any more, or the handle is of an earlier list.
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
            Self::Refused(key, error) => write!(f, "{key}: its firmware does not take the limit: {error}"),
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
                write!(f, "{}: it does not say which GPU it is of; left out", path.display())
            }
            Self::Twice(key, path) => {
                write!(f, "{}: another folder is {key} already; left out", path.display())
            }
            Self::Unfit(key) => write!(f, "{key}: the saved original is no limit"),
            Self::Lacking => f.write_str("the GPU has a power limit and nothing else to set"),
            Self::Gone => f.write_str("the GPU is not there any more, or was listed anew; describe again"),
        }
    }
}

impl std::error::Error for IntelError {}
