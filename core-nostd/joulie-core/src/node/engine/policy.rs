//! One frequency policy: its ceiling, its last order and the outcome.

use crate::node::throttle::{PolicyLocation, ThrottlePercent};
use crate::node::ticket::Ticket;
use power_hal::ErrorKind;
use power_units::{KiloHertz, Stamp};

/// One policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrequencyPolicy {
    /// The facts about it in this step.
    pub facts: FrequencyPolicyFacts,
    scale: Scale,
    pub(super) place: PolicyLocation,
    /// The highest limit that it may get: the limit in force before the first write; `None` while that is unknown.
    pub(super) ceiling: Option<KiloHertz>,
    /// What was last ordered and not released since.
    pub(super) asked: Option<KiloHertz>,
    /// The ticket of its last order.
    ticket: Ticket,
    /// The state of its last order.
    pub(super) due: Due,
    /// When the asked limit was confirmed; an earlier reading does not count.
    learned: Option<Stamp>,
    order: Option<PolicyOrder>,
}

/// How a policy is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A frequency.
    Frequency {
        /// The lowest limit that a throttle sets.
        floor: KiloHertz,
        /// The highest limit that it accepts.
        most: KiloHertz,
        /// The distance between two limits.
        step: KiloHertz,
    },
    /// A throttle in whole percent: one policy for the whole node, where the single policies are not visible. The laws
    /// see a nominal frequency for it.
    Share,
}

/// The nominal frequencies of a share: nothing throttled, everything throttled, and the step for one percent. A full
/// throttle reduces processors to about a third.
const SHARE_MOST: KiloHertz = KiloHertz::from_int(3_000_000);
const SHARE_FLOOR: KiloHertz = KiloHertz::from_int(1_000_000);
const SHARE_STEP: KiloHertz = KiloHertz::from_int(20_000);
const SHARE_STEP_KHZ: i32 = 20_000;
const SHARE_MOST_KHZ: i32 = 3_000_000;

/// A limit of a policy, as its device has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyLimit {
    /// A frequency.
    Frequency(KiloHertz),
    /// A throttle.
    Throttle(ThrottlePercent),
}

/// The facts about a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrequencyPolicyFacts {
    /// When it was read; `None` when it could not be read.
    pub read: Option<Stamp>,
    /// The limit that is in force, whoever set it.
    pub limit: Option<PolicyLimit>,
    /// The frequency at which it runs.
    pub running: Option<KiloHertz>,
    /// The limit in force before the first write, if it is recorded.
    pub original: Option<PolicyLimit>,
    /// Whether it was written to, and its original is not restored yet.
    pub touched: bool,
    /// The outcome of its order; the engine takes it.
    pub outcome: PolicyOutcome,
}

/// The outcome of an order for a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyOutcome {
    /// No outcome yet.
    Unknown,
    /// It was written.
    Set {
        /// The ticket of the order.
        ticket: Ticket,
        /// What was read back, or why it was not written.
        read_back: Result<PolicyLimit, ErrorKind>,
    },
    /// The result of restoring the original.
    Released {
        /// The ticket of the order.
        ticket: Ticket,
        /// Whether it is restored, or why not.
        outcome: Result<(), ErrorKind>,
    },
}

/// What is to be done with a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyOrder {
    /// Set its limit to this.
    Set(PolicyLimit),
    /// Restore its original.
    Release,
}

/// Whether an order is on its way, and what came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It was listed while a loop ran, and has got no order yet.
    New,
    Nothing,
    Waiting,
    Done(Result<Option<KiloHertz>, ErrorKind>),
}

impl FrequencyPolicyFacts {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        read: None,
        limit: None,
        running: None,
        original: None,
        touched: false,
        outcome: PolicyOutcome::Unknown,
    };
}

impl PolicyLimit {
    /// The limit as a frequency; for a throttle a nominal one.
    fn frequency(self) -> KiloHertz {
        match self {
            Self::Frequency(frequency) => frequency,
            Self::Throttle(throttle) => {
                let below = i32::from(throttle.get()).saturating_mul(SHARE_STEP_KHZ);
                KiloHertz::from_int(SHARE_MOST_KHZ.saturating_sub(below))
            }
        }
    }
}

