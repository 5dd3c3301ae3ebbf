//! Filter's answers with the best candidates only.

use super::world::{World, call, pod};
use serde_json::{Value, json};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const SMALL: (&str, &str) = ("SHORTLIST_SIZE", "3");

impl World {
    async fn kept(&self, pod: &Value) -> Vec<String> {
        let answer = self.post("/filter", &json!({"Pod": pod, "NodeNames": NAMES})).await;
        assert_eq!((&answer["failedNodes"], &answer["failedAndUnresolvableNodes"]), (&json!({}), &json!({})));
        assert_eq!(answer["error"], "");
        serde_json::from_value(answer["nodenames"].clone()).unwrap()
    }

    async fn lists(&self, list: &str) -> String {
        let (_, page) = call(self.started.metrics, "GET", "/metrics", b"").await;
        let series = format!("joulie_scheduler_shortlists_total{{list=\"{list}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("missing").to_owned()
    }
}

/// Six nodes that are alike, in two zones.
async fn cluster(settings: &[(&str, &str)]) -> World {
    let world = World::start(settings).await;
    for (at, name) in NAMES.iter().enumerate() {
        world.node(name, json!({"topology.kubernetes.io/zone": if at < 3 { "x" } else { "y" }})).await;
    }
    world.equal_nodes(&NAMES.map(str::to_owned)).await;
    world
}

#[tokio::test]
async fn filter_keeps_the_best_and_tells_of_the_others_in_no_map() {
    let world = cluster(&[("SHORTLIST", "all"), SMALL]).await;
    let first = pod("standard", "1");
    // A pod of each zone, once the zones are seen.
    world
        .until("zones are seen", async || {
            let kept = world.kept(&pod("standard", "1")).await;
            let of = |zone: &[&str]| kept.iter().filter(|name| zone.contains(&name.as_str())).count();
            assert_eq!(kept.len(), 3);
            of(&NAMES[..3]) > 0 && of(&NAMES[3..]) > 0
        })
        .await;
    assert_eq!(world.kept(&first).await.len(), 3);
    // The same pod again: it was not bound, so that it gets every candidate, as often as it asks.
    assert_eq!(world.kept(&first).await, NAMES);
    assert_eq!(world.kept(&first).await, NAMES);
    assert_eq!(world.lists("again").await, "2");
    // Whole objects come back as they were.
    let nodes: Vec<Value> =
        NAMES.iter().map(|name| json!({"spec": {"x": 1}, "metadata": {"name": name}})).collect();
    let answer =
        world.post("/filter", &json!({"Pod": pod("standard", "1"), "Nodes": {"items": nodes}})).await;
    let kept = answer["nodes"]["items"].as_array().unwrap();
    assert!(kept.len() == 3 && kept.iter().all(|node| nodes.contains(node)), "{answer}");
    assert_eq!(answer["failedNodes"], json!({}));
    // A pod without a UID could not be recognised.
    let mut nameless = pod("standard", "1");
    nameless["metadata"].as_object_mut().unwrap().remove("uid");
    assert_eq!(world.kept(&nameless).await, NAMES);
    assert_eq!(world.lists("no_uid").await, "1");
}

#[tokio::test]
async fn candidates_that_are_refused_are_told_of_as_ever() {
    let world = cluster(&[("SHORTLIST", "all"), ("SHORTLIST_SIZE", "2")]).await;
    let status =
        json!({"predictedCoolingStressScore": 0, "powerMeasurement": super::world::measured(200, 1000)});
    world.twin("a", "eco", status).await;
    let ask = || json!({"Pod": pod("performance", "1"), "NodeNames": NAMES});
    world
        .until("the eco node is refused", async || {
            let answer = world.post("/filter", &ask()).await;
            let refused = answer["failedAndUnresolvableNodes"].as_object().unwrap();
            assert_eq!(answer["nodenames"].as_array().unwrap().len(), 2);
            refused.keys().eq(["a"])
        })
        .await;
}

#[tokio::test]
async fn a_pod_that_was_bound_has_its_turn_again() {
    let world = cluster(&[("SHORTLIST", "all"), SMALL]).await;
    let created = world.create("p", &pod("standard", "1")).await;
    assert_eq!(world.kept(&created).await.len(), 3);
    assert_eq!(world.kept(&created).await.len(), 6);
    // None of the candidates suited a later plugin, and then one did.
    world.assign("p", "f").await;
    world.until("the binding is seen", async || world.kept(&created).await.len() == 3).await;
}

#[tokio::test]
async fn safe_is_for_pods_whose_other_scores_are_not_turned() {
    let world = cluster(&[("SHORTLIST", "safe"), SMALL]).await;
    let job = || {
        let mut job = pod("standard", "1");
        job["metadata"]["labels"] = json!({"job-name": "j"});
        job["metadata"]["ownerReferences"] = json!([{"kind": "Job", "name": "j", "controller": true}]);
        job
    };
    world.until("all is read", async || world.kept(&job()).await.len() == 3).await;
    let mut replica = job();
    replica["metadata"]["ownerReferences"][0]["kind"] = json!("ReplicaSet");
    assert_eq!(world.kept(&replica).await, NAMES);
    assert_eq!(world.lists("spread").await, "1");
    let page = world.post("/debug/scoring", &json!({"Pod": replica, "NodeNames": NAMES})).await;
    assert_eq!(page["shortlist"], "spread");
    // A Service that selects the Job's pods.
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"},
                         "spec": {"selector": {"job-name": "j"}, "ports": [{"port": 80}]}});
    world.send("POST", "/api/v1/namespaces/default/services", &service).await;
    world.until("the Service is seen", async || world.kept(&job()).await.len() == 6).await;
}

#[tokio::test]
async fn nothing_is_left_out_unless_it_is_asked_for() {
    let world = cluster(&[SMALL]).await;
    assert_eq!(world.kept(&pod("standard", "1")).await, NAMES);
    assert_eq!(world.lists("short").await, "0");
}
