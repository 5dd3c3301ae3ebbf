//! Aggregates over all fresh nodes, once for each snapshot: performance pressure (`perfPressure`) and the cluster's
//! trend (`clusterTrend`).
//!
//! The sums are of whole numbers, so they do not depend on the order of the nodes. A sum that overflows is unknown,
//! and unknown counts as the worst case: full pressure, a burst.

use super::class::SchedulableClass;
use super::freshness::Freshness;
use super::score::TwinStatus;
use power_units::{Micros, Percent, WattsPerMinute};

/// When the sum of all trends exceeds this, up or down, the cluster is in a burst.
pub const BURST: WattsPerMinute = WattsPerMinute::from_int(500);

/// The aggregates over all fresh nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterAggregates {
    /// `perfPressure`: the average congestion, 100 − headroom, of the performance nodes, from 0 to 100; 0 where there
    /// are none. `None` when the sum overflows.
    pub pressure: Option<Percent>,
    /// `clusterTrend`: the sum of the trends of all nodes with a power measurement. `None` when it overflows.
    pub trend: Option<WattsPerMinute>,
    /// How many nodes are fresh.
    pub fresh: u32,
    /// When the first of them becomes stale without further updates: the aggregates and scores are valid until then.
    pub holds_for: Option<Micros>,
}

impl ClusterAggregates {
    /// Computes the aggregates. Twins that are not fresh do not count.
    #[must_use]
    pub fn of<'a>(twins: impl IntoIterator<Item = (Freshness, &'a TwinStatus)>) -> Self {
        let mut sums = Sums::default();
        for (freshness, twin) in twins {
            if let Freshness::Fresh { left } = freshness {
                sums.add(twin, left);
            }
        }
        Self {
            pressure: sums.pressure(),
            trend: i64::try_from(sums.trend).ok().map(WattsPerMinute::from_bits),
            fresh: sums.fresh,
            holds_for: sums.holds_for,
        }
    }

    /// The pressure for the score: full pressure where it is unknown.
    #[must_use]
    pub fn pressure_or_worst(&self) -> Percent {
        self.pressure.unwrap_or(Percent::HUNDRED)
    }

    /// Whether power changes so fast that trends count threefold.
    #[must_use]
    pub fn is_burst(&self) -> bool {
        self.trend.is_none_or(|trend| trend.abs() > BURST)
    }

    /// `trendScale`: how many watts per minute count as one point.
    #[must_use]
    pub fn trend_scale(&self) -> u8 {
        if self.is_burst() { 2 } else { 6 }
    }
}

/// A billion numbers below 2⁶³ fit in 128 bits, so no partial sum depends on the order.
#[derive(Default)]
struct Sums {
    congestion: i128,
    performance: u32,
    trend: i128,
    fresh: u32,
    holds_for: Option<Micros>,
}

impl Sums {
    fn add(&mut self, twin: &TwinStatus, left: Micros) {
        self.fresh = self.fresh.saturating_add(1);
        self.holds_for = Some(self.holds_for.map_or(left, |other| other.min(left)));
        if twin.class == SchedulableClass::Performance {
            let congestion = Percent::HUNDRED - twin.headroom_or_none();
            let congestion = congestion.within(Percent::ZERO, Percent::HUNDRED);
            self.congestion = self.congestion.saturating_add(i128::from(congestion.to_bits()));
            self.performance = self.performance.saturating_add(1);
        }
        let trend = twin.power.and_then(|power| power.trend).unwrap_or(WattsPerMinute::ZERO);
        self.trend = self.trend.saturating_add(i128::from(trend.to_bits()));
    }

