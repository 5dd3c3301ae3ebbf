//! Pods with GPUs: which nodes they may go to, how those score, who gets the last card, and which evictions help.

use super::world::{World, call, measured};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const ON: [(&str, &str); 3] =
    [("GPU_PLACEMENT", "annotated"), ("GPU_BIND", "true"), ("EXTENDER_CONNECTIONS_MAX", "400")];
const A100: &str = "NVIDIA A100-SXM4-40GB";

/// A pod that asks for cards by these annotations of `gpu-extender.mle.com`.
pub(crate) fn pod(count: u32, annotations: &[(&str, &str)]) -> Value {
    let mut pod = super::world::pod("standard", "1");
    for (key, value) in annotations {
        pod["metadata"]["annotations"][format!("gpu-extender.mle.com/{key}")] = json!(value);
    }
    if count > 0 {
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": count.to_string()});
    }
    pod
}

pub(crate) fn free() -> Value {
    json!({"allocatedVRAMmb": 0, "phase": "Available", "health": "Healthy"})
}

fn held(uid: &str) -> Value {
    json!({"allocatedVRAMmb": 40_000, "phase": "Allocated", "health": "Healthy", "podName": "p", "podNamespace": "default",
           "allocations": [{"podUID": uid, "podName": "p", "podNamespace": "default", "vramMb": 40_000}]})
}

impl World {
    /// A card of a node: an A100 with 40,000 MB, unless `more` says otherwise.
    pub(crate) async fn card(&self, node: &str, number: u32, more: Value, status: Value) {
        let name = format!("{node}-{number}");
        let mut spec = json!({"nodeName": node, "uuid": format!("GPU-{name}"), "model": A100, "totalVRAMmb": 40_000,
                              "vendor": "nvidia"});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let api = self.kind("gpu.mle.com", "v1alpha1", "GPU", "gpus");
        let by = kube::api::PatchParams::apply("test").force();
        let head = json!({"apiVersion": "gpu.mle.com/v1alpha1", "kind": "GPU", "metadata": {"name": name}});
        let (mut whole, mut said) = (head.clone(), head);
        whole["spec"] = spec;
        said["status"] = status;
        api.patch(&name, &by, &kube::api::Patch::Apply(&whole)).await.unwrap();
        api.patch_status(&name, &by, &kube::api::Patch::Apply(&said)).await.unwrap();
    }

    async fn gpu(&self, name: &str) -> Value {
        let api = self.kind("gpu.mle.com", "v1alpha1", "GPU", "gpus");
        serde_json::to_value(api.get(name).await.unwrap()).unwrap()
    }

    /// Those whom a card is taken for.
    pub(crate) async fn taken(&self, name: &str) -> Vec<Value> {
        let gpu = self.gpu(name).await;
        let all = gpu["status"]["assumed"].as_array().cloned().unwrap_or_default();
        all.iter().map(|one| one["podUID"].clone()).collect()
    }

    pub(crate) async fn filtered(&self, pod: &Value, names: &[&str]) -> Value {
        self.post("/filter", &json!({"Pod": pod, "NodeNames": names})).await
    }

    /// Waits until exactly these of the nodes pass.
    pub(crate) async fn passes_at_last(&self, pod: &Value, names: &[&str], pass: &[&str]) {
        let is = async || self.filtered(pod, names).await["nodenames"] == json!(pass);
        self.until(&format!("{pass:?} pass"), is).await;
    }

    async fn read(&self, pod: &str) -> Value {
        self.send("GET", &format!("/api/v1/namespaces/default/pods/{pod}"), &json!(null)).await
    }
}

