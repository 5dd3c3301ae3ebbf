//! Pods between their scoring and their binding.

use super::world::{World, measured, pod};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A pod of four cores with a UID of its own.
fn one(number: usize) -> Value {
    let mut pod = pod("performance", "4");
    pod["metadata"]["uid"] = json!(format!("uid-{number}"));
    pod
}

impl World {
    /// The page's summary of expected and waiting pods.
    async fn cluster(&self) -> Value {
        let (_, page) = self.get("/debug/scoring").await;
        serde_json::from_str::<Value>(&page).unwrap()["cluster"].clone()
    }

    async fn ended(&self, fate: &str) -> String {
        let (_, page) = super::world::call(self.started.metrics, "GET", "/metrics", b"").await;
        let series = format!("joulie_scheduler_expectations_total{{fate=\"{fate}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("missing").to_owned()
    }

    /// Waits until the extender knows this many waiting pods.
    async fn sees_queued(&self, count: usize) {
        let is = async || self.cluster().await["queuedPods"] == json!(count);
        self.until(&format!("{count} pods wait for a node"), is).await;
    }

    /// Creates pods of four cores, and waits until they are known.
    async fn create_all(&self, names: &[String]) -> Vec<Value> {
        let (like, mut all) = (pod("performance", "4"), Vec::new());
        for name in names {
            all.push(self.create(name, &like).await);
        }
        self.sees_queued(names.len()).await;
        all
    }

    /// The best node, as kube-scheduler would choose; here the last one among equals.
    async fn best(&self, pod: &Value, names: &[&str]) -> String {
        self.scores(pod, names).await.into_iter().max_by_key(|(_, score)| *score).unwrap().0
    }
}

#[tokio::test]
async fn pods_that_nobody_has_seen_bound_yet_are_told_of_different_nodes() {
    // Fix list extender B20.
    let world = World::start(&[]).await;
    let names: Vec<String> = (0..20).map(|n| format!("node-{n:02}")).collect();
    world.equal_nodes(&names).await;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut placed: BTreeMap<String, usize> = BTreeMap::new();
    let pods: Vec<String> = (0..101).map(|number| format!("pod-{number}")).collect();
    let mut pods = world.create_all(&pods).await;
    let another = pods.pop().unwrap();
    for (number, wanted) in pods.into_iter().enumerate() {
        // A debug request does not count as an offer, and a repeated request is for the same pod.
        world.post("/debug/scoring", &json!({"Pod": one(1000 + number), "NodeNames": names})).await;
        let first = world.best(&wanted, &names).await;
        assert!(number % 10 > 0 || world.best(&wanted, &names).await == first);
        *placed.entry(first).or_default() += 1;
    }
    assert_eq!(world.cluster().await["expectedPods"], json!(100));
    // For the first pod nothing was expected: all nodes had equal scores, and it was expected on another one than it
    // was bound to.
    assert!(placed.len() == 20 && placed.values().all(|pods| (4..=6).contains(pods)), "{placed:?}");
    // The debug page shows the scores that prioritize returns.
    let ask = json!({"Pod": another, "NodeNames": names});
    let shown = world.post("/debug/scoring", &ask).await;
    let told = world.post("/prioritize", &ask).await;
    for (shown, told) in shown["nodes"].as_array().unwrap().iter().zip(told.as_array().unwrap()) {
        assert_eq!(shown["answer"], told["score"], "{shown}");
        // Five pods of 28 W each.
        let watts = shown["scoring"]["expectedPowerW"].as_f64().unwrap();
        assert!((watts - 140.0).abs() < 28.1, "{shown}");
    }
    // Expectations affect scores, but not the filter.
    let kept = world.post("/filter", &ask).await;
    assert_eq!(kept["nodenames"].as_array().unwrap().len(), 20);
}

#[tokio::test]
async fn a_pod_counts_once_when_it_is_seen_bound_and_not_at_all_when_it_never_is() {
    let world = World::start(&[("EXPECTED_MAX_AGE", "1s")]).await;
    world.equal_nodes(&["a".to_owned()]).await;
    let wanted = world.create_all(&["never-bound".to_owned()]).await;
    world.score(&wanted[0], "a").await;
    world.until("it is forgotten", async || world.ended("expired").await == "1").await;
    assert_eq!(world.cluster().await["expectedPods"], json!(0));
    // Nothing is expected: the score of the formula, 0.7 · (1000 − 200 − 28)/10 + 15 = 69.04.
    assert_eq!(world.score(&one(2), "a").await, 69);

    let world = World::start(&[]).await;
    world.equal_nodes(&["a".to_owned(), "b".to_owned()]).await;
    for (name, node, fate) in [("here", "a", "met"), ("there", "b", "elsewhere")] {
        let wanted = world.create(name, &pod("performance", "4")).await;
        world.sees_queued(1).await;
        // The only remaining node is the pod's destination: kube-scheduler does not ask for scores then.
        world.post("/filter", &json!({"Pod": wanted, "NodeNames": ["a"]})).await;
        assert_eq!(world.cluster().await["expectedPods"], json!(1), "{name}");
        world.assign(name, node).await;
        world.until("the binding is seen", async || world.ended(fate).await == "1").await;
        assert_eq!(world.cluster().await["expectedPods"], json!(0));
    }
    assert_eq!(world.cluster().await["assumedPods"], json!(2));
}

#[tokio::test]
async fn answers_about_pods_that_do_not_exist_weigh_nothing() {
    let world = World::start(&[]).await;
    let names: Vec<String> = (0..20).map(|n| format!("node-{n:02}")).collect();
    world.equal_nodes(&names).await;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let asked = one(0);
    // A real pod, which is expected before any of the invented ones.
    let real = world.create_all(&["real".to_owned()]).await;
    world.best(&real[0], &names).await;
    let before = world.scores(&asked, &names).await;
    for number in 1..=600 {
        // 280 W each.
        let mut made_up = pod("performance", "40");
        made_up["metadata"]["uid"] = json!(format!("made-up-{number}"));
        world.post("/prioritize", &json!({"Pod": made_up, "NodeNames": names})).await;
        world.post("/filter", &json!({"Pod": made_up, "NodeNames": [names[number % 20]]})).await;
    }
    let cluster = world.cluster().await;
    assert_eq!((&cluster["expectedPods"], &cluster["unknownPods"]), (&json!(1), &json!(256)));
    assert_eq!(world.scores(&asked, &names).await, before);
    assert_eq!((world.ended("displaced").await, world.ended("expired").await), ("0".into(), "0".into()));
}

#[tokio::test]
async fn an_answer_before_the_watch_tells_of_its_pod_counts_from_the_moment_it_does() {
    let world = World::start(&[]).await;
    world.equal_nodes(&["a".to_owned(), "b".to_owned()]).await;
    let before = world.scores(&one(1), &["a", "b"]).await;
    // A gated pod does not count as waiting, nor does a pod that the watch has not reported.
    let mut held = pod("performance", "4");
    held["spec"]["schedulingGates"] = json!([{"name": "later"}]);
    let mut asked = world.create("real", &held).await;
    // The request claims ten times as much as the object.
    asked["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("40");
    world.post("/filter", &json!({"Pod": asked, "NodeNames": ["a"]})).await;
    let cluster = world.cluster().await;
    // The other unknown pod is the one whose scores this test compares.
    assert_eq!((&cluster["expectedPods"], &cluster["unknownPods"]), (&json!(0), &json!(2)));
    assert_eq!(world.scores(&one(1), &["a", "b"]).await, before);
    world.free("real").await;
    world.sees_queued(1).await;
    let counts = async || world.cluster().await["expectedPods"] == json!(1);
    world.until("it counts", counts).await;
    // The object's requests count: 4 of 40 cores, 0.7 · 400 W / 10.
    let page = world.post("/debug/scoring", &json!({"Pod": one(2), "NodeNames": ["a", "b"]})).await;
    let watts = |at: usize| page["nodes"][at]["scoring"]["expectedPowerW"].as_f64().unwrap();
    assert!((watts(0) - 28.0).abs() < 0.1 && watts(1) == 0.0, "{page}");
    world.assign("real", "a").await;
    world.until("the binding is seen", async || world.ended("met").await == "1").await;
}

#[tokio::test]
async fn a_pod_that_waits_counts_once_with_what_its_object_asks_for_and_until_it_is_gone() {
    let world = World::start(&[]).await;
    world.equal_nodes(&["a".to_owned(), "b".to_owned()]).await;
    let real = world.create_all(&["real".to_owned()]).await.remove(0);
    // Repeated requests that name its UID and claim more than the object requests.
    let mut larger = real.clone();
    larger["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("40");
    for node in ["a", "b", "a"] {
        world.post("/filter", &json!({"Pod": larger, "NodeNames": [node]})).await;
    }
    let expected = async |name: &str| {
        let page = world.post("/debug/scoring", &json!({"Pod": one(1), "NodeNames": [name]})).await;
        page["nodes"][0]["scoring"]["expectedPowerW"].as_f64().unwrap()
    };
    // 4 of 40 cores: 0.7 · 400 W / 10.
    let watts = expected("a").await;
    assert!((watts - 28.0).abs() < 0.1, "{watts}");
    assert_eq!(expected("b").await, 0.0);
    world.delete("real").await;
    world.sees_queued(0).await;
    assert_eq!((world.cluster().await["expectedPods"].clone(), expected("a").await), (json!(0), 0.0));
    // A gated pod is not expected either.
    let mut gated = pod("performance", "4");
    gated["spec"]["schedulingGates"] = json!([{"name": "later"}]);
    let gated = world.create("gated", &gated).await;
    world.create_all(&["after".to_owned()]).await;
    world.post("/filter", &json!({"Pod": gated, "NodeNames": ["a"]})).await;
    assert_eq!(world.cluster().await["expectedPods"], json!(0));
}

#[tokio::test]
async fn a_pod_that_was_bound_before_its_node_s_hardware_was_known_counts_once_it_is() {
    let world = World::start(&[]).await;
    let status = json!({"predictedCoolingStressScore": 0, "powerMeasurement": measured(200, 1000)});
    world.twin("late", "performance", status).await;
    let wanted = pod("performance", "10");
    // Without hardware a pod adds no watts: 0.7 · 80 + 15.
    world.scores_at_last(&wanted, "late", 71).await;
    world.bind("early", &wanted, "late").await;
    let waits = async || world.cluster().await["waitingPods"] == json!(1);
    world.until("the pod is seen", waits).await;
    assert_eq!(
        (world.cluster().await["assumedPods"].clone(), world.score(&wanted, "late").await),
        (json!(0), 71)
    );
    world.hardware("late", 40, 400).await;
    // 70 W for the bound pod and 70 W for the next one: 0.7 · (800 − 140)/10 + 15 = 61.2, and never 66.1 in between.
    world.until("the hardware is seen", async || world.score(&wanted, "late").await != 71).await;
    assert_eq!(world.score(&wanted, "late").await, 61);
    let cluster = world.cluster().await;
    assert_eq!((cluster["assumedPods"].clone(), cluster["waitingPods"].clone()), (json!(1), json!(0)));
}
