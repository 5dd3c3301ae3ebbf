//! The power limit of one package or one GPU: set, read back, watched, and put back.
//!
//! A [`Limiter`] joins the [`Actuation`] of a limit with the [`Drift`] that tells whether somebody else moves it. What is
//! read back decides: a limit that reads above what was written is not in force, and one below is, as clamped, unless
//! it undercuts the floor that the node's own configuration sets: that is never accepted, neither when it is read back
//! nor when it is seen later.
//!
//! What cannot be seen any more is not in force as far as anybody knows. A limit that is gone counts as lost at once, one
//! that does not answer after the patience with an order; both are set again, and at once when they can be seen again.
//! Where only orders confirm a limit that nobody can read, it is set again less and less often.

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
    /// How to answer somebody else who moves a limit.
    pub drift: DriftLaw,
}

/// What one limit remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    actuation: Actuation<ResolvedCap>,
    /// That of the last order.
    ticket: Ticket,
    drift: Drift,
    view: View,
}

/// What may be known about a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitFacts {
    /// What became of an order; each outcome is told once.
    pub outcome: LimitOutcome,
    /// The limit that is in force now.
    pub seen: LimitReading,
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOutcome {
    /// Nobody has said yet.
    Unknown,
    /// The limit was written.
    Set {
        /// The ticket of the order.
        ticket: Ticket,
        /// What was read back, or why it was not written.
        read_back: Result<Watts, ErrorKind>,
    },
    /// The original was put back.
    Released {
        /// The ticket of the order.
        ticket: Ticket,
        /// Why it was not.
        outcome: Result<(), ErrorKind>,
    },
}

/// A limit as it is read between orders, and when: a sample may arrive late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReading {
    /// Nobody looked at it.
    Unknown,
    /// It was looked at, and this is why it could not be read.
    Unread(ErrorKind),
    /// The device of which it is the limit is not there any more.
    Gone,
    /// It is not enabled, so it limits nothing.
    Off {
        /// When it was read.
        read: Stamp,
    },
    /// It is this.
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
    /// Put the original back.
    Release,
}

/// What a step of one limiter did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitStep {
    pub(crate) order: LimitOrder,
    /// Whether somebody else was seen to have moved the limit.
    pub(crate) moved: bool,
}

/// Whether what is seen is what was left there.
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
    /// A limit that nobody of us has touched.
    pub const UNTOUCHED: Self = Self::at(Actuation::Free);

    /// A limit that the journal says is ours, from before a restart.
    pub const ADOPTED: Self = Self::at(Actuation::Adopted);

    pub(crate) const fn at(actuation: Actuation<ResolvedCap>) -> Self {
        Self { actuation, ticket: Ticket::NONE, drift: Drift::Calm, view: View::Unwatched }
    }

    /// How the limit stands.
    #[must_use]
    pub const fn actuation(&self) -> Actuation<ResolvedCap> {
        self.actuation
    }

    /// The ticket of the last order: what became of another one says nothing.
    #[must_use]
    pub const fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Whether somebody else moves it.
    #[must_use]
    pub const fn drift(&self) -> Drift {
        self.drift
    }

    /// The limit that is in force as far as anybody knows: as it is seen, else as it was read back, else as it is on its
    /// way.
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
        self.actuation = law.actuation.learn(self.actuation, now, self.news(facts.outcome, floor));
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
            // To what is not there nothing can be ordered, and its answer need not be waited for.
            (ActuationOrder::Set(_), LimitReading::Gone) => {
                self.fail(law, now, ActuationOutcome::Set(Err(ErrorKind::Gone)))
            }
            (ActuationOrder::Release, LimitReading::Gone) => {
                self.fail(law, now, ActuationOutcome::Released(Err(ErrorKind::Gone)))
            }
            (ActuationOrder::Set(target), _) => LimitOrder::Set(target.effective()),
            (ActuationOrder::Release, _) => LimitOrder::Release,
        };
        LimitStep { order, moved }
    }

    fn fail(&mut self, law: &LimiterLaw, now: Stamp, news: ActuationOutcome<ResolvedCap>) -> LimitOrder {
        self.actuation = law.actuation.learn(self.actuation, now, news);
        LimitOrder::Leave
    }

    /// Whether the limit can still be seen.
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

    /// What was read before the last order was confirmed tells of the limit before it, however late it arrives. Where the
    /// clock went back behind the confirmation, nothing can be told apart by time and what is seen counts.
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

    /// What came of `target`; nothing while that is not known.
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
