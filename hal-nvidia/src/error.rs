//! The errors of GPUs: the GPU, the operation, and one kind to branch on.

use nvml_wrapper::error::NvmlError;
use power_hal::{BadLimit, ErrorKind, Key};
use std::fmt;

/// The cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvmlFault {
    /// The library's return code, by the numbers of nvml.h.
    Code(u32),
    /// The library has no such function: it is too old.
    Missing,
    /// An answer that is not a text or number of the expected kind.
    Unreadable,
    /// An impossible number: more than such a device draws, or zero where it must be above zero.
    Impossible(u64),
    /// Its reported range is not valid: it can be read but not limited.
    Range(BadLimit),
    /// Its reported UUID is not valid, so it could not be recognised later.
    Nameless,
    /// The handle is from an earlier enumeration.
    Stale,
    /// A GPU has no such control.
    Lacking,
    /// The journal's entry, with a layout of this number, is not a valid limit.
    Unfit(u8),
    /// The journal holds the original of the other scope's limit: release that one first.
    OtherScope,
}

impl NvmlFault {
    pub(crate) const UNINITIALIZED: Self = Self::Code(1);

    /// Whether the cause is a feature that the card or the library lacks permanently.
    pub(crate) fn is_lack(self) -> bool {
        self.kind() == ErrorKind::NotSupported
    }

    /// Whether the library may need a new initialisation before it answers again: the driver or the card was removed.
    pub(crate) const fn ends_session(self) -> bool {
        matches!(self, Self::Code(1 | 9 | 15 | 16 | 18))
    }

    /// Whether a call that answers so has changed nothing.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::OutOfRange | ErrorKind::NotSupported | ErrorKind::PermissionDenied | ErrorKind::Busy
        )
    }

    const fn kind(self) -> ErrorKind {
        match self {
            Self::Code(code) => kind(code),
            Self::Missing | Self::Lacking => ErrorKind::NotSupported,
            Self::Unreadable | Self::Impossible(_) | Self::Range(_) | Self::Nameless | Self::Unfit(_) => {
                ErrorKind::BadData
            }
            Self::Stale => ErrorKind::Gone,
            Self::OtherScope => ErrorKind::Busy,
        }
    }
}

/// The kind of a return code.
const fn kind(code: u32) -> ErrorKind {
    match code {
        // Not initialised, not found, no driver, lost, waiting for a reset, and no such GPU: enumerate again.
        1 | 6 | 9 | 15 | 16 | 28 => ErrorKind::Gone,
        2 => ErrorKind::OutOfRange,
        // Not supported, no such function, another version of the driver or of a structure, ECC, deprecated.
        3 | 13 | 18 | 22 | 24 | 25 | 26 => ErrorKind::NotSupported,
        // No permission; or a control group denies this process access to the card.
        4 | 17 => ErrorKind::PermissionDenied,
        10 => ErrorKind::Timeout,
        // In use, no resources at the moment, not ready, not in this state.
        19 | 23 | 27 | 29 => ErrorKind::Busy,
        7 | 21 => ErrorKind::BadData,
        _ => ErrorKind::Io,
    }
}

/// The text of a return code, as in nvml.h.
const fn words(code: u32) -> &'static str {
    match code {
        1 => "not initialised",
        2 => "invalid argument",
        3 => "not supported",
        4 => "no permission",
        6 => "not found",
        7 => "insufficient size",
        8 => "insufficient external power",
        9 => "driver not loaded",
        10 => "timeout",
        11 => "interrupt issue",
        12 => "a library was not found",
        13 => "function not found",
        14 => "corrupted infoROM",
        15 => "GPU is lost",
        16 => "reset required",
        17 => "blocked by the operating system",
        18 => "library and driver are of different versions",
        19 => "in use",
        20 => "out of memory",
        21 => "no data",
        23 => "insufficient resources",
        25 => "structure of another version",
        27 => "not ready",
        28 => "GPU not found",
        29 => "invalid state",
        _ => "unknown error",
    }
}

impl From<NvmlError> for NvmlFault {
    fn from(error: NvmlError) -> Self {
        if matches!(error, NvmlError::FailedToLoadSymbol(_)) {
            Self::Missing
        } else if matches!(error, NvmlError::Utf8Error(_)) {
            Self::Unreadable
        } else {
            Self::Code(error.into())
        }
    }
}

