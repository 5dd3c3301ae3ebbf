//! The errors of devices: the device, the operation, and one kind to branch on.

use crate::hsmp::HsmpCommand;
use crate::rocm::{Call, RsmiStatus};
use hal_files::FileError;
use hal_files::devices::DeviceError;
use power_hal::{BadLimit, ErrorKind, Key, Surface};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Why an operation on a device failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AmdError {
    /// A file operation failed, on this device if it is known.
    File(Option<Key>, FileError),
    /// The driver is resetting or suspending the GPU, and permits no access until that is done.
    InReset(Key, FileError),
    /// The GPU is asleep, and a read would wake it.
    Asleep(Key),
    /// A cap inside the range that the device itself reports was refused as invalid: a GPU of a virtual machine, or
    /// one whose firmware allows no change of the cap.
    TakesNoCap(Key, FileError),
    /// The firmware of a socket, or its driver, refused a message with this error number.
    Mailbox(Key, HsmpCommand, i32),
    /// The firmware of a socket answered a message with an impossible number.
    Answer(Key, HsmpCommand),
    /// A call of the ROCm SMI library failed, for this GPU if it is known.
    Rocm(Option<Key>, Call, RsmiStatus),
    /// The ROCm SMI library is installed but cannot be loaded, or lacks a function; the text of the loader.
    Library(Box<str>),
    /// The ROCm SMI library answered with an impossible number.
    Impossible(Key, Call),
    /// Its reported range is not valid: it is described without a limit.
    Range(Key, BadLimit),
    /// The folder of the device does not identify its GPU or socket, so it is ignored.
    Unidentified(Arc<Path>),
    /// Two folders identify the same device; the second one is ignored.
    Twice(Key, Arc<Path>),
    /// The journal's entry is not a valid cap, or nothing that its clock can have been; or its clock is in a state that
    /// could not be restored.
    Unfit(Key),
    /// The device has no such control.
    Lacking,
    /// The device is not present any more, or the handle is from an earlier list.
    Gone,
}

impl power_hal::Error for AmdError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::File(_, error) => error.kind,
            Self::Mailbox(_, _, errno) => ErrorKind::from_errno(*errno, Surface::Device),
            Self::Rocm(_, _, status) => status.kind(),
            Self::Library(_) => ErrorKind::NotSupported,
            Self::InReset(..) | Self::Asleep(_) => ErrorKind::Busy,
            Self::TakesNoCap(..) | Self::Lacking => ErrorKind::NotSupported,
            Self::Answer(..)
            | Self::Impossible(..)
            | Self::Range(..)
            | Self::Unidentified(_)
            | Self::Twice(..)
            | Self::Unfit(_) => ErrorKind::BadData,
            Self::Gone => ErrorKind::Gone,
        }
    }
}

impl DeviceError for AmdError {
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

impl fmt::Display for AmdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(Some(key), error) => write!(f, "{key}: {error}"),
            Self::File(None, error) => fmt::Display::fmt(error, f),
            Self::InReset(key, error) => write!(f, "{key}: the driver is resetting it: {error}"),
            Self::Asleep(key) => write!(f, "{key}: it sleeps, and is not woken to be read"),
            Self::TakesNoCap(key, error) => {
                write!(f, "{key}: it accepts no cap, although the cap is in its range: {error}")
            }
            Self::Mailbox(key, ask, errno) => {
                write!(f, "{key}: {ask} through /dev/hsmp: {} (errno {errno})", power_hal::Error::kind(self))
            }
            Self::Answer(key, ask) => write!(f, "{key}: {ask} through /dev/hsmp: the answer is impossible"),
            Self::Rocm(Some(key), call, status) => write!(f, "{key}: {call}: {status}"),
            Self::Rocm(None, call, status) => write!(f, "{call}: {status}"),
            Self::Library(words) => write!(f, "loading the ROCm SMI library: {words}"),
            Self::Impossible(key, call) => write!(f, "{key}: {call}: the answer is impossible"),
            Self::Range(key, bad) => write!(f, "{key}: it cannot be capped: {bad}"),
            Self::Unidentified(path) => {
                write!(f, "{}: its GPU or socket cannot be identified; left out", path.display())
            }
            Self::Twice(key, path) => {
                write!(f, "{}: another folder is {key} already; left out", path.display())
            }
            Self::Unfit(key) => write!(f, "{key}: its original is nothing that could be put back"),
            Self::Lacking => f.write_str("the device has no such control"),
            Self::Gone => f.write_str("the device no longer exists, or was enumerated again; describe again"),
        }
    }
}

impl std::error::Error for AmdError {}
