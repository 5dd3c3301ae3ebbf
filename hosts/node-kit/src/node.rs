//! The node: its backends, its laws, and the loop between them.
//!
//! One *period*: every backend is asked for readings, and the loop waits a part of the period for the answers; a
//! backend that did not answer the last time is not waited for. Then the laws step on what is known, and their orders
//! go out. When an outcome comes back the loop *settles*: the backend order steps again, so that what was ordered is
//! known to be in force within milliseconds; the closed loop steps once a period only, but for its first step, which it
//! takes as soon as it is needed. A change of the desired state begins a period at once.

mod handle;
mod open;
mod restore;
mod share;
mod stock;
mod tell;

pub use handle::{Desire, Handle};
pub use open::OpenError;
pub use restore::Left;

use crate::curb::{Curb, Sight};
use crate::report::{Counts, Report};
use crate::time::Deadline;
use crate::unit::Unit;
use crate::worker::{Bell, Worker, lock};
use crate::{Access, Config, Journal, Lock, Time};
use handle::Inbox;
use joulie_core::node::backend::{Decision, Facts, Mode, Package, PackageFacts, ThrottleOrder};
use joulie_core::node::cap::{CapIntent, Desired};
use joulie_core::node::energy::{self, Reading};
use joulie_core::node::gpu_cap::{Gpu, GpuDecision, GpuFacts};
use joulie_core::node::grant::Holder;
use joulie_core::node::lease::{Caps, Event, Lease, LeaseFacts};
use joulie_core::node::lever::Lever;
use power_hal::Clock;
use power_units::Stamp;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A node that is open.
#[derive(Debug)]
pub struct Node {
    config: Config,
    time: Time,
    journal: Journal,
    _lock: Option<Lock>,
    bell: Arc<Bell>,
    inbox: Arc<Mutex<Inbox>>,
    published: Arc<Mutex<Report>>,
    workers: Vec<Worker>,
    /// The sum of the workers' epochs that the units below were made of.
    epochs: u64,
    packages: Vec<Package>,
    package_units: Vec<Unit>,
    gpus: Vec<Gpu>,
    gpu_units: Vec<Unit>,
    /// Working memory for the division of a grant.
    holders: Vec<Holder>,
    curb: Curb,
    mode: Mode,
    lease: Option<Lease>,
    lease_event: Option<Event>,
    desire: Desire,
    ticket: u64,
    power: Reading,
    cpu_decision: Option<Decision>,
    gpu_decision: Option<GpuDecision>,
    counts: Counts,
    report: Report,
}

/// What a step is taken for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    Period,
    News,
}

impl Node {
    /// Runs the control loop until the handle says stop. Caps stay as they are.
    pub fn run(&mut self) {
        self.run_telling(|_| {});
    }

    /// As [`run`](Self::run), and tells what is known of the node after each step, in this thread: whoever listens is
    /// a part of the loop, so it must be quick and must not wait.
    pub fn run_telling(&mut self, mut told: impl FnMut(&Report)) {
        let period = self.time.lasting(self.config.period);
        let mut due = Deadline::after(Duration::ZERO);
        loop {
            let heard = self.bell.rung();
            let (stop, changed) = self.take_inbox();
            if stop {
                return;
            }
            if changed {
                self.period();
                due = Deadline::after(period);
            } else if due.is_over() {
                self.period();
                due = due.next(period);
            } else {
                self.settle();
            }
            told(&self.report);
            self.bell.wait(heard, due);
        }
    }

    /// One period: sense, decide, order.
    pub fn period(&mut self) {
        self.take_inbox();
        self.ask();
        self.collect();
        self.counts.periods += 1;
        let now = self.time.now();
        for unit in self.package_units.iter_mut().chain(&mut self.gpu_units) {
            unit.measure(&self.workers, now);
        }
        self.power = energy::total(self.package_units.iter().map(|unit| unit.power));
        self.counts.blind += u64::from(!matches!(self.power, Reading::Fresh { .. }));
        self.step(Occasion::Period);
    }

