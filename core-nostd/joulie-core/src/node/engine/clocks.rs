//! The clock of a GPU: a closed loop of its own over the lock of the clock, for a GPU whose power limit is refused, out of
//! range or not kept.
//!
//! Such a GPU is controlled as a node with a single package: the same law selects between its limit and the loop, the same
//! law judges whether the limit is kept, and `tracking` runs over a single policy, which is the lock. Only two things
//! differ. A cap below the range of the limit is asked of the device all the same: it reads back more, so that the loop
//! holds what was asked. And a percentage of an unknown maximum locks nothing.

use super::dvfs::{DvfsController, LoopLaw};
use super::policy::FrequencyPolicy;
use super::{EngineFacts, EngineLaws, Occasion, drive};
use crate::node::actuation::Actuation;
use crate::node::backend::{
    self, BackendDecision, BackendLaw, BackendPreference, Mode, Package, PackageFacts, Route,
};
use crate::node::cap::{Backend, Blocked, CapRange, CapReport, CapResult, DesiredCap, Floor, Resolution};
use crate::node::demand::{DeviceDraw, ThrottleReading};
use crate::node::energy::{Gap, MeterReading};
use crate::node::gpu_cap::{CappedGpu, GpuLimits};
use crate::node::law;
use crate::node::tracking::{DEFAULTS, Tracking};
use power_hal::ErrorKind;
use power_units::Watts;

/// The clock of one GPU, which can be locked.
#[derive(Clone, Debug)]
pub struct GpuClock {
    /// What the GPU draws; the carrier writes it before a step.
    pub power: MeterReading,
    /// Whether its power can be measured at all. Without a meter nothing is locked.
    pub has_meter: bool,
    mode: Mode,
    package: Package,
    dvfs: DvfsController<1>,
    decision: Option<BackendDecision>,
    cause: Option<LoopCause>,
}

/// Why the closed loop holds a GPU instead of its power limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoopCause {
    /// It has no power limit.
    NoLimit,
    /// The cap is outside of the range of its limit.
    OutOfRange,
    /// The limit is refused, or cannot be read back.
    Refused,
    /// The limit is read back as it was set, and more is drawn.
    NotKept,
}

impl LoopCause {
    /// Every cause.
    pub const ALL: [Self; 4] = [Self::NoLimit, Self::OutOfRange, Self::Refused, Self::NotKept];

    /// The label.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NoLimit => "no_limit",
            Self::OutOfRange => "out_of_range",
            Self::Refused => "refused",
            Self::NotKept => "not_kept",
        }
    }
}

impl GpuClock {
    /// The clock of a GPU that was not known before. A lock of ours from before a restart is adopted.
    #[must_use]
    pub fn listed(policy: FrequencyPolicy) -> Self {
        let mut dvfs = DvfsController::new();
        dvfs.list(&[policy]);
        Self {
            power: MeterReading::Missing(Gap::Unread),
            has_meter: false,
            mode: Mode::start(Route::Host, policy.facts.touched),
            package: Package::untouched(PackageFacts::UNKNOWN),
            dvfs,
            decision: None,
            cause: None,
        }
    }

    /// Takes the description of the same clock from a new list of the hardware. An order that was on its way is lost.
    pub fn relist(&mut self, policy: FrequencyPolicy) {
        self.dvfs.list(&[policy]);
    }

    /// The lock, as the engine knows it.
    #[must_use]
    pub fn policy(&self) -> Option<&FrequencyPolicy> {
        self.dvfs.policies().first()
    }

    /// The lock, whose facts the carrier writes before a step.
    pub fn policy_mut(&mut self) -> Option<&mut FrequencyPolicy> {
        self.dvfs.policies_mut().first_mut()
    }

    /// Why the closed loop holds the GPU, while it does.
    #[must_use]
    pub const fn cause(&self) -> Option<LoopCause> {
        self.cause
    }

    /// The last decision of the closed loop, while it runs.
    #[must_use]
    pub const fn law(&self) -> Option<&law::Decision> {
        self.dvfs.decision()
    }

    /// Whether more than the limit was drawn for so long that the limit does not count.
    #[must_use]
    pub const fn disobeys(&self) -> bool {
        self.package.disobeys()
    }

