//! The operator's plan for 5,000 nodes and 50,000 pods: the first pass, which writes everything, and the steady
//! state.

use super::{Row, measure};
use joulie_core::budget::{Grant, GrantReceipt};
use planner::budget::{BudgetLimits, LimitPlace, SiteLimit};
use planner::catalog::Catalog;
use planner::decide::{ClusterDecision, decide};
use planner::demand::{
    AffinityTerm, Asked, Expression, Operator, PodConstraints, PodCounts, PodPhase, PodRow,
};
use planner::facility::Facility;
use planner::guard::GuardMode;
use planner::intent::{CapSettings, GpuNodeCpus, Intents, UserRanges};
use planner::inventory::{HardwareFacts, LabelFacts, Reported};
use planner::node::{Carried, Confirmation, Granted, MachineFacts, Node, Published, Signed, Theirs};
use planner::plan::{
    ClusterState, DrainLaw, DrainOverdue, DrainingLabel, ObjectChange, PlanMemory, Settings, desired, diff,
};
use planner::policy::{FamilyFloor, PlacementPolicy, QueueAware};
use planner::profile::PerProfile;
use planner::twin::TwinLaw;
use power_units::{Micros, Percent, Ratio, Stamp, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NODES: usize = 5_000;
const PODS: usize = 50_000;
/// The design allows 20 ms for computing a plan.
const BAR_NANOS: f64 = 20e6;

/// Rows for the first and the steady pass (policy, guard, releases, twins, and the comparison with the cluster), and
/// for counting the pods.
pub(crate) fn rows() -> Vec<Row> {
    let settings = settings();
    let mut cluster = cluster();
    let mut memory = PlanMemory::default();
    let once = (1, 1);
    let first = measure("decide, 5,000 nodes, 50,000 pods, first pass", Some(BAR_NANOS), once, || {
        pass(&cluster, &settings, &mut memory.clone())
    });
    for _ in 0..3 {
        let (decided, changes) = pass(&cluster, &settings, &mut memory);
        carry_out(&mut cluster, &mut memory, &decided, changes);
    }
    let (_, changes) = pass(&cluster, &settings, &mut memory);
    let writes: usize = changes.iter().map(Vec::len).sum();
    let what = format!("decide, 5,000 nodes, 50,000 pods, steady, {writes} writes");
    let steady = measure(&what, Some(BAR_NANOS), once, || pass(&cluster, &settings, &mut memory));
    let mut limited = Vec::new();
    for (what, enforced) in [("enforced", true), ("half of them observed", false)] {
        let mut memory = PlanMemory::default();
        let mut cluster = under_limits(cluster.clone(), enforced);
        for _ in 0..6 {
            let (decided, changes) = pass(&cluster, &settings, &mut memory);
            hand_out(&mut cluster, &decided);
            carry_out(&mut cluster, &mut memory, &decided, changes);
        }
        let (decided, _) = pass(&cluster, &settings, &mut memory);
        let grants = decided.budget.expect("it can be computed").asks.len();
        let what = format!("decide, 126 PowerBudgets, {what}, steady, {grants} grants");
        limited.push(measure(&what, Some(BAR_NANOS), once, || pass(&cluster, &settings, &mut memory)));
    }
    let (places, ignored) = (places(), ignored());
    let pods = pods(&places);
    let count = measure("count 50,000 pods, as at the start", None, once, || counts(&pods, &ignored));
    let mut rows = vec![first, steady];
    rows.extend(limited);
    rows.push(count);
    rows
}

/// The racks of the bench, with 40 nodes each.
const RACKS: usize = 125;
/// What a rack may draw: less than its nodes can, so that the limit binds.
const RACK_WATTS: i32 = 60_000;

/// The cluster under a limit for the site and one for each rack. Unless all are enforced, every other rack is observed.
fn under_limits(mut cluster: ClusterState, all_enforced: bool) -> ClusterState {
    let limit = |name: String, parent, watts, enforced| SiteLimit {
        name: name.into(),
        parent,
        watts: Watts::from_int(watts),
        base: Watts::ZERO,
        enforced,
        paused: false,
        armed: false,
        sustained: None,
    };
    let site = i32::try_from(RACKS).expect("small") * RACK_WATTS;
    cluster.limits = vec![limit("site".to_owned(), None, site, true)];
    for rack in 0..RACKS {
        cluster.limits.push(limit(
            format!("rack-{rack}"),
            Some(0),
            RACK_WATTS,
            all_enforced || rack % 2 == 0,
        ));
    }
    for (at, node) in cluster.nodes.iter_mut().enumerate() {
        // A receipt is of a boot and a Node object.
        (node.uid, node.boot) = (format!("uid-{at}"), "boot".to_owned());
        node.limits = LimitPlace { limit: Some(1 + at % RACKS), bound: true, ..LimitPlace::default() };
    }
    cluster
}

/// Every grant is written, read, and confirmed.
fn hand_out(cluster: &mut ClusterState, decided: &ClusterDecision) {
    let round = decided.budget.as_ref().expect("it can be computed");
    let places: BTreeMap<Arc<str>, usize> =
        cluster.nodes.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect();
    for ask in &round.asks {
        let Some(node) = places.get(&ask.node).and_then(|&at| cluster.nodes.get_mut(at)) else { continue };
        let serial = node.granted.grant.map_or(0, |grant| grant.serial) + 1;
        let receipt = GrantReceipt { serial, holds: ask.watts, floor: Watts::ZERO, yields: None };
        node.granted = Granted {
            grant: Some(Grant { serial, watts: ask.watts, ceiling: ask.watts }),
            signed: Some(Signed { receipt, boot: node.boot.clone(), node_uid: node.uid.clone() }),
            ..Granted::default()
        };
    }
}

/// Computes the decisions, and the differences from the cluster for each planned node.
fn pass(
    cluster: &ClusterState,
    settings: &Settings,
    memory: &mut PlanMemory,
) -> (ClusterDecision, Vec<Vec<ObjectChange>>) {
    let decided = decide(cluster, settings, memory);
    let changes = decided.plan.nodes.iter().map(|decision| {
        let node = cluster.nodes.get(decision.place).expect("it is the place of a node");
        diff(&desired(node, Some(decision), settings), node, false)
    });
    let changes = changes.collect();
    (decided, changes)
}

/// The namespace and the node of each pod.
type PodPlace = (String, Option<String>);

fn places() -> Vec<PodPlace> {
    let place = |at: usize| {
        let namespace = if at % 10 == 9 { "kube-system" } else { "default" };
        (namespace.to_owned(), (!at.is_multiple_of(50)).then(|| name(at * 31 % NODES)))
    };
    (0..PODS).map(place).collect()
}

fn pods(places: &[PodPlace]) -> Vec<PodRow<'_>> {
    places.iter().enumerate().map(|(at, place)| pod(at, place)).collect()
}

