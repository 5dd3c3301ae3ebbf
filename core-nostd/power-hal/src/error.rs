//! Why an operation failed: a closed kind to branch on, and the HAL's own error for people.

use core::convert::Infallible;
use core::fmt;

/// The cause, as far as a caller can act on it. Closed: a new kind breaks the build of every `match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The domain, the driver or the library cannot do this at all.
    NotSupported,
    /// The firmware has locked the limit: it can be read, but not written until the next boot.
    Locked,
    /// The hardware can do it, but this process is not permitted to.
    PermissionDenied,
    /// The domain does not accept this value.
    OutOfRange,
    /// Somebody else holds it at the moment; the same call may succeed later.
    Busy,
    /// The domain is not present any more, or the handle is from an earlier enumeration: describe again.
    Gone,
    /// No answer came in time.
    Timeout,
    /// The answer is impossible: empty, not a number, or outside the range of the quantity.
    BadData,
    /// The access itself failed.
    Io,
}

impl ErrorKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [Self; 9] = [
        Self::NotSupported,
        Self::Locked,
        Self::PermissionDenied,
        Self::OutOfRange,
        Self::Busy,
        Self::Gone,
        Self::Timeout,
        Self::BadData,
        Self::Io,
    ];

    /// A short word for a metric label or a journal.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotSupported => "not_supported",
            Self::Locked => "locked",
            Self::PermissionDenied => "permission_denied",
            Self::OutOfRange => "out_of_range",
            Self::Busy => "busy",
            Self::Gone => "gone",
            Self::Timeout => "timeout",
            Self::BadData => "bad_data",
            Self::Io => "io",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSupported => "the hardware or its driver cannot do this",
            Self::Locked => "the firmware has locked this limit",
            Self::PermissionDenied => "this process is not permitted to do this",
            Self::OutOfRange => "the hardware does not accept this value",
            Self::Busy => "something else holds the domain at the moment",
            Self::Gone => "the domain no longer exists",
            Self::Timeout => "no answer came in time",
            Self::BadData => "the hardware returned an impossible value",
            Self::Io => "the access to the hardware failed",
        })
    }
}

impl core::error::Error for ErrorKind {}

/// A HAL's own error: with any details for people, and one kind to branch on.
pub trait Error: fmt::Debug {
    /// The cause, as far as a caller can act on it.
    fn kind(&self) -> ErrorKind;
}

impl Error for ErrorKind {
    fn kind(&self) -> ErrorKind {
        *self
    }
}

impl Error for Infallible {
    fn kind(&self) -> ErrorKind {
        match *self {}
    }
}

/// The error type of a HAL, named once for all its verbs.
pub trait ErrorType {
    /// What the HAL's accesses fail with.
    type Error: Error;
}

impl<T: ErrorType + ?Sized> ErrorType for &mut T {
    type Error = T::Error;
}

/// Why the port itself refused, without calling the HAL or without accepting its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The handle names no domain of the current enumeration.
    Stale,
    /// The domain does not have the control of this setting.
    Lacking,
    /// A limit of zero or below, which would stop the machine, or a negative throttle.
    NotPositive,
    /// The original could not be saved, so nothing was written.
    NotKept(ErrorKind),
    /// The original is restored, but the journal still holds it: release again.
    NotForgotten(ErrorKind),
    /// The original was written, but something else is read back; the journal still holds it: release again.
    NotRestored,
    /// The HAL answered with a setting for another control than it was ordered to write.
    Mismatched,
}

impl Refusal {
    /// The kind that a caller branches on.
    #[must_use]
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::Stale => ErrorKind::Gone,
            Self::Lacking => ErrorKind::NotSupported,
            Self::NotPositive => ErrorKind::OutOfRange,
            Self::NotKept(kind) | Self::NotForgotten(kind) => kind,
            Self::NotRestored => ErrorKind::Busy,
            Self::Mismatched => ErrorKind::BadData,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => {
                f.write_str("the domains were enumerated again after this handle was issued; describe again")
            }
            Self::Lacking => f.write_str("the domain does not have what this setting sets"),
            Self::NotPositive => f.write_str("expected a limit above zero, or a throttle of zero or more"),
            Self::NotKept(kind) => {
                write!(f, "nothing was written, as the original could not be saved: {kind}")
            }
            Self::NotForgotten(kind) => {
                write!(f, "the original is restored, but the journal still contains it: {kind}")
            }
            Self::NotRestored => f.write_str("the original was written, but something else is in force"),
            Self::Mismatched => f.write_str("the hardware layer answered for another control than was asked"),
        }
    }
}

impl core::error::Error for Refusal {}

/// The error of `apply` and `release`: the port's refusal, or the HAL's own error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortError<E> {
    /// The port refused; the hardware was not written to.
    Refused(Refusal),
    /// The hardware access failed with this error.
    Hal(E),
}

impl<E> From<Refusal> for PortError<E> {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl<E: Error> Error for PortError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(refusal) => refusal.kind(),
            Self::Hal(error) => error.kind(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for PortError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => fmt::Display::fmt(refusal, f),
            Self::Hal(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for PortError<E> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::string::ToString;

    #[test]
    fn every_kind_has_a_label_and_a_sentence_of_its_own() {
        let labels: BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.label()).collect();
        let sentences: BTreeSet<_> = ErrorKind::ALL.iter().map(ToString::to_string).collect();
        assert_eq!((labels.len(), sentences.len()), (9, 9));
    }

    #[test]
    fn a_refusal_has_the_kind_that_a_caller_would_act_on() {
        for (refusal, kind) in [
            (Refusal::Stale, ErrorKind::Gone),
            (Refusal::Lacking, ErrorKind::NotSupported),
            (Refusal::NotPositive, ErrorKind::OutOfRange),
            (Refusal::NotKept(ErrorKind::Io), ErrorKind::Io),
            (Refusal::NotForgotten(ErrorKind::PermissionDenied), ErrorKind::PermissionDenied),
            (Refusal::NotRestored, ErrorKind::Busy),
            (Refusal::Mismatched, ErrorKind::BadData),
        ] {
            assert_eq!(PortError::<ErrorKind>::from(refusal).kind(), kind);
        }
        assert_eq!(PortError::Hal(ErrorKind::Timeout).kind(), ErrorKind::Timeout);
    }

    #[test]
    fn a_failure_reads_like_its_cause() {
        let failure = PortError::<ErrorKind>::Refused(Refusal::NotKept(ErrorKind::Io));
        assert!(failure.to_string().ends_with("could not be saved: the access to the hardware failed"));
        assert_eq!(PortError::Hal(ErrorKind::Locked).to_string(), ErrorKind::Locked.to_string());
    }
}
