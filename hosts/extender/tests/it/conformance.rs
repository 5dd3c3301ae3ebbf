//! The cases of the reference's own tests and of its observed behaviour, with numbers as an API server writes them.

use super::world::{World, call, pod};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

fn ago(minutes: i64) -> String {
    (Timestamp::now() - SignedDuration::from_mins(minutes)).to_string()
}

#[tokio::test]
async fn scores_of_the_reference_s_tests_hold_with_whole_numbers_and_with_points() {
    // Extender table, rows 5, 6, 10 and 15. Seed table, rows 6, 21 and 22.
    // Fix list extender B1: 100 is read like 100.0. Scores of standard pods include a bonus and a penalty, so these
    // are performance pods.
    let world = World::start(&[]).await;
    let predicted = |headroom: Value, cooling: Value| json!({"predictedPowerHeadroomScore": headroom, "predictedCoolingStressScore": cooling});
    let measured = |watts: Value, capped: Value, cooling: Value| {
        json!({"predictedPowerHeadroomScore": 50, "predictedCoolingStressScore": cooling,
               "powerMeasurement": {"source": "http", "measuredNodePowerW": watts, "nodeCappedPowerW": capped}})
    };
    // 0.7 · headroom + 0.15 · (100 − cooling), truncated.
    for (at, (status, score)) in [
        (predicted(json!(100), json!(0)), 85),
        (predicted(json!(100.0), json!(0.0)), 85),
        (predicted(json!(0), json!(100)), 0),
        (predicted(json!(80), json!(10)), 69),
        (predicted(json!(30), json!(70)), 25),
        (predicted(json!(50), json!(30)), 45),
        (measured(json!(300), json!(1000), json!(20)), 61),
        (measured(json!(300.0), json!(1000.0), json!(20.0)), 61),
        (measured(json!(700), json!(600), json!(0)), 3),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("node-{at}");
        world.twin(&name, "performance", status).await;
        world.scores_at_last(&pod("performance", "4"), &name, score).await;
    }
}

#[tokio::test]
async fn what_is_stale_or_says_no_time_scores_fifty() {
    // Extender table, rows 1, 3 and 4.
    // Fix list extender B19: and with `cautious` no more than the lowest known score.
    for (unknown, expected) in [("neutral", 50), ("cautious", 25)] {
        let world = World::start(&[("UNKNOWN_SCORE", unknown)]).await;
        let status = |headroom: u32, cooling: u32, updated: Value| json!({"predictedPowerHeadroomScore": headroom, "predictedCoolingStressScore": cooling, "lastUpdated": updated});
        world.twin("old", "performance", status(90, 5, json!(ago(10)))).await;
        world.twin("timeless", "performance", status(90, 5, json!(""))).await;
        world.twin("fresh", "performance", status(90, 5, json!(ago(1)))).await;
        world.twin("busy", "performance", status(30, 70, json!(ago(1)))).await;
        let wanted = pod("performance", "1");
        world.scores_at_last(&wanted, "busy", 25).await;
        let names = ["old", "timeless", "nobody", "fresh", "busy"];
        let scores: Vec<i64> =
            world.scores(&wanted, &names).await.into_iter().map(|(_, score)| score).collect();
        assert_eq!(scores, [expected, expected, expected, 77, 25]);
        // A stale eco node is still an eco node: age never lifts a rejection.
        world.twin("capped", "eco", status(90, 5, json!(ago(10)))).await;
        let ask = json!({"Pod": wanted, "NodeNames": ["capped"]});
        world
            .until("it is refused", async || world.post("/filter", &ask).await["nodenames"] == json!([]))
            .await;
    }
}

#[tokio::test]
async fn the_protocol_s_range_is_ten() {
    // Seed table, row 14.
    let world = World::start(&[("EXTENDER_SCORE_MAX", "10")]).await;
    world
        .twin(
            "a",
            "performance",
            json!({"predictedPowerHeadroomScore": 100, "predictedCoolingStressScore": 0}),
        )
        .await;
    world.scores_at_last(&pod("performance", "1"), "a", 8).await;
    assert_eq!(world.score(&pod("performance", "1"), "nobody").await, 5);
}