fn counts(pods: &[PodRow<'_>], ignored: &BTreeSet<String>) -> PodCounts {
    PodCounts::of(pods.iter().filter_map(|pod| pod.counted(ignored)))
}

fn ignored() -> BTreeSet<String> {
    BTreeSet::from(["kube-system".to_owned()])
}

fn carry_out(
    cluster: &mut ClusterState,
    memory: &mut PlanMemory,
    decided: &ClusterDecision,
    changes: Vec<Vec<ObjectChange>>,
) {
    for (decision, changes) in decided.plan.nodes.iter().zip(changes) {
        let Some(node) = cluster.nodes.get_mut(decision.place) else { continue };
        node.confirmation = Confirmation::InForce;
        for change in changes {
            match change {
                ObjectChange::Labels { profile, draining } => {
                    if let Some(profile) = profile {
                        node.labels.profile.text = Some(profile.as_str().into());
                    }
                    node.labels.draining.text = draining.map(|draining| draining.to_string().into());
                }
                ObjectChange::State(publish) => {
                    let there =
                        Carried { desired: publish.desired, theirs: Theirs::default(), persons: false };
                    node.published =
                        Published { profile: Some(there.clone()), twin: Some(there), ..Published::default() };
                }
                ObjectChange::Taint(_) | ObjectChange::NoLabels | ObjectChange::NoState => {}
            }
        }
        memory.commit(decision);
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
        policy: PlacementPolicy::QueueAware(QueueAware::new(base, 1, 1_000_000, 10).expect("in range")),
        floor: FamilyFloor::Raise,
        guard: GuardMode::Soft,
        draining_label: DrainingLabel::Always,
        intents: Intents::new(caps, UserRanges::default()).expect("in range"),
        dwell: None,
        drain: DrainLaw { deadline: Micros::new(3_600_000_000), then: DrainOverdue::Tell },
        release_patience: Micros::new(120_000_000),
        budget: BudgetLimits::none(),
        taint_uncapped: false,
        twin: TwinLaw::STANDARD,
        facility_hold: Micros::MINUTE,
    }
}

const CPUS: [&str; 4] = [
    "AMD EPYC 9654 96-Core Processor",
    "AMD EPYC 9965 192-Core Processor",
    "Intel(R) Xeon(R) Gold 6530",
    "Intel(R) Xeon(R) Platinum 8480+",
];
const GPUS: [&str; 4] = ["", "NVIDIA-H100-80GB-HBM3", "NVIDIA L40S", "NVIDIA H200"];

fn cluster() -> ClusterState {
    let catalog = Catalog::embedded().expect("valid");
    ClusterState {
        nodes: (0..NODES).map(|at| node(at, &catalog)).collect(),
        gone: Vec::new(),
        limits: Vec::new(),
        pods: Some(counts(&pods(&places()), &ignored())),
        facility: Facility::default(),
        now: Stamp::new(Micros::ZERO),
        wall_clock: Micros::ZERO,
        raises: true,
    }
}

/// Names like those of cloud providers: long, with a common beginning, and not in sorted order.
fn name(at: usize) -> String {
    let at = at * 2_711 % NODES;
    format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", at / 1_000, at / 250, at % 250)
}

fn node(at: usize, catalog: &Catalog) -> Node {
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
    let facts = HardwareFacts {
        reported: Some(reported),
        labels: LabelFacts::default(),
        capacity_cpus: Some(384),
        allocatable_gpus: gpus,
    };
    Node::ready(&name(at), MachineFacts::of(&facts, None, false, (true, true), catalog))
}

/// Of ten pods, two request performance by annotation and one by affinity; one is in an ignored namespace.
fn pod<'a>(at: usize, (namespace, node): &'a PodPlace) -> PodRow<'a> {
    let not_eco = || AffinityTerm {
        expressions: vec![Expression { operator: Operator::NotIn, values: vec!["eco".to_owned()] }],
    };
    let asks = match at % 10 {
        0 | 1 => {
            PodConstraints { workload_class: Some("performance".to_owned()), ..PodConstraints::default() }
        }
        2 => PodConstraints { affinity: Some(vec![not_eco()]), ..PodConstraints::default() },
        3 => PodConstraints { workload_class: Some("standard".to_owned()), ..PodConstraints::default() },
        _ => PodConstraints::default(),
    };
    PodRow {
        namespace,
        node: node.as_deref(),
        phase: if at.is_multiple_of(50) { PodPhase::Pending } else { PodPhase::Running },
        terminating: at.is_multiple_of(97),
        asks,
        asked: Asked { cpu_milli: 500, gpus: 0, memory_bytes: 1 << 30, pods: 1 },
    }
}
