//! Advice on slicing a node's graphics processors, from the intensity of the workloads that use them.
//!
//! Advisory only: nothing is sliced. MIG is recommended by the profile names of the model, and only for models
//! that have MIG; a model with unknown profiles never gets those of another model.

mod mig;

use self::mig::Slice;
use crate::classify::{Confidence, Intensity, WorkloadProfile};
use crate::hardware::GpuInventory;
use power_units::Percent;

/// The workloads with graphics processors on a node, by intensity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuIntensities {
    /// Workloads of low intensity.
    pub low: u32,
    /// Workloads of medium intensity.
    pub medium: u32,
    /// Workloads of high intensity.
    pub high: u32,
}

impl GpuIntensities {
    /// Counts the profiles with enough confidence; those without graphics processors do not count.
    #[must_use]
    pub fn of<'a>(profiles: impl IntoIterator<Item = &'a WorkloadProfile>, least: Confidence) -> Self {
        let mut demand = Self::default();
        for profile in profiles.into_iter().filter(|profile| profile.is_trusted(least)) {
            match profile.gpu.intensity {
                Intensity::None => {}
                Intensity::Low => demand.low += 1,
                Intensity::Medium => demand.medium += 1,
                Intensity::High => demand.high += 1,
            }
        }
        demand
    }

    const fn total(self) -> u32 {
        self.low.saturating_add(self.medium).saturating_add(self.high)
    }
}

/// How to slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlicingMethod {
    /// In hardware, by MIG.
    Mig,
    /// By time slices.
    TimeSlicing,
    /// Not at all.
    None,
}

impl SlicingMethod {
    /// The text in the twin's status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mig => "mig",
            Self::TimeSlicing => "time-slicing",
            Self::None => "none",
        }
    }
}

/// `status.gpuSlicingRecommendation`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// How to slice.
    pub mode: SlicingMethod,
    /// The MIG profile, empty without MIG.
    pub slice: &'static str,
    /// Slices of one graphics processor.
    pub per_gpu: u32,
    /// Slices of all of them.
    pub total: u32,
    /// The expected rise of their utilisation.
    pub gain: Percent,
    /// How much data backs the advice.
    pub confidence: Confidence,
    /// Why.
    pub reason: String,
}

/// The advice for the workloads of a node. `None` for a node without graphics processors, for one that reports
/// that it cannot slice them, and for one that does not report it and is not of a make that always can.
#[must_use]
pub fn advise(
    gpus: &GpuInventory,
    slicing_supported: Option<bool>,
    demand: GpuIntensities,
) -> Option<Advice> {
    let model = gpus.model.as_deref().unwrap_or_default();
    let can_slice = slicing_supported.unwrap_or_else(|| mig::is_nvidia(model));
    if gpus.count == 0 || !can_slice {
        return None;
    }
    let workloads = demand.total();
    let GpuIntensities { low, medium, high } = demand;
    let plan = if workloads == 0 {
        Plan { gain: 10, ..BY_TURNS }
    } else if low > medium && low > high {
        mig::of(model).map_or(BY_TURNS, |profiles| Plan::mig(profiles.small, 40))
    } else if medium >= high {
        mig::of(model).map_or(WHOLE, |profiles| Plan::mig(profiles.half, 25))
    } else {
        WHOLE
    };
    let confidence = match workloads {
        0 => Confidence::tenths(3),
        some => Confidence::tenths(u8::try_from(some).unwrap_or(u8::MAX)),
    };
    Some(Advice {
        mode: plan.mode,
        slice: plan.slice,
        per_gpu: plan.per_gpu,
        total: plan.per_gpu.saturating_mul(gpus.count),
        gain: Percent::from_int(plan.gain),
        confidence,
        reason: format!("{workloads} GPU workloads: {low} low, {medium} medium, {high} high intensity"),
    })
}

struct Plan {
    mode: SlicingMethod,
    slice: &'static str,
    per_gpu: u32,
    gain: i32,
}

const BY_TURNS: Plan = Plan { mode: SlicingMethod::TimeSlicing, slice: "", per_gpu: 4, gain: 10 };
const WHOLE: Plan = Plan { mode: SlicingMethod::None, slice: "", per_gpu: 1, gain: 0 };