#[tokio::test]
async fn a_facility_that_wastes_more_weighs_a_pod_more() {
    // Seed table, rows 1 and 2.
    // 0.7 · (600 − 300 − 1.6 · 50)/6 + 12 = 37.67; without facility metrics 41.17.
    for (facility, score) in [("true", 37), ("false", 41)] {
        let world = World::start(&[("ENABLE_FACILITY_METRICS", facility)]).await;
        let power = json!({"source": "http", "measuredNodePowerW": 300, "nodeCappedPowerW": 600});
        let status =
            json!({"predictedCoolingStressScore": 20, "estimatedPUE": 1.6, "powerMeasurement": power});
        world.twin("a", "performance", status).await;
        // 0.7 · 5/56 · 800 W = 50 W.
        world.hardware("a", 56, 800).await;
        world.scores_at_last(&pod("performance", "5"), "a", score).await;
    }
}

#[tokio::test]
async fn a_pue_that_is_guessed_from_cooling_stress_is_none() {
    let world = World::start(&[("ENABLE_FACILITY_METRICS", "true")]).await;
    let power = json!({"source": "http", "measuredNodePowerW": 300, "nodeCappedPowerW": 600});
    // 1.05 + 0.35 · 20/100 = 1.12, which upstream's operator writes for any node, is ignored: 0.7 · (600 − 300 −
    // 50)/6 + 12 = 41.17. A higher value was measured: 0.7 · (600 − 300 − 1.3 · 50)/6 + 12 = 39.4.
    for (name, pue, score) in [("guessed", 1.12, 41), ("measured", 1.3, 39)] {
        let status =
            json!({"predictedCoolingStressScore": 20, "estimatedPUE": pue, "powerMeasurement": power});
        world.twin(name, "performance", status).await;
        world.hardware(name, 56, 800).await;
        world.scores_at_last(&pod("performance", "5"), name, score).await;
    }
}

#[tokio::test]
async fn a_node_whose_meter_is_silent_scores_by_its_prediction_and_without_a_trend() {
    let world = World::start(&[("JOULIE_NAMESPACE", "default")]).await;
    world.lease().await;
    let said = |status: &str, headroom: Value| {
        json!({"planLease": "joulie-plan", "lastUpdated": ago(60), "predictedCoolingStressScore": 20,
               "predictedPowerHeadroomScore": headroom,
               "conditions": [{"type": "TelemetryFresh", "status": status, "reason": "x", "message": "",
                               "lastTransitionTime": ago(60)}],
               "powerMeasurement": {"source": "http", "measuredNodePowerW": 100, "nodeCappedPowerW": 1000,
                                    "powerTrendWPerMin": -120}})
    };
    // Measured: 0.7 · 90 + 12 + 120/6. With a silent meter: 0.7 · 10 + 12, without the last sample and its trend, and
    // not 50.
    for (name, status, headroom, score) in [
        ("seen", "True", json!(10), 95),
        ("silent", "False", json!(10), 19),
        ("never-heard", "Unknown", json!(10), 19),
        ("unpredicted", "False", json!(null), 12),
    ] {
        world.twin(name, "eco", said(status, headroom)).await;
        world.scores_at_last(&pod("performance", "1"), name, score).await;
    }
}

/// A pod whose single container has these resources.
fn asks(class: &str, resources: Value) -> Value {
    json!({"metadata": {"annotations": {"joulie.io/workload-class": class}}, "spec": {"containers": [{"resources": resources}]}})
}

