//! Each change of a node's state is an Event on the Node that says why.

use super::rig::Cluster;
use serde_json::Value;
use std::sync::Arc;

impl Cluster {
    /// The texts of the Events of a reason about a node.
    async fn told_of(&self, node: &str, reason: &str) -> Vec<String> {
        let events = self.list("/apis/events.k8s.io/v1/namespaces/default/events").await;
        let of = |event: &&Value| event["reason"] == reason && event["regarding"]["name"] == node;
        events.iter().filter(of).filter_map(|event| event["note"].as_str().map(str::to_owned)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_drains_and_is_drained_says_so_and_one_that_stays_says_nothing() {
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b"] {
        cluster.node(node).await;
        cluster.hardware(node, 100.0).await;
    }
    let agents = cluster.agents();
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0.5")]).await;
    let label = async |node: &str| cluster.label(node).await.unwrap_or_default();
    cluster
        .until("both have their labels", async || {
            label("a").await == "performance" && label("b").await == "eco"
        })
        .await;
    cluster.pod("p", Some("b"), "performance").await;
    let told = async |reason: &str| cluster.told_of("b", reason).await;
    cluster.until("it is told to drain", async || !told("DrainingPerformance").await.is_empty()).await;
    assert_eq!(told("DrainingPerformance").await, ["1 performance pods are on this eco node"]);
    cluster
        .send("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0", &Value::Null)
        .await
        .unwrap();
    cluster.until("it is told to be eco again", async || !told("ActiveEco").await.is_empty()).await;
    assert_eq!(told("ActiveEco").await, ["no performance pod is on it any more"]);
    for reason in ["ActivePerformance", "DrainingPerformance", "ActiveEco"] {
        assert_eq!(cluster.told_of("a", reason).await, Vec::<String>::new(), "{reason}");
    }
    operator.stop().await;
    agents.abort();
}
