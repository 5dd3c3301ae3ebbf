//! What the people who run the extender see.

use super::world::{World, call, measured, pod};
use serde_json::{Value, json};

impl World {
    async fn page(&self) -> String {
        let (status, page) = call(self.started.metrics, "GET", "/metrics", b"").await;
        assert_eq!(status, 200);
        page
    }
}

/// The value of a series.
fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test]
async fn the_names_that_dashboards_ask_for_are_there_with_closed_labels() {
    // Fix list extender B11, B26.
    let world = World::start(&[]).await;
    world
        .twin(
            "a",
            "performance",
            json!({"predictedCoolingStressScore": 0, "powerMeasurement": measured(455, 1000)}),
        )
        .await;
    world.scores_at_last(&pod("performance", "1"), "a", 53).await;
    for class in ["performance", "standard", "", "batch", "PERFORMANCE", "b\"\n"] {
        let body = json!({"Pod": pod(class, "1"), "NodeNames": ["a", "gone"]});
        world.post("/filter", &body).await;
        world.post("/prioritize", &body).await;
    }
    assert_eq!(call(world.started.work, "POST", "/filter", b"{").await.0, 400);
    let page = world.page().await;
    for (class, count) in [("performance", 2.0), ("standard", 2.0), ("other", 2.0)] {
        let series =
            |name: &str| value(&page, &format!("joulie_scheduler_{name}{{workload_class=\"{class}\"}}"));
        assert_eq!(series("filter_requests_total"), Some(count), "{class}");
        assert_eq!(series("filter_duration_seconds_count"), Some(count), "{class}");
        assert!(series("prioritize_requests_total").is_some_and(|found| found >= count), "{class}");
        let bucket = format!(
            "joulie_scheduler_prioritize_duration_seconds_bucket{{le=\"0.005\",workload_class=\"{class}\"}}"
        );
        assert!(page.contains(&bucket), "{page}");
    }
    // 0.7 · 54.5 + 15 = 53.15, not truncated.
    let score = value(&page, "joulie_scheduler_final_node_score{node=\"a\",workload_class=\"performance\"}");
    assert!((score.unwrap() - 53.15).abs() < 1e-6);
    assert_eq!(value(&page, "joulie_scheduler_node_headroom_score{node=\"a\"}"), Some(54.5));
    assert_eq!(value(&page, "joulie_scheduler_stale_twin_data{node=\"a\"}"), Some(0.0));
    assert_eq!(
        value(&page, "joulie_scheduler_refused_total{verb=\"filter\",reason=\"malformed\"}"),
        Some(1.0)
    );
    assert!(value(&page, "joulie_scheduler_unknown_candidates_total").unwrap() >= 6.0);
    assert!(!page.contains("batch") && !page.contains("\"gone\""));
    // The series of a node disappear with the node.
    let twins = world.kind("joulie.io", "v1alpha1", "NodeTwin", "nodetwins");
    twins.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    world.until("its series are gone", async || !world.page().await.contains("node=\"a\"")).await;
}

#[tokio::test]
async fn a_twin_that_cannot_be_read_is_counted_and_what_it_said_before_is_believed_no_more() {
    let world = World::start(&[]).await;
    let good = json!({"predictedPowerHeadroomScore": 90, "predictedCoolingStressScore": 5});
    world.twin("a", "eco", good.clone()).await;
    let score = async || world.score(&pod("standard", "1"), "a").await;
    world.until("its twin counts", async || score().await > 60).await;
    let unreadable =
        async || value(&world.page().await, "joulie_scheduler_unreadable_objects{kind=\"NodeTwin\"}");
    assert_eq!(unreadable().await, Some(0.0));
    // More watts than are possible: the whole object is ignored.
    let mut odd = good.clone();
    odd["powerMeasurement"] = json!({"source": "http", "measuredNodePowerW": 1e30, "nodeCappedPowerW": 1000});
    world.twin("a", "eco", odd).await;
    world.scores_at_last(&pod("standard", "1"), "a", 50).await;
    assert_eq!(unreadable().await, Some(1.0));
    let ask = json!({"Pod": pod("performance", "1"), "NodeNames": ["a"]});
    assert_eq!(world.post("/filter", &ask).await["nodenames"], json!([]), "an eco node is one all the same");
    world.twin("a", "eco", good).await;
    world.until("its twin counts again", async || score().await > 60).await;
    assert_eq!(unreadable().await, Some(0.0));
}

#[tokio::test]
async fn requests_read_nothing_from_the_api_server() {
    // Seed table, row 15.
    // Fix list extender B5, B6: one list request for each kind, however many requests arrive.
    let world = World::start(&[]).await;
    let lists = async || {
        let page = world.page().await;
        value(&page, "joulie_reflector_lists_total{kind=\"nodetwins\"}")
    };
    for _ in 0..50 {
        world.score(&pod("standard", "1"), "a").await;
    }
    assert_eq!(lists().await, Some(1.0));
}

