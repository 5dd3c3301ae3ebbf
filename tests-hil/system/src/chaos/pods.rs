//! The load of the machines: a pod on each that uses nearly all of it, and short-lived pods beside it, which
//! kube-scheduler places with the extender.

use super::draw::Draw;
use crate::SystemError;
use crate::field::{self, Field};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Where all pods are.
pub(super) const NAMESPACE: &str = "chaos";
/// The logical processors of a machine that are left for short-lived pods.
const LEFT: u32 = 16;
/// The interval at which they are created, and their lifetime.
const EVERY: Duration = Duration::from_millis(250);
const LIVES: Duration = Duration::from_secs(8);

/// The counts of the short-lived pods.
#[derive(Debug, Default)]
pub(super) struct Churn {
    made: AtomicU32,
    deleted: AtomicU32,
    /// How many of the deleted pods had a node.
    placed: AtomicU32,
    /// Requests that the API refused.
    refused: AtomicU32,
}

impl std::fmt::Display for Churn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |count: &AtomicU32| count.load(Ordering::Relaxed);
        write!(
            f,
            "{} pods were made and {} deleted, {} of them had a node, {} requests failed",
            of(&self.made),
            of(&self.deleted),
            of(&self.placed),
            of(&self.refused)
        )
    }
}

/// Loads every machine, and waits until these pods run.
pub(super) async fn load(client: &Client, within: Duration) -> Result<Field, SystemError> {
    let field = Field::new(client, NAMESPACE).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let listed = nodes.list(&ListParams::default()).await?;
    let count = listed.items.len();
    for node in listed {
        let name = node.metadata.name.unwrap_or_default();
        let capacity = node.status.and_then(|status| status.capacity).unwrap_or_default();
        let cpus: u32 = capacity.get("cpu").map_or(Ok(1), |cpus| cpus.0.parse())?;
        let mut asks = json!({"cpu": cpus.saturating_sub(LEFT).max(1).to_string()});
        for (resource, much) in capacity.iter().filter(|(resource, _)| resource.ends_with("/gpu")) {
            asks[resource] = json!(much.0);
        }
        let mut pod = field::pod(&format!("load-{name}"));
        pod["metadata"]["annotations"] = json!({
            "sim.joulie.io/cpu-class": "compute_bound", "sim.joulie.io/cpu-util-pct": "100",
            "sim.joulie.io/gpu-class": "compute_bound", "sim.joulie.io/gpu-util-pct": "100",
        });
        pod["spec"]["nodeName"] = json!(name);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": asks, "limits": asks});
        field.make(&pod, 1).await?;
    }
    let pods = field.pods();
    let runs = |pod: &Pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()).is_some_and(|phase| phase == "Running")
    };
    crate::until("every machine is loaded", within, async || {
        let listed = pods.list(&ListParams::default()).await;
        listed.is_ok_and(|listed| listed.items.iter().filter(|pod| runs(pod)).count() >= count)
    })
    .await?;
    Ok(field)
}

/// Creates and deletes pods without end.
pub(super) async fn churn(pods: Api<Pod>, churn: Arc<Churn>, mut draw: Draw) {
    let mut living: VecDeque<(String, Instant)> = VecDeque::new();
    let one_more = |count: &AtomicU32| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    for number in 0_u32.. {
        tokio::time::sleep(EVERY).await;
        let name = format!("comes-and-goes-{number}");
        let mut pod = field::pod(&name);
        pod["metadata"]["annotations"] = json!({"sim.joulie.io/cpu-util-pct": draw.below(101).to_string()});
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!((1 + draw.below(8)).to_string());
        let Ok(pod) = serde_json::from_value::<Pod>(pod) else { continue };
        match pods.create(&PostParams::default(), &pod).await {
            Ok(_) => {
                one_more(&churn.made);
                living.push_back((name, Instant::now()));
            }
            Err(_) => one_more(&churn.refused),
        }
        while let Some((name, _)) = living.front().filter(|(_, since)| since.elapsed() >= LIVES) {
            let found = pods.get_opt(name).await;
            let placed = found.is_ok_and(|pod| pod.and_then(|pod| pod.spec?.node_name).is_some());
            match pods.delete(name, &DeleteParams::default().grace_period(0)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(_) => {
                    // The next round tries it again.
                    one_more(&churn.refused);
                    break;
                }
            }
            one_more(&churn.deleted);
            if placed {
                one_more(&churn.placed);
            }
            living.pop_front();
        }
    }
}
