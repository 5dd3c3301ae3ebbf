//! Repairs what the extender's bind took cards for and nobody has confirmed (docs/adr/0040).
//!
//! ```text
//!  GPU objects ──▶ what was taken so long ago ──▶ its pod, from the API server ──▶ verdict ──▶ status.assumed ──▶ Event, counter
//! ```
//!
//! | the pod | what becomes of the entry |
//! |---|---|
//! | the kubelet gave it a card of this node | it ends: the card that it has counts by itself |
//! | is gone, has ended, is on another node, or waits for a node | it ends, and the card is free of it |
//! | is on this node, and no kubelet says which card it has | it is renewed: the card stays taken |
//!
//! The node's agent does the first two within seconds. This is for nodes whose agent does not work. A write names the version
//! of the object that was read, so an entry ends once, whoever else writes; one that is refused for that is looked at again.

use crate::reasons::{GPU_FREED, GPU_UNCONFIRMED};
use host_kit::clock::HostClock;
use host_kit::config::parse::object_name;
use host_kit::events::{EventReason, Note, Recorder};
use host_kit::leader::Leadership;
use host_kit::log::Repeats;
use host_kit::metrics::MetricsRegistry;
use host_kit::reflect::{CachedRow, ObjectKey, Row, Rows};
use host_kit::shutdown::Stop;
use host_kit::{closed_label, label_set};
use jiff::Timestamp;
use joulie_api::condition::rfc3339;
use joulie_api::gpu::{Gpu, most_added};
use joulie_core::placement::gpu::GpuPhase;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use power_units::Watts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// GPU objects that are looked at in one round; the others follow in the next ones.
const AT_ONCE: usize = 64;
/// A time that is further in the future is no time: the clocks of a cluster are not so far apart.
const SKEW_SECONDS: i64 = 600;
const EVERY_MOST: Duration = Duration::from_secs(30);
const REPEAT_WINDOW: Duration = Duration::from_secs(300);
const API: &str = "gpu.mle.com/v1alpha1";

/// What is kept of a GPU object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GpuSeen {
    node: String,
    /// The UIDs of the pods that the kubelet gave it to.
    given: Vec<Box<str>>,
    /// Whom it was taken for.
    taken: Vec<Value>,
    /// Whether it may take a pod, and what a pod then adds to it, where that was measured.
    phase: GpuPhase,
    adds: Option<Watts>,
    /// Of an object with such entries: its version and its identity.
    version: String,
    uid: String,
}

impl Row for GpuSeen {
    const KIND: &'static str = "gpus";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let node = object["spec"]["nodeName"].as_str().ok_or("spec.nodeName is not a text")?;
        let status = &object["status"];
        let card = joulie_api::object::parse::<Gpu>(object).ok();
        let given = status["allocations"].as_array().into_iter().flatten();
        let taken = status["assumed"].as_array().cloned().unwrap_or_default();
        let meta = |field: &str| match taken.is_empty() {
            true => String::new(),
            false => object["metadata"][field].as_str().unwrap_or_default().to_owned(),
        };
        Ok(Self {
            node: node.to_owned(),
            given: given.filter_map(|one| one["podUID"].as_str()).map(Box::from).collect(),
            version: meta("resourceVersion"),
            uid: meta("uid"),
            taken,
            phase: card.as_ref().map_or(GpuPhase::Unknown, |card| card.card().phase),
            adds: card.as_ref().and_then(Gpu::adds),
        })
    }
}

/// What a pod adds to a card of each of these nodes, where that was measured, as the extender takes it.
pub(crate) fn added<'n>(rows: &Rows<GpuSeen>, nodes: &BTreeSet<&'n str>) -> BTreeMap<&'n str, Watts> {
    rows.with(|rows| {
        let mut cards: BTreeMap<&str, Vec<(GpuPhase, Option<Watts>)>> = BTreeMap::new();
        for row in rows.values().map(|held| &held.row) {
            if let Some(&node) = nodes.get(row.node.as_str()) {
                cards.entry(node).or_default().push((row.phase, row.adds));
            }
        }
        cards.into_iter().filter_map(|(node, cards)| Some((node, most_added(cards.into_iter())?))).collect()
    })
}

closed_label! {
    /// What became of a card that was taken for a pod and not confirmed.
    pub(crate) enum GpuRepair {
        /// The kubelet gave the pod a card of the node.
        Confirmed = "confirmed",
        /// The pod is gone, or has ended.
        Gone = "gone",
        /// The pod is on another node.
        Elsewhere = "elsewhere",
        /// The pod waits for a node.
        Unbound = "unbound",
        /// The pod is on the node, and no kubelet says which card it has.
        Unconfirmed = "unconfirmed",
        /// It could not be looked at, or not written.
        Failed = "failed",
    }
}

