//! What happens in a cluster that is left alone.

use super::rig::{Cluster, JOULIE, LEASES};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn twelve_nodes_get_labels_profiles_twins_and_a_lease_and_then_nothing_more_is_written() {
    let cluster = Arc::new(Cluster::new().await);
    for at in 0..12 {
        cluster.node(&format!("node-{at:02}")).await;
        cluster.hardware(&format!("node-{at:02}"), 300.0).await;
    }
    let agents = cluster.agents();
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0.5")]).await;
    cluster
        .until("every node has its label", async || {
            let mut labels = Vec::new();
            for at in 0..12 {
                labels.push(cluster.label(&format!("node-{at:02}")).await);
            }
            let count = |of: &str| labels.iter().filter(|label| label.as_deref() == Some(of)).count();
            count("performance") == 6 && count("eco") == 6
        })
        .await;
    cluster.quiet(Duration::from_millis(400)).await;
    let eco = cluster.profile("node-11").await.unwrap();
    assert_eq!(
        eco["spec"],
        json!({"nodeName": "node-11", "profile": "eco",
        "cpu": {"packagePowerCapPctOfMax": 60}, "policy": {"name": "static-partition-v1"}})
    );
    let twin = cluster.twin("node-11").await.unwrap();
    assert_eq!(twin["spec"]["scheduling"]["draining"], false);
    let status = &twin["status"];
    assert_eq!((&status["schedulableClass"], &status["planLease"]), (&json!("eco"), &json!("joulie-plan")));
    // 2 × 360 W at 60 % are 432 W, of which 300 W are drawn: (432 - 300) / 432 = 30.55 %.
    assert_eq!(status["powerMeasurement"]["nodeCappedPowerW"], 432);
    assert_eq!(status["powerMeasurement"]["source"], "agent");
    assert_eq!(status["predictedPowerHeadroomScore"], 30.5);
    assert_eq!(status["conditions"][0]["type"], "TelemetryFresh");
    assert_eq!(status["conditions"][0]["status"], "True");

    // Two renewals of the Lease, and nothing else.
    let lease =
        async || cluster.get(&format!("{LEASES}/joulie-plan")).await.unwrap()["spec"]["renewTime"].clone();
    let (before, first) = (cluster.writes().await, lease().await);
    cluster.until("the Lease is renewed", async || lease().await != first).await;
    let second = lease().await;
    cluster.until("the Lease is renewed again", async || lease().await != second).await;
    assert_eq!(cluster.writes().await, before);
    operator.stop().await;
    agents.abort();
}

/// For readers that do not know the Lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_twin_that_does_not_change_is_written_again_when_it_is_as_old_as_a_setting_says() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.hardware("a", 300.0).await;
    let agents = cluster.agents();
    let operator = cluster.operator(&[("TWIN_REFRESH", "10s"), ("RECONCILE_INTERVAL", "1s")]).await;
    let status = async || cluster.twin("a").await.unwrap_or_default()["status"].clone();
    let updated = |status: &Value| status["lastUpdated"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    cluster.until("the twin has a status", async || updated(&status().await).is_some()).await;
    cluster.quiet(Duration::from_millis(500)).await;
    let first = status().await;
    cluster.until("it is written again", async || status().await != first).await;
    let mut second = status().await;
    let old = updated(&second).unwrap().duration_since(updated(&first).unwrap());
    assert!(old >= SignedDuration::from_secs(10), "{old:?}");
    second["lastUpdated"] = first["lastUpdated"].clone();
    assert_eq!(second, first, "nothing but its age had changed");
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_what_the_agent_says_on_a_twin_outlives_every_status_of_the_operators() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.hardware("a", 300.0).await;
    let operator = cluster.operator(&[]).await;
    let measured = async || {
        cluster
            .twin("a")
            .await
            .and_then(|twin| twin["status"]["powerMeasurement"]["measuredNodePowerW"].as_f64())
    };
    cluster.until("the twin has a status", async || measured().await == Some(300.0)).await;
    let control = json!({"cpu": {"backend": "rapl", "result": "applied", "capWatts": 360}});
    let enforced = json!({"type": "CapEnforced", "status": "True", "reason": "Applied", "message": ""});
    let said = json!({"controlStatus": control, "conditions": [enforced]});
    cluster.apply_status("joulie-agent", "NodeTwin", &format!("{JOULIE}/nodetwins/a"), &said).await;
    for watts in [400, 200, 350] {
        let status =
            json!({"status": {"power": {"cpuWatts": watts, "sampledAt": format!("sample {watts}")}}});
        cluster.patch(&format!("{JOULIE}/nodehardwares/a/status"), &status).await;
        cluster.until("the twin follows", async || measured().await == Some(f64::from(watts))).await;
    }
    let status = cluster.twin("a").await.unwrap()["status"].clone();
    assert_eq!(status["controlStatus"], control);
    let conditions = status["conditions"].as_array().unwrap();
    let has = |about: &str| conditions.iter().any(|condition| condition["type"] == about);
    assert!(has("CapEnforced") && has("TelemetryFresh"), "{conditions:?}");
    // Table C16: class, the three scores and the time, on every twin.
    for field in
        ["schedulableClass", "predictedPowerHeadroomScore", "predictedCoolingStressScore", "lastUpdated"]
    {
        assert!(!status[field].is_null(), "{field}: {status}");
    }
    operator.stop().await;
}
