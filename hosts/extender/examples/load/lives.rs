//! Pods that come, are filtered, scored and bound by the extender, and go, with the kubelets of their nodes.
//!
//! Every node has eight cards. kube-scheduler's part is to count them, so that no node gets more pods than it has cards; the
//! kubelet gives a pod free cards of its node, those that were taken for it if they are free; the agent writes who has
//! which, and ends what was taken.

use http::Request;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::RwLock;

pub(crate) type Failed = Box<dyn Error + Send + Sync>;

/// The cards of a node, and how many of them pods may have: one may be ill, and one is spare.
pub(crate) const CARDS: u64 = 8;
const CARDS_USED: u64 = 6;
/// A request that is not answered within this time has failed, as it has for kube-scheduler.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
const GPUS: &str = "/apis/gpu.mle.com/v1alpha1/gpus";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// The kinds that are written, as `joulie-seen` names them.
const KINDS: [&str; 3] = ["gpus", "nodetwins", "pods"];

pub(crate) fn worker(number: usize) -> String {
    format!("worker-{number:04}")
}

/// A card that nobody has.
pub(crate) fn free() -> Value {
    json!({"allocatedVRAMmb": 0, "phase": "Available", "health": "Healthy", "allocations": [], "podName": null})
}

/// A card that a pod has.
pub(crate) fn held(uid: &str, name: &str) -> Value {
    json!({"allocatedVRAMmb": 40_000, "phase": "Allocated", "health": "Healthy", "podName": name, "podNamespace": "default",
           "allocations": [{"podUID": uid, "podName": name, "podNamespace": "default", "vramMb": 40_000}]})
}

/// The numbers of a seed.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `range`.
    pub(crate) fn roll(&mut self, range: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % range.max(1)
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) events: u64,
    pub(crate) pods: u64,
    pub(crate) bound: u64,
    /// Pods that were not bound, as it was to be: they were deleted meanwhile, or there was no room.
    pub(crate) unbound: u64,
    /// Callers that hung up before they were answered, and how many of their pods were bound all the same.
    pub(crate) hung_up: u64,
    pub(crate) bound_unasked: u64,
    /// Requests that were not answered, or not as they are to be.
    pub(crate) failed: u64,
    /// Answers whose versions were compared with what was written, and those that did not know of a write up to them, or
    /// knew of one after them.
    pub(crate) checked: u64,
    pub(crate) lost: u64,
    /// Answers of both replicas at the same versions, and those that differed.
    pub(crate) compared: u64,
    pub(crate) disagreements: u64,
    /// Cards that stay taken for a pod that was not bound, or has gone.
    pub(crate) leaked: u64,
    /// Pods that were bound and for which their node has no card.
    pub(crate) without: u64,
    /// What the first complaints say.
    pub(crate) complaints: Vec<String>,
}

impl Tally {
    pub(crate) fn complain(&mut self, what: String) {
        if self.complaints.len() < 10 {
            self.complaints.push(what);
        }
    }
}

/// The cluster, as kube-scheduler and the kubelets share it.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) replicas: [SocketAddr; 2],
    pub(crate) workers: Vec<String>,
    /// Who writes reads it; who wants nobody to write meanwhile writes it.
    pub(crate) gate: RwLock<()>,
    /// The cards that kube-scheduler counts as used, by worker.
    used: Mutex<Vec<u64>>,
    /// A kubelet does one thing after the other.
    kubelets: Vec<tokio::sync::Mutex<()>>,
    /// The last version of each kind that was written, by the names that `joulie-seen` has for kinds.
    last: Mutex<BTreeMap<&'static str, u64>>,
    tally: Mutex<Tally>,
}

impl Cluster {
    pub(crate) fn new(client: Client, replicas: [SocketAddr; 2], workers: usize) -> Self {
        Self {
            client,
            replicas,
            workers: (0..workers).map(worker).collect(),
            gate: RwLock::new(()),
            used: Mutex::new(vec![0; workers]),
            kubelets: (0..workers).map(|_| tokio::sync::Mutex::new(())).collect(),
            last: Mutex::default(),
            tally: Mutex::default(),
        }
    }

