//! The score of one pod on one node, term by term, for display.

use super::terms::{Basis, Terms, Twentieths};
use super::{Against, NodeFacts, PodTerms, Score, Scoring};
use crate::placement::class::WorkloadClass;
use crate::placement::cluster::ClusterAggregates;
use crate::placement::estimate::{HardwareTerms, PodEstimate};
use crate::placement::freshness::Freshness;
use crate::placement::sensitivity::PointsLost;
use power_units::{Percent, Ratio, Watts};

/// Why a node scores as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakdown {
    /// The pod's marginal power on this node.
    pub estimate: PodEstimate,
    /// Watts of pods that no sample includes yet.
    pub assumed: Watts,
    /// By the formula, or by default without a fresh twin.
    pub placement: ExplainedTerms,
}

/// The terms, if there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainedTerms {
    /// By the formula.
    Known(Known),
    /// There is no fresh twin.
    Unknown(Freshness),
}

/// What the node's headroom was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadroomSource {
    /// The cap: projectedPower against cappedPower.
    Capped {
        /// What is drawn now.
        measured: Watts,
        /// With the pod, and with the pods that no sample includes yet.
        projected: Watts,
        /// The cap.
        capped: Watts,
    },
    /// There is no measurement against a cap: predictedPowerHeadroomScore, less the added watts.
    Predicted {
        /// The watts of the pod, and of the pods that no sample includes yet.
        added: Watts,
        /// The reference for these watts.
        against: Against,
    },
}

/// The terms of the formula, in points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// What the headroom was computed from.
    pub budget: HeadroomSource,
    /// The PUE by which the pod's watts were multiplied; 1 without facility metrics.
    pub pue: Ratio,
    /// The price of watts at the node, from 0 to 1: it multiplied them by 1 to 5.
    pub price: Ratio,
    /// headroomScore
    pub headroom_score: Percent,
    /// headroomScore, weighted.
    pub headroom: Percent,
    /// 100 − coolingStress, weighted.
    pub cooling: Percent,
    /// 100 − psuStress, weighted.
    pub psu: Percent,
    /// trendBonus
    pub trend: Percent,
    /// profileBonus
    pub profile: Percent,
    /// pressureRelief, never above zero.
    pub relief: Percent,
    /// stressMark, never above zero.
    pub mark: Percent,
    /// capSensitivity, never above zero.
    pub caps: Percent,
    /// The sum of all terms.
    pub score: Score,
}

impl Breakdown {
    /// Scores one pod on one node.
    #[must_use]
    pub fn of(
        node: &NodeFacts<'_>,
        cluster: &ClusterAggregates,
        scoring: &Scoring,
        pod: &PodTerms,
        assumed: Watts,
    ) -> Self {
        let hardware = HardwareTerms::of(node.hardware, &scoring.coefficients);
        let estimate = pod.on(&hardware);
        let placement = match node.fresh_twin() {
            Some(twin) => {
                let terms = Terms::of(twin, node.hardware, cluster, scoring);
                let lost = pod.sensitivity().lost(twin.cap_depth());
                ExplainedTerms::Known(known(&terms, pod.class(), estimate.total(), assumed, lost))
            }
            None => ExplainedTerms::Unknown(node.freshness),
        };
        Self { estimate, assumed, placement }
    }
}

fn known(terms: &Terms, class: WorkloadClass, marginal: Watts, assumed: Watts, lost: PointsLost) -> Known {
    let added = terms.factor.weigh(marginal) + assumed.or_zero();
    let headroom = terms.headroom.minus(terms.slope.over(added));
    let none = Percent::ZERO;
    let (profile, relief, mark) = match class {
        WorkloadClass::Standard => {
            (terms.bonus.to_points(), terms.relief.to_points(), terms.mark.to_points())
        }
        WorkloadClass::Performance => (none, none, none),
    };
    Known {
        budget: match terms.basis {
            Basis::Measured(drawn) => HeadroomSource::Capped {
                measured: drawn.measured,
                projected: drawn.measured + added,
                capped: drawn.capped,
            },
            Basis::Predicted(against) => HeadroomSource::Predicted { added, against },
        },
        pue: terms.pue.ratio(),
        price: terms.price,
        headroom_score: terms.headroom_score(headroom),
        headroom: headroom.to_points(),
        cooling: terms.cooling.to_points(),
        psu: terms.psu.to_points(),
        trend: terms.trend.to_points(),
        profile,
        relief,
        mark,
        caps: Percent::ZERO - Twentieths::lost(lost).to_points(),
        score: Score(terms.sum(class).minus(terms.headroom).plus(headroom)).less(lost),
    }
}
