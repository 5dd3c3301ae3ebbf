//! The GPU objects of the agent's own node: one for each physical card, and who holds it.
//!
//! ```text
//!  control thread ──what the drivers list──▶ Discovery ─┐
//!  files of the PCI bus ──────────────────▶ pci ────────┼─▶ documents ──what differs──▶ API
//!  kubelet ──who holds which card─────────▶ PodResources┤
//!  pods and the node of the API ────────────────────────┘
//! ```
//!
//! Every two seconds what should be is compared with what the watch shows, so a steady node writes nothing. An object
//! goes when its card has left a complete list of the driver and the PCI bus; while a driver does not answer, its cards
//! stay and are not healthy. With the Node all of them go, which own them.
//!
//! What each card was measured to draw is told with it ([`curve`]).
//!
//! What the extender's bind took for a pod ends here too, by the same facts: once the kubelet has given the pod its cards,
//! or the pod is gone.

mod curve;
mod documents;
mod pci;

use crate::energy::{HeldCards, Kubelet, LastAnswer, PodOwner};
use crate::front::rows::NodeRow;
use curve::{CardWatts, Curves};
use documents::{Card, Document, Holders, Listed, Sharing};
use host_kit::clock::{HostClock, Mono};
use host_kit::events::Recorder;
use host_kit::log::Repeats;
use host_kit::metrics::MetricsRegistry;
use host_kit::reflect::{ObjectKey, Row, Rows};
use host_kit::shutdown::Stop;
use host_kit::{closed_label, label_set};
use joulie_api::dra::{DeviceName, DeviceSlice, PublishedDevices};
use joulie_api::gpu::Gpu;
use joulie_api::labels::{manager, object};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use node_kit::{BackendKind, BackendState, Cards, NodeReport};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The settings of GPU objects.
#[derive(Clone, Debug)]
pub struct GpuSettings {
    /// The kubelet's socket.
    pub socket: PathBuf,
    /// Whether ResourceSlices are read, to tell which cards claims hold.
    pub reads_slices: bool,
}

const EVERY: Duration = Duration::from_secs(2);
/// What was written and is not shown, or was overwritten, is written again after this long.
const AGAIN: Duration = Duration::from_secs(300);
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MOST: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);
const NO_ANSWER: &str = "the API server did not answer in 10s";
const REPEAT_WINDOW: Duration = Duration::from_secs(300);
/// More cards than any node has; what is beyond has no object.
const CARDS_MAX: usize = 64;
/// So long after the start an answer of the kubelet is waited for before its cards are said to be in an unknown state.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the drivers list, from the control thread, and what their cards draw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Discovery {
    backends: Vec<Discovered>,
    watts: BTreeMap<power_hal::Key, CardWatts>,
}

#[derive(Clone, Debug)]
struct Discovered {
    kind: BackendKind,
    is_ready: bool,
    cards: Arc<Cards>,
}

/// The control thread's side. Only that thread takes the lock.
#[derive(Clone, Debug)]
pub(crate) struct CardTap(Arc<(watch::Sender<Discovery>, Mutex<Curves>)>);

/// Both sides.
pub(crate) fn tap() -> (CardTap, watch::Receiver<Discovery>) {
    let (sender, receiver) = watch::channel(Discovery::default());
    (CardTap(Arc::new((sender, Mutex::default()))), receiver)
}

/// Tells what a report says of cards, if that has changed.
pub(crate) fn tell(CardTap(tap): &CardTap, report: &NodeReport) {
    let (sender, curves) = &**tap;
    let mut curves = curves.lock().unwrap_or_else(PoisonError::into_inner);
    // Nothing is collected while nothing changes.
    let watts = curves.see(report).then(|| curves.told());
    sender.send_if_modified(|last| {
        let is_same = last.is_of(report) && watts.is_none();
        if !last.is_of(report) {
            let of = |(kind, is_ready, cards): (BackendKind, bool, &Arc<Cards>)| Discovered {
                kind,
                is_ready,
                cards: cards.clone(),
            };
            last.backends = told(report).map(of).collect();
        }
        if let Some(watts) = watts {
            last.watts = watts;
        }
        !is_same
    });
}

