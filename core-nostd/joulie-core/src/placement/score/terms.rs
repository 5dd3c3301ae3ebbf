//! The terms of the score, in twentieths of a point. All weights (0.7, 0.15, 0.3, 0.4) are whole numbers of
//! twentieths, so a score that is exactly a whole number is one here, too.

use super::{Against, Drawn, Formula, Scoring, TwinStatus};
use crate::placement::class::{SchedulableClass, WorkloadClass};
use crate::placement::cluster::ClusterAggregates;
use crate::placement::estimate::HardwareRecord;
use crate::placement::sensitivity::PointsLost;
use crate::placement::wide::{quotient, scaled};
use core::num::NonZeroU64;
use power_units::{Percent, Ratio, Role, Watts};

/// Twentieths of a point, in 2⁻⁴⁰.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Twentieths(i64);

/// The largest absolute value of a term, so that sums of a few terms fit: it is fifty thousand points, and a score
/// below zero becomes zero in the end.
const TERM_MAX: i64 = 1 << 60;
const ONE: i64 = 1 << 40;
const PER_POINT: i64 = 20;

/// Half of the accuracy of the arithmetic, in 2⁻⁴⁰ twentieths: a score that is exactly a whole number must not be
/// rounded to the one below by a rounding error.
const GUARD: i64 = PER_POINT << 19;

impl Twentieths {
    pub(crate) const ZERO: Self = Self(0);

    fn of_points(points: i64) -> Self {
        Self(points.saturating_mul(PER_POINT << 40))
    }

    #[inline]
    pub(crate) fn lost(points: PointsLost) -> Self {
        Self(i64::from(points.twentieths()) << 40)
    }

    /// `weight` twentieths for each point.
    fn weighed(weight: u32, points: Percent) -> Self {
        let wide = i128::from(points.to_bits()).wrapping_mul(i128::from(weight)).wrapping_shl(8);
        Self::bounded(wide)
    }

    /// `clamp` is not used, since it would panic on bounds in the wrong order.
    fn bounded(wide: i128) -> Self {
        let max = i128::from(TERM_MAX);
        Self(i64::try_from(wide.max(max.wrapping_neg()).min(max)).unwrap_or(0))
    }

    #[inline]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[inline]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    pub(crate) fn to_points(self) -> Percent {
        // 2⁻⁴⁰ twentieths to 2⁻³² points, to the nearest.
        let parts = PER_POINT << 8;
        Percent::from_bits(self.0.saturating_add(parts >> 1).checked_div_euclid(parts).unwrap_or(0))
    }

    #[inline]
    pub(crate) fn whole(self) -> u8 {
        let best = 100 * PER_POINT * ONE;
        let cut = self.0.saturating_add(GUARD).max(0).min(best) >> 40;
        u8::try_from(cut.checked_div(PER_POINT).unwrap_or(0)).unwrap_or(100)
    }
}

/// The weights of the terms, in twentieths for each point.
struct Weights {
    headroom: u32,
    cooling: u32,
    psu: u32,
    trend: u32,
}

const RELIEF: u32 = 6;
const BONUS_POINTS: i64 = 10;
/// As many as upstream's extender takes off nodes of the class from which a pod was evicted.
const MARK_POINTS: i64 = -25;
const TREND_POINTS_MAX: i32 = 25;

impl Formula {
    /// Where power supply stress is unknown, its weight is divided equally between the other two: it counts neither as
    /// full nor as zero.
    const fn weights(self, knows_psu: bool) -> Weights {
        match (self, knows_psu) {
            // Consolidation has a formula of its own; its explanations show these terms beside it.
            (Self::Headroom | Self::Consolidate, _) => {
                Weights { headroom: 14, cooling: 3, psu: 0, trend: 20 }
            }
            (Self::Facility, true) => Weights { headroom: 8, cooling: 6, psu: 6, trend: 0 },
            (Self::Facility, false) => Weights { headroom: 11, cooling: 9, psu: 0, trend: 0 },
        }
    }
}

