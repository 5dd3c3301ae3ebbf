//! The caps of a node's GPUs: each one is resolved against its own limits, set, read back, watched, and released.
//!
//! A percentage refers to each GPU's **own** maximum, never to the smallest in the node. Watts are clamped to the
//! range of the GPU, and the result reports that. Where its limits are unknown, watts are written as they are and the
//! read-back shows the result; a percentage is blocked, since a GPU has no throttle to fall back to. A GPU without a
//! maximum (the second die of a module) cannot be capped at all.
//!
//! When one GPU refuses, the others keep their caps: to release them would raise their power. The refused order is
//! repeated, and the node's result is the worst of all GPUs.

use super::actuation::{Actuation, Want};
use super::backend::Package;
use super::cap::{
    Blocked, CAP_LEAST, CapIntent, CapRange, CapReport, CapResult, DesiredCap, Floor, Resolution, ResolvedCap,
};
use super::limiter::{LimitFacts, LimitOrder, LimitOutcome, Limiter, LimiterLaw};
use power_units::{Stamp, Watts};

/// The tuning for all GPUs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLaw {
    /// How a limit is set, watched and retried.
    pub limits: LimiterLaw,
    /// The least that the cap of one GPU may be on this node.
    pub floor: Floor,
}

/// One GPU: the facts about it, its state, and what is to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CappedGpu {
    /// The facts about it in this step.
    pub facts: GpuFacts,
    limiter: Limiter,
    order: LimitOrder,
    /// Its share of the node's grant, and what it may draw of it now. Zero means none, since no cap is zero; an `Option`
    /// would take more memory for each GPU.
    share: Watts,
    may: Watts,
}

/// The facts about a GPU in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuFacts {
    /// The caps that it accepts.
    pub limits: GpuLimits,
    /// The facts about its limit.
    pub limit: LimitFacts,
    /// The limit in force as it was last read, where a grant may rely on it.
    pub in_force: Option<Watts>,
}

/// The caps that a GPU accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuLimits {
    /// It accepts no cap: a die whose limit is that of its sibling.
    NotATarget,
    /// It accepts no cap: it has no power limit.
    NoLimit,
    /// It accepts a cap in this range, as far as the range is known.
    Range(CapRange),
}

/// The result of the GPUs' caps. The orders are in the GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuDecision {
    /// The result of the desired state for all GPUs together.
    pub report: CapReport,
    /// The number of GPUs whose limit somebody else has changed.
    pub moved: u32,
}

impl GpuLimits {
    /// The limits that the driver reports; `None` where it reports none. The second die of a module reports a maximum
    /// of zero, which means that it has no limit of its own.
    #[must_use]
    pub fn new(min: Option<Watts>, max: Option<Watts>) -> Self {
        match max {
            Some(max) if max <= Watts::ZERO => Self::NotATarget,
            Some(_) | None => Self::Range(CapRange::new(min, max, None)),
        }
    }

    /// The limits of a GPU whose owner has set this one; see [`CapRange::below`].
    #[must_use]
    pub fn below(self, owners: Option<Watts>) -> Self {
        match self {
            Self::NotATarget | Self::NoLimit => self,
            Self::Range(range) => Self::Range(range.below(owners)),
        }
    }

    /// The limits of a GPU whose owner's limit is not known any more; see [`CapRange::no_more_than`].
    #[must_use]
    pub fn no_more_than(self, stands: Option<Watts>) -> Self {
        match self {
            Self::NotATarget | Self::NoLimit => self,
            Self::Range(range) => Self::Range(range.no_more_than(stands)),
        }
    }

    /// Resolves an intent for a GPU with these limits; `None` where it accepts no cap.
    #[must_use]
    pub fn resolve(self, intent: CapIntent, floor: Floor) -> Option<Result<ResolvedCap, Blocked>> {
        self.resolve_under(intent, floor, None)
    }

    /// The same where it may draw no more than `most` under a grant.
    fn resolve_under(
        self,
        intent: CapIntent,
        floor: Floor,
        most: Option<Watts>,
    ) -> Option<Result<ResolvedCap, Blocked>> {
        let range = match self {
            Self::NotATarget | Self::NoLimit => return None,
            Self::Range(range) => range,
        };
        Some(match intent.resolve_under(range, floor, most) {
            Resolution::Watts(target) => Ok(target),
            Resolution::Percent(_) => Err(Blocked::NoRange),
            Resolution::Blocked(reason) => Err(reason),
        })
    }
}

impl GpuFacts {
    /// Nothing is known.
    pub const UNKNOWN: Self =
        Self { limits: GpuLimits::Range(CapRange::UNKNOWN), limit: LimitFacts::UNKNOWN, in_force: None };
}

impl CappedGpu {
    /// A GPU whose limit we have not changed.
    #[must_use]
    pub const fn untouched(facts: GpuFacts) -> Self {
        Self {
            facts,
            limiter: Limiter::UNTOUCHED,
            order: LimitOrder::Leave,
            share: Watts::ZERO,
            may: Watts::ZERO,
        }
    }

    /// A GPU whose limit was set by us before a restart, according to the journal.
    #[must_use]
    pub const fn adopted(facts: GpuFacts) -> Self {
        Self { limiter: Limiter::ADOPTED, ..Self::untouched(facts) }
    }

    /// Takes over the orders of the same GPU when another law replaces this one.
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

    /// Its share of the node's grant, where the node has one and the GPU can be capped.
    #[must_use]
    pub fn share(&self) -> Option<Watts> {
        Some(self.share).filter(|&share| share > Watts::ZERO)
    }

