//! What one node counts: from its grant as it stands, the node's receipt, and writes of ours of which nobody knows what
//! became of them. All of it is observed anew in every round, and nothing here is remembered.
//!
//! A **grant** is the most that a node may be allowed; it carries a **serial**, which grows with every write, and a
//! **ceiling**: the most that any grant may allow that the node may still hold. A **receipt** is what the node says of the
//! limits that it read back: the serial of the last grant that is in force, and what its devices are held to.
//!
//! | receipt | the node counts |
//! |---|---|
//! | none, or one of another boot or another machine | its largest draw |
//! | of the grant that stands | the grant, or what its devices hold where that is more |
//! | of an earlier grant | the ceiling, or what its devices hold where that is more |
//! | of a later grant: the object is older than what the node has seen | its largest draw |
//!
//! It never counts less than the ceiling of a grant that was sent and of which nobody knows whether it landed. Every write names the serial
//! that it replaces, so that of several writes over one serial at most one lands, and all of them are void once a higher
//! serial is seen.

use super::node::Range;
use power_units::Watts;

/// The most that a node may be allowed, as it stands in the node's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which grant this is; it grows with every write.
    pub serial: u64,
    /// The most that the node may draw under it.
    pub watts: Watts,
    /// The most that any grant may allow that the node may still hold, this one included.
    pub ceiling: Watts,
}

/// What a node says of the limits that it read back, in the boot and on the machine that run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantReceipt {
    /// The last grant that is in force.
    pub serial: u64,
    /// The most that its devices draw by what was read back.
    pub holds: Watts,
    /// The least that its devices can be held to, as far as the node knows; zero where it does not say.
    pub floor: Watts,
}

/// Which grant a receipt is of, beside the one that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Of none that this node was given.
    Nothing,
    /// Of an earlier one.
    Earlier(Held),
    /// Of the very one that stands.
    This(Held),
    /// Of a later one: the object is older than what the node has seen.
    Later(Held),
}

/// What a receipt says of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    holds: Watts,
    floor: Watts,
}

impl Heard {
    /// Of a receipt beside the serial that stands. It is told no watts of the grant, so that a receipt of as many watts cannot
    /// be taken for one of this grant.
    const fn of(stands: u64, receipt: GrantReceipt) -> Self {
        let GrantReceipt { serial, holds, floor } = receipt;
        let held = Held { holds, floor };
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

/// Grants that were sent, of which nobody knows what became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unresolved {
    /// The highest of their ceilings.
    ceiling: Watts,
    /// One of them is another one than stands.
    strayed: bool,
}

impl GrantAccount {
    /// A node without a grant.
    pub const NONE: Self = Self { grant: None, heard: Heard::Nothing, unresolved: None };

    /// The grant that stands, and the receipt where it fits the node's boot and machine. A receipt without a grant, or of
    /// less than nothing, is none.
    #[must_use]
    pub fn observed(grant: Option<Grant>, receipt: Option<GrantReceipt>) -> Self {
        let receipt = receipt.filter(|receipt| receipt.holds >= Watts::ZERO);
        let heard = grant.zip(receipt).map_or(Heard::Nothing, |(grant, said)| Heard::of(grant.serial, said));
        Self { grant, heard, unresolved: None }
    }

    /// The same where these were sent over the grant that stands, and nobody knows what became of them.
    #[must_use]
    pub fn after_sending(self, sent: &[Grant]) -> Self {
        let ceiling = sent.iter().map(|sent| sent.ceiling).max();
        let strayed = sent.iter().any(|sent| self.asked() != Some(sent.watts));
        Self { unresolved: ceiling.map(|ceiling| Unresolved { ceiling, strayed }), ..self }
    }

    /// The ceiling of the next grant: what the node may still hold until it has read that one back.
    #[must_use]
    pub fn ceiling_of(&self, next: Watts) -> Watts {
        match (self.grant, self.heard) {
            (None, _) => next,
            (Some(grant), Heard::This(_)) => next.max(grant.watts),
            (Some(grant), Heard::Nothing | Heard::Earlier(_) | Heard::Later(_)) => next.max(grant.ceiling),
        }
    }

