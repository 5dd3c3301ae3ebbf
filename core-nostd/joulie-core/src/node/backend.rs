//! Selects the backend that holds the CPU cap of a node: power limits first, a throttle where they fail, and back
//! again.
//!
//! The order is the agent's contract: the power limit of each package (RAPL, or a socket limit); where that is locked,
//! missing, refused or cannot be read, the *closed loop* of the DVFS fallback with the node's total; and where a
//! percentage cannot be resolved to watts, the *percent path*, a fixed throttle. When limits work again they are set
//! and read back for a while; only then is the throttle lifted.
//!
//! ```text
//!              a package lacks its limit                  throttle in force
//!  Limits ──────────────────────────────▶ engage throttle ─────────────────▶ Throttled
//!    ▲  (the existing limits are kept)                                         │ limits are retried with backoff
//!    │                                    every limit read back, for `settle`  │
//!    └──────────── throttle lifted ◀───────────────────────────────────────────┘
//!
//!  desired state gone: limits and throttle are released, from every state
//! ```
//!
//! The states of the diagram are not stored. The only state machines here are the [`Actuation`] of each package's limit
//! and that of the throttle, each with its own diagram. A pure rule computes the state above from theirs, so the node
//! cannot be in a state that contradicts its parts.
//!
//! What it never does:
//! - leave a node without a limiter during a change: neither limiter is released before the other is read back (limits
//!   stay when the throttle engages, the throttle stays until **every** package's limit is in force);
//! - lift a throttle by another route than the one that set it: one machine has one [`Route`], names it in every
//!   decision, and never changes it;
//! - count a limit that is read back and not kept: the closed loop takes over while more is drawn ([`Package::disobeys`]);
//! - report a node as capped when nothing caps it: the mode names what is in force, the status what came of the cap.
//!
//! Limits are per package, the throttle is per node. Where one package of two is locked, the other keeps its limit,
//! and the closed loop holds the sum of both caps: the site's budget counts nodes, and a limit that works is better
//! than a throttle.

mod obedience;
mod plan;
mod regulation;
mod status;

pub use regulation::Regulation;
pub use status::CpuControlStatus;

use obedience::{Draw, Obedience, Watched};
use plan::{Need, Wish};

use super::actuation::{Actuation, ActuationLaw, ActuationOrder, ActuationOutcome};
use super::cap::{Backend, CAP_LEAST, CapRange, DesiredCap, Floor, Resolution, ResolvedCap};
use super::demand::DeviceDraw;
use super::gpu_cap::CappedGpu;
use super::limiter::{LimitFacts, LimitOrder, LimitOutcome, Limiter, LimiterLaw};
use super::ticket::Ticket;
use crate::node::throttle::ThrottlePercent;
use power_hal::ErrorKind;
use power_units::{Micros, Stamp, Watts};

/// The tuning of the backend selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendLaw {
    /// How a power limit is set, watched and retried.
    pub limits: LimiterLaw,
    /// How the throttle is set and retried.
    pub throttle: ActuationLaw,
    /// For how long every power limit must be in force before the throttle is lifted: a limit only holds the mean over
    /// its own window.
    pub settle: Micros,
    /// The least that a cap may be on this node.
    pub floor: Floor,
    /// Which backends may be used.
    pub preference: BackendPreference,
}

/// Which backends may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendPreference {
    /// Power limits where they work, else the throttle.
    LimitFirst,
    /// Only the throttle.
    ThrottleOnly,
}

/// Where the orders of one machine go. Each route has a machine with a memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// The hardware of this host.
    Host,
    /// A control endpoint over HTTP.
    Remote,
}

/// The state of the node's machine; the packages hold their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    route: Route,
    throttle: Actuation<Throttling>,
    /// The ticket of the last order for the throttle.
    ticket: Ticket,
    regulation: Regulation,
    cap: Option<Watts>,
}

/// One package: the facts about it, its state, and what is to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// What may be known about it in this step.
    pub facts: PackageFacts,
    limiter: Limiter,
    wish: Wish<Resolution>,
    order: LimitOrder,
    /// Its share of the node's grant, and what it may draw of it now. Zero means none, since no cap is zero; an `Option`
    /// would take more memory for each package.
    share: Watts,
    may: Watts,
    /// What the last period has shown of it, until the step that takes it in.
    draw: Option<Draw>,
    obedience: Obedience,
}

