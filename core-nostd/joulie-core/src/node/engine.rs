//! The control loop of a node without I/O: facts in, orders out.
//!
//! ```text
//!             facts of each package, GPU and policy (in place), and of the node
//!  carrier ─────────────────────────────────────────────────────────▶ Engine::step
//!     ▲                                                                    │
//!     └──────────── orders, each with a ticket ◀───────────────────────────┘
//! ```
//!
//! A *carrier* reads the devices, writes the readings into [`packages_mut`](Engine::packages_mut),
//! [`gpus_mut`](Engine::gpus_mut), [`policies_mut`](Engine::policies_mut) and [`drew`](Engine::drew), steps, and carries out the
//! [`orders`](Engine::orders). The outcome of an order comes back as a fact with the ticket of that order; without an
//! outcome the order times out by its law. There are two carriers: threads with HALs on a machine, and tasks over HTTP
//! for a pool of nodes.
//!
//! A step is taken on one of two [`Occasion`]s: once a period with new readings, and whenever an outcome arrives. The
//! closed loop steps once a period, but takes its first step as soon as it is needed.
//!
//! The engine never allocates: it holds a fixed number of packages, GPUs and policies. A device that does not fit is
//! not controlled, is reported by [`beyond`](Engine::beyond), and counts with the most that it draws. Keys, the journal
//! and discovery belong to the carrier.

mod clocks;
mod demand;
mod dvfs;
mod facts;
mod policy;
mod share;

pub use clocks::{GpuClock, LoopCause};
pub use dvfs::{DvfsController, LoopLaw};
pub use facts::{
    Beyond, Desire, EngineEvents, EngineFacts, EngineLaws, EngineOrder, Instruction, LeaseTerms, NodeAccess,
    NodeGrant, NodeParts, Occasion, TargetId, Wiring,
};
pub use policy::{FrequencyPolicy, FrequencyPolicyFacts, PolicyLimit, PolicyOrder, PolicyOutcome, Scale};

use super::actuation::Actuation;
use super::backend::{self, BackendDecision, Mode, Package, Route, ThrottleOrder};
use super::cap::DesiredCap;
use super::demand::{DeviceDemand, NodeDemand};
use super::energy::MeterReading;
use super::gpu_cap::{CappedGpu, GpuDecision, GpuLimits};
use super::law;
use super::lease::{CapsSource, LeaseDecision, LeaseFacts, LeaseMemory, LeasePhase};
use super::limiter::{LimitReading, Limiter};
use heapless::Vec;
use power_units::{Stamp, Watts};
use share::Divided;

/// The engine of a node, for at most `P` packages, `G` GPUs and `D` frequency policies. It keeps the demand of `A`
/// limits: those of each package and each GPU, or where one limit serves all of a kind, of these two. The clocks of `L`
/// GPUs can be locked.
#[derive(Clone, Debug)]
pub struct Engine<const P: usize, const G: usize, const D: usize, const A: usize = 32, const L: usize = 0> {
    wiring: Wiring,
    route: Route,
    packages: Vec<Package, P>,
    gpus: Vec<CappedGpu, G>,
    /// The clock of each GPU, in the order of the GPUs.
    clocks: Vec<Option<GpuClock>, L>,
    beyond: Beyond,
    dvfs: DvfsController<D>,
    mode: Mode,
    lease: Option<(LeaseTerms, LeaseMemory)>,
    cpu: Option<BackendDecision>,
    gpu: Option<GpuDecision>,
    moved: u64,
    /// The demand at each limit, see [`drew`](Self::drew), and that of the node.
    demands: [DeviceDemand; A],
    demand: NodeDemand,
    /// How the grant was divided last.
    divided: Option<Divided>,
}

/// The engine of a machine: packages or dies, GPUs, frequency policies.
pub type MachineEngine = Engine<16, 16, 1024, 32, 16>;

/// The engine of one node of a pool, of which there may be thousands. Its only policy is the throttle of the whole
/// node, and the clocks of its GPUs cannot be locked.
pub type PoolEngine = Engine<8, 16, 1, 2>;

// A history of twenty samples takes some 700 bytes; there are three of them.
const _: () = assert!(size_of::<PoolEngine>() <= 11 << 10);

