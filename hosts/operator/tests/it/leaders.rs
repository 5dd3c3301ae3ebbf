//! Two operators, of which only one acts.

use super::rig::{Cluster, LEASES};
use embedded_api::Loss;
use std::sync::Arc;
use std::time::Duration;

async fn settled(cluster: &Arc<Cluster>) {
    cluster
        .until("both nodes have labels", async || {
            cluster.label("a").await.is_some() && cluster.label("b").await.is_some()
        })
        .await;
    cluster.quiet(Duration::from_millis(300)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_operator_takes_over_and_changes_nothing_of_what_is_published() {
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b"] {
        cluster.node(node).await;
        cluster.hardware(node, 100.0).await;
    }
    let agents = cluster.agents();
    let first = cluster.operator(&[]).await;
    settled(&cluster).await;
    let second = cluster.operator(&[]).await;
    let holder = async || {
        cluster.get(&format!("{LEASES}/joulie-operator")).await.unwrap()["spec"]["holderIdentity"].clone()
    };
    let (before, leads) = (cluster.writes().await, holder().await);
    first.stop().await;
    cluster.until("the second leads", async || holder().await != leads && holder().await != "").await;
    let plan = format!("{LEASES}/joulie-plan");
    cluster
        .until("the second renews the plan", async || {
            cluster.get(&plan).await.unwrap()["spec"]["holderIdentity"] == holder().await
        })
        .await;
    assert_eq!(cluster.writes().await, before, "a restart adopts what is published");
    second.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_named_after_its_pod_and_after_no_other_process_of_that_name() {
    let cluster = Cluster::new().await;
    cluster.node("a").await;
    let (pod, path) = ("joulie-operator-7d9f-x2x", format!("{LEASES}/joulie-operator"));
    let holder = async || {
        let lease = cluster.get(&path).await.unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    };
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let operator = cluster.operator(&[("POD_NAME", pod)]).await;
        cluster.until("it leads", async || !holder().await.is_empty()).await;
        let name = holder().await;
        let chance = name.strip_prefix(&format!("{pod}_")).unwrap_or_else(|| panic!("{name}"));
        assert_eq!((chance.len(), u32::from_str_radix(chance, 16).is_ok()), (8, true), "{name}");
        assert!(seen.insert(name));
        operator.stop().await;
        cluster.until("the lease is given up", async || holder().await.is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_is_followed_when_its_lease_has_run_out() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.node("b").await;
    let first = cluster.operator(&[]).await;
    settled(&cluster).await;
    let second = cluster.operator(&[]).await;
    first.kill();
    cluster.node("c").await;
    cluster.until("the second plans", async || cluster.label("c").await.is_some()).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_api_server_changes_nothing_and_ends_without_a_restart() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.node("b").await;
    let operator = cluster.operator(&[]).await;
    settled(&cluster).await;
    let before = cluster.writes().await;
    cluster.api.faults().partition("operator", Loss::Refused);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(cluster.writes().await, before);
    cluster.api.faults().heal();
    cluster.node("c").await;
    cluster.until("it plans again", async || cluster.label("c").await.is_some()).await;
    // The label of an eco node is the first of its writes.
    settled(&cluster).await;
    assert_eq!(cluster.writes().await.len(), before.len() + 3, "a node, its profile and its twin are new");
    operator.stop().await;
}
