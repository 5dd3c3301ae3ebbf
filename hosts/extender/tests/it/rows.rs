//! The cases of the reference's own tests that need more than one node, and how objects are read.

use super::world::{World, measured, pod};
use serde_json::{Value, json};
use std::cell::Cell;
use tracing::span;

impl World {
    async fn predicted(&self, name: &str, class: &str, headroom: u32, cooling: u32) {
        let status = json!({"predictedPowerHeadroomScore": headroom, "predictedCoolingStressScore": cooling});
        self.twin(name, class, status).await;
    }

    async fn scoring(&self) -> Value {
        let (_, page) = self.get("/debug/scoring").await;
        serde_json::from_str(&page).unwrap()
    }
}

#[tokio::test]
async fn the_pressure_is_the_mean_of_what_performance_nodes_lack_and_weighs_on_standard_pods_there() {
    // Extender table, rows 2, 7 and 8. Seed table, row 9.
    // Fix list extender B8, B18.
    let world = World::start(&[]).await;
    assert_eq!(world.scoring().await["cluster"]["perfPressure"], json!(0.0), "none: nobody lacks anything");
    world.predicted("eco", "eco", 10, 0).await;
    world.predicted("forty", "performance", 40, 0).await;
    world.predicted("twenty", "performance", 20, 0).await;
    // 0.7 · 40 + 15, and 0.3 · 70 less for a standard pod.
    world.scores_at_last(&pod("standard", "1"), "forty", 22).await;
    assert_eq!(world.scoring().await["cluster"]["perfPressure"], json!(70.0));
    assert_eq!(world.score(&pod("performance", "1"), "forty").await, 43);

    // The only performance node determines the pressure: 14 + 15 − 24 against 14 + 0 + 10 with exhausted cooling, and
    // without pressure 70 + 4.5 against 10 more.
    for (fast, slow, pressure, scores) in
        [((20, 0), (20, 100), 80.0, (5, 24)), ((100, 70), (100, 70), 0.0, (74, 84))]
    {
        let world = World::start(&[]).await;
        world.predicted("eco", "eco", slow.0, slow.1).await;
        world.predicted("fast", "performance", fast.0, fast.1).await;
        let wanted = pod("standard", "1");
        world.scores_at_last(&wanted, "fast", scores.0).await;
        world.scores_at_last(&wanted, "eco", scores.1).await;
        assert_eq!(world.scoring().await["cluster"]["perfPressure"], json!(pressure));
    }

    // It is what the twin predicts and not what is drawn: 0.7 · 1 + 15 at 990 W of 1,000, without pressure.
    let world = World::start(&[]).await;
    let status = json!({"predictedPowerHeadroomScore": 100, "predictedCoolingStressScore": 0, "powerMeasurement": measured(990, 1000)});
    world.twin("full", "performance", status).await;
    world.scores_at_last(&pod("standard", "1"), "full", 15).await;
}

#[tokio::test]
async fn a_node_that_pods_should_leave_is_kept_for_last_by_standard_pods_until_its_mark_is_gone() {
    let world = World::start(&[]).await;
    let status = |cause: Value| {
        json!({"predictedPowerHeadroomScore": 60, "predictedCoolingStressScore": 80, "rescheduleCause": cause,
            "rescheduleRecommendations": [{"reason": "hot"}]})
    };
    world.twin("hot", "eco", status(json!("cooling_stress"))).await;
    // 0.7 · 60 + 0.15 · 20 + 10 − 25, and for a performance pod 45 of these terms.
    world.scores_at_last(&pod("standard", "1"), "hot", 30).await;
    assert_eq!(world.score(&pod("performance", "1"), "hot").await, 45);
    world.twin("hot", "eco", status(json!("psu_stress"))).await;
    world.scores_at_last(&pod("standard", "1"), "hot", 30).await;
    // A node that drains has a rule of its own, and a mere list is that of another generation.
    world.twin("hot", "eco", status(json!("draining"))).await;
    world.scores_at_last(&pod("standard", "1"), "hot", 55).await;
}

