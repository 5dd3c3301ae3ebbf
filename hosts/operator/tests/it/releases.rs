//! Nodes that are not planned for any more.

use super::rig::{Cluster, JOULIE};
use serde_json::{Value, json};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_deselected_or_deleted_is_let_go_and_a_persons_profile_stays() {
    // Fix list operator B17: caps, labels and objects do not stay forever.
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b", "c"] {
        cluster.node(node).await;
        cluster.hardware(node, 100.0).await;
    }
    let agents = cluster.agents();
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0")]).await;
    let eco = async |node: &str| cluster.label(node).await.as_deref() == Some("eco");
    cluster.until("b and c are eco", async || eco("b").await && eco("c").await).await;
    cluster.patch("/api/v1/nodes/b", &json!({"metadata": {"labels": {"joulie.io/managed": null}}})).await;
    cluster.send("DELETE", "/api/v1/nodes/c", &Value::Null).await.unwrap();
    cluster
        .until("both are let go", async || {
            cluster.profile("b").await.is_none()
                && cluster.twin("b").await.is_none()
                && cluster.profile("c").await.is_none()
                && cluster.twin("c").await.is_none()
        })
        .await;
    let labels = cluster.get("/api/v1/nodes/b").await.unwrap()["metadata"]["labels"].clone();
    assert!(labels.get("joulie.io/power-profile").is_none() && labels.get("joulie.io/draining").is_none());
    assert!(cluster.get("/api/v1/nodes/c").await.is_none(), "a node that is gone is not made anew");
    assert_eq!(cluster.list(&format!("{JOULIE}/nodetwins")).await.len(), 1);
    operator.stop().await;
    agents.abort();
}
