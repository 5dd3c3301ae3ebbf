//! A failure of one node does not affect the other nodes.

use super::rig::{Cluster, JOULIE};
use embedded_api::{InjectedResponse, Matching, Verb};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_writes_are_refused_holds_up_no_other() {
    // Fix list operator B10, B11: every other node is planned, and the refused one is tried again.
    let cluster = Arc::new(Cluster::new().await);
    // Node `w.1` would get an object with the name of another node's object; so far nothing is refused. A finalizer on
    // a twin of another node that is being deleted makes every write to it fail permanently.
    for at in 0..20 {
        cluster.node(&format!("n{at:02}")).await;
    }
    let faults = cluster.api.faults();
    faults.fail(
        Matching::any().resource("nodepowerprofiles").verb(Verb::Patch),
        InjectedResponse::InternalError,
        5,
    );
    faults.fail(Matching::any().resource("nodetwins").verb(Verb::Patch), InjectedResponse::Conflict, 5);
    faults.fail(
        Matching::any().resource("nodes").verb(Verb::Patch),
        InjectedResponse::TooManyRequests { retry_after: 1 },
        5,
    );
    let operator = cluster.operator(&[("WRITERS", "4")]).await;
    cluster
        .until("all nodes are planned", async || {
            let mut all = true;
            for at in 0..20 {
                all &= cluster.label(&format!("n{at:02}")).await.is_some();
            }
            all && cluster.list(&format!("{JOULIE}/nodetwins")).await.len() == 20
        })
        .await;
    assert_eq!(faults.left(), 0);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_nobody_can_read_are_left_out_and_everything_else_goes_on() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    let odd = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeHardware", "metadata": {"name": "a"}, "spec": {"nodeName": "a"}});
    cluster.create(&format!("{JOULIE}/nodehardwares"), &odd).await;
    let status = json!({"status": {"cpu": {"sockets": 0, "capRange": {"maxWattsPerSocket": 1e30}}, "power": {"cpuWatts": -1}}});
    cluster.patch(&format!("{JOULIE}/nodehardwares/a/status"), &status).await;
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0"), ("FAMILY_FLOOR", "off")]).await;
    let silent = async || {
        let Some(twin) = cluster.twin("a").await else { return false };
        let status = &twin["status"];
        // Fix list operator B7, B26: an impossible draw is no draw. No pod runs here, so two packages of 400 W are
        // assumed to draw a fifth, 160 W of the 480 W that their caps allow: 66.67 % are left.
        status["powerMeasurement"]["source"] == "agent-no-data"
            && status["powerMeasurement"]["measuredNodePowerW"].is_null()
            && status["predictedPowerHeadroomScore"].as_f64().is_some_and(|left| (66.0..67.0).contains(&left))
            && status["conditions"][0]["status"] == "False"
    };
    cluster.until("the meter is said to be silent", silent).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_pods_cannot_be_listed_no_node_is_taken_for_empty() {
    // Fix list operator B13: a list that fails is not an empty list.
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.labelled("b", json!({"joulie.io/power-profile": "performance"})).await;
    cluster.pod("busy", Some("b"), "performance").await;
    let faults = cluster.api.faults();
    faults.fail(
        Matching::any().resource("pods").verb(Verb::List),
        InjectedResponse::InternalError,
        1_000_000,
    );
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0.5")]).await;
    cluster.until("a is planned", async || cluster.label("a").await.is_some()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(cluster.label("b").await.as_deref(), Some("performance"), "nobody knows what runs there");
    faults.heal();
    cluster
        .until("b drains once they are known", async || {
            cluster.twin("b").await.is_some_and(|twin| twin["status"]["schedulableClass"] == "draining")
        })
        .await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_meter_falls_silent_is_not_raised_and_one_that_was_not_heard_yet_is_said_to_be() {
    let cluster = Arc::new(Cluster::new().await);
    for name in ["a", "b"] {
        cluster.node(name).await;
        cluster.hardware(name, 300.0).await;
    }
    cluster.labelled("c", json!({"joulie.io/reserved": "true"})).await;
    let agents = cluster.agents();
    let options = [
        ("POLICY_TYPE", "queue_aware_v1"),
        ("QUEUE_HP_BASE_FRAC", "0"),
        ("QUEUE_HP_MIN", "0"),
        ("QUEUE_PERF_PER_HP_NODE", "1"),
        ("FAMILY_FLOOR", "off"),
    ];
    let operator = cluster.operator(&options).await;
    let has = async |node: &str, label: &str| cluster.label(node).await.as_deref() == Some(label);
    cluster.until("both are eco", async || has("a", "eco").await && has("b", "eco").await).await;
    let path = format!("{JOULIE}/nodehardwares/b/status");
    cluster.patch(&path, &json!({"status": {"power": {"cpuWatts": null}}})).await;
    cluster.quiet(Duration::from_millis(300)).await;
    cluster.pod("one", None, "performance").await;
    cluster.pod("two", None, "performance").await;
    cluster.until("the node that is seen is raised", async || has("a", "performance").await).await;
    cluster.quiet(Duration::from_millis(500)).await;
    assert!(has("b", "eco").await);
    assert_eq!(cluster.profile("b").await.unwrap()["spec"]["cpu"], json!({"packagePowerCapPctOfMax": 60}));
    cluster.patch(&path, &json!({"status": {"power": {"cpuWatts": 310}}})).await;
    cluster.until("b is raised once it is seen", async || has("b", "performance").await).await;

    // A node whose agent has not started yet: nothing failed, and nothing is known.
    cluster.patch("/api/v1/nodes/c", &json!({"metadata": {"labels": {"joulie.io/reserved": null}}})).await;
    let awaited = async || {
        let Some(twin) = cluster.twin("c").await else { return false };
        let condition = &twin["status"]["conditions"][0];
        condition["status"] == "Unknown" && condition["reason"] == "NotHeardYet"
    };
    cluster.until("it is said that nothing was heard of it yet", awaited).await;
    operator.stop().await;
    agents.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_written_to_is_left_alone_until_the_watches_tell_of_it() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.hardware("a", 300.0).await;
    let agents = cluster.agents();
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0"), ("FAMILY_FLOOR", "off")]).await;
    cluster.until("a is an eco node", async || cluster.label("a").await.as_deref() == Some("eco")).await;
    cluster.quiet(Duration::from_millis(500)).await;
    for kind in ["nodes", "nodetwins", "nodepowerprofiles"] {
        cluster.api.faults().stall_watches(Matching::any().resource(kind));
    }
    cluster.pod("busy", Some("a"), "performance").await;
    // The status comes before the spec, in one job.
    let drains = async || {
        cluster.twin("a").await.is_some_and(|twin| {
            twin["status"]["schedulableClass"] == "draining" && twin["spec"]["scheduling"]["draining"] == true
        })
    };
    cluster.until("a drains", drains).await;
    let version = async || cluster.twin("a").await.unwrap()["metadata"]["resourceVersion"].clone();
    let written = version().await;
    // Each pod causes a pass, in which the node looks as it did before the write. A job waits for the watches for at
    // most 5 s.
    let (began, mut pod) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(2) {
        pod += 1;
        cluster.pod(&format!("p{pod}"), Some("a"), "standard").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(version().await, written, "after pod {pod}");
    }
    cluster.api.faults().heal();
    operator.stop().await;
    agents.abort();
}
