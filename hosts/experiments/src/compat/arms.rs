//! The six laws of the comparison, as the description of upstream's experiment 04 states them.

use crate::fleet::{FleetNode, GPU_IDLE_W, Kind, expected_w};

/// A law that places a job on the node with the highest score; of equal ones on the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompatArm {
    /// Upstream's baseline: the allocated parts of cores and GPUs, for every pod.
    Baseline,
    /// Upstream's first formula.
    Legacy,
    /// Projected headroom and a trend of at most ten points, which is the formula of the headline.
    Ten,
    /// The same with an adaptive trend of at most 25 points, which is the formula that upstream ships.
    Adaptive,
    /// kube-scheduler's `LeastAllocated`, of what the pod requests.
    LeastAllocated,
    /// Any node that fits: the first of the highest hash, which has 256 values.
    Random,
}

/// All of them, the baseline first.
pub const ARMS: [CompatArm; 6] = [
    CompatArm::Baseline,
    CompatArm::Legacy,
    CompatArm::Ten,
    CompatArm::Adaptive,
    CompatArm::LeastAllocated,
    CompatArm::Random,
];

/// What a law knows of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) kind: Kind,
    pub(crate) node: &'a FleetNode,
    /// Watts for each minute.
    pub(crate) slope: f64,
    /// What the slope is divided by: 2 in a burst of the cluster, else 6.
    pub(crate) scale: f64,
    /// What it draws.
    pub(crate) watts: f64,
}

impl CompatArm {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Legacy => "legacy",
            Self::Ten => "trend-10",
            Self::Adaptive => "t25-adap",
            Self::LeastAllocated => "least-allocated",
            Self::Random => "random",
        }
    }

    /// Whether scores change with power, and thus in every step.
    pub(crate) const fn follows_power(self) -> bool {
        matches!(self, Self::Legacy | Self::Ten | Self::Adaptive)
    }

    /// Whether the sum is held between 0 and 100.
    pub(crate) const fn is_clamped(self) -> bool {
        matches!(self, Self::Ten | Self::Adaptive)
    }

    /// The part of a node's score that does not depend on the size of the request.
    pub(crate) fn key(self, seen: Seen<'_>, wants_gpus: bool) -> f64 {
        let Seen { kind, node, slope, scale, watts } = seen;
        let part = |used: u32, all: u32| if all == 0 { 0.0 } else { f64::from(used) / f64::from(all) };
        let cores = part(node.cores, kind.cores());
        let gpus = part(node.gpus, kind.gpus());
        match self {
            Self::Baseline => cores + gpus,
            Self::Legacy => {
                let headroom = 100.0 * ((kind.most_w() - watts) / kind.most_w()).max(0.0);
                let cooling = 100.0 - (watts / 4000.0 * 80.0).min(100.0);
                let supply = 100.0 - (watts / 50_000.0 * 100.0).min(100.0);
                let idle = f64::from(kind.gpus() - node.gpus) * GPU_IDLE_W;
                let idle = if wants_gpus { 0.0 } else { (idle.min(500.0) / 10.0).min(20.0) };
                0.4 * headroom + 0.3 * cooling + 0.3 * supply - idle - (slope / scale).clamp(-20.0, 25.0)
            }
            Self::Ten => base(kind, watts) - 10.0 * (slope / (0.1 * kind.most_w())).clamp(-1.0, 1.0),
            Self::Adaptive => base(kind, watts) - (slope / scale).clamp(-25.0, 25.0),
            Self::LeastAllocated if wants_gpus => 1.0 - (cores + gpus) / 2.0,
            Self::LeastAllocated => f64::from(kind.cores() - node.cores) / f64::from(kind.cores()),
            Self::Random => 1.0,
        }
    }

    /// The score of a node: its key, and what the request adds.
    pub(crate) fn score(self, key: f64, offset: f64) -> f64 {
        if self.is_clamped() { (key + offset).clamp(0.0, 100.0) } else { key + offset }
    }

    /// What the request adds to the key of every node of a kind. No node is ever so full that a request that fits
    /// would take its headroom below zero, so this is the same for all.
    pub(crate) fn offset(self, kind: Kind, cores: u32, gpus: u32, performance: bool) -> f64 {
        let added = || expected_w(kind, cores, gpus, performance);
        match self {
            Self::Baseline | Self::Random => 0.0,
            Self::Legacy => -(added() / 20.0).min(20.0),
            Self::Ten | Self::Adaptive => -70.0 * added() / kind.most_w(),
            Self::LeastAllocated if gpus > 0 => 0.0,
            Self::LeastAllocated => -f64::from(cores) / f64::from(kind.cores()),
        }
    }
}

/// 0.7 of the headroom and 0.15 of what cooling has left, before the request.
fn base(kind: Kind, watts: f64) -> f64 {
    let used = watts / kind.most_w();
    70.0 * (1.0 - used) + 0.15 * (100.0 - (100.0 * used).min(100.0))
}
