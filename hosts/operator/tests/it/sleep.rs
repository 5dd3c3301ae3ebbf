//! Nodes that sleep: an operator, a Redfish service on loopback, and kubelets played by the test.

#[path = "../../src/sleep/tests/emulator.rs"]
mod emulator;

use super::rig::{Cluster, JOULIE, node_info};
use emulator::Emulator;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Times of seconds in the place of minutes.
pub(crate) const QUICK: [(&str, &str); 9] = [
    ("SLEEP", "on"),
    ("SLEEP_POLL", "1s"),
    ("SLEEP_IDLE_FOR", "1s"),
    ("SLEEP_MIN_ON", "1s"),
    ("SLEEP_SETTLE", "1s"),
    ("SLEEP_WAKE_TAKES", "1s"),
    ("SLEEP_WAKE_WITHIN", "20s"),
    ("SLEEP_OFF_WITHIN", "20s"),
    ("RECONCILE_INTERVAL", "1s"),
];

/// A file of controllers.
struct BmcFile(PathBuf);

impl BmcFile {
    fn of(name: &str, bmc: &Emulator, nodes: &[&str]) -> Self {
        let path = std::env::temp_dir().join(format!("operator-{}-{name}.bmc", std::process::id()));
        let entry = |node: &&str| format!("  {node}: {{redfish: '{}'}}\n", bmc.system(node));
        let all: String = nodes.iter().map(entry).collect();
        std::fs::write(&path, format!("nodes:\n{all}")).unwrap();
        Self(path)
    }

    fn variables<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let file = [("SLEEP_BMC_FILE", self.0.to_str().unwrap())];
        QUICK
            .into_iter()
            .filter(|(name, _)| !more.iter().any(|(other, _)| other == name))
            .chain(file)
            .chain(more.iter().copied())
            .collect()
    }
}

