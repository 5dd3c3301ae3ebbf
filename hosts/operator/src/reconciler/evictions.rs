//! Rounds of evictions: what the law is told, and what becomes of its decisions.
//!
//! A round is made in the first pass after each `RESCHEDULE_INTERVAL`. Between rounds it is only noticed whether the
//! stress of a node lasts. While the pods are not known there is no round. Performance pods are candidates only where the
//! drain of their node is overdue and `DRAIN_OVERDUE=evict`.

use super::advise::needs;
use super::{Reconciler, stamp};
use crate::evict::{EndedEviction, EvictionEnd, EvictionOrder, EvictionResult, OwnerKind};
use crate::publish::ShownReason;
use crate::reasons::{EVICTION_DENIED, POD_EVICTED};
use crate::rows::PodSeen;
use crate::site::owner;
use host_kit::clock::Mono;
use host_kit::events::{EventReason, Note};
use host_kit::leader::Term;
use host_kit::reflect::ObjectKey;
use k8s_openapi::api::core::v1::ObjectReference;
use planner::demand::DemandClass;
use planner::guard::HoldReason;
use planner::migration::NodeConditions;
use planner::migration::eviction::{
    EvictionCandidate, EvictionDecision, EvictionLaw, EvictionVerdict, Evictor, Facts, Owner, Skip,
};
use planner::node::Visibility;
use planner::plan::{DrainOverdue, NodeDecision, Plan};
use planner::twin::Twin;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is remembered of evictions in one term.
#[derive(Debug, Default)]
pub(super) struct EvictionMemory {
    evictor: Evictor,
    last_round: Option<Mono>,
}

/// A pod that might be evicted, with what the law does not need to know.
struct MovablePod<'a> {
    key: &'a ObjectKey,
    pod: &'a Arc<PodSeen>,
    owner: Option<String>,
    /// Its node's drain is overdue, and it is one of the pods that keep it.
    ends_drain: bool,
}

impl Reconciler {
    /// The pods to evict now.
    pub(super) fn evictions(&mut self, twins: &[Option<Twin>], plan: &Plan, now: Mono) -> Vec<EvictionOrder> {
        let Some(law) = self.settings.rescheduling.eviction else {
            // Once evictions are asked for again, a stress must last anew.
            self.evictions.evictor.look_away();
            return Vec::new();
        };
        let mut memory = std::mem::take(&mut self.evictions);
        let nodes: Vec<NodeConditions<'_>> = self
            .site
            .observed
            .iter()
            .zip(twins)
            .filter_map(|(observed, twin)| Some(NodeConditions::of(&observed.node.name, twin.as_ref()?)))
            .collect();
        memory.evictor.watch(&law, stamp(now), &nodes);
        let every = self.settings.rescheduling.every;
        let is_due = memory.last_round.is_none_or(|last| now >= last.plus(every));
        let mut orders = Vec::new();
        if is_due && self.site.cluster.pods.is_some() {
            memory.last_round = Some(now);
            let late = self.late(plan);
            let movable = self.to_be_judged(&law, &nodes, &late);
            let decisions = self.round_of_evictions(&law, &mut memory.evictor, &movable, twins, now);
            orders = self.orders(&decisions, &movable);
            self.stats.reschedule.judged(&decisions);
        }
        self.evictions = memory;
        orders
    }

    /// The nodes whose performance pods are to be evicted because their drain is overdue: neither one that is paused nor
    /// one that is not seen clearly.
    fn late(&self, plan: &Plan) -> BTreeSet<Arc<str>> {
        if self.settings.plan.drain.then != DrainOverdue::Evict {
            return BTreeSet::new();
        }
        let is_clear = |decision: &&NodeDecision| {
            let node = self.site.cluster.nodes.get(decision.place);
            node.is_some_and(|node| node.visibility == Visibility::Clear)
        };
        let drains = |decision: &&NodeDecision| decision.guard.held == Some(HoldReason::Draining);
        let overdue = plan.nodes.iter().filter(|decision| decision.overdue);
        overdue.filter(drains).filter(is_clear).map(|decision| decision.node.clone()).collect()
    }

    /// The pods on nodes that pods should leave.
    fn to_be_judged(
        &self,
        law: &EvictionLaw,
        nodes: &[NodeConditions<'_>],
        late: &BTreeSet<Arc<str>>,
    ) -> Vec<MovablePod<'_>> {
        let stressed = nodes.iter().filter(|node| law.reason(node).is_some());
        let past_bound = self.site.asking.past();
        let mut movable = Vec::new();
        for node in stressed {
            let is_late = late.contains(node.name);
            for (key, pod) in self.site.movable.on(node.name) {
                let needs_full_power = || self.running(key, pod).demand == DemandClass::PerformanceOnly;
                // A pod past the bound on performance keeps no drain.
                let ends_drain = is_late && needs_full_power() && !past_bound.contains_key(key);
                movable.push(MovablePod { key, pod, owner: owner(key, pod), ends_drain });
            }
        }
        movable
    }

