//! Many pods at once: the watts of bound pods count that no sample includes yet.

use super::world::{World, measured, pod};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl World {
    /// Creates a copy of this pod under another name, and returns it with the UID that the server assigned.
    pub(crate) async fn create(&self, name: &str, like: &Value) -> Value {
        let mut pod = like.clone();
        pod["metadata"] =
            json!({"name": name, "namespace": "default", "annotations": like["metadata"]["annotations"]});
        self.send("POST", "/api/v1/namespaces/default/pods", &pod).await
    }

    /// Creates a copy of this pod and binds it to a node without a scheduling request.
    pub(crate) async fn bind(&self, name: &str, like: &Value, node: &str) {
        self.create(name, like).await;
        self.assign(name, node).await;
    }

    /// Binds an existing pod.
    pub(crate) async fn assign(&self, name: &str, node: &str) {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                             "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        self.send("POST", &format!("/api/v1/namespaces/default/pods/{name}/binding"), &binding).await;
    }

    /// Deletes a pod at once.
    pub(crate) async fn delete(&self, name: &str) {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        self.send("DELETE", &path, &json!({"gracePeriodSeconds": 0})).await;
    }

    /// Removes the pod's scheduling gates.
    pub(crate) async fn free(&self, name: &str) {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        self.send("PATCH", &path, &json!({"spec": {"schedulingGates": []}})).await;
    }

    /// Marks the pod as running.
    async fn runs(&self, name: &str) {
        let status = json!({"status": {"phase": "Running", "startTime": Timestamp::now().to_string()}});
        self.send("PATCH", &format!("/api/v1/namespaces/default/pods/{name}/status"), &status).await;
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(body.to_string().into_bytes()).unwrap();
        self.client.request::<Value>(request).await.unwrap()
    }

    async fn sees_pods(&self, count: usize) {
        let is = async || {
            let (_, page) = self.get("/debug/scoring").await;
            let page: Value = serde_json::from_str(&page).unwrap();
            page["cluster"]["assumedPods"] == json!(count)
        };
        self.until(&format!("{count} pods are assumed"), is).await;
    }

    /// Equal nodes that draw 200 W of 1000: 40 cores at 400 W, so that a core adds 7 W.
    pub(crate) async fn equal_nodes(&self, names: &[String]) {
        for name in names {
            let status = json!({"predictedCoolingStressScore": 0, "powerMeasurement": measured(200, 1000)});
            self.twin(name, "performance", status).await;
            self.hardware(name, 40, 400).await;
        }
        let (first, last) = (pod("performance", "1"), names.last().unwrap());
        // 0.7 · (1000 − 200 − 7)/10 + 15 = 70.51.
        let is = async || self.would_score(&first, last).await == 70;
        self.until("the nodes are seen", is).await;
    }
}

#[tokio::test]
async fn a_burst_of_like_pods_spreads_over_like_nodes() {
    let world = World::start(&[]).await;
    let names: Vec<String> = (0..20).map(|n| format!("node-{n:02}")).collect();
    world.equal_nodes(&names).await;
    let (like, names): (Value, Vec<&str>) =
        (pod("performance", "4"), names.iter().map(String::as_str).collect());
    let mut placed: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..200 {
        // Take the first of the best nodes. Without assumed watts it would be the same node each time, because an
        // expectation ends with the binding.
        let name = format!("pod-{number}");
        let wanted = world.create(&name, &like).await;
        let scores = world.scores(&wanted, &names).await;
        let best = scores.iter().map(|(_, score)| *score).max().unwrap();
        let (node, _) = scores.into_iter().find(|(_, score)| *score == best).unwrap();
        world.assign(&name, &node).await;
        world.sees_pods(number + 1).await;
        *placed.entry(node).or_default() += 1;
    }
    // 28 W are 1.96 points of 1000 W: integer scores distinguish nodes that differ by one pod.
    assert_eq!(placed.len(), 20);
    assert!(placed.values().all(|count| (9..=11).contains(count)), "{placed:?}");
}

#[tokio::test]
async fn assumed_watts_end_when_a_later_sample_shows_the_pod() {
    let world = World::start(&[("ASSUMED_SETTLE", "0s")]).await;
    let nodes = ["a".to_owned()];
    world.equal_nodes(&nodes).await;
    let wanted = pod("performance", "10");
    // 70 W more each: 0.7 · (800 − 70)/10 + 15 = 66.1; with one assumed 61.2.
    world.scores_at_last(&wanted, "a", 66).await;
    world.bind("one", &wanted, "a").await;
    world.scores_at_last(&wanted, "a", 61).await;
    world.runs("one").await;
    world.sees_pods(1).await;
    assert_eq!(world.score(&wanted, "a").await, 61, "running is not being shown");
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    // The sample includes the pod: 0.7 · (1000 − 270 − 70)/10 + 15 = 61.2.
    world
        .twin(
            "a",
            "performance",
            json!({"predictedCoolingStressScore": 0, "powerMeasurement": measured(270, 1000)}),
        )
        .await;
    world.sees_pods(0).await;
    world.scores_at_last(&wanted, "a", 61).await;
}

