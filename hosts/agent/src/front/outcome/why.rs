//! Why the condition `CapEnforced` is as it is.

use joulie_api::condition::Status;

/// The reason of the condition; the later ones win over the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// No cap is asked, and none of ours is in force.
    NoCap,
    /// Every cap was read back, and no more is drawn.
    Enforced,
    /// As enforced, and the hardware takes less than was asked.
    Clamped,
    /// On its way.
    Pending,
    /// It was read back, and nobody can say what is drawn.
    Unmeasured,
    /// It was read back, and more is drawn.
    Exceeded,
    /// The hardware does not go down to what was asked.
    ClampedAbove,
    /// Nothing here can put it in force.
    Blocked,
    /// The hardware refused it.
    Failed,
    /// The object as it is now cannot be read.
    Malformed,
    /// Nobody confirms the desired state, and by the configuration other caps are in force.
    LeaseExpired,
    /// The node is not one of those that are managed.
    Deselected,
    /// The agent only looks.
    SimulateOnly,
}

impl Why {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::NoCap => "NoCap",
            Self::Enforced => "Enforced",
            Self::Clamped | Self::ClampedAbove => "Clamped",
            Self::Pending => "Pending",
            Self::Unmeasured => "Unmeasured",
            Self::Exceeded => "Exceeded",
            Self::Blocked => "Blocked",
            Self::Failed => "Failed",
            Self::Malformed => "Malformed",
            Self::LeaseExpired => "LeaseExpired",
            Self::Deselected => "Deselected",
            Self::SimulateOnly => "SimulateOnly",
        }
    }

    pub(crate) const fn status(self) -> Status {
        match self {
            Self::NoCap | Self::Enforced | Self::Clamped => Status::True,
            Self::Pending | Self::Unmeasured => Status::Unknown,
            Self::Exceeded
            | Self::ClampedAbove
            | Self::Blocked
            | Self::Failed
            | Self::Malformed
            | Self::LeaseExpired
            | Self::Deselected
            | Self::SimulateOnly => Status::False,
        }
    }
}