/// The facts about a package in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageFacts {
    /// The range of its caps; a maximum may be known where no limit can be set.
    pub range: CapRange,
    /// Whether it has a power limit.
    pub has_limit: bool,
    /// The facts about that limit.
    pub limit: LimitFacts,
    /// The limit in force as it was last read, where a grant may rely on it.
    pub in_force: Option<Watts>,
}

/// The facts about the node in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The time of this step.
    pub now: Stamp,
    /// What is desired.
    pub desired: DesiredCap,
    /// The outcome of the throttle's order; `None` where the node has no throttle.
    pub throttle: Option<ThrottleOutcome>,
    /// Whether the power of the packages can be measured here at all.
    pub has_meter: bool,
    /// The known upper bound of what other packages draw that are not controlled here.
    pub beyond: Watts,
}

/// The outcome of the throttle's order since the last step; each outcome is reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleOutcome {
    /// No outcome was reported yet.
    Unknown,
    /// The result of setting a fixed throttle.
    Fixed {
        /// The ticket of the order.
        ticket: Ticket,
        /// Whether it is in force.
        outcome: Result<(), ErrorKind>,
    },
    /// The closed loop took a step, or its actuation was refused.
    Loop {
        /// The ticket of the order to run it.
        ticket: Ticket,
        /// The state of the loop, or why it was refused.
        outcome: Result<Regulation, ErrorKind>,
    },
    /// The result of restoring the original frequencies.
    Released {
        /// The ticket of the order.
        ticket: Ticket,
        /// Whether they are restored.
        outcome: Result<(), ErrorKind>,
    },
}

/// How the node is throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttling {
    /// By the closed loop, which compares the power with the node's cap.
    Loop,
    /// By a fixed percentage.
    Fixed(ThrottlePercent),
}

/// What is to be done. The orders for the packages are in the packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendDecision {
    /// Where all these orders go.
    pub route: Route,
    /// What is to be done with the throttle.
    pub throttle: ThrottleOrder,
    /// The ticket of that order; all steps of one run of the closed loop have the same ticket.
    pub ticket: Ticket,
    /// What holds the node now, also during a change: the label of `joulie_backend_mode`.
    pub mode: Backend,
    /// The result of the desired state.
    pub status: CpuControlStatus,
    /// What all packages together may draw, where that can be resolved.
    pub node_cap: Option<Watts>,
    /// The number of packages whose limit somebody else has changed.
    pub moved: u32,
}

/// What is to be done with the throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleOrder {
    /// Nothing.
    Leave,
    /// Take one step of the closed loop. A loop that was not running starts from the throttle that is in force.
    RunLoop {
        /// What all packages together may draw.
        cap: Watts,
    },
    /// Throttle by this much.
    Set(ThrottlePercent),
    /// Put the original frequencies back.
    Release,
}

impl Mode {
    /// A machine for orders by `route`. `throttled` says whether a throttle of ours is in force that was set by the
    /// same route before a restart, according to the journal.
    #[must_use]
    pub const fn start(route: Route, throttled: bool) -> Self {
        let throttle = if throttled { Actuation::Adopted } else { Actuation::Free };
        Self { route, throttle, ticket: Ticket::NONE, regulation: Regulation::Keeping, cap: None }
    }

    /// The state of the throttle.
    #[must_use]
    pub const fn throttle(&self) -> Actuation<Throttling> {
        self.throttle
    }

    const fn holds_something(&self) -> bool {
        matches!(self.throttle, Actuation::Held { .. })
    }

    /// Whether the required throttle is in force and effective.
    fn holds_for(&self, need: Need) -> bool {
        let throttling = match need {
            Need::Throttle(throttling) => throttling,
            Need::AsIs | Need::Nothing | Need::Blocked(_) => return false,
        };
        let sees = match (throttling, self.regulation) {
            (Throttling::Loop, Regulation::Blind(_)) => false,
            (Throttling::Loop, Regulation::Keeping | Regulation::AtBound { .. })
            | (Throttling::Fixed(_), _) => true,
        };
        sees && self.throttle.held_since(throttling).is_some()
    }

    fn learn(&mut self, law: &ActuationLaw, now: Stamp, outcome: ThrottleOutcome) {
        if let ThrottleOutcome::Loop { ticket, outcome: Ok(regulation) } = outcome
            && ticket == self.ticket
        {
            self.regulation = regulation;
        }
        self.throttle = law.learn(self.throttle, now, self.news(outcome));
    }

