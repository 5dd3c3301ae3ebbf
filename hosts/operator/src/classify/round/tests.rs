use super::*;
use crate::classify::stats::Signal;
use crate::classify::workloads::Values;
use crate::rows::PodSeen;
use host_kit::prometheus::Answer;
use host_kit::reflect::{ByHand, Row, Rows, by_hand};
use http::StatusCode;
use planner::classify::memory::{BAND, EVERY};
use proptest::prelude::*;
use serde_json::json;

const MINUTE: u64 = 60_000_000;
/// The memory's time begins long before the process.
const START: u64 = 100_000 * MINUTE;

fn law() -> Law {
    Law {
        memory: MemoryLaw::new(EVERY, BAND).unwrap(),
        every: EVERY,
        look: Micros::new(MINUTE / 2),
        least: Confidence::tenths(5),
        simulated: false,
        asks: true,
    }
}

fn answer(series: &[Value]) -> Answer {
    let body = json!({"status": "success", "data": {"resultType": "vector", "result": series}});
    Answer::read(body.to_string().as_bytes(), StatusCode::OK).unwrap()
}

fn series(pods: &[(&str, &str)]) -> Answer {
    let one =
        |(pod, value): &(&str, &str)| json!({"metric": {"namespace": "x", "pod": pod}, "value": [1, value]});
    answer(&pods.iter().map(one).collect::<Vec<_>>())
}

/// The rows of one kind, fed by hand.
struct Fed<R>(ByHand<R>, Rows<R>);

impl<R: Row> Fed<R> {
    fn new() -> Self {
        let (mut feed, rows) = by_hand();
        feed.list([]);
        Self(feed, rows)
    }
}

/// What the answers of a round are.
type Said<'a> = Result<&'a [(Signal, Answer)], &'a str>;

struct Cluster {
    pods: Fed<PodSeen>,
    nodes: Fed<NodeSeen>,
    profiles: Fed<WorkloadProfileSeen>,
    /// The objects as the server has them.
    stored: BTreeMap<ObjectKey, Value>,
    version: u64,
    memory: Memory,
    law: Law,
}

impl Cluster {
    fn new() -> Self {
        let mut nodes = Fed::new();
        nodes.0.apply(
            &json!({"metadata": {"name": "a"}, "status": {"capacity": {"cpu": "16", "memory": "64Gi"}}}),
        );
        let (pods, profiles) = (Fed::new(), Fed::new());
        Self {
            pods,
            nodes,
            profiles,
            stored: BTreeMap::new(),
            version: 0,
            memory: Memory::default(),
            law: law(),
        }
    }

