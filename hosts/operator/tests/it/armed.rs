//! Events that PowerBudgets are armed for: what the grants say, who is raised meanwhile, and what is told.

use super::rig::{Cluster, JOULIE};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const OPTIONS: [(&str, &str); 2] = [("STATIC_HP_FRAC", "1"), ("BUDGET_RAISE_DWELL", "100ms")];

/// Two nodes of 200 to 720 W under 1000 W, which is armed.
async fn pair() -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b"] {
        cluster.node(node).await;
        cluster.hardware(node, 300.0).await;
    }
    let armed = json!([{"event": "grid", "shares": {"performance": 0.5, "draining": 0.25, "eco": 0}}]);
    let spec = json!({"watts": 1000, "mode": "enforce", "armed": armed});
    let budget = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": "site"}, "spec": spec});
    cluster.create(&format!("{JOULIE}/powerbudgets"), &budget).await;
    cluster
}

async fn grants(cluster: &Cluster) -> Vec<Value> {
    let mut all = Vec::new();
    for node in ["a", "b"] {
        all.push(cluster.grant(node).await.unwrap_or_default());
    }
    all
}

async fn watts(cluster: &Cluster) -> Vec<Option<f64>> {
    grants(cluster).await.iter().map(|grant| grant["spec"]["watts"].as_f64()).collect()
}

async fn change(cluster: &Cluster, kind: &str, name: &str, spec: Value) {
    cluster.patch(&format!("{JOULIE}/{kind}/{name}"), &json!({"spec": spec})).await;
}

async fn event(cluster: &Cluster) -> Value {
    cluster.get(&format!("{JOULIE}/powerevents/friday")).await.unwrap_or_default()["status"].clone()
}

