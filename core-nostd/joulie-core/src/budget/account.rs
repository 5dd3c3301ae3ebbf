//! What one node counts: from its present grant, the node's receipt, and writes of ours whose outcome is unknown. All
//! of it is observed anew in every round; nothing is remembered here.
//!
//! A **grant** is the most that a node may be allowed. It carries a **serial**, which grows with every write, and a
//! **ceiling**: the highest value of all grants that the node may still hold, or its largest draw while no receipt fits. A
//! **receipt** is the node's report of the limits that it read back: the serial of the last grant in force, and the power
//! that its devices are limited to.
//!
//! | receipt | the node counts |
//! |---|---|
//! | none, or one of another boot or another machine | its largest draw |
//! | of the present grant | what is left of the grant after its yield, or what its devices are limited to, whichever is more |
//! | of an earlier grant | the ceiling, or what its devices are limited to, whichever is more |
//! | of a later grant: the object is older than what the node has seen | its largest draw |
//!
//! A node may **yield**: it keeps to fewer watts than its grant allows, until it follows a later grant. A yield belongs to the
//! serial of its receipt and only falls while that serial stands, so that what is known of it late is too much and never
//! too little. The present grant then counts as what is left of it.
//!
//! The count is never below the ceiling of a grant that was sent and whose outcome is unknown. Every write names the
//! serial that it replaces. So of several writes over one serial at most one lands, and all of them are void once a
//! higher serial is seen.

use super::node::Range;
use power_units::Watts;

/// The most that a node may be allowed, as the node's object has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which grant this is; it grows with every write.
    pub serial: u64,
    /// The most that the node may draw under it.
    pub watts: Watts,
    /// The highest value of all grants that the node may still hold, this one included; its largest draw while no receipt
    /// fits.
    pub ceiling: Watts,
}

/// What a node reports of the limits that it read back, in the present boot and on the present machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantReceipt {
    /// The serial of the last grant that is in force.
    pub serial: u64,
    /// The most that its devices can draw under the limits that were read back.
    pub holds: Watts,
    /// The lowest power that its devices can be limited to, as far as the node knows; zero where it does not report
    /// one.
    pub floor: Watts,
    /// What it keeps to of the grant of this serial, until it follows a later one; `None` where it keeps all of it.
    pub yields: Option<Watts>,
}

/// Which grant a receipt belongs to, compared with the present grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// There is no usable receipt.
    Nothing,
    /// It belongs to an earlier grant.
    Earlier(Held),
    /// It belongs to the present grant.
    This(Held),
    /// It belongs to a later grant: the object is older than what the node has seen.
    Later(Held),
}

/// What a receipt reports of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    holds: Watts,
    floor: Watts,
    yields: Option<Watts>,
}

impl Held {
    /// What is left of a grant of the same serial.
    fn leaves(&self, grant: Grant) -> Grant {
        let left = self.yields.filter(|&left| left >= Watts::ZERO);
        Grant { watts: left.map_or(grant.watts, |left| left.min(grant.watts)), ..grant }
    }
}

impl Heard {
    /// Classifies a receipt by its serial. The grant's watts are not an argument, so that a receipt with the same
    /// number of watts cannot be taken for a receipt of this grant.
    const fn of(stands: u64, receipt: GrantReceipt) -> Self {
        let GrantReceipt { serial, holds, floor, yields } = receipt;
        let held = Held { holds, floor, yields };
        if serial < stands {
            Self::Earlier(held)
        } else if serial == stands {
            Self::This(held)
        } else {
            Self::Later(held)
        }
    }
}

/// What is observed of a node's grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantAccount {
    grant: Option<Grant>,
    heard: Heard,
    unresolved: Option<Unresolved>,
}

impl Default for GrantAccount {
    fn default() -> Self {
        Self::NONE
    }
}

/// Grants that were sent and whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unresolved {
    /// The highest of their ceilings.
    ceiling: Watts,
    /// Whether one of them asks for other watts than the present grant.
    strayed: bool,
}

impl GrantAccount {
    /// A node without a grant.
    pub const NONE: Self = Self { grant: None, heard: Heard::Nothing, unresolved: None };

    /// The present grant, and the receipt if it fits the node's boot and machine. A receipt without a grant, or with
    /// negative watts, counts as none; a yield of negative watts as none as well.
    #[must_use]
    pub fn observed(grant: Option<Grant>, receipt: Option<GrantReceipt>) -> Self {
        let receipt = receipt.filter(|receipt| receipt.holds >= Watts::ZERO);
        let heard = grant.zip(receipt).map_or(Heard::Nothing, |(grant, said)| Heard::of(grant.serial, said));
        let grant = grant.map(|grant| match heard {
            Heard::This(held) => held.leaves(grant),
            Heard::Nothing | Heard::Earlier(_) | Heard::Later(_) => grant,
        });
        Self { grant, heard, unresolved: None }
    }

    /// The same account, after `sent` was written over the present grant and the outcome is unknown.
    #[must_use]
    pub fn after_sending(self, sent: &[Grant]) -> Self {
        let ceiling = sent.iter().map(|sent| sent.ceiling).max();
        let strayed = sent.iter().any(|sent| self.asked() != Some(sent.watts));
        Self { unresolved: ceiling.map(|ceiling| Unresolved { ceiling, strayed }), ..self }
    }

    /// The ceiling of the next grant: the most that the node may still hold until it has read that grant back. Without
    /// a usable receipt that is its largest draw, so that an operator that never saw the node's boot counts it as well.
    #[must_use]
    pub fn ceiling_of(&self, next: Watts, range: Range) -> Watts {
        match (self.grant, self.heard) {
            (Some(grant), Heard::This(_)) => next.max(grant.watts),
            (Some(grant), Heard::Earlier(_) | Heard::Later(_)) => next.max(grant.ceiling),
            (grant, _) => {
                let ceiling = grant.map_or(next, |grant| next.max(grant.ceiling));
                range.max().map_or(ceiling, |max| ceiling.max(max))
            }
        }
    }