    /// What an outcome means for the last order: nothing if it belongs to another order.
    fn news(&self, outcome: ThrottleOutcome) -> ActuationOutcome<Throttling> {
        let (ticket, done) = match outcome {
            ThrottleOutcome::Unknown => return ActuationOutcome::None,
            ThrottleOutcome::Fixed { ticket, outcome } => (ticket, outcome),
            ThrottleOutcome::Loop { ticket, outcome } => (ticket, outcome.map(|_| ())),
            ThrottleOutcome::Released { ticket, outcome } if ticket == self.ticket => {
                return ActuationOutcome::Released(outcome);
            }
            ThrottleOutcome::Released { .. } => return ActuationOutcome::None,
        };
        match self.throttle.target() {
            Some(throttling) if ticket == self.ticket => ActuationOutcome::Set(done.map(|()| throttling)),
            Some(_) | None => ActuationOutcome::None,
        }
    }

    /// The order for the throttle. A running loop takes a step each time, also while its last order is being retried,
    /// since the loop keeps its own state for that.
    fn throttle_order(&self, order: ActuationOrder<Throttling>) -> ThrottleOrder {
        match (order, self.throttle.target(), self.cap) {
            (ActuationOrder::Release, _, _) => ThrottleOrder::Release,
            (ActuationOrder::Set(Throttling::Fixed(throttle)), _, _) => ThrottleOrder::Set(throttle),
            (
                ActuationOrder::Set(Throttling::Loop) | ActuationOrder::Leave,
                Some(Throttling::Loop),
                Some(cap),
            ) => ThrottleOrder::RunLoop { cap },
            (ActuationOrder::Set(Throttling::Loop) | ActuationOrder::Leave, _, _) => ThrottleOrder::Leave,
        }
    }
}

impl PackageFacts {
    /// Nothing is known.
    pub const UNKNOWN: Self =
        Self { range: CapRange::UNKNOWN, has_limit: false, limit: LimitFacts::UNKNOWN, in_force: None };
}

impl Package {
    /// A package whose limit we have not changed.
    #[must_use]
    pub const fn untouched(facts: PackageFacts) -> Self {
        let (limiter, order) = (Limiter::UNTOUCHED, LimitOrder::Leave);
        let (wish, obedience) = (Wish::Keep, Obedience::START);
        Self { facts, limiter, wish, order, share: Watts::ZERO, may: Watts::ZERO, draw: None, obedience }
    }

    /// A package whose limit was set by us before a restart, according to the journal.
    #[must_use]
    pub const fn adopted(facts: PackageFacts) -> Self {
        Self { limiter: Limiter::ADOPTED, ..Self::untouched(facts) }
    }

    /// Takes over the orders of the same package when another law replaces this one.
    #[must_use]
    pub const fn after(mut self, before: &Self) -> Self {
        self.limiter = self.limiter.after(&before.limiter);
        self
    }

    /// What is to be done with its limit.
    #[must_use]
    pub const fn order(&self) -> LimitOrder {
        self.order
    }

    /// The state of its limit.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Its share of the node's grant, where the node has one and the package can be capped.
    #[must_use]
    pub fn share(&self) -> Option<Watts> {
        Some(self.share).filter(|&share| share > Watts::ZERO)
    }

    /// What it may draw now, where the node has a grant and the package can be capped.
    pub(in crate::node) fn most(&self) -> Option<Watts> {
        Some(self.may).filter(|&may| may > Watts::ZERO)
    }

    /// Says what it may have of the node's grant, and what of it now.
    pub(in crate::node) fn grant(&mut self, share: Option<Watts>, most: Option<Watts>) {
        self.share = share.unwrap_or(Watts::ZERO);
        self.may = most.map_or(Watts::ZERO, |most| most.max(CAP_LEAST));
    }

    /// Takes over the limit and the grant of a GPU, which is controlled as a package is.
    pub(in crate::node) fn follows(&mut self, gpu: &CappedGpu) {
        self.limiter = *gpu.limiter();
        self.grant(gpu.share(), gpu.most());
    }

    /// Takes in what it drew in the period that now ends.
    pub(in crate::node) fn draws(&mut self, draw: DeviceDraw) {
        let throttled = draw.throttled.says_held();
        self.draw = draw.watts.map(|watts| Draw { watts, throttled });
    }

