//! The metrics that are computed at a scrape.

use super::latency::Reading;
use super::{ByClass, ClassLabel, Metrics};
use crate::decide::Asked;
use crate::settings::PlacementSettings;
use crate::snapshot::Snapshot;
use crate::snapshot_builder::Shown;
use host_kit::clock::HostClock;
use host_kit::metrics::{LabelSet, LabelValue, MetricDescription, MetricKind, MetricLabel};
use joulie_core::placement::score::{Breakdown, ExplainedTerms as Why};
use power_units::Percent;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::Arc;

const AGE: MetricDescription = MetricDescription::gauge(
    "joulie_scheduler_snapshot_age_seconds",
    "Since the picture of all nodes was made",
);
const ASSUMED: MetricDescription =
    MetricDescription::gauge("joulie_scheduler_assumed", "Pods whose watts are assumed now");
const WAITING: MetricDescription = MetricDescription::gauge(
    "joulie_scheduler_assumed_waiting",
    "Pods on nodes whose hardware is not known yet; they count from the moment it is",
);
const PRESSURE: MetricDescription = MetricDescription::gauge(
    "joulie_scheduler_perf_pressure",
    "The mean congestion of performance nodes, in percent (perfPressure); 100 where it is not known",
);
const FRESH: MetricDescription =
    MetricDescription::gauge("joulie_scheduler_fresh_twins", "Twins that are believed");

const LATENCY: MetricDescription = MetricDescription {
    name: "joulie_scheduler_filter_duration_seconds",
    kind: MetricKind::Histogram,
    labels: ByClass::LABELS,
    help: "From the whole request to the whole answer",
};
/// In the order of the verbs.
const LATENCIES: [MetricDescription; 2] =
    [LATENCY, MetricDescription { name: "joulie_scheduler_prioritize_duration_seconds", ..LATENCY }];

const NODE: MetricLabel = MetricLabel { name: "node", values: &[] };
const SCORE: MetricDescription = MetricDescription::gauge(
    "joulie_scheduler_final_node_score",
    "What a pod like the last one of its class scores there, from 0 to 100",
)
.with(&[NODE, MetricLabel { name: "workload_class", values: ClassLabel::VALUES }]);
const HEADROOM: MetricDescription = MetricDescription::gauge(
    "joulie_scheduler_node_headroom_score",
    "The headroom that a pod like the last one would leave, in percent; below zero over the cap",
)
.with(&[NODE]);
const STALE: MetricDescription = MetricDescription::gauge(
    "joulie_scheduler_stale_twin_data",
    "1 where the twin is missing or not believed",
)
.with(&[NODE]);

/// All metrics that it may return.
pub(crate) const ALL: [MetricDescription; 10] =
    [LATENCIES[0], LATENCIES[1], AGE, ASSUMED, WAITING, PRESSURE, FRESH, SCORE, HEADROOM, STALE];

/// Computes them.
pub(super) struct Scrape {
    pub(super) metrics: Metrics,
    pub(super) shown: Shown,
    pub(super) placement: PlacementSettings,
    pub(super) node_series: bool,
    pub(super) clock: Arc<dyn HostClock>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.latencies(&mut encoder)?;
        let snapshot = self.shown.load_full();
        let age = self.clock.mono().since(snapshot.at).as_secs_f64();
        one(&mut encoder, &AGE, age)?;
        let assumed = f64::from(u32::try_from(snapshot.assumed_pods).unwrap_or(u32::MAX));
        one(&mut encoder, &ASSUMED, assumed)?;
        let waiting = f64::from(u32::try_from(snapshot.waiting_pods).unwrap_or(u32::MAX));
        one(&mut encoder, &WAITING, waiting)?;
        if let Some(cluster) = &snapshot.fleet.cluster {
            let pressure = points(cluster.pressure_or_worst());
            one(&mut encoder, &PRESSURE, pressure)?;
            one(&mut encoder, &FRESH, f64::from(cluster.fresh))?;
        }
        if self.node_series { self.nodes(&mut encoder, &snapshot) } else { Ok(()) }
    }
}

impl Scrape {
    fn latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (about, all) in LATENCIES.iter().zip(&self.metrics.0.latency) {
            let mut family = about.begin(encoder)?;
            for (class, latency) in ClassLabel::ALL.iter().zip(all) {
                let Reading { sum, count, buckets } = latency.read();
                let labels = ByClass { workload_class: *class };
                family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }

    fn nodes(&self, encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> Result<(), fmt::Error> {
        let last: Vec<(ClassLabel, Arc<Asked>)> = ClassLabel::ALL
            .iter()
            .zip(&self.metrics.0.last)
            .filter_map(|(class, last)| Some((*class, last.load_full()?)))
            .collect();
        let mut scores = SCORE.begin(encoder)?;
        for (number, node) in snapshot.fleet.known() {
            for (workload_class, asked) in &last {
                let labels = [("node", &*node.name), ("workload_class", workload_class.word())];
                let score = match self.why(snapshot, number, asked) {
                    Some(Why::Known(known)) => points(known.score.exact()).clamp(0.0, 100.0),
                    Some(Why::Unknown(_)) | None => 50.0,
                };
                ConstGauge::new(score).encode(scores.encode_family(&labels)?)?;
            }
        }
        let mut headroom = HEADROOM.begin(encoder)?;
        for (number, node) in snapshot.fleet.known() {
            let known = last.first().and_then(|(_, asked)| self.why(snapshot, number, asked));
            if let Some(Why::Known(known)) = known {
                ConstGauge::new(points(known.headroom_score))
                    .encode(headroom.encode_family(&[("node", &*node.name)])?)?;
            }
        }
        let mut stale = STALE.begin(encoder)?;
        for (_, node) in snapshot.fleet.known() {
            let is_stale = if node.freshness.is_fresh() { 0.0 } else { 1.0 };
            ConstGauge::new(is_stale).encode(stale.encode_family(&[("node", &*node.name)])?)?;
        }
        Ok(())
    }

    fn why(&self, snapshot: &Snapshot, number: usize, asked: &Asked) -> Option<Why> {
        let (node, cluster) = (snapshot.fleet.nodes.get(number)?, snapshot.fleet.cluster.as_ref()?);
        let scoring = &self.placement.scoring;
        let assumed = snapshot.assumed(number);
        Some(Breakdown::of(&node.facts(), cluster, scoring, &asked.terms, assumed).placement)
    }
}

fn one(encoder: &mut DescriptorEncoder<'_>, about: &MetricDescription, value: f64) -> Result<(), fmt::Error> {
    ConstGauge::new(value).encode(about.begin(encoder)?)
}

/// The decimal text of a 32.32 number always parses.
fn points(percent: Percent) -> f64 {
    percent.to_string().parse().unwrap_or(0.0)
}