impl FrequencyPolicy {
    /// A policy that was not known before.
    #[must_use]
    pub const fn listed(scale: Scale, place: PolicyLocation, facts: FrequencyPolicyFacts) -> Self {
        Self {
            facts,
            scale,
            place,
            ceiling: None,
            asked: None,
            ticket: Ticket::NONE,
            due: Due::New,
            learned: None,
            order: None,
        }
    }

    /// Takes over the state of the same policy from before the hardware was listed again. The outcome of an order that
    /// was on its way is not known.
    #[must_use]
    pub const fn after(mut self, before: &Self) -> Self {
        self.ceiling = before.ceiling;
        self.asked = before.asked;
        self.ticket = before.ticket;
        self.learned = before.learned;
        self.due = match before.due {
            Due::New => Due::New,
            Due::Nothing | Due::Waiting | Due::Done(_) => Due::Nothing,
        };
        self
    }

    /// The lowest limit that a throttle sets.
    #[must_use]
    pub const fn floor(&self) -> KiloHertz {
        match self.scale {
            Scale::Frequency { floor, .. } => floor,
            Scale::Share => SHARE_FLOOR,
        }
    }

    /// The highest limit that it accepts.
    #[must_use]
    pub const fn most(&self) -> KiloHertz {
        match self.scale {
            Scale::Frequency { most, .. } => most,
            Scale::Share => SHARE_MOST,
        }
    }

    /// The limit that we set; `None` after a release.
    #[must_use]
    pub const fn asked(&self) -> Option<KiloHertz> {
        self.asked
    }

    /// What is to be done with it.
    #[must_use]
    pub const fn order(&self) -> Option<PolicyOrder> {
        self.order
    }

    /// The ticket of its last order.
    #[must_use]
    pub const fn ticket(&self) -> Ticket {
        self.ticket
    }

    pub(super) const fn step(&self) -> KiloHertz {
        match self.scale {
            Scale::Frequency { step, .. } => step,
            Scale::Share => SHARE_STEP,
        }
    }

    /// The limit in force, as a frequency; for a share a nominal one.
    #[must_use]
    pub fn in_force(&self) -> Option<KiloHertz> {
        self.facts.limit.map(PolicyLimit::frequency)
    }

    /// Its limit, or the frequency at which it runs where the limit cannot be read.
    pub(super) fn stands_at(&self) -> Option<KiloHertz> {
        self.in_force().or(self.facts.running)
    }

    /// The throttle in force of a share; `None` for a frequency.
    pub(super) fn share(&self) -> Option<ThrottlePercent> {
        match (self.scale, self.facts.limit) {
            (Scale::Share, Some(PolicyLimit::Throttle(throttle))) => Some(throttle),
            (Scale::Share, Some(PolicyLimit::Frequency(_)) | None) => Some(ThrottlePercent::NONE),
            (Scale::Frequency { .. }, _) => None,
        }
    }

    /// A loop begins, from the limits in force.
    pub(super) fn begin(&mut self) {
        self.ceiling = None;
        if self.due == Due::New {
            self.due = Due::Nothing;
        }
    }

    /// Whether a limit of ours is in force, or is ordered.
    pub(super) const fn is_ours(&self) -> bool {
        self.facts.touched || self.asked.is_some()
    }

    /// Whether somebody else may have set another ceiling since it was found: nothing of ours is in force, or the last
    /// write failed.
    fn is_open(&self) -> bool {
        let refused = match self.due {
            Due::Done(Err(_)) => true,
            Due::Done(Ok(_)) | Due::New | Due::Nothing | Due::Waiting => false,
        };
        self.ceiling.is_none() || refused || !self.is_ours()
    }

    /// The ceiling is the limit in force before the first write, because an administrator may have set less than the
    /// hardware's maximum. A loop can run for long before its first write, so until then the limit is read in each step.
    /// While neither the original nor a reading is available, the ceiling stays as it is.
    pub(super) fn find_ceiling(&mut self) {
        let limit = self.facts.limit.filter(|_| self.is_open());
        let found = self.facts.original.or(limit).map(PolicyLimit::frequency);
        self.ceiling = found.map(|found| found.within(self.floor(), self.most())).or(self.ceiling);
    }