    /// A pod of a Deployment on a node, which requests two cores.
    fn pod(&mut self, name: &str, deployment: &str, node: &str, phase: &str, annotations: Value) {
        let owner = json!({"kind": "ReplicaSet", "name": format!("{deployment}-77"), "controller": true});
        let owners = if deployment.is_empty() { json!([]) } else { json!([owner]) };
        self.pods.0.apply(&json!({
            "metadata": {"name": name, "namespace": "x", "annotations": annotations,
                "labels": {"pod-template-hash": "77"}, "ownerReferences": owners},
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}}]},
            "status": {"phase": phase},
        }));
    }

    fn running(&mut self, name: &str, deployment: &str) {
        self.pod(name, deployment, "a", "Running", json!({}));
    }

    fn ended(&mut self, name: &str) {
        self.pods.0.delete(&json!({"metadata": {"name": name, "namespace": "x"}}));
    }

    fn store(&mut self, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.profiles.0.apply(&object);
        let field = |name: &str| object["metadata"][name].as_str().unwrap().to_owned();
        self.stored.insert(ObjectKey { namespace: field("namespace"), name: field("name") }, object);
    }

    /// A round at a minute, without anything being written.
    fn decide(&mut self, minute: u64, said: Said<'_>) -> Decided {
        let workloads = self.pods.1.with(|rows| Workloads::of(rows, |namespace| namespace == "kube-system"));
        let mut measured = Measured::over(Micros::new(10 * MINUTE));
        let mut answers = Answers::default();
        match said {
            Ok(all) => {
                for (signal, answer) in all {
                    measured.take(Values::read(*signal, answer, &workloads).0);
                }
                answers = Answers { measured: Some(measured), any: true, failed: None };
            }
            Err(why) => answers.failed = Some(why.to_owned()),
        }
        self.with(minute, &workloads, &answers)
    }

    fn with(&mut self, minute: u64, workloads: &Workloads, answers: &Answers) -> Decided {
        let facts = RoundFacts {
            now: Stamp::new(Micros::new(START + minute * MINUTE)),
            wall: Timestamp::from_second(i64::try_from(minute * 60).unwrap()).unwrap(),
            workloads,
            nodes: &self.nodes.1.all(),
            profiles: &self.profiles.1.all(),
            answers,
        };
        self.memory.round(&self.law, &facts, |_| false)
    }

    /// A round whose changes are made; returns the names of the objects that were changed.
    fn round(&mut self, minute: u64, said: Said<'_>) -> Vec<String> {
        let decided = self.decide(minute, said);
        self.carry_out(decided)
    }

    fn carry_out(&mut self, decided: Decided) -> Vec<String> {
        let changes = decided.changes.into_iter();
        changes
            .map(|(key, change)| {
                self.make(&key, change);
                key.name
            })
            .collect()
    }

    fn make(&mut self, key: &ObjectKey, change: Change) {
        match change {
            Change::Delete(_) => {
                let gone = self.stored.remove(key).unwrap();
                self.profiles.0.delete(&gone);
            }
            Change::Apply { object, status, takes_over: _ } => {
                let there = self.stored.get(key).cloned();
                let mut new = object.or_else(|| there.clone()).unwrap();
                let owners = there.as_ref().map(|there| there["metadata"]["managedFields"].clone());
                new["metadata"]["managedFields"] = owners.unwrap_or_default();
                new["metadata"]["generation"] = json!(1);
                let before = there.map(|there| there["status"].clone()).unwrap_or_default();
                new["status"] = status;
                new["status"]["observedGeneration"] = json!(1);
                // What others own is not in the status that is applied, and stays.
                merge(&mut new["status"], &before);
                self.store(new);
            }
        }
    }

    fn status(&self, name: &str) -> &Value {
        &self.stored[&ObjectKey { namespace: "x".to_owned(), name: name.to_owned() }]["status"]
    }

    fn reason(&self, name: &str) -> &str {
        self.status(name)["conditions"][0]["reason"].as_str().unwrap()
    }
}

fn merge(new: &mut Value, old: &Value) {
    for (field, value) in old.as_object().into_iter().flatten() {
        if !new[field].is_null() && value.is_object() {
            merge(&mut new[field], value);
        } else if ["class", "capSensitivity"].contains(&field.as_str()) && new[field].is_null() {
            new[field] = value.clone();
        }
    }
}

fn cpu(pods: &[(&str, &str)]) -> Vec<(Signal, Answer)> {
    let mut all: Vec<_> = Signal::ALL.iter().map(|signal| (*signal, series(&[]))).collect();
    all[0].1 = series(pods);
    all
}

const NONE: [String; 0] = [];

#[test]
fn a_load_becomes_a_class_once_and_only_a_move_of_more_than_the_band_is_written() {
    let mut cluster = Cluster::new();
    cluster.running("p1", "web");
    cluster.running("p2", "web");
    let load = |one: &str| cpu(&[("p1", one), ("p2", "1.6")]);
    assert_eq!(cluster.round(0, Ok(&load("1.6"))), ["deployment-web"]);
    let said = cluster.status("deployment-web").clone();
    assert_eq!((&said["cpu"]["intensity"], &said["cpu"]["avgUtilizationPct"]), (&json!("high"), &json!(80)));
    assert_eq!(cluster.round(1, Ok(&load("0.1"))), NONE, "it is not due");
    assert_eq!(cluster.round(15, Ok(&load("1.6"))), NONE);
    assert_eq!(cluster.round(30, Ok(&load("1.76"))), NONE, "84 %");
    assert_eq!(cluster.round(45, Ok(&load("2.0"))), ["deployment-web"], "90 %");
    assert_eq!(cluster.status("deployment-web")["cpu"]["avgUtilizationPct"], 90);
    // An annotation counts at once.
    cluster.pod("p2", "web", "a", "Running", json!({"joulie.io/workload-class": "performance"}));
    assert_eq!(cluster.round(46, Ok(&[])), ["deployment-web"]);
    assert_eq!(cluster.status("deployment-web")["criticality"]["class"], "performance");
}

