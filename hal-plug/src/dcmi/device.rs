//! The BMC behind `/dev/ipmi0`, the device of the kernel's IPMI driver.

use super::{ANSWER_MAX, Bmc, BmcError, IpmiRequest};
use crate::PlugError;
use crate::ffi::{self, Received};
use hal_files::{FileError, FileOperation, Root};
use power_hal::{ErrorKind, Surface};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where the device is, by the age of the distribution.
const PATHS: [&str; 3] = ["dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0"];
/// Messages that answer something else and are thrown away before an answer counts as late. Answers to requests that
/// were given up come first.
const OTHERS_MAX: u32 = 8;
/// How often a call is repeated after a signal has interrupted it.
const SIGNALS_MAX: u32 = 8;

/// The device, which is opened when it is first asked, and again once it is gone.
#[derive(Debug)]
pub struct DevIpmi {
    root: Root,
    file: Option<File>,
    /// Distinguishes the answer to a request from a late one to an earlier request.
    number: libc::c_long,
    patience: Duration,
}

impl DevIpmi {
    /// The device of the machine below this root. An answer may take this long.
    #[must_use]
    pub const fn new(root: Root, patience: Duration) -> Self {
        Self { root, file: None, number: 0, patience }
    }

    fn open(&self) -> Result<File, PlugError> {
        for path in PATHS.map(|path| self.root.join(path)) {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => return Ok(file),
                Err(error) => {
                    let error = opening(&path, &error);
                    if error.kind != ErrorKind::Gone {
                        return Err(error.into());
                    }
                }
            }
        }
        Err(PlugError::Absent)
    }
}

fn opening(path: &Path, error: &io::Error) -> FileError {
    FileError::from_io(&Arc::from(path), FileOperation::Open, Surface::Device, error)
}

/// The error number of a call that failed.
fn number(error: &io::Error) -> PlugError {
    PlugError::Bmc(BmcError::Device(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// Repeats a call that a signal interrupts.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut last = Err(io::Error::from_raw_os_error(libc::EINTR));
    for _ in 0..SIGNALS_MAX {
        last = call();
        if !matches!(&last, Err(error) if error.kind() == io::ErrorKind::Interrupted) {
            break;
        }
    }
    last
}

/// Asks once over an open device.
fn ask(
    file: &File,
    (request, number_of): (&IpmiRequest, libc::c_long),
    answer: &mut [u8; ANSWER_MAX],
    patience: Duration,
) -> Result<usize, PlugError> {
    uninterrupted(|| ffi::send(file, request, number_of)).map_err(|error| number(&error))?;
    for _ in 0..OTHERS_MAX {
        if !uninterrupted(|| ffi::wait(file, patience)).map_err(|error| number(&error))? {
            return Err(PlugError::Bmc(BmcError::Late));
        }
        let received = uninterrupted(|| ffi::receive(file, answer)).map_err(|error| number(&error))?;
        let Received { kind, number, function, command, length } = received;
        let is_ours = kind == ffi::RESPONSE
            && number == number_of
            // The network function of an answer is that of its request and one.
            && function == request.function() | 1
            && command == request.command();
        if is_ours {
            return Ok(length);
        }
    }
    Err(PlugError::Bmc(BmcError::Late))
}

impl Bmc for DevIpmi {
    fn ask<'a>(
        &mut self,
        request: &IpmiRequest,
        answer: &'a mut [u8; ANSWER_MAX],
    ) -> Result<&'a [u8], PlugError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.open()?,
        };
        self.number = self.number.wrapping_add(1);
        let asked = ask(&file, (request, self.number), answer, self.patience);
        match asked {
            Ok(length) => {
                self.file = Some(file);
                Ok(answer.get(..length).unwrap_or(answer))
            }
            Err(error) => {
                // A device that is late is kept: the answer that comes later is thrown away by its number. After any
                // other failure it is opened again.
                if error == PlugError::Bmc(BmcError::Late) {
                    self.file = Some(file);
                }
                Err(error)
            }
        }
    }
}