fn told(report: &NodeReport) -> impl Iterator<Item = (BackendKind, bool, &Arc<Cards>)> {
    report.backends.iter().filter_map(|backend| {
        Some((backend.kind, backend.standing == BackendState::Ready, backend.cards.as_ref()?))
    })
}

impl Discovery {
    fn is_of(&self, report: &NodeReport) -> bool {
        self.backends.len() == told(report).count()
            && self.backends.iter().zip(told(report)).all(|(one, (kind, is_ready, cards))| {
                one.kind == kind && one.is_ready == is_ready && Arc::ptr_eq(&one.cards, cards)
            })
    }

    /// The makers of which a driver has answered.
    fn ready(&self) -> BTreeSet<&'static str> {
        self.backends.iter().filter(|one| one.is_ready).filter_map(|one| one.kind.facts().vendor).collect()
    }

    /// The makers of which every card is listed.
    fn complete(&self) -> BTreeSet<&'static str> {
        let vendors: BTreeSet<&'static str> =
            BackendKind::ALL.into_iter().filter_map(|kind| kind.facts().vendor).collect();
        let is_complete = |vendor: &&'static str| {
            let mut of = BackendKind::ALL.into_iter().filter(|kind| kind.facts().vendor == Some(*vendor));
            of.all(|kind| {
                self.backends.iter().any(|one| one.kind == kind && one.is_ready && one.cards.complete)
            })
        };
        vendors.into_iter().filter(is_complete).collect()
    }
}

/// A GPU object of the node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnGpu {
    uuid: Option<String>,
    /// Whether an agent made it.
    is_ours: bool,
    spec: Value,
    /// The part of the status that the agent writes.
    status: Value,
    /// What bind wrote: whom the card was taken for.
    taken: Vec<Value>,
    version: String,
}

impl Row for OwnGpu {
    const KIND: &'static str = "gpus";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let spec = object["spec"].clone();
        let by = &object["metadata"]["labels"][object::MANAGED_BY];
        Ok(Self {
            uuid: spec["uuid"].as_str().map(str::to_owned),
            is_ours: by.as_str() == Some(object::BY_AGENT),
            status: documents::published(&object["status"]),
            taken: object["status"]["assumed"].as_array().cloned().unwrap_or_default(),
            version: object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            spec,
        })
    }
}

/// A ResourceSlice of the node.
pub(crate) struct OwnSlice(DeviceSlice);

impl Row for OwnSlice {
    const KIND: &'static str = "resourceslices";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        DeviceSlice::read(object).map(Self)
    }
}

/// The card of a device, by the slices of the node.
fn card_of(slices: &Rows<OwnSlice>) -> impl Fn(&DeviceName) -> Option<power_hal::Key> + use<> {
    let devices = slices.with(|rows| PublishedDevices::of(rows.values().map(|held| &held.row.0)));
    move |name| power_hal::Key::gpu(devices.find(name)?.card.as_deref()?).ok()
}

closed_label! {
    /// What became of a GPU object, or was seen of its card.
    pub(crate) enum GpuDeed {
        /// The object was written.
        Written = "written",
        /// A write failed.
        Failed = "failed",
        /// The card has left, and its object was deleted.
        Deleted = "deleted",
        /// Cards that bind took for a pod are free of it: the kubelet has given it cards, or the pod is gone.
        Freed = "freed",
        /// The kubelet did not say who holds cards.
        KubeletSilent = "kubelet_silent",
        /// A pod holds other cards than bind took for it.
        Mismatch = "mismatch",
    }
}

label_set! {
    struct ByDeed {
        outcome: GpuDeed,
    }
}

/// The counters of GPU objects.
#[derive(Clone, Default)]
pub(crate) struct GpuCounts(Family<ByDeed, Counter>);

impl GpuCounts {
    pub(crate) fn register(registry: &mut MetricsRegistry) -> Self {
        let counts = Self::default();
        registry.register(
            "joulie_gpu_objects",
            "What became of the GPU objects of the node, and what was seen of its cards",
            counts.0.clone(),
        );
        counts
    }

    fn count(&self, outcome: GpuDeed) {
        self.0.get_or_create(&ByDeed { outcome }).inc();
    }
}

