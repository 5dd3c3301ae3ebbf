//! What the metrics show of the node's own meter.

use super::{PlugLook, PlugSource, PlugView};
use crate::metrics::PowerDetail;
use host_kit::clock::Mono;
use host_kit::label_set;
use host_kit::metrics::MetricsRegistry;
use joulie_api::number::Number;
use power_units::Watts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::atomic::AtomicU64;

type Level<L> = Family<L, Gauge<f64, AtomicU64>>;

label_set! {
    struct PlugNode {
        node: String,
    }

    struct PlugNodeSource {
        node: String,
        source: PlugSource,
    }

    struct PlugOutcome {
        source: PlugSource,
        outcome: PlugLook,
    }
}

#[derive(Default)]
pub(super) struct PlugMetrics {
    node: String,
    detail: PowerDetail,
    watts: Level<PlugNodeSource>,
    age: Level<PlugNodeSource>,
    rest: Level<PlugNode>,
    looks: Family<PlugOutcome, Counter>,
}

/// Describes the metrics, for the reference.
pub(crate) fn describe(registry: &mut MetricsRegistry) {
    drop(PlugMetrics::register(registry, "", PowerDetail::Averaged));
}

impl PlugMetrics {
    pub(super) fn register(registry: &mut MetricsRegistry, node: &str, detail: PowerDetail) -> Self {
        let all = Self { node: node.to_owned(), detail, ..Self::default() };
        registry.register(
            "joulie_node_plug_power_watts",
            "What the node draws at its plug, by its own meter; absent while that says nothing",
            all.watts.clone(),
        );
        registry.register(
            "joulie_node_plug_age_seconds",
            "How long ago the node's own meter last answered",
            all.age.clone(),
        );
        registry.register(
            "joulie_node_rest_power_watts",
            "What the node draws beside packages and GPUs, by its own meter",
            all.rest.clone(),
        );
        registry.register(
            "joulie_node_meter_reads",
            "Times that a meter of the whole node was asked, by what came of it",
            all.looks.clone(),
        );
        all
    }

    pub(super) fn looked(&self, source: PlugSource, outcome: PlugLook) {
        self.looks.get_or_create(&PlugOutcome { source, outcome }).inc();
    }

    /// Shows what is known.
    pub(super) fn show(&self, view: Option<PlugView>, now: Mono) {
        for source in PlugSource::ALL.iter().copied() {
            let of = PlugNodeSource { node: self.node.clone(), source };
            let view = view.filter(|view| view.source == source);
            put(&self.watts, &of, view.and_then(|view| view.watts).map(|watts| self.shown(watts)));
            put(&self.age, &of, view.map(|view| now.since(view.at).as_secs_f64()));
        }
        let rest = view.and_then(|view| view.rest).map(|watts| self.shown(watts));
        put(&self.rest, &PlugNode { node: self.node.clone() }, rest);
    }

    fn shown(&self, watts: Watts) -> f64 {
        let watts = Number::tenths(watts).get();
        match self.detail {
            PowerDetail::Averaged => watts.round(),
            PowerDetail::Exact => watts,
        }
    }
}

/// What is not known has no series.
fn put<L: Clone + std::hash::Hash + Eq>(family: &Level<L>, of: &L, value: Option<f64>) {
    match value {
        Some(value) => drop(family.get_or_create(of).set(value)),
        None => drop(family.remove(of)),
    }
}
