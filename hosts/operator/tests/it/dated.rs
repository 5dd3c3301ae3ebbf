//! When a node drew what its twin says: the extender ends the assumed watts of a pod by it, so that it is never later than it was.

use super::prometheus::FakePrometheus;
use super::rig::{Cluster, JOULIE};
use host_kit::clock::{HostClock, SystemClock};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// How many seconds before a status was written it says that the node was sampled; `None` while another source says what it draws.
fn age(status: &Value, source: &str) -> Option<i64> {
    let power = &status["powerMeasurement"];
    let time = |text: &Value| text.as_str()?.parse::<Timestamp>().ok();
    let is_wanted = power["source"] == source && power["measuredNodePowerW"].is_number();
    let (written, sampled) = (time(&status["lastUpdated"])?, time(&power["sampledAt"])?);
    is_wanted.then(|| written.as_second() - sampled.as_second())
}

/// Waits until the twin says what that source measured, and how old that was: so many seconds, and what the answer took.
async fn is_aged(cluster: &Cluster, source: &str, seconds: i64) {
    let status = async || cluster.twin("a").await.map_or(Value::Null, |twin| twin["status"].clone());
    cluster.until("the twin has the measurement", async || age(&status().await, source).is_some()).await;
    let status = status().await;
    let age = age(&status, source).unwrap();
    assert!((seconds..seconds + 60).contains(&age), "{age} s, and not {seconds}: {status:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_twin_is_as_old_as_the_sample_that_prometheus_has_or_as_it_can_be_at_the_most() {
    for (source, query, taken, seconds) in [
        ("prometheus", "node_watts", 90, 90),
        ("prometheus", "node_watts{node=\"{node}\"}", 90, 90),
        // Its clock is ahead.
        ("prometheus", "node_watts", -600, 0),
        // Of an expression the server says no time of a sample: it looks back five minutes, or as far as the range says.
        ("prometheus", "sum by (node) (node_watts)", 90, 300),
        ("prometheus", "avg_over_time(node_watts{node=\"{node}\"}[20m])", 90, 1_200),
        // The mean over the window.
        ("kepler", "unused", 0, 150),
    ] {
        let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
        cluster.node("a").await;
        cluster.hardware("a", 300.0).await;
        prometheus.says("node_watts", &[(json!({"node": "a"}), "210")]);
        prometheus.says("kepler_node_package_joules_total", &[(json!({"node": "a"}), "220")]);
        prometheus.sampled("node_watts", taken);
        let url = prometheus.url();
        let operator = cluster
            .operator(&[
                ("PROMETHEUS_ADDRESS", &url),
                ("OPERATOR_NODE_POWER_SOURCE", source),
                ("OPERATOR_NODE_POWER_PROMETHEUS_QUERY", query),
                ("OPERATOR_NODE_POWER_KEPLER_WINDOW", "150s"),
                ("POWER_POLL_INTERVAL", "200ms"),
            ])
            .await;
        is_aged(&cluster, source, seconds).await;
        operator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_twin_is_as_old_as_its_agent_says_and_never_younger_than_what_was_heard() {
    for (ago, of_node, seconds) in [
        // The agent has it from a Prometheus.
        (Some(100), None, 100),
        // A meter at the plug is asked less often than the devices.
        (Some(2), Some(40), 40),
        (Some(-600), None, 0),
        // An agent that says no date: as old as a sample may be, which is seven minutes.
        (None, None, 420),
    ] {
        let cluster = Cluster::new().await;
        cluster.node("a").await;
        cluster.hardware("a", 300.0).await;
        let before = |ago: i64| (SystemClock::new().wall() - SignedDuration::from_secs(ago)).to_string();
        let power = json!({"cpuWatts": 250, "sampledAt": ago.map(before), "source": "prometheus",
            "nodeWatts": of_node.map(|_| 290), "nodeSampledAt": of_node.map(before)});
        let path = format!("{JOULIE}/nodehardwares/a/status");
        cluster.patch(&path, &json!({"status": {"power": power}})).await;
        let operator = cluster.operator(&[]).await;
        is_aged(&cluster, "agent", seconds).await;
        operator.stop().await;
    }
}
