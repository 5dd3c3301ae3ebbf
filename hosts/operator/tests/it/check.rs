//! The command that says whether an installation does its work.

use super::rig::{Cluster, JOULIE, LEASES};
use super::rights::{Rights, limited};
use embedded_api::{ApiOptions, EmbeddedApi};
use host_kit::clock::SystemClock;
use host_kit::config::{Invocation, load};
use operator::{CHECK_TABLE, Checked};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::sync::Arc;

/// What the command says of a cluster, with the rights that the operator's account has.
async fn check(api: &EmbeddedApi, variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let Invocation::Run(sources) = Invocation::read(std::iter::empty(), variables) else {
        panic!("neither was asked for")
    };
    let checked = Checked::read(&load(&CHECK_TABLE, &sources).unwrap()).unwrap();
    let (client, forbidden) = limited(api.client_as("check"), Rights::shipped());
    let outcome = operator::wait_for_order(&client, &checked, &SystemClock::new()).await;
    assert_eq!(forbidden.all(), Vec::<String>::new());
    outcome
}

const AT_ONCE: (&str, &str) = ("CHECK_TIMEOUT", "1s");

/// What an agent says of its caps.
async fn says(cluster: &Cluster, node: &str, status: &str, reason: &str, behind: i64) {
    let profile = cluster.profile(node).await.unwrap();
    let generation = profile["metadata"]["generation"].as_i64().unwrap();
    let condition = json!({"type": "CapEnforced", "status": status, "reason": reason, "message": "of the test",
        "observedGeneration": generation - behind, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let path = format!("{JOULIE}/nodepowerprofiles/{node}");
    cluster
        .apply_status("joulie-agent", "NodePowerProfile", &path, &json!({"conditions": [condition]}))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_in_order_is_said_to_be_so_and_each_thing_that_is_not_is_named() {
    let cluster = Arc::new(Cluster::new().await);
    let why = check(&cluster.api, &[AT_ONCE]).await.unwrap_err();
    assert!(why.contains("nobody has renewed the Lease joulie-system/joulie-plan"), "{why}");
    assert!(why.contains("no node has the labels joulie.io/managed=true"), "{why}");

    cluster.node("a").await;
    cluster.labelled("kept", json!({"joulie.io/reserved": "true"})).await;
    cluster.labelled("drained", json!({})).await;
    cluster.patch("/api/v1/nodes/drained", &json!({"spec": {"unschedulable": true}})).await;
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0")]).await;
    cluster.until("a has a twin", async || cluster.twin("a").await.is_some()).await;
    let why = check(&cluster.api, &[AT_ONCE]).await.unwrap_err();
    assert!(why.contains("node a: no NodeHardware: its agent has not reported"), "{why}");
    assert!(why.contains("0 of 1 managed nodes") && why.contains("not planned for: 2"), "{why}");

    cluster.hardware("a", 100.0).await;
    cluster.until("a is planned for", async || cluster.profile("a").await.is_some()).await;
    let missing = async || check(&cluster.api, &[AT_ONCE]).await.unwrap_err();
    cluster
        .until("its meter was heard", async || {
            missing().await.contains("node a: its agent does not say whether the caps are in force")
        })
        .await;
    says(&cluster, "a", "True", "Enforced", 1).await;
    assert!(missing().await.contains("node a: its agent has not answered to what is asked now"));
    says(&cluster, "a", "False", "Failed", 0).await;
    assert!(missing().await.contains("node a: CapEnforced is False (Failed): of the test"));

    // Nothing mends what a site has set up so.
    says(&cluster, "a", "False", "SimulateOnly", 0).await;
    let said = check(&cluster.api, &[AT_ONCE]).await.unwrap();
    assert!(
        said.contains(&"node a: CapEnforced is False (SimulateOnly): of the test".to_owned()),
        "{said:?}"
    );
    says(&cluster, "a", "True", "Enforced", 0).await;
    let said = check(&cluster.api, &[AT_ONCE]).await.unwrap();
    assert_eq!(said[0], "the kinds are there");
    assert!(said[1].starts_with("the Lease joulie-system/joulie-plan was renewed "), "{said:?}");
    assert_eq!(
        said[2..],
        [
            "reserved and cordoned nodes, which are not planned for: 2",
            "1 of 1 managed nodes report and hold what is asked of them"
        ]
    );
    operator.stop().await;

    let old = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    cluster.patch(&format!("{LEASES}/joulie-plan"), &old).await;
    assert!(missing().await.contains(": is an operator running?"));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_what_is_on_its_way() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.hardware("a", 100.0).await;
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0"), ("BUDGET_SITE_WATTS", "5000")]).await;
    let agents = cluster.agents();
    let checking = tokio::spawn({
        let api = cluster.clone();
        async move { check(&api.api, &[("CHECK_TIMEOUT", "60s")]).await }
    });
    cluster
        .until("a is granted and planned for", async || {
            cluster.grant("a").await.is_some() && cluster.profile("a").await.is_some()
        })
        .await;
    // The profile may be written again after the first grant; agents answer to each.
    while !checking.is_finished() {
        says(&cluster, "a", "True", "Enforced", 0).await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let said = checking.await.unwrap().unwrap();
    assert!(said.last().unwrap().starts_with("1 of 1 managed nodes"), "{said:?}");
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_not_read_back_is_named() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.hardware("a", 100.0).await;
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0"), ("BUDGET_SITE_WATTS", "5000")]).await;
    let both = async || cluster.grant("a").await.is_some() && cluster.profile("a").await.is_some();
    cluster.until("a is granted and planned for", both).await;
    let named = async || {
        says(&cluster, "a", "True", "Enforced", 0).await;
        let outcome = check(&cluster.api, &[AT_ONCE]).await;
        outcome.is_err_and(|why| why.contains("node a: its agent has not read back its grant"))
    };
    cluster.until("the grant is named", named).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_is_not_used_as_it_is_written_is_named() {
    let cluster = Cluster::new().await;
    let budget = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": "r1"},
        "spec": {"watts": 5000, "mode": "enforce", "parent": "site"}});
    cluster.create(&format!("{JOULIE}/powerbudgets"), &budget).await;
    let outcome = check(&cluster.api, &[AT_ONCE]).await;
    assert!(outcome.is_err_and(|why| why.contains("PowerBudget r1: the operator has not taken it in")));
    let operator = cluster.operator(&[]).await;
    let named = async || {
        let outcome = check(&cluster.api, &[AT_ONCE]).await;
        outcome.is_err_and(|why| {
            why.contains("PowerBudget r1: Accepted is False: there is no PowerBudget of the parent's name")
        })
    };
    cluster.until("the parent is named", named).await;
    cluster.patch(&format!("{JOULIE}/powerbudgets/r1"), &json!({"spec": {"parent": null}})).await;
    let in_order = async || {
        check(&cluster.api, &[AT_ONCE]).await.is_ok_and(|said| said.contains(&"PowerBudgets: 1".to_owned()))
    };
    cluster.until("it is in order", in_order).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_missing_is_named_with_the_chart_that_has_it() {
    let mut kinds = joulie_api::crd::all();
    kinds.retain(|kind| kind.spec.names.kind != "NodePowerGrant");
    let api = EmbeddedApi::new(&ApiOptions::with(kinds)).unwrap();
    let client = api.client_as("test");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "joulie-system"}});
    let request = http::Request::post("/api/v1/namespaces").header("content-type", "application/json");
    let _: Value = client.request(request.body(namespace.to_string().into_bytes()).unwrap()).await.unwrap();
    let why = check(&api, &[AT_ONCE]).await.unwrap_err();
    let missing = "the kind nodepowergrants.joulie.io is not there: install the chart joulie-crds";
    assert!(why.contains(missing) && !why.contains("nodetwins"), "{why}");
}
