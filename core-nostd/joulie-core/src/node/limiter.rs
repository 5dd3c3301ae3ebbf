//! The power limit of one package or one GPU: set, read back, watched, and released.
//!
//! A [`Limiter`] combines the [`Actuation`] of a limit with the [`Drift`] that detects whether somebody else changes
//! it. What is read back decides. A limit above what was written is not in force. A limit below it is in force, as
//! clamped, unless it undercuts the floor of the node's own configuration: that is never accepted, whether it is read
//! back or seen later.
//!
//! A limit that cannot be read any more does not count as in force. A limit that is gone counts as lost at once; one
//! that cannot be read counts as lost after the patience with an order. Both are set again, and at once when they can
//! be read again. A limit that cannot be read but is confirmed by orders is set again at growing intervals.

mod view;

use super::actuation::{Actuation, ActuationLaw, ActuationOrder, ActuationOutcome, InForce, Want};
use super::cap::{CapResult, Floor, ResolvedCap};
use super::drift::{Drift, DriftLaw};
use super::ticket::Ticket;
use power_hal::ErrorKind;
use power_units::{Micros, Stamp, Watts};
use view::{Glance, Patience, View};

/// The tuning of all limiters of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimiterLaw {
    /// How long to wait for an answer and between two tries.
    pub actuation: ActuationLaw,
    /// How to respond to somebody else who changes a limit.
    pub drift: DriftLaw,
}

/// The state of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    actuation: Actuation<ResolvedCap>,
    /// The ticket of the last order.
    ticket: Ticket,
    drift: Drift,
    view: View,
    /// The limit that was ordered last, and the highest of the orders that may still be in force. Zero means none, since
    /// no cap is zero; an `Option` would take more memory for each limit.
    ordered: Watts,
    highest: Watts,
}

/// The facts about a limit in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitFacts {
    /// The outcome of an order; each outcome is reported once.
    pub outcome: LimitOutcome,
    /// The limit that is in force now.
    pub seen: LimitReading,
}

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOutcome {
    /// No outcome yet.
    Unknown,
    /// The result of writing the limit.
    Set {
        /// The ticket of the order.
        ticket: Ticket,
        /// What was read back, or why it was not written.
        read_back: Result<Watts, ErrorKind>,
    },
    /// The result of restoring the original.
    Released {
        /// The ticket of the order.
        ticket: Ticket,
        /// Whether it is restored, or why not.
        outcome: Result<(), ErrorKind>,
    },
}

/// A limit as it is read between orders, and when it was read: a sample may arrive late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReading {
    /// It was not read.
    Unknown,
    /// It could not be read, for this reason.
    Unread(ErrorKind),
    /// The device of this limit is not present any more.
    Gone,
    /// It is not enabled, so it limits nothing.
    Off {
        /// When it was read.
        read: Stamp,
    },
    /// It has this value.
    At {
        /// The limit.
        limit: Watts,
        /// When it was read.
        read: Stamp,
    },
}

/// What is to be done with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOrder {
    /// Nothing.
    Leave,
    /// Set it to this, and read it back.
    Set(Watts),
    /// Restore the original.
    Release,
}

/// What a step of one limiter did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitStep {
    pub(crate) order: LimitOrder,
    /// Whether somebody else has changed the limit.
    pub(crate) moved: bool,
}

/// How a reading compares with the confirmed limit.
enum LimitComparison {
    AsLeft,
    Accepted(ResolvedCap),
    Contested,
}

impl LimitFacts {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { outcome: LimitOutcome::Unknown, seen: LimitReading::Unknown };
}

impl LimiterLaw {
    pub(crate) fn longest_wait(&self) -> Micros {
        self.drift.truce().max(self.actuation.longest_wait())
    }
}

impl Limiter {
    /// A limit that we have not changed.
    pub const UNTOUCHED: Self = Self::at(Actuation::Free);

    /// A limit that was set by us before a restart, according to the journal.
    pub const ADOPTED: Self = Self::at(Actuation::Adopted);

