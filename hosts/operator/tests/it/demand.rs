//! Pods are created and deleted, and the nodes follow.

use super::rig::Cluster;
use std::sync::Arc;
use std::time::Duration;

async fn labelled(cluster: &Cluster, node: &str, profile: &str) {
    cluster
        .until(&format!("{node} is {profile}"), async || {
            cluster.label(node).await.as_deref() == Some(profile)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c3_pods_that_wait_raise_the_count_of_performance_nodes() {
    // Fix list operator B8: a pod that waits for a performance node counts as demand.
    let cluster = Arc::new(Cluster::new().await);
    for at in 0..4 {
        cluster.node(&format!("n{at}")).await;
    }
    let options =
        [("POLICY_TYPE", "queue_aware_v1"), ("QUEUE_HP_BASE_FRAC", "0.25"), ("QUEUE_PERF_PER_HP_NODE", "1")];
    let operator = cluster.operator(&options).await;
    labelled(&cluster, "n0", "performance").await;
    labelled(&cluster, "n1", "eco").await;
    for at in 0..3 {
        cluster.pod(&format!("p{at}"), None, "performance").await;
    }
    for node in ["n0", "n1", "n2"] {
        labelled(&cluster, node, "performance").await;
    }
    labelled(&cluster, "n3", "eco").await;
    let profile = cluster.profile("n3").await.unwrap();
    assert_eq!(profile["spec"]["policy"]["name"], "queue-aware-v1");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_a_node_with_performance_pods_drains_and_one_without_them_does_not() {
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b"] {
        cluster.node(node).await;
        cluster.hardware(node, 100.0).await;
    }
    cluster.pod("busy", Some("b"), "performance").await;
    cluster.pod("idle", Some("b"), "standard").await;
    let agents = cluster.agents();
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0.5")]).await;
    labelled(&cluster, "a", "performance").await;
    labelled(&cluster, "b", "eco").await;
    let class = async |class: &str| {
        cluster.twin("b").await.is_some_and(|twin| twin["status"]["schedulableClass"] == class)
    };
    cluster.until("b drains", async || class("draining").await).await;
    let node = cluster.get("/api/v1/nodes/b").await.unwrap();
    assert_eq!(node["metadata"]["labels"]["joulie.io/draining"], "true");
    cluster
        .send("DELETE", "/api/v1/namespaces/default/pods/busy?gracePeriodSeconds=0", &serde_json::Value::Null)
        .await
        .unwrap();
    cluster.until("b has drained", async || class("eco").await).await;
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_waits_for_its_caps_and_a_downgrade_does_not() {
    // Fix list operator B30: no label says performance before the agent has read the caps back.
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b"] {
        cluster.node(node).await;
        cluster.hardware(node, 100.0).await;
    }
    let half = cluster.operator(&[("STATIC_HP_FRAC", "0")]).await;
    labelled(&cluster, "b", "eco").await;
    half.stop().await;
    let all = cluster.operator(&[("STATIC_HP_FRAC", "1")]).await;
    let lifted = async || {
        cluster.profile("b").await.is_some_and(|it| it["spec"]["cpu"]["packagePowerCapPctOfMax"] == 100)
    };
    cluster.until("the cap is lifted first", lifted).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(cluster.label("b").await.as_deref(), Some("eco"));
    cluster.confirm("b").await;
    labelled(&cluster, "b", "performance").await;
    all.stop().await;
}
