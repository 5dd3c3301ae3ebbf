//! What the building's sensors and other meters say reaches the twins, and what they do not say makes no node better.

use super::prometheus::{FakePrometheus, Mood};
use super::rig::{Cluster, Operator};
use serde_json::{Value, json};
use std::time::Duration;

impl Cluster {
    /// A node in a rack and a zone that draws 300 W of 720.
    async fn placed(&self, name: &str, rack: &str, zone: &str) {
        self.labelled(name, json!({"joulie.io/rack": rack, "joulie.io/cooling-zone": zone})).await;
        self.hardware(name, 300.0).await;
    }

    async fn status(&self, node: &str) -> Value {
        self.twin(node).await.map_or(Value::Null, |twin| twin["status"].clone())
    }

    async fn score(&self, node: &str, score: &str) -> Option<f64> {
        self.status(node).await[score].as_f64()
    }

    async fn has(&self, node: &str, score: &str, value: f64) -> bool {
        self.score(node, score).await.is_some_and(|found| (found - value).abs() < 0.15)
    }

    async fn sensing(&self, prometheus: &FakePrometheus) -> Operator {
        let url = prometheus.url();
        self.operator(&[
            ("PROMETHEUS_ADDRESS", &url),
            ("PROMETHEUS_TIMEOUT", "300ms"),
            ("ENABLE_FACILITY_METRICS", "true"),
            ("FACILITY_POLL_INTERVAL", "200ms"),
            ("FACILITY_HOLD", "1s"),
            ("FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE", "zone_celsius"),
            ("FACILITY_RACK_POWER_METRIC_TEMPLATE", "rack_watts{rack=\"{rack}\"}"),
            ("RACK_CAPACITY_WATTS", "r1=1000"),
        ])
        .await
    }
}

const COOLING: &str = "predictedCoolingStressScore";
const PSU: &str = "predictedPsuStressScore";

fn one(value: &str) -> Vec<(Value, &str)> {
    vec![(json!({}), value)]
}

/// A building with a hot and a mild zone.
async fn building() -> (Cluster, FakePrometheus) {
    let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
    cluster.placed("a", "r1", "hot").await;
    cluster.placed("b", "r2", "mild").await;
    prometheus.says("datacenter_ambient_temperature_celsius", &one("20"));
    prometheus.says("datacenter_total_it_power_watts", &one("1000"));
    prometheus.says("datacenter_cooling_power_watts", &one("300"));
    let zones =
        [(json!({"zone": "hot"}), "40"), (json!({"zone": "mild"}), "20"), (json!({"zone": "gone"}), "90")];
    prometheus.says("zone_celsius", &zones);
    // One query for each rack; r2 has no meter. The braces and quotes are as they stand in a URL.
    prometheus.says("rack_watts%7Brack%3D%22r1%22%7D", &[(json!({"rack": "r1"}), "500")]);
    (cluster, prometheus)
}

#[tokio::test(flavor = "multi_thread")]
async fn temperatures_and_the_power_of_racks_are_in_the_twins_and_silence_makes_none_better() {
    let (cluster, prometheus) = building().await;
    let operator = cluster.sensing(&prometheus).await;
    // 300 W of 720 W, of which 60 % can be cooled at 40 °C: 300/432. 500 W of 1000 W in the rack.
    cluster.until("a is in the hot zone", async || cluster.has("a", COOLING, 69.4).await).await;
    cluster.until("b is in the mild one", async || cluster.has("b", COOLING, 41.7).await).await;
    assert!(cluster.has("a", PSU, 50.0).await);
    // The sum of its nodes, of the 50 kW that every rack has of which nothing else is said.
    assert!(cluster.has("b", PSU, 0.6).await);
    assert_eq!(cluster.score("b", "estimatedPUE").await, Some(1.3));
    cluster.quiet(Duration::from_millis(500)).await;

    for mood in [Mood::Garbage, Mood::Away, Mood::Partial, Mood::Slow] {
        prometheus.is(mood);
        // Longer than values are fresh.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        for (node, cooling) in [("a", 69.4), ("b", 41.7)] {
            assert!(cluster.has(node, COOLING, cooling).await, "{mood:?}: {node}");
        }
        assert!(cluster.has("a", PSU, 50.0).await, "{mood:?}");
    }
    // A zone that has become cooler meanwhile is believed once it is measured again.
    prometheus.says("zone_celsius", &[(json!({"cooling_zone": "hot"}), "20")]);
    prometheus.is(Mood::Well);
    cluster.until("a is cooler", async || cluster.has("a", COOLING, 41.7).await).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_begins_while_nothing_is_measured_takes_no_node_for_cool() {
    let (cluster, prometheus) = building().await;
    prometheus.is(Mood::Away);
    let operator = cluster.sensing(&prometheus).await;
    cluster
        .until("there are twins", async || {
            cluster.status("a").await["predictedPowerHeadroomScore"].is_number()
        })
        .await;
    assert_eq!(cluster.score("a", COOLING).await, None);
    prometheus.is(Mood::Well);
    cluster.until("a is in the hot zone", async || cluster.has("a", COOLING, 69.4).await).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kepler_measures_first_and_the_agent_stands_in_and_both_are_compared() {
    let (cluster, prometheus) = (Cluster::new().await, FakePrometheus::start().await);
    cluster.placed("a", "r1", "x").await;
    let kepler = |part: &str, watts: &str| {
        prometheus
            .says(&format!("kepler_node_{part}_joules_total"), &[(json!({"instance": "a:28282"}), watts)]);
    };
    kepler("package", "210");
    kepler("dram", "30");
    let url = prometheus.url();
    let operator = cluster
        .operator(&[
            ("PROMETHEUS_ADDRESS", &url),
            ("OPERATOR_NODE_POWER_SOURCE", "kepler,agent"),
            ("POWER_POLL_INTERVAL", "200ms"),
        ])
        .await;
    let measures = async |source: &str, watts: f64| {
        let power = cluster.status("a").await["powerMeasurement"].clone();
        power["source"] == source && power["measuredNodePowerW"].as_f64() == Some(watts)
    };
    let disagree = async || {
        let status = cluster.status("a").await;
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|condition| condition["type"] == "MetersDisagree")
    };
    cluster.until("Kepler's power", async || measures("kepler", 240.0).await).await;
    assert_eq!(disagree().await, None);
    kepler("package", "70");
    cluster.until("100 W are far from 300 W", async || disagree().await.is_some()).await;
    let said = disagree().await.unwrap();
    let shown = async || operator.shows("joulie_operator_meters_disagree_nodes 1").await;
    cluster.until("the metric says so", shown).await;
    assert_eq!(said["status"], "True");
    assert_eq!(
        said["message"],
        "kepler and agent are further apart than OPERATOR_NODE_POWER_DISAGREE_PCT; kepler counts"
    );
    assert!(measures("kepler", 100.0).await, "it is not averaged");
    cluster.quiet(Duration::from_millis(500)).await;
    // A node that Kepler does not know any more has its agent.
    prometheus.says("kepler_node_package_joules_total", &[(json!({"instance": "b:28282"}), "70")]);
    cluster.until("the agent's power", async || measures("agent", 300.0).await).await;
    cluster.until("nothing disagrees", async || disagree().await.is_none()).await;
    operator.stop().await;
}
