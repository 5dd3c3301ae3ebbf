//! Limits that are lower for a while, by a window and by a signal: the grants follow, and what is not heard is never good news.

use super::prometheus::{FakePrometheus, Mood};
use super::rig::{Cluster, JOULIE, LEASES};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const QUICK: [(&str, &str); 4] = [
    ("STATIC_HP_FRAC", "1"),
    ("BUDGET_RAISE_DWELL", "100ms"),
    ("BUDGET_SIGNAL_INTERVAL", "1s"),
    ("PROMETHEUS_TIMEOUT", "300ms"),
];

async fn budget(cluster: &Cluster, spec: &Value) {
    let object = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": "site"}, "spec": spec});
    cluster.create(&format!("{JOULIE}/powerbudgets"), &object).await;
}

async fn status(cluster: &Cluster) -> Value {
    let budget = cluster.get(&format!("{JOULIE}/powerbudgets/site")).await;
    budget.map_or(Value::Null, |budget| budget["status"].clone())
}

async fn change(cluster: &Cluster, spec: &Value) {
    cluster.patch(&format!("{JOULIE}/powerbudgets/site"), &json!({"spec": spec})).await;
}

/// What both nodes are granted together.
async fn granted(cluster: &Cluster) -> Option<f64> {
    let mut sum = 0.0;
    for node in ["n1", "n2"] {
        sum += cluster.grant(node).await?["spec"]["watts"].as_f64()?;
    }
    Some(sum)
}

async fn two_nodes() -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::new().await);
    for node in ["n1", "n2"] {
        cluster.labelled(node, json!({})).await;
        cluster.hardware(node, 300.0).await;
    }
    cluster
}

