//! A node as the budget sees it. All watts are of the whole node: a caller that caps packages and GPUs adds what
//! the rest of the node draws.

use super::account::GrantAccount;
use core::fmt;
use power_units::Watts;

/// Who is cut last when the power does not suffice for all. The first is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A node at full power.
    Performance,
    /// A node on its way to eco while performance pods still run there.
    Draining,
    /// A capped node.
    Eco,
}

impl Priority {
    /// All of them, the first served first.
    pub(super) const ALL: [Self; 3] = [Self::Performance, Self::Draining, Self::Eco];
}

/// The range of caps in which a node can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    floor: Watts,
    max: Option<Watts>,
}

/// Why a range is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// The lowest cap is below zero.
    NegativeFloor(Watts),
    /// The lowest cap is above the most that the node draws.
    Crossed {
        /// The lowest cap.
        floor: Watts,
        /// The most that the node draws.
        max: Watts,
    },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NegativeFloor(floor) => write!(f, "the lowest cap must be zero or more, not {floor} W"),
            Self::Crossed { floor, max } => {
                write!(f, "the lowest cap, {floor} W, must not be above the largest draw, {max} W")
            }
        }
    }
}

impl core::error::Error for RangeError {}

impl Range {
    /// From the lowest cap that can be enforced to the most that the node can draw, which may be unknown. For a
    /// node that cannot be capped both are equal.
    ///
    /// # Errors
    /// When the floor is below zero or above the maximum.
    pub fn new(floor: Watts, max: Option<Watts>) -> Result<Self, RangeError> {
        if floor < Watts::ZERO {
            return Err(RangeError::NegativeFloor(floor));
        }
        match max {
            Some(max) if max < floor => Err(RangeError::Crossed { floor, max }),
            Some(_) | None => Ok(Self { floor, max }),
        }
    }

    /// The lowest cap that can be enforced.
    #[must_use]
    pub const fn floor(self) -> Watts {
        self.floor
    }

    /// The most that the node can draw, if that is known.
    #[must_use]
    pub const fn max(self) -> Option<Watts> {
        self.max
    }

    /// The limit that a cap really enforces: not below the floor and not above the largest draw.
    #[must_use]
    pub fn limit(self, cap: Watts) -> Watts {
        cap.within(self.floor, self.max.unwrap_or(Watts::MAX))
    }
}

/// A node and what is observed of its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetNode {
    /// Identifies the node; breaks ties where all else is equal.
    pub key: u64,
    /// The index of its group in the tree.
    pub group: usize,
    /// Who is cut last.
    pub priority: Priority,
    /// The range of caps in which it can be held.
    pub range: Range,
    /// The cap that the policy wants for it.
    pub desired: Watts,
    /// Whether it answers. A node that does not answer counts what is known of it and is never raised.
    pub reachable: bool,
    /// What is observed of its grant.
    pub account: GrantAccount,
}

impl BudgetNode {
    /// The most that it may draw, from all that is known; `None` when that is unknown.
    #[must_use]
    pub fn count(&self) -> Option<Watts> {
        self.account.count(self.range)
    }

    /// The lowest cap that it can be brought to: its floor, or the floor that its devices reported.
    #[must_use]
    pub fn lowest(&self) -> Watts {
        let refused = self.account.refused_below().unwrap_or(Watts::ZERO);
        self.range.limit(refused)
    }

    /// What the policy wants, within what the node can be brought to.
    pub(super) fn wanted(&self) -> Watts {
        self.range.limit(self.desired).max(self.lowest())
    }
}
