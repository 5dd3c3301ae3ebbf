//! The command that releases every node.

use super::rig::{Cluster, JOULIE, LEASES};
use super::rights::{Rights, limited};
use host_kit::clock::SystemClock;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

const PROFILES: &str = "/apis/joulie.io/v1alpha1/nodepowerprofiles";

/// Runs the command with the rights of the operator's account. Returns its result and its messages.
async fn uninstall(cluster: &Cluster, within: Duration) -> (Result<(), String>, Vec<String>) {
    let (client, forbidden) = limited(cluster.api.client_as("uninstall"), Rights::shipped());
    let clock = SystemClock::new();
    let mut told = Vec::new();
    let mut tell = |text: &str| told.push(text.to_owned());
    let outcome = operator::release_all(&client, "joulie-system", within, &clock, &mut tell).await;
    // Whoever is authenticated may ask who he is, without a role.
    let others = forbidden.all().into_iter().filter(|asked| !asked.contains("selfsubjectreviews"));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<String>::new());
    (outcome, told)
}

/// Agents that read back grants even if no profile is left: they hold all that a grant allows.
fn holders(cluster: &Arc<Cluster>) -> JoinHandle<()> {
    let cluster = cluster.clone();
    tokio::spawn(async move {
        loop {
            for grant in cluster.list(&format!("{JOULIE}/nodepowergrants")).await {
                let name = grant["spec"]["nodeName"].as_str().unwrap();
                if cluster.profile(name).await.is_none() {
                    let watts = grant["spec"]["watts"].as_f64().unwrap();
                    cluster.holds(&grant, watts.min(720.0)).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_is_released_a_new_leader_plans_none_and_a_persons_profile_stays() {
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b"] {
        cluster.node(node).await;
        cluster.hardware(node, 100.0).await;
    }
    cluster.labelled("c", json!({"joulie.io/managed": "false"})).await;
    let persons = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": "c"},
        "spec": {"nodeName": "c", "profile": "eco"}});
    cluster.create(PROFILES, &persons).await;
    let agents = cluster.agents();
    let holders = holders(&cluster);
    let budget = [("STATIC_HP_FRAC", "0"), ("BUDGET_SITE_WATTS", "5000")];
    let operator = cluster.operator(&budget).await;
    cluster
        .until("both are granted", async || {
            cluster.list(&format!("{JOULIE}/nodepowergrants")).await.len() == 2
        })
        .await;
    cluster.until("b is eco", async || cluster.label("b").await.as_deref() == Some("eco")).await;

    let (outcome, told) = uninstall(&cluster, Duration::from_secs(60)).await;
    assert_eq!(outcome, Ok(()), "{told:?}");
    for node in ["a", "b"] {
        assert_eq!((cluster.label(node).await, cluster.grant(node).await), (None, None), "{node}");
    }
    let left = cluster.list(PROFILES).await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["metadata"]["name"], "c");

    // The next leader sees the request before it plans anything.
    operator.stop().await;
    let next = cluster.operator(&budget).await;
    let renewed = cluster.get(&format!("{LEASES}/joulie-plan")).await.unwrap()["spec"]["renewTime"].clone();
    let plan = async || cluster.get(&format!("{LEASES}/joulie-plan")).await.unwrap();
    cluster
        .until("the next one has made passes", async || plan().await["spec"]["renewTime"] != renewed)
        .await;
    assert_eq!(plan().await["metadata"]["annotations"]["joulie.io/release"], "all");
    assert_eq!((cluster.label("b").await, cluster.list(PROFILES).await.len()), (None, 1));

    // A person withdraws the request.
    let back = json!({"metadata": {"annotations": {"joulie.io/release": null}}});
    cluster.patch(&format!("{LEASES}/joulie-plan"), &back).await;
    cluster
        .until("b is planned for again", async || cluster.label("b").await.as_deref() == Some("eco"))
        .await;
    next.stop().await;
    agents.abort();
    holders.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_released_is_named_with_what_to_do() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.hardware("a", 100.0).await;
    let agents = cluster.agents();
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0"), ("BUDGET_SITE_WATTS", "600")]).await;
    cluster.until("a is granted", async || cluster.grant("a").await.is_some()).await;
    // The limit is too low for all that the node may draw.
    let (outcome, told) = uninstall(&cluster, Duration::from_secs(2)).await;
    let why = outcome.unwrap_err();
    assert!(why.contains("NodePowerGrant a") && why.contains("BUDGET_SITE_WATTS"), "{why}");
    assert!(why.contains("kubectl annotate lease joulie-plan joulie.io/release-"), "{why}");
    assert!(told.iter().any(|text| text.contains("joulie-system/joulie-plan")), "{told:?}");
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_operator_it_says_so() {
    let cluster = Arc::new(Cluster::new().await);
    let profile = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile",
        "metadata": {"name": "a", "labels": {"joulie.io/managed-by": "operator"}}, "spec": {"nodeName": "a", "profile": "eco"}});
    cluster.create(PROFILES, &profile).await;
    let (outcome, _) = uninstall(&cluster, Duration::from_secs(1)).await;
    let why = outcome.unwrap_err();
    assert!(why.contains("NodePowerProfile a") && why.contains("No operator has ever renewed"), "{why}");
}
