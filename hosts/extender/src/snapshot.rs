//! The input of decisions: an immutable snapshot of all nodes, in which everything is precomputed that does not
//! depend on the pod.

use crate::budgets::{BudgetIndex, Budgets, Left};
use crate::evictable::Evictables;
use crate::expected::Expectations;
use crate::gpus::Gpus;
use crate::index::{Index, Registry};
use crate::kinds::Kinds;
use crate::queue::Queue;
use crate::seen::SeenVersions;
use crate::shortlist::{OtherScores, Remembered};
use host_kit::clock::Mono;
use joulie_api::node_hardware::DrawnSample;
use joulie_api::workload_profile::TrustedProfiles;
use joulie_core::placement::assumed::{NodeKey, PodUid};
use joulie_core::placement::class::{SchedulableClass, WorkloadClass};
use joulie_core::placement::cluster::ClusterAggregates;
use joulie_core::placement::estimate::HardwareRecord;
use joulie_core::placement::filter::{FilterTerms, Rejection};
use joulie_core::placement::freshness::{
    Evidence, Freshness, FreshnessRule, Now, PlanLease, TelemetryFreshness, UnixTime,
};
use joulie_core::placement::kube_scheduler::{ScheduledNode, ScheduledPod, SchedulerProfile};
use joulie_core::placement::score::{ConsolidateTerms, NodeFacts, NodeTerms, Scoring, TwinStatus};
use joulie_core::placement::sensitivity::CapDepth;
use power_units::Watts;
use std::borrow::Cow;
use std::sync::Arc;

/// The snapshot.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) fleet: Arc<Fleet>,
    /// The watts of pods that no sample includes yet, by node number.
    pub(crate) assumed: Box<[Watts]>,
    /// What is left for pods, by node number; empty before it was computed.
    pub(crate) left: Left,
    /// How many thousandths of a core a pod without GPUs may take of a node before it takes those that the free GPUs need, by
    /// node number; empty where that is not looked at.
    pub(crate) gpu_room: Box<[i64]>,
    /// The nodes as kube-scheduler counts them, by node number; empty where that is not looked at.
    pub(crate) loads: Box<[ScheduledNode]>,
    /// The nodes as `SCORING_FORMULA=consolidate` counts them, by node number; empty with another formula.
    pub(crate) consolidated: Box<[Option<ConsolidateTerms>]>,
    /// How many pods these are.
    pub(crate) assumed_pods: usize,
    /// How many more pods are on nodes whose hardware is not known yet.
    pub(crate) waiting_pods: usize,
    /// The pods that wait for a node.
    pub(crate) queue: Arc<Queue>,
    /// What trusted profiles say of workloads.
    pub(crate) workloads: Arc<TrustedProfiles>,
    /// What kube-scheduler's other scores depend on, for the shortlist.
    pub(crate) other_scores: Arc<OtherScores>,
    /// The pods that were given a shortlist. All snapshots of a program share it, and requests change it.
    pub(crate) remembered: Arc<Remembered>,
    /// The pods with GPUs that preempt may name.
    pub(crate) evictables: Evictables,
    /// Up to which versions the objects are in it.
    pub(crate) seen: SeenVersions,
    pub(crate) at: Mono,
}

/// The nodes, without assumed and waiting pods.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// Whether all objects that affect decisions were read at least once. Before that, requests are refused.
    pub(crate) synced: bool,
    pub(crate) index: Arc<Index>,
    /// What a pod adds to each kind of hardware.
    pub(crate) kinds: Kinds,
    /// By node number.
    pub(crate) terms: Box<[NodeTerms]>,
    pub(crate) filters: Box<[FilterTerms]>,
    /// By how much the caps are below the ratings.
    pub(crate) depths: Box<[CapDepth]>,
    pub(crate) admissions: Box<[Admission]>,
    /// The GPUs, where they are looked at.
    pub(crate) gpus: Arc<Gpus>,
    /// What the limits can grant, and the budget of each node, by node number.
    pub(crate) budgets: Budgets,
    pub(crate) places: Box<[BudgetIndex]>,
    /// The key of the profile label, for requests that have nodes with labels.
    pub(crate) profile_key: Arc<str>,
    /// For display only.
    pub(crate) nodes: Box<[Node]>,
    pub(crate) cluster: Option<ClusterAggregates>,
}

/// Whether a node admits performance pods, apart from power. Standard pods always pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Each value is its bit, so that no conversion is needed.
#[repr(u8)]
pub(crate) enum Admission {
    /// The node admits them.
    Free = 1,
    /// The node admits them unless the label of its object in the request says eco: there is no usable twin, and no
    /// label is known here.
    Unlabelled = 2,
    /// The node rejects them because its twin says eco.
    Eco = 4,
    /// The node rejects them because its twin says draining.
    Draining = 8,
    /// The node rejects them because its label says eco and no twin overrules it.
    EcoLabel = 16,
}

