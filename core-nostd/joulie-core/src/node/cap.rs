//! Cap resolution: computes the cap of a package from the desired state, and the result of that cap.
//!
//! Watts win over percent. A percentage refers to the package's own maximum. Without a known maximum it cannot be
//! resolved to watts, and the node takes the percent path of the DVFS fallback. **Caps are per package**: a cap of 100
//! W on a node of two packages lets the node draw 200 W, and that sum is what the closed loop compares with.
//!
//! A cap is clamped to the range of the package. It is never above the limit that its owner has set, and never below
//! the [`Floor`] that the node's own configuration sets, whatever the API says. Where the owner's limit is below the
//! lowest possible cap, that limit holds the package already: it stays as it was found and nothing is written. Whenever
//! any of that changes what was asked, the result is [`CapResult::Clamped`] and names both values. A value that cannot
//! be a cap (zero, negative, none) is refused with a reason; it is never taken as a small cap.

mod result;

pub use result::{Backend, Blocked, CapReport, CapResult};

use super::actuation::Want;
use core::fmt;
use power_hal::ErrorKind;
use power_units::{Amount, Percent, Role, Watts};

/// What the desired state asks of one package, or of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapIntent {
    /// A limit in watts. It wins over the percentage where both are there.
    pub watts: Option<Watts>,
    /// A limit as a part of the device's own maximum.
    pub percent: Option<Percent>,
}

/// The desired state of a node's packages, or of its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredCap {
    /// Not known (yet): everything stays as it was found.
    Unknown,
    /// Known to be absent: the originals are restored. An intent that asks nothing means the same.
    Gone,
    /// This cap, for each device.
    Cap(CapIntent),
}

/// The caps that a package or a GPU accepts, as far as it reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapRange {
    min: Option<Watts>,
    max: Option<Watts>,
    owners: Option<Watts>,
    stands: Option<Watts>,
}

/// The least that a cap may be on this node, set by the node's own configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor(Watts);

/// A resolved cap: what was asked, and what is to be in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedCap {
    requested: Watts,
    effective: Watts,
    /// The owner's own limit is to be in force, and no cap may be as low: nothing is written.
    as_found: bool,
}

/// What an intent means on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It is a limit in watts.
    Watts(ResolvedCap),
    /// It is a percentage of an unknown maximum.
    Percent(Percent),
    /// It cannot be done.
    Blocked(Blocked),
}

/// No cap is below this, whatever asks for it: a smaller value is an error in the unit, and hardware accepts even 0 W.
pub const CAP_LEAST: Watts = Watts::from_int(1);

/// How far a limit that is read back may be below the written value and still count as that value: hwmon truncates to
/// whole watts, powercap to an eighth.
const QUANTUM: Watts = Watts::from_int(1);

/// The floor is below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloorError;

impl fmt::Display for FloorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a floor of 0 W or more")
    }
}

impl core::error::Error for FloorError {}

impl Floor {
    /// The configuration sets none.
    pub const NONE: Self = Self(Watts::ZERO);

    /// No cap below `watts`.
    ///
    /// # Errors
    /// When it is negative.
    pub fn new(watts: Watts) -> Result<Self, FloorError> {
        if watts < Watts::ZERO { Err(FloorError) } else { Ok(Self(watts)) }
    }

    /// The least that a cap may be.
    #[must_use]
    pub const fn watts(self) -> Watts {
        self.0
    }

    /// The least that a cap may be, if a device accepts no less than `min`.
    pub(crate) fn over(self, min: Watts) -> Watts {
        self.0.max(min)
    }

    /// Whether a limit in force is below the floor by more than the rounding of devices. Such a limit is never
    /// accepted, whether it is read back after a write or seen later.
    pub(crate) fn is_undercut_by(self, found: Watts) -> bool {
        self.0 - found >= QUANTUM
    }
}

impl CapRange {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { min: None, max: None, owners: None, stands: None };

