//! How well a node suits a pod, from 0 to 100.
//!
//! ```text
//! projectedPower = measuredPower + podMarginalPower
//! headroomScore  = (cappedPower − projectedPower) / cappedPower · 100
//! coolingStress  = predictedCoolingStressScore
//! trendScale     = 2 if |clusterTrend| > 500 W/min else 6
//! trendBonus     = −clamp(powerTrend / trendScale, −25, 25)
//! profileBonus   = 10 for standard pods on eco nodes
//! pressureRelief = −0.3 · perfPressure for standard pods on performance nodes
//! stressMark     = −25 for standard pods on nodes marked with a stress
//! capSensitivity = what the node's caps cost a pod that they would hurt (sensitivity.rs)
//!
//! score = 0.7 · headroomScore + 0.15 · (100 − coolingStress) + trendBonus + profileBonus + pressureRelief
//!         + stressMark − capSensitivity
//! ```
//!
//! clamped to 0..=100 and cut to a whole number. [`Formula::Facility`] weighs 0.4 · headroomScore,
//! 0.3 · (100 − coolingStress) and 0.3 · (100 − psuStress) instead, without the trend. [`Formula::Consolidate`] is another
//! formula, in `consolidate.rs`.
//!
//! - Watts assumed for pods that no sample includes yet count as measured.
//! - Without a measurement against a cap, `predictedPowerHeadroomScore` is the headroom before the pod. The pod's watts
//!   and the assumed ones are subtracted from it, relative to the cap, or else to the most that the hardware draws.
//!   Without a `powerMeasurement` the prediction is used as it is.
//! - PUE above 1 multiplies the pod's watts where facility metrics are enabled.
//! - The price λ of watts at the node multiplies them by 1 + 4 λ, so that a pod with more GPUs avoids it more.
//! - A node whose twin is stale or missing is *unknown*: 50, or at most the lowest known candidate.
//! - A missing part of a twin counts as the worst case: no headroom, full cooling stress. Missing power supply stress,
//!   as on a node without a rack, gives its weight to the other two in equal parts (0.55 and 0.45). A missing trend is
//!   neither bonus nor penalty: as a derivative ("positive = rising") it needs two samples, and a node that has just
//!   been sampled for the first time is not known to rise. So it ranks below a node that falls and above one that
//!   rises.
//!
//! Everything that does not depend on the pod is compiled into [`NodeTerms`] when a snapshot is built, so that scoring
//! a node costs a few multiplications. Before rounding down, the result is within 10⁻⁶ of the exact formula.

use super::class::{SchedulableClass, WorkloadClass};
use super::cluster::ClusterAggregates;
use super::demand::PodDemand;
use super::estimate::{Coefficients, DemandTerms, HardwareRecord, HardwareTerms, PodEstimate};
use super::freshness::Freshness;
use super::sensitivity::{CapDepth, CapSensitivity, PointsLost};
use power_units::{Percent, Ratio, Watts, WattsPerMinute};
use terms::{ScoreTerms, Terms};

mod budget;
mod consolidate;
mod explain;
mod settings;
mod terms;

pub use budget::Against;
pub(crate) use budget::Drawn;
pub use consolidate::{
    ConsolidateCandidate, ConsolidateFacts, ConsolidatePod, ConsolidateTerms, Consolidated, GpuNodeUse,
    GpuSupply, HeldBack, NodeCards, WholeNodes, consolidate_all,
};
pub use explain::{Breakdown, ExplainedTerms, HeadroomSource, Known};
pub use settings::{Formula, ScoreMax, Scoring, SettingError, UnknownScore};

