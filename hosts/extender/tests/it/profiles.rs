//! What the profile of a workload says of caps lowers the scores of capped nodes, and nothing else changes.

use super::world::{World, pod};
use serde_json::{Value, json};

/// A pod of the Deployment `web`.
fn of_web() -> Value {
    let mut pod = pod("standard", "1");
    pod["metadata"]["labels"] = json!({"pod-template-hash": "5d4f"});
    pod["metadata"]["ownerReferences"] =
        json!([{"kind": "ReplicaSet", "name": "web-5d4f", "controller": true}]);
    pod
}

fn said(sensitivity: &str, confidence: f64) -> Value {
    json!({"confidence": confidence, "cpu": {"capSensitivity": sensitivity, "intensity": "high"},
           "gpu": {"capSensitivity": "none", "intensity": "none"}})
}

async fn capped(world: &World) {
    let status = |percent: u32| {
        json!({"predictedPowerHeadroomScore": 60, "predictedCoolingStressScore": 20,
               "effectiveCapState": {"cpuPct": percent, "gpuPct": 100}})
    };
    world.twin("eco", "eco", status(60)).await;
    world.twin("full", "performance", status(100)).await;
}

#[tokio::test]
async fn a_pod_that_caps_would_hurt_scores_lower_where_there_are_caps() {
    let world = World::start(&[]).await;
    capped(&world).await;
    // 0.7 · 60 + 0.15 · 80 = 54; 10 more on the eco node, and 0.3 · 40 less on the performance node.
    world.scores_at_last(&of_web(), "eco", 64).await;
    world.scores_at_last(&of_web(), "full", 42).await;
    // A cap of 60 % costs 40 · 0.5, or 40 · 0.25.
    for (sensitivity, lost) in [("high", 20), ("medium", 10), ("low", 0)] {
        world.profile("Deployment", "web", said(sensitivity, 0.7)).await;
        world.scores_at_last(&of_web(), "eco", 64 - lost).await;
        assert_eq!(world.score(&of_web(), "full").await, 42, "{sensitivity}");
        assert_eq!(world.score(&pod("standard", "1"), "eco").await, 64, "another workload");
    }
    world.profile("Deployment", "web", said("high", 0.7)).await;
    world.scores_at_last(&of_web(), "eco", 44).await;
    let page = world.post("/debug/scoring", &json!({"Pod": of_web(), "NodeNames": ["eco"]})).await;
    assert_eq!(page["capSensitivity"], json!({"cpu": "high", "gpu": "low"}));
    assert_eq!(page["nodes"][0]["scoring"]["terms"]["capSensitivity"], json!(-20.0));
}

#[tokio::test]
async fn a_profile_that_is_not_trusted_changes_nothing() {
    let world = World::start(&[("CLASSIFY_MIN_CONFIDENCE", "0.6")]).await;
    capped(&world).await;
    world.profile("Deployment", "web", said("high", 0.6)).await;
    world.scores_at_last(&of_web(), "eco", 44).await;
    let stale = json!([{"type": "TelemetryFresh", "status": "False", "reason": "PrometheusSilent", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let mut old = said("high", 0.9);
    old["conditions"] = stale;
    let mut silent = said("high", 0.9);
    silent.as_object_mut().unwrap().remove("confidence");
    for status in [said("high", 0.5), old, silent] {
        world.profile("Deployment", "web", said("high", 0.9)).await;
        world.scores_at_last(&of_web(), "eco", 44).await;
        world.profile("Deployment", "web", status.clone()).await;
        world
            .until(&format!("{status} says nothing"), async || world.score(&of_web(), "eco").await == 64)
            .await;
    }
    let (_, metrics) = super::world::call(world.started.metrics, "GET", "/metrics", b"").await;
    assert!(metrics.contains("joulie_scheduler_workload_profiles{trust=\"unsaid\"} 1"), "{metrics}");

    let world = World::start(&[("USE_WORKLOAD_PROFILES", "false")]).await;
    capped(&world).await;
    world.profile("Deployment", "web", said("high", 0.9)).await;
    world.scores_at_last(&of_web(), "eco", 64).await;
}

#[tokio::test]
async fn no_profile_counts_while_the_operator_does_not_classify() {
    // `World::classifier` writes the Lease in this namespace.
    let world = World::start(&[("JOULIE_NAMESPACE", "default")]).await;
    capped(&world).await;
    world.profile("Deployment", "web", said("high", 0.9)).await;
    world.scores_at_last(&of_web(), "eco", 44).await;
    for (word, score) in [("off", 64), ("on", 44), ("off", 64)] {
        world.classifier(word).await;
        world.scores_at_last(&of_web(), "eco", score).await;
    }
}