    /// The range that the device reports, and the limit that was in force when the device was first seen. A maximum of
    /// zero, or below that limit, is unknown (firmware often leaves it so), and so is a minimum above the maximum. That
    /// is the rule of [`power_hal::Limit::known`], applied here also to a range from another source.
    #[must_use]
    pub fn new(min: Option<Watts>, max: Option<Watts>, original: Option<Watts>) -> Self {
        let max = max.filter(|&max| max >= CAP_LEAST && original.is_none_or(|original| max >= original));
        let min = min.filter(|&min| min > Watts::ZERO && max.is_none_or(|max| min <= max));
        Self { min, max, owners: None, stands: None }
    }

    /// The range of a device whose owner has set this limit, where it is known. No cap is above it, because a cap only
    /// reduces power. A percentage still refers to the device's maximum.
    #[must_use]
    pub fn below(self, owners: Option<Watts>) -> Self {
        Self { owners: owners.filter(|&owners| owners >= CAP_LEAST), ..self }
    }

    /// The range of a device whose owner's limit is no longer known, while `stands` is in force. No cap is above it,
    /// because it is not known how much more the owner allows. It does not lower a cap below what the device or the
    /// node allows, so that rounding by the device does not lower it step by step.
    #[must_use]
    pub fn no_more_than(self, stands: Option<Watts>) -> Self {
        Self { stands: stands.filter(|&stands| stands >= CAP_LEAST), ..self }
    }

    /// The same range without a lower end, for a device that can be held below it by other means.
    pub(crate) const fn without_min(self) -> Self {
        Self { min: None, ..self }
    }

    /// The range of a device that may draw no more than `most` under a grant.
    fn granted(self, most: Watts) -> Self {
        Self { stands: Some(self.stands.map_or(most, |stands| stands.min(most))), ..self }
    }

    /// The limit that its owner has set, where it is known.
    #[must_use]
    pub const fn owners(self) -> Option<Watts> {
        self.owners
    }

    /// The least that can be set, where it is known.
    #[must_use]
    pub const fn min(self) -> Option<Watts> {
        self.min
    }

    /// The most that can be set, where it is known; a percentage is a part of it.
    #[must_use]
    pub const fn max(self) -> Option<Watts> {
        self.max
    }
}

impl CapIntent {
    /// Nothing is asked.
    pub const NONE: Self = Self { watts: None, percent: None };

    /// A cap in watts.
    #[must_use]
    pub const fn of_watts(watts: Watts) -> Self {
        Self { watts: Some(watts), percent: None }
    }

    /// Such a part of the maximum.
    #[must_use]
    pub const fn of_percent(percent: Percent) -> Self {
        Self { watts: None, percent: Some(percent) }
    }

    /// The percentage, if it is above zero.
    pub(crate) fn percent_above_zero(self) -> Option<Percent> {
        self.percent.filter(|&percent| percent > Percent::ZERO)
    }

    fn watts_above_zero(self) -> Option<Watts> {
        self.watts.filter(|&watts| watts > Watts::ZERO)
    }

    /// Resolves the intent for a device with this range.
    #[must_use]
    pub fn resolve(self, range: CapRange, floor: Floor) -> Resolution {
        let requested = match (self.watts_above_zero(), self.percent_above_zero(), range.max) {
            (Some(watts), _, _) => watts,
            (None, Some(percent), Some(max)) => {
                max.part(percent, Percent::HUNDRED, Role::Limit).unwrap_or(max)
            }
            (None, Some(percent), None) => return Resolution::Percent(percent),
            (None, None, _) => return Resolution::Blocked(Blocked::NotPositive),
        };
        let lowest = floor.0.max(range.min.unwrap_or(CAP_LEAST)).max(CAP_LEAST);
        if let Some(owners) = range.owners.filter(|&owners| owners < lowest) {
            return Resolution::Watts(ResolvedCap { requested, effective: owners, as_found: true });
        }
        if range.max.is_some_and(|max| max < floor.0) {
            return Resolution::Blocked(Blocked::FloorAboveMax);
        }
        let most = range.max.unwrap_or(Watts::MAX).min(range.owners.unwrap_or(Watts::MAX));
        let most = range.stands.map_or(most, |stands| most.min(stands.max(lowest)));
        let effective = requested.within(lowest, most);
        Resolution::Watts(ResolvedCap { requested, effective, as_found: false })
    }

