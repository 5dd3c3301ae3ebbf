//! Workloads are classified by the metrics of their pods, and their profiles follow.

use super::prometheus::{FakePrometheus, Mood};
use super::rig::{Cluster, JOULIE, Operator};
use serde_json::{Value, json};
use std::time::Duration;

const PODS: &str = "/api/v1/namespaces/default/pods";
const PROFILES: &str = "/apis/joulie.io/v1alpha1/namespaces/default/workloadprofiles";

impl Cluster {
    /// A running pod of a Deployment.
    async fn pod_of(&self, deployment: &str, name: &str, node: &str) {
        let replicas = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-5d4f"),
            "uid": "00000000-0000-0000-0000-000000000001", "controller": true});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"pod-template-hash": "5d4f"},
                "annotations": {"joulie.io/reschedulable": "true"}, "ownerReferences": [replicas]},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none",
                "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "8", "memory": "4Gi"}}}]}});
        self.create(PODS, &pod).await;
        self.patch(&format!("{PODS}/{name}/status"), &json!({"status": {"phase": "Running"}})).await;
    }

    async fn delete_pod(&self, name: &str) {
        let path = format!("{PODS}/{name}?gracePeriodSeconds=0");
        self.send("DELETE", &path, &Value::Null).await.unwrap();
    }

    async fn workload(&self, name: &str) -> Option<Value> {
        self.get(&format!("{PROFILES}/{name}")).await
    }

    async fn classifier(&self, prometheus: &FakePrometheus, every: &str) -> Operator {
        let url = prometheus.url();
        self.operator(&[
            ("PROMETHEUS_ADDRESS", &url),
            ("PROMETHEUS_TIMEOUT", "300ms"),
            ("CLASSIFY_INTERVAL", "100ms"),
            ("RECLASSIFY_INTERVAL", every),
        ])
        .await
    }
}

fn labels(pod: &str) -> Value {
    json!({"namespace": "default", "pod": pod})
}

/// Says that pods use these cores.
fn works(prometheus: &FakePrometheus, pods: &[(&str, &str)]) {
    let series: Vec<_> = pods.iter().map(|(pod, cores)| (labels(pod), *cores)).collect();
    prometheus.says("container_cpu_usage_seconds_total", &series);
}

fn condition<'a>(object: &'a Value, about: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == about)
}

