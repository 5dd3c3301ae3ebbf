//! What the engine of a node does for its demand: it keeps the last seconds, and reports them when they have changed.

use super::{NodeSays, NodeSecond};
use joulie_core::budget::demand::{DemandHistory, DemandReport, YieldMemory, Yieldable, is_news};
use plant::{from_watts, to_watts};
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
    yields: YieldMemory,
}

impl NodeMemory {
    pub(super) fn new() -> Self {
        let (history, most) = (DemandHistory::EMPTY, [0.0; REMEMBERED]);
        Self { history, most, latest: None, told: None, yields: YieldMemory::default() }
    }

    /// Takes in a second of a machine with this floor and this greatest draw. Returns what it does, and a report that is worth
    /// telling.
    pub(super) fn learn(
        &mut self,
        now: Stamp,
        second: &NodeSecond,
        (floor, max): (f64, f64),
    ) -> (NodeSays, Option<DemandReport>) {
        let watts = |watts: f64| to_watts(watts).unwrap_or(Watts::ZERO);
        let is_bitten = second.bitten >= BITTEN_FROM && second.cap < max;
        self.history.record(now, watts(second.counted), is_bitten.then(|| watts(second.cap)));
        self.most.rotate_right(1);
        if let Some(newest) = self.most.first_mut() {
            *newest = second.most;
        }
        let most = self.most.iter().copied().fold(0.0, f64::max);
        self.latest = self.history.report(now, watts(most));
        let grant = Yieldable {
            serial: second.serial,
            watts: watts(second.granted),
            floor: watts(floor),
            lends: second.lends,
        };
        let yields = self.yields.left(now, grant, self.latest.as_ref()).map(from_watts);
        let bites = self.latest.is_some_and(|report| report.bites());
        let report = self.news(now, watts(second.cap));
        (NodeSays { reports: report.is_some(), bites, yields }, report)
    }

    /// The report, if it is worth a write.
    fn news(&mut self, now: Stamp, cap: Watts) -> Option<DemandReport> {
        let report = self.latest?;
        let ago = self.told.map_or(Micros::ZERO, |(_, at)| now.since(at).unwrap_or(Micros::ZERO));
        let is_first = self.told.is_none();
        let told = self.told.as_ref().map(|(told, _)| told);
        if !is_first && !is_news(Some(&report), told, ago, Some(cap)) {
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