    pub(crate) const fn at(actuation: Actuation<ResolvedCap>) -> Self {
        let (drift, view) = (Drift::Calm, View::Unwatched);
        Self { actuation, ticket: Ticket::NONE, drift, view, ordered: Watts::ZERO, highest: Watts::ZERO }
    }

    /// Takes over the orders of the same limit when another law replaces this one.
    #[must_use]
    pub const fn after(mut self, before: &Self) -> Self {
        (self.ordered, self.highest) = (before.ordered, before.highest);
        self
    }

    /// The state of the limit.
    #[must_use]
    pub const fn actuation(&self) -> Actuation<ResolvedCap> {
        self.actuation
    }

    /// The ticket of the last order; the outcome of any other order is ignored.
    #[must_use]
    pub const fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The limit that was ordered last.
    #[must_use]
    pub fn ordered(&self) -> Option<Watts> {
        Some(self.ordered).filter(|&ordered| ordered > Watts::ZERO)
    }

    /// The highest limit that an order may have left in force: the orders up to the last one that was read back are
    /// over, and of the later ones any may have been carried out.
    #[must_use]
    pub fn highest_order(&self) -> Option<Watts> {
        Some(self.highest).filter(|&highest| highest > Watts::ZERO)
    }

    /// The same once this outcome is taken in, so that the step in which a lowered limit is read back can already raise
    /// another one.
    pub(in crate::node) fn highest_order_after(&self, outcome: LimitOutcome, floor: Floor) -> Option<Watts> {
        let is_read_back = matches!(self.news(outcome, floor), ActuationOutcome::Set(Ok(_)));
        if is_read_back { self.ordered() } else { self.highest_order() }
    }

    /// Whether somebody else changes it.
    #[must_use]
    pub const fn drift(&self) -> Drift {
        self.drift
    }

    /// The limit in force, from the best source: the reading, else what was read back, else the order on its way.
    pub(crate) fn found(&self, seen: LimitReading) -> Option<Watts> {
        let standing = match self.actuation.standing() {
            InForce::At(as_is) => Some(as_is),
            InForce::Nothing | InForce::Unknown => self.actuation.target(),
        };
        match seen {
            LimitReading::At { limit, .. } => Some(limit),
            LimitReading::Unknown
            | LimitReading::Unread(_)
            | LimitReading::Gone
            | LimitReading::Off { .. } => standing.map(ResolvedCap::effective),
        }
    }

    /// Takes in the facts and moves towards what is wanted.
    pub(crate) fn step(
        &mut self,
        law: &LimiterLaw,
        now: Stamp,
        facts: LimitFacts,
        want: Want<ResolvedCap>,
        floor: Floor,
    ) -> LimitStep {
        let news = self.news(facts.outcome, floor);
        if let ActuationOutcome::Set(Ok(_)) = news {
            self.highest = self.ordered;
        }
        self.actuation = law.actuation.learn(self.actuation, now, news);
        self.drift = self.drift.quiet(law.drift, now);
        self.look(law, now, facts.seen);
        let moved = match self.compare(now, facts.seen, floor) {
            LimitComparison::AsLeft => false,
            LimitComparison::Accepted(as_is) => {
                self.actuation = law.actuation.learn(self.actuation, now, ActuationOutcome::Changed(as_is));
                true
            }
            LimitComparison::Contested => {
                let (drift, back) = self.drift.moved(law.drift, now);
                self.drift = drift;
                let kind = ErrorKind::Busy;
                let lost = ActuationOutcome::Lost { kind, again_at: back.at, failures: back.failures };
                self.actuation = law.actuation.learn(self.actuation, now, lost);
                true
            }
        };
        let (actuation, order) = self.actuation.pursue(now, want, law.longest_wait());
        self.actuation = actuation;
        if order != ActuationOrder::Leave {
            self.ticket = self.ticket.next();
        }
        let order = match (order, facts.seen) {
            (ActuationOrder::Leave, _) => LimitOrder::Leave,
            // A device that is gone cannot get an order, and its answer need not be awaited.
            (ActuationOrder::Set(_), LimitReading::Gone) => {
                self.fail(law, now, ActuationOutcome::Set(Err(ErrorKind::Gone)))
            }
            (ActuationOrder::Release, LimitReading::Gone) => {
                self.fail(law, now, ActuationOutcome::Released(Err(ErrorKind::Gone)))
            }
            (ActuationOrder::Set(target), _) => {
                self.ordered = target.effective();
                self.highest = self.highest.max(self.ordered);
                LimitOrder::Set(self.ordered)
            }
            (ActuationOrder::Release, _) => LimitOrder::Release,
        };
        LimitStep { order, moved }
    }