    /// What it may draw now, where the node has a grant and the GPU can be capped.
    pub(in crate::node) fn most(&self) -> Option<Watts> {
        Some(self.may).filter(|&may| may > Watts::ZERO)
    }

    /// Says what it may have of the node's grant, and what of it now.
    pub(in crate::node) fn grant(&mut self, share: Option<Watts>, most: Option<Watts>) {
        self.share = share.unwrap_or(Watts::ZERO);
        self.may = most.map_or(Watts::ZERO, |most| most.max(CAP_LEAST));
    }

    /// Takes over the limit and the order of the package as which it is controlled.
    pub(in crate::node) const fn obeys(&mut self, package: &Package) {
        (self.limiter, self.order) = (*package.limiter(), package.order());
    }

    /// After a step: clears the outcome, which is reported once.
    pub(in crate::node) fn note(&mut self) {
        self.facts.limit.outcome = LimitOutcome::Unknown;
    }
}

impl GpuLaw {
    /// One step over all known GPUs.
    pub fn step(&self, gpus: &mut [CappedGpu], now: Stamp, desired: DesiredCap) -> GpuDecision {
        self.step_beside(gpus, now, desired, |_, _| None)
    }

    /// The same where some GPUs are controlled as packages are, because their clocks can be locked: `clocked` is what came
    /// of these.
    pub(in crate::node) fn step_beside(
        &self,
        gpus: &mut [CappedGpu],
        now: Stamp,
        desired: DesiredCap,
        clocked: impl Fn(usize, &CappedGpu) -> Option<CapReport>,
    ) -> GpuDecision {
        let mut moved = 0_u32;
        for (at, gpu) in (0..usize::MAX).zip(gpus.iter_mut()) {
            if clocked(at, gpu).is_some() {
                continue;
            }
            let want = self.want(gpu, desired);
            let step = gpu.limiter.step(&self.limits, now, gpu.facts.limit, want, self.floor);
            gpu.order = step.order;
            moved = moved.saturating_add(u32::from(step.moved));
        }
        GpuDecision { report: self.report(gpus, desired, clocked), moved }
    }

    /// What is desired of one GPU, under its grant.
    fn desired(gpu: &CappedGpu, desired: DesiredCap) -> DesiredCap {
        desired.under(gpu.most(), gpu.limiter.found(gpu.facts.limit.seen))
    }

    fn want(&self, gpu: &CappedGpu, desired: DesiredCap) -> Want<ResolvedCap> {
        match Self::desired(gpu, desired) {
            DesiredCap::Unknown => Want::Keep,
            DesiredCap::Gone | DesiredCap::Cap(CapIntent::NONE) => Want::Release,
            DesiredCap::Cap(intent) => match gpu.facts.limits.resolve_under(intent, self.floor, gpu.most()) {
                Some(Ok(target)) => target.want(),
                Some(Err(_)) | None => Want::Keep,
            },
        }
    }

    fn report(
        &self,
        gpus: &[CappedGpu],
        desired: DesiredCap,
        clocked: impl Fn(usize, &CappedGpu) -> Option<CapReport>,
    ) -> CapReport {
        let granted = gpus.iter().any(|gpu| gpu.most().is_some());
        match desired {
            DesiredCap::Unknown if !granted => return CapReport::Pending,
            DesiredCap::Gone | DesiredCap::Cap(CapIntent::NONE) if !granted => {
                return released(gpus, clocked);
            }
            DesiredCap::Unknown | DesiredCap::Gone | DesiredCap::Cap(_) => {}
        }
        let mut verdict = None;
        for (at, gpu) in (0..usize::MAX).zip(gpus) {
            match clocked(at, gpu) {
                None => {}
                Some(CapReport::NoIntent) => continue,
                Some(CapReport::Pending | CapReport::Throttled(_)) => return CapReport::Pending,
                Some(CapReport::Cap(result)) => {
                    verdict = CapResult::of_all(verdict.into_iter().chain([result]));
                    continue;
                }
            }
            let intent = match Self::desired(gpu, desired) {
                DesiredCap::Cap(intent) => intent,
                DesiredCap::Unknown | DesiredCap::Gone => continue,
            };
            let result = match gpu.facts.limits.resolve_under(intent, self.floor, gpu.most()) {
                None => continue,
                Some(Err(reason)) => CapResult::Blocked(reason),
                Some(Ok(target)) => match gpu.limiter.result(target) {
                    None => return CapReport::Pending,
                    Some(result) => result,
                },
            };
            verdict = CapResult::of_all(verdict.into_iter().chain([result]));
        }
        CapReport::Cap(verdict.unwrap_or(CapResult::Blocked(Blocked::NoGpus)))
    }
}

/// The result when nothing is desired: whether every limit of ours is released.
fn released(gpus: &[CappedGpu], clocked: impl Fn(usize, &CappedGpu) -> Option<CapReport>) -> CapReport {
    let mut report = CapReport::NoIntent;
    for (at, gpu) in (0..usize::MAX).zip(gpus) {
        match clocked(at, gpu) {
            None => {}
            Some(CapReport::NoIntent) => continue,
            Some(stuck @ CapReport::Cap(_)) => return stuck,
            Some(CapReport::Pending | CapReport::Throttled(_)) => {
                report = CapReport::Pending;
                continue;
            }
        }
        match gpu.limiter.actuation() {
            Actuation::Free => {}
            Actuation::Stuck { kind, .. } => return CapReport::Cap(CapResult::Failed(kind)),
            Actuation::Adopted
            | Actuation::Pending { .. }
            | Actuation::Held { .. }
            | Actuation::Refused { .. }
            | Actuation::Releasing { .. } => report = CapReport::Pending,
        }
    }
    report
}

#[cfg(test)]
mod tests;