    fn round_of_evictions(
        &self,
        law: &EvictionLaw,
        evictor: &mut Evictor,
        movable: &[MovablePod<'_>],
        twins: &[Option<Twin>],
        now: Mono,
    ) -> Vec<EvictionDecision> {
        let candidates: Vec<_> = movable.iter().map(|one| self.candidate(one)).collect();
        if candidates.is_empty() {
            return Vec::new();
        }
        let sites = self.sites(twins);
        let by_name: BTreeMap<_, _> =
            movable.iter().map(|one| ((&*one.key.namespace, &*one.key.name), one)).collect();
        let facts = Facts { now: stamp(now), sites: &sites, candidates: &candidates, outcomes: &[] };
        evictor.step(law, &facts, |candidate, site| {
            let one = by_name.get(&(candidate.pod.namespace, candidate.pod.name));
            let at = self.site.find(site.node.name);
            one.zip(at).is_some_and(|(one, at)| self.may_run(one.pod, at))
        })
    }

    fn candidate<'a>(&self, one: &'a MovablePod<'_>) -> EvictionCandidate<'a> {
        let MovablePod { key, pod, owner, ends_drain } = one;
        let kind = pod.owner.as_ref().map(|owner| owner.workload().0);
        let is_mirror = pod.moving.as_ref().is_none_or(|moving| moving.mirror);
        let owner = match (kind, owner) {
            (Some("DaemonSet" | "Node"), _) => Owner::Pinned,
            _ if is_mirror => Owner::Pinned,
            // Cooldown is read from the owner itself, before it is told.
            (Some(kind), Some(key)) if OwnerKind::read(kind).is_some() => {
                Owner::Controller { key, evicted_ago: None }
            }
            (Some(_), _) => Owner::Other,
            (None, _) => Owner::Nobody,
        };
        EvictionCandidate {
            pod: self.running(key, pod),
            owner,
            needs: needs(pod),
            others: self.site.movable.others(key, pod),
            leaving: pod.leaves(),
            ends_drain: *ends_drain,
        }
    }

    /// The orders for these decisions. Those of a dry run are only told.
    fn orders(&self, decisions: &[EvictionDecision], movable: &[MovablePod<'_>]) -> Vec<EvictionOrder> {
        let mut skips: BTreeMap<Skip, i64> = BTreeMap::new();
        let mut orders = Vec::new();
        for EvictionDecision { node, namespace, name, verdict } in decisions {
            let (owner, from_class, shown, to, dry_run) = match verdict {
                EvictionVerdict::Skip(skip) => {
                    *skips.entry(*skip).or_default() += 1;
                    continue;
                }
                EvictionVerdict::Evict { owner, from_class, reason, to, dry_run } => {
                    (owner, *from_class, ShownReason::of(*reason, None), to, *dry_run)
                }
            };
            let reason = shown.words();
            if dry_run {
                tracing::info!(
                    "dry run: {namespace}/{name} would be evicted from {node}: {reason}; {to} could accept it"
                );
                self.stats.reschedule.evicted(EvictionResult::DryRun);
                continue;
            }
            let found = movable.iter().find(|one| one.key.namespace == *namespace && one.key.name == *name);
            let found = found.and_then(|one| {
                Some((one.pod.owner.as_ref()?.workload(), one.pod.moving.as_ref()?, one.ends_drain))
            });
            let Some((workload, moving, ends_drain)) = found else {
                continue;
            };
            let Some(owner_kind) = OwnerKind::read(workload.0) else { continue };
            orders.push(EvictionOrder {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: moving.uid.to_string(),
                node: node.clone(),
                from_class,
                cause: shown.cause,
                reason,
                to: to.clone(),
                owner_kind,
                owner_name: workload.1.to_owned(),
                owner: owner.clone(),
                ends_drain,
            });
        }
        self.stats.reschedule.spared(&skips);
        orders
    }

    /// Takes in what came of an order.
    pub(crate) fn evicted(&mut self, ended: EndedEviction, term: Option<Term>, now: Mono) {
        let EndedEviction { order, term: of, became } = ended;
        self.stats.reschedule.evicted(became.result());
        let EvictionOrder { namespace, name, node, reason, to, .. } = &order;
        match &became {
            EvictionEnd::Evicted => {
                // The series of a node that is gone by now would stay.
                if self.site.find(node).is_some() {
                    self.stats.reschedule.moved(node, namespace, order.cause);
                }
                tracing::info!("{namespace}/{name} is evicted from {node}: {reason}; {to} could accept it");
                self.say_eviction(
                    &order,
                    POD_EVICTED,
                    format!("evicted from {node}: {reason}; {to} could accept it"),
                );
            }
            EvictionEnd::Denied(why) => {
                tracing::info!("{namespace}/{name} may not leave {node}: {why}");
                self.say_eviction(
                    &order,
                    EVICTION_DENIED,
                    format!("it should leave {node}: {reason}; {why}"),
                );
            }
            EvictionEnd::Gone => {
                tracing::info!("{namespace}/{name} was gone before it was evicted from {node}")
            }
            EvictionEnd::CoolingDown(why) => tracing::info!("{namespace}/{name} stays on {node}: {why}"),
            EvictionEnd::Failed(why) => {
                tracing::warn!("{namespace}/{name} cannot be evicted from {node}: {why}")
            }
            EvictionEnd::Unknown(why) => {
                tracing::warn!("it is not known whether {namespace}/{name} was evicted from {node}: {why}");
            }
            EvictionEnd::Withdrawn => {}
        }
        if let Some(outcome) = became.outcome().filter(|_| term == Some(of)) {
            self.evictions.evictor.conclude(stamp(now), &order.owner, outcome);
        }
    }

    fn say_eviction(&self, order: &EvictionOrder, reason: EventReason, text: String) {
        self.recorder.say(Note {
            regarding: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(order.namespace.clone()),
                name: Some(order.name.clone()),
                uid: Some(order.uid.clone()),
                ..ObjectReference::default()
            },
            severity: reason.severity,
            reason: reason.word,
            action: "Evict",
            text,
        });
    }
}
