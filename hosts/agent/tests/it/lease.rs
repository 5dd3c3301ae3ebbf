//! What happens to caps when nobody confirms the desired state any more.

use crate::nodes::{Node, Nodes, cluster, pool};
use crate::test_machine::{Agent, Cluster, TestMachine, enforced};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The leader of the operator, which renews the plan's Lease as long as it lives.
struct Planner(Arc<AtomicBool>);

impl Planner {
    async fn begin(cluster: &Cluster) -> Self {
        cluster.namespace("joulie-system").await;
        let (lives, leases) = (Arc::new(AtomicBool::new(true)), cluster.leases("joulie-system"));
        let until = lives.clone();
        tokio::spawn(async move {
            for second in 0.. {
                if !until.load(Ordering::Relaxed) {
                    return;
                }
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": "joulie-plan", "namespace": "joulie-system"},
                    "spec": {
                        "holderIdentity": "operator-0",
                        "renewTime": format!("2026-01-01T00:{:02}:{:02}.000000Z", second / 60, second % 60),
                    },
                });
                let params = PatchParams::apply("joulie-operator").force();
                leases.patch("joulie-plan", &params, &Patch::Apply(lease)).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        Self(lives)
    }

    fn dies(self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn settings(cluster: &Cluster, at: std::net::SocketAddr, expiry: &str) -> Vec<(&'static str, String)> {
    by_plan(pool(cluster, at), expiry)
}

/// The desired state comes from twins, and the plan's Lease is valid for ten seconds.
fn by_plan(mut all: Vec<(&'static str, String)>, expiry: &str) -> Vec<(&'static str, String)> {
    for (name, value) in [
        ("DESIRED_SOURCE", "twin"),
        ("LEASE_SOURCE", "plan"),
        ("SPEC_READ_TIMEOUT", "10s"),
        ("LEASE_EXPIRY", expiry),
        ("SAFE_CPU_CAP_PCT", "40"),
    ] {
        all.push((name, value.to_owned()));
    }
    all
}

async fn twin(cluster: &Cluster, watts: i32) {
    twin_of(cluster, "sim-1", watts).await;
}

async fn twin_of(cluster: &Cluster, node: &str, watts: i32) {
    let spec = json!({"nodeName": node, "profile": "eco", "cpu": {"packagePowerCapWatts": watts}});
    cluster.apply("NodeTwin", node, spec).await;
}

fn says(expected: (&'static str, &'static str)) -> impl Fn(&Value) -> bool {
    move |twin| enforced(twin) == expected
}

const UNCONFIRMED: &str = "joulie_desired_state_unconfirmed{node=\"sim-1\"}";

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_nobody_renews_gives_way_to_the_safe_profile_until_somebody_does() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node::new());
    let at = nodes.serve().await;
    twin(&cluster, 150).await;
    let planner = Planner::begin(&cluster).await;
    let agent = Agent::start(&settings(&cluster, at, "safe"));
    cluster.until("NodeTwin", "sim-1", says(("True", "Enforced"))).await;
    assert_eq!(nodes.get("sim-1").cap, 150.0);
    assert!(agent.page("/metrics").await.contains(&format!("{UNCONFIRMED} 0")));
    planner.dies();
    // 40 % of 250 W.
    nodes.until("sim-1", |node| node.cap == 100.0).await;
    cluster.until("NodeTwin", "sim-1", says(("False", "LeaseExpired"))).await;
    agent.until_page("/metrics", &format!("{UNCONFIRMED} 1")).await;
    // Agent table, row 30: an agent that has just started has seen nobody fall silent. It keeps what it finds and
    // follows what is desired. The existing Lease does not count as a renewal.
    agent.kill();
    let agent = Agent::start(&settings(&cluster, at, "safe"));
    nodes.until("sim-1", |node| node.cap == 150.0).await;
    nodes.until("sim-1", |node| node.cap == 100.0).await;
    let planner = Planner::begin(&cluster).await;
    nodes.until("sim-1", |node| node.cap == 150.0).await;
    cluster.until("NodeTwin", "sim-1", says(("True", "Enforced"))).await;
    planner.dies();
    drop(agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_nobody_renews_holds_where_nothing_else_is_chosen_and_is_told() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node::new());
    let at = nodes.serve().await;
    twin(&cluster, 150).await;
    let agent = Agent::start(&settings(&cluster, at, "hold"));
    cluster.until("NodeTwin", "sim-1", says(("True", "Enforced"))).await;
    let told = |twin: &Value| {
        let text = twin["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        enforced(twin) == ("True", "Enforced") && text.contains("nobody confirms the desired state any more")
    };
    cluster.until("NodeTwin", "sim-1", told).await;
    agent.until_page("/metrics", &format!("{UNCONFIRMED} 1")).await;
    assert_eq!(nodes.get("sim-1").cap, 150.0);
    // A person changes the twin by hand while the planner is away, and the agent follows it.
    twin(&cluster, 140).await;
    nodes.until("sim-1", |node| node.cap == 140.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_nobody_renews_is_relaxed_where_that_is_chosen() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node::new());
    let at = nodes.serve().await;
    twin(&cluster, 150).await;
    let _agent = Agent::start(&settings(&cluster, at, "relax"));
    cluster.until("NodeTwin", "sim-1", says(("True", "Enforced"))).await;
    nodes.until("sim-1", |node| node.cap == 250.0).await;
    cluster.until("NodeTwin", "sim-1", says(("False", "LeaseExpired"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_nobody_renews_gives_way_on_the_nodes_own_hardware_too() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let cluster = Cluster::new().await;
    cluster.node("node-a", json!({"joulie.io/managed": "true"})).await;
    twin_of(&cluster, "node-a", 150).await;
    let planner = Planner::begin(&cluster).await;
    let agent = Agent::start(&by_plan(room.settings(&cluster), "safe"));
    cluster.until("NodeTwin", "node-a", says(("True", "Enforced"))).await;
    assert_eq!(room.limits(), [150, 150]);
    planner.dies();
    // 40 % of 250 W.
    room.until_limits(&[100, 100]).await;
    cluster.until("NodeTwin", "node-a", says(("False", "LeaseExpired"))).await;
    agent.until_page("/metrics", "joulie_desired_state_unconfirmed{node=\"node-a\"} 1").await;
    let _planner = Planner::begin(&cluster).await;
    room.until_limits(&[150, 150]).await;
    cluster.until("NodeTwin", "node-a", says(("True", "Enforced"))).await;
}