    pub(crate) fn count<T>(&self, count: impl FnOnce(&mut Tally) -> T) -> T {
        count(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let answer = send(&self.client, method, path, body).await?;
        if let Some(kind) = KINDS.into_iter().find(|kind| path.split(['/', '?']).any(|part| part == *kind)) {
            // The version of a list is that of the server, and not of its objects.
            let objects = answer["items"].as_array().map_or(std::slice::from_ref(&answer), Vec::as_slice);
            let versions =
                objects.iter().filter_map(|one| one["metadata"]["resourceVersion"].as_str()?.parse().ok());
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let last = last.entry(kind).or_default();
            *last = versions.fold(*last, u64::max);
        }
        Ok(answer)
    }

    /// Whether two answers name the same objects, while nobody writes: of each kind the same version, or both one since which
    /// nothing of it was written. Who lists a kind anew names the server's version, also if nothing of it has changed.
    pub(crate) fn are_of_the_same(&self, seen: &str, also: &str) -> bool {
        let versions = |seen: &str| -> BTreeMap<String, u64> {
            let pairs = seen.split(", ").filter_map(|one| one.split_once('='));
            pairs.filter_map(|(kind, version)| Some((kind.to_owned(), version.parse().ok()?))).collect()
        };
        let (seen, also) = (versions(seen), versions(also));
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        !seen.is_empty()
            && seen.keys().eq(also.keys())
            && seen.iter().zip(also.values()).all(|((kind, one), other)| {
                // Pods are deleted, which no answer to a writer has a version of.
                let written =
                    if kind == "pods" { u64::MAX } else { last.get(kind.as_str()).copied().unwrap_or(0) };
                one == other || *one.min(other) >= written
            })
    }

    /// The answer to a request that is to succeed; `None`, and it is counted, if it did not.
    pub(crate) async fn ask(&self, replica: usize, path: &str, body: &Value) -> Option<(String, Value)> {
        let address = self.replicas.get(replica % 2)?;
        let why = match post(*address, path, body).await {
            Ok((200, seen, text)) => match serde_json::from_slice(&text) {
                Ok(answer) => return Some((seen, answer)),
                Err(error) => error.to_string(),
            },
            Ok((status, _, text)) => format!("{status} {}", String::from_utf8_lossy(&text)),
            Err(error) => error.to_string(),
        };
        self.count(|tally| {
            tally.failed += 1;
            tally.complain(format!("{path}: {why}"));
        });
        None
    }

    /// Counts cards of a worker as used; false if it has not so many.
    fn reserve(&self, worker: usize, cards: u64) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match used.get_mut(worker).filter(|used| **used + cards <= CARDS_USED) {
            Some(used) => {
                *used += cards;
                true
            }
            None => false,
        }
    }

