//! The metrics of nodes that sleep. None has a series for each node or pod.

use crate::sleep::SleepResult;
use host_kit::metrics::MetricsRegistry;
use host_kit::{closed_label, label_set};
use planner::sleep::{SleepCounts, SleepPhase, SleepReason};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

closed_label! {
    /// What a controller was told.
    pub(crate) enum SwitchWord {
        /// To switch on.
        On = "on",
        /// To switch off.
        Off = "off",
    }
}

label_set! {
    struct ByPhase {
        phase: &'static str,
    }

    struct ByStep {
        reason: &'static str,
    }

    struct BySwitch {
        power: SwitchWord,
        result: SleepResult,
    }
}

/// The metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SleepStats {
    nodes: Family<ByPhase, Gauge>,
    steps: Family<ByStep, Counter>,
    orders: Family<BySwitch, Counter>,
    empty: Gauge,
    warm: Gauge,
    would: Gauge,
    unhelped: Gauge,
    unpaid: Gauge,
    unseen: Gauge,
}

impl SleepStats {
    pub(super) fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self::default();
        registry.register(
            "joulie_operator_sleep_nodes",
            "Nodes on their way to sleep or back, by phase; left: they did not do what they were told, and wait for people",
            all.nodes.clone(),
        );
        registry.register(
            "joulie_operator_sleep_steps",
            "Changes of the phase of a node, by the reason",
            all.steps.clone(),
        );
        registry.register(
            "joulie_operator_sleep_orders",
            "Orders to management controllers, by what became of them",
            all.orders.clone(),
        );
        registry.register(
            "joulie_operator_sleep_empty_nodes",
            "Nodes that take pods and have none but their own",
            all.empty.clone(),
        );
        registry.register(
            "joulie_operator_sleep_warm_nodes",
            "How many nodes are to be awake and empty, by the quantile of what usually comes",
            all.warm.clone(),
        );
        registry.register(
            "joulie_operator_sleep_would_nodes",
            "Nodes that would be put to sleep now, where SLEEP=observe",
            all.would.clone(),
        );
        registry.register(
            "joulie_operator_sleep_unhelped_pods",
            "Pods that wait for a node, and for which none is or can be woken",
            all.unhelped.clone(),
        );
        registry.register(
            "joulie_operator_sleep_unpaid_nodes",
            "Nodes that are to be awake and sleep on, because a budget above them has no room for their largest draw",
            all.unpaid.clone(),
        );
        registry.register(
            "joulie_operator_sleep_unseen_nodes",
            "Nodes that may sleep and whose management controller says nothing",
            all.unseen.clone(),
        );
        all
    }

    /// Shows what is there.
    pub(crate) fn seen(&self, counts: &SleepCounts, would: usize, unseen: usize) {
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for (phase, count) in SleepPhase::ALL.into_iter().zip(counts.phases) {
            self.nodes.get_or_create(&ByPhase { phase: phase.word() }).set(whole(count));
        }
        self.empty.set(whole(counts.empty));
        self.warm.set(i64::from(counts.warm));
        self.would.set(whole(would));
        self.unhelped.set(whole(counts.unhelped));
        self.unpaid.set(whole(counts.unpaid));
        self.unseen.set(whole(unseen));
    }

    /// Counts a change of phase.
    pub(crate) fn stepped(&self, reason: SleepReason) {
        self.steps.get_or_create(&ByStep { reason: reason.word() }).inc();
    }

    /// Counts an order that has ended.
    pub(crate) fn ordered(&self, on: bool, result: SleepResult) {
        let power = if on { SwitchWord::On } else { SwitchWord::Off };
        self.orders.get_or_create(&BySwitch { power, result }).inc();
    }
}