/// The separate terms of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Headroom before the pod's and the assumed watts.
    pub(crate) headroom: Twentieths,
    headroom_weight: u32,
    /// What each additional watt subtracts.
    pub(crate) slope: Slope,
    pub(crate) cooling: Twentieths,
    pub(crate) psu: Twentieths,
    pub(crate) trend: Twentieths,
    /// For standard pods.
    pub(crate) bonus: Twentieths,
    /// For standard pods; never above zero.
    pub(crate) relief: Twentieths,
    /// For standard pods; never above zero.
    pub(crate) mark: Twentieths,
    pub(crate) pue: Pue,
    /// By what the watts of a pod are multiplied: PUE, and the price of watts.
    pub(crate) factor: Pue,
    /// The price of watts.
    pub(crate) price: Ratio,
    pub(crate) basis: Basis,
}

/// What the headroom is computed from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Basis {
    Measured(Drawn),
    /// From predictedPowerHeadroomScore.
    Predicted(Against),
}

impl Terms {
    pub(crate) fn of(
        twin: &TwinStatus,
        hardware: Option<&HardwareRecord>,
        cluster: &ClusterAggregates,
        scoring: &Scoring,
    ) -> Self {
        let weights = scoring.formula.weights(twin.psu.is_some());
        let basis = match twin.against_cap() {
            Some(drawn) => Basis::Measured(drawn),
            None => Basis::Predicted(Against::of(twin, hardware)),
        };
        let headroom = match basis {
            Basis::Measured(drawn) => at_rest(weights.headroom, drawn),
            Basis::Predicted(_) => Twentieths::weighed(weights.headroom, twin.headroom_or_none()),
        };
        let slope = match basis {
            Basis::Measured(Drawn { capped: budget, .. })
            | Basis::Predicted(Against::Cap(budget) | Against::Hardware(budget)) => {
                Slope::under(weights.headroom, budget)
            }
            Basis::Predicted(Against::Nothing) => Slope(0),
        };
        let (bonus, relief) = for_standard_pods(twin.class, cluster);
        let pue = if scoring.facility_metrics { Pue::of(twin.pue) } else { Pue::ONE };
        Self {
            headroom,
            headroom_weight: weights.headroom,
            slope,
            cooling: Twentieths::weighed(weights.cooling, spare(twin.cooling)),
            psu: Twentieths::weighed(weights.psu, spare(twin.psu)),
            trend: trend(weights.trend, twin, cluster),
            bonus,
            relief,
            mark: if twin.marked { Twentieths::of_points(MARK_POINTS) } else { Twentieths::ZERO },
            pue,
            factor: pue.dearer(twin.price),
            price: twin.price,
            basis,
        }
    }

    /// The headroom before it is weighted.
    pub(crate) fn headroom_score(&self, weighed: Twentieths) -> Percent {
        let bits = weighed.0.checked_div_euclid(i64::from(self.headroom_weight)).unwrap_or(0) >> 8;
        Percent::from_bits(bits)
    }

    /// The sum of all terms that do not depend on the pod.
    pub(crate) fn sum(&self, class: WorkloadClass) -> Twentieths {
        let common = self.headroom.plus(self.cooling).plus(self.psu).plus(self.trend);
        match class {
            WorkloadClass::Standard => common.plus(self.bonus).plus(self.relief).plus(self.mark),
            WorkloadClass::Performance => common,
        }
    }

    pub(crate) fn compile(&self) -> ScoreTerms {
        ScoreTerms {
            standard: self.sum(WorkloadClass::Standard),
            performance: self.sum(WorkloadClass::Performance),
            slope: self.slope,
            factor: self.factor,
        }
    }
}

/// The terms of one node, combined as far as a request allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScoreTerms {
    standard: Twentieths,
    performance: Twentieths,
    slope: Slope,
    factor: Pue,
}

impl ScoreTerms {
    #[inline]
    pub(crate) fn score(&self, class: WorkloadClass, marginal: Watts, assumed: Watts) -> super::Score {
        let rest = match class {
            WorkloadClass::Standard => self.standard,
            WorkloadClass::Performance => self.performance,
        };
        super::Score(rest.minus(self.slope.over(self.factor.weigh(marginal) + assumed.or_zero())))
    }
}

/// What each watt subtracts, in 2⁻⁴⁸ twentieths; zero without a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slope(u64);

impl Slope {
    fn under(weight: u32, budget: Watts) -> Self {
        // Twentieths for a hundred percent, over 2⁻³² W, in 2⁻⁴⁸.
        let hundred = u128::from(weight).wrapping_mul(100).wrapping_shl(80);
        Self(quotient(hundred, bits(budget), Role::Demand))
    }

