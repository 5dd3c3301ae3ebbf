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

pub use handle::{Desire, Handle};
pub use open::OpenError;
pub use restore::Left;

use crate::curb::{Curb, Sight};
use crate::report::{BackendReport, Counts, DeviceReport, PolicyReport, Report};
use crate::time::Deadline;
use crate::unit::{self, Unit};
use crate::worker::{Bell, Worker};
use crate::{Access, Config, Journal, Lock, Time};
use handle::Inbox;
use joulie_core::node::backend::{Decision, Facts, Mode, Package, PackageFacts, ThrottleOrder};
use joulie_core::node::cap::{CapIntent, CapRange, Desired};
use joulie_core::node::energy::{self, Reading};
use joulie_core::node::gpu_cap::{Gpu, GpuDecision, GpuFacts, GpuLimits};
use joulie_core::node::lease::{Event, Lease, LeaseFacts};
use joulie_core::node::lever::Lever;
use joulie_core::node::limiter::LimitFacts;
use power_hal::Clock;
use power_units::{Role, Stamp, Watts};
use std::sync::{Arc, Mutex, PoisonError};
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

    /// Makes the units and policies of what the backends list now; what was known of the same hardware goes on.
    fn take_stock(&mut self) {
        let (packages, gpus) = unit::units(&self.workers, self.config.period);
        (self.package_units, self.packages) = merge(
            packages,
            std::mem::take(&mut self.package_units),
            &std::mem::take(&mut self.packages),
            |unit| {
                let facts =
                    PackageFacts { range: CapRange::UNKNOWN, has_limit: false, limit: LimitFacts::UNKNOWN };
                if unit.is_touched(&self.journal) {
                    Package::adopted(facts)
                } else {
                    Package::untouched(facts)
                }
            },
            |package| package.limiter().lever() == Lever::Free,
        );
        (self.gpu_units, self.gpus) = merge(
            gpus,
            std::mem::take(&mut self.gpu_units),
            &std::mem::take(&mut self.gpus),
            |unit| {
                let limits = GpuLimits::new(None, None);
                let facts = GpuFacts { limits, limit: LimitFacts::UNKNOWN };
                if unit.is_touched(&self.journal) { Gpu::adopted(facts) } else { Gpu::untouched(facts) }
            },
            |gpu| gpu.limiter().lever() == Lever::Free,
        );
        let existed = self.curb.exists();
        let mut curb = Curb::of(&self.workers, &self.curb, self.config.frequency_floor);
        curb.goes_on(std::mem::take(&mut self.curb), &self.workers);
        self.curb = curb;
        if !existed && self.curb.is_touched(&self.journal) {
            self.mode = Mode::start(joulie_core::node::backend::Route::Host, true);
        }
    }

    fn step(&mut self, occasion: Occasion) {
        let now = self.time.now();
        let caps = self.step_lease(now, occasion);
        for (package, unit) in self.packages.iter_mut().zip(&mut self.package_units) {
            let limit = unit.limit_facts(&mut self.workers);
            package.facts =
                PackageFacts { range: range_of(unit, &self.journal), has_limit: unit.has_limit, limit };
        }
        let throttle = self.curb.learn(&mut self.workers, now);
        let metered = !self.package_units.is_empty() && self.package_units.iter().all(Unit::is_metered);
        let facts = Facts {
            now,
            desired: self
                .desired(caps.map(|(caps, safe)| caps.desired(self.desire.cpu, safe.0)), self.desire.cpu),
            throttle: self.curb.exists().then_some(throttle),
            has_meter: metered,
        };
        let decision = self.config.cpu.step(&mut self.mode, &mut self.packages, &facts);
        for (gpu, unit) in self.gpus.iter_mut().zip(&mut self.gpu_units) {
            let limit = unit.limit_facts(&mut self.workers);
            gpu.facts = GpuFacts { limits: gpu_limits(unit, &self.journal), limit };
        }
        let desired =
            self.desired(caps.map(|(caps, safe)| caps.desired(self.desire.gpu, safe.1)), self.desire.gpu);
        let gpu_decision = self.config.gpu.step(&mut self.gpus, now, desired);
        self.act(now, occasion, &decision);
        let lifted = self.mode.throttle() == Lever::Free && facts.desired != Desired::Unknown;
        if occasion == Occasion::Period && lifted {
            self.curb.free_the_rest(&self.workers, &self.journal);
        }
        self.counts.moved += u64::from(decision.moved) + u64::from(gpu_decision.moved);
        self.cpu_decision = Some(decision);
        self.gpu_decision = Some(gpu_decision);
        self.publish(now);
    }

    /// A node that is only looked at desires nothing that anybody knows.
    fn desired(&self, leased: Option<Desired>, plain: Desired) -> Desired {
        match self.config.access {
            Access::Look => Desired::Unknown,
            Access::Control => leased.unwrap_or(plain),
        }
    }

    fn step_lease(
        &mut self,
        now: Stamp,
        occasion: Occasion,
    ) -> Option<(joulie_core::node::lease::Caps, (CapIntent, CapIntent))> {
        let (terms, lease) = (self.config.lease.as_ref()?, self.lease.as_mut()?);
        let renewal = match occasion {
            Occasion::Period => lock(&self.inbox).renewal.take(),
            Occasion::News => None,
        };
        let decision = terms.law.step(lease, &LeaseFacts { now, renewal });
        if let Some(event) = decision.event {
            log::warn!("the lease of the desired state: {event:?}; caps: {:?}", decision.caps);
            self.lease_event = Some(event);
        }
        Some((decision.caps, (terms.safe_cpu, terms.safe_gpu)))
    }

    fn act(&mut self, now: Stamp, occasion: Occasion, decision: &Decision) {
        let mut orders = 0;
        for (package, unit) in self.packages.iter().zip(&mut self.package_units) {
            orders += u64::from(unit.obey(package.order(), &self.workers));
        }
        for (gpu, unit) in self.gpus.iter().zip(&mut self.gpu_units) {
            orders += u64::from(unit.obey(gpu.order(), &self.workers));
        }
        let (workers, journal) = (&self.workers, &self.journal);
        if occasion == Occasion::Period {
            self.curb.answer_others(workers, journal);
        }
        match decision.throttle {
            ThrottleOrder::Leave => {}
            ThrottleOrder::RunLoop { cap } => {
                // Limits that were refused just now hold nothing: a loop that sees begins at once, and not a period later.
                let begins = !self.curb.is_running() && matches!(self.power, Reading::Fresh { .. });
                if occasion == Occasion::Period || begins {
                    let sight = Sight { now, cap, power: self.power };
                    self.curb.step(&self.config.law, &sight, workers, journal);
                }
            }
            ThrottleOrder::Set(throttle) => self.curb.set(throttle, workers, journal),
            ThrottleOrder::Release => self.curb.release(workers, journal),
        }
        self.counts.orders += orders;
    }

    fn take_inbox(&mut self) -> (bool, bool) {
        let mut inbox = lock(&self.inbox);
        let changed = std::mem::take(&mut inbox.changed);
        self.desire = inbox.desire;
        (inbox.stop, changed)
    }

    fn publish(&mut self, now: Stamp) {
        let report = &mut self.report;
        report.at = Some(now);
        report.desire = self.desire;
        report.power = Some(self.power);
        report.cpu = self.cpu_decision;
        report.gpu = self.gpu_decision;
        report.law = self.curb.decision;
        report.lease = self.lease.map(|lease| (lease.phase(), self.lease_event));
        report.originals = self.journal.len();
        report.journal_behind = self.journal.is_behind();
        report.counts = self.counts;
        report.counts.moved += self.curb.moved;
        refill(&mut report.packages, self.package_units.iter().map(|unit| device(unit, &self.journal)));
        refill(&mut report.gpus, self.gpu_units.iter().map(|unit| device(unit, &self.journal)));
        let workers = &self.workers;
        refill(
            &mut report.policies,
            self.curb.policies.iter().map(|policy| PolicyReport {
                key: policy.key,
                min: policy.floor,
                max: policy.most,
                limit: policy.in_force(workers),
                asked: policy.asked,
                running: policy.running(workers),
            }),
        );
        let stuck = |worker: &Worker| {
            let inside = worker.view.inside?;
            now.since(inside).filter(|&long| long > self.config.period).map(|_| inside)
        };
        refill(
            &mut report.backends,
            workers.iter().map(|worker| BackendReport {
                kind: worker.kind,
                standing: worker.view.standing.clone(),
                domains: worker.view.domains.len(),
                stuck_since: stuck(worker),
                complaints: worker.view.complaints.clone(),
                last_trouble: worker.view.last_trouble.clone(),
                troubles: worker.view.troubles,
            }),
        );
        lock(&self.published).copy(report);
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refill<T>(list: &mut Vec<T>, with: impl Iterator<Item = T>) {
    list.clear();
    list.extend(with);
}

fn device(unit: &Unit, journal: &Journal) -> DeviceReport {
    DeviceReport {
        key: unit.key,
        backend: unit.backend,
        described: unit.described,
        power: unit.power,
        energy: unit.energy,
        limit: unit.in_force,
        owners: unit.owners_limit(journal),
        ours: unit.is_touched(journal),
    }
}

/// The new units with what the law remembers of them. A unit that is not listed any more stays as long as the law holds
/// something on it: what was capped must not be forgotten because its driver went away.
fn merge<L: Copy>(
    new: Vec<Unit>,
    old: Vec<Unit>,
    memories: &[L],
    begin: impl Fn(&Unit) -> L,
    is_free: impl Fn(&L) -> bool,
) -> (Vec<Unit>, Vec<L>) {
    let mut known: Vec<(Unit, L)> = old.into_iter().zip(memories.iter().copied()).collect();
    let mut units = Vec::with_capacity(new.len());
    let mut laws = Vec::with_capacity(new.len());
    for mut unit in new {
        match known.iter().position(|(before, _)| before.key == unit.key) {
            Some(at) => {
                let (before, law) = known.swap_remove(at);
                // What is free has no memory worth keeping, and may be ours by what the journal says of it now: until
                // its backend was listed nobody could look that up. Nor does the law of one backend's limit hold for
                // another backend's.
                let same = unit.is_bare() || before.is_bare() || before.backend == unit.backend;
                let anew = is_free(&law) || !same;
                // That a package is there, and no more, is less than what was known of it: it stays one with a limit
                // and a meter, which are away.
                if unit.is_bare() && !before.is_bare() {
                    unit = before.gone();
                } else {
                    unit.goes_on(&before);
                }
                laws.push(if anew { begin(&unit) } else { law });
                units.push(unit);
            }
            None => {
                laws.push(begin(&unit));
                units.push(unit);
            }
        }
    }
    for (unit, law) in known.into_iter().filter(|(_, law)| !is_free(law)) {
        log::warn!("{} is not there any more, and a cap of ours was on it", unit.key.as_str());
        let unit = unit.gone();
        // Of a socket whose limit is away its meter in another backend is left: that is the same package, and counted
        // beside it would double the node's cap.
        let same = |new: &Unit| !new.has_limit && new.package_number() == unit.package_number();
        match units.iter().position(|new| unit.package_number().is_some() && same(new)) {
            Some(at) => {
                units[at] = unit.metered_by(&units[at]);
                laws[at] = law;
            }
            None => {
                units.push(unit);
                laws.push(law);
            }
        }
    }
    (units, laws)
}

fn range_of(unit: &Unit, journal: &Journal) -> CapRange {
    let (min, max) = watts_of(unit);
    let range = CapRange::new(min, max, None).below(unit.owners_limit(journal));
    range.no_more_than(unit.stands_unknown(journal))
}

fn gpu_limits(unit: &Unit, journal: &Journal) -> GpuLimits {
    if !unit.has_limit {
        return GpuLimits::NotATarget;
    }
    let (min, max) = watts_of(unit);
    let limits = GpuLimits::new(min, max).below(unit.owners_limit(journal));
    limits.no_more_than(unit.stands_unknown(journal))
}

fn watts_of(unit: &Unit) -> (Option<Watts>, Option<Watts>) {
    let limit = unit.described.as_ref().and_then(power_hal::Domain::power);
    // The lowest limit rounds up and the highest down, so that both are inside the range.
    let min = limit.and_then(|limit| limit.min()).map(|min| min.to_watts(Role::Demand));
    let max = limit.and_then(|limit| limit.max()).map(|max| max.to_watts(Role::Limit));
    (min, max)
}
