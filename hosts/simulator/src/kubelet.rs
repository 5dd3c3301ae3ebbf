//! In the place of the kubelets: pods that are bound to simulated nodes begin, work, and end.
//!
//! Every pass looks at all pods as they are now, so that nothing depends on having seen a change: what is running here
//! and what the objects say are brought together whatever was missed. A write that was made is not made again until
//! its echo has had time to come back; one that failed is made again soon.
//!
//! **Restarts.** The objects are all the memory there is. A pod that runs is taken up where its status says that it was
//! (condition `sim.joulie.io/Progress`, written now and then and at a graceful end), one that is over is never touched
//! again, and one that waits begins. Work that was done since the last note is done again.

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

/// How long the echo of a write may take.
const ECHO: Duration = Duration::from_secs(10);
/// How soon a write that failed is made again.
const AGAIN: Duration = Duration::from_millis(500);
/// How many writes are under way at once.
const WRITES_MAX: usize = 32;
/// Changes that come this close together are looked at in one pass.
const GATHER: Duration = Duration::from_millis(5);
/// A pass is made at least this often, for what failed.
const IDLE: Duration = Duration::from_millis(500);

/// The kubelets.
pub(crate) struct Kubelet {
    client: Client,
    world: Arc<SimulatedWorld>,
    rows: Rows<BoundPod>,
    metrics: SimMetrics,
    /// How often progress is written down; never where there is none.
    checkpoint: Option<Duration>,
    /// What was written last about each pod, and when it may be written again.
    sent: BTreeMap<PodId, (u8, Mono)>,
    /// When the progress of each pod was last written down.
    noted: BTreeMap<PodId, Mono>,
    /// The nodes whose machines held pods after the last pass.
    busy: BTreeSet<String>,
    writes: JoinSet<Written>,
}

/// How a write ended.
struct Written {
    id: PodId,
    next: Next,
    outcome: Result<(), kube::Error>,
}

/// Something to be written.
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

    /// Follows the pods until asked to stop, then notes what is done. `finished` is told when a machine has finished
    /// a pod.
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

    /// Starts as many writes as there is room for; the rest comes up again in the next pass.
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
        // A write that panicked is made again when its echo does not come.
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
            // Gone, or another pod of that name by now: its event tells what to do.
            Err(kube::Error::Api(refused)) if refused.code == 404 || refused.code == 409 => {}
            Err(error) => {
                self.metrics.write_failed();
                tracing::debug!(pod = %id, "a write about a pod failed, again in half a second: {error}");
                self.sent.insert(id, (next.step(), now.plus(AGAIN)));
            }
        }
    }

    /// Notes how far every pod is, so that the next start goes on from there.
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
                tracing::warn!(pod = %id, "what this pod has done could not be noted; it is done again: {error}");
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
