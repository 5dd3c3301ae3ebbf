//! Objects that exist but cannot be read: they are unknown, never absent.

use super::rig::{Cluster, JOULIE};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

async fn condition(cluster: &Cluster, node: &str) -> Option<Value> {
    let twin = cluster.twin(node).await?;
    let conditions = twin["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Unreadable").cloned()
}

async fn spec(cluster: &Cluster, node: &str) -> Value {
    cluster.profile(node).await.unwrap()["spec"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_cannot_be_read_is_not_written_over_and_its_node_is_not_raised() {
    let cluster = Arc::new(Cluster::lenient().await);
    for name in ["a", "b"] {
        cluster.node(name).await;
        cluster.hardware(name, 300.0).await;
    }
    let agents = cluster.agents();
    let options = [("STATIC_HP_FRAC", "0.5")];
    let operator = cluster.operator(&options).await;
    let has = async |node: &str, label: &str| cluster.label(node).await.as_deref() == Some(label);
    let settled = async || has("a", "performance").await && has("b", "eco").await;
    cluster.until("one is at full power and one is eco", settled).await;
    cluster.quiet(Duration::from_millis(300)).await;

    let path = format!("{JOULIE}/nodepowerprofiles/b?fieldManager=kubectl-edit");
    cluster.patch(&path, &json!({"spec": {"profile": "turbo"}})).await;
    let odd = spec(&cluster, "b").await;
    cluster.until("the twin says so", async || condition(&cluster, "b").await.is_some()).await;
    assert_eq!(condition(&cluster, "b").await.unwrap()["status"], "True");
    assert_eq!(cluster.twin("b").await.unwrap()["status"]["schedulableClass"], "unknown");
    let named = async || {
        let events = cluster.list("/apis/events.k8s.io/v1/namespaces/default/events").await;
        events.iter().any(|event| event["reason"] == "Unreadable" && event["regarding"]["name"] == "b")
    };
    cluster.until("an Event names it", named).await;
    // Full power for b is all that is left to plan.
    cluster.patch("/api/v1/nodes/a", &json!({"metadata": {"labels": {"joulie.io/reserved": "true"}}})).await;
    cluster.until("a is released", async || cluster.profile("a").await.is_none()).await;
    cluster.quiet(Duration::from_millis(300)).await;
    assert!(has("b", "eco").await);
    assert_eq!(spec(&cluster, "b").await, odd);
    // The next leader has never seen other content of it.
    operator.stop().await;
    let operator = cluster.operator(&options).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.quiet(Duration::from_millis(300)).await;
    assert!(has("b", "eco").await);
    assert_eq!(spec(&cluster, "b").await, odd);

    cluster.send("DELETE", &format!("{JOULIE}/nodepowerprofiles/b"), &Value::Null).await.unwrap();
    cluster.until("b is raised once nothing stands in the way", async || has("b", "performance").await).await;
    cluster.until("nothing is said of it any more", async || condition(&cluster, "b").await.is_none()).await;
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_hardware_cannot_be_read_has_an_agent_all_the_same() {
    let cluster = Arc::new(Cluster::lenient().await);
    for name in ["a", "b"] {
        cluster.node(name).await;
        let eco = json!({"metadata": {"labels": {"joulie.io/power-profile": "eco"}}});
        cluster.patch(&format!("/api/v1/nodes/{name}?fieldManager=joulie-operator"), &eco).await;
        let profile = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": name},
            "spec": {"nodeName": name, "profile": "eco", "cpu": {"packagePowerCapPctOfMax": 60}}});
        cluster.create(&format!("{JOULIE}/nodepowerprofiles?fieldManager=joulie-operator"), &profile).await;
    }
    let odd = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeHardware", "metadata": {"name": "b"}, "spec": {}});
    cluster.create(&format!("{JOULIE}/nodehardwares"), &odd).await;
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "1")]).await;
    let has = async |node: &str, label: &str| cluster.label(node).await.as_deref() == Some(label);
    cluster.until("the node without an agent is relabelled", async || has("a", "performance").await).await;
    cluster.until("it is said of the other", async || condition(&cluster, "b").await.is_some()).await;
    cluster.quiet(Duration::from_millis(300)).await;
    assert!(has("b", "eco").await);
    assert_eq!(spec(&cluster, "b").await["cpu"], json!({"packagePowerCapPctOfMax": 60}));
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_twin_that_cannot_be_read_is_not_made_anew() {
    let cluster = Arc::new(Cluster::lenient().await);
    cluster.node("a").await;
    let odd = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin", "metadata": {"name": "a"},
        "spec": {"nodeName": "a"}});
    cluster.create(&format!("{JOULIE}/nodetwins?fieldManager=kubectl-create"), &odd).await;
    let operator = cluster.operator(&[]).await;
    cluster.until("a is planned", async || cluster.profile("a").await.is_some()).await;
    cluster.quiet(Duration::from_millis(300)).await;
    let twin = cluster.twin("a").await.unwrap();
    assert_eq!((&twin["spec"], &twin["status"]), (&odd["spec"], &Value::Null));
    assert_eq!(cluster.list(&format!("{JOULIE}/nodetwins")).await.len(), 1);
    operator.stop().await;
}
