//! Advice on slicing a node's graphics processors, from the intensity of the workloads that use them.
//!
//! Advisory only: nothing is sliced. MIG is recommended by the profile names of the model, and only for models
//! that have MIG; a model with unknown profiles never gets those of another model.

mod mig;

use self::mig::Slice;
use crate::classify::{Confidence, Intensity};
use crate::hardware::GpuInventory;
use power_units::Percent;

/// The pods with graphics processors on a node, by the intensity of their workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuIntensities {
    /// Of low intensity.
    pub low: u32,
    /// Of medium intensity.
    pub medium: u32,
    /// Of high intensity.
    pub high: u32,
    /// Of which nothing is known.
    pub unknown: u32,
}

impl GpuIntensities {
    /// One pod with graphics processors. A workload that is known not to use them does not count.
    #[must_use]
    pub const fn one(intensity: Option<Intensity>) -> Self {
        let none = Self { low: 0, medium: 0, high: 0, unknown: 0 };
        match intensity {
            Some(Intensity::None) => none,
            Some(Intensity::Low) => Self { low: 1, ..none },
            Some(Intensity::Medium) => Self { medium: 1, ..none },
            Some(Intensity::High) => Self { high: 1, ..none },
            None => Self { unknown: 1, ..none },
        }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            low: self.low.saturating_add(other.low),
            medium: self.medium.saturating_add(other.medium),
            high: self.high.saturating_add(other.high),
            unknown: self.unknown.saturating_add(other.unknown),
        }
    }

    pub(crate) const fn less(self, part: Self) -> Self {
        Self {
            low: self.low.saturating_sub(part.low),
            medium: self.medium.saturating_sub(part.medium),
            high: self.high.saturating_sub(part.high),
            unknown: self.unknown.saturating_sub(part.unknown),
        }
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

/// The advice for the pods of a node. `None` for a node without graphics processors, for one that reports that it cannot
/// slice them, for one that does not report it and is not of a make that always can, and for one whose pods use them in
/// a way that is not known of any.
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
    let GpuIntensities { low, medium, high, unknown } = demand;
    if workloads == 0 && unknown > 0 {
        return None;
    }
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
        reason: format!(
            "{workloads} pods use GPUs: {low} with low, {medium} with medium, {high} with high intensity; of {unknown} more nothing is known"
        ),
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

    fn gpus(model: &str, count: u32) -> GpuInventory {
        GpuInventory { model: Some(model.into()), count, min: None, max: None }
    }

    fn demand(low: u32, medium: u32, high: u32) -> GpuIntensities {
        GpuIntensities { low, medium, high, unknown: 0 }
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
    fn pods_of_which_nothing_is_known_are_no_advice() {
        // Fix list operator B-C1: the least confidence was configured but never checked.
        let of = |all: &[Option<Intensity>]| {
            let pods = all.iter().map(|one| GpuIntensities::one(*one));
            pods.fold(GpuIntensities::default(), GpuIntensities::plus)
        };
        let (low, none, unknown) = (Some(Intensity::Low), Some(Intensity::None), None);
        let h100 = |pods: &[Option<Intensity>]| advise(&gpus("NVIDIA_H100_SXM", 1), Some(true), of(pods));
        assert_eq!(h100(&[unknown]), None);
        assert_eq!(h100(&[unknown, none]), None);
        assert_eq!(h100(&[unknown, low]).map(|advice| advice.mode), Some(SlicingMethod::Mig));
        assert_eq!(h100(&[none]).map(|advice| advice.confidence), Some(Confidence::tenths(3)));
        assert_eq!(of(&[low, unknown, none]).less(of(&[unknown])), demand(1, 0, 0));
    }
}
