//! The operator's plan for 5,000 nodes and 50,000 pods: the first pass, when everything is written, and the steady one.

use super::{Row, measure};
use planner::catalog::Catalog;
use planner::demand::{Asked, Asks, Expression, Operator, Phase, PodCounts, PodRow, Term};
use planner::guard::GuardMode;
use planner::intent::{CapSettings, GpuNodeCpus, Intents, UserRanges};
use planner::inventory::{HardwareFacts, LabelFacts, Reported};
use planner::plan::{
    Action, Confirmation, DrainingLabel, Memory, NodeRow, Plan, Presence, PublishedRow, Settings, Sight,
    Snapshot, plan,
};
use planner::policy::{FamilyFloor, Policy, QueueAware};
use planner::profile::PerProfile;
use power_units::{Micros, Percent, Ratio, Stamp, Watts};
use std::collections::BTreeSet;

const NODES: usize = 5_000;
const PODS: usize = 50_000;
/// The design allows 20 ms for the compute of one plan.
const BAR_NANOS: f64 = 20e6;

/// One row for each kind of pass.
pub(crate) fn rows() -> Vec<Row> {
    let settings = settings();
    let mut cluster = cluster();
    let mut memory = Memory::new();
    let once = (1, 1);
    let first = measure("plan, 5,000 nodes, 50,000 pods, first pass", Some(BAR_NANOS), once, || {
        plan(&cluster, &settings, &memory)
    });
    for _ in 0..3 {
        let planned = plan(&cluster, &settings, &memory);
        carry_out(&mut cluster, &mut memory, &planned);
    }
    let settled = plan(&cluster, &settings, &memory);
    let writes: usize = settled.nodes.iter().map(|node| node.actions.len()).sum();
    let what = format!("plan, 5,000 nodes, 50,000 pods, steady, {writes} writes");
    let steady = measure(&what, Some(BAR_NANOS), once, || plan(&cluster, &settings, &memory));
    let (pods, ignored) = (pods(), ignored());
    let count = measure("count 50,000 pods, as at the start", None, once, || PodCounts::of(&pods, &ignored));
    vec![first, steady, count]
}

fn pods() -> Vec<PodRow> {
    (0..PODS).map(pod).collect()
}

fn ignored() -> BTreeSet<String> {
    BTreeSet::from(["kube-system".to_owned()])
}

fn carry_out(cluster: &mut Snapshot, memory: &mut Memory, planned: &Plan) {
    for node in &planned.nodes {
        let Some(row) = cluster.nodes.iter_mut().find(|row| row.name == node.node) else { continue };
        row.confirmation = Confirmation::InForce;
        for action in &node.actions {
            match action {
                Action::WriteLabels { profile, draining } => {
                    if let Some(profile) = profile {
                        row.profile_label = Some(profile.as_str().into());
                    }
                    row.draining_label = draining.map(|draining| draining.to_string().into());
                }
                Action::WriteDesired(desired) => {
                    cluster.published.retain(|published| published.node != node.node);
                    cluster.published.push(PublishedRow {
                        node: node.node.clone(),
                        ours: true,
                        profile: Some(desired.profile),
                        caps: desired.caps,
                        draining: desired.draining,
                        policy: Some(desired.policy.into()),
                    });
                }
                Action::RemoveLabels | Action::DeleteDesired => {}
            }
        }
        memory.commit(node);
    }
}

fn settings() -> Settings {
    let percent = PerProfile { performance: Percent::from_int(100), eco: Percent::from_int(60) };
    let caps = CapSettings {
        cpu_percent: percent,
        cpu_watts: PerProfile { performance: Watts::from_int(5000), eco: Watts::from_int(120) },
        cpu_absolute: true,
        gpu_node_cpus: GpuNodeCpus::Leave,
        gpu_percent: percent,
        gpu_absolute: true,
    };
    let base = Ratio::from_bits(Ratio::ONE.to_bits() / 5 * 3);
    Settings {
        policy: Policy::QueueAware(QueueAware::new(base, 1, 1_000_000, 10).expect("in range")),
        floor: FamilyFloor::Raise,
        guard: GuardMode::Soft,
        draining_label: DrainingLabel::Always,
        intents: Intents::new(caps, UserRanges::default()).expect("in range"),
        catalog: Catalog::embedded().expect("valid"),
        dwell: None,
        release_patience: Micros::new(120_000_000),
    }
}

const CPUS: [&str; 4] = [
    "AMD EPYC 9654 96-Core Processor",
    "AMD EPYC 9965 192-Core Processor",
    "Intel(R) Xeon(R) Gold 6530",
    "Intel(R) Xeon(R) Platinum 8480+",
];
const GPUS: [&str; 4] = ["", "NVIDIA-H100-80GB-HBM3", "NVIDIA L40S", "NVIDIA H200"];

fn cluster() -> Snapshot {
    Snapshot {
        nodes: (0..NODES).map(node).collect(),
        pods: Some(PodCounts::of(&pods(), &ignored())),
        published: Vec::new(),
        now: Stamp::new(Micros::ZERO),
        wall_clock: Micros::ZERO,
    }
}

/// Names as clouds give them: long, and alike until near the end; not in the order of the names.
fn name(at: usize) -> String {
    let at = at * 2_711 % NODES;
    format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", at / 1_000, at / 250, at % 250)
}

fn node(at: usize) -> NodeRow {
    let gpu = GPUS.get(at % 4).copied().unwrap_or_default();
    let gpus = if gpu.is_empty() { 0 } else { 8 };
    let reported = Reported {
        cpu_raw_model: CPUS.get(at / 4 % 4).map(|&cpu| cpu.into()),
        sockets: Some(2),
        total_cores: Some(384),
        gpu_raw_model: Some(gpu.into()),
        gpu_count: Some(gpus),
        gpu_max: (gpu == "NVIDIA H200").then(|| Watts::from_int(700)),
        ..Reported::default()
    };
    NodeRow {
        name: name(at).into(),
        selected: true,
        reserved: false,
        unschedulable: false,
        presence: Presence::Ready,
        profile_label: None,
        draining_label: None,
        hardware: HardwareFacts {
            reported: Some(reported),
            labels: LabelFacts::default(),
            capacity_cpus: Some(384),
            allocatable_gpus: gpus,
        },
        confirmation: Confirmation::Awaited,
        sight: Sight::Clear,
        place: at,
    }
}

/// Of ten pods two want performance by annotation and one by affinity; one is in a namespace that is ignored.
fn pod(at: usize) -> PodRow {
    let not_eco = || Term {
        expressions: vec![Expression { operator: Operator::NotIn, values: vec!["eco".to_owned()] }],
    };
    let asks = match at % 10 {
        0 | 1 => Asks { workload_class: Some("performance".to_owned()), ..Asks::default() },
        2 => Asks { affinity: Some(vec![not_eco()]), ..Asks::default() },
        3 => Asks { workload_class: Some("standard".to_owned()), ..Asks::default() },
        _ => Asks::default(),
    };
    PodRow {
        namespace: if at % 10 == 9 { "kube-system" } else { "default" }.to_owned(),
        node: (!at.is_multiple_of(50)).then(|| name(at * 31 % NODES)),
        phase: if at.is_multiple_of(50) { Phase::Pending } else { Phase::Running },
        terminating: at.is_multiple_of(97),
        asks,
        asked: Asked { cpu_milli: 500, gpus: 0 },
    }
}
