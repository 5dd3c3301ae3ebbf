//! Rows of the agent's table of conformance through the whole program; the others are where the parts are.

use crate::nodes::{Node, Nodes, cluster, pool};
use crate::test_machine::{Agent, is_enforced};
use serde_json::{Value, json};

/// The bodies with an action that were posted to a node.
fn posted(node: &Node, action: &str) -> Vec<Value> {
    node.posts.iter().filter(|post| post["action"] == action).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn makers_that_only_labels_name_are_those_of_the_hardware() {
    // Agent table, rows 1, 2, 3 and 31: the label cpu-vendor wins; an NVIDIA card is named before another maker's.
    let nfd = |rest: &str| format!("feature.node.kubernetes.io/{rest}");
    let rows = [
        (
            "n1",
            &[("cpu-vendor", "AMD"), ("cpu-model.vendor_id", "GenuineIntel"), ("pci-1002.present", "true")][..],
            "AuthenticAMD",
            "amd",
        ),
        (
            "n2",
            &[
                ("cpu-model.vendor_id", "GenuineIntel"),
                ("pci-0300_10de.present", "true"),
                ("pci-0302_1002.present", "true"),
            ][..],
            "GenuineIntel",
            "nvidia",
        ),
        ("n3", &[("cpu-vendor", "intel"), ("pci-10de.present", "true")][..], "GenuineIntel", "nvidia"),
    ];
    let (nodes, cluster) = (Nodes::default(), cluster(&["n1", "n2", "n3"]).await);
    for (name, labels, ..) in rows {
        nodes.put(name, Node::new());
        let mut all = serde_json::Map::from_iter(labels.iter().map(|(key, value)| (nfd(key), json!(value))));
        all.insert("joulie.io/hw.gpu-count".to_owned(), json!("2"));
        cluster.label(name, Value::Object(all)).await;
    }
    let at = nodes.serve().await;
    let _agent = Agent::start(&pool(&cluster, at));
    for (name, _, cpu, gpu) in rows {
        let told = |it: &Value| it["status"]["cpu"]["vendor"] == cpu && it["status"]["gpu"]["vendor"] == gpu;
        let hardware = cluster.until("NodeHardware", name, told).await;
        assert_eq!(hardware["status"]["gpu"]["count"], 2, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loop_throttles_over_http_above_the_cap_and_lets_go_below_it() {
    // Agent table, rows 15, 18 and 19.
    let (nodes, cluster) = (Nodes::default(), cluster(&["node-a"]).await);
    nodes.put("node-a", Node::new());
    let at = nodes.serve().await;
    cluster.profile("node-a", "node-a", 200).await;
    let mut settings = pool(&cluster, at);
    settings.push(("TELEMETRY_CPU_CONTROL_MODE", "dvfs".to_owned()));
    let agent = Agent::start(&settings);
    // 500 W are drawn under a cap of 400 W for two packages.
    nodes.until("node-a", |node| node.throttle >= 40).await;
    nodes.change("node-a", |node| node.wants = 100.0);
    nodes.until("node-a", |node| node.throttle == 0).await;
    let throttles = posted(&nodes.get("node-a"), "dvfs.set_throttle_pct");
    let last = throttles.last().unwrap();
    assert_eq!(
        (&last["node"], &last["throttlePct"], &last["capWatts"]),
        (&json!("node-a"), &json!(0), &json!(400))
    );
    agent.until_page("/metrics", "joulie_dvfs_throttle_pct{node=\"node-a\"} 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_of_gpus_are_told_in_the_words_of_the_contract_and_blocked_where_there_are_none() {
    // Agent table, rows 33, 34 and 35.
    let (nodes, cluster) = (Nodes::default(), cluster(&["with", "without"]).await);
    for (name, gpus) in [("with", 1), ("without", 0)] {
        nodes.put(name, Node { gpus, ..Node::new() });
        let spec = json!({"nodeName": name, "profile": "eco",
            "gpu": {"powerCap": {"scope": "perGpu", "capWattsPerGpu": 220}}});
        cluster.apply("NodePowerProfile", name, spec).await;
    }
    let at = nodes.serve().await;
    let _agent = Agent::start(&pool(&cluster, at));
    let profile = cluster.until("NodePowerProfile", "with", is_enforced).await;
    let gpu = &profile["status"]["control"]["gpu"];
    assert_eq!((&gpu["backend"], &gpu["result"]), (&json!("http"), &json!("applied")));
    assert!(gpu["message"].as_str().unwrap().contains("applied gpu cap"), "{gpu}");
    let posts = posted(&nodes.get("with"), "gpu.set_power_cap_watts");
    assert_eq!(posts[0]["capWattsPerGpu"], 220, "{posts:?}");
    let blocked = |it: &Value| it["status"]["control"]["gpu"]["result"] == "blocked";
    let profile = cluster.until("NodePowerProfile", "without", blocked).await;
    let gpu = &profile["status"]["control"]["gpu"];
    assert_eq!(
        (&gpu["backend"], &gpu["message"]),
        (&json!("none"), &json!("node has no allocatable GPU resources"))
    );
    assert!(posted(&nodes.get("without"), "gpu.set_power_cap_watts").is_empty());
}