/// What the task needs.
pub(crate) struct GpuObjects {
    pub(crate) node: String,
    /// The root of the host's files.
    pub(crate) root: PathBuf,
    pub(crate) kubelet: Kubelet,
    pub(crate) cards: watch::Receiver<Discovery>,
    pub(crate) nodes: Rows<NodeRow>,
    pub(crate) rows: Rows<OwnGpu>,
    pub(crate) pods: Rows<PodOwner>,
    /// The ResourceSlices of the node, if they are read.
    pub(crate) slices: Option<Rows<OwnSlice>>,
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn HostClock>,
    pub(crate) counts: GpuCounts,
    pub(crate) events: Recorder,
}

impl GpuObjects {
    /// Keeps the objects until the program ends.
    pub(crate) async fn run(self, stop: Stop) {
        let began = self.clock.mono();
        let mut keeper = Keeper {
            began,
            answer: LastAnswer::default(),
            is_silent: false,
            found: Vec::new(),
            watts: BTreeMap::new(),
            written: BTreeMap::new(),
            retry: (began, 0),
            mismatched: BTreeSet::new(),
            repeats: Repeats::every(REPEAT_WINDOW),
            parts: self,
        };
        while !stop.requested_within(EVERY).await {
            let round = keeper.round();
            tokio::select! {
                () = round => {}
                () = stop.requested() => return,
            }
        }
    }
}

/// What the task remembers.
struct Keeper {
    parts: GpuObjects,
    began: Mono,
    answer: LastAnswer,
    is_silent: bool,
    /// The cards as they were last found, with what the files of the bus say.
    found: Vec<Card>,
    /// What they were measured to draw.
    watts: BTreeMap<power_hal::Key, CardWatts>,
    /// What was last written of each object, and when.
    written: BTreeMap<(String, Part), (Value, Mono)>,
    /// When the next write may be tried, and how often one has failed.
    retry: (Mono, u32),
    /// The UIDs of pods that hold other cards than were taken for them.
    mismatched: BTreeSet<String>,
    repeats: Repeats,
}

/// The part of an object that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Spec,
    Status,
}

impl Keeper {
    async fn round(&mut self) {
        self.find().await;
        self.ask().await;
        let now = self.parts.clock.mono();
        let Some(node) = self.parts.nodes.get(&ObjectKey::cluster(&self.parts.node)) else { return };
        let is_known = self.parts.rows.is_synced() && self.parts.pods.is_synced();
        if !is_known || node.row.uid.is_empty() || self.retry.0 > now {
            return;
        }
        match self.write_all(&node.row, now).await {
            Ok(()) => self.retry = (now, 0),
            Err(error) => {
                let failures = self.retry.1.saturating_add(1);
                let wait = RETRY_FIRST.saturating_mul(1 << failures.min(6)).min(RETRY_MOST);
                self.retry = (now.plus(wait), failures);
                self.parts.counts.count(GpuDeed::Failed);
                if let Some(said) = self.repeats.note(&error, now) {
                    tracing::warn!(
                        node = self.parts.node,
                        "a GPU object could not be written: {error}{said}"
                    );
                }
            }
        }
    }

    /// Takes in a changed list of cards.
    async fn find(&mut self) {
        if !self.parts.cards.has_changed().unwrap_or(false) {
            return;
        }
        let discovery = self.parts.cards.borrow_and_update().clone();
        self.watts.clone_from(&discovery.watts);
        let root = self.parts.root.clone();
        let found = tokio::task::spawn_blocking(move || documents::cards(&root, &listed(&discovery))).await;
        // The thread ends without an answer only while the program ends.
        if let Ok(found) = found {
            self.found = found;
        }
    }

    /// Asks the kubelet who holds which card, on a node that has some.
    async fn ask(&mut self) {
        if self.found.is_empty() {
            return;
        }
        match self.parts.kubelet.ask().await {
            Ok(held) => {
                self.is_silent = false;
                let held = match &self.parts.slices {
                    Some(slices) => held.with_claims(card_of(slices)),
                    None => held,
                };
                let instances = self.found.iter().flat_map(|card| &card.facts.instances);
                let ids: BTreeSet<&str> = instances.map(|one| one.id.as_str()).collect();
                let held = held.with_instances(|id| ids.contains(id));
                self.answer.set(self.parts.clock.mono(), held);
            }
            Err(none) => {
                self.parts.counts.count(GpuDeed::KubeletSilent);
                if !self.is_silent {
                    tracing::warn!(
                        "the kubelet does not say who holds GPUs; without an answer for 60 s they take no pods: {none}"
                    );
                }
                self.is_silent = true;
            }
        }
    }

