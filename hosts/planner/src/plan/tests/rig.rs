//! A cluster that carries plans out: labels and objects change as written, agents confirm as told.

use super::*;
use crate::demand::Asked;

#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) nodes: Vec<NodeRow>,
    pub(super) pods: Option<Vec<PodRow>>,
    /// The namespaces outside managed scope.
    pub(super) ignored: BTreeSet<String>,
    pub(super) published: Vec<PublishedRow>,
    pub(super) seconds: u64,
    /// What agents say about a desired state that was just written.
    pub(super) agents: Confirmation,
    pub(super) memory: Memory,
}

impl Cluster {
    /// Nodes by name, GPU model and count, with agents that confirm at once.
    pub(super) fn of(nodes: &[(&str, &str, u32)]) -> Self {
        Self {
            nodes: nodes.iter().map(|&(name, gpu, count)| row(name, gpu, count)).collect(),
            pods: Some(Vec::new()),
            ignored: BTreeSet::new(),
            published: Vec::new(),
            seconds: 0,
            agents: Confirmation::InForce,
            memory: Memory::new(),
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            nodes: self.nodes.clone(),
            pods: self.pods.as_ref().map(|pods| PodCounts::of(pods, &self.ignored)),
            published: self.published.clone(),
            now: Stamp::new(Micros::new(self.seconds * 1_000_000)),
            wall_clock: Micros::new(self.seconds * 1_000_000),
        }
    }

    /// Plans, and carries the plan out.
    pub(super) fn pass(&mut self, settings: &Settings) -> Plan {
        let plan = plan(&self.snapshot(), settings, &self.memory);
        self.apply(&plan);
        plan
    }

    /// Passes until nothing more can happen: at most upgrade, confirmation, label and one release later.
    pub(super) fn settle(&mut self, settings: &Settings) {
        for _ in 0..6 {
            self.pass(settings);
            self.confirm();
        }
    }

    /// Every agent has caught up.
    pub(super) fn confirm(&mut self) {
        for row in &mut self.nodes {
            row.confirmation = Confirmation::InForce;
        }
    }

    pub(super) fn apply(&mut self, plan: &Plan) {
        for node in &plan.nodes {
            self.carry_out(&node.node, &node.actions);
            self.memory.commit(node);
        }
        for release in &plan.releases {
            self.carry_out(&release.node, &release.actions);
            self.memory.commit_release(release);
        }
    }

    fn carry_out(&mut self, name: &str, actions: &[Action]) {
        for action in actions {
            match action {
                Action::WriteDesired(desired) => self.publish(name, desired),
                Action::WriteLabels { profile, draining } => {
                    let row = self.row(name);
                    if let Some(profile) = profile {
                        row.profile_label = Some(profile.as_str().into());
                    }
                    row.draining_label = draining.map(|draining| draining.to_string().into());
                }
                Action::RemoveLabels => {
                    let row = self.row(name);
                    (row.profile_label, row.draining_label) = (None, None);
                }
                Action::DeleteDesired => self.published.retain(|published| &*published.node != name),
            }
        }
    }

    fn publish(&mut self, name: &str, desired: &Desired) {
        self.published.retain(|published| &*published.node != name);
        self.published.push(PublishedRow {
            node: name.into(),
            ours: true,
            profile: Some(desired.profile),
            caps: desired.caps,
            draining: desired.draining,
            policy: Some(desired.policy.into()),
        });
        let agents = self.agents;
        self.row(name).confirmation = agents;
    }

    pub(super) fn row(&mut self, name: &str) -> &mut NodeRow {
        self.nodes.iter_mut().find(|row| &*row.name == name).unwrap()
    }

    pub(super) fn add_pods(&mut self, node: &str, phase: Phase, class: &str, count: usize) {
        let pods = self.pods.as_mut().unwrap();
        pods.extend(std::iter::repeat_n(pod_row(node, phase, class), count));
    }

    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.nodes.iter().find(|row| &*row.name == name).unwrap().profile_label.as_deref()
    }

    pub(super) fn draining(&self, name: &str) -> Option<&str> {
        self.nodes.iter().find(|row| &*row.name == name).unwrap().draining_label.as_deref()
    }

    pub(super) fn caps(&self, name: &str) -> Caps {
        self.published.iter().find(|published| &*published.node == name).unwrap().caps
    }
}

/// An eligible node; without a GPU model it is a CPU-only one.
pub(super) fn row(name: &str, gpu: &str, count: u32) -> NodeRow {
    let text = |text: &str| Some(text.into()).filter(|text: &Arc<str>| !text.is_empty());
    let labels = LabelFacts {
        cpu_model: text("AMD_EPYC_9654"),
        sockets: Some(2),
        gpu_model: text(gpu),
        gpu_count: text(gpu).map(|_| count),
    };
    NodeRow {
        name: name.into(),
        selected: true,
        reserved: false,
        unschedulable: false,
        presence: Presence::Ready,
        profile_label: None,
        draining_label: None,
        hardware: HardwareFacts { labels, ..HardwareFacts::default() },
        confirmation: Confirmation::Awaited,
        sight: Sight::Clear,
        place: 0,
    }
}

/// A desired state of ours.
pub(super) fn published_row(node: &str, profile: Profile, caps: Caps) -> PublishedRow {
    PublishedRow {
        node: node.into(),
        ours: true,
        profile: Some(profile),
        caps,
        draining: false,
        policy: None,
    }
}

/// A pod; on no node when that is blank.
pub(super) fn pod_row(node: &str, phase: Phase, class: &str) -> PodRow {
    PodRow {
        namespace: "default".to_owned(),
        node: Some(node.to_owned()).filter(|node| !node.is_empty()),
        phase,
        terminating: false,
        asks: Asks { workload_class: Some(class.to_owned()), ..Asks::default() },
        asked: Asked::default(),
    }
}

/// Caps in percent, the CPUs as given.
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

/// What the environment's defaults say, with this policy.
pub(super) fn settings(policy: Policy) -> Settings {
    Settings {
        policy,
        floor: FamilyFloor::Raise,
        guard: GuardMode::Soft,
        draining_label: DrainingLabel::Always,
        intents: cpu_intents(100, 60),
        catalog: Catalog::embedded().unwrap(),
        dwell: None,
        release_patience: Micros::new(120_000_000),
    }
}

pub(super) fn hard(policy: Policy) -> Settings {
    Settings { guard: GuardMode::Hard, ..settings(policy) }
}

fn ratio(text: &str) -> Ratio {
    Ratio::parse(text, Role::Nearest).unwrap()
}

pub(super) fn static_partition(fraction: &str) -> Policy {
    Policy::StaticPartition(StaticPartition::new(ratio(fraction)).unwrap())
}

pub(super) fn queue_aware(base: &str, min: i64, max: i64, pods_per_node: i64) -> Policy {
    Policy::QueueAware(QueueAware::new(ratio(base), min, max, pods_per_node).unwrap())
}

pub(super) fn cpu_caps(percent: i32) -> Caps {
    Caps { cpu: Some(Cap { percent: Some(Percent::from_int(percent)), watts: None }), gpu: None }
}

pub(super) fn node<'a>(plan: &'a Plan, name: &str) -> &'a NodePlan {
    plan.nodes.iter().find(|node| &*node.node == name).unwrap()
}

/// The nodes planned so, by name.
pub(super) fn planned(plan: &Plan, profile: Profile) -> Vec<&str> {
    let mut names: Vec<_> =
        plan.nodes.iter().filter(|node| node.planned == profile).map(|node| &*node.node).collect();
    names.sort_unstable();
    names
}
