//! The agent's statuses: written once, and present as long as they are true.

use crate::nodes::{Node, Nodes, cluster, pool};
use crate::test_machine::{Agent, Cluster, is_enforced};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// Writes a status as somebody with the right to do so, but no reason, would.
async fn overwrite(cluster: &Cluster, kind: &str, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    let params = PatchParams { field_manager: Some("another".to_owned()), ..PatchParams::default() };
    cluster.of(kind).patch_status(name, &params, &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_somebody_else_overwrites_is_put_back_and_counted() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node::new());
    let at = nodes.serve().await;
    cluster.profile("sim-1", "sim-1", 150).await;
    let agent = Agent::start(&pool(&cluster, at));
    let before = cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
    let lie = json!({
        "control": {"cpu": {"capWatts": 250, "result": "error"}},
        "conditions": [],
    });
    overwrite(&cluster, "NodePowerProfile", "sim-1", lie).await;
    let back = cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
    for part in ["control", "conditions"] {
        assert_eq!(back["status"][part], before["status"][part], "with its times");
    }
    // What a second writer adds belongs to that writer.
    let beside = json!({
        "apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": "sim-1"},
        "status": {"conditions": [{
            "type": "Another", "status": "True", "reason": "There", "message": "of another",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    let (another, patch) = (PatchParams::apply("another"), Patch::Apply(beside));
    cluster.of("NodePowerProfile").patch_status("sim-1", &another, &patch).await.unwrap();
    cluster.until("NodeHardware", "sim-1", |it| it["status"]["cpu"]["sockets"] == 2).await;
    overwrite(&cluster, "NodeHardware", "sim-1", json!({"cpu": {"sockets": 64}})).await;
    cluster.until("NodeHardware", "sim-1", |it| it["status"]["cpu"]["sockets"] == 2).await;
    for (object, count) in [("nodepowerprofile", 1), ("nodehardware", 1)] {
        let line = format!("joulie_statuses_put_back_total{{object=\"{object}\"}} {count}");
        agent.until_page("/metrics", &line).await;
    }
    let profile = cluster.get("NodePowerProfile", "sim-1").await;
    let conditions = profile["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|one| one["type"] == "Another"), "{profile:#}");
    assert_eq!(nodes.get("sim-1").cap, 150.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_nothing_is_desired_of_is_described_without_an_error_and_let_go() {
    // Agent table, row 27: no error, and the hardware is described.
    let (nodes, cluster) = (Nodes::default(), cluster(&["node-a"]).await);
    nodes.put("node-a", Node { cap: 200.0, gpus: 2, ..Node::new() });
    let at = nodes.serve().await;
    let agent = Agent::start(&pool(&cluster, at));
    let hardware = cluster.until("NodeHardware", "node-a", |it| it["status"]["power"].is_object()).await;
    assert_eq!(hardware["spec"]["nodeName"], "node-a");
    assert_eq!(hardware["status"]["gpu"]["count"], 2);
    // A cap that is found is taken for Joulie's own, and nobody desires it.
    nodes.until("node-a", |node| node.cap == 250.0).await;
    let metrics = agent.page("/metrics").await;
    assert!(metrics.contains("joulie_backend_mode{node=\"node-a\",mode=\"none\"} 1"), "{metrics}");
    assert!(metrics.contains("joulie_reconcile_errors_total{node=\"node-a\"} 0"), "{metrics}");
}