    async fn write_all(&mut self, node: &NodeRow, now: Mono) -> Result<(), String> {
        let rows = self.parts.rows.all();
        let pods = self.parts.pods.all();
        let sharing = Sharing::of(&node.labels);
        let holders = match (self.answer.held(now), now.since(self.began) < PATIENCE) {
            (Some(held), _) => Some(Holders::known(held, &pods)),
            (None, true) => None,
            (None, false) => Some(Holders::UNKNOWN),
        };
        self.compare(self.answer.held(now).cloned(), &pods);
        let named = |uuid: &str| {
            rows.iter()
                .find(|(_, held)| held.row.uuid.as_deref() == Some(uuid))
                .map(|(key, _)| key.name.clone())
        };
        let documents: Vec<Document> = self
            .found
            .iter()
            .map(|card| {
                let watts = self.watts.get(&card.facts.key).copied().unwrap_or_default();
                let document = Document::of(&self.parts.node, card, sharing, holders.as_ref(), &named);
                let seen = rows.get(&ObjectKey::cluster(&document.name));
                document.with_watts(watts, seen.map(|held| &held.row.status))
            })
            .collect();
        for document in &documents {
            let seen = rows.get(&ObjectKey::cluster(&document.name)).map(|held| held.row.clone());
            let spec = seen.as_ref().map(|row| &row.spec);
            if self.differs((&document.name, Part::Spec), spec, &document.spec, now) {
                self.apply(&document.name, Part::Spec, &document.spec, Some(node)).await?;
            }
            let status = seen.as_ref().map(|row| &row.status);
            if let Some(wanted) = &document.status
                && self.differs((&document.name, Part::Status), status, wanted, now)
            {
                self.apply(&document.name, Part::Status, wanted, None).await?;
            }
        }
        let (complete, ready) = {
            let discovery = self.parts.cards.borrow();
            (discovery.complete(), discovery.ready())
        };
        for (key, held) in rows.iter().filter(|(_, held)| !held.row.taken.is_empty()) {
            self.free(&key.name, &held.row, &pods).await?;
        }
        // After a start the drivers are opened one by one.
        let is_early = now.since(self.began) < PATIENCE;
        for (key, held) in rows.iter().filter(|(_, held)| held.row.is_ours) {
            let name = &key.name;
            if documents.iter().any(|document| document.name == *name) {
                continue;
            }
            if self.has_left(&held.row, &complete) {
                self.delete(name).await?;
            } else if !is_early
                || held.row.spec["vendor"].as_str().is_some_and(|vendor| ready.contains(vendor))
            {
                let wanted = documents::unseen(&held.row.status);
                if self.differs((name, Part::Status), Some(&held.row.status), &wanted, now) {
                    self.apply(name, Part::Status, &wanted, None).await?;
                }
            }
        }
        Ok(())
    }

