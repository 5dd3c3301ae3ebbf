//! Nodes without machines: they are registered, send their heartbeats, and their pods run and end as told.
//!
//! What is real here is everything around them. Who binds a pod, who evicts it, who taints a silent node and what a
//! watcher sees is Kubernetes; this module is in the place of the kubelets alone.
//!
//! - A pod that is bound to one of the machines goes Running at once.
//! - It goes Succeeded or Failed when it carries the annotation [`FINISH`], from the beginning or later; [`Life::finish`]
//!   writes it. A value that is neither leaves the pod running, with a message in its status.
//! - A pod that is deleted ends at once, whatever its grace: its processes, which there are none of, would obey.
//!
//! It must never touch a pod of a node that is not its own.

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
/// Of writes to nodes, leases and pods.
const FIELD_MANAGER: &str = "cluster-life";
/// Three beats within the 50 s after which the node controller calls a node dead, or the 40 s of older releases.
const HEARTBEAT: Duration = Duration::from_secs(12);
/// How soon a write that failed is tried again.
const AGAIN: Duration = Duration::from_millis(300);
/// How many nodes are written at once.
const WRITES_MAX: usize = 16;

/// A node to be.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeNode {
    /// Of the node.
    pub name: String,
    /// Beside the host name's, which every node has.
    pub labels: BTreeMap<String, String>,
    /// Of the node.
    pub annotations: BTreeMap<String, String>,
    /// Capacity, all of it allocatable: `cpu` → `32`, and so on.
    pub capacity: BTreeMap<String, String>,
    /// Beside those that Kubernetes sets by itself.
    pub taints: Vec<Taint>,
    /// Names of images that lie there; most of what a real node's object consists of.
    pub images: Vec<String>,
}

impl FakeNode {
    /// 32 processors, 128 GiB, 110 pods.
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

    /// So many of them: `PREFIX-0`, `PREFIX-1` and on.
    #[must_use]
    pub fn many(prefix: &str, count: u32) -> Vec<Self> {
        (0..count).map(|number| Self::named(&format!("{prefix}-{number}"))).collect()
    }

    /// With one more label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// With an image that lies there.
    #[must_use]
    pub fn image(mut self, name: &str) -> Self {
        self.images.push(name.to_owned());
        self
    }

    /// With so much of a resource.
    #[must_use]
    pub fn has(mut self, resource: &str, much: &str) -> Self {
        self.capacity.insert(resource.to_owned(), much.to_owned());
        self
    }
}

/// Machines that live. Dropping it is what pulling all their plugs is: the nodes stay, and fall silent.
pub struct Life {
    client: Client,
    tasks: Vec<JoinHandle<()>>,
}

impl Life {
    /// Registers the machines, or takes over nodes of their names, and keeps them alive on this runtime.
    ///
    /// # Errors
    /// When a node cannot be registered.
    pub async fn start(client: Client, machines: Vec<FakeNode>) -> Result<Self, ClusterError> {
        register(&client, &machines).await?;
        let names: BTreeSet<String> = machines.iter().map(|machine| machine.name.clone()).collect();
        let beats = tokio::spawn(beat(client.clone(), machines));
        let pods = tokio::spawn(tend(client.clone(), names));
        Ok(Self { client, tasks: vec![beats, pods] })
    }

    /// Ends a pod, as soon as it runs.
    ///
    /// # Errors
    /// When there is no such pod.
    pub async fn finish(&self, namespace: &str, name: &str, outcome: PodEnding) -> Result<(), ClusterError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let patch = json!({"metadata": {"annotations": {FINISH: outcome.phase()}}});
        let written = pods.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        written.map(drop).map_err(ClusterError::api("asking a pod to finish"))
    }
}

/// Registers the machines, or takes over nodes of their names, and leaves them alone: no heartbeat, and pods that stay
/// pending. For nodes by the thousand, of which the scheduler alone is to take notice; where the controller manager
/// runs, it soon finds them silent.
///
/// # Errors
/// When a node cannot be registered.
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

/// A beat that fails is made up for by the next; if none reaches the API, the node is silent, and that is what shows.
///
/// The node controller calls a node dead that could not say otherwise, and only the node itself says so again: after a beat
/// that failed, the next one comes with the status.
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
    /// For the addresses of pods.
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

/// A watch that failed is tried again soon, for ever: tests stop the API server and start it.
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

/// What is to be done about one pod, done.
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
        // Gone, or another pod of that name by now: its event tells what to do.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
        outcome => outcome?,
    }
    Ok(Action::await_change())
}
