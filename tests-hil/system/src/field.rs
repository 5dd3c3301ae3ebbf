//! Thousands of nodes and pods, and the placement of the pods.

use crate::SystemError;
use cluster::life::{self, FakeNode};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// The most concurrent writes.
const WRITES_MAX: usize = 16;
/// The number of images on a typical node in use; with them the object has 8 kB.
const IMAGES: u32 = 50;

/// The namespace in which pods are created.
#[derive(Clone)]
pub struct Field {
    client: Client,
    namespace: String,
}

/// The placement of a number of pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed {
    /// How many pods each node got.
    pub by_node: BTreeMap<String, u32>,
    /// The time from the first binding to the last.
    pub took: Duration,
}

impl Placed {
    /// How many pods have a node.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.by_node.values().sum()
    }

    /// Pods per second between the first binding and the last.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let after_the_first = f64::from(self.count().saturating_sub(1));
        after_the_first / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl Field {
    /// Creates a namespace, in which pods can be created even without the controller manager.
    ///
    /// # Errors
    /// If the API refuses.
    pub async fn new(client: &Client, namespace: &str) -> Result<Self, SystemError> {
        let meta = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let made = Namespace { metadata: meta(namespace), ..Namespace::default() };
        once(Api::all(client.clone()).create(&PostParams::default(), &made).await)?;
        let account = ServiceAccount { metadata: meta("default"), ..ServiceAccount::default() };
        let accounts = Api::namespaced(client.clone(), namespace);
        once(accounts.create(&PostParams::default(), &account).await)?;
        Ok(Self { client: client.clone(), namespace: namespace.to_owned() })
    }

    /// Creates this many copies of a pod, whose names are its name and a number.
    ///
    /// # Errors
    /// If the API refuses one.
    pub async fn make(&self, pod: &Value, count: u32) -> Result<(), SystemError> {
        let pods = &self.pods();
        let prefix = pod["metadata"]["name"].as_str().unwrap_or("pod");
        let one = |number: u32| async move {
            let mut made = pod.clone();
            made["metadata"]["name"] = json!(format!("{prefix}-{number}"));
            let made: Pod = serde_json::from_value(made)?;
            pods.create(&PostParams::default(), &made).await?;
            Ok::<(), SystemError>(())
        };
        futures::stream::iter(0..count).map(one).buffer_unordered(WRITES_MAX).try_collect().await
    }

    /// Waits until this many existing pods have a node. The watch is open before `begin` runs. Pods that are not
    /// bound within the time are missing in the result.
    ///
    /// # Errors
    /// If the API refuses, or `begin` fails.
    pub async fn placed(
        &self,
        count: u32,
        within: Duration,
        begin: impl AsyncFnOnce() -> Result<(), SystemError>,
    ) -> Result<Placed, SystemError> {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        // A separate task, so that `begin` does not delay it: a watch that nobody reads is closed.
        let watching = tokio::spawn(follow(self.pods(), Arc::clone(&seen), usize::try_from(count)?));
        let outcome = begin().await;
        // The number of pods in the result shows whether the time was over.
        let _ = tokio::time::timeout(within, async {
            while !watching.is_finished() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        watching.abort();
        outcome?;
        let Seen { nodes, times } = std::mem::take(&mut *seen.lock().map_err(|_| "the watch panicked")?);
        let seen = nodes;
        let took = times.map_or(Duration::ZERO, |(first, last)| last - first);
        let mut placed = Placed { took, ..Placed::default() };
        for node in seen.into_values() {
            *placed.by_node.entry(node).or_default() += 1;
        }
        Ok(placed)
    }

    /// Deletes every pod, and waits until they are gone.
    ///
    /// # Errors
    /// If the API refuses.
    pub async fn clear(&self) -> Result<(), SystemError> {
        let pods = self.pods();
        loop {
            let left = pods.list_metadata(&ListParams::default()).await?.items;
            if left.is_empty() {
                return Ok(());
            }
            let now = DeleteParams::default().grace_period(0);
            futures::stream::iter(left)
                .for_each_concurrent(WRITES_MAX, |pod| {
                    let (pods, now) = (&pods, &now);
                    // A failed deletion is repeated.
                    async move { drop(pods.delete(&pod.metadata.name.unwrap_or_default(), now).await) }
                })
                .await;
        }
    }

    /// The API for its pods.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Creates this many nodes without heartbeats, named `node-0` and so on, each with as many images as real ones have.
///
/// # Errors
/// If the API refuses one.
pub async fn nodes(client: &Client, count: u32) -> Result<(), SystemError> {
    let with_images = |machine: FakeNode| {
        let machine = machine.has("cpu", "64");
        (0..IMAGES).fold(machine.label("joulie.io/managed", "true"), |machine, number| {
            machine.image(&format!(
                "images.example/team-{number}/service-{number}@sha256:{:064x}",
                u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ))
        })
    };
    let machines: Vec<_> = FakeNode::many("node", count).into_iter().map(with_images).collect();
    Ok(life::register(client, &machines).await?)
}

/// A pod that requests one processor and no rights.
#[must_use]
pub fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": "none",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            }],
        },
    })
}

/// The bindings, and when the first and the last one was seen.
#[derive(Default)]
struct Seen {
    nodes: BTreeMap<String, String>,
    times: Option<(Instant, Instant)>,
}

/// Follows the pods until this many are bound. A watch that ends is opened again, and missed events are made up for.
async fn follow(pods: Api<Pod>, seen: Arc<Mutex<Seen>>, count: usize) -> Result<(), SystemError> {
    let note = |pod: Pod| {
        let (Some(name), Some(node)) = (pod.metadata.name, pod.spec.and_then(|spec| spec.node_name)) else {
            return false;
        };
        let Ok(mut seen) = seen.lock() else { return true };
        let now = Instant::now();
        if seen.nodes.insert(name, node).is_none() {
            seen.times = Some((seen.times.map_or(now, |(first, _)| first), now));
        }
        seen.nodes.len() >= count
    };
    loop {
        let listed = pods.list(&ListParams::default()).await?;
        let version = listed.metadata.resource_version.unwrap_or_default();
        if listed.items.into_iter().any(note) {
            return Ok(());
        }
        let mut events = Box::pin(pods.watch(&WatchParams::default().timeout(290), &version).await?);
        while let Ok(Some(event)) = events.try_next().await {
            let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
            if note(pod) {
                return Ok(());
            }
        }
    }
}

/// An existing object is fine too.
fn once<T>(created: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match created {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop),
    }
}
