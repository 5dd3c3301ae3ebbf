//! A file of settings that changes while the operator runs.

use super::rig::{Cluster, Configured};
use super::rights::Rights;
use host_kit::config::ConfigOutcome;
use std::sync::Arc;

/// Two nodes, of which the first by name runs at full power under `STATIC_HP_FRAC=0.5`.
async fn halves(cluster: &Arc<Cluster>) {
    for name in ["a", "b"] {
        cluster.node(name).await;
        cluster.hardware(name, 200.0).await;
    }
}

/// The cap of a node's packages, in percent of the most.
async fn cap(cluster: &Cluster, node: &str) -> Option<f64> {
    cluster.profile(node).await?["spec"]["cpu"]["packagePowerCapPctOfMax"].as_f64()
}

async fn is_labelled(cluster: &Cluster, node: &str, word: &str) -> bool {
    cluster.label(node).await.as_deref() == Some(word)
}

async fn event(cluster: &Cluster, reason: &str, part: &str) -> bool {
    let events = cluster.list("/apis/events.k8s.io/v1/namespaces/joulie-system/events").await;
    let is_it = |event: &serde_json::Value| {
        event["reason"] == reason
            && event["regarding"]["name"] == "joulie-plan"
            && event["note"].as_str().is_some_and(|note| note.contains(part))
    };
    events.iter().any(is_it)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_policy_lifts_no_cap_without_the_guard() {
    let cluster = Arc::new(Cluster::new().await);
    halves(&cluster).await;
    let agents = cluster.agents();
    let configured = Configured::start(&cluster, "policy", "STATIC_HP_FRAC=0.5\n", Rights::shipped()).await;
    cluster
        .until("a is at full power, b is capped", async || {
            is_labelled(&cluster, "a", "performance").await
                && is_labelled(&cluster, "b", "eco").await
                && cap(&cluster, "b").await == Some(60.0)
        })
        .await;
    agents.abort();

    // Full power: the caps come first, and the label when the agent has confirmed them.
    let news = configured.write("STATIC_HP_FRAC=1\nGUARD_MODE=hard\n");
    assert_eq!(news.text, "STATIC_HP_FRAC was 0.5 and is 1; GUARD_MODE was soft and is hard");
    cluster.until("b may draw more", async || cap(&cluster, "b").await == Some(100.0)).await;
    cluster.until("it is told", async || event(&cluster, "ConfigApplied", "STATIC_HP_FRAC").await).await;
    assert!(is_labelled(&cluster, "b", "eco").await, "nobody has confirmed the caps of performance");
    cluster.confirm("b").await;
    cluster.until("b offers full power", async || is_labelled(&cluster, "b", "performance").await).await;

    // And back: a performance pod holds the caps of its node, as the guard of the same file says.
    cluster.pod("held", Some("b"), "performance").await;
    cluster.quiet(std::time::Duration::from_millis(500)).await;
    configured.write("STATIC_HP_FRAC=0.5\nGUARD_MODE=hard\n");
    cluster.until("b drains", async || is_labelled(&cluster, "b", "eco").await).await;
    cluster.quiet(std::time::Duration::from_millis(500)).await;
    assert_eq!(cap(&cluster, "b").await, Some(100.0), "the pod still runs there");
    // A soft guard caps at once; a hard one after it does not lift what is capped.
    configured.write("STATIC_HP_FRAC=0.5\nGUARD_MODE=soft\n");
    cluster.until("b is capped", async || cap(&cluster, "b").await == Some(60.0)).await;
    configured.write("STATIC_HP_FRAC=0.5\nGUARD_MODE=hard\n");
    cluster.quiet(std::time::Duration::from_millis(500)).await;
    assert_eq!(cap(&cluster, "b").await, Some(60.0));
    configured.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_a_mistake_is_refused_whole_and_the_last_good_one_stays() {
    let cluster = Arc::new(Cluster::new().await);
    halves(&cluster).await;
    let agents = cluster.agents();
    let good = "STATIC_HP_FRAC=0.5\nCPU_ECO_CAP_PCT_OF_MAX=70\n";
    let configured = Configured::start(&cluster, "mistake", good, Rights::shipped()).await;
    cluster.until("b is capped", async || cap(&cluster, "b").await == Some(70.0)).await;

    let news = configured.write("STATIC_HP_FRAC=1\nCPU_ECO_CAP_PCT_OF_MAX=101\nSTATIC_HP_FRACT=1\n");
    assert_eq!(news.outcome, ConfigOutcome::Refused);
    cluster
        .until("it is told", async || event(&cluster, "ConfigRefused", "CPU_ECO_CAP_PCT_OF_MAX").await)
        .await;
    cluster.quiet(std::time::Duration::from_millis(500)).await;
    assert_eq!((cap(&cluster, "a").await, cap(&cluster, "b").await), (Some(100.0), Some(70.0)));
    assert!(is_labelled(&cluster, "b", "eco").await);
    assert!(configured.page().contains("refused as a whole"), "{}", configured.page());

    // What is live takes effect, and what is not waits: nobody is released.
    let news = configured.write("STATIC_HP_FRAC=0.5\nCPU_ECO_CAP_PCT_OF_MAX=50\nNODE_SELECTOR=no=body\n");
    assert!(news.text.contains("NODE_SELECTOR stays joulie.io/managed=true"), "{}", news.text);
    cluster.until("b is capped lower", async || cap(&cluster, "b").await == Some(50.0)).await;
    cluster.quiet(std::time::Duration::from_millis(500)).await;
    assert_eq!((cap(&cluster, "a").await, cap(&cluster, "b").await), (Some(100.0), Some(50.0)));
    agents.abort();
    configured.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_ask_for_performance_changes_while_the_operator_runs() {
    let cluster = Arc::new(Cluster::new().await);
    halves(&cluster).await;
    cluster.pod("held", Some("b"), "performance").await;
    let agents = cluster.agents();
    let all = "STATIC_HP_FRAC=0.5\n";
    let configured = Configured::start(&cluster, "bounds", all, Rights::shipped()).await;
    let drains = async |word: &str| {
        let node = cluster.get("/api/v1/nodes/b").await.unwrap();
        node["metadata"]["labels"]["joulie.io/draining"] == word
    };
    cluster.until("b drains", async || drains("true").await).await;
    configured.write(&format!("{all}PERFORMANCE_NAMESPACES=elsewhere\n"));
    cluster.until("the pod holds it no more", async || drains("false").await).await;
    configured.write(all);
    cluster.until("b drains again", async || drains("true").await).await;
    agents.abort();
    configured.stop().await;
}