#[tokio::test]
async fn a_window_lowers_the_limit_and_its_end_brings_it_back() {
    let cluster = two_nodes().await;
    let agents = cluster.agents();
    // Each draws 720 W at most. The window is always on, in two parts, so that the test needs no clock.
    let window = |name: &str, start: &str, end: &str| json!({"name": name, "start": start, "end": end, "timeZone": "UTC", "watts": 900});
    let windows = json!([window("day", "00:00", "12:00"), window("night", "12:00", "24:00")]);
    budget(&cluster, &json!({"watts": 1200, "mode": "enforce", "windows": windows})).await;
    let operator = cluster.operator(&QUICK).await;
    cluster
        .until("the grants keep to the window", async || {
            granted(&cluster).await.is_some_and(|sum| sum <= 900.0)
        })
        .await;
    cluster.until("it is told", async || status(&cluster).await["lowered"]["by"] == "Window").await;
    let told = status(&cluster).await;
    assert_eq!((&told["limitWatts"], &told["lowered"]["watts"]), (&json!(900), &json!(900)));
    assert!(["day", "night"].iter().any(|name| told["lowered"]["name"] == *name), "{told}");
    // Each of them ends within 12 hours, and the other one begins then.
    let until: jiff::Timestamp = told["lowered"]["until"].as_str().unwrap().parse().unwrap();
    let lasts = until.duration_since(jiff::Timestamp::now());
    assert!(lasts.as_secs() > 86_400, "{told}");
    change(&cluster, &json!({"windows": null})).await;
    cluster
        .until("the limit is that of the budget again", async || {
            granted(&cluster).await.is_some_and(|sum| sum > 1_100.0 && sum <= 1_200.0)
        })
        .await;
    cluster.until("nothing lowers it", async || status(&cluster).await["lowered"].is_null()).await;
    // A window never raises.
    let high = json!([{"name": "all", "start": "00:00", "end": "24:00", "timeZone": "UTC", "watts": 5000}]);
    change(&cluster, &json!({"windows": high})).await;
    cluster.until("it is taken in", async || status(&cluster).await["observedGeneration"] == 3).await;
    assert_eq!(status(&cluster).await["limitWatts"], 1200);
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_lowers_the_limit_and_silence_lowers_it_further() {
    let (cluster, prometheus) = (two_nodes().await, FakePrometheus::start().await);
    let agents = cluster.agents();
    prometheus.says("carbon", &[(json!({}), "400")]);
    let levels = json!([{"from": 350, "watts": 1000}, {"from": 500, "watts": 800}]);
    let signal = json!({"query": "carbon", "unit": "gCO2/kWh", "levels": levels, "holdSeconds": 10});
    budget(&cluster, &json!({"watts": 1200, "mode": "enforce", "signal": signal})).await;
    let url = prometheus.url();
    let variables: Vec<(&str, &str)> =
        QUICK.into_iter().chain([("PROMETHEUS_ADDRESS", url.as_str())]).collect();
    let operator = cluster.operator(&variables).await;
    let limit = async |watts: i64| status(&cluster).await["limitWatts"] == watts;
    cluster.until("400 g leave 1,000 W", async || limit(1_000).await).await;
    cluster
        .until("the grants keep to it", async || {
            granted(&cluster).await.is_some_and(|sum| sum > 900.0 && sum <= 1_000.0)
        })
        .await;
    let told = status(&cluster).await;
    assert_eq!((&told["lowered"]["by"], &told["signal"]["value"]), (&json!("Signal"), &json!(400)));
    prometheus.says("carbon", &[(json!({}), "100")]);
    cluster.until("100 g leave it all", async || limit(1_200).await).await;
    // The last value stands for ten seconds; then nobody can say that the grid is clean.
    prometheus.is(Mood::Garbage);
    cluster.until("silence has the lowest level", async || limit(800).await).await;
    let fresh = async || {
        let conditions = status(&cluster).await["conditions"].clone();
        let all = conditions.as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == "SignalFresh").unwrap_or_default()
    };
    cluster.until("it is told", async || fresh().await["reason"] == "SignalSilent").await;
    assert!(fresh().await["message"].as_str().unwrap().contains("it was 100 at"));
    prometheus.is(Mood::Well);
    cluster.until("it is heard again", async || limit(1_200).await).await;
    assert_eq!(fresh().await["status"], "True");
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_counts_from_the_time_of_its_sample() {
    let (cluster, prometheus) = (two_nodes().await, FakePrometheus::start().await);
    let agents = cluster.agents();
    // Prometheus answers with what it was told a minute ago, and the value stands for half a minute.
    prometheus.says("carbon", &[(json!({}), "100")]);
    prometheus.sampled("carbon", 60);
    let levels = json!([{"from": 350, "watts": 1000}, {"from": 500, "watts": 800}]);
    let signal = json!({"query": "carbon", "unit": "gCO2/kWh", "levels": levels, "holdSeconds": 30});
    budget(&cluster, &json!({"watts": 1200, "mode": "enforce", "signal": signal})).await;
    let url = prometheus.url();
    let variables: Vec<(&str, &str)> =
        QUICK.into_iter().chain([("PROMETHEUS_ADDRESS", url.as_str())]).collect();
    let operator = cluster.operator(&variables).await;
    let value = async || status(&cluster).await["signal"]["value"].clone();
    cluster.until("it is heard", async || value().await == json!(100)).await;
    let told = status(&cluster).await;
    assert_eq!((&told["limitWatts"], &told["lowered"]["by"]), (&json!(800), &json!("Signal")), "{told}");
    prometheus.sampled("carbon", 5);
    cluster.until("a newer one counts", async || status(&cluster).await["limitWatts"] == 1_200).await;
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_goes_on_with_the_signal_that_the_one_before_has_heard() {
    let (cluster, prometheus) = (two_nodes().await, FakePrometheus::start().await);
    let agents = cluster.agents();
    prometheus.says("carbon", &[(json!({}), "400")]);
    let levels = json!([{"from": 350, "watts": 1000}, {"from": 500, "watts": 800}]);
    let signal = json!({"query": "carbon", "unit": "gCO2/kWh", "levels": levels, "holdSeconds": 3600});
    budget(&cluster, &json!({"watts": 1200, "mode": "enforce", "signal": signal})).await;
    let url = prometheus.url();
    let variables: Vec<(&str, &str)> =
        QUICK.into_iter().chain([("PROMETHEUS_ADDRESS", url.as_str())]).collect();
    let first = cluster.operator(&variables).await;
    cluster.until("400 g leave 1,000 W", async || status(&cluster).await["limitWatts"] == 1_000).await;
    prometheus.is(Mood::Away);
    let second = cluster.operator(&variables).await;
    let planner = async || {
        let plan = cluster.get(&format!("{LEASES}/joulie-plan")).await.unwrap_or_default();
        plan["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    };
    let before = planner().await;
    first.stop().await;
    cluster.until("the second plans", async || !["", &before].contains(&&*planner().await)).await;
    cluster.quiet(Duration::from_millis(300)).await;
    // It was never answered: neither the whole limit nor the lowest level.
    let told = status(&cluster).await;
    assert_eq!((&told["limitWatts"], &told["signal"]["value"]), (&json!(1000), &json!(400)), "{told}");
    assert!(granted(&cluster).await.is_some_and(|sum| sum <= 1_000.0));
    second.stop().await;
    agents.abort();
}
