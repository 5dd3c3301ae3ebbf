//! Why the conditions `CapEnforced`, and `Accepted` of a TelemetryProfile, are as they are.

use joulie_api::condition::{ConditionReason, ConditionStatus, ConditionType};

/// The reason of the condition; the later ones win over the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// No cap is requested, and none of Joulie's is in force.
    NoCap,
    /// Every cap was read back, and no more than the cap is drawn.
    Enforced,
    /// As enforced, but a lower cap is in force than was requested.
    Clamped,
    /// The change is in progress.
    Pending,
    /// The cap was read back, but the power is not known.
    Unmeasured,
    /// The cap was read back, but more is drawn.
    Exceeded,
    /// The hardware does not go down to the requested cap.
    ClampedAbove,
    /// Nothing on this node can enforce the cap.
    Blocked,
    /// The hardware refused the cap.
    Failed,
    /// The object in its present version cannot be read.
    Malformed,
    /// Nobody confirms the desired state, and by the configuration other caps are in force.
    LeaseExpired,
    /// The node is not managed.
    Deselected,
    /// The agent only reads the hardware.
    SimulateOnly,
}

/// The reasons of the condition `CapEnforced`, for the reference.
#[must_use]
pub fn cap_reasons() -> Vec<ConditionReason> {
    Why::ALL.map(Why::reason).to_vec()
}

impl Why {
    /// All of them, the successful ones first.
    const ALL: [Self; 13] = [
        Self::Enforced,
        Self::NoCap,
        Self::Clamped,
        Self::ClampedAbove,
        Self::Exceeded,
        Self::Blocked,
        Self::Failed,
        Self::Malformed,
        Self::LeaseExpired,
        Self::Deselected,
        Self::SimulateOnly,
        Self::Pending,
        Self::Unmeasured,
    ];

    const fn reason(self) -> ConditionReason {
        let (about, status, word) = (ConditionType::CapEnforced, self.status(), self.word());
        ConditionReason { about, status, word, meaning: self.meaning() }
    }

    /// What the reason means, and what a person should do.
    const fn meaning(self) -> &'static str {
        match self {
            Self::NoCap => "nothing is asked, and nothing of ours is in force",
            Self::Enforced => "read back, and no more than 3 % above it is drawn",
            Self::Clamped => {
                "the hardware takes less than was asked, or its owner's limit allows less, and it is kept; the message says which"
            }
            Self::Pending => "on its way, or not seen in what is drawn yet",
            Self::Unmeasured => {
                "nobody measures what is drawn. With capWatts it was read back; without, a control over HTTP has only taken it"
            }
            Self::Exceeded => {
                "read back, and more is drawn for longer than a limit needs: something does not keep to it"
            }
            Self::ClampedAbove => {
                "the hardware does not go as low: both values are in the message; ask for more"
            }
            Self::Blocked => "nothing here can cap it: no limit, no meter for a closed loop, no GPU",
            Self::Failed => "the hardware refused; the message has the driver's words, and it is tried again",
            Self::Malformed => {
                "the object cannot be read: the last good state is in force, or nothing is touched; mend the object"
            }
            Self::LeaseExpired => {
                "nobody confirms the desired state, and by LEASE_EXPIRY other caps took its place; look at the operator"
            }
            Self::Deselected => "the node has no label of POOL_NODE_SELECTOR, so nothing is put in force",
            Self::SimulateOnly => "SIMULATE_ONLY=true: the agent looks and writes nothing to hardware",
        }
    }

    /// The first one with this word.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.word() == word)
    }

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

    pub(crate) const fn status(self) -> ConditionStatus {
        match self {
            Self::NoCap | Self::Enforced | Self::Clamped => ConditionStatus::True,
            Self::Pending | Self::Unmeasured => ConditionStatus::Unknown,
            Self::Exceeded
            | Self::ClampedAbove
            | Self::Blocked
            | Self::Failed
            | Self::Malformed
            | Self::LeaseExpired
            | Self::Deselected
            | Self::SimulateOnly => ConditionStatus::False,
        }
    }
}

/// The reason of the condition `Accepted` of a TelemetryProfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteWhy {
    /// The node is reached as it says.
    Followed,
    /// It cannot be followed, and the node is reached as before.
    Refused,
    /// Another one is for the same node, and comes first.
    Outranked,
}

/// The reasons of the condition `Accepted` of a TelemetryProfile, for the reference.
#[must_use]
pub fn route_reasons() -> Vec<ConditionReason> {
    [RouteWhy::Followed, RouteWhy::Refused, RouteWhy::Outranked].map(RouteWhy::reason).to_vec()
}

impl RouteWhy {
    const fn reason(self) -> ConditionReason {
        let meaning = match self {
            Self::Followed => "of a TelemetryProfile: its node is read and controlled as it says",
            Self::Refused => {
                "of a TelemetryProfile: it cannot be followed, and the node is reached as before; mend the field that the message names"
            }
            Self::Outranked => {
                "of a TelemetryProfile: another one, which the message names, is for the same node and comes first by name; delete one of them"
            }
        };
        ConditionReason { about: ConditionType::Accepted, status: self.status(), word: self.word(), meaning }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Followed => "Followed",
            Self::Refused => "Refused",
            Self::Outranked => "Outranked",
        }
    }

    pub(crate) const fn status(self) -> ConditionStatus {
        match self {
            Self::Followed => ConditionStatus::True,
            Self::Refused | Self::Outranked => ConditionStatus::False,
        }
    }
}
