//! Mode pool: many nodes over HTTP.

use crate::nodes::{Node, Nodes, cluster, pool, pool_by};
use crate::test_machine::{Agent, enforced, is_enforced};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_caps_go_over_http_and_come_back_when_they_are_released() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node { gpus: 4, ..Node::new() });
    let at = nodes.serve().await;
    let spec = json!({
        "nodeName": "sim-1", "profile": "eco", "cpu": {"packagePowerCapPctOfMax": 60},
        "gpu": {"powerCap": {"scope": "perGpu", "capPctOfMax": 75}},
    });
    cluster.apply("NodePowerProfile", "sim-1", spec).await;
    let agent = Agent::start(&pool(&cluster, at));
    // 60 % of 250 W, and 75 % of 400 W. Fix list agent C17: a percentage needs no tools of this host.
    nodes.until("sim-1", |node| node.cap == 150.0 && node.gpu_cap == 300.0).await;
    let profile = cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
    let control = &profile["status"]["control"];
    assert_eq!(
        (control["cpu"]["capWatts"].as_i64(), control["cpu"]["backend"].as_str()),
        (Some(150), Some("rapl"))
    );
    assert_eq!(
        (control["gpu"]["capWatts"].as_i64(), control["gpu"]["backend"].as_str()),
        (Some(300), Some("http"))
    );
    let hardware =
        cluster.until("NodeHardware", "sim-1", |it| it["status"]["power"]["cpuWatts"] == 300).await;
    assert_eq!(hardware["status"]["gpu"]["count"], 4);
    assert_eq!(hardware["status"]["gpu"]["model"], "NVIDIA_H100_NVL");
    // The whole node draws 1,100 W more than its packages, and its four GPUs draw 800 W of these.
    cluster.until("NodeHardware", "sim-1", |it| it["status"]["power"]["restWatts"] == 300).await;
    // The same desired state again posts nothing.
    let posts = nodes.get("sim-1").posts.len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(nodes.get("sim-1").posts.len(), posts, "{:?}", nodes.get("sim-1").posts);
    assert_eq!(agent.terminate().await.code(), Some(0));
    assert_eq!(nodes.get("sim-1").cap, 150.0, "the end of a process lifts no cap");
    let _next = Agent::start(&pool(&cluster, at));
    cluster.delete("NodePowerProfile", "sim-1").await;
    nodes.until("sim-1", |node| node.cap == 250.0 && node.gpu_cap == 400.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_refused_becomes_a_throttle_and_a_limit_again() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node::new());
    let at = nodes.serve().await;
    cluster.profile("sim-1", "sim-1", 200).await;
    let mut settings = pool(&cluster, at);
    settings.push(("TELEMETRY_CPU_CONTROL_MODE", "dvfs".to_owned()));
    let agent = Agent::start(&settings);
    // The node draws 500 W under a cap of 400 W for two packages; the loop throttles until 410 W or less: 40 %.
    let held = |it: &Value| it["status"]["control"]["cpu"]["backend"] == "dvfs" && is_enforced(it);
    nodes.until("sim-1", |node| node.throttle >= 40).await;
    cluster.until("NodePowerProfile", "sim-1", held).await;
    assert_eq!(agent.terminate().await.code(), Some(0));
    // Fix list agent S13 C14: the next process finds the throttle, sets the limit, and then lifts it over HTTP.
    let _next = Agent::start(&pool(&cluster, at));
    nodes.until("sim-1", |node| node.cap == 200.0 && node.throttle == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_endpoint_refuses_is_told_and_one_that_hangs_delays_nobody() {
    let names: Vec<String> = (0..30).map(|number| format!("sim-{number}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let (nodes, cluster) = (Nodes::default(), cluster(&all).await);
    for name in &names {
        nodes.put(name, Node::new());
        cluster.profile(name, name, 150).await;
    }
    nodes.change("sim-0", |node| node.refuses = Some("blocked"));
    nodes.change("sim-1", |node| node.refuses = Some("error"));
    // Fix list agent K2 K3: more nodes hang than there are request slots, each for a whole timeout.
    for name in &names[2..16] {
        nodes.change(name, |node| node.hangs = true);
    }
    let at = nodes.serve().await;
    let mut settings = pool(&cluster, at);
    settings.push(("POOL_CONCURRENCY", "8".to_owned()));
    let agent = Agent::start(&settings);
    for name in &names[16..] {
        cluster.until("NodePowerProfile", name, is_enforced).await;
    }
    for (name, result) in [("sim-0", "blocked"), ("sim-1", "error")] {
        let told = |it: &Value| it["status"]["control"]["cpu"]["result"] == result;
        let profile = cluster.until("NodePowerProfile", name, told).await;
        let text = profile["status"]["control"]["cpu"]["message"].as_str().unwrap();
        assert!(text.contains("the test says so"), "{text}");
        assert_eq!(enforced(&profile).0, "False");
    }
    for name in &names[2..16] {
        nodes.change(name, |node| node.hangs = false);
    }
    for name in &names[2..16] {
        cluster.until("NodePowerProfile", name, is_enforced).await;
    }
    let metrics = agent.page("/metrics").await;
    assert!(metrics.contains("joulie_backend_mode{node=\"sim-29\",mode=\"rapl\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_takes_its_series_along_and_one_of_another_part_is_left_alone() {
    // kwok-node-0 is in part 1 of 2, kwok-node-1 in part 0.
    let (nodes, cluster) = (Nodes::default(), cluster(&["kwok-node-0", "kwok-node-1"]).await);
    for name in ["kwok-node-0", "kwok-node-1"] {
        nodes.put(name, Node::new());
        cluster.profile(name, name, 150).await;
    }
    let at = nodes.serve().await;
    let mut settings = pool(&cluster, at);
    settings.push(("POOL_SHARDS", "2".to_owned()));
    settings.push(("POD_NAME", "joulie-agent-pool-1".to_owned()));
    let agent = Agent::start(&settings);
    cluster.until("NodePowerProfile", "kwok-node-0", is_enforced).await;
    assert!(agent.page("/metrics").await.contains("kwok-node-0"));
    cluster.label("kwok-node-0", json!({"joulie.io/managed": null})).await;
    nodes.until("kwok-node-0", |node| node.cap == 250.0).await;
    agent.until_said("the node leaves the pool").await;
    // Fix list agent C22.
    assert!(!agent.page("/metrics").await.contains("kwok-node-0"));
    assert!(nodes.get("kwok-node-1").posts.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_falls_silent_keeps_its_shape_and_its_cap_and_is_measured_again_when_it_speaks() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node { gpus: 4, ..Node::new() });
    let at = nodes.serve().await;
    let percent = |count: i32| json!({"nodeName": "sim-1", "profile": "eco", "cpu": {"packagePowerCapPctOfMax": count}});
    cluster.apply("NodePowerProfile", "sim-1", percent(60)).await;
    let _agent = Agent::start(&pool(&cluster, at));
    cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
    nodes.change("sim-1", |node| node.silent = true);
    let unmeasured = |it: &Value| enforced(it) == ("Unknown", "Unmeasured");
    cluster.until("NodePowerProfile", "sim-1", unmeasured).await;
    // 80 % of 250 W: the maximum is known from before.
    cluster.apply("NodePowerProfile", "sim-1", percent(80)).await;
    nodes.until("sim-1", |node| node.cap == 200.0).await;
    assert_eq!(nodes.get("sim-1").throttle, 0);
    let power = |it: &Value| it["status"]["power"]["cpuWatts"].as_i64();
    let hardware = cluster.until("NodeHardware", "sim-1", |it| power(it).is_none()).await;
    assert_eq!(hardware["status"]["gpu"]["count"], 4);
    assert_eq!(hardware["status"]["cpu"]["sockets"], 2);
    nodes.change("sim-1", |node| node.silent = false);
    cluster.until("NodeHardware", "sim-1", |it| power(it) == Some(400)).await;
    cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_is_capped_below_the_floor_of_the_configuration_or_of_its_model() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    // The model accepts 320 W and more, but the node's own report takes precedence: at most 250 W.
    nodes.put("sim-1", Node { gpus: 2, ..Node::new() });
    let model =
        json!({"joulie.io/hw.cpu-model": "AMD_EPYC_9654", "joulie.io/hw.gpu-model": "NVIDIA_H100_NVL"});
    cluster.label("sim-1", model).await;
    let at = nodes.serve().await;
    let spec = json!({
        "nodeName": "sim-1", "profile": "eco", "cpu": {"packagePowerCapWatts": 90},
        "gpu": {"powerCap": {"scope": "perGpu", "capWattsPerGpu": 210}},
    });
    cluster.apply("NodePowerProfile", "sim-1", spec).await;
    let mut settings = pool(&cluster, at);
    settings.push(("CPU_CAP_FLOOR_WATTS", "120".to_owned()));
    settings.push(("GPU_CAP_FLOOR_WATTS", "260".to_owned()));
    let _agent = Agent::start(&settings);
    nodes.until("sim-1", |node| node.cap == 120.0 && node.gpu_cap == 260.0).await;
    let clamped = |it: &Value| enforced(it) == ("False", "Clamped");
    let profile = cluster.until("NodePowerProfile", "sim-1", clamped).await;
    let cpu = &profile["status"]["control"]["cpu"];
    assert_eq!((cpu["requestedWatts"].as_i64(), cpu["capWatts"].as_i64()), (Some(90), Some(120)));
    assert!(nodes.get("sim-1").posts.iter().all(|post| post["capWatts"] != 90), "not even for a moment");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_with_tls_is_believed_by_its_certificate_alone() {
    let (nodes, cluster) = (Nodes::default(), cluster(&["sim-1"]).await);
    nodes.put("sim-1", Node::new());
    let (at, certificate) = nodes.serve_tls().await;
    cluster.profile("sim-1", "sim-1", 150).await;
    let folder = rig::test_machine::Folder::new();
    let file = |name: &str, text: &str| {
        let file = folder.0.join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let mut settings = pool_by(&cluster, "https", at);
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    settings.push(("TELEMETRY_HTTP_CA_FILE", file("other.pem", &other.cert.pem())));
    let agent = Agent::start(&settings);
    agent.until_said("invalid peer certificate").await;
    assert!(nodes.get("sim-1").posts.is_empty());
    assert_eq!(agent.terminate().await.code(), Some(0));
    settings.pop();
    settings.push(("TELEMETRY_HTTP_CA_FILE", file("ca.pem", &certificate)));
    let _agent = Agent::start(&settings);
    nodes.until("sim-1", |node| node.cap == 150.0).await;
    cluster.until("NodePowerProfile", "sim-1", is_enforced).await;
}
