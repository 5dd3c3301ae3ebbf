//! The node: its backends, and the core's engine, which decides.
//!
//! One *period*: every backend is asked for readings, and the loop waits for the answers for a part of the period; a
//! backend that did not answer the last time is not waited for. Then the engine steps on the known facts, and its
//! orders are given. When an outcome arrives the loop *settles*: the engine steps again, so that an order is known to
//! be in force within milliseconds. A change of the desired state begins a period at once.

mod handle;
mod open;
mod publish;
mod stock;

pub use handle::NodeHandle;
pub use open::OpenError;

use crate::cap_target::CapTarget;
use crate::clock_target::ClockTarget;
use crate::policy_target::PolicyTarget;
use crate::report::{NodeCounters, NodeReport};
use crate::time::Deadline;
use crate::worker::{Wakeup, Worker, lock};
use crate::{Config, Desire, Journal, JournalEntry, NodeLock, Time};
use handle::Inbox;
use joulie_core::node::energy::{self, MeterReading};
use joulie_core::node::engine::{
    EngineFacts, EngineLaws, EngineOrder, GpuClock, LoopCause, LoopLaw, MachineEngine, Occasion, TargetId,
};
use joulie_core::node::lease::{LeaseEvent, LeasePhase};
use power_hal::Clock;
use power_units::Micros;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No closed loop of a node steps more often by itself.
const PACE_LEAST: Micros = Micros::new(500_000);

/// An open node.
#[derive(Debug)]
pub struct OpenNode {
    config: Config,
    time: Time,
    journal: Journal,
    _lock: Option<NodeLock>,
    wakeup: Arc<Wakeup>,
    inbox: Arc<Mutex<Inbox>>,
    published: Arc<Mutex<NodeReport>>,
    workers: Vec<Worker>,
    /// The sum of the workers' epochs from which the targets below were built.
    epochs: u64,
    laws: EngineLaws,
    engine: Box<MachineEngine>,
    /// The engine's packages, GPUs and policies, in its order.
    packages: Vec<CapTarget>,
    gpus: Vec<CapTarget>,
    /// The clocks of the GPUs that can be locked.
    clocks: Vec<Option<ClockTarget>>,
    /// Why the loops over the clocks held the GPUs in the last step.
    causes: Vec<Option<LoopCause>>,
    policies: Vec<PolicyTarget>,
    /// The journal's version as the engine knows it.
    journal_seen: u64,
    lease_event: Option<LeaseEvent>,
    desire: Desire,
    ticket: u64,
    power: MeterReading,
    counts: NodeCounters,
    report: NodeReport,
    /// Working memory for the orders of a step.
    orders: Vec<EngineOrder>,
}

impl OpenNode {
    /// Runs the control loop until the handle stops it. Caps stay as they are.
    pub fn run(&mut self) {
        self.run_telling(|_| {});
    }

    /// Like [`run`](Self::run), and reports the state of the node after each step, in this thread: the callback is
    /// part of the loop, so it must be fast and must not wait.
    pub fn run_telling(&mut self, mut told: impl FnMut(&NodeReport)) {
        let mut due = Deadline::after(Duration::ZERO);
        loop {
            let heard = self.wakeup.count();
            let (stop, changed) = self.take_inbox();
            if stop {
                return;
            }
            if changed {
                self.period();
                due = Deadline::after(self.time.lasting(self.pace()));
            } else if due.is_over() {
                self.period();
                due = due.next(self.time.lasting(self.pace()));
            } else {
                self.settle();
            }
            told(&self.report);
            self.wakeup.wait(heard, due);
        }
    }

    /// The time to the next period: half of the configured one, but at least 0.5 s, while `tracking` holds the cap of
    /// packages whose energy is counted. A power meter is a mean of a second or so, which more readings do not improve,
    /// and `classic` counts its readings.
    #[must_use]
    pub fn pace(&self) -> Micros {
        let period = self.config.period;
        let counted = self.packages.iter().all(CapTarget::is_counted);
        let tracks = matches!(self.config.law, LoopLaw::Tracking(_)) && self.engine.law().is_some();
        let half = Micros::new(period.get() / 2).max(PACE_LEAST);
        if counted && tracks { half.min(period) } else { period }
    }