impl Drop for BmcFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Kubelets: a node that is off is silent, and one that is on again reports another boot. Each power state is judged: no node is
/// off with a pod on it.
fn kubelets(cluster: &Arc<Cluster>, bmc: &Emulator, nodes: &'static [&'static str]) -> JoinHandle<()> {
    let (cluster, bmc) = (cluster.clone(), bmc.clone());
    tokio::spawn(async move {
        let mut boots = 1;
        let mut was: Vec<String> = vec!["On".to_owned(); nodes.len()];
        loop {
            for (node, was) in nodes.iter().zip(&mut was) {
                let now = bmc.state().power.get(*node).cloned().unwrap();
                if now == *was {
                    continue;
                }
                turned(&cluster, node, now != "Off", &mut boots).await;
                *was = now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

pub(crate) async fn sleepy(cluster: &Cluster, nodes: &[&str]) {
    for node in nodes {
        cluster.labelled(node, json!({"joulie.io/sleep": "true"})).await;
        cluster.hardware(node, 200.0).await;
    }
}

/// A machine went off or on: its kubelet is silent, or reports another boot.
pub(crate) async fn turned(cluster: &Cluster, node: &str, on: bool, boots: &mut u32) {
    if on {
        *boots += 1;
        let info = node_info(&format!("boot-{node}-{boots}"));
        cluster.patch(&format!("/api/v1/nodes/{node}/status"), &json!({"status": {"nodeInfo": info}})).await;
        cluster.ready(node, "True", None).await;
    } else {
        let pods = cluster.list("/api/v1/pods").await;
        let lost: Vec<&Value> = pods.iter().filter(|pod| pod["spec"]["nodeName"] == *node).collect();
        assert!(lost.is_empty(), "{node} is off with pods on it: {lost:?}");
        cluster.ready(node, "Unknown", None).await;
    }
}

async fn node(cluster: &Cluster, name: &str) -> Value {
    cluster.get(&format!("/api/v1/nodes/{name}")).await.unwrap()
}

pub(crate) async fn phase(cluster: &Cluster, name: &str) -> String {
    let node = node(cluster, name).await;
    let text = node["metadata"]["annotations"]["joulie.io/sleep-state"].as_str().unwrap_or("awake");
    text.split_whitespace().next().unwrap().to_owned()
}

fn is_tainted(node: &Value) -> bool {
    node["spec"]["taints"].as_array().into_iter().flatten().any(|taint| taint["key"] == "joulie.io/sleeping")
}

/// A pod that the scheduler has found no node for: the one that is awake has another one. (An empty one that is awake would be
/// given two minutes to take it.)
pub(crate) async fn waits(cluster: &Cluster, name: &str, awake: &str) {
    cluster.pod("fills", Some(awake), "standard").await;
    cluster.pod(name, None, "standard").await;
    let refused = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    let status = json!({"status": {"phase": "Pending", "conditions": [refused]}});
    cluster.patch(&format!("/api/v1/namespaces/default/pods/{name}/status"), &status).await;
}

#[tokio::test]
async fn an_empty_node_is_cordoned_and_switched_off_and_comes_back_for_a_pod_that_waits() {
    let cluster = Arc::new(Cluster::new().await);
    let nodes = &["n1", "n2"];
    sleepy(&cluster, nodes).await;
    let bmc = Emulator::start(nodes).await;
    let (agents, kubelets) = (cluster.agents(), kubelets(&cluster, &bmc, nodes));
    let file = BmcFile::of("wakes", &bmc, nodes);
    let operator = cluster.operator(&file.variables(&[])).await;
    cluster.until("one node sleeps", async || phase(&cluster, "n1").await == "asleep").await;
    let asleep = node(&cluster, "n1").await;
    assert_eq!(asleep["spec"]["unschedulable"], true);
    assert!(is_tainted(&asleep));
    assert_eq!(bmc.state().orders, ["n1 GracefulShutdown"]);
    // The floor keeps the other one.
    assert_eq!(phase(&cluster, "n2").await, "awake");
    waits(&cluster, "p", "n2").await;
    cluster.until("it is awake again", async || phase(&cluster, "n1").await == "awake").await;
    let awake = node(&cluster, "n1").await;
    assert!(awake["spec"]["unschedulable"].is_null() && !is_tainted(&awake), "{}", awake["spec"]);
    assert_eq!(bmc.state().orders[..2], ["n1 GracefulShutdown", "n1 On"]);
    operator.stop().await;
    assert!(!kubelets.is_finished());
    kubelets.abort();
    agents.abort();
}

#[tokio::test]
async fn a_node_that_does_not_wake_is_left_to_people_and_another_one_is_woken() {
    let cluster = Arc::new(Cluster::new().await);
    let nodes = &["n1", "n2", "n3"];
    sleepy(&cluster, nodes).await;
    let bmc = Emulator::start(nodes).await;
    let (agents, kubelets) = (cluster.agents(), kubelets(&cluster, &bmc, nodes));
    let file = BmcFile::of("left", &bmc, nodes);
    let operator = cluster.operator(&file.variables(&[("SLEEP_WAKE_WITHIN", "8s")])).await;
    cluster
        .until("two nodes sleep", async || {
            phase(&cluster, "n1").await == "asleep" && phase(&cluster, "n2").await == "asleep"
        })
        .await;
    bmc.state().loses = Some("n1");
    waits(&cluster, "p", "n3").await;
    cluster.until("it is left", async || phase(&cluster, "n1").await == "left").await;
    let shown = async || operator.shows("joulie_operator_sleep_nodes{phase=\"left\"} 1").await;
    cluster.until("the metric says so", shown).await;
    cluster.until("the other one is awake", async || phase(&cluster, "n2").await == "awake").await;
    assert_eq!(phase(&cluster, "n1").await, "left");
    cluster
        .until("it is told", async || {
            let events = cluster.list("/apis/events.k8s.io/v1/events").await;
            events
                .iter()
                .any(|event| event["reason"] == "NodeLeftToPeople" && event["regarding"]["name"] == "n1")
        })
        .await;
    // Somebody presses its button.
    bmc.state().power.insert("n1".to_owned(), "On".to_owned());
    cluster.until("it takes pods again", async || phase(&cluster, "n1").await == "awake").await;
    operator.stop().await;
    assert!(!kubelets.is_finished());
    kubelets.abort();
    agents.abort();
}

#[tokio::test]
async fn a_node_that_is_being_stopped_and_is_not_to_sleep_any_more_takes_pods_again_without_people() {
    let cluster = Arc::new(Cluster::new().await);
    let nodes = &["n1", "n2"];
    sleepy(&cluster, nodes).await;
    let bmc = Emulator::start(nodes).await;
    bmc.state().loses = Some("n1");
    let (agents, kubelets) = (cluster.agents(), kubelets(&cluster, &bmc, nodes));
    let file = BmcFile::of("unwanted", &bmc, nodes);
    let operator = cluster.operator(&file.variables(&[])).await;
    cluster.until("it is told to go off", async || !bmc.state().orders.is_empty()).await;
    assert_eq!(phase(&cluster, "n1").await, "stopping");
    operator.stop().await;
    // Another leader knows of no order, and gives none.
    bmc.state().orders.clear();
    let operator = cluster.operator(&file.variables(&[("SLEEP", "off"), ("SLEEP_OFF_WITHIN", "4s")])).await;
    cluster.until("it takes pods again", async || phase(&cluster, "n1").await == "awake").await;
    assert_eq!(bmc.state().orders, [""; 0]);
    let told = cluster.list("/apis/events.k8s.io/v1/events").await;
    assert!(told.iter().all(|event| event["reason"] != "NodeLeftToPeople"), "nothing is wrong with it");
    operator.stop().await;
    assert!(!kubelets.is_finished());
    kubelets.abort();
    agents.abort();
}

#[tokio::test]
async fn nodes_that_the_limit_cannot_pay_for_sleep_on_and_say_so() {
    let cluster = Arc::new(Cluster::new().await);
    let nodes = &["n1", "n2", "n3"];
    sleepy(&cluster, nodes).await;
    let bmc = Emulator::start(nodes).await;
    let (agents, kubelets) = (cluster.agents(), kubelets(&cluster, &bmc, nodes));
    let file = BmcFile::of("unpaid", &bmc, nodes);
    // Each draws 720 W at most and 200 W at least: one may boot beside one that is awake, and not two. Two that are awake and one that
    // boots have 200 + 200 + 720 W.
    let limit = [("BUDGET_SITE_WATTS", "1200"), ("BUDGET_RAISE_DWELL", "100ms"), ("STATIC_HP_FRAC", "1")];
    let operator = cluster.operator(&file.variables(&limit)).await;
    let asleep = async |node: &str| phase(&cluster, node).await == "asleep";
    cluster.until("two sleep", async || asleep("n1").await && asleep("n2").await).await;
    bmc.state().orders.clear();
    // All are to be awake at once, and the third one stays so.
    for node in ["n3", "n1", "n2"] {
        let refuses = json!({"metadata": {"labels": {"joulie.io/sleep": "false"}}});
        cluster.patch(&format!("/api/v1/nodes/{node}"), &refuses).await;
    }
    let told = async |node: &str| {
        let events = cluster.list("/apis/events.k8s.io/v1/events").await;
        let of = |event: &&Value| event["reason"] == "WakeHasNoRoom" && event["regarding"]["name"] == node;
        events.iter().find(of).map(|event| event["note"].as_str().unwrap_or_default().to_owned())
    };
    cluster.until("the other one says why it sleeps on", async || told("n2").await.is_some()).await;
    let text = told("n2").await.unwrap();
    assert!(text.starts_with("the node is not woken yet: it is not to sleep any more, and "), "{text}");
    cluster
        .until("both are awake, one after the other", async || {
            phase(&cluster, "n1").await == "awake" && phase(&cluster, "n2").await == "awake"
        })
        .await;
    assert_eq!(bmc.state().orders, ["n1 On", "n2 On"]);
    assert!(told("n1").await.is_none(), "it was woken at once");
    operator.stop().await;
    assert!(!kubelets.is_finished());
    kubelets.abort();
    agents.abort();
}

#[tokio::test]
async fn a_limit_counts_a_sleeping_node_with_little_and_makes_room_before_it_wakes() {
    let cluster = Arc::new(Cluster::new().await);
    let nodes = &["n1", "n2"];
    sleepy(&cluster, nodes).await;
    let bmc = Emulator::start(nodes).await;
    let (agents, kubelets) = (cluster.agents(), kubelets(&cluster, &bmc, nodes));
    let file = BmcFile::of("paid", &bmc, nodes);
    // Each draws 720 W at most and 200 W at least.
    let limit = [("BUDGET_SITE_WATTS", "1000"), ("BUDGET_RAISE_DWELL", "100ms"), ("STATIC_HP_FRAC", "1")];
    let operator = cluster.operator(&file.variables(&limit)).await;
    cluster.until("one node sleeps", async || phase(&cluster, "n1").await == "asleep").await;
    let watts =
        async |node: &str| cluster.grant(node).await.and_then(|grant| grant["spec"]["watts"].as_f64());
    // 1,000 W less 35 W are more than it can draw.
    cluster.until("the other one has it all", async || watts("n2").await == Some(720.0)).await;
    bmc.state().orders.clear();
    waits(&cluster, "p", "n2").await;
    cluster.until("it is switched on", async || !bmc.state().orders.is_empty()).await;
    // Before that the other one has confirmed that it holds no more than is left beside 720 W.
    let grant = cluster.grant("n2").await.unwrap();
    assert!(grant["spec"]["watts"].as_f64().unwrap() <= 280.0, "{grant}");
    assert!(grant["status"]["holds"].as_f64().unwrap() <= 280.0, "{grant}");
    assert_eq!(grant["status"]["serial"], grant["spec"]["serial"]);
    cluster.until("it is awake again", async || phase(&cluster, "n1").await == "awake").await;
    operator.stop().await;
    assert!(!kubelets.is_finished());
    kubelets.abort();
    agents.abort();
}

#[tokio::test]
async fn no_node_sleeps_whom_a_person_a_pod_or_the_settings_keep_awake_and_a_budget_may_ask_for_it() {
    let cluster = Arc::new(Cluster::new().await);
    let nodes = &["asked", "busy", "control", "keep", "never", "other"];
    let never = json!({"joulie.io/sleep": "true", "joulie.io/never-sleep": "true"});
    for (node, labels) in [
        ("asked", json!({"rack": "r1"})),
        ("busy", json!({"joulie.io/sleep": "true"})),
        ("control", json!({"rack": "r1", "node-role.kubernetes.io/control-plane": ""})),
        ("keep", json!({"rack": "r1", "joulie.io/sleep": "false"})),
        ("never", never),
        ("other", json!({})),
    ] {
        cluster.labelled(node, labels).await;
        cluster.hardware(node, 200.0).await;
    }
    cluster.pod("works", Some("busy"), "standard").await;
    let spec = json!({"watts": 1e6, "mode": "observe", "sleep": true, "nodeSelector": {"matchLabels": {"rack": "r1"}}});
    let budget = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": "r1"}, "spec": spec});
    cluster.create(&format!("{JOULIE}/powerbudgets"), &budget).await;
    let bmc = Emulator::start(nodes).await;
    let (agents, kubelets) = (cluster.agents(), kubelets(&cluster, &bmc, nodes));
    let file = BmcFile::of("kept", &bmc, nodes);
    let operator = cluster.operator(&file.variables(&[])).await;
    cluster.until("the one that is asked sleeps", async || phase(&cluster, "asked").await == "asleep").await;
    for node in ["busy", "control", "keep", "never", "other"] {
        assert_eq!(phase(&cluster, node).await, "awake", "{node}");
    }
    operator.stop().await;
    // Another leader, which is told to wake all.
    let operator = cluster.operator(&file.variables(&[("SLEEP", "off")])).await;
    cluster.until("all are awake", async || phase(&cluster, "asked").await == "awake").await;
    assert_eq!(bmc.state().orders, ["asked GracefulShutdown", "asked On"]);
    operator.stop().await;
    assert!(!kubelets.is_finished());
    kubelets.abort();
    agents.abort();
}