    /// The watts of the present grant, as far as the node has not yielded them; `None` without a grant.
    #[must_use]
    pub fn asked(&self) -> Option<Watts> {
        self.grant.map(|grant| grant.watts)
    }

    /// Whether the present grant was read back and no other write is without an answer.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.fits().is_some() && self.unresolved.is_none()
    }

    /// Whether a receipt or the answer to a write is awaited.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        (self.grant.is_some() && self.fits().is_none()) || self.unresolved.is_some()
    }

    /// Whether the receipt that is awaited will change nothing that counts: the node holds an earlier grant of this boot, and
    /// none that it may hold allows more than the present one. Its agent tells of such a raise when it has something else
    /// to tell.
    #[must_use]
    pub fn is_only_raised(&self) -> bool {
        let holds = match self.heard {
            Heard::Earlier(held) => held.holds,
            Heard::Nothing | Heard::This(_) | Heard::Later(_) => return false,
        };
        self.unresolved.is_none()
            && self.grant.is_some_and(|grant| grant.ceiling <= grant.watts && holds <= grant.watts)
    }

    /// Whether the present grant must be written again with a higher serial. That is so when a grant was sent whose
    /// outcome is unknown, and it has other watts or the node counts more because of it; when the node has followed a
    /// later grant than the present one, because the API was restored to an older state; and when the node has booted,
    /// so that it may draw more than the ceiling.
    #[must_use]
    pub fn has_strayed(&self, range: Range) -> bool {
        let holds = self.holds().map(|holds| range.limit(holds));
        let counts_more = |sent: Unresolved| holds.is_some_and(|holds| range.limit(sent.ceiling) > holds);
        let sent = self.unresolved.is_some_and(|sent| sent.strayed || counts_more(sent));
        sent || match (self.grant, self.heard) {
            (_, Heard::Later(_)) => true,
            (Some(grant), Heard::Nothing) => {
                range.max().is_some_and(|max| max - grant.ceiling >= Watts::from_int(1))
            }
            (None, Heard::Nothing) | (_, Heard::Earlier(_) | Heard::This(_)) => false,
        }
    }

    fn may_land(&self) -> Watts {
        self.unresolved.map_or(Watts::ZERO, |sent| sent.ceiling)
    }

    /// The present grant and its receipt, if the receipt has arrived.
    const fn fits(&self) -> Option<(Grant, Held)> {
        match (self.grant, self.heard) {
            (Some(grant), Heard::This(held)) => Some((grant, held)),
            (Some(_) | None, Heard::Nothing | Heard::Earlier(_) | Heard::This(_) | Heard::Later(_)) => None,
        }
    }

    /// The most that the node may draw under the present grant; `None` when no receipt tells.
    fn holds(&self) -> Option<Watts> {
        match (self.grant, self.heard) {
            (Some(grant), Heard::This(held)) => Some(grant.watts.max(held.holds)),
            (Some(grant), Heard::Earlier(held)) => Some(grant.ceiling.max(held.holds)),
            (Some(_), Heard::Nothing | Heard::Later(_)) | (None, _) => None,
        }
    }

    /// The most that the node may draw; `None` when that is unknown.
    pub(super) fn count(&self, range: Range) -> Option<Watts> {
        self.holds().map_or(range.max(), |holds| Some(range.limit(holds.max(self.may_land()))))
    }

    /// What the node counts once it has read back the present grant, if its devices keep to it.
    pub(super) fn count_when_heard(&self, range: Range) -> Option<Watts> {
        match (self.grant, self.fits()) {
            (Some(grant), None) => Some(range.limit(grant.watts.max(self.may_land()))),
            (None, _) | (Some(_), Some(_)) => self.count(range),
        }
    }

    /// The power that the devices do not go below: as the node reports it, or where they hold more than the grant
    /// allows.
    pub(super) fn refused_below(&self) -> Option<Watts> {
        match (self.grant, self.heard) {
            (Some(grant), Heard::This(held)) if held.holds > grant.watts => Some(held.floor.max(held.holds)),
            (_, Heard::Earlier(held) | Heard::This(held) | Heard::Later(held)) => Some(held.floor),
            (_, Heard::Nothing) => None,
        }
    }

    /// Whether the devices could not keep to the present grant, so that writing `target` would change nothing.
    pub(super) fn is_as_low_as(&self, target: Watts) -> bool {
        self.fits().is_some_and(|(grant, held)| grant.watts <= target && target <= held.holds)
    }
}

#[cfg(test)]
impl GrantAccount {
    /// The account after the next grant has landed.
    pub(super) fn granted(self, watts: Watts, range: Range) -> Self {
        let serial = self.grant.map_or(1, |grant| grant.serial + 1);
        let grant = Grant { serial, watts, ceiling: self.ceiling_of(watts, range) };
        let heard = match self.heard {
            Heard::This(held) | Heard::Earlier(held) => Heard::Earlier(held),
            Heard::Nothing | Heard::Later(_) => self.heard,
        };
        Self { grant: Some(grant), heard, ..self }
    }

    /// The account after the node has read back the present grant, with devices limited to `holds`.
    pub(super) fn heard(self, holds: Watts) -> Self {
        let heard = self
            .grant
            .map_or(Heard::Nothing, |_| Heard::This(Held { holds, floor: Watts::ZERO, yields: None }));
        Self { heard, ..self }
    }
}