#[tokio::test]
async fn a_falling_node_beats_a_rising_one_and_a_large_one_takes_a_gpu_pod_better() {
    // Extender table, rows 11, 12, 13 and 14.
    // No other pod is expected.
    let world = World::start(&[("EXPECTED_MAX_AGE", "0s")]).await;
    for (name, trend) in [("falls", -120), ("rises", 120)] {
        let mut power = measured(500, 1000);
        power["powerTrendWPerMin"] = json!(trend);
        let status = json!({"predictedCoolingStressScore": 20, "powerMeasurement": power});
        world.twin(name, "performance", status).await;
    }
    let four = pod("performance", "4");
    // 0.7 · 50 + 12 ∓ 120/6.
    world.scores_at_last(&four, "falls", 67).await;
    world.scores_at_last(&four, "rises", 27).await;

    let gpus = |count: u32, watts: u32| {
        json!({"cpu": {"totalCores": 96, "sockets": 2, "capRange": {"maxWattsPerSocket": 360}},
        "gpu": {"present": true, "count": count, "vendor": "nvidia", "capRangePerGpu": {"maxWatts": watts}}})
    };
    for (name, drawn, cap, hardware) in
        [("large", 1000, 5000, gpus(8, 700)), ("small", 200, 1000, gpus(2, 350))]
    {
        let status = json!({"predictedCoolingStressScore": 20, "powerMeasurement": measured(drawn, cap)});
        world.twin(name, "performance", status).await;
        world.hardware_of(name, hardware).await;
    }
    let mut wanted = pod("standard", "4");
    wanted["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = json!("1");
    // 21 W for the cores. 455 W of 5,000 for the card: 0.7 · 70.48 + 12; 227.5 W of 1,000: 0.7 · 55.15 + 12. Twins
    // without a prediction cause the full pressure.
    world.scores_at_last(&wanted, "large", 61 - 30).await;
    world.scores_at_last(&wanted, "small", 50 - 30).await;
    // The demand lowers the score: 42 W of 1,000 for eight cores, 0.7 · 75.8 + 12.
    world.scores_at_last(&pod("performance", "8"), "small", 65).await;

    for (name, watts) in [("modest", 200), ("mighty", 4000)] {
        world.predicted(name, "performance", 70, 20).await;
        world.hardware(name, 96, watts).await;
        world.scores_at_last(&four, name, 61).await;
    }
}

#[tokio::test]
async fn twins_and_hardware_are_read_with_whole_numbers_and_with_points() {
    // Extender table, row 17. Seed table, row 11.
    // Fix list extender B1.
    let world = World::start(&[]).await;
    for (name, point) in [("whole", ""), ("pointed", ".0")] {
        let number = |whole: i32| -> Value { serde_json::from_str(&format!("{whole}{point}")).unwrap() };
        let power = json!({"source": "kepler", "measuredNodePowerW": number(500), "cpuCappedPowerW": number(600),
            "gpuCappedPowerW": number(2800), "nodeCappedPowerW": number(3400), "cpuTdpW": number(720),
            "gpuTdpW": number(5600), "nodeTdpW": number(6320), "powerTrendWPerMin": number(-50)});
        let status = json!({"predictedPowerHeadroomScore": number(75), "predictedCoolingStressScore": number(20),
                            "powerMeasurement": power});
        world.twin(name, "performance", status).await;
        let hardware = json!({
            "cpu": {"totalCores": 96, "sockets": 2, "capRange": {"maxWattsPerSocket": number(360)}},
            "gpu": {"present": true, "count": 8, "model": "NVIDIA-H100", "vendor": "nvidia",
                    "capRangePerGpu": {"maxWatts": number(700)}},
            "memory": {"totalBytes": 1_099_511_627_776_u64},
        });
        world.hardware_of(name, hardware).await;
    }
    world.hardware_of("silent", json!({})).await;
    let known = async || {
        let page = world.scoring().await;
        let nodes = page["nodes"].as_array().unwrap().clone();
        nodes.len() == 3 && nodes.iter().filter(|node| node["gpuCount"] == json!(8)).count() == 2
    };
    world.until("all is read", known).await;
    let page = world.scoring().await;
    let nodes: Vec<&Value> = page["nodes"].as_array().unwrap().iter().collect();
    for node in [nodes[0], nodes[2]] {
        for (key, expected) in [
            ("schedulableClass", json!("performance")),
            ("headroom", json!(75.0)),
            ("coolingStress", json!(20.0)),
            ("measuredPowerW", json!(500.0)),
            ("cappedPowerW", json!(3400.0)),
            ("nodeTdpW", json!(6320.0)),
            ("powerTrendWPerMin", json!(-50.0)),
            ("cpuTotalCores", json!(96)),
            ("cpuMaxWattsTotal", json!(720.0)),
            ("gpuCount", json!(8)),
            ("gpuMaxWattsPerGpu", json!(700.0)),
            ("hasGpu", json!(true)),
        ] {
            assert_eq!(node[key], expected, "{key} of {}", node["nodeName"]);
        }
    }
    // An object without data is not a record of zeros: only the node's name is known.
    assert_eq!((&nodes[1]["nodeName"], &nodes[1]["cpuTotalCores"]), (&json!("silent"), &Value::Null));
    assert_eq!(nodes[1]["hasGpu"], json!(false));
}

/// Counts the lines that this crate would log at any level, by thread: each test and its extender have a thread of
/// their own.
struct Lines;

thread_local! {
    static LINES: Cell<usize> = const { Cell::new(0) };
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().starts_with("extender") {
            LINES.set(LINES.get() + 1);
        }
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn a_request_that_is_answered_writes_no_line_at_any_level() {
    // Fix list extender B12: the reference wrote a line for each node and request.
    tracing::subscriber::set_global_default(Lines).unwrap();
    let world = World::start(&[]).await;
    world.predicted("a", "performance", 40, 0).await;
    world.scores_at_last(&pod("performance", "1"), "a", 43).await;
    let before = LINES.get();
    assert!(before > 0, "it is heard that the extender listens");
    let ask = json!({"Pod": pod("performance", "1"), "NodeNames": ["a", "b", "c"]});
    for _ in 0..20 {
        world.post("/filter", &ask).await;
        world.post("/prioritize", &ask).await;
    }
    assert_eq!(LINES.get(), before);
    // An invalid request is logged.
    super::world::call(world.started.work, "POST", "/filter", b"{").await;
    assert_eq!(LINES.get(), before + 1);
}