/// The fields of a `NodeTwin.status` that the score uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwinStatus {
    /// `schedulableClass`
    pub class: SchedulableClass,
    /// `predictedPowerHeadroomScore`
    pub headroom: Option<Percent>,
    /// `predictedCoolingStressScore`
    pub cooling: Option<Percent>,
    /// `predictedPsuStressScore`
    pub psu: Option<Percent>,
    /// `estimatedPUE`
    pub pue: Option<Ratio>,
    /// `powerMeasurement`
    pub power: Option<TwinPower>,
    /// `effectiveCapState`: the caps of the processors and of the GPUs, as percentages of the ratings.
    pub caps: [Option<Percent>; 2],
    /// `rescheduleCause` names a stress: pods were recommended to leave, and others should not take their place.
    pub marked: bool,
    /// `powerMeasurement.nodeEntitledPowerW`: what the node gets when everybody wants everything. `None` where power does
    /// not follow demand.
    pub entitled: Option<Watts>,
    /// The price of watts at the node, from 0 to 1: the highest of the PowerBudgets above it. Its twin does not say it.
    pub price: Ratio,
}

impl TwinStatus {
    /// A twin that contains nothing but its class.
    #[must_use]
    pub const fn silent(class: SchedulableClass) -> Self {
        Self {
            class,
            headroom: None,
            cooling: None,
            psu: None,
            pue: None,
            power: None,
            caps: [None; 2],
            marked: false,
            entitled: None,
            price: Ratio::ZERO,
        }
    }

    /// By how much its caps are below the ratings.
    #[must_use]
    pub fn cap_depth(&self) -> CapDepth {
        let [cpu, gpu] = self.caps;
        CapDepth::of(self.class, cpu, gpu)
    }

    /// The predicted headroom, at most 100; zero where the twin has none.
    pub(crate) fn headroom_or_none(&self) -> Percent {
        self.headroom.unwrap_or(Percent::ZERO).min(Percent::HUNDRED)
    }
}

/// `NodeTwin.status.powerMeasurement`. A value that could not be measured is missing, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwinPower {
    /// `measuredNodePowerW`
    pub measured: Option<Watts>,
    /// `nodeCappedPowerW`; zero or less is no cap.
    pub capped: Option<Watts>,
    /// `powerTrendWPerMin`
    pub trend: Option<WattsPerMinute>,
}

/// The known facts about a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts<'a> {
    /// Whether its twin is used.
    pub freshness: Freshness,
    /// Its twin, if it has one.
    pub twin: Option<&'a TwinStatus>,
    /// Its hardware record, if it has one.
    pub hardware: Option<&'a HardwareRecord>,
}

impl NodeFacts<'_> {
    pub(crate) fn fresh_twin(&self) -> Option<&TwinStatus> {
        self.twin.filter(|_| self.freshness.is_fresh())
    }
}

/// The terms of the score that depend on the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodTerms {
    class: WorkloadClass,
    demand: DemandTerms,
    sensitivity: CapSensitivity,
}

impl PodTerms {
    /// Compiles a pod.
    #[must_use]
    pub fn of(demand: &PodDemand, coefficients: &Coefficients) -> Self {
        let terms = DemandTerms::of(demand, coefficients);
        Self { class: demand.class, demand: terms, sensitivity: CapSensitivity::NONE }
    }

    /// The same pod, which caps would hurt this much.
    #[must_use]
    pub const fn sensitive(self, sensitivity: CapSensitivity) -> Self {
        Self { sensitivity, ..self }
    }

    /// How much caps would hurt it.
    #[must_use]
    pub const fn sensitivity(&self) -> CapSensitivity {
        self.sensitivity
    }

    /// Its class.
    #[must_use]
    pub const fn class(&self) -> WorkloadClass {
        self.class
    }

    /// The watts that it would add to a node with this hardware; they are equal on all such nodes.
    #[must_use]
    #[inline]
    pub fn on(&self, hardware: &HardwareTerms) -> PodEstimate {
        hardware.estimate(&self.demand)
    }
}

/// The terms of the score that depend on the node, if the node is known: half a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTerms(Option<ScoreTerms>);

impl NodeTerms {
    /// A node without any information.
    pub const UNKNOWN: Self = Self(None);

    /// Compiles a node.
    #[must_use]
    pub fn of(node: &NodeFacts<'_>, cluster: &ClusterAggregates, scoring: &Scoring) -> Self {
        Self(node.fresh_twin().map(|twin| Terms::of(twin, node.hardware, cluster, scoring).compile()))
    }