label_set! {
    struct ByRepair {
        result: GpuRepair,
    }
}

/// The counter of repairs. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuRepairStats(Family<ByRepair, Counter>);

impl GpuRepairStats {
    pub(crate) fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self::default();
        registry.register(
            "joulie_operator_gpu_repairs",
            "GPUs that were taken for a pod and that nobody confirmed in GPU_REPAIR_AFTER, by what became of it",
            all.0.clone(),
        );
        all
    }

    fn count(&self, result: GpuRepair) {
        self.0.get_or_create(&ByRepair { result }).inc();
    }
}

/// What the task needs.
pub(crate) struct GpuRepairs {
    /// The API server.
    pub(crate) client: Client,
    /// Time.
    pub(crate) clock: Arc<dyn HostClock>,
    /// Whether this process leads.
    pub(crate) leadership: Leadership,
    /// The GPU objects.
    pub(crate) gpus: Rows<GpuSeen>,
    /// After this long nobody is expected to confirm any more.
    pub(crate) after: Duration,
    /// How long one request to the API server may take.
    pub(crate) timeout: Duration,
    /// Events.
    pub(crate) events: Recorder,
    /// Its metric.
    pub(crate) stats: GpuRepairStats,
}

/// A GPU with entries that nobody has confirmed in time.
#[derive(Clone, Debug, PartialEq)]
struct Suspect {
    name: String,
    seen: GpuSeen,
    /// For each of the entries: whether it is old, and whether the kubelet gave its pod a card of the node.
    old: Vec<bool>,
    given: Vec<bool>,
}

/// A failed request.
enum Failed {
    /// The object was written or deleted since it was read.
    Stale,
    Other(String),
}

impl GpuRepairs {
    /// Repairs until asked to stop.
    pub(crate) async fn run(self, stop: Stop) {
        let mut repeats = Repeats::every(REPEAT_WINDOW);
        let every = (self.after / 2).clamp(Duration::from_secs(1), EVERY_MOST);
        while !stop.requested_within(every).await {
            tokio::select! {
                () = self.round(&mut repeats) => {}
                () = stop.requested() => return,
            }
        }
    }

    async fn round(&self, repeats: &mut Repeats) {
        if !self.gpus.is_synced() || !self.leads() {
            return;
        }
        let (now, after) = (self.clock.wall(), self.after);
        for suspect in self.gpus.with(|rows| suspects(rows, now, after)) {
            // A former leader ends here.
            if !self.leads() {
                return;
            }
            match self.repair(&suspect).await {
                // Somebody else was faster; the next round sees what there is now.
                Ok(()) | Err(Failed::Stale) => {}
                Err(Failed::Other(why)) => {
                    self.stats.count(GpuRepair::Failed);
                    if let Some(said) = repeats.note(&why, self.clock.mono()) {
                        tracing::warn!(
                            gpu = suspect.name,
                            "what a GPU was taken for cannot be repaired: {why}{said}"
                        );
                    }
                }
            }
        }
    }

    fn leads(&self) -> bool {
        self.leadership.term(self.clock.mono()).is_some()
    }

    async fn repair(&self, suspect: &Suspect) -> Result<(), Failed> {
        let (mut left, mut told) = (Vec::new(), Vec::new());
        for ((entry, is_old), is_given) in suspect.seen.taken.iter().zip(&suspect.old).zip(&suspect.given) {
            if !is_old {
                left.push(entry.clone());
                continue;
            }
            let verdict = match is_given {
                true => GpuRepair::Confirmed,
                false => verdict(entry, self.pod(entry).await?.as_ref(), &suspect.seen.node),
            };
            if verdict == GpuRepair::Unconfirmed {
                let mut renewed = entry.clone();
                renewed["since"] = json!(rfc3339(self.clock.wall()));
                left.push(renewed);
            }
            told.push((entry, verdict));
        }
        let body =
            json!({"metadata": {"resourceVersion": suspect.seen.version}, "status": {"assumed": left}});
        let path = format!("/apis/{API}/gpus/{}/status", suspect.name);
        self.send("PATCH", &path, &body).await?;
        for (entry, verdict) in told {
            self.stats.count(verdict);
            if let Some((reason, action, text)) = said(verdict) {
                self.say(suspect, reason, action, &format!("{text}: pod {}", named(entry)));
            }
        }
        Ok(())
    }