    fn fail(&mut self, law: &LimiterLaw, now: Stamp, news: ActuationOutcome<ResolvedCap>) -> LimitOrder {
        self.actuation = law.actuation.learn(self.actuation, now, news);
        LimitOrder::Leave
    }

    /// Checks whether the limit can still be read.
    fn look(&mut self, law: &LimiterLaw, now: Stamp, seen: LimitReading) {
        let confirmed = match self.actuation {
            Actuation::Held { since, .. } => Some(since),
            Actuation::Free
            | Actuation::Adopted
            | Actuation::Pending { .. }
            | Actuation::Refused { .. }
            | Actuation::Releasing { .. }
            | Actuation::Stuck { .. } => None,
        };
        let patience = Patience { first: law.actuation.patience(), longest: law.longest_wait() };
        let (view, glance) = self.view.look(patience, now, seen, confirmed);
        self.view = view;
        let news = match glance {
            Glance::Nothing => return,
            Glance::Lost(kind) => ActuationOutcome::Lost { kind, again_at: now, failures: 1 },
            Glance::Back => ActuationOutcome::Back,
        };
        self.actuation = law.actuation.learn(self.actuation, now, news);
    }

    fn news(&self, outcome: LimitOutcome, floor: Floor) -> ActuationOutcome<ResolvedCap> {
        match (outcome, self.actuation.target()) {
            (LimitOutcome::Set { ticket, read_back }, Some(target)) if ticket == self.ticket => {
                ActuationOutcome::Set(read_back.and_then(|found| target.read_back(found, floor)))
            }
            (LimitOutcome::Released { ticket, outcome }, _) if ticket == self.ticket => {
                ActuationOutcome::Released(outcome)
            }
            (LimitOutcome::Unknown | LimitOutcome::Set { .. } | LimitOutcome::Released { .. }, _) => {
                ActuationOutcome::None
            }
        }
    }

    /// A reading from before the confirmation of the last order describes the limit before it, however late it
    /// arrives. Where the clock went back to before the confirmation, times cannot be compared and the reading counts.
    fn compare(&self, now: Stamp, seen: LimitReading, floor: Floor) -> LimitComparison {
        let Actuation::Held { target, as_is, since } = self.actuation else { return LimitComparison::AsLeft };
        let (found, read) = match seen {
            LimitReading::Unknown | LimitReading::Unread(_) | LimitReading::Gone => {
                return LimitComparison::AsLeft;
            }
            LimitReading::Off { read } => (None, read),
            LimitReading::At { limit, read } => (Some(limit), read),
        };
        if read <= since && since <= now {
            return LimitComparison::AsLeft;
        }
        match found {
            None => LimitComparison::Contested,
            Some(found) if found == as_is.effective() => LimitComparison::AsLeft,
            Some(found)
                if found <= Watts::ZERO || found > target.effective() || floor.is_undercut_by(found) =>
            {
                LimitComparison::Contested
            }
            Some(found) => LimitComparison::Accepted(target.standing_at(found)),
        }
    }

    /// The result of `target`; `None` while it is not known.
    pub(crate) fn result(&self, target: ResolvedCap) -> Option<CapResult> {
        match self.actuation {
            Actuation::Free if target.is_as_found() => Some(target.result(target)),
            Actuation::Held { target: held, as_is, .. } if held == target => Some(target.result(as_is)),
            Actuation::Refused { kind, .. } | Actuation::Stuck { kind, .. } => Some(CapResult::refused(kind)),
            Actuation::Held { .. }
            | Actuation::Free
            | Actuation::Adopted
            | Actuation::Pending { .. }
            | Actuation::Releasing { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
