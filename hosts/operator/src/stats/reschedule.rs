//! The metrics of recommendations and evictions. None has a series for each pod. The two that have one for each node are of the
//! first implementation; their series leave with the node, and one of a namespace with the last pod there.

use crate::evict::EvictionResult;
use crate::publish::NodeAdvice;
use host_kit::metrics::MetricsRegistry;
use host_kit::{closed_label, label_set};
use joulie_api::node_twin::RescheduleCause;
use joulie_api::word::Vocabulary;
use planner::migration::eviction::{EvictionDecision, EvictionVerdict, Skip};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::collections::{BTreeMap, BTreeSet};

closed_label! {
    /// Whether a better node is known.
    enum BetterNode {
        /// One is known.
        Known = "known",
        /// None is known.
        None = "none",
    }
}

closed_label! {
    /// Why a pod was not moved, in the words of the first implementation.
    enum NotMoved {
        /// It may not be moved at all.
        NotReschedulable = "not_reschedulable",
        /// A limit on evictions is spent, or another pod of its controller was evicted recently.
        RateLimited = "rate_limited",
    }
}

impl NotMoved {
    /// `None` for what the first implementation did not know: the stress, the facility's data, and where a pod could go.
    const fn of(skip: Skip) -> Option<Self> {
        match skip {
            Skip::NotReschedulable
            | Skip::PerformanceClass
            | Skip::UnclearClass
            | Skip::NoController
            | Skip::Pinned
            | Skip::OtherController
            | Skip::LastReplica => Some(Self::NotReschedulable),
            Skip::OwnerCoolingDown
            | Skip::NodeBudgetSpent
            | Skip::NamespaceBudgetSpent
            | Skip::ClusterBudgetSpent => Some(Self::RateLimited),
            Skip::AlreadyLeaving
            | Skip::NoStress
            | Skip::FacilityStale
            | Skip::StressTooShort
            | Skip::NoDestination => None,
        }
    }
}