pub(crate) fn args(pod: &Value, node: &str) -> Value {
    let meta = &pod["metadata"];
    json!({"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node})
}

#[tokio::test]
async fn a_pod_goes_where_its_model_and_memory_are_and_each_other_node_says_why_not() {
    // Fix list article G1, G5, G10.
    let world = World::start(&ON).await;
    world.card("fits", 0, json!({}), free()).await;
    world.card("busy", 0, json!({}), held("somebody")).await;
    world
        .card("ill", 0, json!({}), json!({"allocatedVRAMmb": 0, "phase": "Available", "health": "Unknown"}))
        .await;
    world.card("new", 0, json!({}), json!({})).await;
    world.card("other", 0, json!({"model": "Tesla T4", "totalVRAMmb": 16_000}), free()).await;
    world.card("small", 0, json!({"totalVRAMmb": 20_000}), free()).await;
    let all = ["fits", "busy", "ill", "new", "other", "small", "bare"];
    let wanted = pod(1, &[("model", "a100"), ("vram-mb", "30000")]);
    world.passes_at_last(&wanted, &all, &["fits"]).await;
    let answer = world.filtered(&wanted, &all).await;
    for (node, why) in [
        ("busy", "joulie: too few GPUs of the model asked for are free (0)"),
        ("ill", "joulie: too few GPUs of the model asked for are healthy, whole and known well enough (0)"),
        ("new", "joulie: too few GPUs of the model asked for are healthy, whole and known well enough (0)"),
        ("other", "joulie: too few GPUs of the model asked for on the node (0)"),
        ("small", "joulie: too few GPUs of the node have that much VRAM (0)"),
        ("bare", "joulie: no GPU of the node is known"),
    ] {
        assert_eq!(answer["failedNodes"][node], why);
        // Evicting pods helps only where a card is in use.
        assert_eq!(answer["failedAndUnresolvableNodes"][node].is_null(), node == "busy", "{node}");
    }
    // The number counts, a list of models is any of them, and both forms of a request are answered alike.
    assert_eq!(world.filtered(&pod(2, &[("model", "A100")]), &all).await["nodenames"], json!([]));
    let either = pod(1, &[("model", "T4, H100")]);
    assert_eq!(world.filtered(&either, &all).await["nodenames"], json!(["other"]));
    let objects: Vec<Value> = all.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    let answer = world.post("/filter", &json!({"Pod": either, "Nodes": {"items": objects}})).await;
    assert_eq!(answer["nodes"]["items"], json!([{"metadata": {"name": "other"}}]));
    // What is not valid fits nowhere; pods that do not say which GPUs they want pass as before.
    for (bad, why) in [
        (
            pod(1, &[("vram-mb", "30GB")]),
            "joulie: the annotation gpu-extender.mle.com/vram-mb is no whole number of MB above 0",
        ),
        (
            pod(0, &[("model", "A100")]),
            "joulie: the pod has annotations about GPUs and no limit such as nvidia.com/gpu",
        ),
    ] {
        assert_eq!(world.filtered(&bad, &["fits"]).await["failedAndUnresolvableNodes"], json!({"fits": why}));
    }
    for other in [pod(8, &[]), pod(0, &[])] {
        assert_eq!(world.filtered(&other, &all).await["nodenames"], json!(all));
    }
    // A card that leaves, or falls ill, takes no pod any more.
    world
        .card("fits", 0, json!({}), json!({"phase": "Available", "allocatedVRAMmb": 0, "health": "Unknown"}))
        .await;
    world.passes_at_last(&wanted, &all, &[]).await;
}

/// 600 W are left on each node. Two GPUs of at most 700 W are estimated at 0.65 · 1,400 W; what was measured of cards counts
/// instead.
#[tokio::test]
async fn a_pod_is_weighed_by_what_the_cards_of_a_node_were_measured_to_draw() {
    let world = World::start(&[("GPU_PLACEMENT", "annotated"), ("POWER_FIT", "filter")]).await;
    let power = |idle: u32, busy: u32, limit: u32| {
        let mut status = free();
        status["power"] = json!({"idleWatts": idle, "busyWatts": busy, "limitWatts": limit});
        status
    };
    let all = ["measured", "limited", "dear", "estimated", "half"];
    for node in all {
        let gpu = json!({"present": true, "vendor": "nvidia", "count": 2, "capRangePerGpu": {"minWatts": 100, "maxWatts": 700}});
        let cpu = json!({"totalCores": 100, "sockets": 1, "capRange": {"maxWattsPerSocket": 100}});
        world.hardware_of(node, json!({"cpu": cpu, "gpu": gpu})).await;
        let cards = match node {
            // 2 · 250 W, 2 · 240 W because their limit holds them back, 2 · 350 W.
            "measured" => [power(60, 310, 700), power(70, 300, 700)],
            "limited" => [power(60, 410, 300), power(60, 410, 300)],
            "dear" => [power(60, 410, 700), power(60, 300, 700)],
            "half" => [power(60, 310, 700), free()],
            _ => [free(), free()],
        };
        for (number, status) in (0..).zip(cards) {
            world.card(node, number, json!({}), status).await;
        }
        world.twin(node, "performance", json!({"powerMeasurement": measured(300, 900)})).await;
    }
    let wanted = pod(2, &[("model", "A100")]);
    world.passes_at_last(&wanted, &all, &["measured", "limited"]).await;
    // 700 W, and 0.7 W for a core in a hundred; 910 W where a card was not measured.
    let page = world.post("/debug/scoring", &json!({"Pod": wanted, "NodeNames": all})).await;
    let added = |node: usize| page["nodes"][node]["scoring"]["marginalGpuW"].as_f64().unwrap_or_default();
    assert_eq!([0, 1, 2].map(added), [500.0, 480.0, 700.0], "{page:#}");
    assert!([3, 4].map(added).iter().all(|watts| (watts - 910.0).abs() < 0.01), "{page:#}");
    // One card alone fits everywhere.
    let one = pod(1, &[("model", "A100")]);
    world.passes_at_last(&one, &all, &all).await;
    // It was measured anew.
    world.card("dear", 0, json!({}), power(60, 310, 700)).await;
    world.passes_at_last(&wanted, &all, &["measured", "limited", "dear"]).await;
}

#[tokio::test]
async fn links_are_required_only_where_a_pod_says_so_and_used_nodes_score_higher() {
    // Fix list article G4.
    let world = World::start(&[("GPU_PLACEMENT", "all"), ("GPU_SCORE_SHARE", "100")]).await;
    for number in 0..4 {
        // Two islands of two on one node, one of four on the other.
        world.card("pairs", number, json!({"island": number / 2}), free()).await;
        world.card("four", number, json!({"island": 0}), free()).await;
    }
    let all = ["pairs", "four", "used"];
    world.passes_at_last(&pod(4, &[("link", "required")]), &all, &["four"]).await;
    let answer = world.filtered(&pod(4, &[("link", "required")]), &all).await;
    assert_eq!(
        answer["failedNodes"]["pairs"],
        "joulie: the links of the node join too few GPUs of the model asked for (2)"
    );
    // With GPU_PLACEMENT=all the number alone is asked for.
    assert_eq!(world.filtered(&pod(4, &[]), &all).await["nodenames"], json!(["pairs", "four"]));
    world.card("used", 0, json!({}), held("somebody")).await;
    world.card("used", 1, json!({}), free()).await;
    world.passes_at_last(&pod(1, &[]), &all, &all).await;
    let score = async |annotations: &[(&str, &str)]| {
        let scores = world.scores(&pod(1, annotations), &all).await;
        scores.into_iter().map(|(_, score)| score).collect::<Vec<i64>>()
    };
    // One of four free cards: 60 × 40 ÷ 160 = 15, an island is broken, 15 as the whole card is used. The last of two: 60,
    // nothing is broken, 15.
    assert_eq!(score(&[]).await, [30, 30, 100]);
    // Spread: 85 × 120 ÷ 160 = 63.75, and nothing is left of the other node.
    assert_eq!(score(&[("packing", "spread")]).await, [78, 78, 15]);
}

#[tokio::test]
async fn of_fifty_pods_that_race_for_the_last_card_through_two_replicas_one_gets_it() {
    // Article table, row 1.
    // Fix list article G8.
    let world = World::start(&ON).await;
    let second = World::on(world.api.clone(), &ON).await;
    world.card("n", 0, json!({}), held("somebody")).await;
    world.card("n", 1, json!({}), free()).await;
    let mut pods = Vec::new();
    for number in 0..50 {
        pods.push(world.create(&format!("racer-{number}"), &pod(1, &[("model", "A100")])).await);
    }
    let mut race = JoinSet::new();
    for (at, pod) in pods.iter().enumerate() {
        let at = if at % 2 == 0 { world.started.work } else { second.started.work };
        let body = args(pod, "n").to_string();
        race.spawn(async move { call(at, "POST", "/bind", body.as_bytes()).await });
    }
    let answers = race.join_all().await;
    let errors: Vec<Value> = answers
        .iter()
        .map(|(status, text)| {
            assert_eq!(*status, 200, "{text}");
            serde_json::from_str::<Value>(text).unwrap()["Error"].clone()
        })
        .collect();
    assert_eq!(errors.iter().filter(|error| **error == "").count(), 1, "{errors:?}");
    let mut bound = Vec::new();
    for pod in &pods {
        let now = world.read(pod["metadata"]["name"].as_str().unwrap()).await;
        if now["spec"]["nodeName"] == "n" {
            assert_eq!(now["metadata"]["annotations"]["gpu-extender.mle.com/cards"], "GPU-n-1");
            bound.push(now["metadata"]["uid"].clone());
        }
    }
    assert_eq!(world.taken("n-1").await, bound, "one pod is bound, and has the card");
    assert_eq!(world.taken("n-0").await, Vec::<Value>::new());
    // Both replicas say from now on that the node has no card.
    for replica in [&world, &second] {
        replica.passes_at_last(&pod(1, &[("model", "A100")]), &["n"], &[]).await;
    }
}

#[tokio::test]
async fn cards_of_a_pod_that_is_not_bound_are_given_back() {
    let world = World::start(&ON).await;
    for number in 0..3 {
        world.card("n", number, json!({}), free()).await;
    }
    let wanted = pod(2, &[("model", "A100")]);
    let made = world.create("elsewhere", &wanted).await;
    world.assign("elsewhere", "other").await;
    let answer = world.post("/bind", &args(&made, "n")).await;
    assert!(answer["Error"].as_str().unwrap().starts_with("joulie: the pod cannot be bound: "), "{answer}");
    let none: Vec<Value> = Vec::new();
    for number in 0..3 {
        assert_eq!(world.taken(&format!("n-{number}")).await, none);
    }
    // A pod that is gone, another one of its name, a node without cards, and bodies that are none.
    let mut gone = args(&made, "n");
    gone["PodUID"] = json!("another");
    for (body, why) in [(gone, "another pod of that name"), (args(&made, "../n"), "the node ../n")] {
        let answer = world.post("/bind", &body).await;
        assert!(answer["Error"].as_str().unwrap().contains(why), "{answer}");
    }
    let waits = world.create("waits", &wanted).await;
    let answer = world.post("/bind", &args(&waits, "bare")).await;
    assert_eq!(answer["Error"], "joulie: a card cannot be taken: no GPU of the node is known");
    for body in ["", "[]", "{}", r#"{"PodName":"p","PodNamespace":"d","PodUID":"u"}"#] {
        assert_eq!(call(world.started.work, "POST", "/bind", body.as_bytes()).await.0, 400, "{body}");
    }
    assert_eq!(call(world.started.work, "GET", "/bind", b"").await.0, 405);
}

#[tokio::test]
async fn what_a_replica_took_before_it_died_is_used_by_the_next_one() {
    // Article table, row 3.
    // Fix list article G12.
    let world = World::start(&ON).await;
    world.card("n", 0, json!({}), free()).await;
    world.card("n", 1, json!({}), free()).await;
    let made = world.create("again", &pod(1, &[("model", "A100")])).await;
    let now = jiff::Timestamp::now().to_string();
    let assumed = json!({"status": {"assumed": [{"podUID": made["metadata"]["uid"], "podName": "again",
                         "podNamespace": "default", "vramMb": 40_000, "since": now}]}});
    world.send("PATCH", "/apis/gpu.mle.com/v1alpha1/gpus/n-1/status", &assumed).await;
    // The same request twice, as after a lost answer.
    for _ in 0..2 {
        assert_eq!(world.post("/bind", &args(&made, "n")).await["Error"], "");
    }
    let none: Vec<Value> = Vec::new();
    assert_eq!((world.taken("n-0").await, world.taken("n-1").await.len()), (none, 1));
    assert_eq!(world.read("again").await["metadata"]["annotations"]["gpu-extender.mle.com/cards"], "GPU-n-1");
    // A pod that asks for no GPU is bound, and takes none.
    let plain = world.create("plain", &pod(0, &[])).await;
    assert_eq!(world.post("/bind", &args(&plain, "n")).await["Error"], "");
    assert_eq!(world.read("plain").await["spec"]["nodeName"], "n");
    // The kubelet gave the pod the other card: the one that was taken is free.
    world.card("n", 0, json!({}), held(made["metadata"]["uid"].as_str().unwrap())).await;
    world.passes_at_last(&pod(1, &[("model", "A100")]), &["n"], &["n"]).await;
}

#[tokio::test]
async fn an_answer_to_bind_that_is_lost_binds_once() {
    // Article table, row 4.
    let world = World::start(&ON).await;
    let second = World::on(world.api.clone(), &ON).await;
    for number in 0..2 {
        world.card("n", number, json!({}), free()).await;
    }
    let made = world.create("lost", &pod(1, &[("model", "A100")])).await;
    let body = args(&made, "n").to_string();
    let mut stream = TcpStream::connect(world.started.work).await.unwrap();
    let head = format!("POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    world.until("the pod is bound", async || world.read("lost").await["spec"]["nodeName"] == "n").await;
    // Nobody reads the answer; kube-scheduler tries the pod again, perhaps at another replica.
    drop(stream);
    for replica in [&second, &world] {
        assert_eq!(replica.post("/bind", &args(&made, "n")).await["Error"], "");
    }
    let both = [world.taken("n-0").await, world.taken("n-1").await].concat();
    assert_eq!(both, [made["metadata"]["uid"].clone()], "one card, once");
}

#[tokio::test]
async fn only_nodes_where_the_victims_free_a_wished_card_remain() {
    // Fix list article G9.
    let world = World::start(&ON).await;
    world.card("right", 0, json!({}), held("right")).await;
    world.card("wrong", 0, json!({}), held("kept")).await;
    world
        .card(
            "wrong",
            1,
            json!({"model": "Tesla T4", "totalVRAMmb": 16_000}),
            json!({
        "allocatedVRAMmb": 16_000, "phase": "Allocated", "podName": "p",
        "allocations": [{"podUID": "useless", "podName": "p", "vramMb": 16_000}]}),
        )
        .await;
    world.card("free", 0, json!({}), free()).await;
    world.passes_at_last(&pod(1, &[("model", "A100")]), &["right", "wrong", "free"], &["free"]).await;
    let victims = |uids: &[&str]| {
        let pods: Vec<Value> = uids.iter().map(|uid| json!({"UID": uid})).collect();
        json!({"Pods": pods, "NumPDBViolations": 0})
    };
    let all = json!({"right": victims(&["right"]), "wrong": victims(&["useless"]), "free": victims(&[]),
                     "bare": victims(&["x"])});
    let asked = async |pod: &Value| {
        world.post("/preempt", &json!({"Pod": pod, "NodeNameToMetaVictims": all})).await["NodeNameToMetaVictims"].clone()
    };
    let kept = json!({"right": victims(&["right"]), "free": victims(&[])});
    let wanted = pod(1, &[("model", "A100")]);
    let nodes = ["right", "wrong", "free"];
    let before = world.filtered(&wanted, &nodes).await;
    assert_eq!(asked(&wanted).await, kept);
    assert_eq!(world.filtered(&wanted, &nodes).await, before, "nobody was evicted yet");
    assert_eq!(asked(&wanted).await, kept, "the answer is the same again");
    assert_eq!(asked(&pod(1, &[("model", "H100")])).await, json!({}), "none would help");
    assert_eq!(asked(&pod(0, &[])).await, all, "a pod without GPUs preempts as before");
    for body in ["", "[]", r#"{"NodeNameToMetaVictims":{"a":{"Pods":[{}]}}}"#] {
        assert_eq!(call(world.started.work, "POST", "/preempt", body.as_bytes()).await.0, 400, "{body}");
    }
}

#[tokio::test]
async fn a_useless_victim_is_swapped_for_a_pod_that_has_a_wished_card() {
    let world = World::start(&ON).await;
    let with = |priority: i64| {
        let mut pod = pod(1, &[("model", "A100")]);
        pod["spec"]["priority"] = json!(priority);
        pod
    };
    for (name, priority) in [("useless", 0), ("holder", 10)] {
        world.bind(name, &with(priority), "n").await;
    }
    let uid = async |name: &str| world.read(name).await["metadata"]["uid"].as_str().unwrap().to_owned();
    let (useless, holder) = (uid("useless").await, uid("holder").await);
    world.card("n", 0, json!({"model": "Tesla T4"}), held(&useless)).await;
    world.card("n", 1, json!({}), held(&holder)).await;
    let victims = |uids: &[&str], violations: i64| {
        let pods: Vec<Value> = uids.iter().map(|uid| json!({"UID": uid})).collect();
        json!({"n": {"Pods": pods, "NumPDBViolations": violations}})
    };
    let asked = async |pod: &Value| {
        let body = json!({"Pod": pod, "NodeNameToMetaVictims": victims(&[&useless], 0)});
        world.post("/preempt", &body).await["NodeNameToMetaVictims"].clone()
    };
    let urgent = with(100);
    world.until("before", async || asked(&urgent).await == victims(&[&holder], 0)).await;
    assert_eq!(asked(&with(10)).await, json!({}), "the holder is as important");
    // A budget that allows nothing is counted.
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
                        "spec": {"selector": {"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]}}});
    world.send("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await;
    world.until("it is counted", async || asked(&urgent).await == victims(&[&holder], 1)).await;
    // The holder leaves, and its card is free: kube-scheduler's victim helps as well as nobody.
    world.delete("holder").await;
    world.card("n", 1, json!({}), free()).await;
    world.until("during", async || asked(&urgent).await == victims(&[&useless], 0)).await;
    // The urgent pod has the card: nobody who may be evicted has one.
    world.bind("urgent", &urgent, "n").await;
    world.card("n", 1, json!({}), held(&uid("urgent").await)).await;
    world.until("after", async || asked(&with(100)).await == json!({})).await;
}

/// A world with nodes of 64 cores, `gpu` with a free card, and a pod elsewhere that asks for 12 cores with a card.
async fn world_with_cores(rule: &str) -> World {
    let world = World::start(&[("GPU_PLACEMENT", "annotated"), ("GPU_NODE_CORES", rule)]).await;
    for name in ["gpu", "plain"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                          "status": {"allocatable": {"cpu": "64"}}});
        world.send("POST", "/api/v1/nodes", &node).await;
    }
    world.card("gpu", 0, json!({}), free()).await;
    let mut training = pod(1, &[("model", "A100")]);
    training["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("12");
    world.bind("training", &training, "elsewhere").await;
    world
}

#[tokio::test]
async fn pods_without_gpus_leave_the_cores_that_free_gpus_need() {
    let asks = |cpu| super::world::pod("standard", cpu);
    let both = ["gpu", "plain"];
    let world = world_with_cores("filter").await;
    world.passes_at_last(&asks("53"), &both, &["plain"]).await;
    let answer = world.filtered(&asks("53"), &both).await;
    let why = "joulie: the pod would take cores that the free GPUs of the node need";
    assert_eq!(answer["failedAndUnresolvableNodes"], json!({"gpu": why}));
    assert_eq!(world.filtered(&asks("52"), &both).await["nodenames"], json!(both));
    let mut with_card = pod(1, &[("model", "A100")]);
    with_card["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("60");
    assert_eq!(world.filtered(&with_card, &["gpu"]).await["nodenames"], json!(["gpu"]));
    // Who is on the node takes of what is spare: 64 − 12 − 4.
    world.bind("batch", &asks("4"), "gpu").await;
    world.passes_at_last(&asks("49"), &both, &["plain"]).await;
    assert_eq!(world.filtered(&asks("48"), &both).await["nodenames"], json!(both));
    // A card that is in use needs none.
    world.card("gpu", 0, json!({}), held("somebody")).await;
    world.passes_at_last(&asks("49"), &both, &both).await;

    let world = world_with_cores("score").await;
    let lower = async || world.would_score(&asks("53"), "gpu").await == 25;
    world.until("the node scores lower", lower).await;
    assert_eq!(world.would_score(&asks("52"), "gpu").await, 50);
    assert_eq!(world.would_score(&asks("53"), "plain").await, 50);
    assert_eq!(world.filtered(&asks("53"), &both).await["nodenames"], json!(both));
}

#[tokio::test]
async fn binding_needs_gpu_objects_and_both_are_off_by_default() {
    let world = World::start(&[]).await;
    for path in ["/bind", "/preempt"] {
        assert_eq!(call(world.started.work, "POST", path, b"{}").await.0, 404);
    }
    let wanted = pod(1, &[("model", "A100")]);
    assert_eq!(world.filtered(&wanted, &["anywhere"]).await["nodenames"], json!(["anywhere"]));
    // Where another one binds, preemptions are answered here.
    let world = World::start(&[("GPU_PLACEMENT", "annotated"), ("GPU_BIND", "apart")]).await;
    assert_eq!(call(world.started.work, "POST", "/bind", b"{}").await.0, 404);
    assert_eq!(call(world.started.work, "POST", "/preempt", b"{}").await.0, 200);
}

#[tokio::test]
async fn a_node_of_which_only_a_gpu_is_known_is_there_once_answers_know_of_the_gpu() {
    let world = World::start(&ON).await;
    world.card("first", 0, json!({}), free()).await;
    world.passes_at_last(&pod(1, &[("model", "a100")]), &["first"], &["first"]).await;
    for number in 0..5 {
        let node = format!("later-{number}");
        let gpu = json!({"apiVersion": "gpu.mle.com/v1alpha1", "kind": "GPU", "metadata": {"name": node},
                         "spec": {"nodeName": node, "uuid": format!("GPU-{node}"), "model": A100, "vendor": "nvidia"}});
        let gpu = world.send("POST", "/apis/gpu.mle.com/v1alpha1/gpus", &gpu).await;
        let version: u64 = gpu["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let is_seen = async || {
            let (_, text) = world.get("/debug/scoring").await;
            let page: Value = serde_json::from_str(&text).unwrap();
            let is_seen = page["seen"]["gpus"].as_u64() >= Some(version);
            let mut nodes = page["nodes"].as_array().unwrap().iter();
            assert!(!is_seen || nodes.any(|one| one["nodeName"] == node), "{version}: {page}");
            is_seen
        };
        world.until("the GPU is seen", is_seen).await;
    }
}