    /// The score of a pod of this class that would add `added` watts, if the node is known. `assumed` are the watts of
    /// pods that no sample includes yet.
    #[must_use]
    #[inline]
    pub fn score(&self, class: WorkloadClass, added: Watts, assumed: Watts) -> Option<Score> {
        Some(self.0.as_ref()?.score(class, added, assumed))
    }
}

/// A score before it is clamped and rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score(terms::Twentieths);

impl Score {
    /// In points, neither clamped nor rounded.
    #[must_use]
    pub fn exact(self) -> Percent {
        self.0.to_points()
    }

    /// Clamped to 0..=100 and rounded toward zero.
    #[must_use]
    #[inline]
    pub fn whole(self) -> u8 {
        self.0.whole()
    }

    /// With these points taken off.
    #[must_use]
    #[inline]
    pub fn less(self, lost: PointsLost) -> Self {
        Self(self.0.minus(terms::Twentieths::lost(lost)))
    }
}

/// One node of a request.
#[derive(Clone, Copy, Debug)]
pub struct NodeCandidate<'a> {
    /// Its terms; `None` for a node that the snapshot does not contain.
    pub terms: Option<&'a NodeTerms>,
    /// The watts that the pod would add to it, see [`PodTerms::on`].
    pub added: Watts,
    /// Watts assumed for pods that no sample includes yet.
    pub assumed: Watts,
    /// The points that the pod loses by the node's caps, see [`CapSensitivity::lost`].
    pub lost: PointsLost,
}

/// A candidate's points, in the configured range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// The points of the formula.
    Known(u8),
    /// The default, without a fresh twin.
    Unknown(u8),
}

impl Points {
    /// The value for kube-scheduler.
    #[must_use]
    pub const fn get(self) -> u8 {
        match self {
            Self::Known(points) | Self::Unknown(points) => points,
        }
    }
}

/// The summary of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScoreSummary {
    /// How many candidates were known.
    pub known: u32,
    /// How many were not.
    pub unknown: u32,
    /// The lowest whole score of those that were known.
    pub lowest: Option<u8>,
}

/// The score of a node without any information.
const NEUTRAL: u8 = 50;

/// Scores the candidates into `out`, one for one, up to the length of the shorter one.
pub fn score_all<'a>(
    scoring: &Scoring,
    class: WorkloadClass,
    candidates: impl IntoIterator<Item = NodeCandidate<'a>>,
    out: &mut [Points],
) -> ScoreSummary {
    let scores = candidates.into_iter().map(|candidate| {
        let score = candidate.terms?.score(class, candidate.added, candidate.assumed)?;
        Some(score.less(candidate.lost).whole())
    });
    settle(scoring, scores, out)
}

/// Writes whole scores, `None` for nodes that are not known, as points.
#[inline]
fn settle(scoring: &Scoring, scores: impl Iterator<Item = Option<u8>>, out: &mut [Points]) -> ScoreSummary {
    let mut outcome = ScoreSummary::default();
    let mut filled = 0_usize;
    for (score, slot) in scores.zip(out.iter_mut()) {
        *slot = match score {
            Some(whole) => {
                outcome.known = outcome.known.saturating_add(1);
                outcome.lowest = Some(outcome.lowest.map_or(whole, |lowest| lowest.min(whole)));
                Points::Known(scoring.max.points(whole))
            }
            None => {
                outcome.unknown = outcome.unknown.saturating_add(1);
                Points::Unknown(scoring.max.points(NEUTRAL))
            }
        };
        filled = filled.saturating_add(1);
    }
    let unknown = scoring.max.points(scoring.unknown.score(outcome.lowest));
    if outcome.unknown > 0 {
        for slot in out.iter_mut().take(filled) {
            if let Points::Unknown(points) = slot {
                *points = unknown;
            }
        }
    }
    outcome
}

#[cfg(test)]
mod tests;