    /// The pod of an entry as it is now, if there is one of its name.
    async fn pod(&self, entry: &Value) -> Result<Option<Value>, Failed> {
        let text = |field: &str| object_name(entry[field].as_str().unwrap_or_default()).ok();
        // What is no name is no pod's.
        let (Some(namespace), Some(name)) = (text("podNamespace"), text("podName")) else { return Ok(None) };
        let path = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector=metadata.name%3D{name}");
        let list = self.send("GET", &path, &Value::Null).await?;
        Ok(list["items"].as_array().and_then(|items| items.first()).cloned())
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, Failed> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(bytes)
            .map_err(|error| Failed::Other(error.to_string()))?;
        match tokio::time::timeout(self.timeout, self.client.request::<Value>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Err(Failed::Stale),
            Ok(Err(error)) => Err(Failed::Other(error.to_string())),
            Err(_) => Err(Failed::Other("no answer in time".to_owned())),
        }
    }

    fn say(&self, suspect: &Suspect, reason: EventReason, action: &'static str, text: &str) {
        self.events.say(Note {
            regarding: ObjectReference {
                api_version: Some(API.to_owned()),
                kind: Some("GPU".to_owned()),
                name: Some(suspect.name.clone()),
                uid: Some(suspect.seen.uid.clone()),
                ..ObjectReference::default()
            },
            severity: reason.severity,
            reason: reason.word,
            action,
            text: text.to_owned(),
        });
    }
}

/// The Event of a verdict, where a person may want to know.
fn said(verdict: GpuRepair) -> Option<(EventReason, &'static str, &'static str)> {
    let freed = |text| Some((GPU_FREED, "FreeGpu", text));
    match verdict {
        GpuRepair::Gone => freed("the card was taken for a pod that is gone, and is free of it"),
        GpuRepair::Elsewhere => {
            freed("the card was taken for a pod that is on another node, and is free of it")
        }
        GpuRepair::Unbound => {
            freed("the card was taken for a pod that still waits for a node, and is free of it")
        }
        GpuRepair::Unconfirmed => Some((
            GPU_UNCONFIRMED,
            "KeepGpu",
            "nobody says which card the pod has that this one was taken for, so it stays taken: see the node's agent",
        )),
        GpuRepair::Confirmed | GpuRepair::Failed => None,
    }
}

/// The pod of an entry, for people.
fn named(entry: &Value) -> String {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    format!("{}/{}", text("podNamespace"), text("podName"))
}

fn uid(entry: &Value) -> &str {
    entry["podUID"].as_str().unwrap_or_default()
}

/// The GPUs with entries that are old, the first ones by name.
fn suspects(rows: &BTreeMap<ObjectKey, CachedRow<GpuSeen>>, now: Timestamp, after: Duration) -> Vec<Suspect> {
    let taken = || rows.iter().filter(|(_, held)| !held.row.taken.is_empty());
    let nodes: BTreeSet<&str> = taken().map(|(_, held)| held.row.node.as_str()).collect();
    let given: BTreeSet<(&str, &str)> = rows
        .values()
        .filter(|held| nodes.contains(held.row.node.as_str()))
        .flat_map(|held| held.row.given.iter().map(|uid| (held.row.node.as_str(), &**uid)))
        .collect();
    taken()
        .map(|(key, held)| Suspect {
            name: key.name.clone(),
            seen: (*held.row).clone(),
            old: held.row.taken.iter().map(|entry| is_old(entry, now, after)).collect(),
            given: held
                .row
                .taken
                .iter()
                .map(|one| given.contains(&(held.row.node.as_str(), uid(one))))
                .collect(),
        })
        .filter(|suspect| suspect.old.contains(&true))
        .take(AT_ONCE)
        .collect()
}