    /// Takes in what came back since the last step, and goes on from there.
    pub fn settle(&mut self) {
        self.collect();
        self.step(Occasion::News);
    }

    /// Settles until no order is on its way, or for so long.
    pub fn settle_within(&mut self, wait: Duration) {
        let until = Deadline::after(wait);
        loop {
            let heard = self.bell.rung();
            self.settle();
            if !self.is_busy() || until.is_over() {
                return;
            }
            self.bell.wait(heard, until);
        }
    }

    /// Whether an order is on its way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let waits = |lever: Lever<_>| matches!(lever, Lever::Pending { .. } | Lever::Releasing { .. });
        // What is not there cannot be ordered anything: the law waits for it, and nobody else has to.
        let packages = self.package_units.iter().zip(self.packages.iter().map(Package::limiter));
        let gpus = self.gpu_units.iter().zip(self.gpus.iter().map(Gpu::limiter));
        let mut there = packages.chain(gpus).filter(|(unit, _)| unit.limit.is_some());
        self.curb.is_busy() || there.any(|(_, limiter)| waits(limiter.lever()))
    }

    /// What is known of the node.
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// The journal of its originals.
    #[must_use]
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    fn ask(&mut self) {
        self.ticket += 1;
        let heard = self.bell.rung();
        for worker in &self.workers {
            worker.ask(self.ticket);
        }
        let until = Deadline::after(self.time.lasting(self.config.period).min(Duration::from_secs(1)) / 2);
        let last = self.ticket - 1;
        let mut rung = heard;
        loop {
            // One that was late already is not waited for: it is looked at when it has answered.
            let awaited = |worker: &&Worker| worker.view.answered >= last;
            let missing = self.workers.iter().filter(awaited).any(|worker| !worker.has_answered(self.ticket));
            if !missing || until.is_over() {
                break;
            }
            self.bell.wait(rung, until);
            rung = self.bell.rung();
        }
        self.counts.late += u64::from(self.workers.iter().any(|worker| !worker.has_answered(self.ticket)));
    }

    fn collect(&mut self) {
        for worker in &mut self.workers {
            worker.collect();
        }
        let epochs = self.workers.iter().map(|worker| worker.view.epoch).sum();
        if epochs != self.epochs {
            self.epochs = epochs;
            self.take_stock();
        }
    }

    fn step(&mut self, occasion: Occasion) {
        let now = self.time.now();
        let caps = self.step_lease(now, occasion);
        let desired = self.desired(caps);
        for (package, unit) in self.packages.iter_mut().zip(&mut self.package_units) {
            let limit = unit.limit_facts(&mut self.workers);
            let (range, has_limit) = (unit.cap_range(&self.journal), unit.has_limit);
            package.facts = PackageFacts { range, has_limit, limit, most: None };
        }
        for (gpu, unit) in self.gpus.iter_mut().zip(&mut self.gpu_units) {
            let limit = unit.limit_facts(&mut self.workers);
            gpu.facts = GpuFacts { limits: unit.gpu_limits(&self.journal), limit, most: None };
        }
        let throttle = self.curb.learn(&mut self.workers, now);
        let metered = !self.package_units.is_empty() && self.package_units.iter().all(Unit::is_metered);
        self.share(desired, metered);
        let facts = Facts {
            now,
            desired: desired.cpu,
            throttle: self.curb.exists().then_some(throttle),
            has_meter: metered,
        };
        let decision = self.config.cpu.step(&mut self.mode, &mut self.packages, &facts);
        let gpu_decision = self.config.gpu.step(&mut self.gpus, now, desired.gpu);
        self.act(now, occasion, &decision);
        let known = facts.desired != Desired::Unknown || desired.grant.is_some();
        let lifted = self.mode.throttle() == Lever::Free && known;
        if occasion == Occasion::Period && lifted {
            self.curb.free_the_rest(&self.workers, &self.journal);
        }
        self.counts.moved += u64::from(decision.moved) + u64::from(gpu_decision.moved);
        self.cpu_decision = Some(decision);
        self.gpu_decision = Some(gpu_decision);
        self.publish(now);
    }

    /// What is desired under the lease. A node that is only looked at desires nothing that anybody knows. While a grant
    /// stands an end of the lease brings no originals back: the budget counts on what is in force.
    fn desired(&self, leased: Option<(Caps, (CapIntent, CapIntent))>) -> Desire {
        let desire = self.desire;
        match (self.config.access, leased) {
            (Access::Look, _) => Desire::UNKNOWN,
            (Access::Control, None) => desire,
            (Access::Control, Some((Caps::Originals, _))) if desire.grant.is_some() => desire,
            (Access::Control, Some((caps, (cpu, gpu)))) => Desire {
                cpu: caps.desired(desire.cpu, cpu),
                gpu: caps.desired(desire.gpu, gpu),
                grant: desire.grant,
            },
        }
    }

    fn step_lease(&mut self, now: Stamp, occasion: Occasion) -> Option<(Caps, (CapIntent, CapIntent))> {
        let (terms, lease) = (self.config.lease.as_ref()?, self.lease.as_mut()?);
        let renewal = match occasion {
            Occasion::Period => lock(&self.inbox).renewal.take(),
            Occasion::News => None,
        };
        let decision = terms.law.step(lease, &LeaseFacts { now, renewal });
        if let Some(event) = decision.event {
            log::warn!("the lease of the desired state: {event:?}; caps: {:?}", decision.caps);
            if decision.caps == Caps::Originals && self.desire.grant.is_some() {
                log::error!(
                    "a grant stands, so that no originals come back at the end of the lease; caps hold"
                );
            }
            self.lease_event = Some(event);
        }
        Some((decision.caps, (terms.safe_cpu, terms.safe_gpu)))
    }

    fn act(&mut self, now: Stamp, occasion: Occasion, decision: &Decision) {
        let mut orders = 0;
        for (package, unit) in self.packages.iter().zip(&mut self.package_units) {
            orders += u64::from(unit.obey(package.order(), package.limiter().ticket(), &self.workers));
        }
        for (gpu, unit) in self.gpus.iter().zip(&mut self.gpu_units) {
            orders += u64::from(unit.obey(gpu.order(), gpu.limiter().ticket(), &self.workers));
        }
        let (workers, journal, ticket) = (&self.workers, &self.journal, decision.ticket);
        if occasion == Occasion::Period {
            self.curb.answer_others(workers, journal);
        }
        match decision.throttle {
            ThrottleOrder::Leave => {}
            ThrottleOrder::RunLoop { cap } => {
                // Limits that were refused just now hold nothing: a loop that sees begins at once, and not a period later.
                let begins = !self.curb.is_running() && matches!(self.power, Reading::Fresh { .. });
                if occasion == Occasion::Period || begins {
                    let sight = Sight { now, cap, power: self.power, ticket };
                    self.curb.step(&self.config.law, &sight, workers, journal);
                }
            }
            ThrottleOrder::Set(throttle) => self.curb.set((ticket, throttle), workers, journal),
            ThrottleOrder::Release => self.curb.release(ticket, workers, journal),
        }
        self.counts.orders += orders;
    }

    fn take_inbox(&mut self) -> (bool, bool) {
        let mut inbox = lock(&self.inbox);
        let changed = std::mem::take(&mut inbox.changed);
        self.desire = inbox.desire;
        (inbox.stop, changed)
    }
}

/// How long a node that is closed waits for its backends: a call that hangs must not keep the process.
const CLOSING: Duration = Duration::from_secs(1);

impl Drop for Node {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.stop();
        }
        let until = Deadline::after(CLOSING);
        loop {
            let heard = self.bell.rung();
            if self.workers.iter().all(Worker::has_ended) || until.is_over() {
                return;
            }
            self.bell.wait(heard, until);
        }
    }
}
