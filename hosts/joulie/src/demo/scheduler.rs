//! A replacement for kube-scheduler, for the demo only: it watches nodes and pods, and places each waiting pod as
//! kube-scheduler does with an extender that is configured with `nodeCacheCapable: true`.
//!
//! ```text
//!   fits by requests ──▶ POST /filter (names) ──▶ POST /prioritize (names) ──▶ own score + theirs · weight · 10 ──▶ bind
//!        │ none                │ none, or no answer          (not for a single node)
//!        └─────────────────────┴──▶ is told so (PodScheduled=False), waits, and is tried again when the cluster has
//!                                   changed, with a growing pause
//! ```
//!
//! It never binds a pod to a node that the extender has not passed: if the extender does not answer, the attempt
//! fails, as with `ignorable: false`. It has no priorities, no affinity and no preemption.

mod ask;
mod book;
mod choice;
mod queue;
mod unplaced;

pub(super) use ask::Extender;
pub(super) use book::{Fit, NodeRow, PodRow};

use super::state::Placement;
use choice::choose;
use host_kit::clock::{HostClock, Mono};
use host_kit::reflect::{ObjectKey, Rows};
use host_kit::shutdown::Stop;
use joulie_api::condition::rfc3339;
use queue::Queue;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use unplaced::Unplaced;

/// The weight in the documented configuration of kube-scheduler.
const WEIGHT: i64 = 1;
/// How often the queue is checked without a change.
const LOOK: Duration = Duration::from_millis(250);

/// The scheduler and its dependencies.
pub(super) struct Scheduler {
    pub(super) client: kube::Client,
    pub(super) extender: Extender,
    pub(super) nodes: Rows<NodeRow>,
    pub(super) pods: Rows<PodRow>,
    pub(super) clock: Arc<dyn HostClock>,
    /// The start of the demo on that clock.
    pub(super) began: Mono,
    pub(super) placed: UnboundedSender<Placement>,
}

impl Scheduler {
    /// Places pods until a stop is requested.
    pub(super) async fn run(self, stop: Stop) {
        let (mut nodes, mut pods) = (self.nodes.clone(), self.pods.clone());
        let mut queue = Queue::default();
        // Pods that were bound here and are not yet seen as bound: they take resources from the moment of the
        // binding.
        let mut assumed = BTreeMap::new();
        loop {
            if self.nodes.is_synced() && self.pods.is_synced() {
                tokio::select! {
                    () = self.round(&mut queue, &mut assumed) => {}
                    () = stop.requested() => return,
                }
            }
            let cluster_changed = tokio::select! {
                () = stop.requested() => return,
                known = nodes.changed() => known,
                known = pods.changed() => known,
                () = tokio::time::sleep(LOOK) => false,
            };
            if cluster_changed {
                queue.cluster_changed();
            }
        }
    }

    /// Tries each pod that is due, the oldest first.
    async fn round(&self, queue: &mut Queue, assumed: &mut BTreeMap<ObjectKey, Arc<PodRow>>) {
        let pods = self.pods.all();
        assumed.retain(|key, _| pods.get(key).is_some_and(|held| held.row.node.is_none()));
        let waiting: Vec<(ObjectKey, Arc<PodRow>)> = pods
            .iter()
            .filter(|(key, held)| held.row.is_ours_to_place() && !assumed.contains_key(*key))
            .map(|(key, held)| (key.clone(), held.row.clone()))
            .collect();
        for (key, pod) in queue.due(waiting, self.clock.mono()) {
            match self.place(&pod, assumed).await {
                Ok((node, why)) => {
                    let waited = queue.placed(&key, self.clock.mono());
                    let mut bound = (*pod).clone();
                    bound.node = Some(node.clone());
                    assumed.insert(key.clone(), Arc::new(bound));
                    // The receiver may have ended already.
                    let _told = self.placed.send(Placement {
                        at: self.clock.mono().since(self.began),
                        namespace: key.namespace,
                        pod: key.name,
                        performance: pod.performance,
                        node,
                        waited,
                        why,
                    });
                }
                Err(why) => {
                    tracing::debug!(pod = %key, "not placed: {why}");
                    queue.failed(&key, self.clock.mono());
                    self.tell(&pod, &why).await;
                }
            }
        }
    }

    /// Finds a node and binds the pod to it. Returns why the node was chosen, or why there is none.
    async fn place(
        &self,
        pod: &PodRow,
        assumed: &BTreeMap<ObjectKey, Arc<PodRow>>,
    ) -> Result<(String, String), Unplaced> {
        let nodes = self.nodes.all();
        let mut fit = Fit::of(nodes.iter().map(|(key, held)| (key.name.as_str(), &*held.row)));
        self.pods.with(|pods| pods.values().for_each(|held| fit.take(&held.row)));
        assumed.values().for_each(|bound| fit.take(bound));
        let own = fit.scores(pod);
        if own.is_empty() {
            return Err(Unplaced::Unschedulable("no node has room".to_owned()));
        }
        let names: Vec<&str> = own.keys().copied().collect();
        let passed = self.extender.filter(&pod.raw, &names).await.map_err(Unplaced::Failed)?;
        let names: Vec<&str> =
            names.into_iter().filter(|name| passed.names.iter().any(|one| one == name)).collect();
        // As in kube-scheduler: a single node is not scored, and a failed answer counts as no score.
        let theirs = if names.len() > 1 {
            self.extender.prioritize(&pod.raw, &names).await.unwrap_or_default()
        } else {
            BTreeMap::new()
        };
        let chosen = choose(&names, &own, &theirs, WEIGHT);
        let chosen = chosen.ok_or_else(|| Unplaced::Unschedulable(passed.refusals()))?;
        self.bind(pod, chosen.node).await.map_err(Unplaced::Failed)?;
        Ok((chosen.node.to_owned(), choice::reason(&chosen, names.len(), &passed)))
    }

    /// Writes into the pod's status why it waits. If the pod has changed meanwhile, the next attempt writes it.
    async fn tell(&self, pod: &PodRow, why: &Unplaced) {
        let Some(patch) = why.patch(&pod.raw, &rfc3339(self.clock.wall())) else { return };
        let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        let told = match request.body(patch.to_string().into_bytes()) {
            Ok(request) => {
                self.client.request_text(request).await.map(drop).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = told {
            tracing::debug!(pod = pod.name, "its condition could not be written: {error}");
        }
    }

    async fn bind(&self, pod: &PodRow, node: &str) -> Result<(), String> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let path = format!("/api/v1/namespaces/{}/pods/{}/binding", pod.namespace, pod.name);
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(binding.to_string().into_bytes()).map_err(|error| error.to_string())?;
        self.client
            .request_text(request)
            .await
            .map(|_| ())
            .map_err(|error| format!("the binding failed: {error}"))
    }
}