    /// One period: read, decide, order.
    pub fn period(&mut self) {
        self.take_inbox();
        self.ask();
        self.collect();
        self.counts.periods += 1;
        let now = self.time.now();
        for target in self.packages.iter_mut().chain(&mut self.gpus) {
            target.measure(&self.workers, now);
        }
        for (at, package) in self.packages.iter().enumerate() {
            self.engine.drew(TargetId::Package(at), package.draw());
        }
        for (at, gpu) in self.gpus.iter().enumerate() {
            self.engine.drew(TargetId::Gpu(at), gpu.draw());
        }
        self.power = energy::total(self.packages.iter().map(|target| target.power));
        self.counts.blind += u64::from(!matches!(self.power, MeterReading::Fresh { .. }));
        self.step(Occasion::Period);
    }

    /// Takes in the outcomes since the last step, and steps again.
    pub fn settle(&mut self) {
        self.collect();
        self.step(Occasion::News);
    }

    /// Settles until no order is on its way, for at most `wait`.
    pub fn settle_within(&mut self, wait: Duration) {
        let until = Deadline::after(wait);
        loop {
            let heard = self.wakeup.count();
            self.settle();
            if !self.is_busy() || until.is_over() {
                return;
            }
            self.wakeup.wait(heard, until);
        }
    }

