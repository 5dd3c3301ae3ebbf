//! The log of sampled requests.

use super::world::{World, call, measured, pod};
use serde_json::{Value, json};

#[tokio::test]
async fn one_of_so_many_requests_is_logged_with_its_answer() {
    let folder = std::env::temp_dir().join(format!("joulie-request-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("log");
    let path = file.to_str().unwrap();
    let world = World::start(&[("REQUEST_LOG", path), ("REQUEST_LOG_EVERY", "2")]).await;
    world.twin("a", "eco", json!({"powerMeasurement": measured(200, 1000)})).await;
    let mut secret = pod("performance", "1");
    secret["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "SECRET"}]);
    let ask = json!({"Pod": secret, "NodeNames": ["a"]});
    for _ in 0..6 {
        world.post("/filter", &ask).await;
    }
    let written = async || {
        let (_, page) = call(world.started.metrics, "GET", "/metrics", b"").await;
        page.contains("joulie_scheduler_logged_requests_total{logged=\"written\"} 3\n")
    };
    world.until("three are written", written).await;
    let log = std::fs::read_to_string(&file).unwrap();
    assert!(!log.contains("SECRET"), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["verb"], &lines[0]["request"]["NodeNames"]), (&json!("filter"), &json!(["a"])));
    assert!(lines[2]["answer"]["a"].is_string(), "{}", lines[2]);
    std::fs::remove_dir_all(&folder).unwrap();
}
