//! A node for the tests of the backend selection: registers that carry out orders with a set delay, with faults, and
//! with late outcomes.

use super::*;
use crate::node::backoff::Backoff;
use crate::node::cap::CapIntent;
use crate::node::drift::DriftLaw;
use crate::node::limiter::{LimitOutcome, LimitReading};
use power_units::Percent;
use std::collections::VecDeque;
use std::vec::Vec;

/// One tick of the tests is a second.
pub(super) const TICK: u64 = 1_000_000;
pub(super) const PATIENCE: u64 = 3;
pub(super) const SETTLE: u64 = 2;

pub(super) fn at(tick: u64) -> Stamp {
    Stamp::new(Micros::new(tick * TICK))
}

pub(super) fn w(watts: i32) -> Watts {
    Watts::from_int(watts)
}

pub(super) fn watts(watts: i32) -> DesiredCap {
    DesiredCap::Cap(CapIntent::of_watts(w(watts)))
}

pub(super) fn percent(percent: i32) -> DesiredCap {
    DesiredCap::Cap(CapIntent::of_percent(Percent::from_int(percent)))
}

pub(super) fn law() -> BackendLaw {
    let backoff = Backoff::new(Micros::new(4 * TICK), Micros::new(16 * TICK)).unwrap();
    let actuation = ActuationLaw::new(Micros::new(PATIENCE * TICK), backoff).unwrap();
    let drift = DriftLaw::new(backoff, 3, Micros::new(100 * TICK)).unwrap();
    BackendLaw {
        limits: LimiterLaw { actuation, drift },
        throttle: actuation,
        settle: Micros::new(SETTLE * TICK),
        floor: Floor::NONE,
        preference: BackendPreference::LimitFirst,
    }
}

/// The register of one package.
#[derive(Debug)]
pub(super) struct Register {
    pub(super) limit: Option<Watts>,
    pub(super) refuses: Option<ErrorKind>,
    /// How many ticks an order waits before it is carried out.
    pub(super) delay: u64,
    /// What a reading shows, where that is not what the register holds.
    pub(super) hidden: Option<LimitReading>,
    orders: VecDeque<(u64, Ticket, LimitOrder)>,
}

/// The frequencies of the node.
#[derive(Debug)]
pub(super) struct Throttled {
    pub(super) by: Option<Throttling>,
    pub(super) refuses: Option<ErrorKind>,
    pub(super) blind: Option<ErrorKind>,
    pub(super) drawn_at_bound: Option<Watts>,
    pub(super) delay: u64,
    orders: VecDeque<(u64, Ticket, ThrottleOrder)>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) law: BackendLaw,
    pub(super) tick: u64,
    pub(super) mode: Mode,
    pub(super) packages: Vec<Package>,
    pub(super) registers: Vec<Register>,
    pub(super) throttle: Option<Throttled>,
    pub(super) has_meter: bool,
    /// Every order that was given, with its tick.
    pub(super) log: Vec<(u64, Given)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Limit(usize, LimitOrder),
    Throttle(ThrottleOrder),
}

/// A package with a limit from 50 to 270 W.
pub(super) fn package() -> PackageFacts {
    let range = CapRange::new(Some(w(50)), Some(w(270)), Some(w(250)));
    PackageFacts { range, has_limit: true, ..PackageFacts::UNKNOWN }
}

/// A package that reports no range.
pub(super) fn silent(has_limit: bool) -> PackageFacts {
    PackageFacts { has_limit, ..PackageFacts::UNKNOWN }
}

impl Node {
    pub(super) fn new(packages: &[PackageFacts]) -> Self {
        let register =
            || Register { limit: None, refuses: None, delay: 0, hidden: None, orders: VecDeque::new() };
        let throttle = Throttled {
            by: None,
            refuses: None,
            blind: None,
            drawn_at_bound: None,
            delay: 0,
            orders: VecDeque::new(),
        };
        Self {
            law: law(),
            tick: 0,
            mode: Mode::start(Route::Host, false),
            packages: packages.iter().copied().map(Package::untouched).collect(),
            registers: packages.iter().map(|_| register()).collect(),
            throttle: Some(throttle),
            has_meter: true,
            log: Vec::new(),
        }
    }

    pub(super) fn frequencies(&mut self) -> &mut Throttled {
        self.throttle.as_mut().unwrap()
    }

