//! A node as the budget sees it. All watts are of the whole node: who caps packages and GPUs adds what the rest of
//! the node draws.

use super::account::GrantAccount;
use core::fmt;
use power_units::Watts;

/// Who keeps more when there is not enough for all. The first is served first.
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

/// Between which caps a node can be held.
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
    /// From the lowest cap that can be enforced to the most that the node can draw, which may be unknown. A node
    /// that cannot be capped has both alike.
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

    /// What a cap really limits the node to: nothing goes below the floor or above the largest draw.
    #[must_use]
    pub fn limit(self, cap: Watts) -> Watts {
        cap.within(self.floor, self.max.unwrap_or(Watts::MAX))
    }
}

/// A node and what is observed of its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetNode {
    /// Names the node and no other; decides where all else is equal.
    pub key: u64,
    /// The index of its group in the tree.
    pub group: usize,
    /// Who keeps more.
    pub priority: Priority,
    /// Between which caps it can be held.
    pub range: Range,
    /// The cap that the policy wants for it.
    pub desired: Watts,
    /// Whether it answers. One that does not counts as what is known of it and is never raised.
    pub reachable: bool,
    /// What is observed of its grant.
    pub account: GrantAccount,
}

impl BudgetNode {
    /// The most that it may draw as far as anybody can know; nothing when nobody can say.
    #[must_use]
    pub fn count(&self) -> Option<Watts> {
        self.account.count(self.range)
    }

    /// The lowest cap that it can be brought to: its floor, or what its devices said when they were asked for less.
    pub(super) fn lowest(&self) -> Watts {
        let refused = self.account.refused_below().unwrap_or(Watts::ZERO);
        self.range.limit(refused)
    }

    /// What the policy wants, as far as the node can be brought to it.
    pub(super) fn wanted(&self) -> Watts {
        self.range.limit(self.desired).max(self.lowest())
    }
}
