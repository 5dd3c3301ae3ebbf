//! Recommendations: which pods of a stressed or draining node should run elsewhere, and where. They move nothing.
//!
//! Everything is derived anew in each pass from the twins, the pods that have opted in, and what is published, so that
//! a restart continues where the former leader ended. While the pods are not known, what is published stays.

use super::Reconciler;
use crate::publish::{NodeAdvice, PODS_MAX, PodAdvice, ShownReason};
use crate::reasons::{RESCHEDULE_ADVISED, RESCHEDULE_OVER};
use crate::rows::PodSeen;
use crate::site::Observed;
use host_kit::events::Note;
use host_kit::reflect::ObjectKey;
use planner::demand::Asked;
use planner::migration::eviction::RequestedResources;
use planner::migration::{
    Destinations, MigrationReason, NodeConditions, RELIEF, RunningPod, Site, StressKind, WantedPlace,
};
use planner::names::Beside;
use planner::node::Presence;
use planner::plan::Plan;
use planner::twin::Twin;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is recommended, by the index of the node; nodes for which there is nothing are left out.
pub(super) type Advised = BTreeMap<usize, NodeAdvice>;

/// The twin of each node by the index of the node; `None` for one that is not planned.
pub(super) fn by_place(count: usize, plan: &Plan, twins: &[Twin]) -> Vec<Option<Twin>> {
    let mut all = vec![None; count];
    for (decision, twin) in plan.nodes.iter().zip(twins) {
        if let Some(slot) = all.get_mut(decision.place) {
            *slot = Some(*twin);
        }
    }
    all
}

/// A node that pods should leave.
struct Leaving<'a> {
    place: usize,
    reason: MigrationReason,
    mark: Option<StressKind>,
    published: NodeAdvice,
    pods: Vec<(&'a ObjectKey, &'a Arc<PodSeen>)>,
}

impl Reconciler {
    /// The recommendations of this pass.
    pub(super) fn advise(&self, twins: &[Option<Twin>]) -> Advised {
        let mut advised = Advised::new();
        let mut leaving = Vec::new();
        let nodes = self.site.cluster.nodes.iter().zip(&self.site.observed);
        for (place, ((node, observed), twin)) in nodes.zip(twins).enumerate() {
            let (Some(twin), name) = (twin, &node.name) else { continue };
            let published = observed.advising().map(NodeAdvice::published).unwrap_or_default();
            if self.site.cluster.pods.is_none() {
                if !published.is_empty() {
                    advised.insert(place, published);
                }
                continue;
            }
            let law = &self.settings.rescheduling.migration;
            let node = NodeConditions::of(name, twin);
            let reason = law.reason_of_marked(&node, published.mark);
            let pods = reason.map(|_| self.movable_pods(name)).unwrap_or_default();
            let recommends = !pods.is_empty();
            let mark = law.mark(&node, published.mark, recommends);
            match reason.filter(|_| recommends) {
                Some(reason) => leaving.push(Leaving { place, reason, mark, published, pods }),
                None if mark.is_some() => drop(advised.insert(place, NodeAdvice { pods: Vec::new(), mark })),
                None => {}
            }
        }
        if !leaving.is_empty() {
            self.look_for_better(leaving, twins, &mut advised);
        }
        advised
    }

    /// The pods of a node that may leave, the largest first, then by name.
    fn movable_pods(&self, node: &str) -> Vec<(&ObjectKey, &Arc<PodSeen>)> {
        let mut pods: Vec<_> = self
            .site
            .movable
            .on(node)
            .filter(|(key, pod)| self.running(key, pod).may_leave().is_ok())
            .collect();
        pods.sort_by_key(|(key, pod)| (std::cmp::Reverse(needs(pod).cpu_milli), *key));
        pods.truncate(PODS_MAX);
        pods
    }

    /// A pod in the planner's terms.
    pub(super) fn running<'a>(&self, key: &'a ObjectKey, pod: &'a PodSeen) -> RunningPod<'a> {
        RunningPod {
            namespace: &key.namespace,
            name: &key.name,
            node: pod.node().unwrap_or_default(),
            hints: pod.hints(),
            demand: pod.row(&key.namespace, &self.settings.selectors.profile_key).asks.class(),
        }
    }