/// Whether nobody is expected to confirm an entry any more. One without a time that can be read is old.
fn is_old(entry: &Value, now: Timestamp, after: Duration) -> bool {
    let since = entry["since"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let Some(since) = since else { return true };
    let age = now.as_second().saturating_sub(since.as_second());
    age >= i64::try_from(after.as_secs()).unwrap_or(i64::MAX) || age < -SKEW_SECONDS
}

/// What becomes of an old entry that the kubelet has not answered, by the pod of its name.
fn verdict(entry: &Value, pod: Option<&Value>, node: &str) -> GpuRepair {
    let Some(pod) = pod.filter(|pod| pod["metadata"]["uid"].as_str() == Some(uid(entry))) else {
        return GpuRepair::Gone;
    };
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return GpuRepair::Gone;
    }
    match pod["spec"]["nodeName"].as_str().filter(|on| !on.is_empty()) {
        None => GpuRepair::Unbound,
        Some(on) if on == node => GpuRepair::Unconfirmed,
        Some(_) => GpuRepair::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(node: &str, name: &str, given: &[&str], taken: &[(&str, &str)]) -> Value {
        let given: Vec<Value> = given.iter().map(|uid| json!({"podUID": uid})).collect();
        let taken: Vec<Value> = taken
            .iter()
            .map(|(uid, since)| json!({"podUID": uid, "podName": "p", "podNamespace": "d", "since": since}))
            .collect();
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": "7"}, "spec": {"nodeName": node},
               "status": {"allocations": given, "assumed": taken}})
    }

    const NOW: &str = "2027-01-15T08:00:00Z";

    #[test]
    fn only_what_nobody_has_confirmed_in_time_is_looked_at() {
        let after = Duration::from_secs(60);
        let (mut writer, rows) = host_kit::reflect::by_hand::<GpuSeen>();
        writer.list(&[
            gpu("n", "a", &[], &[("old", "2027-01-15T07:59:00Z"), ("new", "2027-01-15T07:59:01Z")]),
            gpu("n", "b", &["old"], &[]),
            gpu("m", "c", &[], &[("future", "2027-01-15T08:10:00Z")]),
            gpu("m", "d", &[], &[("far", "2027-01-15T08:10:01Z"), ("none", "yesterday"), ("old", NOW)]),
        ]);
        let found = rows.with(|rows| suspects(rows, NOW.parse().unwrap(), after));
        let of = |at: usize| (found[at].name.as_str(), found[at].old.clone(), found[at].given.clone());
        assert_eq!(found.len(), 2);
        // The kubelet gave the pod another card of the node.
        assert_eq!(of(0), ("a", vec![true, false], vec![true, false]));
        assert_eq!(of(1), ("d", vec![true, true, false], vec![false, false, false]));
    }

    #[test]
    fn a_round_looks_at_a_bounded_number() {
        let objects: Vec<Value> = (0..100)
            .map(|at| gpu("n", &format!("g{at:02}"), &[], &[("u", "2027-01-01T00:00:00Z")]))
            .collect();
        let (mut writer, rows) = host_kit::reflect::by_hand::<GpuSeen>();
        writer.list(&objects);
        let found = rows.with(|rows| suspects(rows, NOW.parse().unwrap(), Duration::from_secs(60)));
        assert_eq!(found.len(), AT_ONCE);
    }

    #[test]
    fn what_becomes_of_an_entry_is_said_by_its_pod() {
        let entry = json!({"podUID": "u", "podName": "p", "podNamespace": "d"});
        let pod = |uid: &str, node: Value, phase: &str| json!({"metadata": {"uid": uid}, "spec": {"nodeName": node}, "status": {"phase": phase}});
        for (pod, becomes) in [
            (None, GpuRepair::Gone),
            (Some(pod("another", json!("n"), "Running")), GpuRepair::Gone),
            (Some(pod("u", json!("n"), "Succeeded")), GpuRepair::Gone),
            (Some(pod("u", json!("n"), "Failed")), GpuRepair::Gone),
            (Some(pod("u", json!(null), "Pending")), GpuRepair::Unbound),
            (Some(pod("u", json!(""), "Pending")), GpuRepair::Unbound),
            (Some(pod("u", json!("m"), "Running")), GpuRepair::Elsewhere),
            (Some(pod("u", json!("n"), "Running")), GpuRepair::Unconfirmed),
            (Some(pod("u", json!("n"), "Pending")), GpuRepair::Unconfirmed),
        ] {
            assert_eq!(verdict(&entry, pod.as_ref(), "n"), becomes, "{pod:?}");
        }
    }

    #[test]
    fn what_a_pod_adds_is_by_the_cards_of_its_node_alone() {
        let card = |node: &str, number: u32, phase: &str, power: Value| {
            json!({"metadata": {"name": format!("{node}-{number}")}, "spec": {"nodeName": node},
                   "status": {"allocatedVRAMmb": 0, "phase": phase, "power": power}})
        };
        let watts = |busy: u32| json!({"idleWatts": 60, "busyWatts": busy, "limitWatts": 700});
        let (mut writer, rows) = host_kit::reflect::by_hand::<GpuSeen>();
        writer.list(&[
            card("a", 0, "Available", watts(300)),
            card("a", 1, "Available", watts(410)),
            card("a", 2, "Unknown", watts(900)),
            card("b", 0, "Available", watts(300)),
            card("b", 1, "Available", json!({})),
            card("c", 0, "Available", watts(600)),
        ]);
        let nodes = BTreeSet::from(["a", "b", "no such node"]);
        assert_eq!(added(&rows, &nodes), BTreeMap::from([("a", Watts::from_int(350))]));
    }

    #[test]
    fn an_object_without_a_node_is_no_gpu() {
        assert!(GpuSeen::read(&json!({"metadata": {"name": "a"}, "spec": {"nodeName": 7}})).is_err());
        let bare = GpuSeen::read(&json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}})).unwrap();
        assert!(bare.taken.is_empty() && bare.given.is_empty());
    }
}
