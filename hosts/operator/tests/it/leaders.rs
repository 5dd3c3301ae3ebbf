//! Two operators, of which only one acts.

use super::rig::{Cluster, JOULIE, LEASES};
use embedded_api::Loss;
use host_kit::clock::{HostClock, SystemClock};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
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

/// What the leader before has sent may land until then. The Lease of these operators is for 6 s, and a grant has 5 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_lowers_at_once_and_raises_when_nothing_of_the_one_before_can_land() {
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b"] {
        cluster.node(node).await;
        cluster.hardware(node, 300.0).await;
    }
    let budget = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": "site"},
        "spec": {"watts": 1000, "mode": "enforce"}});
    cluster.create(&format!("{JOULIE}/powerbudgets"), &budget).await;
    let has = async |watts: f64| {
        let grants = [cluster.grant("a").await, cluster.grant("b").await];
        grants.iter().flatten().filter(|grant| grant["spec"]["watts"].as_f64() == Some(watts)).count() == 2
    };
    let limit = async |watts: u32| {
        cluster.patch(&format!("{JOULIE}/powerbudgets/site"), &json!({"spec": {"watts": watts}})).await;
    };
    let lease = async || cluster.get(&format!("{LEASES}/joulie-operator")).await.unwrap()["spec"].clone();
    let options = [("STATIC_HP_FRAC", "1"), ("BUDGET_RAISE_DWELL", "100ms")];
    let agents = cluster.agents();
    let first = cluster.operator(&options).await;
    cluster.until("each has the half", async || has(500.0).await).await;
    let before = lease().await["holderIdentity"].clone();
    first.stop().await;

    let second = cluster.operator(&options).await;
    let leads = async || {
        let holder = lease().await["holderIdentity"].clone();
        holder != before && holder.as_str().is_some_and(|holder| !holder.is_empty())
    };
    cluster.until("the second leads", leads).await;
    let begun: Timestamp = lease().await["acquireTime"].as_str().unwrap().parse().unwrap();
    limit(800).await;
    cluster.until("they are lowered", async || has(400.0).await).await;
    limit(1400).await;
    cluster.until("they are raised", async || has(700.0).await).await;
    let after = SystemClock::new().wall().duration_since(begun);
    assert!(after >= SignedDuration::from_secs(11), "raised after {after:?}");
    second.stop().await;
    agents.abort();
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
