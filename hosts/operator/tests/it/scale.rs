//! Many nodes: the first plan is applied, and then nothing is written but the Lease.

use super::rig::{Cluster, JOULIE};
use std::sync::Arc;
use std::time::Duration;

/// The bench has 5,000; the everyday test checks the same with fewer.
const NODES: usize = 500;

#[tokio::test(flavor = "multi_thread")]
async fn a_steady_cluster_causes_no_writes_but_the_lease() {
    let cluster = Arc::new(Cluster::new().await);
    for at in 0..NODES {
        cluster.node(&format!("node-{at:04}.rack.example")).await;
    }
    let operator = cluster.operator(&[]).await;
    cluster
        .until("every node has a twin with a status", async || {
            let twins = cluster.list(&format!("{JOULIE}/nodetwins")).await;
            twins.len() == NODES && twins.iter().all(|twin| twin["status"]["schedulableClass"].is_string())
        })
        .await;
    cluster.quiet(Duration::from_millis(1500)).await;
    let (before, revision) = (cluster.writes().await, cluster.api.revision());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(cluster.writes().await, before);
    // Two Leases, one renewed each second and one ten times as often: nothing else was written.
    let written = cluster.api.revision() - revision;
    assert!(written <= 45, "{written} writes in 3 s");
    operator.stop().await;
}
