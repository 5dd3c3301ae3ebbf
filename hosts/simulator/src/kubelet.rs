//! Replaces the kubelets: starts, runs and ends the pods that are bound to simulated nodes.
//!
//! Every pass reads all pods as they are now and compares them with the machines. So the result does not depend on
//! having seen every change. A write is not repeated until its watch event has had time to arrive; a failed write is
//! repeated soon.
//!
//! **Restarts.** All state is in the objects. A running pod continues at the progress in its status (condition
//! `sim.joulie.io/Progress`, written at intervals and at a graceful stop), a finished pod is not touched again, and a
//! waiting pod is started. Work that was done since the last recorded progress is repeated.

mod pass;

use crate::machine::PodId;
use crate::metrics::SimMetrics;
use crate::nodes::FIELD_MANAGER;
use crate::pods::{BoundPod, Next, failed, finished, progress, running};
use crate::world::SimulatedWorld;
use host_kit::clock::Mono;
use host_kit::reflect::{ObjectKey, Rows};
use host_kit::shutdown::Stop;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as Object;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long the watch event of a write may take.
const ECHO: Duration = Duration::from_secs(10);
/// When a failed write is repeated.
const AGAIN: Duration = Duration::from_millis(500);
/// The most concurrent writes.
const WRITES_MAX: usize = 32;
/// Changes within this time are handled in one pass.
const GATHER: Duration = Duration::from_millis(5);
/// The longest time between two passes, so that failed writes are repeated.
const IDLE: Duration = Duration::from_millis(500);

/// The kubelets of all simulated nodes.
pub(crate) struct Kubelet {
    client: Client,
    world: Arc<SimulatedWorld>,
    rows: Rows<BoundPod>,
    metrics: SimMetrics,
    /// How often progress is recorded; `None` for never.
    checkpoint: Option<Duration>,
    /// The last written step of each pod, and when it may be written again.
    sent: BTreeMap<PodId, (u8, Mono)>,
    /// When the progress of each pod was last recorded.
    noted: BTreeMap<PodId, Mono>,
    /// The nodes whose machines held pods after the last pass.
    busy: BTreeSet<String>,
    writes: JoinSet<Written>,
}

/// The result of a write.
struct Written {
    id: PodId,
    next: Next,
    outcome: Result<(), kube::Error>,
}

/// A write that is due.
struct Due {
    key: ObjectKey,
    pod: Arc<BoundPod>,
    next: Next,
}

impl Kubelet {
    pub(crate) fn new(
        client: Client,
        world: Arc<SimulatedWorld>,
        rows: Rows<BoundPod>,
        metrics: SimMetrics,
        checkpoint: Option<Duration>,
    ) -> Self {
        let (sent, noted, busy) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let writes = JoinSet::new();
        Self { client, world, rows, metrics, checkpoint, sent, noted, busy, writes }
    }

    /// Follows the pods until a stop is requested, then records their progress. `finished` is notified when a machine
    /// has finished a pod.
    pub(crate) async fn run(mut self, finished: Arc<Notify>, stop: Stop) {
        let mut rows = self.rows.clone();
        loop {
            tokio::select! {
                () = stop.requested() => break,
                alive = rows.changed() => if !alive { break },
                () = finished.notified() => {}
                Some(written) = self.writes.join_next(), if !self.writes.is_empty() => self.written(written.ok()),
                () = tokio::time::sleep(IDLE) => {}
            }
            while let Some(written) = self.writes.try_join_next() {
                self.written(written.ok());
            }
            if stop.requested_within(GATHER).await {
                break;
            }
            if self.rows.is_synced() {
                let due = self.pass();
                self.write(due);
            }
        }
        self.last_notes().await;
    }

    fn now(&self) -> Mono {
        self.world.clock().mono()
    }

    /// Starts as many writes as the limit allows. The next pass finds the others again.
    fn write(&mut self, due: Vec<Due>) {
        let now = self.now();
        let wall = self.world.clock().wall();
        for Due { key, pod, next } in due {
            if self.writes.len() >= WRITES_MAX {
                return;
            }
            self.sent.insert(pod.id.clone(), (next.step(), now.plus(ECHO)));
            let client = self.client.clone();
            self.writes.spawn(async move {
                let outcome = write(&client, &key, &pod, &next, wall).await;
                Written { id: pod.id.clone(), next, outcome }
            });
        }
    }

    fn written(&mut self, written: Option<Written>) {
        // A write that panicked is repeated when its watch event does not arrive.
        let Some(Written { id, next, outcome }) = written else { return };
        let now = self.now();
        match outcome {
            Ok(()) => {
                self.metrics.wrote(&next);
                if matches!(next, Next::Checkpoint(_)) {
                    self.noted.insert(id.clone(), now);
                    self.sent.remove(&id);
                }
            }
            // The pod was deleted or replaced by another one of that name: its watch event leads to the next step.
            Err(kube::Error::Api(refused)) if refused.code == 404 || refused.code == 409 => {}
            Err(error) => {
                self.metrics.write_failed();
                tracing::debug!(pod = %id, "a write to a pod failed; it is repeated in half a second: {error}");
                self.sent.insert(id, (next.step(), now.plus(AGAIN)));
            }
        }
    }

    /// Records the progress of every pod, so that the next start continues from there.
    async fn last_notes(mut self) {
        while self.writes.join_next().await.is_some() {}
        let wall = self.world.clock().wall();
        let mut notes = self.notes();
        while !notes.is_empty() || !self.writes.is_empty() {
            while self.writes.len() < WRITES_MAX
                && let Some(Due { key, pod, next }) = notes.pop()
            {
                let client = self.client.clone();
                self.writes.spawn(async move {
                    let outcome = write(&client, &key, &pod, &next, wall).await;
                    Written { id: pod.id.clone(), next, outcome }
                });
            }
            if let Some(Ok(Written { id, outcome: Err(error), .. })) = self.writes.join_next().await {
                tracing::warn!(pod = %id, "the progress of this pod could not be recorded; its work is repeated: {error}");
            }
        }
    }
}

/// Writes what comes next for a pod. The UID refuses it when another pod has taken the name.
async fn write(
    client: &Client,
    key: &ObjectKey,
    pod: &BoundPod,
    next: &Next,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let pods: Api<Object> = Api::namespaced(client.clone(), &key.namespace);
    let status = match next {
        Next::Wait => return Ok(()),
        Next::Remove => {
            let only_this = Preconditions { uid: Some(pod.id.0.clone()), resource_version: None };
            let at_once = DeleteParams::default().grace_period(0).preconditions(only_this);
            return pods.delete(&key.name, &at_once).await.map(drop);
        }
        Next::Run => running(pod, now),
        Next::Finish(code) => finished(pod, *code, now),
        Next::Checkpoint(part) => progress(*part, now),
        Next::Reject(reason, message) => failed(reason, message, now),
    };
    let patch = json!({"metadata": {"uid": pod.id.0}, "status": status});
    let by = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    pods.patch_status(&key.name, &by, &Patch::Strategic(patch)).await.map(drop)
}