impl Admission {
    pub(crate) const UNKNOWN: Self = Self::Unlabelled;

    /// The bit of this value.
    pub(crate) const fn bit(self) -> u8 {
        match self {
            Self::Free => 1,
            Self::Unlabelled => 2,
            Self::Eco => 4,
            Self::Draining => 8,
            Self::EcoLabel => 16,
        }
    }

    fn of(node: &Node) -> Self {
        let facts = node.facts();
        let admits = |label| FilterTerms::of(&facts, label).admits(WorkloadClass::Performance);
        match (admits(node.eco_label), admits(true)) {
            (Err(Rejection::Eco), _) => Self::Eco,
            (Err(Rejection::Draining), _) => Self::Draining,
            (Err(Rejection::EcoLabel), _) => Self::EcoLabel,
            (Ok(()), Err(_)) => Self::Unlabelled,
            // Only the class of the pod was checked.
            (Ok(()), Ok(()))
            | (
                Err(
                    Rejection::OverCap { .. }
                    | Rejection::OverBudget { .. }
                    | Rejection::Gpu(_)
                    | Rejection::GpuWish(_)
                    | Rejection::GpuCores
                    | Rejection::Deferred,
                ),
                _,
            ) => Self::Free,
        }
    }
}

/// What is known of a node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Empty for a free number.
    pub(crate) name: Arc<str>,
    pub(crate) twin: Option<TwinStatus>,
    pub(crate) evidence: Evidence,
    pub(crate) sampled: Option<UnixTime>,
    /// The measurement of its twin, if it is that of its agent; `twin` and `sampled` may show a later one.
    pub(crate) of_agent: Option<DrawnSample>,
    /// The last sample of its agent.
    pub(crate) sample: Option<DrawnSample>,
    pub(crate) tdp: Option<f64>,
    pub(crate) freshness: Freshness,
    pub(crate) hardware: Option<HardwareRecord>,
    pub(crate) eco_label: bool,
    /// The PowerBudget that it is in.
    pub(crate) budget: Option<Arc<str>>,
}

impl Node {
    pub(crate) fn unknown(name: &str) -> Self {
        Self {
            name: name.into(),
            twin: None,
            evidence: Evidence::NoTwin,
            sampled: None,
            of_agent: None,
            sample: None,
            tdp: None,
            freshness: Freshness::Absent,
            hardware: None,
            eco_label: false,
            budget: None,
        }
    }

    pub(crate) fn facts(&self) -> NodeFacts<'_> {
        NodeFacts { freshness: self.freshness, twin: self.twin.as_ref(), hardware: self.hardware.as_ref() }
    }

    /// Takes in a sample of the node's agent that is no earlier than that of its twin: a twin is not written again while the power
    /// hardly moves, and it would never say that a pod's power is in it. More than the twin says counts at once, less once
    /// the twin says so. A sample from the future is of now at the latest, and its watts count. If both are from the future
    /// and were first seen at once, they have one date.
    fn see_sample(&mut self, now: UnixTime) {
        let Some(said) = self.of_agent else { return };
        let sample = self.sample.map(|sample| DrawnSample { at: sample.at.min(now), ..sample });
        let later = sample.filter(|sample| said.at <= sample.at);
        self.sampled = Some(later.map_or(said.at, |later| later.at));
        if let Some(power) = self.twin.as_mut().and_then(|twin| twin.power.as_mut()) {
            power.measured = Some(later.map_or(said.watts, |later| said.watts.max(later.watts)));
        }
    }
}

/// The rules by which a snapshot is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'r> {
    pub(crate) scoring: &'r Scoring,
    pub(crate) profile_key: &'r Arc<str>,
    pub(crate) freshness: FreshnessRule,
    pub(crate) lease: PlanLease,
    pub(crate) now: Now,
}

impl Rules<'_> {
    /// Whether somebody renews the plan's Lease, so that what the operator said last still stands.
    pub(crate) fn plans(&self) -> bool {
        let said = Evidence::Leased(TelemetryFreshness::Fresh);
        self.freshness.judge(said, self.lease, self.now).is_fresh()
    }
}

impl Fleet {
    /// Computes everything. `nodes` are in the order of their numbers.
    pub(crate) fn of(nodes: Box<[Node]>, index: Arc<Index>, rules: &Rules<'_>, synced: bool) -> Self {
        Self::with((Budgets::default(), Arc::default()), nodes, index, rules, synced)
    }

