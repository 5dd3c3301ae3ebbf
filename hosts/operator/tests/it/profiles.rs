//! What the profiles of workloads say counts in the plan and in the twins, and the plan says what it rests on.

use super::rig::{Cluster, JOULIE, Operator};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PODS: &str = "/api/v1/namespaces/default/pods";
const PROFILES: &str = "/apis/joulie.io/v1alpha1/namespaces/default/workloadprofiles";

impl Operator {
    pub(crate) async fn page(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.metrics).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Whether its metrics have this line.
    pub(crate) async fn shows(&self, line: &str) -> bool {
        self.page("/metrics").await.1.lines().any(|shown| shown == line)
    }

    pub(crate) async fn plan(&self, query: &str) -> Value {
        let (status, page) = self.page(&format!("/debug/plan{query}")).await;
        assert_eq!(status, 200, "{page}");
        serde_json::from_str(&page).unwrap()
    }
}

impl Cluster {
    /// A running pod of the Deployment `train`, with so many GPUs.
    pub(crate) async fn trains(&self, name: &str, node: &str, class: &str, gpus: u32) {
        let replicas = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train-5d4f",
            "uid": "00000000-0000-0000-0000-000000000001", "controller": true});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"pod-template-hash": "5d4f"},
                "annotations": {"joulie.io/workload-class": class}, "ownerReferences": [replicas]},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none",
                "resources": {"requests": {"cpu": "96", "nvidia.com/gpu": gpus.to_string()},
                              "limits": {"nvidia.com/gpu": gpus.to_string()}}}]}});
        self.create(PODS, &pod).await;
        self.patch(&format!("{PODS}/{name}/status"), &json!({"status": {"phase": "Running"}})).await;
    }

    /// What a person says of the Deployment `train`.
    pub(crate) async fn said_of_train(&self, cpu: &str, gpu: &str, confidence: f64) {
        let status = json!({"confidence": confidence, "cpu": {"intensity": cpu}, "gpu": {"intensity": gpu}});
        if self.get(&format!("{PROFILES}/train")).await.is_none() {
            let profile = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "WorkloadProfile",
                "metadata": {"name": "train", "namespace": "default"},
                "spec": {"workloadRef": {"kind": "Deployment", "name": "train"}}});
            self.create(PROFILES, &profile).await;
        }
        self.patch(&format!("{PROFILES}/train/status?fieldManager=kubectl"), &json!({"status": status}))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_profile_weighs_its_pods_and_one_that_is_not_trusted_does_not() {
    let cluster = Cluster::new().await;
    for at in 0..4 {
        cluster.node(&format!("n{at}")).await;
    }
    cluster.trains("p", "n0", "performance", 0).await;
    let operator = cluster
        .operator(&[
            ("POLICY_TYPE", "queue_aware_v1"),
            ("QUEUE_HP_BASE_FRAC", "0.25"),
            ("QUEUE_PERF_PER_HP_NODE", "1"),
            ("ENABLE_CLASSIFIER", "true"),
        ])
        .await;
    let pressure = async |pressure: u32| {
        let (status, page) = operator.page("/debug/plan").await;
        let page: Value = serde_json::from_str(&page).unwrap_or_default();
        status == 200 && page["policy"]["demand"]["pressure"] == json!(pressure)
    };
    let headroom = async || operator.plan("?node=n0").await["nodes"][0]["twin"]["headroom"].as_f64().unwrap();
    cluster.until("the pod counts once", async || pressure(1).await).await;
    // 96 of 192 processors: 720 · (0.2 + 0.8 · 0.5) of 720 W.
    assert!((headroom().await - 40.0).abs() < 0.1, "{}", headroom().await);
    cluster.said_of_train("high", "none", 0.9).await;
    cluster.until("it works hard", async || pressure(2).await).await;
    cluster
        .until("n1 is at full power", async || cluster.label("n1").await.as_deref() == Some("performance"))
        .await;
    assert!((headroom().await - 40.0).abs() < 0.1, "{}", headroom().await);
    // A low intensity is at most 30 % of what it asks for: 0.2 + 0.8 · 0.15.
    cluster.said_of_train("low", "none", 0.9).await;
    cluster.until("it works little", async || pressure(1).await).await;
    assert!((headroom().await - 68.0).abs() < 0.1, "{}", headroom().await);
    cluster.said_of_train("high", "none", 0.4).await;
    cluster.until("nothing is known", async || (headroom().await - 40.0).abs() < 0.1).await;
    assert!(pressure(1).await, "it is doubtful");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_says_what_was_decided_for_each_node_and_from_what() {
    let cluster = std::sync::Arc::new(Cluster::new().await);
    for node in ["a", "b"] {
        cluster.node(node).await;
        cluster.hardware(node, 100.0).await;
    }
    let agents = cluster.agents();
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0.5"), ("BUDGET_SITE_WATTS", "1200")]).await;
    cluster.until("a pass was made", async || operator.page("/debug/plan").await.0 == 200).await;
    cluster.until("b is eco", async || cluster.label("b").await.as_deref() == Some("eco")).await;
    let page = operator.plan("").await;
    assert_eq!(page["nodes"].as_array().unwrap().len(), 2);
    assert_eq!((&page["policy"]["name"], &page["nodesLeftOut"]), (&json!("static-partition-v1"), &json!(0)));
    assert_eq!((&page["groups"][0]["name"], &page["groups"][0]["limitW"]), (&json!("site"), &json!(1200.0)));
    assert!(page["inputs"]["watches"][0]["silentSeconds"].is_number(), "{page}");
    let one = operator.plan("?node=b").await;
    let b = &one["nodes"][0];
    assert_eq!(
        (&b["node"], &b["planned"], &b["by"]),
        (&json!("b"), &json!("eco"), &json!("static-partition-v1"))
    );
    assert_eq!((&b["twin"]["drawnFrom"], &b["inputs"]["presence"]), (&json!("agent"), &json!("Ready")));
    assert!(b["twin"]["drawnAgeSeconds"].is_number(), "{b}");
    for (path, status) in [("?node=c", 404), ("?nodes=b", 400), ("?node=", 400)] {
        assert_eq!(operator.page(&format!("/debug/plan{path}")).await.0, status, "{path}");
    }
    assert_eq!(operator.page("/debug/other").await.0, 404);
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_past_the_bound_on_performance_count_as_standard_and_are_told() {
    let cluster = Cluster::new().await;
    for at in 0..4 {
        cluster.node(&format!("n{at}")).await;
    }
    let operator = cluster
        .operator(&[
            ("POLICY_TYPE", "queue_aware_v1"),
            ("QUEUE_HP_BASE_FRAC", "0.25"),
            ("QUEUE_PERF_PER_HP_NODE", "1"),
            ("PERFORMANCE_NODES_MAX", "default=2"),
        ])
        .await;
    for at in 0..4 {
        cluster.pod(&format!("p{at}"), None, "performance").await;
    }
    let events = async |reason: &str| {
        let all = cluster.list("/apis/events.k8s.io/v1/namespaces/default/events").await;
        all.iter().filter(|event| event["reason"] == reason).count()
    };
    cluster.until("two pods are told", async || events("PerformanceBound").await == 2).await;
    cluster
        .until("n1 is at full power", async || cluster.label("n1").await.as_deref() == Some("performance"))
        .await;
    let page = operator.plan("").await;
    assert_eq!(page["policy"]["demand"]["performancePods"], json!(2));
    assert_eq!(page["policy"]["performanceNodes"], json!(2));
    let (_, metrics) = operator.page("/metrics").await;
    assert!(metrics.contains("joulie_operator_past_bound_pods{reason=\"nodes\"} 2"), "{metrics}");
    operator.stop().await;
    let operator = cluster.operator(&[("PERFORMANCE_NAMESPACES", "other")]).await;
    cluster.until("all are told", async || events("PerformanceNotAllowed").await == 4).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_on_dividing_gpus_rests_on_what_is_reported_and_known() {
    let cluster = Cluster::new().await;
    cluster.node("a").await;
    cluster.hardware("a", 100.0).await;
    let gpu = json!({"present": true, "count": 4, "rawModel": "NVIDIA H100 80GB HBM3", "model": "NVIDIA_H100_SXM",
        "capRangePerGpu": {"minWatts": 200, "maxWatts": 700}, "slicing": {"supported": true}});
    cluster.patch(&format!("{JOULIE}/nodehardwares/a/status"), &json!({"status": {"gpu": gpu}})).await;
    cluster.trains("p", "a", "standard", 1).await;
    let operator = cluster.operator(&[("ENABLE_CLASSIFIER", "true")]).await;
    let advice = async || {
        let twin = cluster.twin("a").await.unwrap_or_default();
        twin["status"]["gpuSlicingRecommendation"].clone()
    };
    cluster
        .until("there is a status", async || {
            cluster.twin("a").await.is_some_and(|twin| twin["status"].is_object())
        })
        .await;
    assert_eq!(advice().await, Value::Null, "nothing is known of the pod");
    cluster.said_of_train("low", "low", 0.9).await;
    cluster.until("there is advice", async || advice().await["mode"] == "mig").await;
    let said = advice().await;
    assert_eq!(
        (&said["sliceType"], &said["slicesPerGPU"], &said["totalSlices"]),
        (&json!("1g.10gb"), &json!(7), &json!(28))
    );
    cluster.said_of_train("low", "low", 0.2).await;
    cluster.until("it is withdrawn", async || advice().await.is_null()).await;
    operator.stop().await;
}
