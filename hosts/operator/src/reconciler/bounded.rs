//! Tells of nodes whose drain is overdue, with an Event on each, once for each drain in a term, and a gauge; and which pods ask for performance past the bound on it: an Event on each, once in a term, a gauge, and a line in the
//! log when the count changes.

use super::{Reconciler, reference};
use crate::reasons::{DRAIN_LATE, PERFORMANCE_BOUND, PERFORMANCE_NOT_ALLOWED};
use host_kit::clock::Mono;
use host_kit::events::Note;
use host_kit::reflect::ObjectKey;
use k8s_openapi::api::core::v1::ObjectReference;
use planner::demand::PastBound;
use planner::plan::Plan;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Pods that are told in one pass; the others are told in the next ones.
const TOLD_MAX: usize = 25;
/// The log has the counts at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// What was told in this term.
#[derive(Debug, Default)]
pub(super) struct BoundMemory {
    told: BTreeSet<ObjectKey>,
    logged: Option<(Mono, [usize; 2])>,
}

impl Reconciler {
    pub(super) fn say_overdue(&mut self, plan: &Plan) {
        let overdue = || plan.nodes.iter().filter(|decision| decision.overdue);
        self.stats.overdue(overdue().count());
        let there: BTreeSet<Arc<str>> = overdue().map(|decision| decision.node.clone()).collect();
        for decision in overdue().filter(|decision| !self.overdue_told.contains(&decision.node)) {
            let Some(observed) = self.site.observed(&decision.node) else { continue };
            let pods = decision.blocking.unwrap_or(0);
            self.recorder.say(Note {
                regarding: reference(&observed.node),
                severity: DRAIN_LATE.severity,
                reason: DRAIN_LATE.word,
                action: "Drain",
                text: format!("{pods} performance pods keep the node from becoming an eco node for longer than DRAIN_DEADLINE"),
            });
        }
        self.overdue_told = there;
    }

    pub(super) fn say_past_bound(&mut self, now: Mono) {
        let past = self.site.asking.past();
        let of = |why| past.values().filter(|pod| pod.why == why).count();
        let counts = [PastBound::Namespace, PastBound::Nodes].map(of);
        self.stats.past_bound(counts);
        let memory = &mut self.bounded;
        let is_due = memory.logged.is_none_or(|(at, _)| now >= at.plus(LOG_EVERY));
        let said = memory.logged.map_or([0; 2], |(_, said)| said);
        if is_due && counts != said {
            let [namespaces, nodes] = counts;
            tracing::info!(
                "pods that ask for performance and count as standard: {namespaces} by PERFORMANCE_NAMESPACES, {nodes} by PERFORMANCE_NODES_MAX"
            );
            memory.logged = Some((now, counts));
        }
        memory.told.retain(|key| past.contains_key(key));
        let news: Vec<_> = past.iter().filter(|(key, _)| !memory.told.contains(key)).take(TOLD_MAX).collect();
        for (key, pod) in news {
            let (reason, text) = match pod.why {
                PastBound::Namespace => (
                    PERFORMANCE_NOT_ALLOWED,
                    format!("the namespace {} is not in PERFORMANCE_NAMESPACES", key.namespace),
                ),
                PastBound::Nodes => (
                    PERFORMANCE_BOUND,
                    format!(
                        "the pods of the namespace {} hold the nodes of PERFORMANCE_NODES_MAX",
                        key.namespace
                    ),
                ),
            };
            self.recorder.say(Note {
                regarding: ObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    namespace: Some(key.namespace.clone()),
                    name: Some(key.name.clone()),
                    uid: Some(pod.uid.to_string()),
                    ..ObjectReference::default()
                },
                severity: reason.severity,
                reason: reason.word,
                action: "Plan",
                text: format!("it asks for performance and counts as a standard pod: {text}"),
            });
            memory.told.insert(key.clone());
        }
    }
}