#[test]
fn one_performance_pod_makes_a_performance_workload_and_one_that_stays_keeps_all() {
    let mut cluster = Cluster::new();
    let moves = json!({"joulie.io/reschedulable": "true"});
    cluster.pod("p1", "web", "a", "Running", moves.clone());
    cluster.pod("p2", "web", "b", "Running", moves);
    cluster.round(0, Ok(&cpu(&[("p1", "1")])));
    assert_eq!(cluster.status("deployment-web")["migratability"]["reschedulable"], true);
    let stored = cluster.stored.values().next().unwrap();
    assert_eq!(
        (&stored["spec"]["nodeName"], &stored["metadata"]["labels"]),
        (&json!(null), &json!({"joulie.io/managed-by": "operator"}))
    );
    cluster.pod("p2", "web", "b", "Running", json!({"joulie.io/workload-class": "Performance"}));
    cluster.round(1, Ok(&[]));
    let said = cluster.status("deployment-web");
    assert_eq!(
        (&said["migratability"]["reschedulable"], &said["criticality"]["class"]),
        (&json!(false), &json!("performance"))
    );
}

#[test]
fn a_silent_prometheus_changes_no_class_and_is_said_when_the_metrics_are_late() {
    let mut cluster = Cluster::new();
    cluster.running("p1", "web");
    cluster.round(0, Ok(&cpu(&[("p1", "1.8")])));
    let before = cluster.status("deployment-web").clone();
    for minute in 1..18 {
        assert_eq!(cluster.round(minute, Err("no answer in 5s")), NONE, "{minute}");
    }
    assert_eq!(cluster.round(18, Err("no answer in 5s")), ["deployment-web"]);
    assert_eq!(cluster.reason("deployment-web"), "PrometheusSilent");
    for field in ["cpu", "gpu", "confidence", "classificationReason", "criticality"] {
        assert_eq!(cluster.status("deployment-web")[field], before[field], "{field}");
    }
    for minute in 19..30 {
        assert_eq!(cluster.round(minute, Err("another reason")), NONE, "{minute}");
    }
    // Two intervals without metrics: 0.5 loses a piece of evidence, and nothing but hints is left.
    assert_eq!(cluster.round(30, Err("no answer in 5s")), ["deployment-web"]);
    assert_eq!(cluster.status("deployment-web")["confidence"], 0.3);
    assert_eq!(cluster.round(31, Ok(&cpu(&[("p1", "1.8")]))), ["deployment-web"]);
    assert_eq!(
        (&cluster.status("deployment-web")["cpu"], cluster.reason("deployment-web")),
        (&before["cpu"], "Measured")
    );
}

#[test]
fn while_one_signal_is_not_answered_a_profile_waits_and_then_the_others_count() {
    let mut cluster = Cluster::new();
    cluster.running("p1", "web");
    cluster.round(0, Ok(&cpu(&[("p1", "1.8")])));
    let workloads = cluster.pods.1.with(|rows| Workloads::of(rows, |_| false));
    let mut measured = Measured::over(Micros::new(10 * MINUTE));
    measured.take(Values::read(Signal::Memory, &series(&[("p1", "900000000")]), &workloads).0);
    let answers = Answers { measured: Some(measured), any: true, failed: Some("too slow".to_owned()) };
    for minute in 15..18 {
        assert!(cluster.with(minute, &workloads, &answers).changes.is_empty(), "{minute}");
    }
    let decided = cluster.with(18, &workloads, &answers);
    cluster.carry_out(decided);
    let said = cluster.status("deployment-web");
    assert_eq!((&said["cpu"]["bound"], &said["cpu"]["avgUtilizationPct"]), (&json!("memory"), &json!(null)));
}

#[test]
fn a_server_that_comes_and_goes_does_not_change_what_is_said() {
    let mut cluster = Cluster::new();
    cluster.running("p1", "web");
    for minute in 0..60 {
        let said = if minute % 2 == 0 { Err("gone") } else { Ok(&[][..]) };
        let changed = cluster.round(minute, said);
        assert_eq!(changed.len(), usize::from(minute == 3), "{minute}: {changed:?}");
    }
    assert_eq!(cluster.reason("deployment-web"), "NoSeries");
}

