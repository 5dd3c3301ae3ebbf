//! The errors of RAPL: the file or register and the kernel's error number for people, and one kind for a
//! caller.

use hal_files::FileError;
use power_hal::{ErrorKind, Key};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::msr::MsrFault;

/// Why an operation of RAPL failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RaplError {
    /// A file operation on powercap failed.
    File(FileError),
    /// A register access failed.
    Register(MsrFault),
    /// The domain is not present any more, or the handle is from an earlier list.
    Gone,
    /// A zone that was written is absent, with its cap; the other zones of the package have their
    /// originals.
    ZoneAway(Key, &'static str),
    /// The register's lock bit is set: its value cannot change until the next boot.
    LockBit(Key),
    /// A written limit was read back as zero; the previous limit was written again.
    ReadBackZero(Key),
    /// Two zones of one driver identify the same package; the second one is ignored.
    Twice(Arc<Path>),
    /// The journal's entry does not have this version's format, or cannot have been in force on this
    /// package.
    UnknownOriginal(Key),
    /// The limit in force reads as zero, which is impossible: it is not saved as an original.
    ZeroInForce(Key),
    /// The journal could not save an original.
    NotKept(Key, ErrorKind),
    /// The setting is not for a power limit.
    NotAPowerLimit,
    /// Registers are not used while this driver owns the limits.
    Owned(Arc<Path>),
    /// The limits of this part are not in the registers.
    NoRegisters(&'static str),
}

impl power_hal::Error for RaplError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::File(error) => error.kind,
            Self::Register(fault) => fault.kind,
            Self::Gone | Self::ZoneAway(..) => ErrorKind::Gone,
            Self::LockBit(_) => ErrorKind::Locked,
            Self::NotKept(_, kind) => *kind,
            Self::ReadBackZero(_) | Self::Twice(_) | Self::UnknownOriginal(_) | Self::ZeroInForce(_) => {
                ErrorKind::BadData
            }
            Self::NotAPowerLimit | Self::Owned(_) | Self::NoRegisters(_) => ErrorKind::NotSupported,
        }
    }
}

impl From<FileError> for RaplError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<MsrFault> for RaplError {
    fn from(fault: MsrFault) -> Self {
        Self::Register(fault)
    }
}

impl fmt::Display for RaplError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => fmt::Display::fmt(error, f),
            Self::Register(fault) => fmt::Display::fmt(fault, f),
            Self::Gone => {
                f.write_str("the package no longer exists, or was enumerated again; describe again")
            }
            Self::ZoneAway(key, driver) => {
                write!(
                    f,
                    "{key}: its zone of the driver {driver} is not there and has the cap when it comes back; load that \
                     driver and restore again"
                )
            }
            Self::LockBit(key) => {
                write!(f, "{key}: the firmware has locked the limit register until the next boot")
            }
            Self::ReadBackZero(key) => {
                write!(f, "{key}: the limit read back as 0 W after it was written; the former is restored")
            }
            Self::Twice(folder) => {
                write!(f, "{}: another zone of this driver has the same name; left out", folder.display())
            }
            Self::UnknownOriginal(key) => {
                write!(
                    f,
                    "{key}: the saved original is not one that this version saves, or not of this package; the limit \
                     is left as it is: mend or move the journal of originals"
                )
            }
            Self::ZeroInForce(key) => {
                write!(f, "{key}: the limit in force reads as 0 W, which is impossible; nothing is written")
            }
            Self::NotKept(key, kind) => write!(f, "{key}: the journal of originals was not written: {kind}"),
            Self::NotAPowerLimit => f.write_str("a package has a power limit and nothing else to set"),
            Self::Owned(path) => {
                write!(f, "registers are not used while {} owns the limits; use powercap", path.display())
            }
            Self::NoRegisters(why) => write!(f, "registers are not used on this machine: {why}"),
        }
    }
}

impl std::error::Error for RaplError {}