    /// Whether an order is on its way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.engine.is_busy()
    }

    /// The current report of the node.
    #[must_use]
    pub const fn report(&self) -> &NodeReport {
        &self.report
    }

    /// The journal of its originals.
    #[must_use]
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    fn ask(&mut self) {
        self.ticket += 1;
        let heard = self.wakeup.count();
        for worker in &self.workers {
            worker.ask(self.ticket);
        }
        let until = Deadline::after(self.time.lasting(self.config.period).min(Duration::from_secs(1)) / 2);
        let last = self.ticket - 1;
        let mut rung = heard;
        loop {
            // A backend that is late already is not waited for; its answer is taken in when it arrives.
            let awaited = |worker: &&Worker| worker.view.answered >= last;
            let missing = self.workers.iter().filter(awaited).any(|worker| !worker.has_answered(self.ticket));
            if !missing || until.is_over() {
                break;
            }
            self.wakeup.wait(rung, until);
            rung = self.wakeup.count();
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
        let renewal = match occasion {
            Occasion::Period => lock(&self.inbox).renewal.take(),
            Occasion::News => None,
        };
        self.tell();
        let has_meter = !self.packages.is_empty() && self.packages.iter().all(CapTarget::is_metered);
        let (desire, power) = (self.desire, self.power);
        let facts = EngineFacts { now, occasion, desire, power, has_meter, renewal };
        let disobeyed = self.disobeyed();
        let events = self.engine.step(&self.laws, &facts);
        self.say_obedience(disobeyed);
        self.say_clocks();
        if let Some(event) = events.lease {
            self.say_lease(event);
        }
        if events.raised > 0 {
            log::warn!("somebody else has raised the frequency limit of {} policies", events.raised);
        }
        if events.unbelieved > 0 {
            log::warn!(
                "{} packages or GPUs say that their power limit holds them back, and draw less than half of it: that is not \
                 believed, and they count as not held back",
                events.unbelieved
            );
        }
        self.carry_out();
        self.publish(now);
    }

    /// Writes the known facts about each device into the engine.
    fn tell(&mut self) {
        let (workers, journal) = (&mut self.workers, &self.journal);
        for (package, target) in self.engine.packages_mut().iter_mut().zip(&mut self.packages) {
            let limit = target.limit_facts(workers);
            package.facts = target.package_facts(limit, journal, package.limiter().ordered());
        }
        for (gpu, target) in self.engine.gpus_mut().iter_mut().zip(&mut self.gpus) {
            let limit = target.limit_facts(workers);
            gpu.facts = target.gpu_facts(limit, journal, gpu.limiter().ordered());
        }
        let version = journal.version();
        for (policy, target) in self.engine.policies_mut().iter_mut().zip(&self.policies) {
            target.tell(&mut policy.facts, workers);
            if version != self.journal_seen {
                target.tell_original(&mut policy.facts, journal);
            }
        }
        let targets = self.clocks.iter().zip(&self.gpus);
        for (clock, (target, gpu)) in self.engine.clocks_mut().iter_mut().zip(targets) {
            let (Some(clock), Some(target)) = (clock, target) else { continue };
            clock.power = gpu.power;
            let Some(lock) = clock.policy_mut() else { continue };
            target.tell(&mut lock.facts, workers);
            if version != self.journal_seen {
                target.tell_original(&mut lock.facts, journal);
            }
        }
        self.journal_seen = version;
    }

    /// How many packages do not keep to their power limits.
    fn disobeyed(&self) -> usize {
        self.engine.packages().iter().filter(|package| package.disobeys()).count()
    }

    fn say_obedience(&self, before: usize) {
        let now = self.disobeyed();
        if now > before {
            log::warn!(
                "{now} packages have drawn more than their power limits, which read back as set, for three minutes: the closed \
                 loop holds them, and the limits are tried from time to time"
            );
        } else if now < before {
            log::info!("{} packages keep to their power limits again; {now} do not", before - now);
        }
    }

    /// Says of which GPUs the loop over the clock has taken charge, and which it has given back.
    fn say_clocks(&mut self) {
        self.causes.resize(self.gpus.len(), None);
        let clocks = self.engine.clocks().iter().map(|clock| clock.as_ref().and_then(GpuClock::cause));
        for ((gpu, before), cause) in self.gpus.iter().zip(&mut self.causes).zip(clocks) {
            let key = gpu.key.as_str();
            match (*before, cause) {
                (None, Some(cause)) => log::warn!(
                    "{key}: its power limit does not hold it ({}), so the closed loop holds it by a lock of its clock",
                    cause.word()
                ),
                (Some(_), None) => {
                    log::info!("{key}: its power limit holds it again, and the lock of its clock is ended")
                }
                (None, None) | (Some(_), Some(_)) => {}
            }
            *before = cause;
        }
    }

    fn say_lease(&mut self, event: LeaseEvent) {
        log::warn!("the lease of the desired state: {event:?}");
        if self.engine.lease() == Some(LeasePhase::Relaxed) && self.desire.grant.is_some() {
            log::error!("a grant is in force, so no originals are restored at the lease's end; caps stay");
        }
        self.lease_event = Some(event);
    }

    fn carry_out(&mut self) {
        self.orders.clear();
        self.orders.extend(self.engine.orders());
        for &order in &self.orders {
            match order.target {
                TargetId::Package(at) => {
                    self.counts.orders += u64::from(self.packages[at].obey(order, &self.workers));
                }
                TargetId::Gpu(at) => {
                    self.counts.orders += u64::from(self.gpus[at].obey(order, &self.workers));
                }
                TargetId::Clock(at) => {
                    let Some(target) = self.clocks.get(at).and_then(Option::as_ref) else { continue };
                    let outcome = target.obey(order, &self.workers);
                    let clock = self.engine.clocks_mut().get_mut(at).and_then(Option::as_mut);
                    if let Some(lock) = clock.and_then(GpuClock::policy_mut) {
                        lock.facts.outcome = outcome;
                    }
                }
                TargetId::Policy(at) => {
                    let outcome = self.policies[at].obey(order, &self.workers);
                    self.engine.policies_mut()[at].facts.outcome = outcome;
                }
            }
        }
    }

    fn take_inbox(&mut self) -> (bool, bool) {
        let mut inbox = lock(&self.inbox);
        let changed = std::mem::take(&mut inbox.changed);
        self.desire = inbox.desire;
        (inbox.stop, changed)
    }

    /// Puts every original back that the journal holds, and says what is left after so long: hardware that is gone, or
    /// that refuses. What is left stays in the journal, and this can be called again.
    ///
    /// # Errors
    /// When something is left.
    pub fn restore(&mut self, wait: Duration) -> Result<(), Left> {
        self.handle().desire(Desire::GONE);
        self.wait_for_backends(wait);
        let until = Deadline::after(wait);
        let pause = self.time.lasting(self.config.period).min(Duration::from_millis(200));
        let is_done = |node: &Self| node.journal.is_empty() && !node.journal.is_behind();
        while !is_done(self) && !until.is_over() {
            self.period();
            self.settle_within(pause);
            self.journal.tidy();
            if !is_done(self) {
                // Nothing rings while the hardware refuses, so this is a wait between two tries.
                self.wakeup.wait(self.wakeup.count(), Deadline::after(pause));
            }
        }
        let entries = self.journal.entries();
        if entries.is_empty() && !self.journal.is_behind() { Ok(()) } else { Err(Left { entries }) }
    }
}

/// What could not be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// What the journal still holds.
    pub entries: Vec<JournalEntry>,
}

/// How long closing a node waits for its backends: a call that hangs must not keep the process alive.
const CLOSING: Duration = Duration::from_secs(1);

impl Drop for OpenNode {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.stop();
        }
        let until = Deadline::after(CLOSING);
        loop {
            let heard = self.wakeup.count();
            if self.workers.iter().all(Worker::has_ended) || until.is_over() {
                return;
            }
            self.wakeup.wait(heard, until);
        }
    }
}