    /// Whether nothing of ours is in force.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.mode.throttle() == Actuation::Free
    }

    /// The cap that the loop keeps to, as of the last step; `None` while it does not see what is drawn, or cannot keep to it.
    #[must_use]
    pub fn cap(&self) -> Option<Watts> {
        let status = self.decision.as_ref()?.status;
        match (status.backend, status.report) {
            (Backend::Dvfs, CapReport::Cap(CapResult::Applied { effective })) => Some(effective),
            (_, _) => None,
        }
    }

    /// The cap that the loop holds, while no more is drawn.
    #[must_use]
    pub fn held(&self) -> Option<Watts> {
        self.cap().filter(|&cap| matches!(self.power, MeterReading::Fresh { watts, .. } if watts <= cap))
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.dvfs.is_busy()
    }

    pub(super) const fn moved(&self) -> u64 {
        self.dvfs.moved()
    }

    /// Takes in what the GPU drew. Returns what it says of its demand: under a lock no power limit throttles it, so that
    /// what it draws is compared with its cap.
    pub(super) fn draws(&mut self, draw: DeviceDraw) -> DeviceDraw {
        self.package.draws(draw);
        if self.cause.is_some() { DeviceDraw { throttled: ThrottleReading::Lacking, ..draw } } else { draw }
    }

    /// One step for the GPU with this clock: its limit and its lock. Returns how many limits somebody else has changed.
    #[inline(never)]
    pub(super) fn step(
        &mut self,
        laws: &EngineLaws,
        gpu: &mut CappedGpu,
        desired: DesiredCap,
        facts: &EngineFacts,
    ) -> u32 {
        self.dvfs.forget_orders();
        let outcome = self.dvfs.learn(facts.now);
        // What is locked must be ended also where nothing is measured any more.
        let usable = self.has_meter || !self.is_free();
        let desired = self.take(gpu, desired, usable);
        let law = BackendLaw {
            limits: laws.gpu.limits,
            throttle: laws.cpu.throttle,
            settle: laws.cpu.settle,
            floor: laws.gpu.floor,
            preference: BackendPreference::LimitFirst,
        };
        let node = backend::Facts {
            now: facts.now,
            desired,
            throttle: usable.then_some(outcome),
            has_meter: true,
            beyond: Watts::ZERO,
        };
        let decision = law.step(&mut self.mode, core::slice::from_mut(&mut self.package), &node);
        gpu.obeys(&self.package);
        self.run(laws, facts, &decision);
        let known = desired != DesiredCap::Unknown || gpu.most().is_some();
        if facts.occasion == Occasion::Period && known && self.is_free() {
            self.dvfs.free_the_rest();
        }
        self.decision = Some(decision);
        self.cause = if self.mode.throttle().stands() { Some(self.why(gpu)) } else { None };
        decision.moved
    }

    /// Takes over the facts about the GPU. Returns what is desired of it.
    fn take(&mut self, gpu: &CappedGpu, desired: DesiredCap, usable: bool) -> DesiredCap {
        let (range, has_limit) = range_of(gpu);
        let range = if usable { range.without_min() } else { range };
        let (limit, in_force) = (gpu.facts.limit, gpu.facts.in_force);
        self.package.facts = PackageFacts { range, has_limit, limit, in_force };
        self.package.follows(gpu);
        match (gpu.facts.limits, desired) {
            (GpuLimits::NotATarget, _) => DesiredCap::Gone,
            (_, DesiredCap::Cap(_)) if is_unresolved(gpu, desired) => DesiredCap::Unknown,
            (_, DesiredCap::Cap(_) | DesiredCap::Unknown | DesiredCap::Gone) => desired,
        }
    }

    #[inline(never)]
    fn run(&mut self, laws: &EngineLaws, facts: &EngineFacts, decision: &BackendDecision) {
        let facts = EngineFacts { power: self.power, ..*facts };
        // `classic` limits a share of the policies, and here there is only one.
        let law = match laws.dvfs {
            LoopLaw::Tracking(_) => Some(laws.dvfs),
            LoopLaw::Classic(_) => Tracking::new(DEFAULTS).ok().map(LoopLaw::Tracking),
        };
        if let Some(law) = law {
            // That somebody else has ended the lock is counted in `moved`.
            let _raised = drive(&mut self.dvfs, &law, &facts, decision);
        }
    }

    fn why(&self, gpu: &CappedGpu) -> LoopCause {
        let (range, has_limit) = range_of(gpu);
        let below =
            |least: Watts| self.decision.as_ref().and_then(|it| it.node_cap).is_some_and(|cap| cap < least);
        let refused =
            matches!(gpu.limiter().actuation(), Actuation::Refused { kind: ErrorKind::OutOfRange, .. });
        if !has_limit {
            LoopCause::NoLimit
        } else if self.disobeys() {
            LoopCause::NotKept
        } else if refused || range.min().is_some_and(below) {
            LoopCause::OutOfRange
        } else {
            LoopCause::Refused
        }
    }

    /// The result of what is desired of the GPU.
    pub(super) fn report(&self, gpu: &CappedGpu, desired: DesiredCap) -> CapReport {
        if gpu.facts.limits != GpuLimits::NotATarget && is_unresolved(gpu, desired) {
            return CapReport::Cap(CapResult::Blocked(Blocked::NoRange));
        }
        let Some(decision) = self.decision.as_ref() else { return CapReport::Pending };
        let report = decision.status.report;
        let (range, _) = range_of(gpu);
        match (report, decision.node_cap, range.min(), gpu.facts.in_force) {
            // The loop cannot hold what is below the range of the limit, and the limit is as low as it goes.
            (
                CapReport::Cap(CapResult::Failed(_) | CapResult::Blocked(Blocked::NoBackend)),
                Some(requested),
                Some(min),
                Some(effective),
            ) if requested < min && effective <= min => {
                CapReport::Cap(CapResult::Clamped { requested, effective })
            }
            (_, _, _, _) => report,
        }
    }
}

/// The range of a GPU's limit, and whether it has one.
const fn range_of(gpu: &CappedGpu) -> (CapRange, bool) {
    match gpu.facts.limits {
        GpuLimits::Range(range) => (range, true),
        GpuLimits::NotATarget | GpuLimits::NoLimit => (CapRange::UNKNOWN, false),
    }
}

/// Whether this is a percentage of an unknown maximum, and no grant says more.
fn is_unresolved(gpu: &CappedGpu, desired: DesiredCap) -> bool {
    let DesiredCap::Cap(intent) = desired else { return false };
    let (range, _) = range_of(gpu);
    gpu.most().is_none() && matches!(intent.resolve(range, Floor::NONE), Resolution::Percent(_))
}
