//! TelemetryProfiles: through what a node is read and controlled, changed while the agent runs.

use crate::nodes::{Node, Nodes, cluster, pool};
use crate::test_machine::{Agent, Cluster, TestMachine, is_enforced};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// A profile that sends a node over HTTP.
fn over_http(at: SocketAddr, node: &str) -> Value {
    let http = |what: &str| json!({"type": "http", "http": {"endpoint": format!("http://{at}/{what}/{{node}}"), "timeoutSeconds": 5}});
    json!({
        "target": {"scope": "node", "nodeName": node},
        "sources": {"cpu": http("telemetry")},
        "controls": {"cpu": http("control"), "gpu": {"type": "none"}},
    })
}

fn accepted(profile: &Value) -> (&str, &str) {
    let all = profile["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == "Accepted");
    let text = |field: &str| found.and_then(|condition| condition[field].as_str()).unwrap_or_default();
    (text("status"), text("message"))
}

async fn is_followed(cluster: &Cluster, name: &str) -> Value {
    let followed = |profile: &Value| {
        profile["status"]["observedGeneration"] == profile["metadata"]["generation"]
            && accepted(profile).0 == "True"
            && profile["status"]["control"]["cpu"]["result"] == "applied"
    };
    cluster.until("TelemetryProfile", name, followed).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_pool_moves_to_other_endpoints_and_no_limit_is_lifted() {
    let cluster = cluster(&["sim-1", "sim-2"]).await;
    let (first, second) = (Nodes::default(), Nodes::default());
    for name in ["sim-1", "sim-2"] {
        first.put(name, Node::new());
        cluster.profile(name, name, 150).await;
    }
    // The new endpoint shows the machine as it is: under the cap.
    second.put("sim-1", Node { cap: 150.0, ..Node::new() });
    let (at, other) = (first.serve().await, second.serve().await);
    let agent = Agent::start(&pool(&cluster, at));
    for name in ["sim-1", "sim-2"] {
        cluster.until("NodePowerProfile", name, is_enforced).await;
    }
    let (before, posts) = (first.get("sim-1").posts.len(), first.get("sim-2").posts.len());
    cluster.apply("TelemetryProfile", "move", over_http(other, "sim-1")).await;
    let told = is_followed(&cluster, "move").await;
    let cpu = &told["status"]["control"]["cpu"];
    assert_eq!((cpu["backend"].as_str(), cpu["observed"]["capWatts"].as_i64()), (Some("rapl"), Some(150)));
    cluster.profile("sim-1", "sim-1", 120).await;
    second.until("sim-1", |node| node.cap == 120.0).await;
    // Each of two packages is told the limit that was found, and then the lower one.
    assert_eq!(second.get("sim-1").peak, 300.0, "no limit above the one that was found");
    assert_eq!(
        (first.get("sim-1").cap, first.get("sim-1").posts.len()),
        (150.0, before),
        "it is left as it is"
    );
    assert_eq!(first.get("sim-2").posts.len(), posts, "nobody else moved");

    // What cannot be followed changes nothing, and is told.
    let mut half = over_http(at, "sim-1");
    half["controls"]["gpu"] = json!({"type": "host"});
    cluster.apply("TelemetryProfile", "move", half).await;
    let refused = cluster.until("TelemetryProfile", "move", |it| accepted(it).0 == "False").await;
    assert!(accepted(&refused).1.contains("not half and half"), "{refused:#}");
    agent.until_page("/metrics", "joulie_route_refused{node=\"sim-1\"} 1").await;
    cluster.profile("sim-1", "sim-1", 130).await;
    second.until("sim-1", |node| node.cap == 130.0).await;

    // One that comes before it by name is followed, and this one says so, and not what came of it before.
    cluster.apply("TelemetryProfile", "before", over_http(other, "sim-1")).await;
    is_followed(&cluster, "before").await;
    let outranked = cluster.until("TelemetryProfile", "move", |it| accepted(it).1.contains("before")).await;
    assert_eq!(accepted(&outranked).0, "False", "{outranked:#}");
    assert_eq!(outranked["status"]["control"]["cpu"], Value::Null, "{outranked:#}");
    cluster.delete("TelemetryProfile", "before").await;
    cluster.until("TelemetryProfile", "move", |it| accepted(it).1.contains("not half and half")).await;

    // Without it the settings hold again.
    cluster.delete("TelemetryProfile", "move").await;
    first.until("sim-1", |node| node.cap == 130.0).await;
    assert_eq!(second.get("sim-1").cap, 130.0, "it is left as it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_leaves_its_hardware_for_an_endpoint_and_comes_back_and_no_limit_is_lifted() {
    let Some(machine) = TestMachine::profile("xeon-2s") else { return };
    let (nodes, cluster) = (Nodes::default(), cluster(&["node-a"]).await);
    nodes.put("node-a", Node::new());
    let at = nodes.serve().await;
    cluster.profile("node-a", "node-a", 120).await;
    let agent = Agent::start(&machine.settings(&cluster));
    machine.until_limits(&[120, 120]).await;
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;

    cluster.apply("TelemetryProfile", "away", over_http(at, "node-a")).await;
    nodes.until("node-a", |node| node.cap == 120.0).await;
    is_followed(&cluster, "away").await;
    cluster.profile("node-a", "node-a", 110).await;
    nodes.until("node-a", |node| node.cap == 110.0).await;
    assert_eq!(machine.limits(), [120, 120], "the hardware keeps what it had");

    // A profile of another node, and one for the cluster, are behind that of the node.
    cluster.apply("TelemetryProfile", "a-other", over_http(([127, 0, 0, 1], 9).into(), "node-b")).await;
    let mut of_all = over_http(([127, 0, 0, 1], 9).into(), "node-a");
    of_all["target"] = json!({"scope": "cluster"});
    cluster.apply("TelemetryProfile", "a-all", of_all).await;
    cluster.profile("node-a", "node-a", 105).await;
    nodes.until("node-a", |node| node.cap == 105.0).await;
    for name in ["a-other", "a-all"] {
        cluster.delete("TelemetryProfile", name).await;
    }

    // An endpoint that fails does not lead back to the hardware.
    nodes.change("node-a", |node| node.silent = true);
    nodes.change("node-a", |node| node.refuses = Some("error"));
    cluster.profile("node-a", "node-a", 100).await;
    let failed = |it: &Value| it["status"]["control"]["cpu"]["result"] == "error";
    cluster.until("NodePowerProfile", "node-a", failed).await;
    assert_eq!(machine.limits(), [120, 120]);

    cluster.delete("TelemetryProfile", "away").await;
    machine.until_limits(&[100, 100]).await;
    cluster.until("NodePowerProfile", "node-a", is_enforced).await;
    assert_eq!(agent.terminate().await.code(), Some(0));
    assert_eq!(machine.limits(), [100, 100], "the end of a process lifts no cap");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_first_profile_is_refused_is_left_alone() {
    let Some(machine) = TestMachine::profile("xeon-2s") else { return };
    let cluster = cluster(&["node-a"]).await;
    let mut spec = over_http(([127, 0, 0, 1], 9).into(), "node-a");
    spec["controls"]["cpu"] = json!({"type": "host"});
    cluster.apply("TelemetryProfile", "bad", spec).await;
    cluster.profile("node-a", "node-a", 120).await;
    let before = machine.limits();
    let agent = Agent::start(&machine.settings(&cluster));
    cluster.until("TelemetryProfile", "bad", |it| accepted(it).0 == "False").await;
    let blocked = |it: &Value| it["status"]["control"]["cpu"]["result"] == "blocked";
    cluster.until("NodePowerProfile", "node-a", blocked).await;
    assert_eq!(machine.limits(), before);
    cluster.delete("TelemetryProfile", "bad").await;
    machine.until_limits(&[120, 120]).await;
    drop(agent);
}
