//! The cores that the free GPUs of a node need, and which pods without GPUs leave to them (docs/adr/0040).
//!
//! ```text
//! spare   = what the node can give (status.allocatable.cpu) − what its pods ask for
//! reserve = free cards × what the pods with GPUs of this cluster ask for with each card,
//!           and at most the node's cores ÷ its cards with each card
//! room    = spare − reserve
//! ```
//!
//! A pod without GPUs that asks for more than the room would take cores that free cards need. Where anything of that is
//! not known (no GPU pod in the cluster, a node without a size, too many pods) nothing is reserved.
//!
//! The same rows say what kube-scheduler counts on each node, for the shortlist, and what `SCORING_FORMULA=consolidate` counts
//! there. There, a GPU of a cluster without pods with GPUs keeps its share of the node's cores.

use crate::budgets::Left;
use crate::gpus::Gpus;
use crate::index::Registry;
use crate::listing::Listing;
use crate::rows::{PodRow, Stage};
use crate::snapshot::{Fleet, Node};
use host_kit::reflect::{ReflectEvent, Row, Rows};
use joulie_api::extender::pod;
use joulie_api::quantity::Quantity;
use joulie_api::sleep::SleepAnnotation;
use joulie_core::placement::assumed::{NodeKey, PodUid};
use joulie_core::placement::demand::{GpuResource, GpuVendor, PodDemand};
use joulie_core::placement::gpu::{GpuPhase, PhysicalGpu};
use joulie_core::placement::kube_scheduler::{Amounts, ScheduledNode, ScheduledPod};
use joulie_core::placement::score::{
    ConsolidateFacts, ConsolidateTerms, GpuNodeUse, GpuSupply, NodeCards, WholeNodes,
};
use power_units::Watts;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most pods that are followed. While there are more, nothing is reserved.
const PODS_MAX: usize = 200_000;

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoresRow {
    /// Thousandths of a core that pods can have; `None` if the node does not say it.
    allocatable: Option<i64>,
    /// All that pods can have, and how many pods there may be. What the node does not say is zero.
    size: ScheduledNode,
    door: Door,
}

/// Whether new pods can come to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// They can.
    Open,
    /// The operator let it sleep, and wakes it for them.
    Asleep,
    /// Somebody cordoned it.
    Cordoned,
}

impl Door {
    fn read(object: &Value) -> Self {
        let is_cordoned = object["spec"]["unschedulable"].as_bool().unwrap_or(false);
        // One that is left to people does not come back, nor does one whose mark cannot be read.
        let mark = SleepAnnotation::text(object).and_then(SleepAnnotation::read);
        let sleeps = mark.is_some_and(|mark| mark.phase.comes_back());
        match (is_cordoned, sleeps) {
            (false, _) => Self::Open,
            (true, true) => Self::Asleep,
            (true, false) => Self::Cordoned,
        }
    }
}

impl Row for CoresRow {
    const KIND: &'static str = "cores";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let allocatable = &object["status"]["allocatable"];
        let read =
            |text: Option<&str>| text.map(Quantity::parse).transpose().map_err(|error| error.to_string());
        let milli = read(allocatable["cpu"].as_str())?.map(Quantity::milli_value).filter(|milli| *milli > 0);
        let whole = |text| Ok::<u64, String>(read(text)?.map_or(0, |amount| natural(amount.value())));
        let mut gpus = 0_u64;
        for (name, amount) in allocatable.as_object().into_iter().flatten() {
            if matches!(GpuResource::read(name), Some(GpuResource::Whole(_))) {
                gpus = gpus.saturating_add(whole(amount.as_str())?);
            }
        }
        let memory_bytes = whole(allocatable["memory"].as_str())?;
        let pods_max = u32::try_from(whole(allocatable["pods"].as_str())?).unwrap_or(u32::MAX);
        let has = Amounts { cpu_milli: milli.map_or(0, natural), memory_bytes, gpus };
        let size = ScheduledNode::empty(has, pods_max);
        Ok(Self { allocatable: milli, size, door: Door::read(object) })
    }
}

fn natural(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}