impl fmt::Display for NvmlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{} (NVML {code})", words(*code)),
            Self::Missing => f.write_str("the library is too old to have this function"),
            Self::Unreadable => f.write_str("the answer is not of the kind that was asked for"),
            Self::Impossible(value) => write!(f, "the answer {value} is impossible"),
            Self::Range(bad) => write!(f, "it cannot be limited: {bad}"),
            Self::Nameless => f.write_str("what it calls its UUID is none"),
            Self::Stale => {
                f.write_str("the GPUs were enumerated again after this handle was issued; describe again")
            }
            Self::Lacking => f.write_str("the GPU has no such control"),
            Self::Unfit(layout) => write!(f, "the saved original, of layout {layout}, is not a limit"),
            Self::OtherScope => {
                f.write_str("the journal holds the original of the other scope's limit; release it first")
            }
        }
    }
}

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvmlOperation {
    /// Initialising the library.
    Initialise,
    /// Counting or finding the GPUs.
    Find,
    /// Reading its UUID.
    Name,
    /// Reading the range of its power limit.
    Range,
    /// Reading its energy or power.
    Meter,
    /// Reading the power limit that it enforces.
    Enforced,
    /// Reading the power limit that was requested of it.
    Requested,
    /// Setting its power limit, in milliwatts.
    Set(u32),
    /// Restoring its power limit.
    Restore,
    /// Reading the clocks to which it can be locked.
    Clocks,
    /// Locking its clock, to this in MHz.
    Lock(u32),
    /// Ending the lock of its clock.
    Unlock,
    /// Reading a fact about it.
    Fact(&'static str),
}

impl fmt::Display for NvmlOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Initialise => f.write_str("initialising NVML"),
            Self::Find => f.write_str("finding the GPUs"),
            Self::Name => f.write_str("learning its UUID"),
            Self::Range => f.write_str("reading the range of its power limit"),
            Self::Meter => f.write_str("reading its energy or power"),
            Self::Enforced => f.write_str("reading the power limit that it enforces"),
            Self::Requested => f.write_str("reading the power limit that was requested of it"),
            Self::Set(limit_mw) => write!(f, "setting its power limit to {limit_mw} mW"),
            Self::Restore => f.write_str("restoring its power limit"),
            Self::Clocks => f.write_str("reading the clocks to which it can be locked"),
            Self::Lock(mhz) => write!(f, "locking its clock to {mhz} MHz"),
            Self::Unlock => f.write_str("ending the lock of its clock"),
            Self::Fact(what) => write!(f, "reading its {what}"),
        }
    }
}

/// The error of a GPU. Creating one does not allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvidiaError {
    /// The GPU, if it is known.
    pub gpu: Option<Key>,
    /// Its index in the driver's list, if its name is not known.
    pub index: Option<u32>,
    /// The operation.
    pub deed: NvmlOperation,
    /// The cause.
    pub fault: NvmlFault,
}

impl NvidiaError {
    pub(crate) const fn all(deed: NvmlOperation, fault: NvmlFault) -> Self {
        Self { gpu: None, index: None, deed, fault }
    }

    pub(crate) const fn nth(index: u32, deed: NvmlOperation, fault: NvmlFault) -> Self {
        Self { index: Some(index), ..Self::all(deed, fault) }
    }

    pub(crate) const fn at(gpu: Key, deed: NvmlOperation, fault: NvmlFault) -> Self {
        Self { gpu: Some(gpu), ..Self::all(deed, fault) }
    }
}

impl power_hal::Error for NvidiaError {
    fn kind(&self) -> ErrorKind {
        self.fault.kind()
    }
}

impl fmt::Display for NvidiaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(gpu) = &self.gpu {
            write!(f, "{gpu}: ")?;
        }
        if let Some(index) = self.index {
            write!(f, "GPU {index} of the driver's list: ")?;
        }
        write!(f, "{}: {}", self.deed, self.fault)
    }
}

impl std::error::Error for NvidiaError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mapping of section 6 of the hardware facts, and for the other codes the kind by the action of a caller.
    #[test]
    fn each_answer_of_the_library_has_one_kind() {
        for (code, expected) in [
            (1, ErrorKind::Gone),
            (2, ErrorKind::OutOfRange),
            (3, ErrorKind::NotSupported),
            (4, ErrorKind::PermissionDenied),
            (6, ErrorKind::Gone),
            (9, ErrorKind::Gone),
            (10, ErrorKind::Timeout),
            (13, ErrorKind::NotSupported),
            (15, ErrorKind::Gone),
            (16, ErrorKind::Gone),
            (17, ErrorKind::PermissionDenied),
            (18, ErrorKind::NotSupported),
            (19, ErrorKind::Busy),
            (25, ErrorKind::NotSupported),
            (999, ErrorKind::Io),
            (u32::MAX, ErrorKind::Io),
        ] {
            assert_eq!(NvmlFault::Code(code).kind(), expected, "{code}");
        }
    }

    #[test]
    fn the_wrappers_errors_keep_their_number() {
        for code in (1..=28).chain([999, 4_000]) {
            let error = NvmlError::from(code);
            assert_eq!(NvmlFault::from(error), NvmlFault::Code(code));
        }
        assert_eq!(NvmlFault::from(NvmlError::FailedToLoadSymbol(String::new())), NvmlFault::Missing);
    }

    #[test]
    fn an_error_says_who_what_and_why() {
        let key = Key::gpu("GPU-8f1e5a30-0b1c-4d7e-9a55-0123456789ab").unwrap();
        let error = NvidiaError::at(key, NvmlOperation::Set(450_000), NvmlFault::Code(4));
        assert_eq!(
            error.to_string(),
            "gpu-8f1e5a30-0b1c-4d7e-9a55-0123456789ab: setting its power limit to 450000 mW: no permission (NVML 4)"
        );
    }
}