impl<const P: usize, const G: usize, const D: usize, const A: usize, const L: usize> Engine<P, G, D, A, L> {
    /// An engine without any device. The lease runs from `now`.
    #[must_use]
    pub const fn start(route: Route, wiring: Wiring, lease: Option<LeaseTerms>, now: Stamp) -> Self {
        let lease = match lease {
            Some(terms) => Some((terms, LeaseMemory::start(now))),
            None => None,
        };
        Self {
            wiring,
            route,
            packages: Vec::new(),
            gpus: Vec::new(),
            clocks: Vec::new(),
            beyond: Beyond::NOTHING,
            dvfs: DvfsController::new(),
            mode: Mode::start(route, false),
            lease,
            cpu: None,
            gpu: None,
            moved: 0,
            demands: [DeviceDemand::UNKNOWN; A],
            demand: NodeDemand::UNKNOWN,
            divided: None,
        }
    }

    /// Sets the list of packages. The carrier passes each package with the state that it had before. What they want to
    /// draw is learned anew.
    pub fn list_packages(&mut self, packages: &[Package]) {
        self.forget_demand();
        self.packages.clear();
        (self.beyond.packages, self.beyond.package_watts) = (0, Watts::ZERO);
        for package in packages {
            if self.packages.push(*package).is_err() {
                self.beyond.packages = self.beyond.packages.saturating_add(1);
                let most = package.facts.range.max().unwrap_or(Watts::ZERO);
                self.beyond.package_watts += most;
            }
        }
    }

    /// Sets the list of GPUs, as [`list_packages`](Self::list_packages) does. Their clocks are not known any more.
    pub fn list_gpus(&mut self, gpus: &[CappedGpu]) {
        self.forget_demand();
        self.clocks.clear();
        self.gpus.clear();
        (self.beyond.gpus, self.beyond.gpu_watts) = (0, Watts::ZERO);
        for gpu in gpus {
            if self.gpus.push(*gpu).is_err() {
                self.beyond.gpus = self.beyond.gpus.saturating_add(1);
                let most = match gpu.facts.limits {
                    GpuLimits::Range(range) => range.max(),
                    GpuLimits::NotATarget | GpuLimits::NoLimit => None,
                };
                self.beyond.gpu_watts += most.unwrap_or(Watts::ZERO);
            }
        }
    }

    /// Sets the clocks of the GPUs in the order of the GPUs; `None` for one whose clock cannot be locked. The carrier passes
    /// each clock with the state that it had before. The clock of a GPU that does not fit is not controlled.
    pub fn list_clocks(&mut self, clocks: &[Option<GpuClock>]) {
        self.clocks.clear();
        for clock in clocks.iter().take(self.gpus.len()) {
            if self.clocks.push(clock.clone()).is_err() {
                return;
            }
        }
    }

    /// The clocks of the GPUs, whose facts the carrier writes before a step.
    pub fn clocks_mut(&mut self) -> &mut [Option<GpuClock>] {
        &mut self.clocks
    }

    /// The clocks of the GPUs.
    #[must_use]
    pub fn clocks(&self) -> &[Option<GpuClock>] {
        &self.clocks
    }

    /// The clock of a GPU.
    pub(super) fn clock(&self, at: usize) -> Option<&GpuClock> {
        self.clocks.get(at)?.as_ref()
    }

    /// Sets the list of frequency policies. An order that was on its way to them is lost. If the first list contains
    /// policies that were limited by us before a restart, their throttle is adopted.
    pub fn list_policies(&mut self, policies: &[FrequencyPolicy]) {
        let existed = self.dvfs.exists();
        self.beyond.policies = self.dvfs.list(policies);
        if !existed && policies.iter().any(|policy| policy.facts.touched) {
            self.mode = Mode::start(self.route, true);
        }
    }

    /// Sets the frequencies that every policy can be limited to, kHz, ascending. If the table is empty they are the
    /// multiples of the policies' step.
    pub fn set_frequency_table(&mut self, table: &[u32]) {
        self.dvfs.set_table(table);
    }

    /// The packages, whose facts the carrier writes before a step.
    pub fn packages_mut(&mut self) -> &mut [Package] {
        &mut self.packages
    }

    /// The GPUs, whose facts the carrier writes before a step.
    pub fn gpus_mut(&mut self) -> &mut [CappedGpu] {
        &mut self.gpus
    }

    /// The policies, whose facts the carrier writes before a step.
    pub fn policies_mut(&mut self) -> &mut [FrequencyPolicy] {
        self.dvfs.policies_mut()
    }

    /// The packages.
    #[must_use]
    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// The GPUs.
    #[must_use]
    pub fn gpus(&self) -> &[CappedGpu] {
        &self.gpus
    }

