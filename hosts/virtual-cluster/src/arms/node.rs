//! What the engine of a node does for its demand: it keeps the last seconds, and reports them when they have changed.

use super::NodeSecond;
use joulie_core::budget::demand::{DemandHistory, DemandReport, is_news};
use plant::to_watts;
use power_units::{Micros, Stamp, Watts};

/// How many seconds a device remembers.
const REMEMBERED: usize = 20;
/// A cap that limits a node for less of a second does not count.
const BITTEN_FROM: f64 = 0.1;

/// The demand of one node.
#[derive(Clone, Debug)]
pub(super) struct NodeMemory {
    history: DemandHistory,
    /// What its devices could ask for in the last seconds.
    most: [f64; REMEMBERED],
    latest: Option<DemandReport>,
    told: Option<(DemandReport, Stamp)>,
}

impl NodeMemory {
    pub(super) const EMPTY: Self =
        Self { history: DemandHistory::EMPTY, most: [0.0; REMEMBERED], latest: None, told: None };

    /// Takes in a second. Returns a report that is worth telling.
    pub(super) fn learn(&mut self, now: Stamp, second: &NodeSecond, max: f64) -> Option<DemandReport> {
        let watts = |watts: f64| to_watts(watts).unwrap_or(Watts::ZERO);
        let is_bitten = second.bitten >= BITTEN_FROM && second.cap < max;
        self.history.record(now, watts(second.counted), is_bitten.then(|| watts(second.cap)));
        self.most.rotate_right(1);
        if let Some(newest) = self.most.first_mut() {
            *newest = second.most;
        }
        let most = self.most.iter().copied().fold(0.0, f64::max);
        self.latest = self.history.report(now, watts(most));
        let report = self.latest?;
        let ago = self.told.map_or(Micros::ZERO, |(_, at)| now.since(at).unwrap_or(Micros::ZERO));
        let is_first = self.told.is_none();
        let told = self.told.as_ref().map(|(told, _)| told);
        if !is_first && !is_news(Some(&report), told, ago, Some(watts(second.cap))) {
            return None;
        }
        self.told = Some((report, now));
        Some(report)
    }

    /// The report that goes with a receipt, which is written anyway.
    pub(super) fn with_receipt(&mut self, now: Stamp) -> Option<DemandReport> {
        let report = self.latest?;
        self.told = Some((report, now));
        Some(report)
    }
}
