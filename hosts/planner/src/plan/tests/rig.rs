//! A cluster that carries plans out: labels and objects change as written, and agents confirm as set.

use super::*;
use crate::budget::BudgetLimits;
use crate::demand::Asked;
use crate::node::rig::{self, carried, state};
use crate::node::{Carried, Published};
use std::ops::Deref;

#[derive(Clone, Debug)]
pub(super) struct Rig {
    pub(super) nodes: Vec<Node>,
    /// Nodes without a Node object whose other objects still exist.
    pub(super) gone: Vec<Node>,
    pub(super) pods: Option<Vec<PodRow<'static>>>,
    /// The namespaces outside managed scope.
    pub(super) ignored: BTreeSet<String>,
    pub(super) seconds: u64,
    /// How agents confirm a desired state that was just written.
    pub(super) agents: Confirmation,
    pub(super) memory: PlanMemory,
}

/// A plan, and the differences from it.
#[derive(Debug)]
pub(super) struct Passed {
    plan: Plan,
    changes: BTreeMap<Arc<str>, Vec<ObjectChange>>,
}

impl Deref for Passed {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl Passed {
    /// The changes that were to be written for a node.
    pub(super) fn changes(&self, name: &str) -> &[ObjectChange] {
        self.changes.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether nothing was to be written for any planned node.
    pub(super) fn is_quiet(&self) -> bool {
        self.plan.nodes.iter().all(|node| self.changes(&node.node).is_empty())
    }
}

impl Rig {
    /// Nodes by name, GPU model and count, with agents that confirm at once.
    pub(super) fn of(nodes: &[(&str, &str, u32)]) -> Self {
        Self {
            nodes: nodes.iter().map(|&(name, gpu, count)| row(name, gpu, count)).collect(),
            gone: Vec::new(),
            pods: Some(Vec::new()),
            ignored: BTreeSet::new(),
            seconds: 0,
            agents: Confirmation::InForce,
            memory: PlanMemory::default(),
        }
    }

    pub(super) fn cluster(&self) -> ClusterState {
        ClusterState {
            nodes: self.nodes.clone(),
            gone: self.gone.clone(),
            limits: Vec::new(),
            pods: self
                .pods
                .as_ref()
                .map(|pods| PodCounts::of(pods.iter().filter_map(|pod| pod.counted(&self.ignored)))),
            facility: Facility::default(),
            now: Stamp::new(Micros::new(self.seconds * 1_000_000)),
            wall_clock: Micros::new(self.seconds * 1_000_000),
            raises: true,
        }
    }

    /// Plans, and writes the differences.
    pub(super) fn pass(&mut self, settings: &Settings) -> Passed {
        let plan = plan(&self.cluster(), settings, &self.memory);
        self.apply(plan, settings)
    }

    /// Runs passes until nothing more can change: at most an upgrade, its confirmation, its label and
    /// one release after that.
    pub(super) fn settle(&mut self, settings: &Settings) {
        for _ in 0..6 {
            self.pass(settings);
            self.confirm();
        }
    }

    /// All agents confirm.
    pub(super) fn confirm(&mut self) {
        for row in &mut self.nodes {
            row.confirmation = Confirmation::InForce;
        }
    }

    pub(super) fn apply(&mut self, plan: Plan, settings: &Settings) -> Passed {
        let mut changes = BTreeMap::new();
        for decision in &plan.nodes {
            let node = self.find(&decision.node);
            let objects = desired(node, Some(decision), settings);
            self.write(&decision.node, &objects, plan.fallback.is_some(), &mut changes);
            self.memory.commit(decision);
        }
        for release in &plan.releases {
            self.write(&release.node, &release.objects, false, &mut changes);
            self.memory.commit_release(release);
        }
        Passed { plan, changes }
    }

    fn write(
        &mut self,
        name: &Arc<str>,
        objects: &Objects,
        stands_in: bool,
        all: &mut BTreeMap<Arc<str>, Vec<ObjectChange>>,
    ) {
        let agents = self.agents;
        let Some(node) = self.nodes.iter_mut().chain(&mut self.gone).find(|node| node.name == *name) else {
            return;
        };
        let changes = diff(objects, node, stands_in);
        for change in &changes {
            match change {
                ObjectChange::State(publish) => {
                    let there = Some(carried(publish.desired.clone()));
                    if publish.profile {
                        node.published.profile = there.clone();
                        node.confirmation = agents;
                    }
                    if publish.twin {
                        node.published.twin = there;
                    }
                }
                ObjectChange::Labels { profile, draining } => {
                    if let Some(profile) = profile {
                        node.labels.profile.text = Some(profile.as_str().into());
                    }
                    node.labels.draining.text = draining.map(|draining| draining.to_string().into());
                }
                ObjectChange::Taint(taint) => node.tainted = *taint,
                ObjectChange::NoLabels => {
                    (node.labels.profile.text, node.labels.draining.text) = (None, None)
                }
                ObjectChange::NoState => node.published = Published::default(),
            }
        }
        all.insert(name.clone(), changes);
        self.gone.retain(|node| node.published != Published::default());
    }

    pub(super) fn row(&mut self, name: &str) -> &mut Node {
        self.nodes.iter_mut().find(|row| &*row.name == name).unwrap()
    }

