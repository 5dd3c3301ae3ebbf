//! The mailbox of a socket's firmware: the messages, their layout, and their transport.

use crate::ffi;
use hal_files::{FileError, FileOperation};
use power_hal::{ErrorKind, Surface};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A message that this backend uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HsmpCommand {
    /// Gets the power that the socket draws, in mW.
    Power,
    /// Sets its power limit, in mW. The firmware clips it at the maximum.
    SetLimit,
    /// Gets the power limit in force, in mW: the strictest of those set in band and out of band.
    Limit,
    /// Gets the largest power limit, in mW.
    LimitMax,
    /// Gets the limit of the frequency, in MHz in the upper half, and a bit for each of its reasons in the lower one.
    FrequencyLimit,
}

/// The bit of [`HsmpCommand::FrequencyLimit`] by which the socket's power limit (PPT) is a reason.
pub(super) const HELD_BY_POWER: u32 = 1 << 3;

impl HsmpCommand {
    /// The number of the message.
    #[must_use]
    pub const fn id(self) -> u32 {
        match self {
            Self::Power => 4,
            Self::SetLimit => 5,
            Self::Limit => 6,
            Self::LimitMax => 7,
            Self::FrequencyLimit => 0x19,
        }
    }
}

impl fmt::Display for HsmpCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Power => "asking for the power",
            Self::SetLimit => "setting the power limit",
            Self::Limit => "asking for the power limit",
            Self::LimitMax => "asking for the largest power limit",
            Self::FrequencyLimit => "asking what limits the frequency",
        })
    }
}

/// `struct hsmp_message` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HsmpMessage {
    /// The number of the message.
    pub id: u32,
    /// The number of arguments; the driver refuses any number other than that of the message.
    pub arguments: u16,
    /// The number of words of the answer; with the same restriction.
    pub answers: u16,
    /// The arguments, which the answer replaces.
    pub words: [u32; 8],
    /// The socket's number.
    pub socket: u16,
}

// The kernel copies 44 bytes in and out, with the socket at offset 40.
const _: () = assert!(size_of::<HsmpMessage>() == 44 && std::mem::offset_of!(HsmpMessage, socket) == 40);

impl HsmpMessage {
    /// A message that gets a value.
    #[must_use]
    pub fn ask(socket: u16, ask: HsmpCommand) -> Self {
        Self { id: ask.id(), answers: 1, socket, ..Self::default() }
    }

    /// The message that sets the limit.
    #[must_use]
    pub fn set_limit(socket: u16, milliwatts: u32) -> Self {
        let words = [milliwatts, 0, 0, 0, 0, 0, 0, 0];
        Self { id: HsmpCommand::SetLimit.id(), arguments: 1, words, socket, ..Self::default() }
    }
}

/// Transports messages to the firmware and answers back.
pub trait Mailbox {
    /// Sends a message; afterwards the answer is in its words.
    ///
    /// # Errors
    /// The kernel's error number: ENODEV without such a socket, ENOMSG for a message that the firmware does not know,
    /// ETIMEDOUT when it does not answer, EINVAL for arguments that it does not accept, EBUSY while it is busy.
    fn send(&self, message: &mut HsmpMessage) -> Result<(), i32>;
}

/// `/dev/hsmp`, kept open.
#[derive(Debug)]
pub struct DevHsmp {
    file: File,
    may_set: bool,
}

/// How often a wait for the mailbox is repeated after a signal has interrupted it.
const SIGNALS_MAX: u32 = 8;

impl DevHsmp {
    /// Opens the device to get and to set values, or only to get them where setting is not permitted.
    ///
    /// # Errors
    /// When it cannot be opened at all.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let asks_only = || File::open(path).map(|file| Self { file, may_set: false });
        let refused = |error: &io::Error| {
            error.raw_os_error().map(|errno| ErrorKind::from_errno(errno, Surface::Device))
                == Some(ErrorKind::PermissionDenied)
        };
        let opened = if hal_files::is_only_read() {
            asks_only()
        } else {
            match OpenOptions::new().read(true).write(true).open(path) {
                Err(error) if refused(&error) => asks_only(),
                outcome => outcome.map(Self::over),
            }
        };
        opened.map_err(|error| {
            FileError::from_io(&Arc::from(path), FileOperation::Open, Surface::Device, &error)
        })
    }

    /// The device behind a file that was opened to get and to set values.
    #[must_use]
    pub const fn over(file: File) -> Self {
        Self { file, may_set: true }
    }
}

impl Mailbox for DevHsmp {
    fn send(&self, message: &mut HsmpMessage) -> Result<(), i32> {
        // The driver would answer EINVAL or, in a later version, EPERM; EINVAL would not name the real cause.
        if !self.may_set && message.id == HsmpCommand::SetLimit.id() {
            return Err(libc::EACCES);
        }
        let mut errno = libc::EINTR;
        for _ in 0..SIGNALS_MAX {
            match ffi::hsmp_ioctl(&self.file, message) {
                Ok(()) => return Ok(()),
                Err(error) => errno = error.raw_os_error().unwrap_or(libc::EIO),
            }
            if errno != libc::EINTR {
                break;
            }
        }
        Err(errno)
    }
}
