//! The laws of the comparison, and which part of ours is left out.

use super::KEPT;
use crate::compat::CompatArm;
use crate::fleet::{FleetNode, Kind};
use crate::product::{JobTerms, NodeView};
use crate::workload::OfferedJob;

/// A law that places jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairArm {
    /// kube-scheduler's default profile, by the model in `joulie-core`. Of equal nodes, any.
    KubeDefault,
    /// kube-scheduler's `MostAllocated` over what is requested.
    MostAllocated,
    /// Any node that fits.
    Random,
    /// `MostAllocated`, and jobs without GPUs take nodes without GPUs first.
    AvoidGpu,
    /// The fewest nodes by marginal watts; see [`FairArm::score`].
    Packing,
    /// One of upstream's formulas, as in [`crate::compat`].
    Upstream(CompatArm),
    /// The score `consolidate` that the extender ships. A node that sleeps is taken only where no awake one fits.
    Joulie,
}

/// When nodes sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepRule {
    /// They do not.
    Never,
    /// After [`super::HOLD`] steps, and six empty nodes of each kind stay awake.
    Fixed,
    /// Once idling has cost what the next wake costs. As many empty nodes of each kind are kept awake, and woken ahead, as were
    /// opened in any few steps of the last hour. The planner's law of sleep has both.
    Ahead,
}

/// All of them.
pub const SLEEP_RULES: [SleepRule; 3] = [SleepRule::Never, SleepRule::Fixed, SleepRule::Ahead];

impl SleepRule {
    /// What it adds to the name of a law.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Never => "",
            Self::Fixed => " +sleep",
            Self::Ahead => " +ahead",
        }
    }

    /// Whether nodes sleep.
    #[must_use]
    pub const fn sleeps(self) -> bool {
        !matches!(self, Self::Never)
    }
}

/// All of them.
pub const FAIR_ARMS: [FairArm; 9] = [
    FairArm::KubeDefault,
    FairArm::MostAllocated,
    FairArm::Random,
    FairArm::AvoidGpu,
    FairArm::Packing,
    FairArm::Upstream(CompatArm::Legacy),
    FairArm::Upstream(CompatArm::Ten),
    FairArm::Upstream(CompatArm::Adaptive),
    FairArm::Joulie,
];

/// A part of our law that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreTerm {
    /// The points for watts.
    Watts,
    /// The points for how full a node is.
    Fill,
    /// The points for whole GPU nodes.
    Whole,
    /// The cores that are kept for free GPUs.
    GpuCores,
    /// The points for the free GPUs that a pod with GPUs leaves without cores.
    Stranded,
    /// That GPU nodes are spare where enough others are whole.
    Spare,
    /// That standard pods with GPUs are spread, and cores kept, where few GPUs are free.
    Scarce,
    /// That the draw of an empty node is measured, instead of being a share of the most that its hardware draws.
    Measured,
}

/// All of them.
pub const TERMS: [ScoreTerm; 8] = [
    ScoreTerm::Watts,
    ScoreTerm::Fill,
    ScoreTerm::Whole,
    ScoreTerm::GpuCores,
    ScoreTerm::Stranded,
    ScoreTerm::Spare,
    ScoreTerm::Scarce,
    ScoreTerm::Measured,
];

impl ScoreTerm {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Watts => "watts",
            Self::Fill => "fill",
            Self::Whole => "whole",
            Self::GpuCores => "gpu-cores",
            Self::Stranded => "stranded",
            Self::Spare => "spare",
            Self::Scarce => "scarce",
            Self::Measured => "measured",
        }
    }
}

/// What a law may know beside the node.
pub(super) struct Around<'a> {
    pub(super) seen: &'a JobTerms,
    pub(super) view: NodeView,
    /// GPU nodes without jobs.
    pub(super) whole: u32,
    pub(super) asleep: bool,
    pub(super) without: Option<ScoreTerm>,
}

impl FairArm {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeDefault => "kube-default",
            Self::MostAllocated => "most-allocated",
            Self::Random => "random",
            Self::AvoidGpu => "avoid-gpu",
            Self::Packing => "packing",
            Self::Upstream(arm) => arm.name(),
            Self::Joulie => "joulie",
        }
    }

    /// Whether it takes any of the nodes with the most points, and not the first.
    pub(super) const fn draws(self) -> bool {
        matches!(self, Self::KubeDefault | Self::Random)
    }

    /// A node's score for a job that fits; the highest wins.
    ///
    /// The packing takes nodes that have jobs first, then awake ones. A job without GPUs takes the cheaper cores of a
    /// GPU node where they are surplus, 16 for each free GPU being kept, or where enough empty GPU nodes are left.
    pub(super) fn score(self, kind: Kind, node: &FleetNode, job: &OfferedJob, around: &Around<'_>) -> f64 {
        let cores = f64::from(node.cores) / f64::from(kind.cores());
        let gpus = f64::from(node.gpus) / 8.0;
        let wants = job.gpus > 0;
        let used = if wants { (cores + gpus) / 2.0 } else { cores };
        match self {
            Self::KubeDefault => {
                f64::from(u32::try_from(around.seen.scheduled(kind, node)).unwrap_or(u32::MAX))
            }
            Self::Joulie => {
                let points = around.seen.consolidated(kind, node, &around.view, around.without);
                f64::from(points) - if around.asleep { 1000.0 } else { 0.0 }
            }
            Self::MostAllocated => used,
            // Any node, and the one that upstream's formula has chosen.
            Self::Random | Self::Upstream(_) => 0.0,
            Self::AvoidGpu if !wants && kind == Kind::Gpu => used - 10.0,
            Self::AvoidGpu => used,
            Self::Packing => {
                let tier = match (node.jobs > 0, around.asleep) {
                    (true, _) => 0.0,
                    (false, false) => -10.0,
                    (false, true) => -20.0,
                };
                let place = match kind {
                    Kind::Cpu => 0.0,
                    Kind::Gpu if wants => {
                        if node.gpus > 0 || node.jobs == 0 {
                            0.0
                        } else {
                            -30.0
                        }
                    }
                    Kind::Gpu => {
                        let left = kind.cores() - node.cores - u32::from(job.cores);
                        let surplus = node.gpus > 0 && left >= 16 * (kind.gpus() - node.gpus);
                        let spare = node.gpus == 0 && (node.jobs > 0 || around.whole > KEPT);
                        if surplus || spare { 5.0 } else { -40.0 }
                    }
                };
                tier + place + if wants { gpus + cores / 100.0 } else { cores }
            }
        }
    }
}
