//! Nodes and pods by the thousand, and who went where.

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

/// How many writes are under way at once.
const WRITES_MAX: usize = 16;
/// What a node of a cluster that is in use has about: with these, the object is 8 kB.
const IMAGES: u32 = 50;

/// Where pods are made.
#[derive(Clone)]
pub struct Field {
    client: Client,
    namespace: String,
}

/// What became of a number of pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed {
    /// How many went to each node.
    pub by_node: BTreeMap<String, u32>,
    /// From the first binding to the last.
    pub took: Duration,
}

impl Placed {
    /// How many have a node.
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
    /// A namespace of its own, where pods can be made also without the controller manager.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn new(client: &Client, namespace: &str) -> Result<Self, SystemError> {
        let meta = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let made = Namespace { metadata: meta(namespace), ..Namespace::default() };
        once(Api::all(client.clone()).create(&PostParams::default(), &made).await)?;
        let account = ServiceAccount { metadata: meta("default"), ..ServiceAccount::default() };
        let accounts = Api::namespaced(client.clone(), namespace);
        once(accounts.create(&PostParams::default(), &account).await)?;
        Ok(Self { client: client.clone(), namespace: namespace.to_owned() })
    }

    /// Makes so many of a pod, which are called as it with a number.
    ///
    /// # Errors
    /// When the API refuses one.
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

    /// Waits until so many pods, all of them made before, have got a node since `begin` began: the watch is open before
    /// it runs. What has not been bound within the time is missing in the answer.
    ///
    /// # Errors
    /// When the API refuses, or `begin` fails.
    pub async fn placed(
        &self,
        count: u32,
        within: Duration,
        begin: impl AsyncFnOnce() -> Result<(), SystemError>,
    ) -> Result<Placed, SystemError> {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        // In a task of its own, so that nothing is late because `begin` keeps this one: a watch that nobody reads is
        // closed.
        let watching = tokio::spawn(follow(self.pods(), Arc::clone(&seen), usize::try_from(count)?));
        let outcome = begin().await;
        // Whoever asks sees by the count that time was up.
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

    /// Removes every pod, and waits until they are gone.
    ///
    /// # Errors
    /// When the API refuses.
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
                    // What is left is tried again.
                    async move { drop(pods.delete(&pod.metadata.name.unwrap_or_default(), now).await) }
                })
                .await;
        }
    }

    /// Its pods.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// So many nodes that nobody lives for, each with as many images as real ones have: `node-0` and on.
///
/// # Errors
/// When the API refuses one.
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

/// A pod that wants one processor and no rights.
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

/// Who was bound where, and when the first and the last binding was seen.
#[derive(Default)]
struct Seen {
    nodes: BTreeMap<String, String>,
    times: Option<(Instant, Instant)>,
}

/// Follows the pods until so many are bound. A watch that ends is begun anew, and what it missed is made up for.
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

/// What is there already is as good.
fn once<T>(created: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match created {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop),
    }
}
