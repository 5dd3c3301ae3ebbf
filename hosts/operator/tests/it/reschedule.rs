//! A hot node: its pods are recommended to leave, and where that is asked for, evicted.

use super::rig::{Cluster, Configured, JOULIE, Operator};
use super::rights::{ACCOUNT, Rights};
use embedded_api::{InjectedResponse, Matching, Verb};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const DEFAULT: &str = "/api/v1/namespaces/default";
const APPS: &str = "/apis/apps/v1/namespaces/default";
/// Both nodes run at full power, and rounds of evictions are short.
const ON: [(&str, &str); 6] = [
    ("STATIC_HP_FRAC", "1"),
    ("ENABLE_ACTIVE_RESCHEDULING", "true"),
    ("RESCHEDULE_INTERVAL", "1s"),
    ("RESCHEDULE_STRESSED_FOR", "0s"),
    ("RESCHEDULE_WINDOW", "30m"),
    ("RESCHEDULE_MAX_EVICTIONS_PER_NODE", "3"),
];
const TIME: &str = "joulie.io/last-eviction-time";

/// Two packages of 360 W: 600 W are 83.3 % of what can be cooled, 100 W are 13.9 %.
async fn hot_and_cool() -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::new().await);
    for (name, watts) in [("cool", 100.0), ("hot", 600.0)] {
        cluster.node(name).await;
        cluster.hardware(name, watts).await;
    }
    // They play along until the test ends.
    drop(cluster.agents());
    cluster
}

async fn draws(cluster: &Cluster, node: &str, watts: u32) {
    let status = json!({"status": {"power": {"cpuWatts": watts, "sampledAt": format!("sample {watts}")}}});
    cluster.patch(&format!("{JOULIE}/nodehardwares/{node}/status"), &status).await;
}