async fn told(cluster: &Cluster, reason: &str) -> Vec<String> {
    let events = cluster.list("/apis/events.k8s.io/v1/events").await;
    let of = events.iter().filter(|event| event["reason"] == reason);
    of.map(|event| event["note"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_an_event_is_on_nobody_is_raised_and_what_it_brought_is_told() {
    let cluster = pair().await;
    let agents = cluster.agents();
    let operator = cluster.operator(&OPTIONS).await;
    let armed = json!([{"event": "grid", "share": 0.5}]);
    let is_armed = async || grants(&cluster).await.iter().all(|grant| grant["spec"]["armed"] == armed);
    cluster.until("the grants say what the event leaves", is_armed).await;
    cluster.until("each has the half", async || watts(&cluster).await == [Some(500.0); 2]).await;
    let object = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerEvent", "metadata": {"name": "friday"},
        "spec": {"event": "grid", "active": false}});
    cluster.create(&format!("{JOULIE}/powerevents"), &object).await;
    cluster.until("it is off", async || event(&cluster).await["phase"] == "Off").await;

    change(&cluster, "powerevents", "friday", json!({"active": true})).await;
    cluster.until("it is on", async || event(&cluster).await["phase"] == "On").await;
    assert_eq!(event(&cluster).await["nodes"], 2);
    assert_eq!(told(&cluster, "EventBegan").await.len(), 1);
    // More for the site is no more for its nodes now.
    change(&cluster, "powerbudgets", "site", json!({"watts": 1400})).await;
    let is_taken_in = async || {
        let site = cluster.get(&format!("{JOULIE}/powerbudgets/site")).await.unwrap_or_default();
        site["status"]["limitWatts"] == 1400
    };
    cluster.until("the limit is taken in", is_taken_in).await;
    // One agent says that the caps are in force, the other one nothing.
    let said = json!({"status": {"armed": ["grid"]}});
    cluster.patch(&format!("{JOULIE}/nodepowergrants/a/status"), &said).await;
    let is_behind = async || event(&cluster).await["behind"] == json!(["b"]);
    cluster.until("the other one is behind", is_behind).await;
    let behind = told(&cluster, "EventNotFollowed").await;
    assert!(behind.len() == 1 && behind[0].ends_with(": b"), "{behind:?}");
    // By then the time is over in which a new leader raises nothing.
    assert_eq!(watts(&cluster).await, [Some(500.0); 2]);
    // Nothing was saved: the agents of this test report the same power whatever is on.
    let status = event(&cluster).await;
    assert_eq!((&status["baselineWatts"], &status["deliveredWatts"]), (&json!(600), &json!(0)), "{status}");

    change(&cluster, "powerevents", "friday", json!({"active": false})).await;
    cluster.until("they are raised", async || watts(&cluster).await == [Some(700.0); 2]).await;
    cluster.until("it is over", async || event(&cluster).await["phase"] == "Off").await;
    assert_eq!(event(&cluster).await["deliveredWatts"], 0, "what was delivered stays");
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_cannot_be_read_is_refused_in_its_status() {
    let cluster = pair().await;
    let agents = cluster.agents();
    let operator = cluster.operator(&OPTIONS).await;
    let spec = json!({"event": "grid", "start": "2026-11-27T20:00:00Z", "end": "2026-11-27T18:00:00Z"});
    let object = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerEvent", "metadata": {"name": "friday"}, "spec": spec});
    cluster.create(&format!("{JOULIE}/powerevents"), &object).await;
    cluster.until("it is refused", async || event(&cluster).await["phase"] == "Refused").await;
    let status = event(&cluster).await;
    assert!(
        status["message"].as_str().unwrap().starts_with("spec.end: expected a time after spec.start"),
        "{status}"
    );
    assert!(!status["message"].as_str().unwrap().contains("the agents keep"), "nobody knew it: {status}");
    // One that was read before is on as it was, and its status says until when.
    change(&cluster, "powerevents", "friday", json!({"start": null, "end": "2126-11-27T18:00:00Z"})).await;
    cluster.until("it is on", async || event(&cluster).await["phase"] == "On").await;
    change(&cluster, "powerevents", "friday", json!({"start": "2126-11-28T18:00:00Z"})).await;
    cluster.until("it is refused", async || event(&cluster).await["phase"] == "Refused").await;
    cluster.until("it is known whom it lowers", async || event(&cluster).await["nodes"] == 2).await;
    let status = event(&cluster).await;
    let told = status["message"].as_str().unwrap();
    assert!(
        told.contains("the agents keep what they knew of it until its end, 2126-11-27T18:00:00Z"),
        "{status}"
    );
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_that_cannot_read_an_event_raises_nobody_for_it() {
    let cluster = pair().await;
    let agents = cluster.agents();
    let first = cluster.operator(&OPTIONS).await;
    let object = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerEvent", "metadata": {"name": "friday"}, "spec": {"event": "grid"}});
    cluster.create(&format!("{JOULIE}/powerevents"), &object).await;
    cluster.until("it is on", async || event(&cluster).await["phase"] == "On").await;
    cluster.until("each has the half", async || watts(&cluster).await == [Some(500.0); 2]).await;
    let bad = json!({"start": "2026-11-27T20:00:00Z", "end": "2026-11-27T18:00:00Z"});
    change(&cluster, "powerevents", "friday", bad).await;
    cluster.until("it is refused", async || event(&cluster).await["phase"] == "Refused").await;
    first.stop().await;
    // This one has never read it. More for the site is no more for its nodes.
    let second = cluster.operator(&OPTIONS).await;
    let says =
        async |text: &str| event(&cluster).await["message"].as_str().unwrap_or_default().contains(text);
    cluster.until("it is told", async || says("nobody is raised").await).await;
    // By the end of this an event that is on would be told to be over, and a leader that raises nothing yet would raise.
    change(&cluster, "powerevents", "friday", json!({"event": "another"})).await;
    change(&cluster, "powerbudgets", "site", json!({"watts": 1400})).await;
    cluster.until("they are raised", async || watts(&cluster).await == [Some(700.0); 2]).await;
    change(&cluster, "powerevents", "friday", json!({"event": "grid"})).await;
    change(&cluster, "powerbudgets", "site", json!({"watts": 1000})).await;
    cluster.until("they are lowered", async || watts(&cluster).await == [Some(500.0); 2]).await;
    change(&cluster, "powerbudgets", "site", json!({"watts": 1400})).await;
    let is_taken_in = async || {
        let site = cluster.get(&format!("{JOULIE}/powerbudgets/site")).await.unwrap_or_default();
        site["status"]["limitWatts"] == 1400
    };
    cluster.until("the limit is taken in", is_taken_in).await;
    cluster.quiet(Duration::from_secs(1)).await;
    assert_eq!(watts(&cluster).await, [Some(500.0); 2], "it may be on");
    assert_eq!(told(&cluster, "EventOver").await, [""; 0], "nobody knows that it is over");
    cluster.send("DELETE", &format!("{JOULIE}/powerevents/friday"), &Value::Null).await.unwrap();
    cluster.until("they are raised", async || watts(&cluster).await == [Some(700.0); 2]).await;
    second.stop().await;
    agents.abort();
}