#[test]
fn a_new_leader_takes_over_what_the_objects_say() {
    let mut cluster = Cluster::new();
    cluster.running("p1", "web");
    cluster.round(0, Ok(&cpu(&[("p1", "1.52")])));
    assert_eq!(cluster.status("deployment-web")["cpu"]["intensity"], "high");
    cluster.memory = Memory::default();
    assert_eq!(cluster.round(5, Err("away")), NONE, "no metrics are no reason to forget the class");
    assert_eq!(cluster.round(6, Ok(&cpu(&[("p1", "1.48")]))), NONE, "it is held at the threshold");
    cluster.memory = Memory::default();
    assert_eq!(cluster.round(30, Err("away")), NONE);
    assert_eq!(cluster.round(33, Err("away")), ["deployment-web"]);
    // It was late for 11 minutes when the third leader began: the fourth interval is over sooner than for a fresh one.
    cluster.memory = Memory::default();
    assert_eq!(cluster.round(44, Err("away")), NONE);
    assert_eq!(cluster.round(45, Err("away")), ["deployment-web"]);
    assert_eq!(cluster.status("deployment-web")["confidence"], 0.3);
}

#[test]
fn a_workload_is_gone_when_no_pod_of_it_is_left_for_two_looks() {
    let mut cluster = Cluster::new();
    cluster.running("p1", "web");
    cluster.running("p2", "");
    cluster.round(0, Ok(&cpu(&[("p1", "1"), ("p2", "1")])));
    let mut mine = cluster.stored.values().find(|one| one["metadata"]["name"] == "pod-p2").unwrap().clone();
    mine["metadata"]["labels"] = json!({});
    cluster.store(mine);
    cluster.pod("p1", "web", "", "Pending", json!({}));
    cluster.ended("p2");
    for minute in 1..9 {
        assert_eq!(
            cluster.round(minute, Ok(&[])),
            NONE,
            "a pod that waits is no end, and a person's profile stays"
        );
    }
    cluster.pod("p1", "web", "a", "Succeeded", json!({}));
    assert_eq!(cluster.round(9, Ok(&[])), NONE);
    assert_eq!(cluster.round(10, Ok(&[])), ["deployment-web"]);
    assert_eq!(cluster.stored.len(), 1);
}

#[test]
fn of_several_profiles_of_a_workload_a_persons_stays_and_ours_leaves() {
    let mut cluster = Cluster::new();
    cluster.running("p1", "web");
    cluster.round(0, Ok(&cpu(&[("p1", "1")])));
    cluster.store(json!({"metadata": {"name": "mine", "namespace": "x", "uid": "u", "generation": 1},
        "spec": {"workloadRef": {"kind": "Deployment", "name": "web"}}}));
    assert_eq!(cluster.round(1, Ok(&[])), ["mine", "deployment-web"]);
    assert_eq!((cluster.stored.len(), cluster.round(2, Ok(&[]))), (1, vec![]));
    assert_eq!(cluster.status("mine")["cpu"]["intensity"], "medium");
}

#[test]
fn what_a_person_owns_is_left_out_of_what_is_written() {
    let mut cluster = Cluster::new();
    cluster.running("p1", "web");
    cluster.round(0, Ok(&cpu(&[("p1", "1.8")])));
    let mut edited = cluster.stored.values().next().unwrap().clone();
    edited["status"]["cpu"]["capSensitivity"] = json!("low");
    edited["status"]["criticality"]["class"] = json!("performance");
    edited["metadata"]["managedFields"] = json!([{"manager": "kubectl", "subresource": "status", "operation": "Update",
        "fieldsV1": {"f:status": {"f:cpu": {"f:capSensitivity": {}}, "f:criticality": {"f:class": {}}}}}]);
    cluster.store(edited);
    let decided = cluster.decide(1, Ok(&[]));
    let [(_, Change::Apply { object: None, status, takes_over: None })] = &decided.changes[..] else {
        panic!("{decided:?}")
    };
    assert_eq!((&status["cpu"]["capSensitivity"], &status["criticality"]), (&Value::Null, &Value::Null));
    assert_eq!(
        status["conditions"][1]["message"],
        "kubectl owns status.criticality.class, status.cpu.capSensitivity"
    );
    cluster.carry_out(decided);
    assert_eq!(cluster.round(2, Ok(&[])), NONE);
}