label_set! {
    struct ByMove {
        node: String,
        namespace: String,
        reason: &'static str,
    }

    struct ByNotMoved {
        node: String,
        reason: NotMoved,
    }

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

/// So many nodes, namespaces and reasons have a series of their own. Anybody who may create namespaces chooses their names, so beyond
/// that an eviction is counted without its namespace.
const MOVED_MOST: usize = 4_096;

/// The metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RescheduleStats {
    recommended: Family<ByReason, Gauge>,
    marked: Gauge,
    evictions: Family<ByResult, Counter>,
    skipped: Family<BySkip, Gauge>,
    moves: Family<ByMove, Counter>,
    not_moved: Family<ByNotMoved, Counter>,
    /// The nodes and reasons with series of evictions, by namespace.
    moved: BTreeMap<String, BTreeSet<(String, &'static str)>>,
    /// The nodes with series of pods that stayed.
    kept: BTreeSet<(String, NotMoved)>,
}

impl RescheduleStats {
    pub(super) fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self::default();
        // These series exist from the start, so that an alert on their increase sees the first failure.
        for result in EvictionResult::ALL {
            drop(all.evictions.get_or_create(&ByResult { result: *result }));
        }
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
        registry.register(
            "joulie_rescheduler_evictions",
            "Pods that were evicted, by their node and the reason; series leave with the node and with the last pod of the \
             namespace, which is empty beyond 4,096 series",
            all.moves.clone(),
        );
        registry.register(
            "joulie_rescheduler_skipped",
            "How often a pod of a stressed node was left there in a round of evictions, by its node",
            all.not_moved.clone(),
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

    /// Counts an eviction by its result.
    pub(crate) fn evicted(&self, result: EvictionResult) {
        self.evictions.get_or_create(&ByResult { result }).inc();
    }

    /// Counts a pod of a namespace that was evicted from a node.
    pub(crate) fn moved(&mut self, node: &str, namespace: &str, cause: RescheduleCause) {
        let of = (node.to_owned(), cause.as_str());
        let is_there = self.moved.get(namespace).is_some_and(|series| series.contains(&of));
        let is_full = self.moved.values().map(BTreeSet::len).sum::<usize>() >= MOVED_MOST;
        let namespace = if is_full && !is_there { "" } else { namespace };
        self.moves.get_or_create(&by_move(&of, namespace)).inc();
        self.moved.entry(namespace.to_owned()).or_default().insert(of);
    }

    /// Removes the series of namespaces in which there is no pod any more.
    pub(crate) fn keep_namespaces(&mut self, is_there: impl Fn(&str) -> bool) {
        let Self { moves, moved, .. } = self;
        moved.retain(|namespace, series| {
            let stays = namespace.is_empty() || is_there(namespace);
            if !stays {
                for of in &*series {
                    moves.remove(&by_move(of, namespace));
                }
            }
            stays
        });
    }

    /// Counts the pods that a round left where they are.
    pub(crate) fn judged(&mut self, decisions: &[EvictionDecision]) {
        for EvictionDecision { node, verdict, .. } in decisions {
            let EvictionVerdict::Skip(skip) = verdict else { continue };
            let Some(reason) = NotMoved::of(*skip) else { continue };
            self.kept.insert((node.clone(), reason));
            self.not_moved.get_or_create(&ByNotMoved { node: node.clone(), reason }).inc();
        }
    }

    /// Removes the series of nodes that do not exist any more.
    pub(super) fn keep_only(&mut self, nodes: &BTreeSet<&str>) {
        let Self { moves, not_moved, moved, kept, .. } = self;
        moved.retain(|namespace, series| {
            series.retain(|of| {
                let is_there = nodes.contains(&*of.0);
                if !is_there {
                    moves.remove(&by_move(of, namespace));
                }
                is_there
            });
            !series.is_empty()
        });
        kept.retain(|(node, reason)| {
            let is_there = nodes.contains(&**node);
            if !is_there {
                not_moved.remove(&ByNotMoved { node: node.clone(), reason: *reason });
            }
            is_there
        });
    }

    /// Shows why the last round left pods where they are.
    pub(crate) fn spared(&self, skips: &BTreeMap<Skip, i64>) {
        for skip in Skip::ALL {
            let count = skips.get(&skip).copied().unwrap_or(0);
            self.skipped.get_or_create(&BySkip { reason: skip.as_str() }).set(count);
        }
    }
}

fn by_move((node, reason): &(String, &'static str), namespace: &str) -> ByMove {
    ByMove { node: node.clone(), namespace: namespace.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_namespaces_there_are_so_many_series_of_evictions_are_shown() {
        let mut registry = MetricsRegistry::default();
        let mut stats = RescheduleStats::register(&mut registry);
        for at in 0..MOVED_MOST + 10 {
            stats.moved("n", &format!("job-{at}"), RescheduleCause::PsuStress);
        }
        // One that has a series counts on.
        stats.moved("n", "job-7", RescheduleCause::PsuStress);
        let page = registry.render().unwrap();
        let series: Vec<&str> =
            page.lines().filter(|line| line.starts_with("joulie_rescheduler_evictions_total{")).collect();
        assert_eq!(series.len(), MOVED_MOST + 1);
        let line = |namespace: &str, count: u64| {
            let labels = format!(r#"node="n",namespace="{namespace}",reason="psu_stress""#);
            format!("joulie_rescheduler_evictions_total{{{labels}}} {count}")
        };
        for line in [line("", 10), line("job-7", 2), line("job-4095", 1)] {
            assert!(series.contains(&line.as_str()), "{line}");
        }
        // With those that are gone others have room.
        stats.keep_namespaces(|namespace| namespace == "job-7");
        stats.moved("n", "job-9000", RescheduleCause::PsuStress);
        let page = registry.render().unwrap();
        assert!(page.contains(&line("job-9000", 1)) && page.contains(&line("", 10)));
        assert!(!page.contains("job-4095"));
    }

    #[test]
    fn evictions_have_the_series_of_the_first_implementation_and_they_leave_with_the_node() {
        let mut registry = MetricsRegistry::default();
        let mut stats = RescheduleStats::register(&mut registry);
        let decision = |node: &str, skip| EvictionDecision {
            node: node.to_owned(),
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
            verdict: EvictionVerdict::Skip(skip),
        };
        stats.moved("goes", "shop", RescheduleCause::CoolingStress);
        stats.moved("stays", "shop", RescheduleCause::PsuStress);
        let all = [
            decision("goes", Skip::LastReplica),
            decision("stays", Skip::NodeBudgetSpent),
            decision("stays", Skip::OwnerCoolingDown),
            decision("stays", Skip::FacilityStale),
        ];
        stats.judged(&all);
        let page = registry.render().unwrap();
        for line in [
            r#"joulie_rescheduler_evictions_total{node="goes",namespace="shop",reason="cooling_stress"} 1"#,
            r#"joulie_rescheduler_evictions_total{node="stays",namespace="shop",reason="psu_stress"} 1"#,
            r#"joulie_rescheduler_skipped_total{node="goes",reason="not_reschedulable"} 1"#,
            r#"joulie_rescheduler_skipped_total{node="stays",reason="rate_limited"} 2"#,
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        stats.keep_only(&BTreeSet::from(["stays"]));
        let page = registry.render().unwrap();
        assert!(page.contains("stays") && !page.contains("goes"), "{page}");
    }
}
