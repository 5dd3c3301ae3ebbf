use super::*;
use crate::rows::PodSeen;
use host_kit::reflect::Row;
use host_kit::reflect::by_hand;
use joulie_core::budget::demand::DemandReport;
use joulie_core::budget::{Grant, GrantReceipt};
use planner::catalog::Catalog;
use planner::hardware::{Cpu, GpuInventory, ResolvedHardware};
use planner::node::{Granted, MachineFacts, Signed};
use serde_json::{Value, json};

fn at(second: i64) -> UnixTime {
    UnixTime::from_micros(second * 1_000_000)
}

fn watts(watts: i32) -> Watts {
    Watts::from_int(watts)
}

/// A pod of 32 cores.
fn pod(name: &str, node: Option<&str>, status: Value) -> Value {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "32", "memory": "1Gi"}}});
    json!({"metadata": {"name": name, "namespace": "x", "uid": format!("uid of {name}")},
        "spec": {"nodeName": node, "containers": [container]}, "status": status})
}

/// A node of 64 cores and 640 W that wants 200 W.
fn node(name: &str) -> Node {
    let receipt = GrantReceipt { serial: 1, holds: watts(300), floor: watts(100), yields: None };
    let granted = Granted {
        grant: Some(Grant { serial: 1, watts: watts(300), ceiling: watts(300) }),
        signed: Some(Signed { receipt, boot: "b".to_owned(), node_uid: "u".to_owned() }),
        demand: Some(DemandReport::new(&[watts(200)], false).unwrap()),
        ..Granted::default()
    };
    let mut machine = MachineFacts::lump(&granted, &Catalog::embedded().unwrap());
    let cpu =
        Cpu { sockets: Some(2), max_per_socket: Some(watts(320)), total_cores: Some(64), ..Cpu::default() };
    machine.resolved.hardware = ResolvedHardware { cpu, gpu: None };
    Node { uid: "u".to_owned(), boot: "b".to_owned(), granted, ..Node::ready(name, machine) }
}

/// The pods as the watch shows them, and what is kept of them.
struct Pods {
    fresh: Fresh,
    nodes: Vec<Node>,
}

impl Pods {
    fn new() -> Self {
        Self { fresh: Fresh::default(), nodes: vec![node("a"), node("b")] }
    }

    fn show(&mut self, pods: &[Value]) {
        let (mut server, mut rows) = by_hand::<PodSeen>();
        server.list(pods);
        rows.news(|news| self.fresh.take(&news));
    }

    fn expected(&mut self, second: i64) -> [Option<Watts>; 2] {
        self.fresh.expect(&mut self.nodes, at(second));
        [self.nodes[0].expected, self.nodes[1].expected]
    }
}

#[test]
fn a_pod_that_was_bound_raises_what_its_node_wants_until_it_shows() {
    let mut pods = Pods::new();
    let waits = pod("p", None, json!({"phase": "Pending"}));
    pods.show(&[waits]);
    assert_eq!(pods.expected(1), [None, None]);
    let bound = pod("p", Some("a"), json!({"phase": "Pending"}));
    pods.show(std::slice::from_ref(&bound));
    let [Some(needs), None] = pods.expected(2) else { panic!("the pod is bound to a") };
    // Half of the cores of 640 W, by the coefficient of the reference, beside the 200 W that the node wants already.
    let adds = adds(
        &PodSeen::read(&bound).unwrap().fresh.unwrap().demand,
        &pods.nodes[0].machine.resolved.hardware,
        None,
    );
    assert_eq!(needs, watts(200) + adds);
    assert!(adds > watts(100) && adds <= watts(320), "{adds}");
    // The node draws what the pod does: that is not added again.
    pods.nodes[0].granted.demand = Some(DemandReport::new(&[watts(350)], false).unwrap());
    assert_eq!(pods.expected(5), [Some(needs), None]);
    pods.show(&[pod("p", Some("a"), json!({"phase": "Running"}))]);
    assert_eq!((pods.expected(6), pods.expected(21)), ([Some(needs), None], [Some(needs), None]));
    assert_eq!(pods.expected(22), [None, None], "it has run for more than 15 s");
}