#[test]
fn an_earlier_operators_profile_is_taken_over_in_the_version_that_was_seen() {
    let mut cluster = Cluster::new();
    cluster.running("p1", "");
    let fields = json!({"f:spec": {"f:nodeName": {}}, "f:status": {"f:confidence": {}}});
    cluster.store(json!({"metadata": {"name": "x-p1", "namespace": "x", "generation": 1,
            "managedFields": [{"manager": "operator", "operation": "Update", "fieldsV1": fields}]},
        "spec": {"nodeName": "old", "workloadRef": {"kind": "Pod", "namespace": "x", "name": "p1"}},
        "status": {"confidence": 0.9}}));
    let decided = cluster.decide(0, Ok(&cpu(&[("p1", "1")])));
    let [(key, Change::Apply { object: Some(object), takes_over, .. })] = &decided.changes[..] else {
        panic!("{decided:?}")
    };
    assert_eq!(
        (key.name.as_str(), takes_over.as_deref(), &object["spec"]["nodeName"]),
        ("x-p1", Some("1"), &json!("a"))
    );
}

#[test]
fn simulated_pods_are_classified_by_what_they_say_if_that_is_asked_for() {
    // Table C15: 85/0/15 is performance and high, 15/0/10 standard, 30/85/20 performance with a busy GPU.
    let mut cluster = Cluster::new();
    cluster.law = Law { simulated: true, asks: false, ..law() };
    for (name, said) in [("p1", ["85", "0", "15"]), ("p2", ["15", "0", "10"]), ("p3", ["30", "85", "20"])] {
        let [cpu, gpu, memory] = said;
        let annotations = json!({"sim.joulie.io/cpu-util-pct": cpu, "sim.joulie.io/gpu-util-pct": gpu,
            "sim.joulie.io/memory-pressure-pct": memory});
        cluster.pod(name, "", "a", "Running", annotations);
    }
    assert_eq!(cluster.round(0, Ok(&[])).len(), 3);
    let class = |name: &str| cluster.status(name)["criticality"]["class"].clone();
    assert_eq!(
        (class("pod-p1"), class("pod-p2"), class("pod-p3")),
        (json!("performance"), json!("standard"), json!("performance"))
    );
    assert_eq!(
        (cluster.reason("pod-p1"), &cluster.status("pod-p3")["gpu"]["intensity"]),
        ("Simulated", &json!("high"))
    );
    for minute in 1..40 {
        assert_eq!(cluster.round(minute, Ok(&[])), NONE);
    }
    let mut real = Cluster::new();
    real.law.asks = false;
    real.pod("p1", "", "a", "Running", json!({"sim.joulie.io/cpu-util-pct": "85"}));
    real.round(0, Ok(&[]));
    assert_eq!(
        (real.reason("pod-p1"), &real.status("pod-p1")["criticality"]["class"]),
        ("NoPrometheus", &json!("standard"))
    );
}

#[test]
fn energy_counts_only_where_all_of_its_parts_were_answered() {
    let bound = |signals: &[(Signal, &str)]| {
        let mut cluster = Cluster::new();
        cluster.running("p1", "web");
        let said: Vec<_> = signals
            .iter()
            .map(|(signal, value)| {
                (*signal, if value.is_empty() { series(&[]) } else { series(&[("p1", value)]) })
            })
            .collect();
        cluster.round(0, Ok(&said));
        let said = cluster.status("deployment-web");
        (said["cpu"]["bound"].as_str().unwrap().to_owned(), said["confidence"].to_string())
    };
    use Signal::{Cpu, DramEnergy, GpuEnergy, PackageEnergy};
    let is = |bound: &str, confidence: &str| (bound.to_owned(), confidence.to_owned());
    assert_eq!(bound(&[(Cpu, "1")]), is("mixed", "0.5"));
    assert_eq!(
        bound(&[(Cpu, "1"), (PackageEnergy, "90"), (DramEnergy, "9"), (GpuEnergy, "")]),
        is("compute", "0.7")
    );
    assert_eq!(
        bound(&[(Cpu, "1"), (PackageEnergy, "50"), (DramEnergy, "50"), (GpuEnergy, "")]),
        is("memory", "0.7")
    );
    // The meter of the memory was not answered, or that of the package knows nothing: nobody can compare.
    assert_eq!(bound(&[(Cpu, "1"), (PackageEnergy, "90"), (GpuEnergy, "")]), is("mixed", "0.5"));
    assert_eq!(
        bound(&[(Cpu, "1"), (PackageEnergy, ""), (DramEnergy, "9"), (GpuEnergy, "")]),
        is("mixed", "0.5")
    );
    assert_eq!(
        bound(&[(Cpu, "1"), (PackageEnergy, "90"), (DramEnergy, ""), (GpuEnergy, "")]),
        is("compute", "0.7")
    );
}

