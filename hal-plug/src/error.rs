//! Why a meter says nothing.

use crate::dcmi::{BmcError, CompletionCode};
use hal_files::FileError;
use power_hal::{ErrorKind, Surface};
use power_units::MicroWatts;
use std::fmt;

/// Why there is no reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlugError {
    /// The node has no such meter.
    Absent,
    /// A file operation failed.
    File(FileError),
    /// There are this many ACPI meters. Two supplies add up and two meters of one supply do not, so that none counts.
    Several(usize),
    /// The number is none that a node can draw.
    Impossible(MicroWatts),
    /// The BMC was not reached.
    Bmc(BmcError),
    /// The BMC refuses the command.
    Refused(CompletionCode),
    /// The answer of the BMC is none to this command, or is cut off: its length.
    Malformed(usize),
    /// The BMC says that it does not measure at present.
    NotMeasuring,
}

impl power_hal::Error for PlugError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Absent => ErrorKind::NotSupported,
            Self::File(error) => error.kind,
            Self::Several(_) | Self::Impossible(_) | Self::Malformed(_) => ErrorKind::BadData,
            Self::Bmc(BmcError::Late) => ErrorKind::Timeout,
            Self::Bmc(BmcError::Device(errno)) => ErrorKind::from_errno(*errno, Surface::Device),
            Self::Refused(code) => code.kind(),
            Self::NotMeasuring => ErrorKind::Busy,
        }
    }
}

impl fmt::Display for PlugError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("the node has no such meter"),
            Self::File(error) => error.fmt(f),
            Self::Several(count) => {
                write!(f, "there are {count} ACPI power meters, and nobody can say whether they add up")
            }
            Self::Impossible(power) => write!(f, "it says {} µW, which no node draws", power.get()),
            Self::Bmc(error) => error.fmt(f),
            Self::Refused(code) => code.fmt(f),
            Self::Malformed(length) => {
                write!(f, "the BMC's answer of {length} bytes is not one to Get Power Reading")
            }
            Self::NotMeasuring => f.write_str("the BMC says that it does not measure at present"),
        }
    }
}

impl std::error::Error for PlugError {}

impl From<FileError> for PlugError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}