    fn pressure(&self) -> Option<Percent> {
        let nodes = i128::from(self.performance);
        // The sum itself must fit in 64 bits, even where its average would.
        let sum = i64::try_from(self.congestion).ok()?;
        Some(match i128::from(sum).saturating_add(nodes >> 1).checked_div(nodes) {
            Some(average) => Percent::from_bits(i64::try_from(average).ok()?),
            None => Percent::ZERO,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::dice::Dice;
    use crate::placement::freshness::Staleness;
    use crate::placement::score::TwinPower;
    use std::vec::Vec;

    const FRESH: Freshness = Freshness::Fresh { left: Micros::MINUTE };

    fn twin(class: SchedulableClass, headroom: i32) -> TwinStatus {
        TwinStatus { headroom: Some(Percent::from_int(headroom)), ..TwinStatus::silent(class) }
    }

    fn trending(trend: i32) -> TwinStatus {
        let trend = Some(WattsPerMinute::from_int(trend));
        let power = Some(TwinPower { measured: None, capped: None, trend });
        TwinStatus { power, ..TwinStatus::silent(SchedulableClass::Eco) }
    }

    fn of(twins: &[TwinStatus]) -> ClusterAggregates {
        ClusterAggregates::of(twins.iter().map(|twin| (FRESH, twin)))
    }

    #[test]
    fn pressure_is_the_average_congestion_of_performance_nodes() {
        use SchedulableClass::{Draining, Eco, Performance};
        // 100 − 40 and 100 − 20; the eco and the draining node do not count.
        let nodes = [twin(Performance, 40), twin(Performance, 20), twin(Eco, 10), twin(Draining, 0)];
        assert_eq!(of(&nodes).pressure, Some(Percent::from_int(70)));
        assert_eq!(of(&[]).pressure, Some(Percent::ZERO));
        assert_eq!(of(&[twin(Eco, 10)]).pressure, Some(Percent::ZERO));
    }

    #[test]
    fn congestion_stays_between_nothing_and_all() {
        // Seed table, row 7.
        // Fix list extender B18: a node far above its budget is as congested as one exactly at it, and no node lowers
        // the congestion of others.
        use SchedulableClass::Performance;
        assert_eq!(of(&[twin(Performance, -400)]).pressure, Some(Percent::HUNDRED));
        assert_eq!(of(&[twin(Performance, 160)]).pressure, Some(Percent::ZERO));
        assert_eq!(
            of(&[twin(Performance, -400), twin(Performance, 160)]).pressure,
            Some(Percent::from_int(50))
        );
        assert_eq!(of(&[TwinStatus::silent(Performance)]).pressure, Some(Percent::HUNDRED));
    }

    #[test]
    fn what_is_not_fresh_does_not_count() {
        let busy = TwinStatus { power: trending(900).power, ..twin(SchedulableClass::Performance, 0) };
        let calm = twin(SchedulableClass::Performance, 90);
        for stale in [Freshness::Absent, Freshness::Stale(Staleness::NoTimestamp)] {
            let cluster = ClusterAggregates::of([(stale, &busy), (FRESH, &calm)]);
            assert_eq!(cluster.pressure, Some(Percent::from_int(10)));
            assert_eq!((cluster.trend, cluster.fresh), (Some(WattsPerMinute::ZERO), 1));
        }
    }

    #[test]
    fn a_burst_is_a_sum_of_trends_beyond_five_hundred_either_way() {
        for (trends, burst) in [
            (&[500][..], false),
            (&[501], true),
            (&[-500], false),
            (&[-501], true),
            (&[300, 300], true),
            // A plain sum, as the page defines it: falling trends cancel rising ones.
            (&[900, -900], false),
            (&[], false),
        ] {
            let nodes: Vec<TwinStatus> = trends.iter().map(|&trend| trending(trend)).collect();
            assert_eq!(of(&nodes).is_burst(), burst, "{trends:?}");
        }
    }

    #[test]
    fn a_sum_that_does_not_fit_is_unknown_whatever_the_order() {
        let (up, down) = (trending(i32::MAX), trending(i32::MIN));
        let cluster = of(&[up, up]);
        assert_eq!(cluster.trend, None);
        assert!(cluster.is_burst());
        for nodes in [[up, up, down, down], [up, down, up, down], [down, up, down, up]] {
            assert_eq!(of(&nodes).trend, Some(WattsPerMinute::from_int(-2)));
        }
        let unknown = ClusterAggregates { pressure: None, ..cluster };
        assert_eq!(unknown.pressure_or_worst(), Percent::HUNDRED);
    }

    #[test]
    fn the_aggregates_hold_until_the_first_twin_is_stale() {
        let nodes = [trending(1), trending(2)];
        let left = |minutes: u64| Freshness::Fresh { left: Micros::new(minutes) };
        let cluster = ClusterAggregates::of([(left(9), &nodes[0]), (left(5), &nodes[1])]);
        assert_eq!(cluster.holds_for, Some(Micros::new(5)));
        assert_eq!(of(&[]).holds_for, None);
    }

    #[test]
    fn every_order_of_the_nodes_gives_the_same_bits() {
        // Fix list extender B8.
        let mut dice = Dice::new(2);
        let mut nodes: Vec<TwinStatus> = (0..200).map(|_| dice.twin()).collect();
        let first = of(&nodes);
        for _ in 0..500 {
            dice.shuffle(&mut nodes);
            assert_eq!(of(&nodes), first);
        }
    }
}