#[test]
fn a_pod_with_gpus_is_weighed_by_what_the_cards_of_its_node_were_measured_to_draw() {
    let card = |number: u32, busy: Value| {
        let power = json!({"idleWatts": 60, "busyWatts": busy, "limitWatts": 700});
        json!({"metadata": {"name": format!("card-{number}")}, "spec": {"nodeName": "a"},
               "status": {"allocatedVRAMmb": 0, "phase": "Available", "power": power}})
    };
    let wants = |resource: &str, count: &str| {
        let mut pod = pod("p", Some("a"), json!({"phase": "Pending"}));
        pod["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": "1m"}, "limits": {resource: count}});
        pod
    };
    // Two cards, and a pod's core of 64 with next to nothing. Measured: 350 W for each card; by the coefficient: 455 W.
    for (cards, resource, count, expected) in [
        ([json!(410), json!(300)], "nvidia.com/gpu", "2", 700),
        ([json!(410), json!(300)], "nvidia.com/mig-1g.10gb", "2", 175),
        ([json!(410), json!(null)], "nvidia.com/gpu", "2", 910),
    ] {
        let mut pods = Pods::new();
        let gpus = GpuInventory { model: None, count: 2, min: Some(watts(100)), max: Some(watts(700)) };
        pods.nodes[0].machine.resolved.hardware.gpu = Some(gpus);
        let (mut server, rows) = by_hand::<GpuSeen>();
        let [one, other] = cards;
        pods.show(&[wants(resource, count)]);
        pods.fresh.measure(&rows);
        server.list(&[card(0, one), card(1, other)]);
        pods.fresh.measure(&rows);
        let [Some(needs), None] = pods.expected(2) else { panic!("the pod is bound to a") };
        let adds = needs - watts(200);
        assert!(adds >= watts(expected) && adds < watts(expected + 1), "{resource} {count}: {adds}");
        // What is counted stays.
        server.list([]);
        pods.fresh.measure(&rows);
        assert_eq!(pods.expected(3), [Some(needs), None]);
    }
}

#[test]
fn pods_that_follow_each_other_are_added_up() {
    let mut pods = Pods::new();
    let bound = |name: &str| pod(name, Some("a"), json!({"phase": "Pending"}));
    pods.show(&[bound("p")]);
    let [Some(one), _] = pods.expected(1) else { panic!() };
    pods.show(&[bound("p"), bound("q")]);
    let [Some(two), _] = pods.expected(2) else { panic!() };
    assert_eq!(two - one, one - watts(200));
    pods.show(&[bound("q")]);
    assert_eq!(pods.expected(3)[0], Some(two), "what is gone counts no longer than what came after it");
    pods.show(&[]);
    assert_eq!(pods.expected(4), [None, None]);
}

#[test]
fn a_pod_that_never_starts_stops_counting_and_a_blind_node_expects_nothing() {
    let mut pods = Pods::new();
    pods.nodes[1].granted.demand = None;
    pods.show(&[
        pod("p", Some("a"), json!({"phase": "Pending"})),
        pod("q", Some("b"), json!({})),
        pod("r", Some("no such node"), json!({})),
    ]);
    assert!(matches!(pods.expected(10), [Some(_), None]));
    assert!(matches!(pods.expected(130), [Some(_), None]));
    assert_eq!(pods.expected(131), [None, None]);
}

#[test]
fn pods_that_wait_for_watts_are_counted_for_the_limit_that_lacks_least() {
    let lacks = |name: &str, least: u32| {
        let message = format!(
            "0/2 nodes are available: 1 joulie: PowerBudget r1 lacks {least} W for the pod, 1 joulie: PowerBudget r2 lacks 900 W for the pod."
        );
        pod(
            name,
            None,
            json!({"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}),
        )
    };
    let mut pods = Pods::new();
    pods.show(&[lacks("p", 300), lacks("q", 40), lacks("r", 1000)]);
    assert_eq!(pods.fresh.waiting_for("r1"), WaitingForWatts { pods: 2, watts: watts(340) });
    assert_eq!(pods.fresh.waiting_for("r2"), WaitingForWatts { pods: 1, watts: watts(900) });
    pods.show(&[pod("p", Some("a"), json!({"phase": "Pending"}))]);
    assert_eq!(pods.fresh.waiting_for("r1"), WaitingForWatts::NONE);
}
