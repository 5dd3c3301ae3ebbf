//! What a device fails with: which one, what was attempted, and one kind to branch on.

use crate::hsmp::HsmpCommand;
use crate::rocm::{Call, RsmiStatus};
use hal_files::FileError;
use hal_files::devices::DeviceError;
use power_hal::{BadLimit, ErrorKind, Key, Surface};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Why a device did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AmdError {
    /// A file failed, of this device where it is known.
    File(Option<Key>, FileError),
    /// The driver is resetting or suspending the GPU, and permits nothing until it is done.
    InReset(Key, FileError),
    /// The GPU sleeps, and to read it would wake it.
    Asleep(Key),
    /// A cap inside the range that the device itself shows was refused as invalid: a GPU of a virtual machine, or one
    /// whose firmware does not let anybody set it.
    TakesNoCap(Key, FileError),
    /// The firmware of a socket, or the driver before it, refused a message with this error number.
    Mailbox(Key, HsmpCommand, i32),
    /// The firmware of a socket answered a message with a number that cannot be.
    Answer(Key, HsmpCommand),
    /// The ROCm SMI library did not do what was asked, of this GPU where it is known.
    Rocm(Option<Key>, Call, RsmiStatus),
    /// The ROCm SMI library is there and cannot be loaded, or lacks a function; the loader's own words.
    Library(Box<str>),
    /// The ROCm SMI library answered with a number that cannot be.
    Impossible(Key, Call),
    /// What it says of its range is none: it is described without a limit.
    Range(Key, BadLimit),
    /// The folder of the device does not say which GPU or socket it is, so it is left out.
    Unidentified(Arc<Path>),
    /// Two folders say that they are the same device; the second one is left out.
    Twice(Key, Arc<Path>),
    /// What the journal holds is no cap.
    Unfit(Key),
    /// The device has a power limit and nothing else to set.
    Lacking,
    /// The device is not there any more, or the handle is of an earlier list.
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
                write!(f, "{key}: it takes no cap, although the cap is in its range: {error}")
            }
            Self::Mailbox(key, ask, errno) => {
                write!(f, "{key}: {ask} through /dev/hsmp: {} (errno {errno})", power_hal::Error::kind(self))
            }
            Self::Answer(key, ask) => write!(f, "{key}: {ask} through /dev/hsmp: the answer cannot be"),
            Self::Rocm(Some(key), call, status) => write!(f, "{key}: {call}: {status}"),
            Self::Rocm(None, call, status) => write!(f, "{call}: {status}"),
            Self::Library(words) => write!(f, "loading the ROCm SMI library: {words}"),
            Self::Impossible(key, call) => write!(f, "{key}: {call}: the answer cannot be"),
            Self::Range(key, bad) => write!(f, "{key}: it cannot be capped: {bad}"),
            Self::Unidentified(path) => {
                write!(f, "{}: it does not say which GPU or socket it is; left out", path.display())
            }
            Self::Twice(key, path) => {
                write!(f, "{}: another folder is {key} already; left out", path.display())
            }
            Self::Unfit(key) => write!(f, "{key}: the saved original is no cap"),
            Self::Lacking => f.write_str("the device has a power limit and nothing else to set"),
            Self::Gone => f.write_str("the device is not there any more, or was listed anew; describe again"),
        }
    }
}

impl std::error::Error for AmdError {}
