//! By which backend the CPU cap of a node is held: power limits first, a throttle where they fail, and back again.
//!
//! The order is the agent's contract: the power limit of each package (RAPL, or a socket limit); where that is
//! locked, missing, refused or out of sight, the *closed loop* of the DVFS fallback with the node's total; and where a
//! percentage cannot be resolved to watts, the *percent path*, a fixed throttle. When limits work again they are set,
//! seen in force for a while, and only then is the throttle lifted.
//!
//! ```text
//!              a package lacks its limit                  throttle in force
//!  Limits ──────────────────────────────▶ engage throttle ─────────────────▶ Throttled
//!    ▲  (what stands of the limits stays)                                      │ limits are retried with backoff
//!    │                                    every limit read back, for `settle`  │
//!    └──────────── throttle lifted ◀───────────────────────────────────────────┘
//!
//!  desired state gone: limits and throttle are released, from every state
//! ```
//!
//! The boxes of the diagram are no states that anybody stores. The only state machines here are the [`Actuation`] of each
//! package's limit and the one of the throttle, each with its own diagram; the diagram above is what the pure rule over
//! them makes of their states. So the node cannot be in a state that its parts are not in.
//!
//! What it never does:
//! - leave a node without a limiter while it changes from one to the other: neither is let go before the other is read
//!   back (limits stay when the throttle engages, the throttle stays until **every** package's limit is in force);
//! - lift a throttle by another way than the one that set it: one machine has one [`Route`], names it in every
//!   decision, and never crosses to another;
//! - call a node capped that nobody caps: the mode names what is in force, the status what came of the cap.
//!
//! Limits are per package, the throttle is per node. Where one package of two is locked, the other keeps its limit,
//! and the closed loop holds the sum of both caps: the site's budget counts nodes, and a limit that works is better
//! than a throttle.

mod plan;
mod regulation;
mod status;

pub use regulation::Regulation;
pub use status::CpuControlStatus;

use plan::{Need, Wish};

use super::actuation::{Actuation, ActuationLaw, ActuationOrder, ActuationOutcome};
use super::cap::{Backend, CapRange, DesiredCap, Floor, Resolution, ResolvedCap};
use super::limiter::{LimitFacts, LimitOrder, LimitOutcome, Limiter, LimiterLaw};
use super::ticket::Ticket;
use crate::node::throttle::ThrottlePercent;
use power_hal::ErrorKind;
use power_units::{Micros, Stamp, Watts};

/// The tuning of the backend order.
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

/// Where the orders of one machine go. Another route is another machine, with a memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// The hardware of this host.
    Host,
    /// A control endpoint over HTTP.
    Remote,
}

/// What the node's machine remembers; the packages remember their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    route: Route,
    throttle: Actuation<Throttling>,
    /// That of the last order for the throttle.
    ticket: Ticket,
    regulation: Regulation,
    cap: Option<Watts>,
}

/// One package: what is known of it, what it remembers, and what is to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// What may be known about it in this step.
    pub facts: PackageFacts,
    limiter: Limiter,
    wish: Wish<Resolution>,
    order: LimitOrder,
    /// The last limit that was ordered, and what it may have of the node's grant; zero where there is none, since no cap
    /// is zero and a node has room for so many.
    ordered: Watts,
    share: Watts,
}

/// What may be known about a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageFacts {
    /// What it can be told; a maximum may be known where no limit can be set.
    pub range: CapRange,
    /// Whether it has a power limit.
    pub has_limit: bool,
    /// What may be known about that limit.
    pub limit: LimitFacts,
    /// The limit in force as it was last read, where a grant may count on that.
    pub in_force: Option<Watts>,
    /// The most that it may have now, where a grant holds the node.
    pub most: Option<Watts>,
}

/// What may be known about the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The time of this step.
    pub now: Stamp,
    /// What is desired.
    pub desired: DesiredCap,
    /// What became of the throttle; none where the node has no throttle.
    pub throttle: Option<ThrottleOutcome>,
    /// Whether the power of the packages can be measured here at all.
    pub has_meter: bool,
    /// What other packages draw at most, which nothing here controls, as far as that is known.
    pub beyond: Watts,
}

/// What became of the throttle since the last step; each outcome is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleOutcome {
    /// Nobody has said yet.
    Unknown,
    /// A fixed throttle was set, or why not.
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
        /// How it stands.
        outcome: Result<Regulation, ErrorKind>,
    },
    /// The original frequencies were put back, or why not.
    Released {
        /// The ticket of the order.
        ticket: Ticket,
        /// Whether they are.
        outcome: Result<(), ErrorKind>,
    },
}

/// How the node is throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttling {
    /// By the closed loop, which compares with the node's cap.
    Loop,
    /// By this much.
    Fixed(ThrottlePercent),
}