#[tokio::test]
async fn every_term_is_shown_for_every_node_and_for_a_pod() {
    // Seed table, row 12.
    // Fix list extender B27.
    let world = World::start(&[]).await;
    world.twin("b", "performance", json!({"predictedPowerHeadroomScore": 40, "predictedCoolingStressScore": 20,
        "powerMeasurement": {"source": "http", "measuredNodePowerW": 300, "nodeCappedPowerW": 600, "nodeTdpW": 900,
                             "powerTrendWPerMin": 12}})).await;
    world.twin("a", "eco", json!({})).await;
    world.hardware("b", 56, 800).await;
    let ask = json!({"Pod": pod("standard", "5"), "NodeNames": ["b", "x"]});
    world
        .until("all is seen", async || {
            let page = world.post("/debug/scoring", &ask).await;
            page["nodes"][0]["scoring"]["marginalCpuW"].as_f64().is_some_and(|watts| watts > 0.0)
        })
        .await;
    let (status, page) = world.get("/debug/scoring").await;
    assert_eq!(status, 200);
    let page: Value = serde_json::from_str(&page).unwrap();
    let names: Vec<&str> =
        page["nodes"].as_array().unwrap().iter().map(|node| node["nodeName"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    let node = &page["nodes"][1];
    for (key, expected) in [
        ("schedulableClass", json!("performance")),
        ("headroom", json!(40.0)),
        ("coolingStress", json!(20.0)),
        ("measuredPowerW", json!(300.0)),
        ("cappedPowerW", json!(600.0)),
        ("nodeTdpW", json!(900.0)),
        ("powerTrendWPerMin", json!(12.0)),
        ("cpuTotalCores", json!(56)),
        ("cpuMaxWattsTotal", json!(800.0)),
        ("hasGpu", json!(false)),
        ("stale", json!(false)),
    ] {
        assert_eq!(node[key], expected, "{key}");
    }
    for (key, value) in
        [("cpuUtilCoeff", 0.7), ("gpuUtilCoeffStandard", 0.65), ("gpuUtilCoeffPerformance", 0.85)]
    {
        let found = page["coefficients"][key].as_f64().unwrap();
        assert!((found - value).abs() < 1e-9, "{key}: {found}");
    }
    let page = world.post("/debug/scoring", &ask).await;
    let terms = &page["nodes"][0]["scoring"]["terms"];
    // 600 W, 300 measured, 50 for the pod; trend 12/6; pressure 60 of which 0.3.
    for (key, expected) in [
        ("headroom", 29.1666),
        ("cooling", 12.0),
        ("trendBonus", -2.0),
        ("profileBonus", 0.0),
        ("pressureRelief", -18.0),
        ("score", 21.1666),
    ] {
        let found = terms[key].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-3, "{key}: {found}");
    }
    assert_eq!(terms["points"], json!(21));
    assert_eq!(page["nodes"][1]["scoring"]["unknown"], json!("nothing is known of this node"));
}

#[tokio::test]
async fn a_pod_of_the_cluster_is_explained_by_its_name_the_best_nodes_first() {
    let world = World::start(&[]).await;
    let inside = |path: &str| {
        let (address, path) = (world.started.metrics, path.to_owned());
        async move { call(address, "GET", &path, b"").await }
    };
    // 10 W of 600 are a better node than 500 W of 600.
    for (name, watts) in [("busy", 500), ("idle", 10)] {
        world.hardware(name, 56, 800).await;
        world
            .twin(
                name,
                "performance",
                json!({"predictedPowerHeadroomScore": 40, "predictedCoolingStressScore": 20,
            "powerMeasurement": {"source": "http", "measuredNodePowerW": watts, "nodeCappedPowerW": 600}}),
            )
            .await;
    }
    for node in 0..250 {
        world.twin(&format!("n{node}"), "performance", json!({})).await;
    }
    let mut asked = pod("performance", "5");
    asked["metadata"]["name"] = json!("web-0");
    let path = "/api/v1/namespaces/default/pods";
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(asked.to_string().into_bytes()).unwrap();
    world.client.request::<Value>(request).await.unwrap();
    let page = async || {
        let (status, page) = inside("/debug/explain?pod=default/web-0").await;
        assert_eq!(status, 200, "{page}");
        serde_json::from_str::<Value>(&page).unwrap()
    };
    world
        .until("all is seen", async || {
            let page = page().await;
            page["nodes"][0]["scoring"]["marginalCpuW"].as_f64().is_some_and(|watts| watts > 0.0)
                && page["nodesLeftOut"] == json!(52)
        })
        .await;
    let all = page().await;
    assert_eq!((&all["pod"], &all["workloadClass"]), (&json!("web-0"), &json!("performance")));
    let nodes = all["nodes"].as_array().unwrap();
    assert_eq!((nodes.len(), &nodes[0]["nodeName"]), (200, &json!("idle")));
    let answers: Vec<_> = nodes.iter().map(|node| node["answer"].as_i64().unwrap()).collect();
    assert!(answers.is_sorted_by(|one, next| one >= next), "{answers:?}");
    assert!(nodes[0]["scoring"]["terms"]["headroom"].is_number());
    // It says what kube-scheduler would be told.
    let told = world.post("/debug/scoring", &json!({"Pod": asked, "NodeNames": ["busy", "idle"]})).await;
    let (_, one) = inside("/debug/explain?pod=default%2Fweb-0&node=busy").await;
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(one["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(one["nodes"][0]["scoring"]["terms"]["score"], told["nodes"][0]["scoring"]["terms"]["score"]);
    for (path, status, why) in [
        ("/debug/explain", 400, "no pod is named"),
        ("/debug/explain?pod=web-0", 400, "the pod has no namespace"),
        ("/debug/explain?pod=default/web-1", 404, "there is no pod default/web-1"),
        ("/debug/explain?pod=other/web-0", 404, "there is no pod other/web-0"),
    ] {
        let (answered, text) = inside(path).await;
        assert!(answered == status && text.contains(why), "{path}: {answered} {text}");
    }
    assert_eq!(call(world.started.metrics, "POST", "/debug/explain?pod=default/web-0", b"").await.0, 405);
    assert_eq!(world.get("/debug/explain?pod=default/web-0").await.0, 404, "not at kube-scheduler's port");
}