    fn find(&self, name: &str) -> &Node {
        self.nodes.iter().find(|row| &*row.name == name).unwrap()
    }

    /// Removes the Node object; the published objects stay.
    pub(super) fn delete(&mut self, name: &str) {
        let at = self.nodes.iter().position(|row| &*row.name == name).unwrap();
        self.gone.push(Node { presence: Presence::Gone, ..self.nodes.remove(at) });
    }

    pub(super) fn publish(&mut self, name: &str, there: Carried) {
        let twin = Some(carried(there.desired.clone()));
        let published = Published { profile: Some(there), twin, ..Published::default() };
        self.row(name).published = published;
    }

    pub(super) fn put_label(&mut self, name: &str, text: &str) {
        self.row(name).labels.profile.text = Some(text.into());
    }

    pub(super) fn add_pods(&mut self, node: &'static str, phase: PodPhase, class: &str, count: usize) {
        let pods = self.pods.as_mut().unwrap();
        pods.extend(std::iter::repeat_n(pod_row(node, phase, class), count));
    }

    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.find(name).labels.profile.text.as_deref()
    }

    pub(super) fn draining(&self, name: &str) -> Option<&str> {
        self.find(name).labels.draining.text.as_deref()
    }

    pub(super) fn caps(&self, name: &str) -> NodeCaps {
        self.find(name).published.caps()
    }
}

/// An eligible node; CPU-only without a GPU model.
pub(super) fn row(name: &str, gpu: &str, count: u32) -> Node {
    let text = |text: &str| Some(text.into()).filter(|text: &Arc<str>| !text.is_empty());
    let labels = LabelFacts {
        cpu_model: text("AMD_EPYC_9654"),
        sockets: Some(2),
        gpu_model: text(gpu),
        gpu_count: text(gpu).map(|_| count),
    };
    rig::node(name, &HardwareFacts { labels, ..HardwareFacts::default() })
}

/// A desired state that the operator owns.
pub(super) fn ours(profile: Profile, caps: NodeCaps) -> Carried {
    carried(state(profile, caps))
}

/// A pod; without a node if `node` is blank.
pub(super) fn pod_row(node: &'static str, phase: PodPhase, class: &str) -> PodRow<'static> {
    PodRow {
        namespace: "default",
        node: Some(node).filter(|node| !node.is_empty()),
        phase,
        terminating: false,
        asks: PodConstraints { workload_class: Some(class.to_owned()), ..PodConstraints::default() },
        asked: Asked::default(),
    }
}

/// Caps in percent, with these CPU caps.
pub(super) fn cpu_intents(performance: i32, eco: i32) -> Intents {
    let percent = |performance, eco| PerProfile {
        performance: Percent::from_int(performance),
        eco: Percent::from_int(eco),
    };
    let caps = CapSettings {
        cpu_percent: percent(performance, eco),
        cpu_watts: PerProfile { performance: Watts::from_int(5000), eco: Watts::from_int(120) },
        cpu_absolute: false,
        gpu_node_cpus: GpuNodeCpus::Leave,
        gpu_percent: percent(100, 60),
        gpu_absolute: false,
    };
    Intents::new(caps, UserRanges::default()).unwrap()
}

/// The settings of the environment's defaults, with this policy.
pub(super) fn settings(policy: PlacementPolicy) -> Settings {
    Settings {
        policy,
        floor: FamilyFloor::Raise,
        guard: GuardMode::Soft,
        draining_label: DrainingLabel::Always,
        intents: cpu_intents(100, 60),
        dwell: None,
        drain: DrainLaw { deadline: Micros::new(3_600_000_000), then: DrainOverdue::Tell },
        release_patience: Micros::new(120_000_000),
        budget: BudgetLimits::none(),
        taint_uncapped: false,
        twin: TwinLaw::STANDARD,
        facility_hold: Micros::MINUTE,
    }
}

pub(super) fn hard(policy: PlacementPolicy) -> Settings {
    Settings { guard: GuardMode::Hard, ..settings(policy) }
}

fn ratio(text: &str) -> Ratio {
    Ratio::parse(text, Role::Nearest).unwrap()
}

pub(super) fn static_partition(fraction: &str) -> PlacementPolicy {
    PlacementPolicy::StaticPartition(StaticPartition::new(ratio(fraction)).unwrap())
}

pub(super) fn queue_aware(base: &str, min: i64, max: i64, pods_per_node: i64) -> PlacementPolicy {
    PlacementPolicy::QueueAware(QueueAware::new(ratio(base), min, max, pods_per_node).unwrap())
}

pub(super) fn cpu_caps(percent: i32) -> NodeCaps {
    NodeCaps { cpu: Some(DeviceCap { percent: Some(Percent::from_int(percent)), watts: None }), gpu: None }
}

pub(super) fn node<'a>(plan: &'a Plan, name: &str) -> &'a NodeDecision {
    plan.nodes.iter().find(|node| &*node.node == name).unwrap()
}

/// The nodes that are planned with this profile, by name.
pub(super) fn planned(plan: &Plan, profile: Profile) -> Vec<&str> {
    let mut names: Vec<_> =
        plan.nodes.iter().filter(|node| node.planned == profile).map(|node| &*node.node).collect();
    names.sort_unstable();
    names
}