fn reason(object: &Value, about: &str) -> Option<String> {
    condition(object, about)?["reason"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_load_of_pods_is_the_class_of_their_deployment_until_both_are_gone() {
    let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
    cluster.node("a").await;
    cluster.node("b").await;
    cluster.pod_of("web", "web-1", "a").await;
    cluster.pod_of("web", "web-2", "a").await;
    cluster.pod("alone", Some("b"), "performance").await;
    works(&prometheus, &[("web-1", "3.6"), ("web-2", "3.2"), ("alone", "0.1"), ("unknown", "9")]);
    prometheus.says("container_memory_working_set_bytes", &[(labels("web-1"), "536870912")]);
    prometheus.says(
        "kepler_container_package_joules_total",
        &[(
            json!({"container_namespace": "default", "pod_name": "web-1", "namespace": "kepler", "pod": "k"}),
            "90",
        )],
    );
    let operator = cluster.classifier(&prometheus, "10m").await;
    cluster.until("both have a profile", async || cluster.list(PROFILES).await.len() == 2).await;
    cluster
        .until("it says so", async || cluster.workload("deployment-web").await.unwrap()["status"].is_object())
        .await;
    let web = cluster.workload("deployment-web").await.unwrap();
    let spec = json!({"nodeName": "a", "workloadRef": {"kind": "Deployment", "namespace": "default", "name": "web"}});
    assert_eq!(web["spec"], spec);
    assert_eq!(
        web["metadata"]["labels"],
        json!({"joulie.io/managed-by": "operator", "joulie.io/node-name": "a"})
    );
    let status = &web["status"];
    // (3.6 + 3.2) of 2 × 4 cores, 512 MiB of 4 GiB.
    let cpu =
        json!({"intensity": "high", "bound": "compute", "avgUtilizationPct": 85, "capSensitivity": "high"});
    assert_eq!(status["cpu"], cpu, "{status}");
    assert_eq!(status["gpu"], json!({"intensity": "none", "bound": "none", "capSensitivity": "none"}));
    assert_eq!(
        (&status["criticality"]["class"], &status["migratability"]["reschedulable"]),
        (&json!("standard"), &json!(true))
    );
    assert_eq!((&status["confidence"], &status["observedGeneration"]), (&json!(0.7), &json!(1)));
    assert_eq!(reason(&web, "TelemetryFresh").as_deref(), Some("Measured"));
    let alone = cluster.workload("pod-alone").await.unwrap();
    assert_eq!(
        (&alone["status"]["criticality"]["class"], &alone["status"]["cpu"]["intensity"]),
        (&json!("performance"), &json!("low"))
    );
    assert_eq!(alone["metadata"]["labels"]["joulie.io/pod-name"], "alone");

    // A pod on another node: the profile names no node any more.
    cluster.pod_of("web", "web-3", "b").await;
    cluster
        .until("it is on two nodes", async || {
            cluster.workload("deployment-web").await.unwrap()["spec"]["nodeName"].is_null()
        })
        .await;
    for pod in ["web-1", "web-2", "web-3"] {
        cluster.delete_pod(pod).await;
    }
    cluster.until("its profile is gone", async || cluster.workload("deployment-web").await.is_none()).await;
    assert!(cluster.workload("pod-alone").await.is_some());
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steady_load_writes_nothing_and_a_new_leader_neither() {
    let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
    cluster.node("a").await;
    cluster.pod_of("web", "web-1", "a").await;
    works(&prometheus, &[("web-1", "3.02")]);
    let operator = cluster.classifier(&prometheus, "1s").await;
    let measured = async || {
        let web = cluster.workload("deployment-web").await.unwrap_or_default();
        reason(&web, "TelemetryFresh").as_deref() == Some("Measured")
    };
    cluster.until("it is measured", measured).await;
    let version =
        async || cluster.workload("deployment-web").await.unwrap()["metadata"]["resourceVersion"].clone();
    let before = version().await;
    // A round asks six questions, and writes before the next one asks: with the thirteenth, one is over that began after now.
    let looked = async || {
        let asked = prometheus.queries();
        cluster.until("it is looked at again", async || prometheus.queries() > asked + 12).await;
    };
    // 75.5 % and 74.5 % are on the two sides of a threshold.
    for cores in ["2.98", "3.02", "2.98"] {
        works(&prometheus, &[("web-1", cores)]);
        looked().await;
    }
    assert_eq!(version().await, before);
    operator.stop().await;
    let next = cluster.classifier(&prometheus, "1s").await;
    looked().await;
    assert_eq!(version().await, before, "another leader takes over what is held at a threshold");
    works(&prometheus, &[("web-1", "1")]);
    cluster
        .until("it follows a change", async || {
            cluster.workload("deployment-web").await.unwrap()["status"]["cpu"]["intensity"] == "low"
        })
        .await;
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_prometheus_the_classes_stand_and_the_condition_says_why() {
    let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
    cluster.node("a").await;
    cluster.pod_of("web", "web-1", "a").await;
    works(&prometheus, &[("web-1", "3.6")]);
    let operator = cluster.classifier(&prometheus, "3s").await;
    let says = async |word: &str| {
        let web = cluster.workload("deployment-web").await.unwrap_or_default();
        reason(&web, "TelemetryFresh").as_deref() == Some(word)
    };
    cluster.until("it is measured", async || says("Measured").await).await;
    let before = cluster.workload("deployment-web").await.unwrap();
    for (mood, why) in [
        (Mood::Away, "Prometheus gives no metrics"),
        (Mood::Garbage, "none of Prometheus'"),
        (Mood::Slow, "no answer in 300ms"),
        (Mood::Partial, "a store did not answer"),
        // Refused as too large, or as too late.
        (Mood::Endless, "Prometheus gives no metrics"),
    ] {
        prometheus.is(mood);
        cluster.until(&format!("{mood:?} is said"), async || says("PrometheusSilent").await).await;
        let now = cluster.workload("deployment-web").await.unwrap();
        for field in ["cpu", "gpu", "criticality", "migratability", "classificationReason", "confidence"] {
            assert_eq!(now["status"][field], before["status"][field], "{mood:?}: {field}");
        }
        let said = condition(&now, "TelemetryFresh").unwrap()["message"].as_str().unwrap();
        assert!(said.contains(why), "{mood:?}: {said}");
        prometheus.is(Mood::Well);
        cluster.until("it is measured again", async || says("Measured").await).await;
    }
    // Metrics that stay away cost confidence, until only the annotations count.
    prometheus.is(Mood::Away);
    cluster
        .until("only hints are left", async || {
            let web = cluster.workload("deployment-web").await.unwrap();
            web["status"]["confidence"] == 0.3 && web["status"]["cpu"]["avgUtilizationPct"].is_null()
        })
        .await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_wrote_stands_and_is_said() {
    let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
    cluster.node("a").await;
    cluster.pod_of("web", "web-1", "a").await;
    cluster.pod_of("db", "db-1", "a").await;
    works(&prometheus, &[("web-1", "3.6"), ("db-1", "0.1")]);
    let mine = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "WorkloadProfile",
        "metadata": {"name": "mine", "namespace": "default"},
        "spec": {"workloadRef": {"kind": "Deployment", "name": "db"}}});
    cluster.create(&format!("{PROFILES}?fieldManager=kubectl-create"), &mine).await;
    let operator = cluster.classifier(&prometheus, "1s").await;
    let measured = async |name: &str| {
        let profile = cluster.workload(name).await.unwrap_or_default();
        profile["status"]["cpu"]["intensity"].is_string()
    };
    cluster
        .until("both are classified", async || measured("deployment-web").await && measured("mine").await)
        .await;
    assert_eq!(cluster.list(PROFILES).await.len(), 2, "a workload has one profile");
    let persons = cluster.workload("mine").await.unwrap();
    assert_eq!((&persons["spec"], &persons["metadata"]["labels"]), (&mine["spec"], &Value::Null));

    let path = format!("{PROFILES}/deployment-web/status?fieldManager=kubectl-edit");
    let said = json!({"status": {"cpu": {"capSensitivity": "low"}, "criticality": {"class": "performance"}}});
    cluster.patch(&path, &said).await;
    let overridden = async || {
        let web = cluster.workload("deployment-web").await.unwrap();
        condition(&web, "Overridden").cloned()
    };
    cluster.until("it is said", async || overridden().await.is_some()).await;
    works(&prometheus, &[("web-1", "0.4"), ("db-1", "0.1")]);
    let intensity =
        async || cluster.workload("deployment-web").await.unwrap()["status"]["cpu"]["intensity"].clone();
    cluster.until("the rest follows the load", async || intensity().await == "low").await;
    let web = cluster.workload("deployment-web").await.unwrap();
    assert_eq!(
        (&web["status"]["cpu"]["capSensitivity"], &web["status"]["criticality"]["class"]),
        (&json!("low"), &json!("performance"))
    );
    let message = overridden().await.unwrap()["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "kubectl-edit owns status.criticality.class, status.cpu.capSensitivity");

    for pod in ["web-1", "db-1"] {
        cluster.delete_pod(pod).await;
    }
    cluster.until("the profile is gone", async || cluster.workload("deployment-web").await.is_none()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(cluster.workload("mine").await.is_some(), "a person's profile is not deleted");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_namespace_of_the_system_and_no_pod_without_metrics_has_a_profile_at_once() {
    let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
    cluster.node("a").await;
    cluster.pod("quiet", Some("a"), "standard").await;
    let pods = "/api/v1/namespaces/joulie-system/pods";
    let own = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "own", "namespace": "joulie-system"},
        "spec": {"nodeName": "a", "containers": [{"name": "main", "image": "none"}]}});
    cluster.create(pods, &own).await;
    cluster.patch(&format!("{pods}/own/status"), &json!({"status": {"phase": "Running"}})).await;
    let operator = cluster.classifier(&prometheus, "10s").await;
    cluster.until("it asks", async || prometheus.queries() > 12).await;
    assert_eq!(
        cluster.list(&format!("{JOULIE}/workloadprofiles")).await.len(),
        0,
        "the first metrics are waited for"
    );
    cluster
        .until("the annotations count", async || {
            cluster.workload("pod-quiet").await.is_some_and(|quiet| quiet["status"].is_object())
        })
        .await;
    let quiet = cluster.workload("pod-quiet").await.unwrap();
    assert_eq!(
        (&quiet["status"]["confidence"], reason(&quiet, "TelemetryFresh").as_deref()),
        (&json!(0.3), Some("NoSeries"))
    );
    assert_eq!(cluster.list(&format!("{JOULIE}/workloadprofiles")).await.len(), 1);
    operator.stop().await;
}
