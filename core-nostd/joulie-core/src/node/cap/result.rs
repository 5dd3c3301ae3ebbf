//! The result of a cap, in the terms of status and metrics.

use crate::node::throttle::ThrottlePercent;
use core::fmt;
use power_hal::ErrorKind;
use power_units::Watts;

/// The result of a cap on one device, or on all devices of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapResult {
    /// It is in force, and was read back.
    Applied {
        /// What was read back.
        effective: Watts,
    },
    /// Another cap is in force than was asked: the device or the node's floor does not allow the requested one.
    Clamped {
        /// What was asked.
        requested: Watts,
        /// What is in force.
        effective: Watts,
    },
    /// Nothing can put it in force.
    Blocked(Blocked),
    /// The hardware refused it.
    Failed(ErrorKind),
}

/// Why a cap cannot be put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blocked {
    /// Zero, or less, is no cap.
    NotPositive,
    /// A percentage of an unknown maximum.
    NoRange,
    /// The node's own configuration forbids every cap that the device accepts.
    FloorAboveMax,
    /// A cap in watts without a power limit needs a closed loop, and the power is not measured here.
    NoMeter,
    /// There is neither a power limit nor a throttle that may be used.
    NoBackend,
    /// It is not known how many packages there are, and caps are per package.
    NoPackages,
    /// There is no GPU that accepts a cap.
    NoGpus,
}

/// What holds the cap: the label of `joulie_backend_mode`, and the backend of a CPU's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// Nothing.
    None,
    /// The power limits of the packages.
    Rapl,
    /// A throttle of the frequencies.
    Dvfs,
}

impl Backend {
    /// The label.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rapl => "rapl",
            Self::Dvfs => "dvfs",
        }
    }
}

impl CapResult {
    /// The result in a status object.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Applied { .. } | Self::Clamped { .. } => "applied",
            Self::Blocked(_) => "blocked",
            Self::Failed(_) => "error",
        }
    }

    /// The result when a device refused. A device that cannot do it at all counts as no backend.
    pub(crate) const fn refused(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotSupported => Self::Blocked(Blocked::NoBackend),
            ErrorKind::Locked
            | ErrorKind::PermissionDenied
            | ErrorKind::OutOfRange
            | ErrorKind::Busy
            | ErrorKind::Gone
            | ErrorKind::Timeout
            | ErrorKind::BadData
            | ErrorKind::Io => Self::Failed(kind),
        }
    }

    /// The result of all devices of a node: the worst of them, and where all caps are in force, the sums. It does
    /// not depend on their order.
    pub fn of_all(devices: impl IntoIterator<Item = Self>) -> Option<Self> {
        devices.into_iter().reduce(Self::and)
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed(a), Self::Failed(b)) => Self::Failed(a.max(b)),
            (bad @ Self::Failed(_), _) | (_, bad @ Self::Failed(_)) => bad,
            (Self::Blocked(a), Self::Blocked(b)) => Self::Blocked(a.max(b)),
            (bad @ Self::Blocked(_), _) | (_, bad @ Self::Blocked(_)) => bad,
            (Self::Applied { effective: a }, Self::Applied { effective: b }) => {
                Self::Applied { effective: a + b }
            }
            (Self::Applied { effective: also }, Self::Clamped { requested, effective })
            | (Self::Clamped { requested, effective }, Self::Applied { effective: also }) => {
                Self::Clamped { requested: requested + also, effective: effective + also }
            }
            (Self::Clamped { requested: a, effective: x }, Self::Clamped { requested: b, effective: y }) => {
                Self::Clamped { requested: a + b, effective: x + y }
            }
        }
    }
}

/// The result, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapReport {
    /// Nothing is desired, and nothing of ours is in force.
    NoIntent,
    /// Orders are on their way; the last reported result stays valid.
    Pending,
    /// The cap, in watts.
    Cap(CapResult),
    /// The percent path: throttled by this much.
    Throttled(ThrottlePercent),
}

impl CapReport {
    /// The result in a status object; `None` while the last reported result stays valid.
    #[must_use]
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::NoIntent => Some("none"),
            Self::Pending => None,
            Self::Cap(result) => Some(result.word()),
            Self::Throttled(_) => Some("applied"),
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPositive => "the cap is not above zero",
            Self::NoRange => "cannot resolve capPctOfMax: the maximum of a device is unknown",
            Self::FloorAboveMax => {
                "the floor that this node is configured with is above what the device can be set to"
            }
            Self::NoMeter => {
                "no power limit can be set, and without a power meter no throttle can hold watts"
            }
            Self::NoBackend => "neither a power limit nor a throttle can be used on this node",
            Self::NoPackages => "the packages of this node are not known, and caps are per package",
            Self::NoGpus => "node has no allocatable GPU resources",
        })
    }
}

impl fmt::Display for CapResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applied { effective } => write!(f, "applied {effective:.3} W"),
            Self::Clamped { requested, effective } => {
                write!(f, "asked for {requested:.3} W, {effective:.3} W are in force")
            }
            Self::Blocked(reason) => reason.fmt(f),
            Self::Failed(kind) => kind.fmt(f),
        }
    }
}