    /// One tick: carries out the orders that are due, steps the machine, and records its orders.
    pub(super) fn step(&mut self, desired: DesiredCap) -> BackendDecision {
        self.tick += 1;
        for (package, register) in self.packages.iter_mut().zip(&mut self.registers) {
            package.facts.limit = register.carry_out(self.tick);
        }
        let throttle = self.throttle.as_mut().map(|throttle| throttle.carry_out(self.tick));
        let facts =
            Facts { now: at(self.tick), desired, throttle, has_meter: self.has_meter, beyond: Watts::ZERO };
        let decision = self.law.step(&mut self.mode, &mut self.packages, &facts);
        for (i, (package, register)) in self.packages.iter().zip(&mut self.registers).enumerate() {
            if package.order() != LimitOrder::Leave {
                let ticket = package.limiter().ticket();
                register.orders.push_back((self.tick + register.delay, ticket, package.order()));
                self.log.push((self.tick, Given::Limit(i, package.order())));
            }
        }
        if decision.throttle != ThrottleOrder::Leave {
            self.log.push((self.tick, Given::Throttle(decision.throttle)));
            if let Some(throttle) = &mut self.throttle {
                let due = self.tick + throttle.delay;
                throttle.orders.push_back((due, decision.ticket, decision.throttle));
            }
        }
        decision
    }

    pub(super) fn steps(&mut self, count: u64, desired: DesiredCap) -> BackendDecision {
        let mut decision = self.step(desired);
        for _ in 1..count {
            decision = self.step(desired);
        }
        decision
    }

    /// Whether something holds the node: a limit on every package, or a throttle.
    pub(super) fn is_held(&self) -> bool {
        let limited =
            !self.registers.is_empty() && self.registers.iter().all(|register| register.limit.is_some());
        limited || self.throttle.as_ref().is_some_and(|throttle| throttle.by.is_some())
    }

    /// The ticks at which something was ordered, without the steps of the loop.
    pub(super) fn ordered(&self) -> Vec<(u64, Given)> {
        let is_step = |given: Given| matches!(given, Given::Throttle(ThrottleOrder::RunLoop { .. }));
        self.log.iter().copied().filter(|&(_, given)| !is_step(given)).collect()
    }
}

impl Register {
    fn carry_out(&mut self, tick: u64) -> LimitFacts {
        let due = self.orders.front().is_some_and(|(due, ..)| *due < tick);
        let outcome = match due.then(|| self.orders.pop_front()).flatten() {
            None | Some((_, _, LimitOrder::Leave)) => LimitOutcome::Unknown,
            Some((_, ticket, LimitOrder::Set(asked))) => {
                if self.refuses.is_none() {
                    self.limit = Some(asked);
                }
                LimitOutcome::Set { ticket, read_back: self.refuses.map_or(Ok(asked), Err) }
            }
            Some((_, ticket, LimitOrder::Release)) => {
                if self.refuses.is_none() {
                    self.limit = None;
                }
                LimitOutcome::Released { ticket, outcome: self.refuses.map_or(Ok(()), Err) }
            }
        };
        let seen = LimitReading::At { limit: self.limit.unwrap_or(w(250)), read: at(tick) };
        LimitFacts { outcome, seen: self.hidden.unwrap_or(seen) }
    }
}

impl Throttled {
    fn carry_out(&mut self, tick: u64) -> ThrottleOutcome {
        let due = self.orders.front().is_some_and(|(due, ..)| *due < tick);
        match due.then(|| self.orders.pop_front()).flatten() {
            None | Some((_, _, ThrottleOrder::Leave)) => ThrottleOutcome::Unknown,
            Some((_, ticket, ThrottleOrder::RunLoop { .. })) => {
                let outcome = match (self.refuses, self.blind) {
                    (Some(kind), _) => Err(kind),
                    (None, Some(kind)) => Ok(Regulation::Blind(kind)),
                    (None, None) => {
                        self.by = Some(Throttling::Loop);
                        Ok(self
                            .drawn_at_bound
                            .map_or(Regulation::Keeping, |drawn| Regulation::AtBound { drawn }))
                    }
                };
                ThrottleOutcome::Loop { ticket, outcome }
            }
            Some((_, ticket, ThrottleOrder::Set(asked))) => {
                if self.refuses.is_none() {
                    self.by = Some(Throttling::Fixed(asked));
                }
                ThrottleOutcome::Fixed { ticket, outcome: self.refuses.map_or(Ok(()), Err) }
            }
            Some((_, ticket, ThrottleOrder::Release)) => {
                if self.refuses.is_none() {
                    self.by = None;
                }
                ThrottleOutcome::Released { ticket, outcome: self.refuses.map_or(Ok(()), Err) }
            }
        }
    }
}
