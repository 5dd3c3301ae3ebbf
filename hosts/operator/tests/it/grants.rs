//! What counts as granted: only what was read back in the present boot and for the present Node object.

use super::rig::{Cluster, JOULIE, node_info};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Two nodes of 200 to 720 W that would both draw all of it, under 1000 W.
async fn pair() -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b"] {
        cluster.node(node).await;
        cluster.hardware(node, 300.0).await;
    }
    cluster
}

const OPTIONS: [(&str, &str); 5] = [
    ("STATIC_HP_FRAC", "1"),
    ("BUDGET_SITE_WATTS", "1000"),
    ("BUDGET_RAISE_DWELL", "100ms"),
    ("BUDGET_GONE_HOLD", "3s"),
    ("BUDGET_ANSWER_WITHIN", "1s"),
];

async fn watts(cluster: &Cluster, node: &str) -> f64 {
    cluster.grant(node).await.and_then(|grant| grant["spec"]["watts"].as_f64()).unwrap_or(f64::NAN)
}

/// Whether each has half of the limit, and has read it back. Before that a node counts with all that it can draw.
async fn halves(cluster: &Cluster) -> bool {
    let mut all = true;
    for node in ["a", "b"] {
        let grant = cluster.grant(node).await.unwrap_or_default();
        all &= grant["spec"]["watts"] == 500.0 && grant["status"]["holds"] == 500.0;
    }
    all
}

async fn boots(cluster: &Cluster, node: &str, boot: &str) {
    let path = format!("/api/v1/nodes/{node}/status");
    cluster.patch(&path, &json!({"status": {"nodeInfo": node_info(boot)}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_rebooted_counts_at_its_maximum_until_it_says_what_it_holds() {
    let cluster = pair().await;
    let agents = cluster.agents();
    let operator = cluster.operator(&OPTIONS).await;
    cluster.until("each has the half", async || halves(&cluster).await).await;
    cluster.quiet(Duration::from_millis(300)).await;
    // The agents are stopped, and one of the nodes reboots: 1000 − 720 = 280 W are left for the other.
    agents.abort();
    boots(&cluster, "a", "another boot").await;
    cluster.until("b makes room", async || watts(&cluster, "b").await <= 280.0).await;
    // Its agent puts the grant that it has on disk in force, and reports it.
    let agents = cluster.agents();
    cluster.until("b has it back", async || halves(&cluster).await).await;
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_deleted_counts_until_its_agent_is_silent_for_long_enough() {
    let cluster = pair().await;
    let agents = cluster.agents();
    let operator = cluster.operator(&OPTIONS).await;
    cluster.until("each has the half", async || halves(&cluster).await).await;
    cluster.quiet(Duration::from_millis(300)).await;
    cluster.send("DELETE", "/api/v1/nodes/a", &Value::Null).await.unwrap();
    // By then the time is over in which a new leader raises nothing.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(watts(&cluster, "b").await, 500.0, "the machine runs on under its agent");
    cluster.until("its grant goes", async || cluster.grant("a").await.is_none()).await;
    cluster.until("b has all that it can draw", async || watts(&cluster, "b").await == 720.0).await;
    let events = cluster.list("/apis/events.k8s.io/v1/namespaces/joulie-system/events").await;
    assert!(events.iter().any(|event| event["reason"] == "GrantDropped"), "{events:?}");
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_back_under_its_name_is_another_one() {
    let cluster = pair().await;
    let agents = cluster.agents();
    let operator = cluster.operator(&OPTIONS).await;
    cluster.until("each has the half", async || halves(&cluster).await).await;
    agents.abort();
    // Another machine, which happens to report the same boot.
    cluster.send("DELETE", "/api/v1/nodes/a", &Value::Null).await.unwrap();
    cluster.node("a").await;
    cluster.until("b makes room", async || watts(&cluster, "b").await <= 280.0).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_is_released_when_there_is_room_and_its_grant_goes_when_it_knows() {
    let cluster = pair().await;
    let agents = cluster.agents();
    let operator = cluster.operator(&OPTIONS).await;
    cluster.until("each has the half", async || halves(&cluster).await).await;
    let reserved = |value: Value| json!({"metadata": {"labels": {"joulie.io/reserved": value}}});
    cluster.patch("/api/v1/nodes/a", &reserved(json!("true"))).await;
    // There is no room: a node that leaves gets no power from others, and nothing is lifted.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let grant = cluster.grant("a").await.unwrap();
    assert_eq!((grant["spec"]["watts"].as_f64(), &grant["spec"]["released"]), (Some(500.0), &Value::Null));
    // A second leader with a larger limit: there is room for both.
    operator.stop().await;
    let options =
        OPTIONS.map(|(name, value)| if name == "BUDGET_SITE_WATTS" { (name, "2000") } else { (name, value) });
    let operator = cluster.operator(&options).await;
    let released = async || cluster.grant("a").await.is_none_or(|grant| grant["spec"]["released"] == true);
    cluster.until("it is released", released).await;
    let agent = async || {
        if let Some(grant) = cluster.grant("a").await {
            cluster.holds(&grant, 720.0).await;
        }
        cluster.grant("a").await.is_none()
    };
    cluster.until("its grant goes when its agent knows", agent).await;
    assert_eq!(cluster.list(&format!("{JOULIE}/nodepowergrants")).await.len(), 1);
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_may_draw_all_it_can_is_tainted_where_that_is_asked() {
    let cluster = pair().await;
    // Taints of others stay.
    let theirs = json!({"key": "example.com/own", "value": "x", "effect": "NoExecute"});
    cluster.patch("/api/v1/nodes/a", &json!({"spec": {"taints": [theirs]}})).await;
    let taints = async |node: &str| {
        let node = cluster.get(&format!("/api/v1/nodes/{node}")).await.unwrap();
        node["spec"]["taints"].as_array().cloned().unwrap_or_default()
    };
    let ours = json!({"key": "joulie.io/uncapped", "effect": "NoSchedule"});
    let options = [OPTIONS.as_slice(), &[("BUDGET_TAINT_UNCAPPED", "true")]].concat();
    let operator = cluster.operator(&options).await;
    let both = [theirs.clone(), ours.clone()];
    cluster
        .until("both are tainted", async || taints("a").await == both && taints("b").await == [ours.clone()])
        .await;
    let agents = cluster.agents();
    let free = async || taints("a").await == [theirs.clone()] && taints("b").await.is_empty();
    cluster.until("they keep to their grants", free).await;
    agents.abort();
    boots(&cluster, "a", "another boot").await;
    cluster.until("it has rebooted", async || taints("a").await == both).await;
    assert!(taints("b").await.is_empty());
    operator.stop().await;
    // An operator without this setting removes the taint.
    let operator = cluster.operator(&OPTIONS).await;
    cluster.until("it goes", free).await;
    operator.stop().await;
}
