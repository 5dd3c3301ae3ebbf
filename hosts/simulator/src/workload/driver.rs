//! Creates the pods of a workload when they are due, and deletes finished ones.

use super::{Batch, FAMILY, Generator, PART_OF};
use crate::settings::Workload;
use host_kit::clock::HostClock;
use host_kit::reflect::{ObjectKey, Reflections, Row, Rows, WatchSource, reflect};
use host_kit::shutdown::Stop;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// This many finished pods are kept for inspection.
const FINISHED_KEPT: usize = 50;
/// The most that are deleted at a time.
const TAKEN_AWAY: usize = 10;
/// When a refused creation is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// The interval at which a blocked workload checks for room.
const LOOK: Duration = Duration::from_millis(200);

/// A pod of the workload.
#[derive(Debug)]
pub(crate) struct Seen {
    created: String,
    waits: bool,
    over: bool,
    batch: Option<Batch>,
}

impl Row for Seen {
    const KIND: &'static str = "workload";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let phase = object["status"]["phase"].as_str().unwrap_or("Pending");
        let over = matches!(phase, "Succeeded" | "Failed");
        let bound = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        let created = object["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        let batch = object["metadata"]["labels"][FAMILY].as_str().and_then(Batch::read);
        Ok(Self { created, waits: !bound && !over, over, batch })
    }
}

/// Follows the pods of the workload.
pub(crate) fn watch(
    client: &Client,
    namespace: &str,
    reflections: &Reflections,
    clock: Arc<dyn HostClock>,
    stop: Stop,
) -> (Rows<Seen>, impl Future<Output = ()> + Send + 'static) {
    let source = WatchSource {
        path: format!("/api/v1/namespaces/{namespace}/pods"),
        labels: Some(format!("{}={}", PART_OF.0, PART_OF.1)),
        fields: None,
    };
    reflect(client, source, reflections, clock, stop)
}

/// Keeps the workload going until asked to stop; what it created stays.
pub(crate) async fn create(
    client: Client,
    workload: Workload,
    seed: u64,
    speed: f64,
    rows: Rows<Seen>,
    stop: Stop,
) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &workload.namespace);
    make_namespace(&client, &workload.namespace).await;
    let pending_max = usize::try_from(workload.pending_max).unwrap_or(usize::MAX);
    let mut generator = Generator::new(workload.mix, seed);
    loop {
        let job = generator.draw();
        if stop.requested_within(job.after.div_f64(speed)).await {
            return;
        }
        while !rows.is_synced() || waiting(&rows, None) >= pending_max {
            if stop.requested_within(LOOK).await {
                return;
            }
        }
        if !make(&pods, job.pod, &stop).await {
            return;
        }
        for key in finished(&rows) {
            // An error for a pod that is deleted already is fine.
            drop(pods.delete(&key.name, &DeleteParams::default()).await);
        }
    }
}

/// Keeps so many pods of this batch work waiting until asked to stop.
pub(crate) async fn keep_waiting(
    client: Client,
    workload: Workload,
    (seed, batch): (u64, Batch),
    rows: Rows<Seen>,
    stop: Stop,
) {
    let pods: Api<Pod> = Api::namespaced(client, &workload.namespace);
    let backlog = usize::try_from(workload.backlog).unwrap_or(usize::MAX);
    let mut generator = Generator::of_batch(workload.mix, seed, batch);
    loop {
        // The watch is behind what was just created: so one look passes before the next.
        let waits = waiting(&rows, Some(batch));
        let missing = if rows.is_synced() { backlog.saturating_sub(waits) } else { 0 };
        for _ in 0..missing {
            let Some(pod) = generator.draw_batch(batch) else { break };
            if !make(&pods, pod, &stop).await {
                return;
            }
        }
        if stop.requested_within(LOOK).await {
            return;
        }
    }
}

/// Creates a pod, however often it is refused. Returns whether no stop was requested.
async fn make(pods: &Api<Pod>, pod: Value, stop: &Stop) -> bool {
    let Ok(pod) = serde_json::from_value::<Pod>(pod) else { return true };
    while let Err(error) = pods.create(&PostParams::default(), &pod).await {
        tracing::warn!("a pod of the workload could not be created; the next attempt is in 2 s: {error}");
        if stop.requested_within(AGAIN).await {
            return false;
        }
    }
    true
}

/// It is fine if the namespace exists. Any other error will show at the first pod.
async fn make_namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let Ok(namespace) = serde_json::from_value(json!({"metadata": {"name": name}})) else { return };
    drop(namespaces.create(&PostParams::default(), &namespace).await);
}

/// How many pods wait, of this batch work or of all other families.
fn waiting(rows: &Rows<Seen>, batch: Option<Batch>) -> usize {
    rows.with(|rows| rows.values().filter(|held| held.row.waits && held.row.batch == batch).count())
}

/// The oldest finished pods beyond those that are kept.
fn finished(rows: &Rows<Seen>) -> Vec<ObjectKey> {
    rows.with(|rows| {
        let mut over: Vec<(&str, &ObjectKey)> = rows
            .iter()
            .filter(|(_, held)| held.row.over)
            .map(|(key, held)| (held.row.created.as_str(), key))
            .collect();
        over.sort_unstable();
        let surplus = over.len().saturating_sub(FINISHED_KEPT).min(TAKEN_AWAY);
        over.into_iter().take(surplus).map(|(_, key)| key.clone()).collect()
    })
}