#[tokio::test]
async fn a_pod_s_marginal_watts_are_those_that_were_observed() {
    // Extender table, rows 18, 19, 24 and 25. Seed table, rows 3 and 4.
    let world = World::start(&[]).await;
    let status = json!({
        "cpu": {"totalCores": 96, "sockets": 2, "capRange": {"maxWattsPerSocket": 360}},
        "gpu": {"present": true, "count": 8, "vendor": "nvidia", "capRangePerGpu": {"maxWatts": 700}},
    });
    world.hardware_of("h", status).await;
    world.twin("h", "performance", json!({"predictedPowerHeadroomScore": 100})).await;
    let requests = |resources: Value| json!({"requests": resources});
    let init = json!({"spec": {
        "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "64"}}}],
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "4"}}}],
    }});
    for (pod, cpu, gpu) in [
        (asks("standard", json!({})), 1.3125, 0.0),
        (asks("performance", json!({})), 2.625, 0.0),
        (asks("batch", json!({})), 1.3125, 0.0),
        (asks("standard", requests(json!({"cpu": "8"}))), 42.0, 0.0),
        (asks("standard", requests(json!({"cpu": "8000m"}))), 42.0, 0.0),
        (asks("standard", requests(json!({"cpu": 8}))), 42.0, 0.0),
        (asks("standard", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "4"}})), 10.5, 0.0),
        (asks("standard", json!({"limits": {"cpu": "4"}})), 21.0, 0.0),
        (asks("standard", json!({"requests": {"cpu": "0"}, "limits": {"cpu": "4"}})), 21.0, 0.0),
        (asks("standard", requests(json!({"cpu": "200"}))), 504.0, 0.0),
        (asks("standard", requests(json!({"cpu": "8", "memory": "10Gi"}))), 46.2, 0.0),
        (asks("standard", requests(json!({"cpu": "8", "memory": "128Gi"}))), 54.6, 0.0),
        // Fix list extender B22: a pebibyte is one.
        (asks("standard", requests(json!({"cpu": "8", "memory": "1Pi"}))), 54.6, 0.0),
        (asks("standard", requests(json!({"cpu": "4", "nvidia.com/gpu": "2"}))), 21.0, 910.0),
        (asks("performance", requests(json!({"cpu": "4", "nvidia.com/gpu": "2"}))), 21.0, 1190.0),
        // Fix list extender B23: no more cards than the node has, and none of another vendor.
        (asks("standard", requests(json!({"cpu": "4", "nvidia.com/gpu": "20"}))), 21.0, 3640.0),
        (asks("standard", requests(json!({"cpu": "4", "amd.com/gpu": "1"}))), 21.0, 0.0),
        // Two instances of one slice count with a quarter of a card each.
        (asks("standard", requests(json!({"cpu": "4", "nvidia.com/mig-1g.10gb": "2"}))), 21.0, 227.5),
        (init, 21.0, 1820.0),
        (Value::Null, 0.0, 0.0),
    ] {
        let ask = json!({"Pod": pod, "NodeNames": ["h"]});
        let told = async || {
            let page = world.post("/debug/scoring", &ask).await;
            let scoring = page["nodes"][0]["scoring"].clone();
            (
                scoring["marginalCpuW"].as_f64().unwrap_or(-1.0),
                scoring["marginalGpuW"].as_f64().unwrap_or(-1.0),
            )
        };
        world.until("the node is seen", async || told().await.0 >= 0.0).await;
        let (found_cpu, found_gpu) = told().await;
        assert!(
            (found_cpu - cpu).abs() < 1e-3 && (found_gpu - gpu).abs() < 1e-3,
            "{pod}: {found_cpu} {found_gpu}"
        );
    }
}

#[tokio::test]
async fn before_anything_is_known_nobody_is_told_that_all_is_well() {
    // Fix list extender B24, B28: a cluster without Joulie's kinds is not ready, instead of passing every node.
    let api = embedded_api::EmbeddedApi::new(&embedded_api::ApiOptions::with(Vec::new())).unwrap();
    let world = World::unready(api, &[]).await;
    let body = json!({"Pod": pod("performance", "1"), "NodeNames": ["a"]}).to_string();
    for path in ["/filter", "/prioritize"] {
        let (status, text) = call(world.started.work, "POST", path, body.as_bytes()).await;
        assert_eq!(status, 503, "{text}");
    }
    let (status, text) = world.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("[-]nodetwins failed: nodetwins are not synced yet"), "{text}");
    assert_eq!(world.get("/livez").await.0, 200);
}