/// A pod as kube-scheduler counts it. One that requests no cores counts with the least of its class, and all its containers
/// as one.
pub(crate) fn scheduled(demand: &PodDemand) -> ScheduledPod {
    let memory = Some(demand.memory_bytes).filter(|bytes| *bytes > 0);
    let gpus = demand.gpus.map_or(0, |gpus| u64::from(gpus.count));
    ScheduledPod::EMPTY.with(Some(u64::from(demand.cpu.get())), memory, gpus)
}

/// What a pod asks for.
#[derive(Clone, Debug)]
struct PodCores {
    /// Its node; `None` while it waits for one.
    node: Option<Arc<str>>,
    milli: i64,
    cards: i64,
    scheduled: ScheduledPod,
    /// It runs on every node, or belongs to one: a node with nothing else is not used.
    is_of_node: bool,
}

/// What the pods of a node ask for.
#[derive(Clone, Copy, Debug, Default)]
struct OfPods {
    milli: i64,
    /// With its pods, and without what it can give.
    node: ScheduledNode,
    /// Pods that run on every node.
    of_node: u32,
}

/// A node with free cards.
#[derive(Clone, Debug)]
struct GpuNode {
    number: usize,
    name: String,
    allocatable: i64,
    cards: i64,
    free: i64,
}

/// A node that says what it can give.
#[derive(Clone, Debug)]
struct SizedNode {
    number: usize,
    name: Arc<str>,
    size: ScheduledNode,
    door: Door,
}

/// Follows nodes and pods.
#[derive(Default)]
pub(crate) struct FreeCores {
    /// `None` where nothing is reserved.
    nodes: Option<Rows<CoresRow>>,
    pods: BTreeMap<PodUid, PodCores>,
    listing: Listing,
    /// What the pods of each node ask for.
    requested: BTreeMap<Arc<str>, OfPods>,
    /// What the pods with GPUs ask for: thousandths of a core, and cards.
    with_gpus: (i64, i64),
    gpu_nodes: Vec<GpuNode>,
    /// The nodes that say what they can give, and by which revision of the registry.
    sizes: Vec<SizedNode>,
    revision: Option<u64>,
}

