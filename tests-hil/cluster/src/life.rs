//! Nodes without machines: they are registered, send heartbeats, and their pods run and end on request.
//!
//! Everything around them is real: Kubernetes binds and evicts pods, taints silent nodes and serves watches. This
//! module only replaces the kubelets.
//!
//! - A pod that is bound to one of the nodes becomes Running at once.
//! - It becomes Succeeded or Failed when it has the annotation [`FINISH`], from its creation or later;
//!   [`Life::finish`] writes it. A pod with any other value keeps running, with a message in its status.
//! - A deleted pod ends at once, whatever its grace period, because it has no processes.
//!
//! It must never touch a pod of another node.

mod node;
mod pod;

use crate::error::ClusterError;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Taint};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

pub use pod::PodEnding;

/// The annotation that ends a running pod: `Succeeded` or `Failed`.
pub const FINISH: &str = "life.joulie.io/finish";
/// The field manager of writes to nodes, leases and pods.
const FIELD_MANAGER: &str = "cluster-life";
/// Three heartbeats within the 50 s after which the node controller marks a node as dead, or the 40 s of older
/// releases.
const HEARTBEAT: Duration = Duration::from_secs(12);
/// The delay before a failed write is repeated.
const AGAIN: Duration = Duration::from_millis(300);
/// The most nodes that are written concurrently.
const WRITES_MAX: usize = 16;

/// A node without a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeNode {
    /// The name of the node.
    pub name: String,
    /// Labels in addition to the host name's, which every node has.
    pub labels: BTreeMap<String, String>,
    /// The annotations of the node.
    pub annotations: BTreeMap<String, String>,
    /// Its capacity, all of it allocatable: `cpu` → `32`, and so on.
    pub capacity: BTreeMap<String, String>,
    /// Taints in addition to those that Kubernetes sets.
    pub taints: Vec<Taint>,
    /// The names of images on the node, which are the largest part of a real Node object.
    pub images: Vec<String>,
}

impl FakeNode {
    /// A node with 32 processors, 128 GiB and 110 pods.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let capacity = [("cpu", "32"), ("memory", "128Gi"), ("pods", "110")];
        Self {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            capacity: capacity.map(|(what, much)| (what.to_owned(), much.to_owned())).into(),
            taints: Vec::new(),
            images: Vec::new(),
        }
    }

    /// This many nodes: `PREFIX-0`, `PREFIX-1` and so on.
    #[must_use]
    pub fn many(prefix: &str, count: u32) -> Vec<Self> {
        (0..count).map(|number| Self::named(&format!("{prefix}-{number}"))).collect()
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Adds an image.
    #[must_use]
    pub fn image(mut self, name: &str) -> Self {
        self.images.push(name.to_owned());
        self
    }

    /// Sets the amount of a resource.
    #[must_use]
    pub fn has(mut self, resource: &str, much: &str) -> Self {
        self.capacity.insert(resource.to_owned(), much.to_owned());
        self
    }
}

/// Running nodes. Dropping it is like switching the machines off: the Node objects stay without heartbeats.
pub struct Life {
    client: Client,
    tasks: Vec<JoinHandle<()>>,
}

impl Life {
    /// Registers the nodes, or takes over existing ones of their names, and keeps them alive on this runtime.
    ///
    /// # Errors
    /// If a node cannot be registered.
    pub async fn start(client: Client, machines: Vec<FakeNode>) -> Result<Self, ClusterError> {
        register(&client, &machines).await?;
        let names: BTreeSet<String> = machines.iter().map(|machine| machine.name.clone()).collect();
        let beats = tokio::spawn(beat(client.clone(), machines));
        let pods = tokio::spawn(tend(client.clone(), names));
        Ok(Self { client, tasks: vec![beats, pods] })
    }

    /// Ends a pod as soon as it runs.
    ///
    /// # Errors
    /// If there is no such pod.
    pub async fn finish(&self, namespace: &str, name: &str, outcome: PodEnding) -> Result<(), ClusterError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let patch = json!({"metadata": {"annotations": {FINISH: outcome.phase()}}});
        let written = pods.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        written.map(drop).map_err(ClusterError::api("asking a pod to finish"))
    }
}

/// Registers the nodes, or takes over existing ones of their names, without heartbeats; their pods stay pending. It
/// is for thousands of nodes that only the scheduler uses; a controller manager would soon mark them as silent.
///
/// # Errors
/// If a node cannot be registered.
pub async fn register(client: &Client, machines: &[FakeNode]) -> Result<(), ClusterError> {
    let registered = futures::stream::iter(machines)
        .map(|machine| node::register(client, machine))
        .buffer_unordered(WRITES_MAX)
        .collect::<Vec<_>>()
        .await;
    registered.into_iter().collect::<Result<(), _>>().map_err(ClusterError::api("registering a node"))
}

impl Drop for Life {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The next heartbeat replaces a failed one. If none reaches the API, the node is silent, as a real one would be.
///
/// After an outage the node controller has marked the node as dead, and only the node itself can correct that. So
/// after a failed heartbeat the next one includes the status.
async fn beat(client: Client, machines: Vec<FakeNode>) {
    let mut beats = tokio::time::interval(HEARTBEAT);
    let mut missed = false;
    loop {
        beats.tick().await;
        let failed = AtomicBool::new(false);
        futures::stream::iter(&machines)
            .for_each_concurrent(WRITES_MAX, |machine| {
                let (client, failed) = (client.clone(), &failed);
                async move {
                    let beaten = match node::heartbeat(&client, &machine.name).await {
                        Ok(()) if missed => node::ready(&client, machine).await,
                        beaten => beaten,
                    };
                    failed.fetch_or(beaten.is_err(), Ordering::Relaxed);
                }
            })
            .await;
        missed = failed.into_inner();
    }
}

struct Tended {
    client: Client,
    nodes: BTreeSet<String>,
    /// A counter for the addresses of pods.
    started: AtomicU32,
}

async fn tend(client: Client, nodes: BTreeSet<String>) {
    let bound = watcher::Config::default().fields("spec.nodeName!=");
    let pods = Api::<Pod>::all(client.clone());
    let tended = Arc::new(Tended { client, nodes, started: AtomicU32::new(0) });
    Controller::new(pods, bound)
        .trigger_backoff(Steady)
        .run(step, |_, _, _| Action::requeue(AGAIN), tended)
        .for_each(|_| async {})
        .await;
}

/// Retries a failed watch soon and without end, because tests stop and start the API server.
struct Steady;

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(AGAIN)
    }
}

impl Backoff for Steady {
    fn reset(&mut self) {}
}

/// Performs the next step of one pod.
async fn step(pod: Arc<Pod>, tended: Arc<Tended>) -> Result<Action, kube::Error> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    if !node.is_some_and(|node| tended.nodes.contains(node)) {
        return Ok(Action::await_change());
    }
    let next = pod::next(&pod);
    let number = match next {
        pod::Next::Run => tended.started.fetch_add(1, Ordering::Relaxed),
        pod::Next::Wait | pod::Next::Finish(_) | pod::Next::Say(_) | pod::Next::Remove => 0,
    };
    match pod::act(&tended.client, &pod, next, number).await {
        // The pod was deleted or replaced by another one of that name: its event leads to the next step.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
        outcome => outcome?,
    }
    Ok(Action::await_change())
}