    /// The same under these budgets, and with these GPUs.
    pub(crate) fn with(
        (budgets, gpus): (Budgets, Arc<Gpus>),
        mut nodes: Box<[Node]>,
        index: Arc<Index>,
        rules: &Rules<'_>,
        synced: bool,
    ) -> Self {
        for (number, node) in nodes.iter_mut().enumerate() {
            if let Some(of_node) = node.hardware.as_mut().and_then(|hardware| hardware.gpus.as_mut()) {
                of_node.adds = gpus.adds(number);
            }
        }
        let budgets = budgets.at(rules.now.wall);
        let places = budgets.places(&nodes);
        budgets.price(&mut nodes, &places);
        for node in &mut nodes {
            node.see_sample(rules.now.wall);
            node.freshness = rules.freshness.judge(node.evidence, rules.lease, rules.now);
        }
        let judged = nodes.iter().filter_map(|node| Some((node.freshness, node.twin.as_ref()?)));
        let cluster = ClusterAggregates::of(judged);
        let hardware = nodes.iter().map(|node| node.hardware.as_ref());
        let kinds = Kinds::of(hardware, &rules.scoring.coefficients);
        let terms = nodes.iter().map(|node| NodeTerms::of(&node.facts(), &cluster, rules.scoring)).collect();
        let filters = nodes.iter().map(|node| FilterTerms::of(&node.facts(), node.eco_label)).collect();
        let depths = nodes.iter().map(|node| node.twin.map(|twin| twin.cap_depth()).unwrap_or_default());
        let depths = depths.collect();
        let admissions = nodes.iter().map(Admission::of).collect();
        let (profile_key, cluster) = (rules.profile_key.clone(), Some(cluster));
        Self {
            synced,
            index,
            kinds,
            terms,
            filters,
            depths,
            admissions,
            gpus,
            budgets,
            places,
            profile_key,
            nodes,
            cluster,
        }
    }

    /// What is left for pods on each node, when these watts are assumed there.
    pub(crate) fn left(&self, assumed: &[Watts]) -> Left {
        let of = |node: &Node| node.twin.map_or(SchedulableClass::Unknown, |twin| twin.class);
        let classes: Vec<SchedulableClass> = self.nodes.iter().map(of).collect();
        self.budgets.left(&self.places, &classes, &self.filters, assumed)
    }

    /// The nodes that exist, with their numbers.
    pub(crate) fn known(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.nodes.iter().enumerate().filter(|(_, node)| !node.name.is_empty())
    }
}

impl Snapshot {
    /// An empty snapshot, from before the first reading.
    pub(crate) fn nothing() -> Self {
        Self {
            fleet: Arc::new(Fleet::default()),
            assumed: Box::default(),
            left: Left::default(),
            gpu_room: Box::default(),
            loads: Box::default(),
            consolidated: Box::default(),
            assumed_pods: 0,
            waiting_pods: 0,
            queue: Arc::default(),
            workloads: Arc::default(),
            other_scores: Arc::default(),
            remembered: Arc::default(),
            evictables: Evictables::default(),
            seen: SeenVersions::default(),
            at: Mono::START,
        }
    }

    /// A copy of what it knows, with no pod remembered.
    pub(crate) fn alike(&self) -> Self {
        Self {
            fleet: self.fleet.clone(),
            assumed: self.assumed.clone(),
            left: self.fleet.left(&self.assumed),
            gpu_room: self.gpu_room.clone(),
            loads: self.loads.clone(),
            consolidated: self.consolidated.clone(),
            queue: self.queue.clone(),
            workloads: self.workloads.clone(),
            other_scores: self.other_scores.clone(),
            remembered: Arc::default(),
            evictables: self.evictables.clone(),
            seen: self.seen.clone(),
            ..*self
        }
    }

    /// The same, with what is left for pods on each node.
    pub(crate) fn with_left(self) -> Self {
        Self { left: self.fleet.left(&self.assumed), ..self }
    }

