//! What filter and prioritize answer.

use super::world::{World, call, measured, pod};
use serde_json::{Value, json};

/// Two performance nodes, an eco and a draining one, one that is eco by its label only, and an unknown one. On the
/// known nodes a core draws 7 W more: 0.7 · 400 W of 40 cores.
async fn cluster(settings: &[(&str, &str)]) -> World {
    let world = World::start(settings).await;
    world.node("labelled", json!({"joulie.io/power-profile": "eco"})).await;
    for (name, class) in
        [("fast", "performance"), ("eco", "eco"), ("draining", "draining"), ("slow", "performance")]
    {
        let status = json!({"predictedPowerHeadroomScore": 100, "predictedCoolingStressScore": 0,
                            "powerMeasurement": measured(200, 1000)});
        world.twin(name, class, status).await;
        world.hardware(name, 40, 400).await;
    }
    let perf = json!({"Pod": pod("performance", "1"), "NodeNames": ["labelled", "eco", "draining"]});
    world
        .until("all are seen", async || {
            let answer = world.post("/filter", &perf).await;
            answer["nodenames"] == json!([])
        })
        .await;
    // Without hardware it would be 71. From here on this pod is expected on the node, unless the settings disable
    // expectations.
    world.scores_at_last(&pod("standard", "1"), "slow", 70).await;
    world
}

const ALL: [&str; 6] = ["fast", "eco", "nobody", "draining", "labelled", "slow"];

fn nodes() -> Vec<Value> {
    ALL.iter()
        .map(|name| json!({"metadata": {"name": name, "labels": {"a": "b"}}, "spec": {"x": [1, 2]}}))
        .collect()
}

#[tokio::test]
async fn performance_pods_are_kept_from_eco_and_draining_nodes_in_both_maps() {
    // Extender table, rows 9 and 16.
    // Fix list extender B3, B15, B16.
    let world = cluster(&[]).await;
    let answer = world.post("/filter", &json!({"Pod": pod("performance", "1"), "NodeNames": ALL})).await;
    assert_eq!(answer["nodenames"], json!(["fast", "nobody", "slow"]));
    assert_eq!(answer["failedNodes"], answer["failedAndUnresolvableNodes"]);
    let failed = answer["failedNodes"].as_object().unwrap();
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["draining", "eco", "labelled"]);
    assert!(failed.values().all(|why| why.as_str().unwrap().starts_with("joulie: ")), "{failed:?}");
    assert_eq!(answer["error"], "");
    // A misspelt class does not bypass the filter; a standard pod goes anywhere.
    for (class, left) in [("Performance ", 3), ("standard", 6), ("", 6), ("batch", 6)] {
        let answer = world.post("/filter", &json!({"Pod": pod(class, "1"), "NodeNames": ALL})).await;
        assert_eq!(answer["nodenames"].as_array().unwrap().len(), left, "{class}");
    }
}

#[tokio::test]
async fn both_forms_are_decided_alike_and_objects_come_back_byte_for_byte() {
    // Article table, row 7.
    // Fix list extender B2, B7.
    let world = cluster(&[]).await;
    for class in ["performance", "standard"] {
        let wanted = pod(class, "1");
        let names = world.post("/filter", &json!({"Pod": wanted, "NodeNames": ALL})).await;
        // Both forms in one request, as upstream's own test sends it: the objects take precedence.
        let body = json!({"Pod": wanted, "Nodes": {"items": nodes()}, "NodeNames": ["fast"]});
        let objects = world.post("/filter", &body).await;
        let left: Vec<&Value> = objects["nodes"]["items"].as_array().unwrap().iter().collect();
        let told: Vec<&Value> = left.iter().map(|node| &node["metadata"]["name"]).collect();
        assert_eq!(json!(told), names["nodenames"]);
        assert_eq!(objects["failedNodes"], names["failedNodes"]);
        for node in left {
            assert!(nodes().contains(node), "{node}");
        }
        let scored = world.post("/prioritize", &body).await;
        assert_eq!(scored, world.post("/prioritize", &json!({"pod": wanted, "nodenames": ALL})).await);
        assert_eq!(scored.as_array().unwrap().len(), ALL.len());
    }
}

#[tokio::test]
async fn the_label_may_have_another_key() {
    let world = World::start(&[("POWER_PROFILE_LABEL", "example.com/power")]).await;
    world.node("ours", json!({"example.com/power": "eco"})).await;
    world.node("theirs", json!({"joulie.io/power-profile": "eco"})).await;
    let ask = json!({"Pod": pod("performance", "1"), "NodeNames": ["ours", "theirs"]});
    let is = async || world.post("/filter", &ask).await["nodenames"] == json!(["theirs"]);
    world.until("the label is seen", is).await;
    let node = |name: &str, key: &str| json!({"metadata": {"name": name, "labels": {key: "eco"}}});
    let items = [node("new", "example.com/power"), node("other", "joulie.io/power-profile")];
    let body = json!({"Pod": pod("performance", "1"), "Nodes": {"items": items}});
    assert_eq!(world.post("/filter", &body).await["nodes"]["items"], json!([items[1]]));
}

