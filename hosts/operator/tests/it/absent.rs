//! Nodes that are not Ready: they keep their places for a while, and therefore the others keep theirs.

use super::rig::{Cluster, JOULIE, LEASES};
use host_kit::clock::{HostClock, SystemClock};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NODES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn ago(time: Duration) -> String {
    SystemClock::new().wall().checked_sub(time).unwrap().to_string()
}

fn now() -> String {
    ago(Duration::ZERO)
}

async fn has(cluster: &Cluster, node: &str, label: &str) -> bool {
    cluster.label(node).await.as_deref() == Some(label)
}

/// What is requested of every node.
async fn asked(cluster: &Cluster) -> Vec<(Value, Option<String>)> {
    let mut all = Vec::new();
    for node in NODES {
        all.push(asked_of(cluster, node).await);
    }
    all
}

async fn asked_of(cluster: &Cluster, node: &str) -> (Value, Option<String>) {
    (cluster.profile(node).await.unwrap()["spec"].clone(), cluster.label(node).await)
}

async fn plan_renewed(cluster: &Cluster) -> Value {
    let lease = cluster.get(&format!("{LEASES}/joulie-plan")).await;
    lease.map_or(Value::Null, |lease| lease["spec"]["renewTime"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_all_go_and_come_back_one_by_one_change_nothing() {
    // After an outage of the API server the node controller has not heard of any node, the leader has just started, and
    // no meter has reported yet.
    let cluster = Arc::new(Cluster::new().await);
    for node in NODES {
        cluster.node(node).await;
        cluster.hardware(node, 300.0).await;
    }
    let agents = cluster.agents();
    let operator = cluster.operator(&[]).await;
    cluster
        .until("half of them have full power", async || {
            let mut full = 0;
            for node in NODES {
                full += usize::from(has(&cluster, node, "performance").await);
            }
            full == 3
        })
        .await;
    cluster.quiet(Duration::from_millis(300)).await;
    let before = asked(&cluster).await;
    for node in NODES {
        cluster.ready(node, "Unknown", Some(&now())).await;
        let path = format!("{JOULIE}/nodehardwares/{node}/status");
        cluster.patch(&path, &json!({"status": {"power": {"cpuWatts": null}}})).await;
    }
    passed(&cluster).await;
    assert_eq!(asked(&cluster).await, before, "all are gone");
    operator.stop().await;
    let operator = cluster.operator(&[]).await;
    for node in NODES {
        passed(&cluster).await;
        assert_eq!(asked(&cluster).await, before, "before {node} is back");
        cluster.ready(node, "True", Some(&now())).await;
    }
    cluster.quiet(Duration::from_millis(500)).await;
    assert_eq!(asked(&cluster).await, before);
    operator.stop().await;
    agents.abort();
}

/// Two nodes, of which the first has full power. The operator that planned them has ended.
async fn half_of_two() -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.node("b").await;
    let operator = cluster.operator(&[]).await;
    cluster
        .until("both are planned", async || {
            has(&cluster, "a", "performance").await && has(&cluster, "b", "eco").await
        })
        .await;
    cluster.quiet(Duration::from_millis(300)).await;
    operator.stop().await;
    cluster
}

/// Waits until a pass was made with what is known from here on, and everything that follows from it is written. The
/// next renewal may be that of an earlier pass.
async fn passed(cluster: &Cluster) {
    for _ in 0..2 {
        let renewed = plan_renewed(cluster).await;
        cluster.until("a pass is made", async || plan_renewed(cluster).await != renewed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_come_back_is_replaced_when_its_time_is_over() {
    let cluster = half_of_two().await;
    let operator = cluster.operator(&[("NOT_READY_PATIENCE", "5s")]).await;
    passed(&cluster).await;
    for time in ["first", "second"] {
        cluster.ready("a", "False", Some(&now())).await;
        cluster.quiet(Duration::from_secs(1)).await;
        assert!(has(&cluster, "b", "eco").await, "the place is kept, the {time} time");
        cluster.until("b takes it", async || has(&cluster, "b", "performance").await).await;
        assert!(has(&cluster, "a", "performance").await, "it is left as it is");
        // Another reason for not being ready does not start the wait again.
        cluster.ready("a", "Unknown", Some(&now())).await;
        passed(&cluster).await;
        assert!(has(&cluster, "b", "performance").await);
        cluster.ready("a", "True", Some(&now())).await;
        cluster.until("it is a's again", async || has(&cluster, "b", "eco").await).await;
    }
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_back_in_time_is_waited_for_anew_when_it_goes_again() {
    let cluster = half_of_two().await;
    let operator = cluster.operator(&[("NOT_READY_PATIENCE", "8s")]).await;
    passed(&cluster).await;
    cluster.ready("a", "False", Some(&now())).await;
    passed(&cluster).await;
    cluster.ready("a", "True", Some(&now())).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    cluster.ready("a", "False", Some(&now())).await;
    passed(&cluster).await;
    assert!(has(&cluster, "b", "eco").await);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_dead_before_anybody_looked_is_not_waited_for() {
    let cluster = half_of_two().await;
    cluster.ready("a", "False", Some(&ago(Duration::from_secs(301)))).await;
    let operator = cluster.operator(&[]).await;
    cluster.until("b takes its place", async || has(&cluster, "b", "performance").await).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_went_in_the_future_or_at_no_time_is_waited_for() {
    let cluster = half_of_two().await;
    let future = SystemClock::new().wall().checked_add(Duration::from_secs(3_600)).unwrap().to_string();
    for since in [Some(future.as_str()), None] {
        cluster.ready("a", "False", since).await;
        let operator = cluster.operator(&[]).await;
        passed(&cluster).await;
        assert!(has(&cluster, "b", "eco").await, "{since:?}");
        operator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_seen_to_go_is_waited_for_whatever_its_clock_says() {
    let cluster = half_of_two().await;
    let operator = cluster.operator(&[]).await;
    passed(&cluster).await;
    cluster.ready("a", "False", Some(&ago(Duration::from_secs(3_600)))).await;
    passed(&cluster).await;
    assert!(has(&cluster, "b", "eco").await);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_most_nodes_are_gone_nobody_is_given_up() {
    let cluster = half_of_two().await;
    cluster.node("c").await;
    let third = [("NOT_READY_PATIENCE", "8s"), ("STATIC_HP_FRAC", "0.34")];
    let operator = cluster.operator(&third).await;
    cluster.until("c is planned", async || has(&cluster, "c", "eco").await).await;
    cluster.quiet(Duration::from_millis(300)).await;
    cluster.ready("a", "Unknown", Some(&now())).await;
    cluster.ready("b", "Unknown", Some(&now())).await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(has(&cluster, "c", "eco").await);
    // The next leader finds them gone for longer than any wait.
    operator.stop().await;
    let operator = cluster.operator(&third).await;
    passed(&cluster).await;
    assert!(has(&cluster, "c", "eco").await);
    // When only one machine is gone, it has its full wait again, and then the wait ends.
    cluster.ready("b", "True", Some(&now())).await;
    passed(&cluster).await;
    assert!(has(&cluster, "b", "eco").await && has(&cluster, "c", "eco").await);
    cluster.until("b takes its place", async || has(&cluster, "b", "performance").await).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_were_never_planned_are_not_among_those_that_are_gone() {
    let cluster = half_of_two().await;
    let operator = cluster.operator(&[("NOT_READY_PATIENCE", "1s")]).await;
    passed(&cluster).await;
    for name in ["x", "y", "z"] {
        cluster.labelled(name, json!({"joulie.io/reserved": "true"})).await;
        cluster.ready(name, "False", None).await;
        cluster
            .patch(
                &format!("/api/v1/nodes/{name}"),
                &json!({"metadata": {"labels": {"joulie.io/reserved": null}}}),
            )
            .await;
    }
    cluster.ready("a", "False", Some(&now())).await;
    cluster.until("b takes its place", async || has(&cluster, "b", "performance").await).await;
    operator.stop().await;
}