    /// Whether it can be read and is not throttled. A reading from before the confirmation does not count. A share is
    /// not read between two orders.
    pub(super) fn slips(&self) -> bool {
        match self.scale {
            Scale::Share => false,
            Scale::Frequency { floor, step, .. } => {
                let Some(read) = self.facts.read else { return false };
                let after = self.learned.is_none_or(|learned| read.since(learned).is_some());
                after && self.in_force().is_some_and(|now| now > floor + step)
            }
        }
    }

    /// Whether somebody else has raised its limit.
    pub(super) fn was_raised(&self) -> bool {
        let (Some(asked), Some(learned), Some(read)) = (self.asked, self.learned, self.facts.read) else {
            return false;
        };
        // On kernels that round up, the table's entry may be a step above what was asked.
        let raised = self.in_force().is_some_and(|now| now > asked + self.step());
        raised && read.since(learned).is_some()
    }

    /// Whether it can be written now, and the last order of a loop did not reach it: it was not listed, or its CPUs were
    /// offline.
    pub(super) fn is_owed(&self) -> bool {
        let missed = match self.due {
            Due::New => true,
            Due::Done(Err(kind)) => kind == ErrorKind::Busy && self.asked.is_some(),
            Due::Nothing | Due::Waiting | Due::Done(Ok(_)) => false,
        };
        missed && self.in_force().is_some()
    }

    /// Throttles this policy. `limited` says whether it is one of the policies that the throttle limits.
    pub(super) fn throttle(&mut self, throttle: ThrottlePercent, limited: bool) {
        match self.scale {
            Scale::Share => self.limit(PolicyLimit::Throttle(throttle).frequency()),
            Scale::Frequency { floor, .. } if limited => self.limit(floor),
            Scale::Frequency { .. } => self.free(),
        }
    }

    pub(super) fn limit(&mut self, to: KiloHertz) {
        self.asked = Some(to);
        self.learned = None;
        self.give(PolicyOrder::Set(match self.scale {
            Scale::Frequency { .. } => PolicyLimit::Frequency(to),
            Scale::Share => PolicyLimit::Throttle(throttle_for(to)),
        }));
    }

    /// Restores its original, if it was ever written to.
    pub(super) fn free(&mut self) {
        if self.asked.is_none() && !self.facts.touched {
            self.due = Due::Nothing;
            return;
        }
        self.asked = None;
        self.give(PolicyOrder::Release);
    }

    fn give(&mut self, order: PolicyOrder) {
        self.ticket = self.ticket.next();
        self.due = Due::Waiting;
        self.order = Some(order);
    }

    pub(super) const fn forget_order(&mut self) {
        self.order = None;
    }

    pub(super) fn learn(&mut self, now: Stamp) {
        let outcome = core::mem::replace(&mut self.facts.outcome, PolicyOutcome::Unknown);
        if self.due != Due::Waiting {
            return;
        }
        match outcome {
            PolicyOutcome::Released { ticket, outcome } if ticket == self.ticket => {
                self.due = Due::Done(outcome.map(|()| None));
            }
            PolicyOutcome::Set { ticket, read_back } if ticket == self.ticket => {
                self.learned = read_back.is_ok().then_some(now);
                self.due = Due::Done(read_back.map(|limit| Some(limit.frequency())));
            }
            // The outcome of an order that another one has replaced since.
            PolicyOutcome::Released { .. } | PolicyOutcome::Set { .. } | PolicyOutcome::Unknown => {}
        }
    }
}

/// The least throttle that keeps a share at or below this nominal frequency.
fn throttle_for(limit: KiloHertz) -> ThrottlePercent {
    let below = (SHARE_MOST - limit.within(SHARE_FLOOR, SHARE_MOST)).to_bits();
    let step = SHARE_STEP.to_bits();
    let percent = below.saturating_add(step).saturating_sub(1).checked_div(step).unwrap_or(0);
    ThrottlePercent::new(percent).unwrap_or(ThrottlePercent::ALL)
}
