//! What stands in for the kubelets and agents of nodes with GPUs, and between kube-scheduler and the extender.

use super::mig;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(100);
const CARD_MB: i64 = 40_000;

pub(crate) fn gpus(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("gpu.mle.com", "v1alpha1", "GPU");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// Makes the object of a card: its node, its model, and its island.
pub(crate) async fn add_card(client: &Client, name: &str, (node, model, island): (&str, &str, u16)) {
    let made = json!({"apiVersion": "gpu.mle.com/v1alpha1", "kind": "GPU", "metadata": {"name": name},
        "spec": {"nodeName": node, "uuid": format!("GPU-{name}"), "model": model,
                 "totalVRAMmb": CARD_MB, "vendor": "nvidia", "island": island}});
    gpus(client).create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await.unwrap();
}

/// The number of GPUs that a pod asks for.
fn asks(pod: &Pod) -> usize {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let limits = containers.filter_map(|one| one.resources.as_ref()?.limits.as_ref()?.get("nvidia.com/gpu"));
    limits.filter_map(|count| count.0.parse::<usize>().ok()).sum()
}

/// What the kubelets know.
#[derive(Default)]
struct Truth {
    /// The cards of each pod, by its UID.
    held: BTreeMap<String, Vec<String>>,
    /// Pods that are on a node without a card for them.
    short: BTreeSet<String>,
    /// Cards that their driver does not list any more.
    dead: BTreeSet<String>,
}

/// The kubelets and the agents of all nodes with GPUs. A kubelet gives a pod the last free cards of its node by their
/// names, whatever card was taken for it; the agents write that, and end what was taken.
pub(crate) struct Kubelets {
    truth: Arc<Mutex<Truth>>,
    task: JoinHandle<()>,
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kubelets {
    pub(crate) fn start(client: &Client) -> Self {
        let truth: Arc<Mutex<Truth>> = Arc::default();
        let task = tokio::spawn(tend(client.clone(), Arc::clone(&truth)));
        Self { truth, task }
    }

    /// The driver of a card does not list it any more, or does again.
    pub(crate) fn dies(&self, card: &str, is_dead: bool) {
        let mut truth = self.truth.lock().unwrap();
        if is_dead {
            truth.dead.insert(card.to_owned());
        } else {
            truth.dead.remove(card);
        }
    }

    /// The pods that were put on a node that had no card for them.
    pub(crate) fn short(&self) -> BTreeSet<String> {
        self.truth.lock().unwrap().short.clone()
    }
}

async fn tend(client: Client, truth: Arc<Mutex<Truth>>) {
    loop {
        // What fails, as while the API server is busy, is done in the next round.
        let _ = round(&client, &truth).await;
        tokio::time::sleep(EVERY).await;
    }
}

async fn round(client: &Client, truth: &Mutex<Truth>) -> Result<(), kube::Error> {
    let cards = gpus(client).list(&ListParams::default()).await?.items;
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?.items;
    let mut cards: Vec<Value> =
        cards.into_iter().filter_map(|card| serde_json::to_value(card).ok()).collect();
    // That node has a kubelet and an agent of its own.
    cards.retain(|card| card["spec"]["nodeName"] != mig::NODE);
    let mut pods = pods;
    pods.retain(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) != Some(mig::NODE));
    let wanted: Vec<(Value, Value)> = {
        let mut truth = truth.lock().unwrap();
        give(&mut truth, &cards, &pods);
        cards.iter().map(|card| (card.clone(), status(&truth, card, &pods))).collect()
    };
    for (card, status) in wanted {
        let name = card["metadata"]["name"].as_str().unwrap_or_default();
        let said = &card["status"];
        let fields = ["allocatedVRAMmb", "phase", "health", "allocations", "podName"];
        if fields.iter().any(|field| said[field] != status[field]) {
            let whole = json!({"apiVersion": "gpu.mle.com/v1alpha1", "kind": "GPU",
                               "metadata": {"name": name}, "status": status});
            let by = PatchParams::apply("joulie-agent").force();
            gpus(client).patch_status(name, &by, &Patch::Apply(&whole)).await?;
        }
    }
    // As the agents: what was taken ends once the kubelet gave the pod its cards.
    for card in &cards {
        let taken = card["status"]["assumed"].as_array().cloned().unwrap_or_default();
        let left: Vec<&Value> = {
            let truth = truth.lock().unwrap();
            taken
                .iter()
                .filter(|one| !truth.held.contains_key(one["podUID"].as_str().unwrap_or_default()))
                .collect()
        };
        if left.len() < taken.len() {
            let patch = json!({"metadata": {"resourceVersion": card["metadata"]["resourceVersion"]},
                               "status": {"assumed": left}});
            let name = card["metadata"]["name"].as_str().unwrap_or_default();
            // Somebody else may have written since: then the next round looks again.
            let _ = gpus(client).patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        }
    }
    Ok(())
}

/// Gives cards to pods that have come to a node, and takes back those of pods that have left.
fn give(truth: &mut Truth, cards: &[Value], pods: &[Pod]) {
    let ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let there: Vec<&Pod> = pods
        .iter()
        .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) && !ended(pod))
        .collect();
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    let uids: BTreeSet<String> = there.iter().map(|pod| uid(pod)).collect();
    truth.held.retain(|uid, _| uids.contains(uid));
    for pod in there {
        let (count, node) = (asks(pod), pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
        if count == 0 || truth.held.contains_key(&uid(pod)) {
            continue;
        }
        let mut free: Vec<String> = cards
            .iter()
            .filter(|card| card["spec"]["nodeName"].as_str() == node.as_deref())
            .filter_map(|card| card["metadata"]["name"].as_str().map(str::to_owned))
            .filter(|name| !truth.held.values().flatten().any(|held| held == name))
            .collect();
        free.sort_by(|one, other| other.cmp(one));
        if free.len() < count {
            truth.short.insert(pod.metadata.name.clone().unwrap_or_default());
            continue;
        }
        free.truncate(count);
        truth.held.insert(uid(pod), free);
    }
}