    /// Ends what bind took for pods that need it no more. The server refuses if somebody has written since; then the next
    /// round looks again.
    async fn free(&self, name: &str, row: &OwnGpu, pods: &documents::Pods) -> Result<(), String> {
        let held = self.answer.held(self.parts.clock.mono());
        let stands = documents::standing(&row.taken, held, pods, self.parts.clock.wall());
        if stands.len() == row.taken.len() {
            return Ok(());
        }
        let body = json!({"metadata": {"resourceVersion": row.version}, "status": {"assumed": stands}});
        let (api, params, patch) = (self.api(), PatchParams::default(), Patch::Merge(body));
        let done = tokio::time::timeout(TIMEOUT, api.patch_status(name, &params, &patch)).await;
        match done.map_err(|_| NO_ANSWER.to_owned())? {
            Ok(_) => {
                tracing::info!(
                    node = self.parts.node,
                    gpu = name,
                    "what was taken for pods that need it no more is free"
                );
                self.parts.counts.count(GpuDeed::Freed);
                Ok(())
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether a card that is not listed is gone: its maker's driver lists all of its cards, and so does the bus.
    fn has_left(&self, row: &OwnGpu, complete: &BTreeSet<&'static str>) -> bool {
        let vendor = row.spec["vendor"].as_str();
        let is_listed = |address: &str| pci::is_there(&self.parts.root, address);
        vendor.is_some_and(|vendor| complete.contains(vendor))
            && !row.spec["pciAddress"].as_str().is_some_and(is_listed)
    }

    fn differs(&self, (name, part): (&str, Part), seen: Option<&Value>, wanted: &Value, now: Mono) -> bool {
        let last = self.written.get(&(name.to_owned(), part));
        seen != Some(wanted) && last.is_none_or(|(value, at)| value != wanted || now.since(*at) >= AGAIN)
    }

    /// Counts pods that hold other cards than bind took for them, each once, and tells it in an Event.
    fn compare(&mut self, held: Option<HeldCards>, pods: &documents::Pods) {
        let Some(held) = held else { return };
        let now: BTreeSet<String> = documents::mismatched(&held, pods, &self.found);
        for uid in now.difference(&self.mismatched) {
            self.parts.counts.count(GpuDeed::Mismatch);
            let note = documents::mismatch_note(&self.parts.node, uid, pods);
            tracing::info!(pod = uid, "{}", note.text);
            self.parts.events.say(note);
        }
        self.mismatched = now;
    }

    fn api(&self) -> Api<DynamicObject> {
        Api::all_with(self.parts.client.clone(), &ApiResource::erase::<Gpu>(&()))
    }

    /// Writes a part of an object. `node` owns it, so that it goes with its Node.
    async fn apply(
        &mut self,
        name: &str,
        part: Part,
        value: &Value,
        node: Option<&NodeRow>,
    ) -> Result<(), String> {
        let resource = ApiResource::erase::<Gpu>(&());
        let mut body =
            json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}});
        if let Some(node) = node {
            body["metadata"]["labels"] = json!({object::MANAGED_BY: object::BY_AGENT});
            body["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Node", "name": self.parts.node, "uid": node.uid}]);
        }
        let field = if part == Part::Spec { "spec" } else { "status" };
        body[field] = value.clone();
        let (api, params, patch) =
            (self.api(), PatchParams::apply(manager::AGENT).force(), Patch::Apply(body));
        let write = async {
            match part {
                Part::Spec => api.patch(name, &params, &patch).await,
                Part::Status => api.patch_status(name, &params, &patch).await,
            }
        };
        let done = tokio::time::timeout(TIMEOUT, write).await;
        done.map_err(|_| NO_ANSWER.to_owned())?.map_err(|error| error.to_string())?;
        self.parts.counts.count(GpuDeed::Written);
        self.written.insert((name.to_owned(), part), (value.clone(), self.parts.clock.mono()));
        Ok(())
    }

    async fn delete(&mut self, name: &str) -> Result<(), String> {
        let (api, params) = (self.api(), DeleteParams::default());
        let done = tokio::time::timeout(TIMEOUT, api.delete(name, &params)).await;
        match done.map_err(|_| NO_ANSWER.to_owned())? {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.to_string()),
            Ok(_) => {}
        }
        tracing::info!(
            node = self.parts.node,
            gpu = name,
            "the card has left the node, and its object is deleted"
        );
        self.parts.counts.count(GpuDeed::Deleted);
        self.written.retain(|(of, _), _| of != name);
        Ok(())
    }
}

/// The cards of all backends with their makers, each once.
fn listed(discovery: &Discovery) -> Vec<Listed> {
    let mut all: BTreeMap<power_hal::Key, Listed> = BTreeMap::new();
    for one in &discovery.backends {
        let Some(vendor) = one.kind.facts().vendor else { continue };
        for card in &one.cards.list {
            let is_shown = one.is_ready && one.cards.answered;
            all.entry(card.key).or_insert_with(|| Listed { vendor, facts: card.clone(), is_shown });
        }
    }
    all.into_values().take(CARDS_MAX).collect()
}
