//! The metrics of recommendations and evictions. None has a series for each pod or node.

use crate::evict::EvictionResult;
use crate::publish::NodeAdvice;
use host_kit::metrics::MetricsRegistry;
use host_kit::{closed_label, label_set};
use joulie_api::node_twin::RescheduleCause;
use joulie_api::word::Vocabulary;
use planner::migration::eviction::Skip;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::collections::BTreeMap;

closed_label! {
    /// Whether a better node is known.
    enum BetterNode {
        /// One is known.
        Known = "known",
        /// None is known.
        None = "none",
    }
}

label_set! {
    struct ByReason {
        reason: &'static str,
        target: BetterNode,
    }

    struct BySkip {
        reason: &'static str,
    }

    struct ByResult {
        result: EvictionResult,
    }
}

/// The metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RescheduleStats {
    recommended: Family<ByReason, Gauge>,
    marked: Gauge,
    evictions: Family<ByResult, Counter>,
    skipped: Family<BySkip, Gauge>,
}

impl RescheduleStats {
    pub(super) fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self::default();
        registry.register(
            "joulie_operator_recommended_pods",
            "Pods that would better run elsewhere, by the reason and by whether a better node is known",
            all.recommended.clone(),
        );
        registry.register(
            "joulie_operator_marked_nodes",
            "Nodes that are marked with a stress, so that standard pods keep away",
            all.marked.clone(),
        );
        registry.register("joulie_operator_evictions", "Evictions by their result", all.evictions.clone());
        registry.register(
            "joulie_operator_spared_pods",
            "Pods of stressed nodes that the last round of evictions left there, by the reason",
            all.skipped.clone(),
        );
        all
    }

    /// Shows the recommendations of all nodes.
    pub(crate) fn advised<'a>(&self, all: impl Iterator<Item = &'a NodeAdvice>) {
        let mut counts: BTreeMap<(&str, bool), i64> = BTreeMap::new();
        let mut marked = 0;
        for advice in all {
            marked += i64::from(advice.mark.is_some());
            for pod in &advice.pods {
                *counts.entry((pod.why.cause.as_str(), pod.to.is_some())).or_default() += 1;
            }
        }
        self.marked.set(marked);
        for cause in RescheduleCause::ALL {
            for (target, is_known) in [(BetterNode::Known, true), (BetterNode::None, false)] {
                let count = counts.get(&(cause.as_str(), is_known)).copied().unwrap_or(0);
                self.recommended.get_or_create(&ByReason { reason: cause.as_str(), target }).set(count);
            }
        }
    }

    /// Counts an eviction.
    pub(crate) fn evicted(&self, result: EvictionResult) {
        self.evictions.get_or_create(&ByResult { result }).inc();
    }

    /// Shows why the last round left pods where they are.
    pub(crate) fn spared(&self, skips: &BTreeMap<Skip, i64>) {
        for skip in Skip::ALL {
            let count = skips.get(&skip).copied().unwrap_or(0);
            self.skipped.get_or_create(&BySkip { reason: skip.as_str() }).set(count);
        }
    }
}