    fn release(&self, worker: usize, cards: u64) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = used.get_mut(worker) {
            *used = used.saturating_sub(cards);
        }
    }

    /// The life of one pod.
    pub(crate) async fn live(&self, number: u64, lasts: Duration) -> Result<(), Failed> {
        let mut chance = Chance::of(number);
        let cards = if chance.roll(3) == 0 { 1 + u64::try_from(chance.roll(2))? } else { 0 };
        let name = format!("pod-{number}");
        let turn = self.gate.read().await;
        let pod = self.send("POST", PODS, &pod(&name, cards, chance.roll(4) == 0)).await?;
        self.count(|tally| tally.pods += 1);
        let worker = self.schedule(&pod, cards, &mut chance).await?;
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(worker) = worker {
            self.count(|tally| tally.bound += 1);
            self.admit(worker, (uid, &name), cards).await?;
        } else {
            self.count(|tally| tally.unbound += 1);
        }
        drop(turn);
        if worker.is_some() {
            tokio::time::sleep(lasts).await;
        }
        let _turn = self.gate.read().await;
        self.delete(&name).await?;
        if let Some(worker) = worker {
            self.clear(worker, uid).await?;
            self.release(worker, cards);
        }
        Ok(())
    }

    /// Filters, scores and binds, and returns where the pod is; `None` where it is bound nowhere.
    async fn schedule(&self, pod: &Value, cards: u64, chance: &mut Chance) -> Result<Option<usize>, Failed> {
        let replica = chance.roll(2);
        let all = json!({"Pod": pod, "Nodes": null, "NodeNames": self.workers});
        let Some((_, kept)) = self.ask(replica, "/filter", &all).await else { return Ok(None) };
        let kept: Vec<&str> =
            kept["nodenames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let some: Vec<&str> = (0..16).filter_map(|_| kept.get(chance.roll(kept.len())).copied()).collect();
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": some});
        let Some((_, scores)) = self.ask(replica, "/prioritize", &body).await else { return Ok(None) };
        let mut hosts: Vec<(i64, usize)> = scores
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| Some((one["score"].as_i64()?, self.number(one["host"].as_str()?)?)))
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        let mut best =
            hosts.iter().rev().map(|(_, worker)| *worker).filter(|worker| self.reserve(*worker, cards));
        let Some(first) = best.next() else { return Ok(None) };
        let fault = chance.roll(20);
        let other = if fault == 1 { best.next() } else { None };
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let mut was_bound = false;
        match (fault, other) {
            // Somebody deletes the pod while it is bound.
            (0, _) => {
                let (bound, deleted) = tokio::join!(self.bind(replica, pod, first), self.delete(name));
                deleted?;
                was_bound = bound;
            }
            // Two schedulers bind it to two nodes.
            (1, Some(other)) => {
                tokio::join!(self.bind(0, pod, first), self.bind(1, pod, other));
            }
            // The caller hangs up before it is answered.
            (2, _) => {
                let after = Duration::from_millis(u64::try_from(chance.roll(4))?);
                self.hang_up(replica, pod, first, after).await?;
            }
            _ => {
                self.bind(replica, pod, first).await;
            }
        }
        let bound = self.bound(name).await?;
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        for tried in [Some(first), other].into_iter().flatten().filter(|tried| Some(*tried) != bound) {
            self.release(tried, cards);
            self.lost_cards(tried, uid, was_bound).await?;
        }
        Ok(bound)
    }

    fn number(&self, node: &str) -> Option<usize> {
        self.workers.iter().position(|worker| worker == node)
    }

    fn binding(&self, pod: &Value, worker: usize) -> Value {
        let meta = &pod["metadata"];
        json!({"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": self.workers.get(worker)})
    }

    /// Binds a pod, and returns what the answer says of it.
    async fn bind(&self, replica: usize, pod: &Value, worker: usize) -> bool {
        let answer = self.ask(replica, "/bind", &self.binding(pod, worker)).await;
        answer.is_some_and(|(_, answer)| answer["Error"] == "")
    }

    /// Asks for a binding and hangs up after a time. What was begun runs to its end. A request that was not read by then is never
    /// answered, and nothing shows that; so where nothing is taken for the pod soon it is bound again, as kube-scheduler does.
    async fn hang_up(
        &self,
        replica: usize,
        pod: &Value,
        worker: usize,
        after: Duration,
    ) -> Result<(), Failed> {
        let Some(address) = self.replicas.get(replica) else { return Ok(()) };
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&written("/bind", &self.binding(pod, worker))).await?;
        tokio::time::sleep(after).await;
        drop(stream);
        self.count(|tally| tally.hung_up += 1);
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        for look in 0..1_000 {
            if self.bound(text("name")).await?.is_some() {
                self.count(|tally| tally.bound_unasked += 1);
                return Ok(());
            }
            // A card that is taken shows that it was begun: then it goes on, or the card leaks.
            if look >= 10 && self.taken(worker, text("uid")).await? == 0 {
                self.bind(replica, pod, worker).await;
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Where a pod is bound; `None` if it is bound nowhere, or is gone.
    async fn bound(&self, name: &str) -> Result<Option<usize>, Failed> {
        match self.send("GET", &format!("{PODS}/{name}"), &Value::Null).await {
            Ok(pod) => Ok(pod["spec"]["nodeName"].as_str().and_then(|node| self.number(node))),
            Err(error) if is(&error, 404) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete(&self, name: &str) -> Result<(), Failed> {
        match self.send("DELETE", &format!("{PODS}/{name}"), &json!({"gracePeriodSeconds": 0})).await {
            Ok(_) => Ok(()),
            Err(error) if is(&error, 404) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn cards(&self, worker: usize) -> Result<Vec<Value>, Failed> {
        let node = self.workers.get(worker).map_or("", String::as_str);
        let list =
            self.send("GET", &format!("{GPUS}?fieldSelector=spec.nodeName%3D{node}"), &Value::Null).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// How many cards of a worker are taken for a pod.
    async fn taken(&self, worker: usize, uid: &str) -> Result<usize, Failed> {
        Ok(self.cards(worker).await?.iter().filter(|card| is_taken(card, uid)).count())
    }

    /// A pod that was not bound has no card. One that was bound before it was deleted may have some, and then its agent ends what
    /// was taken for it.
    async fn lost_cards(&self, worker: usize, uid: &str, was_bound: bool) -> Result<(), Failed> {
        let taken = self.taken(worker, uid).await?;
        if taken > 0 && was_bound {
            return self.clear(worker, uid).await;
        }
        if taken > 0 {
            self.count(|tally| {
                tally.leaked += 1;
                tally.complain(format!("{taken} cards of {worker} are taken for {uid}, which is not there"));
            });
        }
        Ok(())
    }

    /// The kubelet gives a pod its cards, and the agent writes it.
    async fn admit(&self, worker: usize, (uid, name): (&str, &str), count: u64) -> Result<(), Failed> {
        let Some(kubelet) = self.kubelets.get(worker).filter(|_| count > 0) else { return Ok(()) };
        let _one_after_the_other = kubelet.lock().await;
        let mut cards = self.cards(worker).await?;
        // Those that were taken for it first.
        cards.sort_by_key(|card| !is_taken(card, uid));
        let is_free = |card: &&Value| {
            card["status"]["allocations"].as_array().is_none_or(Vec::is_empty)
                && card["status"]["health"] == "Healthy"
        };
        let mut given = 0;
        for card in cards.iter().filter(is_free).take(usize::try_from(count)?) {
            self.change(card, &held(uid, name)).await?;
            given += 1;
        }
        if given < count {
            self.count(|tally| {
                tally.without += 1;
                tally.complain(format!(
                    "{uid} was bound to {worker}, which has {given} of {count} cards for it"
                ));
            });
        }
        self.end_taken(worker, uid).await
    }

    /// The pod has left.
    async fn clear(&self, worker: usize, uid: &str) -> Result<(), Failed> {
        let Some(kubelet) = self.kubelets.get(worker) else { return Ok(()) };
        let _one_after_the_other = kubelet.lock().await;
        for card in self.cards(worker).await? {
            let all = card["status"]["allocations"].as_array();
            if all.into_iter().flatten().any(|one| one["podUID"] == uid) {
                self.change(&card, &free()).await?;
            }
        }
        self.end_taken(worker, uid).await
    }

    /// Writes who has a card. Health has another writer here.
    async fn change(&self, card: &Value, status: &Value) -> Result<(), Failed> {
        let name = card["metadata"]["name"].as_str().unwrap_or_default();
        let mut status = status.clone();
        if let Some(status) = status.as_object_mut() {
            status.remove("health");
        }
        self.send("PATCH", &format!("{GPUS}/{name}/status"), &json!({"status": status})).await?;
        Ok(())
    }

    /// Ends what was taken for a pod. The extender may take the card for another one at this moment: then it is read again.
    async fn end_taken(&self, worker: usize, uid: &str) -> Result<(), Failed> {
        loop {
            let cards = self.cards(worker).await?;
            let Some(card) = cards.iter().find(|card| is_taken(card, uid)) else { return Ok(()) };
            let all = card["status"]["assumed"].as_array();
            let left: Vec<&Value> = all.into_iter().flatten().filter(|one| one["podUID"] != uid).collect();
            let name = card["metadata"]["name"].as_str().unwrap_or_default();
            let body = json!({"metadata": {"resourceVersion": card["metadata"]["resourceVersion"]}, "status": {"assumed": left}});
            match self.send("PATCH", &format!("{GPUS}/{name}/status"), &body).await {
                Ok(_) => {}
                Err(error) if is(&error, 409) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Counts the cards that somebody still has, or that are taken: to be asked once all pods have gone.
    pub(crate) async fn count_leaks(&self) -> Result<(), Failed> {
        let list = self.send("GET", GPUS, &Value::Null).await?;
        let of_workers = list["items"].as_array().into_iter().flatten();
        for card in of_workers
            .filter(|card| card["spec"]["nodeName"].as_str().is_some_and(|node| node.starts_with("worker")))
        {
            let has = |list: &str| card["status"][list].as_array().is_some_and(|all| !all.is_empty());
            if has("assumed") || has("allocations") {
                self.count(|tally| {
                    tally.leaked += 1;
                    tally.complain(format!("{}: {}", card["metadata"]["name"], card["status"]));
                });
            }
        }
        Ok(())
    }
}

fn is_taken(card: &Value, uid: &str) -> bool {
    card["status"]["assumed"].as_array().into_iter().flatten().any(|one| one["podUID"] == uid)
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

fn pod(name: &str, cards: u64, is_performance: bool) -> Value {
    let class = if is_performance { "performance" } else { "standard" };
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {"joulie.io/workload-class": class}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    if cards > 0 {
        pod["metadata"]["annotations"]["gpu-extender.mle.com/model"] = json!("A100");
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": cards.to_string()});
    }
    pod
}

/// A request to the API server.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, kube::Error> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(bytes);
    let answer = client.request(request.map_err(kube::Error::HttpError)?);
    match tokio::time::timeout(ANSWERED_WITHIN, answer).await {
        Ok(answer) => answer,
        Err(_) => {
            Err(kube::Error::Service(format!("{method} {path}: no answer in {ANSWERED_WITHIN:?}").into()))
        }
    }
}

fn written(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// A request to a replica: the status, what the answer says that it has seen, and the body.
async fn post(address: SocketAddr, path: &str, body: &Value) -> Result<(u16, String, Vec<u8>), Failed> {
    let asked = async {
        let (mut stream, mut answer) = (TcpStream::connect(address).await?, Vec::new());
        stream.write_all(&written(path, body)).await?;
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let mut answer = tokio::time::timeout(ANSWERED_WITHIN, asked)
        .await
        .map_err(|_| format!("no answer in {ANSWERED_WITHIN:?}"))??;
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or("an answer without an end of its head")?;
    let head = String::from_utf8_lossy(answer.get(..end).unwrap_or_default()).to_ascii_lowercase();
    let status =
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("an answer without a status")?;
    let seen =
        head.lines().find_map(|line| line.strip_prefix("joulie-seen: ")).unwrap_or_default().to_owned();
    Ok((status, seen, answer.split_off(end + 4)))
}