    #[inline]
    pub(crate) fn over(self, watts: Watts) -> Twentieths {
        let taken = scaled(bits(watts), self.0, 40, Role::Demand).min(TERM_MAX.unsigned_abs());
        Twentieths(i64::try_from(taken).unwrap_or(TERM_MAX))
    }
}

/// The PUE factor, in 2⁻³²; never below one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pue(NonZeroU64);

impl Pue {
    const ONE: Self = Self(match NonZeroU64::new(1 << 32) {
        Some(one) => one,
        None => NonZeroU64::MIN,
    });

    fn of(pue: Option<Ratio>) -> Self {
        let above_one = pue.filter(|&pue| pue > Ratio::ONE);
        let bits = above_one.and_then(|pue| u64::try_from(pue.to_bits()).ok());
        bits.and_then(NonZeroU64::new).map_or(Self::ONE, Self)
    }

    /// The factor where watts have a price: at the highest one, a watt counts as five.
    fn dearer(self, price: Ratio) -> Self {
        let price = price.within(Ratio::ZERO, Ratio::ONE);
        let times = Ratio::ONE + Ratio::from_bits(price.to_bits().saturating_mul(4));
        Self::of(Some(self.ratio().scale(times, Role::Demand)))
    }

    pub(crate) fn ratio(self) -> Ratio {
        Ratio::from_bits(i64::try_from(self.0.get()).unwrap_or(i64::MAX))
    }

    #[inline]
    pub(crate) fn weigh(self, watts: Watts) -> Watts {
        Watts::from_bits(
            i64::try_from(scaled(bits(watts), self.0.get(), 32, Role::Demand)).unwrap_or(i64::MAX),
        )
    }
}

/// (cappedPower − measuredPower) / cappedPower · 100, weighted.
fn at_rest(weight: u32, drawn: Drawn) -> Twentieths {
    let hundred = u128::from(weight).wrapping_mul(100).wrapping_shl(40);
    let used =
        quotient(hundred.wrapping_mul(u128::from(bits(drawn.measured))), bits(drawn.capped), Role::Demand);
    Twentieths::bounded(i128::try_from(hundred).unwrap_or(0).saturating_sub(i128::from(used)))
}

/// 100 minus a stress from 0 to 100; zero where the stress is unknown.
fn spare(stress: Option<Percent>) -> Percent {
    Percent::HUNDRED - stress.unwrap_or(Percent::HUNDRED).within(Percent::ZERO, Percent::HUNDRED)
}

/// −clamp(powerTrend / trendScale, −25, 25)
fn trend(weight: u32, twin: &TwinStatus, cluster: &ClusterAggregates) -> Twentieths {
    let scale = i128::from(cluster.trend_scale());
    let trend = twin.power.and_then(|power| power.trend).map_or(0, |trend| trend.to_bits());
    let most = i128::from(Percent::from_int(TREND_POINTS_MAX).to_bits()).wrapping_shl(8);
    // In 2⁻⁴⁰ points.
    let points = i128::from(trend).wrapping_shl(8).checked_div(scale).unwrap_or(0);
    let points = points.max(most.wrapping_neg()).min(most);
    Twentieths::bounded(points.wrapping_neg().wrapping_mul(i128::from(weight)))
}

/// Profile bonus and pressure relief.
fn for_standard_pods(class: SchedulableClass, cluster: &ClusterAggregates) -> (Twentieths, Twentieths) {
    match class {
        SchedulableClass::Eco => (Twentieths::of_points(BONUS_POINTS), Twentieths::ZERO),
        SchedulableClass::Performance => {
            let pressure = cluster.pressure_or_worst().within(Percent::ZERO, Percent::HUNDRED);
            (Twentieths::ZERO, Twentieths::ZERO.minus(Twentieths::weighed(RELIEF, pressure)))
        }
        SchedulableClass::Draining | SchedulableClass::Unknown => (Twentieths::ZERO, Twentieths::ZERO),
    }
}

/// Watts in 2⁻³²; a negative value is zero.
#[inline]
fn bits(watts: Watts) -> u64 {
    u64::try_from(watts.to_bits()).unwrap_or(0)
}