    /// The policies.
    #[must_use]
    pub fn policies(&self) -> &[FrequencyPolicy] {
        self.dvfs.policies()
    }

    /// The devices that do not fit in here and are not controlled.
    #[must_use]
    pub const fn beyond(&self) -> Beyond {
        self.beyond
    }

    /// The result of the packages' desired state in the last step.
    #[must_use]
    pub const fn cpu(&self) -> Option<&BackendDecision> {
        self.cpu.as_ref()
    }

    /// The result of the GPUs' desired state in the last step.
    #[must_use]
    pub const fn gpu(&self) -> Option<GpuDecision> {
        self.gpu
    }

    /// The last decision of the closed loop, while it runs.
    #[must_use]
    pub const fn law(&self) -> Option<&law::Decision> {
        self.dvfs.decision()
    }

    /// How often the closed loop lowered the power, and how often it raised it.
    #[must_use]
    pub const fn actions(&self) -> (u64, u64) {
        self.dvfs.actions()
    }

    /// The phase of the lease.
    #[must_use]
    pub fn lease(&self) -> Option<LeasePhase> {
        self.lease.map(|(_, lease)| lease.phase())
    }

    /// How often somebody else has changed a limit.
    #[must_use]
    pub fn moved(&self) -> u64 {
        let clocks = self.clocks.iter().flatten().map(GpuClock::moved);
        clocks.fold(self.moved.saturating_add(self.dvfs.moved()), u64::saturating_add)
    }