#[test]
fn two_workloads_never_share_a_name_and_a_name_is_never_too_long() {
    let mut cluster = Cluster::new();
    for name in ["a.b", "a-b", &"n".repeat(253)] {
        cluster.running(name, "");
    }
    cluster.store(json!({"metadata": {"name": "deployment-web", "namespace": "x"}, "spec": {"workloadRef": {"kind": "Deployment", "name": "other"}}}));
    cluster.running("p1", "web");
    cluster.law.asks = false;
    let mut names = cluster.round(0, Ok(&[]));
    names.sort();
    assert_eq!((names.len(), cluster.stored.len()), (4, 5), "{names:?}");
    for name in &names {
        let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        assert!(name.len() <= 253 && name.chars().all(fits), "{name}");
        assert!(name != "pod-a-b" && name != "deployment-web", "{name}");
    }
    assert_eq!(cluster.round(1, Ok(&[])), NONE);
}

#[test]
fn more_changes_than_a_round_may_make_are_made_in_the_next() {
    let mut cluster = Cluster::new();
    cluster.law.asks = false;
    for at in 0..WRITES_MAX + 7 {
        cluster.running(&format!("p{at}"), "");
    }
    let first = cluster.decide(0, Ok(&[]));
    assert!(first.more && first.changes.len() == WRITES_MAX);
    cluster.carry_out(first);
    let second = cluster.decide(0, Ok(&[]));
    assert!(!second.more && second.changes.len() == 7);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_round_that_was_carried_out_leaves_nothing_to_do(
        pods in prop::collection::vec((0_usize..4, 0_usize..3, 0_usize..4, any::<bool>()), 0..10),
        values in prop::collection::vec((0_usize..12, prop::sample::select(vec!["0", "0.3", "1.5", "NaN", "1e30", "-2", "7"])), 0..14),
        minutes in prop::collection::vec(0_u64..40, 1..6),
        silent in any::<bool>(),
    ) {
        let mut cluster = Cluster::new();
        for (at, (deployment, node, phase, moves)) in pods.iter().enumerate() {
            let deployment = ["", "web", "db", "a.b"][*deployment];
            let phase = ["Running", "Running", "Pending", "Failed"][*phase];
            let annotations = json!({"joulie.io/reschedulable": moves.to_string()});
            cluster.pod(&format!("p{at}"), deployment, ["a", "b", ""][*node], phase, annotations);
        }
        let names: Vec<(String, &str)> = values.iter().map(|(pod, value)| (format!("p{pod}"), *value)).collect();
        let load: Vec<(&str, &str)> = names.iter().map(|(pod, value)| (pod.as_str(), *value)).collect();
        let mut now = 0;
        for (at, minute) in minutes.iter().enumerate() {
            now += minute;
            let all = cpu(&load);
            let said = if silent && at % 2 == 1 { Err("away") } else { Ok(&all[..]) };
            cluster.round(now, said);
            prop_assert_eq!(cluster.round(now, said), NONE);
        }
    }
}

#[test]
fn each_workload_of_many_pods_has_one_profile_and_the_next_look_changes_nothing() {
    let mut cluster = Cluster::new();
    let names: Vec<String> = (0..2_000).map(|at| format!("pod-{at}")).collect();
    for (at, name) in names.iter().enumerate() {
        cluster.running(name, &format!("deployment-{}", at % 800));
    }
    let load: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1.234567")).collect();
    let all: Vec<_> = Signal::ALL.iter().map(|signal| (*signal, series(&load))).collect();
    let decided = cluster.decide(0, Ok(&all));
    assert_eq!((decided.changes.len(), decided.more), (800, false));
    cluster.carry_out(decided);
    assert_eq!(cluster.decide(1, Ok(&all)).changes.len(), 0);
    assert_eq!(cluster.decide(15, Ok(&all)).changes.len(), 0);
}