/// A controller without a program behind it.
async fn owner(cluster: &Cluster, path: &str, name: &str) {
    let labels = json!({"app": name});
    let mut spec = json!({"template": {"metadata": {"labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}});
    if !path.contains("batch") {
        spec["selector"] = json!({"matchLabels": labels});
        spec["template"]["spec"]["restartPolicy"] = json!("Always");
    }
    if path.ends_with("statefulsets") {
        spec["serviceName"] = json!(name);
    }
    cluster.create(path, &json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// A pod that runs and is ready, of a controller.
async fn replica(cluster: &Cluster, name: &str, node: &str, (kind, owner): (&str, &str)) {
    opted(cluster, name, node, (kind, owner), json!({"joulie.io/reschedulable": "true"})).await;
}

async fn opted(cluster: &Cluster, name: &str, node: &str, (kind, owner): (&str, &str), annotations: Value) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default",
            "labels": {"app": owner, "pod-template-hash": "5d4f"}, "annotations": annotations,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u", "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none",
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]}});
    cluster.create(&format!("{DEFAULT}/pods"), &pod).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.patch(&format!("{DEFAULT}/pods/{name}/status"), &ready).await;
}

async fn set(cluster: &Cluster, name: &str, nodes: &[&str]) {
    owner(cluster, &format!("{APPS}/statefulsets"), name).await;
    for (at, node) in nodes.iter().enumerate() {
        replica(cluster, &format!("{name}-{at}"), node, ("StatefulSet", name)).await;
    }
}

async fn has_left(cluster: &Cluster, pod: &str) -> bool {
    let pod = cluster.get(&format!("{DEFAULT}/pods/{pod}")).await;
    pod.is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
}

async fn told(cluster: &Cluster, set: &str) -> Value {
    let owner = cluster.get(&format!("{APPS}/statefulsets/{set}")).await.unwrap();
    owner["metadata"]["annotations"].clone()
}

async fn status(cluster: &Cluster, node: &str) -> Value {
    cluster.twin(node).await.map(|twin| twin["status"].clone()).unwrap_or_default()
}

async fn has_event(cluster: &Cluster, reason: &str) -> bool {
    let events = cluster.list("/apis/events.k8s.io/v1/namespaces/default/events").await;
    events.iter().any(|event| event["reason"] == reason)
}

/// Waits for some rounds of evictions after the stress was seen.
async fn rounds(cluster: &Cluster) {
    cluster
        .until("the node is marked", async || {
            status(cluster, "hot").await["rescheduleCause"] == "cooling_stress"
        })
        .await;
    tokio::time::sleep(Duration::from_millis(3_500)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_node_names_its_pods_and_a_better_node_until_it_has_cooled_down() {
    let cluster = hot_and_cool().await;
    set(&cluster, "web", &["hot", "hot", "cool"]).await;
    let annotated = |more: Value| more;
    opted(&cluster, "fixed", "hot", ("StatefulSet", "web"), annotated(json!({}))).await;
    let critical = json!({"joulie.io/reschedulable": "true", "joulie.io/workload-class": "performance"});
    opted(&cluster, "critical", "hot", ("StatefulSet", "web"), annotated(critical)).await;
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "1")]).await;
    let list = async || status(&cluster, "hot").await["rescheduleRecommendations"].clone();
    cluster
        .until("two pods are named", async || list().await.as_array().is_some_and(|list| list.len() == 2))
        .await;
    let entry = |pod: &str| {
        json!({"workloadRef": {"kind": "Pod", "namespace": "default", "name": pod}, "cause": "cooling_stress", "stress": 83,
            "targetNode": "cool", "reason": "the cooling of its node is 83% used; cool could accept it"})
    };
    assert_eq!(list().await, json!([entry("web-0"), entry("web-1")]));
    let hot = status(&cluster, "hot").await;
    assert_eq!(hot["migrationRecommendations"], hot["rescheduleRecommendations"]);
    assert_eq!(hot["rescheduleCause"], "cooling_stress");
    assert_eq!(status(&cluster, "cool").await["rescheduleRecommendations"], json!([]));
    cluster.until("an Event tells it", async || has_event(&cluster, "RescheduleAdvised").await).await;
    cluster.quiet(Duration::from_millis(1_500)).await;
    // 480 W are 66.7 %: below the threshold, but not eased, and another figure.
    draws(&cluster, "hot", 480).await;
    cluster.until("the figure follows", async || list().await[0]["stress"] == 67).await;
    draws(&cluster, "hot", 510).await;
    cluster
        .until("the twin follows", async || {
            status(&cluster, "hot").await["powerMeasurement"]["measuredNodePowerW"] == 510
        })
        .await;
    assert_eq!(list().await[0]["stress"], 67, "70.8 % is not another figure");
    draws(&cluster, "hot", 300).await;
    cluster.until("nobody is named any more", async || list().await == json!([])).await;
    let hot = status(&cluster, "hot").await;
    assert_eq!((&hot["migrationRecommendations"], &hot["rescheduleCause"]), (&json!([]), &Value::Null));
    cluster.until("an Event tells it", async || has_event(&cluster, "RescheduleOver").await).await;
    cluster.quiet(Duration::from_millis(1_500)).await;
    assert!(
        !has_left(&cluster, "web-0").await && !has_left(&cluster, "web-1").await,
        "nothing was asked for"
    );
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_is_told_before_the_pod_is_evicted_and_the_mark_stays() {
    let cluster = hot_and_cool().await;
    let operator = cluster.operator(&ON).await;
    let class = async || status(&cluster, "hot").await["schedulableClass"].clone();
    cluster.until("it runs at full power", async || class().await == "performance").await;
    set(&cluster, "web", &["hot", "cool"]).await;
    cluster.until("the pod is evicted", async || has_left(&cluster, "web-0").await).await;
    let said = told(&cluster, "web").await;
    assert_eq!(said["joulie.io/last-eviction-from-class"], "performance");
    assert_eq!(said["joulie.io/last-eviction-from-node"], "hot");
    assert_eq!(said["joulie.io/last-eviction-reason"], "the cooling of its node is 83% used");
    assert!(said[TIME].as_str().unwrap().ends_with('Z'));
    let version = async |path: &str| -> u64 {
        let object = cluster.get(path).await.unwrap();
        object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    };
    let pod = version(&format!("{DEFAULT}/pods/web-0")).await;
    assert!(version(&format!("{APPS}/statefulsets/web")).await < pod);
    cluster.until("an Event tells it", async || has_event(&cluster, "Evicted").await).await;
    let (_, metrics) = operator.page("/metrics").await;
    let moved =
        r#"joulie_rescheduler_evictions_total{node="hot",namespace="default",reason="cooling_stress"} 1"#;
    assert!(metrics.contains(moved), "{metrics}");
    // The last pod that could leave is gone, and the node is as hot as before.
    let empty = async || status(&cluster, "hot").await["rescheduleRecommendations"] == json!([]);
    cluster.until("nobody is named", empty).await;
    assert_eq!(status(&cluster, "hot").await["rescheduleCause"], "cooling_stress");
    assert!(!has_left(&cluster, "web-1").await);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_a_disruption_budget_protects_stays_and_another_ones_goes() {
    let cluster = hot_and_cool().await;
    set(&cluster, "guarded", &["hot", "cool"]).await;
    set(&cluster, "web", &["hot", "cool"]).await;
    let budget = json!({"metadata": {"name": "guarded"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "guarded"}}}});
    cluster.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await;
    let limits = [ON.as_slice(), &[("RESCHEDULE_MAX_EVICTIONS_PER_NAMESPACE", "1")]].concat();
    let operator = cluster.operator(&limits).await;
    cluster.until("the other pod is evicted", async || has_left(&cluster, "web-0").await).await;
    assert!(!has_left(&cluster, "guarded-0").await);
    let untold = async || told(&cluster, "guarded").await[TIME].is_null();
    cluster.until("the controller is told nothing", untold).await;
    cluster.until("an Event tells it", async || has_event(&cluster, "EvictionDenied").await).await;
    let events = cluster.list("/apis/events.k8s.io/v1/namespaces/default/events").await;
    let denied = events.iter().find(|event| event["reason"] == "EvictionDenied").unwrap();
    let note = denied["note"].as_str().unwrap();
    assert!(note.contains("The disruption budget guarded needs 2 healthy pods"), "{note}");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_pod_of_a_controller_a_pinned_one_and_one_that_nobody_recreates_stay() {
    let cluster = hot_and_cool().await;
    set(&cluster, "single", &["hot"]).await;
    // The other pod of this one does not serve.
    set(&cluster, "broken", &["hot", "cool"]).await;
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.patch(&format!("{DEFAULT}/pods/broken-1/status"), &unready).await;
    for node in ["hot", "cool"] {
        replica(&cluster, &format!("daemon-{node}"), node, ("DaemonSet", "daemon")).await;
        replica(&cluster, &format!("other-{node}"), node, ("RayCluster", "ray")).await;
    }
    let operator = cluster.operator(&ON).await;
    rounds(&cluster).await;
    for pod in ["single-0", "broken-0", "daemon-hot", "other-hot"] {
        assert!(!has_left(&cluster, pod).await, "{pod}");
    }
    assert!(told(&cluster, "single").await[TIME].is_null());
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_writes_nothing() {
    let cluster = hot_and_cool().await;
    set(&cluster, "web", &["hot", "cool"]).await;
    let operator = cluster.operator(&[ON.as_slice(), &[("RESCHEDULE_DRY_RUN", "true")]].concat()).await;
    rounds(&cluster).await;
    assert!(!has_left(&cluster, "web-0").await && told(&cluster, "web").await[TIME].is_null());
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_performance_pod_is_evicted_when_its_drain_is_overdue_and_that_is_asked_for() {
    let cluster = Arc::new(Cluster::new().await);
    for name in ["full", "late"] {
        cluster.node(name).await;
        cluster.hardware(name, 100.0).await;
    }
    drop(cluster.agents());
    owner(&cluster, &format!("{APPS}/statefulsets"), "web").await;
    let class = |more: Value| {
        let mut all = json!({"joulie.io/workload-class": "performance"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let opted_in = || class(json!({"joulie.io/reschedulable": "true"}));
    for (name, node, annotations) in
        [("web-0", "late", opted_in()), ("web-1", "full", opted_in()), ("stays", "late", class(json!({})))]
    {
        opted(&cluster, name, node, ("StatefulSet", "web"), annotations).await;
    }
    let with = |then| {
        let drain = [("STATIC_HP_FRAC", "0.5"), ("DRAIN_DEADLINE", "1s"), ("DRAIN_OVERDUE", then)];
        [&ON[1..], drain.as_slice()].concat()
    };
    let overdue = async || {
        let twin = status(&cluster, "late").await;
        let mut all = twin["conditions"].as_array().into_iter().flatten();
        all.any(|one| one["type"] == "DrainOverdue" && one["status"] == "True")
    };
    // Told, and nothing else.
    let operator = cluster.operator(&with("tell")).await;
    cluster.until("the drain is overdue", overdue).await;
    let shown = async || operator.shows("joulie_operator_drain_overdue_nodes 1").await;
    cluster.until("the metric says so", shown).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(!has_left(&cluster, "web-0").await);
    operator.stop().await;
    let operator = cluster.operator(&with("evict")).await;
    cluster.until("the pod is evicted", async || has_left(&cluster, "web-0").await).await;
    let said = told(&cluster, "web").await;
    assert_eq!(said["joulie.io/last-eviction-reason"], "its node becomes an eco node");
    assert_eq!(said["joulie.io/last-eviction-from-class"], "draining");
    assert!(!has_left(&cluster, "web-1").await && !has_left(&cluster, "stays").await);
    operator.stop().await;
}

/// The lines of a file with these settings.
fn lines(settings: &[(&str, &str)]) -> String {
    settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn evictions_are_switched_on_and_off_while_the_operator_runs() {
    let cluster = hot_and_cool().await;
    for name in ["web", "data"] {
        set(&cluster, name, &["hot", "cool"]).await;
    }
    let rights = Rights::of(&["base/operator.yaml", "rescheduling/rescheduling.yaml"], ACCOUNT);
    let off = lines(&[("STATIC_HP_FRAC", "1"), ("RESCHEDULE_INTERVAL", "1s")]);
    let configured = Configured::start(&cluster, "evictions", &off, rights).await;
    rounds(&cluster).await;
    let gone = async || {
        usize::from(has_left(&cluster, "web-0").await) + usize::from(has_left(&cluster, "data-0").await)
    };
    assert_eq!(gone().await, 0);
    let on = [ON.as_slice(), &[("RESCHEDULE_MAX_EVICTIONS_PER_NAMESPACE", "1")]].concat();
    configured.write(&lines(&on));
    cluster.until("a pod is evicted", async || gone().await == 1).await;
    // What was counted is not forgotten: the namespace has had its eviction.
    configured.write(&off);
    let is_off = async || {
        let events = cluster.list("/apis/events.k8s.io/v1/namespaces/joulie-system/events").await;
        let text = "ENABLE_ACTIVE_RESCHEDULING was true and is false";
        events.iter().any(|event| event["note"].as_str().is_some_and(|note| note.contains(text)))
    };
    cluster.until("they are off", is_off).await;
    configured.write(&lines(&on));
    rounds(&cluster).await;
    assert_eq!(gone().await, 1);
    configured.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_leader_does_not_evict_a_second_pod_of_the_same_controller() {
    let cluster = hot_and_cool().await;
    set(&cluster, "web", &["hot", "hot", "hot", "cool"]).await;
    let first = cluster.operator(&ON).await;
    let gone = async || {
        let mut count = 0;
        for at in 0..3 {
            count += u32::from(has_left(&cluster, &format!("web-{at}")).await);
        }
        count
    };
    cluster.until("a pod is evicted", async || gone().await == 1).await;
    first.stop().await;
    let at = told(&cluster, "web").await[TIME].clone();
    let second = cluster.operator(&ON).await;
    cluster
        .until("it plans", async || !status(&cluster, "hot").await["rescheduleRecommendations"].is_null())
        .await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!((gone().await, &told(&cluster, "web").await[TIME]), (1, &at));
    second.stop().await;
    // An eviction of long ago does not protect them for ever.
    let long_ago = json!({"metadata": {"annotations": {TIME: "2026-01-01T00:00:00Z"}}});
    cluster.patch(&format!("{APPS}/statefulsets/web"), &long_ago).await;
    let third = cluster.operator(&ON).await;
    cluster.until("another pod is evicted", async || gone().await == 2).await;
    third.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_controller_is_told_and_without_a_word_to_it_nothing_is_evicted() {
    let cluster = hot_and_cool().await;
    let batch = "/apis/batch/v1/namespaces/default/jobs";
    let kinds = [
        ("ReplicaSet", "web-5d4f", format!("{APPS}/deployments"), "web"),
        ("ReplicaSet", "plain", format!("{APPS}/replicasets"), "plain"),
        ("Job", "sums", batch.to_owned(), "sums"),
    ];
    for (kind, of, path, name) in &kinds {
        owner(&cluster, path, name).await;
        for node in ["hot", "cool"] {
            replica(&cluster, &format!("{name}-{node}"), node, (kind, of)).await;
        }
    }
    // This controller does not exist, so that it cannot be told.
    for node in ["hot", "cool"] {
        replica(&cluster, &format!("stray-{node}"), node, ("StatefulSet", "stray")).await;
    }
    let limits = [ON.as_slice(), &[("RESCHEDULE_MAX_EVICTIONS_PER_NAMESPACE", "9")]].concat();
    let operator = cluster.operator(&limits).await;
    for (_, _, path, name) in &kinds {
        cluster.until("its pod is evicted", async || has_left(&cluster, &format!("{name}-hot")).await).await;
        let owner = cluster.get(&format!("{path}/{name}")).await.unwrap();
        assert!(owner["metadata"]["annotations"][TIME].is_string(), "{path}/{name}");
    }
    assert!(!has_left(&cluster, "stray-hot").await);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_without_an_answer_counts_as_one() {
    let cluster = hot_and_cool().await;
    set(&cluster, "web", &["hot", "hot", "cool"]).await;
    let faults = cluster.api.faults();
    faults.fail(Matching::any().resource("pods").verb(Verb::Create), InjectedResponse::InternalError, 1);
    let operator: Operator = cluster.operator(&ON).await;
    rounds(&cluster).await;
    assert!(operator.shows("joulie_operator_evictions_total{result=\"unknown\"} 1").await);
    assert!(operator.shows("joulie_operator_evictions_total{result=\"failed\"} 0").await);
    assert!(told(&cluster, "web").await[TIME].is_string());
    assert!(!has_left(&cluster, "web-0").await && !has_left(&cluster, "web-1").await);
    operator.stop().await;
}