    /// Whether an order is on its way. A device that is gone does not count, because only its own law waits for it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let packages = self.packages.iter().map(|package| (package.facts.limit.seen, package.limiter()));
        let gpus = self.gpus.iter().map(|gpu| (gpu.facts.limit.seen, gpu.limiter()));
        self.dvfs.is_busy()
            || self.clocks.iter().flatten().any(GpuClock::is_busy)
            || packages.chain(gpus).any(|(seen, limiter)| seen != LimitReading::Gone && waits(limiter))
    }

    /// One step: takes in the facts, and decides. The orders remain in the devices until the next step.
    pub fn step(&mut self, laws: &EngineLaws, facts: &EngineFacts) -> EngineEvents {
        self.dvfs.forget_orders();
        let lease = self.step_lease(facts);
        let desired = self.desired(laws.access, facts.desire, lease.map(|lease| lease.caps));
        let throttle = self.dvfs.learn(facts.now);
        let unbelieved = self.share(laws, desired, facts);
        let node = backend::Facts {
            now: facts.now,
            desired: desired.cpu,
            throttle: self.dvfs.exists().then_some(throttle),
            has_meter: facts.has_meter,
            beyond: self.beyond.package_watts,
        };
        let decision = laws.cpu.step(&mut self.mode, &mut self.packages, &node);
        let gpu = self.control_gpus(laws, desired.gpu, facts);
        self.packages.iter_mut().for_each(Package::note);
        self.gpus.iter_mut().for_each(CappedGpu::note);
        let raised = drive(&mut self.dvfs, &laws.dvfs, facts, &decision);
        let known = desired.cpu != DesiredCap::Unknown || desired.grant.is_some();
        if facts.occasion == Occasion::Period && known && self.mode.throttle() == Actuation::Free {
            self.dvfs.free_the_rest();
        }
        let moved = match self.wiring {
            Wiring::EachItsOwn => decision.moved,
            Wiring::OneForAll => decision.moved.min(1),
        };
        let moved_gpus = match self.wiring {
            Wiring::EachItsOwn => gpu.moved,
            Wiring::OneForAll => gpu.moved.min(1),
        };
        self.moved = self.moved.saturating_add(u64::from(moved)).saturating_add(u64::from(moved_gpus));
        (self.cpu, self.gpu) = (Some(decision), Some(gpu));
        EngineEvents { lease: lease.and_then(|lease| lease.event), raised, unbelieved }
    }

    /// A function of its own, because the stack of a step is bounded.
    #[inline(never)]
    fn control_gpus(&mut self, laws: &EngineLaws, desired: DesiredCap, facts: &EngineFacts) -> GpuDecision {
        let (gpus, clocks) = (&mut self.gpus, &mut self.clocks);
        let mut moved = 0_u32;
        for (gpu, clock) in gpus.iter_mut().zip(clocks.iter_mut()) {
            if let Some(clock) = clock {
                moved = moved.saturating_add(clock.step(laws, gpu, desired, facts));
            }
        }
        let clocked = |at: usize, gpu: &CappedGpu| {
            let clock = clocks.get(at)?.as_ref()?;
            Some(clock.report(gpu, desired))
        };
        let decision = laws.gpu.step_beside(gpus, facts.now, desired, clocked);
        GpuDecision { moved: decision.moved.saturating_add(moved), ..decision }
    }

    /// The orders to carry out now. Where one limit serves all devices, there is one order, for the first device.
    pub fn orders(&self) -> impl Iterator<Item = EngineOrder> + '_ {
        let all = match self.wiring {
            Wiring::EachItsOwn => usize::MAX,
            Wiring::OneForAll => 1,
        };
        let packages = self.packages.iter().map(|package| (package.order(), package.limiter().ticket()));
        let packages = (0..all).zip(packages);
        let gpus = (0..all).zip(self.gpus.iter().map(|gpu| (gpu.order(), gpu.limiter().ticket())));
        let policies = (0..usize::MAX).zip(self.dvfs.policies());
        let clocks = (0..usize::MAX).zip(&self.clocks);
        let clocks = clocks.filter_map(|(at, clock)| Some((at, clock.as_ref()?.policy()?)));
        packages
            .filter_map(|(at, (order, ticket))| EngineOrder::of_limit(TargetId::Package(at), order, ticket))
            .chain(policies.filter_map(|(at, policy)| EngineOrder::of_policy(TargetId::Policy(at), policy)))
            .chain(clocks.filter_map(|(at, policy)| EngineOrder::of_policy(TargetId::Clock(at), policy)))
            .chain(
                gpus.filter_map(|(at, (order, ticket))| {
                    EngineOrder::of_limit(TargetId::Gpu(at), order, ticket)
                }),
            )
    }

    fn step_lease(&mut self, facts: &EngineFacts) -> Option<LeaseDecision> {
        let (terms, lease) = self.lease.as_mut()?;
        Some(terms.law.step(lease, &LeaseFacts { now: facts.now, renewal: facts.renewal }))
    }

    /// What is desired under the lease. For a node that is only observed the desired state is unknown. While the node
    /// has a grant, the end of the lease does not restore the originals: the budget relies on the limits in force.
    fn desired(&self, access: NodeAccess, desire: Desire, caps: Option<CapsSource>) -> Desire {
        let leased = caps.zip(self.lease.as_ref().map(|(terms, _)| terms));
        match (access, leased) {
            (NodeAccess::Look, _) => Desire::UNKNOWN,
            (NodeAccess::Control, None) => desire,
            (NodeAccess::Control, Some((CapsSource::Originals, _))) if desire.grant.is_some() => desire,
            (NodeAccess::Control, Some((caps, terms))) => Desire {
                cpu: caps.desired(desire.cpu, terms.safe_cpu),
                gpu: caps.desired(desire.gpu, terms.safe_gpu),
                ..desire
            },
        }
    }
}

/// Passes the order for the throttle to the controller of the policies. Returns how many policies somebody else has
/// raised, when that is first seen.
fn drive<const D: usize>(
    dvfs: &mut DvfsController<D>,
    law: &LoopLaw,
    facts: &EngineFacts,
    decision: &BackendDecision,
) -> u32 {
    let raised = match facts.occasion {
        Occasion::Period => dvfs.answer_others(),
        Occasion::News => 0,
    };
    match decision.throttle {
        ThrottleOrder::Leave => {}
        ThrottleOrder::RunLoop { cap } => {
            // Refused limits hold nothing: a loop with a fresh reading starts at once, not a period later.
            let begins = !dvfs.is_running() && matches!(facts.power, MeterReading::Fresh { .. });
            if facts.occasion == Occasion::Period || begins {
                dvfs.step(law, facts, cap, decision.ticket);
            }
        }
        ThrottleOrder::Set(throttle) => dvfs.set((decision.ticket, throttle)),
        ThrottleOrder::Release => dvfs.release(decision.ticket),
    }
    raised
}

fn waits(limiter: &Limiter) -> bool {
    match limiter.actuation() {
        Actuation::Pending { .. } | Actuation::Releasing { .. } => true,
        Actuation::Free
        | Actuation::Adopted
        | Actuation::Held { .. }
        | Actuation::Refused { .. }
        | Actuation::Stuck { .. } => false,
    }
}

#[cfg(test)]
mod tests;