/// What is to be done; the orders for the packages lie in the packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendDecision {
    /// Where all these orders go.
    pub route: Route,
    /// What is to be done with the throttle.
    pub throttle: ThrottleOrder,
    /// The ticket of that order; every step of one run of the closed loop has the same.
    pub ticket: Ticket,
    /// What holds the node now, whatever is being changed: the label of `joulie_backend_mode`.
    pub mode: Backend,
    /// What came of the desired state.
    pub status: CpuControlStatus,
    /// What all packages together may draw, where it is resolved.
    pub node_cap: Option<Watts>,
    /// On how many packages somebody else was seen to have moved the limit.
    pub moved: u32,
}

/// What is to be done with the throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleOrder {
    /// Nothing.
    Leave,
    /// Take one step of the closed loop. A loop that was not running starts from the throttle that it finds.
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
    /// A machine for orders by `route`. `throttled` says whether a throttle of ours, set by that same route, is in
    /// force from before a restart, as the journal knows.
    #[must_use]
    pub const fn start(route: Route, throttled: bool) -> Self {
        let throttle = if throttled { Actuation::Adopted } else { Actuation::Free };
        Self { route, throttle, ticket: Ticket::NONE, regulation: Regulation::Keeping, cap: None }
    }

    /// How the throttle stands.
    #[must_use]
    pub const fn throttle(&self) -> Actuation<Throttling> {
        self.throttle
    }

    const fn holds_something(&self) -> bool {
        matches!(self.throttle, Actuation::Held { .. })
    }

    /// Whether the throttle that the node needs is known to hold it.
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

    /// What an outcome says of the last order: nothing, where it is another one's.
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

    /// What to tell the throttle. A running loop takes a step each time, also while its last order is being retried:
    /// it has a memory of its own for that.
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
    pub const UNKNOWN: Self = Self {
        range: CapRange::UNKNOWN,
        has_limit: false,
        limit: LimitFacts::UNKNOWN,
        in_force: None,
        most: None,
    };
}

impl Package {
    /// A package whose limit nobody of us has touched.
    #[must_use]
    pub const fn untouched(facts: PackageFacts) -> Self {
        let (limiter, order) = (Limiter::UNTOUCHED, LimitOrder::Leave);
        Self { facts, limiter, wish: Wish::Keep, order, ordered: Watts::ZERO, share: Watts::ZERO }
    }

    /// A package whose limit the journal says is ours, from before a restart.
    #[must_use]
    pub const fn adopted(facts: PackageFacts) -> Self {
        Self { limiter: Limiter::ADOPTED, ..Self::untouched(facts) }
    }

    /// Takes over the last order of the same package under another law.
    #[must_use]
    pub const fn after(mut self, before: &Self) -> Self {
        self.ordered = before.ordered;
        self
    }

    /// What is to be done with its limit.
    #[must_use]
    pub const fn order(&self) -> LimitOrder {
        self.order
    }

    /// How its limit stands.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The last limit that was ordered.
    #[must_use]
    pub fn ordered(&self) -> Option<Watts> {
        Some(self.ordered).filter(|&ordered| ordered > Watts::ZERO)
    }

    /// What it may have of the node's grant, where one stands and it can be capped.
    #[must_use]
    pub fn share(&self) -> Option<Watts> {
        Some(self.share).filter(|&share| share > Watts::ZERO)
    }

    /// Says what it may have of the node's grant, and what of it now.
    pub(in crate::node) fn grant(&mut self, share: Option<Watts>, most: Option<Watts>) {
        self.share = share.unwrap_or(Watts::ZERO);
        self.facts.most = most;
    }

    /// After a step: remembers what was ordered, and forgets the outcome, which is told once.
    pub(in crate::node) fn note(&mut self) {
        self.facts.limit.outcome = LimitOutcome::Unknown;
        if let LimitOrder::Set(watts) = self.order {
            self.ordered = watts;
        }
    }

    /// Takes in what is desired of it. Apart, so that its copies are not on the stack of all that follows in a step.
    #[inline(never)]
    fn wish_for(&mut self, desired: DesiredCap, floor: Floor) {
        let PackageFacts { range, ref limit, most, .. } = self.facts;
        let wish = Wish::of(desired.under(most, self.limiter.found(limit.seen)));
        self.wish = wish.on(range, most, floor);
    }
}

impl BackendLaw {
    /// One step: takes in the facts of the node and of every package that is known, and decides.
    pub fn step(&self, mode: &mut Mode, packages: &mut [Package], facts: &Facts) -> BackendDecision {
        mode.learn(&self.throttle, facts.now, facts.throttle.unwrap_or(ThrottleOutcome::Unknown));
        for package in packages.iter_mut() {
            package.wish_for(facts.desired, self.floor);
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