impl Plan {
    const fn mig(slice: Slice, gain: i32) -> Self {
        Self { mode: SlicingMethod::Mig, slice: slice.name, per_gpu: slice.per_gpu, gain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{Hints, metrics::WorkloadMetrics, rules::classify};

    fn gpus(model: &str, count: u32) -> GpuInventory {
        GpuInventory { model: Some(model.into()), count, min: None, max: None }
    }

    fn demand(low: u32, medium: u32, high: u32) -> GpuIntensities {
        GpuIntensities { low, medium, high }
    }

    fn h100(count: u32, (low, medium, high): (u32, u32, u32)) -> Advice {
        advise(&gpus("NVIDIA_H100_SXM", count), Some(true), demand(low, medium, high)).unwrap()
    }

    #[test]
    fn c15_the_plurality_decides() {
        let row = |counts| {
            let advice = h100(1, counts);
            (advice.mode.as_str(), advice.slice, advice.per_gpu, advice.gain.round())
        };
        assert_eq!(row((0, 0, 0)), ("time-slicing", "", 4, 10));
        assert_eq!(row((1, 0, 0)), ("mig", "1g.10gb", 7, 40));
        assert_eq!(row((2, 2, 0)), ("mig", "3g.40gb", 2, 25));
        assert_eq!(row((2, 0, 2)), ("none", "", 1, 0));
        assert_eq!(row((1, 1, 1)), ("mig", "3g.40gb", 2, 25));
        assert_eq!(row((0, 2, 2)), ("mig", "3g.40gb", 2, 25));
        assert_eq!(row((0, 1, 2)), ("none", "", 1, 0));
    }

    #[test]
    fn c15_totals_and_confidence() {
        assert_eq!(h100(8, (2, 1, 0)).total, 56);
        assert_eq!((h100(4, (0, 1, 2)).total, h100(4, (0, 1, 2)).mode), (4, SlicingMethod::None));
        assert_eq!(h100(u32::MAX, (1, 0, 0)).total, u32::MAX);
        let confidence = |low| h100(1, (low, 0, 0)).confidence;
        assert_eq!(confidence(0), Confidence::tenths(3));
        assert_eq!(confidence(1), Confidence::tenths(1));
        assert_eq!(confidence(10), Confidence::tenths(10));
        assert_eq!(confidence(1_000), Confidence::tenths(10));
    }

    #[test]
    fn other_makes_are_never_given_mig_profiles() {
        // Fix list operator B-G1.
        for model in ["AMD_INSTINCT_MI300X", "AMD-Instinct-MI250X", "AMD_RADEON_PRO_W7900", "Intel Max 1550"]
        {
            assert_eq!(advise(&gpus(model, 8), None, demand(9, 0, 0)), None, "{model}");
            for counts in [demand(9, 0, 0), demand(0, 9, 0), demand(0, 0, 9), demand(0, 0, 0)] {
                let advice = advise(&gpus(model, 8), Some(true), counts).unwrap();
                assert_ne!(advice.mode, SlicingMethod::Mig, "{model}");
                assert_eq!(advice.slice, "", "{model}");
            }
        }
    }

    #[test]
    fn a_model_without_mig_takes_turns_with_small_work_and_stays_whole_for_larger() {
        let l40s = |counts| advise(&gpus("NVIDIA-L40S", 2), None, counts).unwrap();
        assert_eq!(
            (l40s(demand(3, 0, 0)).mode, l40s(demand(3, 0, 0)).total),
            (SlicingMethod::TimeSlicing, 8)
        );
        assert_eq!((l40s(demand(0, 3, 0)).mode, l40s(demand(0, 3, 0)).total), (SlicingMethod::None, 2));
    }

    #[test]
    fn advice_needs_something_to_slice() {
        // Fix list operator B-G1: a node of a make that can always be sliced need not report it.
        let counts = demand(1, 0, 0);
        assert!(advise(&gpus("NVIDIA_H100_SXM", 1), None, counts).is_some());
        assert_eq!(advise(&gpus("NVIDIA_H100_SXM", 1), Some(false), counts), None);
        assert_eq!(advise(&gpus("NVIDIA_H100_SXM", 0), Some(true), counts), None);
        let unnamed = GpuInventory { model: None, ..gpus("", 1) };
        assert_eq!(advise(&unnamed, None, counts), None);
        assert_eq!(
            advise(&unnamed, Some(true), counts).map(|advice| advice.mode),
            Some(SlicingMethod::TimeSlicing)
        );
    }

    #[test]
    fn only_backed_profiles_with_graphics_processors_count() {
        // Fix list operator B-C1: the least confidence was configured but never checked.
        let profile = |cpu, gpu| {
            let metrics = WorkloadMetrics {
                cpu: Some(Percent::from_int(cpu)),
                gpu: Some(Percent::from_int(gpu)),
                ..WorkloadMetrics::default()
            };
            classify(&Hints::read(None, None), Some(&metrics))
        };
        let profiles = [profile(10, 10), profile(10, 50), profile(10, 90), profile(10, 0), profile(0, 90)];
        assert_eq!(GpuIntensities::of(&profiles, Confidence::tenths(5)), demand(1, 1, 1));
        assert_eq!(GpuIntensities::of(&profiles, Confidence::tenths(0)), demand(1, 1, 2));
    }
}