    /// What a pod that waits for a node adds to this node, if there is such a pod. It uses the requests of the pod's
    /// object, whatever a scheduling request says.
    pub(crate) fn adds(&self, pod: PodUid, NodeKey(number): NodeKey) -> Option<Watts> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        Some(self.fleet.kinds.added(number, self.queue.find(pod)?))
    }

    /// How full processors and memory of a node are with a pod, from 0 to 100; 0 where its size is not known.
    pub(crate) fn fill(&self, pod: &ScheduledPod, number: Option<usize>) -> u8 {
        let profile = SchedulerProfile { balance: 0, ..SchedulerProfile::PACKING };
        let load = number.and_then(|number| self.loads.get(number));
        u8::try_from(load.map_or(0, |load| profile.resources(load, pod))).unwrap_or(100)
    }

    /// How `SCORING_FORMULA=consolidate` counts a node.
    #[inline]
    pub(crate) fn consolidated(&self, number: Option<usize>) -> Option<&ConsolidateTerms> {
        self.consolidated.get(number?)?.as_ref()
    }

    /// Whether a pod without GPUs that asks for so many thousandths of a core would take some that the free GPUs of the node
    /// need.
    pub(crate) fn takes_gpu_cores(&self, milli: i64, number: Option<usize>) -> bool {
        number.and_then(|number| self.gpu_room.get(number)).is_some_and(|room| milli > *room)
    }

    /// The watts that the node of this number is assumed to draw in addition to its measurement.
    pub(crate) fn assumed(&self, number: usize) -> Watts {
        self.assumed.get(number).copied().unwrap_or(Watts::ZERO)
    }
}

/// The input of one decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'v> {
    pub(crate) snapshot: &'v Snapshot,
    pub(crate) expected: &'v Expectations,
    pub(crate) now: Mono,
}

impl<'v> View<'v> {
    /// Whether other pods than this one are expected.
    pub(crate) fn expects_others(&self, pod: Option<PodUid>) -> bool {
        self.expected.of_others(pod, self.now).next().is_some()
    }

    /// The watts that no sample includes, by node number, against which a pod is scored: those of pods that were seen
    /// bound, and those of other pods that are expected. Nothing is copied if there are no expectations.
    pub(crate) fn unseen(&self, pod: Option<PodUid>) -> Cow<'v, [Watts]> {
        let mut watts = Cow::Borrowed(&*self.snapshot.assumed);
        for (NodeKey(number), added) in self.expected.of_others(pod, self.now) {
            let place = usize::try_from(number).unwrap_or(usize::MAX);
            // A node that was added since then has no place here, and no candidate refers to it.
            if let Some(sum) = watts.to_mut().get_mut(place) {
                *sum += added;
            }
        }
        watts
    }
}

/// Empty places for all numbers of a registry.
pub(crate) fn places(registry: &Registry) -> Box<[Node]> {
    vec![Node::unknown(""); registry.len()].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulie_core::placement::score::TwinPower;

    fn at(second: i64) -> UnixTime {
        UnixTime::from_micros(second * 1_000_000)
    }

    fn sample(second: i64, watts: i32) -> Option<DrawnSample> {
        Some(DrawnSample { at: at(second), watts: Watts::from_int(watts) })
    }

    /// A node whose twin says that it drew 500 W at 10 s.
    fn node(of_agent: Option<DrawnSample>) -> Node {
        let power = TwinPower { measured: Some(Watts::from_int(500)), capped: None, trend: None };
        let twin = TwinStatus { power: Some(power), ..TwinStatus::silent(SchedulableClass::Performance) };
        Node { twin: Some(twin), sampled: Some(at(10)), of_agent, ..Node::unknown("a") }
    }

    fn shown(node: &Node) -> (Option<UnixTime>, Option<Watts>) {
        (node.sampled, node.twin.unwrap().power.unwrap().measured)
    }

    #[test]
    fn a_later_sample_of_the_agent_shows_what_a_twin_that_stands_does_not_say() {
        let mut node = node(sample(10, 500));
        for (sample, now, second, watts) in [
            (None, 30, 10, 500),
            // The twin has it already: an operator got it after it was taken.
            (sample(9, 700), 30, 10, 500),
            // Of the same date: which is the later one is not known.
            (sample(10, 700), 30, 10, 700),
            (sample(10, 400), 30, 10, 500),
            (sample(24, 480), 30, 24, 500),
            (sample(24, 520), 30, 24, 520),
            // It is not kept: the next one is compared with what the twin says.
            (sample(26, 510), 30, 26, 510),
            // Of a clock that is ahead: whenever it was measured, it is more.
            (sample(131, 900), 30, 30, 900),
            (sample(131, 400), 30, 30, 500),
            (sample(31, 900), 31, 31, 900),
            // Its object is gone or cannot be read.
            (None, 31, 10, 500),
        ] {
            node.sample = sample;
            node.see_sample(at(now));
            assert_eq!(shown(&node), (Some(at(second)), Some(Watts::from_int(watts))), "{sample:?}");
        }
    }

    #[test]
    fn a_sample_of_the_agent_says_nothing_of_what_another_meter_measures() {
        let mut node = node(None);
        node.sample = sample(24, 520);
        node.see_sample(at(30));
        assert_eq!(shown(&node), (Some(at(10)), Some(Watts::from_int(500))));
    }
}