#[tokio::test]
async fn a_later_sample_of_the_agent_shows_the_pod_while_the_twin_stands() {
    let world = World::start(&[("ASSUMED_SETTLE", "0s"), ("JOULIE_NAMESPACE", "default")]).await;
    let ago = |seconds: i64| (Timestamp::now() - jiff::SignedDuration::from_secs(seconds)).to_string();
    // A twin that is fresh by the plan's Lease: 200 W of 1000 W, measured a minute ago.
    let power = json!({"source": "agent", "measuredNodePowerW": 200, "nodeCappedPowerW": 1000,
        "sampledAt": ago(60)});
    let fresh = json!([{"type": "TelemetryFresh", "status": "True", "reason": "Sampled", "message": "",
        "lastTransitionTime": ago(60)}]);
    let status = json!({"planLease": "joulie-plan", "conditions": fresh, "predictedCoolingStressScore": 0,
        "powerMeasurement": power});
    world.twin("a", "performance", status).await;
    let samples = async |watts: u32, at: String| {
        // 40 cores at 400 W: a core adds 7 W.
        let cpu = json!({"totalCores": 40, "sockets": 1, "capRange": {"maxWattsPerSocket": 400}});
        let power = json!({"cpuWatts": watts, "sampledAt": at, "source": "rapl"});
        world.hardware_of("a", json!({"cpu": cpu, "power": power})).await;
    };
    let shows = async |watts: u32| {
        let is = async || {
            let page: Value = serde_json::from_str(&world.get("/debug/scoring").await.1).unwrap();
            page["nodes"][0]["measuredPowerW"] == json!(f64::from(watts))
        };
        world.until(&format!("it draws {watts} W"), is).await;
    };
    samples(200, ago(60)).await;
    world.lease().await;
    let wanted = pod("performance", "10");
    // 70 W more each: 0.7 · (800 − 70)/10 + 15 = 66.1; with one assumed 61.2.
    world.scores_at_last(&wanted, "a", 66).await;
    world.bind("one", &wanted, "a").await;
    world.runs("one").await;
    world.scores_at_last(&wanted, "a", 61).await;
    // Of before it ran; and the Lease is renewed, which says nothing of what is drawn.
    samples(210, ago(30)).await;
    world.classifier("on").await;
    shows(210).await;
    world.sees_pods(1).await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    samples(265, ago(0)).await;
    world.sees_pods(0).await;
    // 0.7 · (1000 − 265 − 70)/10 + 15 = 61.55.
    shows(265).await;
    assert_eq!(world.score(&wanted, "a").await, 61);
}

#[tokio::test]
async fn a_pod_that_is_gone_does_not_count() {
    let world = World::start(&[]).await;
    world.equal_nodes(&["a".to_owned()]).await;
    let wanted = pod("standard", "1");
    world.bind("one", &wanted, "a").await;
    world.bind("two", &wanted, "a").await;
    world.sees_pods(2).await;
    world.delete("one").await;
    world.sees_pods(1).await;
    world
        .send(
            "PATCH",
            "/api/v1/namespaces/default/pods/two/status",
            &json!({"status": {"phase": "Succeeded"}}),
        )
        .await;
    world.sees_pods(0).await;
}

#[tokio::test]
async fn power_fit_keeps_pods_from_a_node_that_they_would_take_over_its_cap() {
    let world = World::start(&[("POWER_FIT", "filter")]).await;
    world.equal_nodes(&["a".to_owned()]).await;
    let ask = json!({"Pod": pod("standard", "40"), "NodeNames": ["a", "nobody"]});
    // 280 W each into 800 W.
    for (number, left) in [(0, true), (1, true), (2, false)] {
        let answer = world.post("/filter", &ask).await;
        assert_eq!(answer["nodenames"].as_array().unwrap().contains(&json!("a")), left, "{answer}");
        if left {
            world.bind(&format!("pod-{number}"), &pod("standard", "40"), "a").await;
            world.sees_pods(number + 1).await;
        } else {
            // Evicting pods could help.
            let why = &answer["failedNodes"]["a"];
            assert_eq!(why, "joulie: the pod would take the node 40.0 W over its power cap");
            assert_eq!(answer["failedAndUnresolvableNodes"], json!({}));
            assert_eq!(answer["nodenames"], json!(["nobody"]));
        }
    }
}