    fn look_for_better(&self, leaving: Vec<Leaving<'_>>, twins: &[Option<Twin>], advised: &mut Advised) {
        let sites = self.sites(twins);
        let law = self.settings.rescheduling.migration;
        let mut destinations = Destinations::new(law, RELIEF.min(law.threshold()), &sites);
        for Leaving { place, reason, mark, published, pods } in leaving {
            let why = ShownReason::of(reason, published.pods.first().map(|first| first.why));
            let pods = pods.into_iter().map(|(key, pod)| {
                let before =
                    published.pods.iter().find(|one| one.namespace == key.namespace && one.name == key.name);
                let before = before.and_then(|one| self.site.find(one.to.as_deref()?));
                let wanted = WantedPlace { from: place, reason, needs: needs(pod), before };
                let may_run = |at: usize| self.may_run(pod, at);
                let to = destinations.take(&wanted, may_run).and_then(|at| self.site.observed.get(at));
                let (namespace, name) = (key.namespace.clone(), key.name.clone());
                PodAdvice { namespace, name, why, to: to.map(|to| to.node.name.clone()) }
            });
            advised.insert(place, NodeAdvice { pods: pods.collect(), mark });
        }
    }

    /// Whether the scheduler would put a pod on the node with this index.
    pub(super) fn may_run(&self, pod: &PodSeen, at: usize) -> bool {
        self.site.observed.get(at).is_some_and(|observed| pod.may_run_on(&observed.node))
    }

    /// Every node as a place for pods, by its index.
    pub(super) fn sites(&self, twins: &[Option<Twin>]) -> Vec<Site<'_>> {
        let nodes = &self.site.cluster.nodes;
        let pods = self.site.cluster.pods.as_ref();
        let asked = pods.map(|pods| Beside::new(nodes.iter().map(|node| &*node.name), pods.asked()));
        let all = nodes.iter().zip(&self.site.observed).zip(twins).enumerate();
        let site = |(at, ((node, observed), twin)): (usize, ((_, &'_ Arc<Observed>), &Option<Twin>))| {
            let node: &planner::node::Node = node;
            let conditions = match twin {
                Some(twin) => NodeConditions::of(&node.name, twin),
                None => NodeConditions::unknown(&node.name),
            };
            let asked = asked.as_ref().map(|asked| asked.at(at).unwrap_or_default());
            let open =
                twin.is_some() && node.presence == Presence::Ready && !node.unschedulable && !node.reserved;
            let free = asked.map_or_else(RequestedResources::default, |asked| {
                observed.node.allocatable.less(resources(asked))
            });
            Site { node: conditions, open, free }
        };
        all.map(site).collect()
    }

    /// Tells that recommendations for a node have begun or ended.
    pub(super) fn say_advice(&mut self, observed: &Observed, advice: &NodeAdvice) {
        let there = observed.advising().and_then(|status| status.reschedule_recommendations.as_ref());
        let is_published = there.is_some_and(|list| !list.is_empty());
        let is_advised = !advice.pods.is_empty();
        if is_published == is_advised && self.advice_told.is_empty() {
            return;
        }
        let node = &observed.node.name;
        if self.advice_told.get(node).copied().unwrap_or(is_published) != is_advised {
            let (reason, text) = match advice.pods.first() {
                Some(first) => {
                    let count = advice.pods.len();
                    (
                        RESCHEDULE_ADVISED,
                        format!("{count} pods would better run elsewhere: {}", first.why.words()),
                    )
                }
                None => (RESCHEDULE_OVER, "no pod is recommended to leave any more".to_owned()),
            };
            self.recorder.say(Note {
                regarding: super::reference(&observed.node),
                severity: reason.severity,
                reason: reason.word,
                action: "Recommend",
                text,
            });
            self.advice_told.insert(node.clone(), is_advised);
        } else if is_advised == is_published {
            // What is published tells it.
            self.advice_told.remove(node);
        }
    }
}

/// What a pod needs of another node.
pub(super) fn needs(pod: &PodSeen) -> RequestedResources {
    pod.moving.as_ref().map(|moving| moving.needs).unwrap_or_default()
}

fn resources(asked: Asked) -> RequestedResources {
    let few = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    RequestedResources {
        cpu_milli: asked.cpu_milli,
        memory_bytes: asked.memory_bytes,
        gpus: few(asked.gpus),
        pods: few(asked.pods),
    }
}