#[tokio::test]
async fn the_label_of_an_object_in_the_request_counts_where_nobody_knows_the_node() {
    // Seed table, row 5.
    let world = cluster(&[]).await;
    let node = |name: &str| json!({"metadata": {"name": name, "labels": {"joulie.io/power-profile": "eco"}}});
    let body = json!({"Pod": pod("performance", "1"), "Nodes": {"items": [node("nobody"), node("fast")]}});
    let answer = world.post("/filter", &body).await;
    // A fresh twin that says performance overrules the label.
    assert_eq!(answer["nodes"]["items"], json!([node("fast")]));
    assert_eq!(
        answer["failedAndUnresolvableNodes"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["nobody"]
    );
}

#[tokio::test]
async fn scores_are_those_of_the_formula() {
    // No other pod is expected.
    let world = cluster(&[("EXPECTED_MAX_AGE", "0s")]).await;
    // 0.7 · (1000 − 200 − 7)/1000 · 100 + 15 = 70.5; 10 more for a standard pod on an eco node; 50 where nothing is known.
    let scores = world.scores(&pod("standard", "1"), &["fast", "eco", "nobody", "eco"]).await;
    let scores: Vec<(&str, i64)> = scores.iter().map(|(name, score)| (name.as_str(), *score)).collect();
    assert_eq!(scores, [("fast", 70), ("eco", 80), ("nobody", 50), ("eco", 80)]);
    // The example of the specification: 41.17 for 50 W more. 0.7 · 40 cores of 100 at x W = 50 W.
    world
        .twin(
            "example",
            "performance",
            json!({"predictedCoolingStressScore": 20, "powerMeasurement": measured(300, 600)}),
        )
        .await;
    world.hardware("example", 56, 800).await;
    world.scores_at_last(&pod("performance", "5"), "example", 41).await;
}

#[tokio::test]
async fn requests_that_say_nothing_are_answered_and_bad_ones_refused() {
    // Fix list extender B14, B25.
    let world = World::start(&[("EXTENDER_BODY_MAX", "65536")]).await;
    let work = world.started.work;
    let large = format!(r#"{{"NodeNames":["{}"]}}"#, "a".repeat(70_000));
    for (path, body, status, text) in [
        ("/filter", "null", 200, r#"{"failedNodes":{},"failedAndUnresolvableNodes":{},"error":""}"#),
        ("/filter", "{}", 200, r#"{"failedNodes":{},"failedAndUnresolvableNodes":{},"error":""}"#),
        (
            "/filter",
            r#"{"NodeNames":[]}"#,
            200,
            r#"{"nodenames":[],"failedNodes":{},"failedAndUnresolvableNodes":{},"error":""}"#,
        ),
        (
            "/filter",
            r#"{"Nodes":{"items":null}}"#,
            200,
            r#"{"nodes":{"metadata":{},"items":[]},"failedNodes":{},"failedAndUnresolvableNodes":{},"error":""}"#,
        ),
        ("/prioritize", "{}", 200, "[]"),
        ("/prioritize", r#"{"NodeNames":["a"]}"#, 200, r#"[{"host":"a","score":50}]"#),
        ("/filter", "", 400, "malformed body: expected an object at byte 0\n"),
        ("/filter", "{\"Pod\":", 400, "malformed body: expected an object at byte 7\n"),
        ("/prioritize", "[]", 400, "malformed body: expected an object at byte 0\n"),
        ("/prioritize", "{} {}", 400, "malformed body: expected the end at byte 3\n"),
        (
            "/filter",
            r#"{"Pod":{"spec":{"containers":[{"resources":{"requests":{"cpu":"x"}}}]}}}"#,
            400,
            "malformed body: spec.containers[0].resources.requests[cpu]: ",
        ),
        ("/filter/", "{}", 404, "there are "),
        ("/bind", "{}", 404, "there are "),
        ("/filter", &large, 413, ""),
    ] {
        let (found, said) = call(work, "POST", path, body.as_bytes()).await;
        assert_eq!(found, status, "{path} {}: {said}", body.get(..40).unwrap_or(body));
        assert!(if status == 200 { said == text } else { said.starts_with(text) }, "{path} {body}: {said}");
    }
    assert_eq!(call(work, "GET", "/filter", b"{}").await.0, 405);
    assert_eq!(call(work, "GET", "/healthz", b"").await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn an_extender_that_ends_ends_cleanly() {
    let world = World::start(&[]).await;
    assert_eq!(world.end().await, host_kit::shutdown::Ending::Clean);
}