    /// The most that the node was last allowed; nothing without a grant.
    #[must_use]
    pub fn asked(&self) -> Option<Watts> {
        self.grant.map(|grant| grant.watts)
    }

    /// Whether the grant that stands was read back, and no other is on its way.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.fits().is_some() && self.unresolved.is_none()
    }

    /// Whether a receipt is awaited, or an answer.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        (self.grant.is_some() && self.fits().is_none()) || self.unresolved.is_some()
    }

    /// Whether a grant was sent of which nobody knows what became of it, and it is another one than stands; or the node has
    /// followed a later one than stands, since the API was restored to an older state, and does not follow this one. In
    /// both cases what stands is to be told again, with a higher serial.
    #[must_use]
    pub fn has_strayed(&self) -> bool {
        self.unresolved.is_some_and(|sent| sent.strayed) || matches!(self.heard, Heard::Later(_))
    }

    fn may_land(&self) -> Watts {
        self.unresolved.map_or(Watts::ZERO, |sent| sent.ceiling)
    }

    /// The grant that stands, where its receipt is there.
    const fn fits(&self) -> Option<(Grant, Held)> {
        match (self.grant, self.heard) {
            (Some(grant), Heard::This(held)) => Some((grant, held)),
            (Some(_) | None, Heard::Nothing | Heard::Earlier(_) | Heard::This(_) | Heard::Later(_)) => None,
        }
    }

    /// The most that the node may draw; nothing when nobody can say.
    pub(super) fn count(&self, range: Range) -> Option<Watts> {
        let count = match (self.grant, self.heard) {
            (Some(grant), Heard::This(held)) => grant.watts.max(held.holds),
            (Some(grant), Heard::Earlier(held)) => grant.ceiling.max(held.holds),
            (Some(_), Heard::Nothing | Heard::Later(_)) | (None, _) => return range.max(),
        };
        Some(range.limit(count.max(self.may_land())))
    }

    /// What the node counts once it has read back the grant that stands, as it was given.
    pub(super) fn count_when_heard(&self, range: Range) -> Option<Watts> {
        match (self.grant, self.fits()) {
            (Some(grant), None) => Some(range.limit(grant.watts.max(self.may_land()))),
            (None, _) | (Some(_), Some(_)) => self.count(range),
        }
    }

    /// What the devices do not go below: by the node's word, and where they hold more than was allowed.
    pub(super) fn refused_below(&self) -> Option<Watts> {
        match (self.grant, self.heard) {
            (Some(grant), Heard::This(held)) if held.holds > grant.watts => Some(held.floor.max(held.holds)),
            (_, Heard::Earlier(held) | Heard::This(held) | Heard::Later(held)) => Some(held.floor),
            (_, Heard::Nothing) => None,
        }
    }

    /// Whether the grant that stands could not be kept to, and `target` could not be any better.
    pub(super) fn is_as_low_as(&self, target: Watts) -> bool {
        self.fits().is_some_and(|(grant, held)| grant.watts <= target && target <= held.holds)
    }
}

#[cfg(test)]
impl GrantAccount {
    /// The next grant has landed.
    pub(super) fn granted(self, watts: Watts) -> Self {
        let serial = self.grant.map_or(1, |grant| grant.serial + 1);
        let grant = Grant { serial, watts, ceiling: self.ceiling_of(watts) };
        let heard = match self.heard {
            Heard::This(held) | Heard::Earlier(held) => Heard::Earlier(held),
            Heard::Nothing | Heard::Later(_) => self.heard,
        };
        Self { grant: Some(grant), heard, ..self }
    }

    /// The node has read back the grant that stands, and its devices hold this.
    pub(super) fn heard(self, holds: Watts) -> Self {
        let heard = self.grant.map_or(Heard::Nothing, |_| Heard::This(Held { holds, floor: Watts::ZERO }));
        Self { heard, ..self }
    }
}