impl FreeCores {
    pub(crate) fn new(nodes: Option<Rows<CoresRow>>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Takes in an event of the watch of pods.
    pub(crate) fn follow(&mut self, event: &ReflectEvent<PodRow>) {
        if self.nodes.is_none() {
            return;
        }
        match event {
            ReflectEvent::Begin => self.listing.begin(),
            ReflectEvent::Seen { row, .. } => {
                self.listing.see(row.uid);
                self.see(row);
            }
            ReflectEvent::Gone { uid } => self.forget(pod::uid(uid)),
            ReflectEvent::Whole => {
                let gone = self.listing.end(self.pods.keys().copied());
                gone.into_iter().for_each(|pod| self.forget(pod));
            }
        }
    }

    fn see(&mut self, row: &PodRow) {
        self.forget(row.uid);
        if row.stage == Stage::Ended || self.pods.len() > PODS_MAX {
            return;
        }
        let node = (!row.node.is_empty()).then(|| match self.requested.get_key_value(row.node.as_str()) {
            Some((name, _)) => name.clone(),
            None => row.node.as_str().into(),
        });
        let cards = row.demand.gpus.map_or(0, |gpus| i64::from(gpus.count));
        let milli = i64::from(row.demand.cpu.get());
        let (scheduled, is_of_node) = (scheduled(&row.demand), row.is_of_node);
        let pod = PodCores { node, milli, cards, scheduled, is_of_node };
        self.count(&pod, 1);
        self.pods.insert(row.uid, pod);
    }

    fn forget(&mut self, pod: PodUid) {
        if let Some(pod) = self.pods.remove(&pod) {
            self.count(&pod, -1);
        }
    }

    fn count(&mut self, pod: &PodCores, by: i64) {
        if let Some(node) = &pod.node {
            let sums = self.requested.entry(node.clone()).or_default();
            sums.milli += by * pod.milli;
            let of_node = u32::from(pod.is_of_node);
            if by > 0 {
                sums.node.bind(&pod.scheduled);
                sums.of_node = sums.of_node.saturating_add(of_node);
            } else {
                sums.node.release(&pod.scheduled);
                sums.of_node = sums.of_node.saturating_sub(of_node);
            }
            if sums.node.pods == 0 {
                self.requested.remove(node);
            }
        }
        if pod.cards > 0 {
            self.with_gpus.0 += by * pod.milli;
            self.with_gpus.1 += by * pod.cards;
        }
    }

    /// Takes in what has changed of nodes and cards.
    pub(crate) fn renew(&mut self, registry: &Registry, gpus: &Gpus) {
        let Some(rows) = &mut self.nodes else { return };
        if rows.news(|_| ()).is_some() || self.revision != Some(registry.revision()) {
            self.revision = Some(registry.revision());
            self.sizes = rows.with(|rows| {
                let nodes = rows.iter().filter_map(|(key, held)| {
                    let NodeKey(number) = registry.find(&key.name)?;
                    let (number, name) = (usize::try_from(number).ok()?, Arc::from(key.name.as_str()));
                    Some(SizedNode { number, name, size: held.row.size, door: held.row.door })
                });
                nodes.collect()
            });
        }
        self.gpu_nodes = rows.with(|rows| {
            let nodes = rows.iter().filter_map(|(key, held)| {
                let NodeKey(number) = registry.find(&key.name)?;
                let number = usize::try_from(number).ok()?;
                let cards = gpus.cards(Some(number));
                let free = cards.iter().filter(|card| is_free(card)).count();
                Some(GpuNode {
                    number,
                    name: key.name.clone(),
                    allocatable: held.row.allocatable?,
                    cards: i64::try_from(cards.len()).ok()?,
                    free: i64::try_from(free).ok().filter(|free| *free > 0)?,
                })
            });
            nodes.collect()
        });
    }

    /// The room of each node in thousandths of a core, by number; that of a node that reserves nothing is boundless.
    pub(crate) fn room(&self, numbers: usize) -> Box<[i64]> {
        let (milli, cards) = self.with_gpus;
        if cards <= 0 || self.gpu_nodes.is_empty() || self.pods.len() > PODS_MAX {
            return Box::default();
        }
        // Rounded up: a card that is a little short of cores is as good as none.
        let each = (milli + cards - 1) / cards;
        let mut room = vec![i64::MAX; numbers].into_boxed_slice();
        for node in &self.gpu_nodes {
            let requested = self.requested.get(node.name.as_str()).map_or(0, |sums| sums.milli);
            let reserve = node.free * each.min(node.allocatable / node.cards.max(1));
            if let Some(room) = room.get_mut(node.number) {
                *room = node.allocatable - requested - reserve;
            }
        }
        room
    }

    /// The nodes as kube-scheduler counts them, by number. One whose size is not known has none.
    pub(crate) fn loads(&self, numbers: usize) -> Box<[ScheduledNode]> {
        if self.sizes.is_empty() || self.pods.len() > PODS_MAX {
            return Box::default();
        }
        let mut loads = vec![ScheduledNode::default(); numbers].into_boxed_slice();
        for SizedNode { number, name, size, .. } in &self.sizes {
            if let Some(load) = loads.get_mut(*number) {
                let with = self.requested.get(name).map(|sums| sums.node).unwrap_or_default();
                *load = ScheduledNode { allocatable: size.allocatable, pods_max: size.pods_max, ..with };
            }
        }
        loads
    }

    /// The nodes as `SCORING_FORMULA=consolidate` counts them, by number; `None` for one that is not known. `left` is what is
    /// left for pods when `assumed` is taken off, the limits above the nodes included.
    pub(crate) fn consolidated(
        &self,
        fleet: &Fleet,
        left: &Left,
        assumed: &[Watts],
    ) -> Box<[Option<ConsolidateTerms>]> {
        let mut all = vec![None; assumed.len()].into_boxed_slice();
        if self.pods.len() > PODS_MAX {
            return all;
        }
        let nodes = self.sizes.iter().filter_map(|sized| {
            let node = fleet.nodes.get(sized.number)?;
            Some((sized.number, node, self.counted(sized, node, fleet)))
        });
        let counted: Vec<_> = nodes.collect();
        let mut models: BTreeMap<GpuModel, WholeNodes> = BTreeMap::new();
        for (_, node, (facts, used)) in &counted {
            if let (Some(cards), Some(model)) = (facts.cards.filter(|cards| cards.all > 0), model(node)) {
                models.entry(model).or_default().see(cards, *used);
            }
        }
        for (number, node, (facts, used)) in counted {
            let alike = model(node).and_then(|model| models.get(&model));
            let spares = |cards| alike.is_some_and(|nodes| nodes.spares(cards, used));
            let is_spare = facts.cards.is_some_and(|cards| cards.all > 0 && spares(cards));
            let supply = alike.map(WholeNodes::supply).unwrap_or_default();
            let assumed = assumed.get(number).copied().unwrap_or(Watts::ZERO);
            let facts = ConsolidateFacts { is_spare, supply, ..facts };
            let terms = facts.of_node(&node.facts()).map(|facts| {
                let room = facts.room.map(|own| left.of(number).map_or(own, |left| own.min(left + assumed)));
                ConsolidateTerms::of(&ConsolidateFacts { room, ..facts })
            });
            if let Some(slot) = all.get_mut(number) {
                *slot = terms;
            }
        }
        all
    }

    /// What is counted on a node, and how its GPUs can be had. A node that sleeps can be woken; one that is awake must say how it
    /// is.
    fn counted(&self, sized: &SizedNode, node: &Node, fleet: &Fleet) -> (ConsolidateFacts, GpuNodeUse) {
        let load = self.requested.get(&sized.name).copied().unwrap_or_default();
        let has = sized.size.allocatable;
        let cards = cards(has.gpus, load.node.requested.gpus, fleet.gpus.cards(Some(sized.number)));
        let cores = u32::try_from(has.cpu_milli).unwrap_or(u32::MAX);
        let facts = ConsolidateFacts {
            cores_milli: Some(cores).filter(|milli| *milli > 0),
            requested_milli: u32::try_from(load.milli.max(0)).unwrap_or(u32::MAX),
            cards: Some(cards),
            milli_per_gpu: self.milli_per_gpu(cores, cards.all),
            is_spare: false,
            supply: GpuSupply::Ample,
            is_used: load.node.pods > load.of_node,
            at_rest: None,
            room: None,
            is_emptied: false,
        };
        let comes = match sized.door {
            Door::Open => facts.of_node(&node.facts()).is_some_and(|facts| !facts.is_emptied),
            Door::Asleep => true,
            Door::Cordoned => false,
        };
        let used = match comes {
            false => GpuNodeUse::Closed,
            true if cards.all > 0 && !facts.is_used && cards.free >= cards.all => GpuNodeUse::Whole,
            true => GpuNodeUse::Open,
        };
        (facts, used)
    }

    /// What a free GPU keeps of the cores of its node.
    fn milli_per_gpu(&self, cores: u32, gpus: u32) -> u32 {
        let share = cores / gpus.max(1);
        let (milli, cards) = self.with_gpus;
        if cards <= 0 {
            share
        } else {
            u32::try_from((milli + cards - 1) / cards).unwrap_or(u32::MAX).min(share)
        }
    }
}

/// What tells models of GPUs apart: the vendor, and what one draws at most.
type GpuModel = (Option<GpuVendor>, Watts);

/// The model of a node's GPUs; `None` where it is not known, so that the node is neither spare nor lets others be.
fn model(node: &Node) -> Option<GpuModel> {
    let gpus = node.hardware.as_ref()?.gpus?;
    Some((gpus.vendor, gpus.max?))
}

/// The GPUs of a node: by their objects where there are some, otherwise by what its kubelet offers and its pods ask for. Where it
/// offers more than there are, cards are shared, and what it offers is what pods get.
fn cards(offered: u64, requested: u64, objects: &[PhysicalGpu]) -> NodeCards {
    let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let free = small(offered.saturating_sub(requested));
    match u32::try_from(objects.len()) {
        Ok(all) if all > 0 && offered <= u64::from(all) => {
            let whole = objects.iter().filter(|card| is_free(card)).count();
            let whole = u32::try_from(whole).unwrap_or(0);
            // No object tells of a pod that was bound a moment ago; a kubelet that offers none may have all by claims.
            NodeCards { all, free: if offered == 0 { whole } else { whole.min(free) } }
        }
        Ok(_) | Err(_) => NodeCards { all: small(offered), free },
    }
}

/// Whether a pod could have the whole card.
fn is_free(card: &PhysicalGpu) -> bool {
    card.phase == GpuPhase::Available && card.vram.is_some_and(|vram| vram.free_mb() == Some(vram.total_mb()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burst;
    use crate::gpus::GpuRow;
    use crate::index::Index;
    use crate::snapshot::{Node, Rules};
    use host_kit::reflect::by_hand;
    use joulie_api::labels;
    use joulie_core::placement::class::SchedulableClass;
    use joulie_core::placement::estimate::{HardwareRecord, NodeGpus};
    use joulie_core::placement::freshness::{Evidence, FreshnessRule, Now, PlanLease, UnixTime};
    use joulie_core::placement::gpu::Vram;
    use joulie_core::placement::score::{ConsolidatePod, Consolidated, HeldBack, TwinPower, TwinStatus};
    use power_units::{Micros, Stamp};
    use serde_json::json;

    fn pod(uid: &str, node: &str, cpu: &str, cards: u32, phase: &str) -> ReflectEvent<PodRow> {
        let limits = if cards > 0 { json!({"nvidia.com/gpu": cards.to_string()}) } else { json!({}) };
        let object = json!({"metadata": {"name": uid, "uid": uid}, "status": {"phase": phase},
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}, "limits": limits}}]}});
        ReflectEvent::Seen { uid: uid.to_owned(), row: Arc::new(PodRow::read(&object).unwrap()) }
    }

    fn gpu(node: &str, number: usize, phase: &str) -> Value {
        let allocated = if phase == "Available" { 0 } else { 40_000 };
        json!({"metadata": {"name": format!("{node}-{number}"), "uid": format!("{node}-{number}")},
               "spec": {"nodeName": node, "uuid": format!("{node}-{number}"), "totalVRAMmb": 40_000},
               "status": {"allocatedVRAMmb": allocated, "phase": phase, "podName": "p"}})
    }

    /// Node `a` has 64 cores and four cards, of which three are free; `b` has 16 cores and no card; `c` says no size.
    fn world(events: Vec<ReflectEvent<PodRow>>) -> Box<[i64]> {
        let mut registry = Registry::default();
        for node in ["a", "b", "c"] {
            registry.number(node);
        }
        let (mut writer, nodes) = by_hand::<CoresRow>();
        let node = |name: &str, cpu: Value| json!({"metadata": {"name": name, "uid": name}, "status": {"allocatable": {"cpu": cpu}}});
        writer.list(&[node("a", json!("64")), node("b", json!("16")), node("c", json!(null))]);
        let (mut writer, rows) = by_hand::<GpuRow>();
        let cards = [
            gpu("a", 0, "Allocated"),
            gpu("a", 1, "Available"),
            gpu("a", 2, "Available"),
            gpu("a", 3, "Available"),
            gpu("c", 0, "Available"),
        ];
        writer.list(&cards);
        let gpus =
            rows.with(|rows| Gpus::of(rows.values(), &registry, Arc::default(), UnixTime::from_micros(0)));
        let mut cores = FreeCores::new(Some(nodes));
        events.iter().for_each(|event| cores.follow(event));
        cores.renew(&registry, &gpus);
        cores.room(3)
    }

    #[test]
    fn free_cards_keep_the_cores_that_pods_ask_for_with_a_card() {
        let training = || pod("t", "a", "12", 1, "Running");
        // 64 − 12 are spare, and each of the three free cards keeps 12.
        assert_eq!(world(vec![training()])[0], 64_000 - 12_000 - 36_000);
        // Two pods with three cards ask for 12 + 6 cores: 6 for each card. One of them waits for a node.
        assert_eq!(world(vec![training(), pod("w", "", "6", 2, "Pending")])[0], 64_000 - 12_000 - 18_000);
        // Pods without cards take of what is spare, and set no measure.
        assert_eq!(world(vec![training(), pod("c", "a", "4", 0, "Running")])[0], 64_000 - 16_000 - 36_000);
        // A card keeps no more than its share of the node: 16 cores.
        assert_eq!(world(vec![pod("t", "b", "100", 1, "Running")])[0], 64_000 - 48_000);
        // Nodes without free cards, and without a size, keep nothing.
        assert_eq!(world(vec![training()])[1..], [i64::MAX, i64::MAX]);
        // 10 cores for three cards are 3.334 each.
        assert_eq!(world(vec![pod("t", "b", "10", 3, "Running")])[0], 64_000 - 3 * 3_334);
    }

    #[test]
    fn without_a_pod_that_asks_for_cards_nothing_is_kept() {
        assert!(world(Vec::new()).is_empty());
        assert!(world(vec![pod("c", "a", "4", 0, "Running")]).is_empty());
        // Ended, gone, and not in a complete list.
        let training = || pod("t", "a", "12", 1, "Running");
        assert!(world(vec![training(), pod("t", "a", "12", 1, "Succeeded")]).is_empty());
        assert!(world(vec![training(), ReflectEvent::Gone { uid: "t".to_owned() }]).is_empty());
        let other = || pod("c", "a", "4", 0, "Running");
        assert!(world(vec![training(), ReflectEvent::Begin, other(), ReflectEvent::Whole]).is_empty());
        // Seen twice it counts once.
        assert_eq!(world(vec![training(), training()]), world(vec![training()]));
    }

    #[test]
    fn free_gpus_are_those_that_neither_objects_nor_pods_have() {
        let object = |phase| {
            let allocated = if phase == GpuPhase::Available { 0 } else { 40_000 };
            PhysicalGpu {
                key: 0,
                model: None,
                vram: Vram::read(Some(40_000), Some(allocated)),
                island: None,
                phase,
            }
        };
        let objects = [GpuPhase::Available, GpuPhase::Available, GpuPhase::Allocated].map(object);
        let of = |offered, requested| {
            let NodeCards { all, free } = cards(offered, requested, &objects);
            (all, free)
        };
        // One of three is had by a pod that is bound; a second one was bound and is in no object yet.
        assert_eq!((of(3, 1), of(3, 2), of(3, 3)), ((3, 2), (3, 1), (3, 0)));
        // Cards are given by claims, or each by fours.
        assert_eq!((of(0, 0), of(12, 5)), ((3, 2), (12, 7)));
        assert_eq!(cards(8, 3, &[]), NodeCards { all: 8, free: 5 });
    }

    /// Nodes with these objects, and pods.
    fn followed(objects: &[Value], pods: &[ReflectEvent<PodRow>]) -> (Registry, FreeCores) {
        let mut registry = Registry::default();
        for object in objects {
            registry.number(object["metadata"]["name"].as_str().unwrap());
        }
        let (mut writer, nodes) = by_hand::<CoresRow>();
        writer.list(objects);
        let mut cores = FreeCores::new(Some(nodes));
        pods.iter().for_each(|pod| cores.follow(pod));
        cores.renew(&registry, &Gpus::default());
        (registry, cores)
    }

    /// These nodes, just measured.
    fn measured(registry: &Registry, nodes: Box<[Node]>) -> Fleet {
        let now = UnixTime::from_micros(0);
        let rules = Rules {
            scoring: &burst::placement().scoring,
            profile_key: &"".into(),
            freshness: FreshnessRule::new(Micros::MINUTE).unwrap(),
            lease: PlanLease::Unseen,
            now: Now { wall: now, own: Stamp::new(Micros::ZERO) },
        };
        Fleet::of(nodes, Arc::new(Index::of(registry)), &rules, true)
    }

    /// What a pod without GPUs asks for that asks for so many cores.
    fn asking(cpu: Option<&str>) -> ConsolidatePod {
        let pod = json!({"metadata": {"uid": "q"},
            "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}});
        ConsolidatePod::of(&PodRow::read(&pod).unwrap().demand)
    }

    #[test]
    fn a_node_is_not_filled_beyond_what_the_limits_above_it_can_grant() {
        let size = json!({"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}});
        let object = json!({"metadata": {"name": "a", "uid": "a"}, "status": size});
        let (registry, cores) = followed(&[object], &[pod("p", "a", "4", 0, "Running")]);
        let held_back = |entitled: Option<i32>, assumed: i32, added: i32| {
            let watts = Watts::from_int;
            // It draws 300 W and could be granted 700 W.
            let power = TwinPower { measured: Some(watts(300)), capped: Some(watts(700)), trend: None };
            let twin = TwinStatus {
                power: Some(power),
                entitled: entitled.map(watts),
                ..TwinStatus::silent(SchedulableClass::Performance)
            };
            let evidence = Evidence::Dated(Some(UnixTime::from_micros(0)));
            let node = Node { twin: Some(twin), evidence, ..Node::unknown("a") };
            let fleet = measured(&registry, [node].into());
            let assumed = [watts(assumed)];
            let terms = cores.consolidated(&fleet, &fleet.left(&assumed), &assumed)[0].unwrap();
            terms.explain(&asking(None), watts(added), assumed[0]).held_back
        };
        // Nobody says what the limits can grant: it is sure of 50 W, of which 20 W are assumed.
        assert_eq!((held_back(Some(350), 0, 50), held_back(Some(350), 20, 30)), (None, None));
        assert_eq!(held_back(Some(350), 0, 51), Some(HeldBack::OverCap));
        assert_eq!(held_back(Some(350), 20, 31), Some(HeldBack::OverCap));
        // Where power does not follow demand, its cap alone counts.
        assert_eq!((held_back(None, 20, 380), held_back(None, 20, 381)), (None, Some(HeldBack::OverCap)));
    }

    /// The nodes `a`, `b` and `c`, of 64 cores and eight cards each.
    struct Three<'a> {
        hardware: HardwareRecord,
        cordoned: [bool; 3],
        annotations: &'a Value,
        silent: Option<usize>,
        pods: Vec<ReflectEvent<PodRow>>,
    }

    impl Three<'_> {
        fn terms(&self) -> Box<[Option<ConsolidateTerms>]> {
            let names = ["a", "b", "c"];
            let size = json!({"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}});
            let objects = [0, 1, 2].map(|at| {
                json!({"metadata": {"name": names[at], "uid": names[at], "annotations": self.annotations},
                       "spec": {"unschedulable": self.cordoned[at]}, "status": size})
            });
            let (registry, cores) = followed(&objects, &self.pods);
            let power = TwinPower {
                measured: Some(Watts::from_int(105)),
                capped: Some(Watts::from_int(6_100)),
                trend: None,
            };
            let twin = TwinStatus { power: Some(power), ..TwinStatus::silent(SchedulableClass::Performance) };
            let all = [0, 1, 2].map(|at| Node {
                twin: (self.silent != Some(at)).then_some(twin),
                evidence: Evidence::Dated(Some(UnixTime::from_micros(0))),
                hardware: Some(self.hardware),
                ..Node::unknown(names[at])
            });
            let fleet = measured(&registry, all.into());
            let assumed = [Watts::ZERO; 3];
            cores.consolidated(&fleet, &fleet.left(&assumed), &assumed)
        }
    }

    const EIGHT: NodeGpus =
        NodeGpus { count: Some(8), max: Some(Watts::from_int(700)), vendor: None, adds: None };
    const HARDWARE: HardwareRecord =
        HardwareRecord { cpu_max: Some(Watts::from_int(500)), cores: Some(64), gpus: Some(EIGHT) };

    /// A pod without cards may have all cores of a node that is spare.
    #[test]
    fn cores_of_gpu_nodes_are_kept_unless_enough_others_are_whole() {
        let asleep = json!({labels::node::SLEEP_STATE: "asleep 2026-11-28T09:00:00Z b"});
        let of = |hardware, cordoned: [bool; 3], annotations: &Value, silent: Option<usize>| {
            let pods = vec![pod("p", "a", "4", 0, "Running")];
            let asks = asking(Some("60"));
            let terms = Three { hardware, cordoned, annotations, silent, pods }.terms();
            terms
                .iter()
                .map(|terms| terms.map(|terms| terms.explain(&asks, Watts::ZERO, Watts::ZERO)))
                .collect::<Vec<Option<Consolidated>>>()
        };
        let held_back = |cordoned: [bool; 3], annotations: &Value, silent: Option<usize>| {
            of(HARDWARE, cordoned, annotations, silent)
        };
        let why = |all: Vec<Option<Consolidated>>| {
            all.iter().map(|one| one.and_then(|one| one.held_back)).collect::<Vec<_>>()
        };
        let plain = held_back([false; 3], &Value::Null, None);
        // An empty node costs what it was measured to draw, and not 20 % of 500 W and 15 % of 5,600 W.
        assert_eq!(plain[1].unwrap().cost, Some(Watts::from_int(105)));
        assert_eq!(why(plain), [None, None, None]);
        // One that is cordoned, or of which nothing is known, is not whole: then the other empty one is kept, and what is left is one.
        assert_eq!(
            why(held_back([false, false, true], &Value::Null, None)),
            [None, Some(HeldBack::GpuCores), None]
        );
        assert_eq!(why(held_back([false; 3], &Value::Null, Some(2)))[1], Some(HeldBack::GpuCores));
        // One that sleeps can be woken, and one that is left to people cannot.
        assert_eq!(why(held_back([false, false, true], &asleep, None)), [None, None, None]);
        for mark in ["left 2026-11-28T09:00:00Z b", "", "7"] {
            let mark = json!({labels::node::SLEEP_STATE: mark});
            assert_eq!(why(held_back([false, false, true], &mark, None))[1], Some(HeldBack::GpuCores));
        }
        // GPUs of which nothing is known may be of any model.
        let unknown = HardwareRecord { gpus: Some(NodeGpus { max: None, ..EIGHT }), ..HARDWARE };
        assert_eq!(why(of(unknown, [false; 3], &Value::Null, None))[1], Some(HeldBack::GpuCores));
        let none = [Some(HeldBack::GpuCores), Some(HeldBack::GpuCores), Some(HeldBack::GpuCores)];
        assert_eq!(why(held_back([false, true, true], &Value::Null, None)), none);
    }

    #[test]
    fn a_pod_with_cards_goes_where_most_are_free_while_few_are_free_in_all() {
        let demand = |cards: &str| {
            let pod = json!({"metadata": {"uid": "q"}, "spec": {"containers": [
                {"resources": {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": cards}}}]}});
            ConsolidatePod::of(&PodRow::read(&pod).unwrap().demand)
        };
        let fills = |cards: [u32; 3], cordoned: [bool; 3]| {
            let pods = ["a", "b", "c"].iter().zip(cards).map(|(node, n)| pod(node, node, "4", n, "Running"));
            let three = Three {
                hardware: HARDWARE,
                cordoned,
                annotations: &Value::Null,
                silent: None,
                pods: pods.collect(),
            };
            let explain = |terms: &Option<ConsolidateTerms>| {
                terms.unwrap().explain(&demand("1"), Watts::ZERO, Watts::ZERO).fill
            };
            three.terms().iter().map(explain).collect::<Vec<u8>>()
        };
        // 5 of 24 are free, which is more than a fifth: 30 · 8 / 8 and 30 · 5 / 8 are full after it.
        assert_eq!(fills([7, 8, 4], [false; 3]), [30, 30, 18]);
        // 4 of 24 are less: what is left counts, 0 and 30 · 2 / 8.
        assert_eq!(fills([7, 8, 5], [false; 3]), [0, 0, 7]);
        // The free ones of a node that is cordoned cannot be had.
        assert_eq!(fills([7, 8, 4], [false, false, true]), [0, 0, 11]);
    }

    #[test]
    fn a_size_that_is_none_is_refused_or_not_known() {
        let read = |cpu: Value| CoresRow::read(&json!({"status": {"allocatable": {"cpu": cpu}}}));
        assert_eq!(read(json!("63500m")).unwrap().allocatable, Some(63_500));
        for none in [json!("0"), json!("-4"), json!(null), json!(7)] {
            assert_eq!(read(none.clone()).unwrap().allocatable, None, "{none}");
        }
        assert!(read(json!("many")).is_err());
    }
}