/// The agent's part of a card's status.
fn status(truth: &Truth, card: &Value, pods: &[Pod]) -> Value {
    let name = card["metadata"]["name"].as_str().unwrap_or_default();
    let health = if truth.dead.contains(name) { "Unknown" } else { "Healthy" };
    let holder = truth.held.iter().find(|(_, cards)| cards.iter().any(|one| one == name));
    let Some((uid, _)) = holder else {
        return json!({"allocatedVRAMmb": 0, "phase": "Available", "health": health, "allocations": []});
    };
    let pod = pods.iter().find(|pod| pod.metadata.uid.as_ref() == Some(uid));
    let name = pod.and_then(|pod| pod.metadata.name.clone()).unwrap_or_default();
    let namespace = pod.and_then(|pod| pod.metadata.namespace.clone()).unwrap_or_default();
    json!({"allocatedVRAMmb": CARD_MB, "phase": "Allocated", "health": health, "podName": name, "podNamespace": namespace,
           "allocations": [{"podUID": uid, "podName": name, "podNamespace": namespace, "vramMb": CARD_MB}]})
}

/// Passes on what kube-scheduler asks the extender, and may lose an answer.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    loses_bind: Arc<AtomicBool>,
    binds: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let loses_bind: Arc<AtomicBool> = Arc::default();
        let binds: Arc<AtomicUsize> = Arc::default();
        let (loses, counted) = (Arc::clone(&loses_bind), Arc::clone(&binds));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (loses, counted) = (Arc::clone(&loses), Arc::clone(&counted));
                // Whoever asks sees a connection that was closed.
                tokio::spawn(async move { drop(pass_on(stream, to, (&loses, &counted)).await) });
            }
        });
        Self { address, loses_bind, binds, task }
    }

    /// How often kube-scheduler had a pod bound.
    pub(crate) fn binds(&self) -> usize {
        self.binds.load(Ordering::SeqCst)
    }

    /// The next answer to a bind does not arrive.
    pub(crate) fn lose_next_bind(&self) {
        self.loses_bind.store(true, Ordering::SeqCst);
    }

    /// Whether it was lost.
    pub(crate) fn has_lost_it(&self) -> bool {
        !self.loses_bind.load(Ordering::SeqCst)
    }
}

async fn pass_on(
    mut from: TcpStream,
    to: SocketAddr,
    (loses, binds): (&AtomicBool, &AtomicUsize),
) -> std::io::Result<()> {
    let mut to = TcpStream::connect(to).await?;
    while let Some(question) = message(&mut from).await? {
        to.write_all(&question).await?;
        let Some(answer) = message(&mut to).await? else { return Ok(()) };
        if question.starts_with(b"POST /bind ") {
            binds.fetch_add(1, Ordering::SeqCst);
            if loses.swap(false, Ordering::SeqCst) {
                return Ok(());
            }
        }
        from.write_all(&answer).await?;
    }
    Ok(())
}

/// A whole message with the length of its body in its head; `None` at the end.
pub(crate) async fn message(stream: &mut TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    let mut all = Vec::new();
    let mut part = vec![0; 1 << 16];
    loop {
        if let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&all[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            if all.len() >= end + 4 + length {
                return Ok(Some(all));
            }
        }
        let got = stream.read(&mut part).await?;
        if got == 0 {
            return Ok(None);
        }
        all.extend_from_slice(&part[..got]);
    }
}