    /// Whether more than its limit was drawn for so long that the limit does not count: the closed loop holds it.
    #[must_use]
    pub const fn disobeys(&self) -> bool {
        self.obedience.is_broken()
    }

    /// Judges whether it keeps to its limit. A function of its own, because the stack of a step is bounded.
    #[inline(never)]
    fn watch(&mut self, law: &BackendLaw, now: Stamp, looped: bool) {
        let watchable = self.facts.has_limit && law.preference == BackendPreference::LimitFirst;
        let Wish::Cap(Resolution::Watts(target)) = self.wish else {
            if self.wish == Wish::Nothing {
                self.obedience = Obedience::START;
            }
            return;
        };
        let Some(draw) = self.draw.take().filter(|_| watchable && !target.is_as_found()) else { return };
        let least = law.floor.over(self.facts.range.min().unwrap_or(CAP_LEAST));
        let watched = match self.limiter.actuation() {
            Actuation::Held { as_is, since, .. } => {
                Some(Watched { limit: as_is.effective(), since, least, looped })
            }
            Actuation::Free
            | Actuation::Adopted
            | Actuation::Pending { .. }
            | Actuation::Refused { .. }
            | Actuation::Releasing { .. }
            | Actuation::Stuck { .. } => None,
        };
        self.obedience = self.obedience.after(now, draw, watched);
    }

    /// After a step: clears the outcome, which is reported once.
    pub(in crate::node) fn note(&mut self) {
        self.facts.limit.outcome = LimitOutcome::Unknown;
    }

    /// Takes in what is desired of it. A function of its own, so that its copies are not on the stack for the rest of
    /// the step.
    #[inline(never)]
    fn wish_for(&mut self, desired: DesiredCap, floor: Floor) {
        let (PackageFacts { range, ref limit, .. }, most) = (self.facts, self.most());
        let found = self.obedience.before().or(self.limiter.found(limit.seen));
        let wish = Wish::of(desired.under(most, found));
        self.wish = wish.on(range, most, floor);
    }
}

impl BackendLaw {
    /// One step: takes in the facts of the node and of every known package, and decides.
    pub fn step(&self, mode: &mut Mode, packages: &mut [Package], facts: &Facts) -> BackendDecision {
        mode.learn(&self.throttle, facts.now, facts.throttle.unwrap_or(ThrottleOutcome::Unknown));
        let looped = mode.holds_for(Need::Throttle(Throttling::Loop));
        for package in packages.iter_mut() {
            package.wish_for(facts.desired, self.floor);
            package.watch(self, facts.now, looped);
        }
        let wish = Wish::of(facts.desired).under_grant(packages);
        let throttled = mode.holds_something() && mode.holds_for(self.need(wish, packages, facts));
        let mut moved = 0_u32;
        for package in packages.iter_mut() {
            let want = self.want_of_limit(package, throttled);
            let step = package.limiter.step(&self.limits, facts.now, package.facts.limit, want, self.floor);
            package.order = step.order;
            moved = moved.saturating_add(u32::from(step.moved));
        }
        let need = self.need(wish, packages, facts);
        let node_cap = plan::node_cap(packages, facts.beyond);
        let throttle = self.step_throttle(mode, need, node_cap, facts);
        BackendDecision {
            route: mode.route,
            throttle,
            ticket: mode.ticket,
            mode: status::in_force(mode, packages),
            status: self.status(mode, packages, need, node_cap, facts),
            node_cap: node_cap.map(ResolvedCap::effective),
            moved,
        }
    }

    fn step_throttle(
        &self,
        mode: &mut Mode,
        need: Need,
        node_cap: Option<ResolvedCap>,
        facts: &Facts,
    ) -> ThrottleOrder {
        mode.cap = node_cap.map(ResolvedCap::effective).or(mode.cap);
        let want = need.want(facts.throttle.is_some());
        let (throttle, order) = mode.throttle.pursue(facts.now, want, self.throttle.longest_wait());
        if throttle.target() != mode.throttle.target() {
            mode.regulation = Regulation::Keeping;
        }
        mode.throttle = throttle;
        if order != ActuationOrder::Leave {
            mode.ticket = mode.ticket.next();
        }
        mode.throttle_order(order)
    }
}

#[cfg(test)]
mod rig;
#[cfg(test)]
mod tests;