    /// The same where the device may draw no more than `most` under a grant. An intent that has no watts, such as a
    /// percentage of an unknown maximum, resolves to `most`.
    #[must_use]
    pub fn resolve_under(self, range: CapRange, floor: Floor, most: Option<Watts>) -> Resolution {
        let Some(most) = most.map(|most| most.max(CAP_LEAST)) else { return self.resolve(range, floor) };
        let range = range.granted(most);
        match self.resolve(range, floor) {
            watts @ Resolution::Watts(_) => watts,
            Resolution::Percent(_) | Resolution::Blocked(_) => Self::of_watts(most).resolve(range, floor),
        }
    }
}

impl DesiredCap {
    /// What this asks of a device that may draw no more than `most` under a grant and whose limit in force is `found`.
    /// A grant holds also where the policy asks nothing or is not known; in the latter case nothing is raised.
    pub(crate) fn under(self, most: Option<Watts>, found: Option<Watts>) -> Self {
        match (self, most) {
            (Self::Unknown, Some(most)) => {
                let found = found.filter(|&found| found >= CAP_LEAST);
                let least = found.map_or(most, |found| most.min(found));
                Self::Cap(CapIntent::of_watts(least.max(CAP_LEAST)))
            }
            (Self::Gone | Self::Cap(CapIntent::NONE), Some(most)) => {
                Self::Cap(CapIntent::of_watts(most.max(CAP_LEAST)))
            }
            (Self::Unknown | Self::Gone | Self::Cap(_), _) => self,
        }
    }
}

impl ResolvedCap {
    /// The most that a device with this range draws, where it is known.
    pub(crate) fn most_of(range: CapRange) -> Option<Self> {
        range.max.map(|most| Self { requested: most, effective: most, as_found: false })
    }

    /// What was asked.
    #[must_use]
    pub const fn requested(self) -> Watts {
        self.requested
    }

    /// What is to be in force.
    #[must_use]
    pub const fn effective(self) -> Watts {
        self.effective
    }

    /// Whether the limit that its owner has set is to stay as it was found.
    pub(crate) const fn is_as_found(self) -> bool {
        self.as_found
    }

    /// What is wanted of the limit to put the target in force.
    pub(crate) const fn want(self) -> Want<Self> {
        if self.as_found { Want::Release } else { Want::Set(self) }
    }

    /// Checks what was read back after the write: the target with the limit in force, or why it is not in force. More
    /// than was written means that the device did not accept it (a firmware lock can ignore a write without an error).
    /// Less than the floor means that somebody else holds it there.
    pub(crate) fn read_back(self, found: Watts, floor: Floor) -> Result<Self, ErrorKind> {
        if found <= Watts::ZERO {
            return Err(ErrorKind::BadData);
        }
        if floor.is_undercut_by(found) {
            return Err(ErrorKind::Busy);
        }
        if found > self.effective { Err(ErrorKind::Locked) } else { Ok(self.standing_at(found)) }
    }

    pub(crate) const fn standing_at(self, effective: Watts) -> Self {
        Self { requested: self.requested, effective, as_found: self.as_found }
    }

    /// The result of a target when `as_is` is in force.
    pub(crate) fn result(self, as_is: Self) -> CapResult {
        let taken = self.effective - as_is.effective < QUANTUM;
        if self.requested == self.effective && taken {
            CapResult::Applied { effective: as_is.effective }
        } else {
            CapResult::Clamped { requested: self.requested, effective: as_is.effective }
        }
    }

    /// Adds the draw of devices that have no cap.
    pub(crate) fn beside(self, drawn: Watts) -> Self {
        let (requested, effective) = (self.requested + drawn, self.effective + drawn);
        Self { requested, effective, as_found: self.as_found }
    }

    /// The sum of two caps: what two packages may draw.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            requested: self.requested + other.requested,
            effective: self.effective + other.effective,
            as_found: self.as_found && other.as_found,
        }
    }
}

#[cfg(test)]
mod tests;
