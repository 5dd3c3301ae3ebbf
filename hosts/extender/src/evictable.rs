//! Pods with GPUs that could be evicted, and which of them free the cards that another pod asks for (docs/adr/0048).
//!
//! kube-scheduler knows how many GPUs a node has, and not which. So its victims may free no card that the preemptor can use,
//! while others of the node would. Of these the fewest are chosen, those with the lowest priorities. A victim of
//! kube-scheduler's is spared only where the chosen ones free as much of all that it checks: processors, memory, GPUs and
//! the place of a pod. Whatever else it may be there for (ports, volumes, affinity, spread) keeps it a victim.

use crate::gpus::HeldCard;
use crate::listing::Listing;
use crate::rows::{PodRow, Stage};
use host_kit::reflect::{ReflectEvent, Row, Rows};
use joulie_api::extender::preempt::Victims;
use joulie_api::extender::{PodSummary, pod};
use joulie_api::quantity::Quantity;
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::demand::{GpuResource, GpuVendor, PodDemand};
use joulie_core::placement::gpu::{GpuRequest, PhysicalGpu, fits};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Of so many pods of a node every set is tried. Of more, those that need not go are spared one by one.
const ALL_SETS: usize = 8;
/// More pods than cards of a node are not looked at.
const PODS_MAX: usize = 64;

/// What is kept of a pod that asks for GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardPod {
    uid: Box<str>,
    key: PodUid,
    namespace: Box<str>,
    name: Box<str>,
    labels: BTreeMap<String, String>,
    priority: i64,
    demand: PodDemand,
    /// What its containers request of thousandths of a core and of memory: no more than kube-scheduler counts.
    requested: [u64; 2],
    is_plain: bool,
    /// It was deleted, and its card is free soon without an eviction.
    is_leaving: bool,
}

impl CardPod {
    /// `None` for a pod that asks for none.
    pub(crate) fn read(object: &Value, demand: &PodDemand) -> Option<Arc<Self>> {
        demand.gpus.filter(|gpus| gpus.count > 0)?;
        let meta = &object["metadata"];
        let text = |field: &str| Box::from(meta[field].as_str().unwrap_or_default());
        let labels = meta["labels"].as_object().into_iter().flatten();
        let uid: Box<str> = text("uid");
        Some(Arc::new(Self {
            key: pod::uid(&uid),
            uid,
            namespace: text("namespace"),
            name: text("name"),
            labels: labels
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            priority: priority(object),
            demand: *demand,
            requested: requested(object),
            is_plain: is_plain(object),
            is_leaving: !meta["deletionTimestamp"].is_null(),
        }))
    }
}

/// What the containers request, and not what they are assumed to use. What cannot be read is nothing.
fn requested(pod: &Value) -> [u64; 2] {
    let containers = pod["spec"]["containers"].as_array();
    containers.into_iter().flatten().fold([0; 2], |[milli, memory], container| {
        let requests = &container["resources"]["requests"];
        let of = |name: &str, unit: fn(Quantity) -> i64| {
            let amount = requests[name].as_str().and_then(|text| Quantity::parse(text).ok()).map_or(0, unit);
            u64::try_from(amount).unwrap_or(0)
        };
        [
            milli.saturating_add(of("cpu", Quantity::milli_value)),
            memory.saturating_add(of("memory", Quantity::value)),
        ]
    })
}

fn priority(pod: &Value) -> i64 {
    pod["spec"]["priority"].as_i64().unwrap_or(0)
}

/// The volumes that no node lacks and no pod keeps from another one.
const FREE_VOLUMES: [&str; 5] = ["configMap", "secret", "emptyDir", "projected", "downwardAPI"];

/// Whether kube-scheduler's filters that depend on other pods of a node look at nothing of this pod but processors, memory,
/// whole GPUs and the number of pods.
fn is_plain(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let none = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let affinity = &spec["affinity"];
    let is_free = |volume: &Value| {
        let kinds = volume
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, value)| *key != "name" && !value.is_null());
        kinds.map(|(key, _)| key.as_str()).all(|kind| FREE_VOLUMES.contains(&kind))
    };
    let is_counted = |name: &str| {
        matches!(name, "cpu" | "memory") || matches!(GpuResource::read(name), Some(GpuResource::Whole(_)))
    };
    let is_usual = |container: &Value| {
        let has_port =
            list(&container["ports"]).iter().any(|port| port["hostPort"].as_i64().unwrap_or(0) != 0);
        let resources = ["requests", "limits"].map(|part| &container["resources"][part]);
        let mut names =
            resources.into_iter().filter_map(Value::as_object).flatten().map(|(name, _)| name.as_str());
        !has_port && none(&container["resources"]["claims"]) && names.all(is_counted)
    };
    affinity["podAffinity"].is_null()
        && affinity["podAntiAffinity"].is_null()
        && [&spec["topologySpreadConstraints"], &spec["resourceClaims"], &spec["initContainers"]]
            .into_iter()
            .all(none)
        && spec["resources"].is_null()
        && spec["hostNetwork"] != true
        && list(&spec["volumes"]).iter().all(is_free)
        && list(&spec["containers"]).iter().all(is_usual)
}

/// Which pods of its namespace a budget is for.
#[derive(Debug)]
enum Covered {
    /// None: its selector is missing or empty.
    None,
    /// Those that are selected.
    Selected(Selector),
    /// Any: the budget cannot be read.
    Any,
}

/// A PodDisruptionBudget.
#[derive(Debug)]
pub(crate) struct BudgetRow {
    namespace: String,
    covered: Covered,
    allowed: i64,
    /// The names of pods whose disruption it has counted already.
    disrupted: BTreeSet<String>,
}

impl Row for BudgetRow {
    const KIND: &'static str = "poddisruptionbudgets";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let selector: Option<LabelSelector> =
            serde_json::from_value(object["spec"]["selector"].clone()).map_err(|error| error.to_string())?;
        let selector = selector.map(Selector::try_from).transpose().map_err(|error| error.to_string())?;
        let status = &object["status"];
        Ok(Self {
            namespace: object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
            covered: selector
                .filter(|selector| !selector.selects_all())
                .map_or(Covered::None, Covered::Selected),
            allowed: status["disruptionsAllowed"].as_i64().unwrap_or(0),
            disrupted: status["disruptedPods"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect(),
        })
    }
}

impl BudgetRow {
    /// One that exists and cannot be read: it may be for any pod of its namespace, and allow nothing.
    fn unreadable(namespace: &str) -> Self {
        let (namespace, covered) = (namespace.to_owned(), Covered::Any);
        Self { namespace, covered, allowed: 0, disrupted: BTreeSet::new() }
    }

    fn covers(&self, pod: &CardPod) -> bool {
        let is_covered = match &self.covered {
            Covered::None => false,
            Covered::Selected(selector) => selector.matches(&pod.labels),
            Covered::Any => true,
        };
        is_covered && *self.namespace == *pod.namespace && !self.disrupted.contains(&*pod.name)
    }
}

type ByNode = BTreeMap<Arc<str>, Vec<Arc<CardPod>>>;

/// The pods with GPUs on nodes, and the budgets of their disruptions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evictables {
    pods: Arc<ByNode>,
    /// `None` before all of them were read.
    budgets: Option<Arc<[Arc<BudgetRow>]>>,
}

/// Follows pods and budgets.
#[derive(Default)]
pub(crate) struct EvictablesBuilder {
    /// `None` where preemptions are not answered.
    budgets: Option<Rows<BudgetRow>>,
    nodes: BTreeMap<PodUid, Arc<str>>,
    listing: Listing,
    shown: Evictables,
}

impl EvictablesBuilder {
    pub(crate) fn new(budgets: Option<Rows<BudgetRow>>) -> Self {
        Self { budgets, ..Self::default() }
    }

    /// Takes in an event of the watch of pods.
    pub(crate) fn follow(&mut self, event: &ReflectEvent<PodRow>) {
        if self.budgets.is_none() {
            return;
        }
        match event {
            ReflectEvent::Begin => self.listing.begin(),
            ReflectEvent::Seen { row, .. } => {
                self.listing.see(row.uid);
                self.forget(row.uid);
                self.see(row);
            }
            ReflectEvent::Gone { uid } => self.forget(pod::uid(uid)),
            ReflectEvent::Whole => {
                let gone = self.listing.end(self.nodes.keys().copied());
                gone.into_iter().for_each(|pod| self.forget(pod));
            }
        }
    }

    fn see(&mut self, row: &PodRow) {
        let Some(pod) = row.cards.as_ref().filter(|_| row.stage != Stage::Ended && !row.node.is_empty())
        else {
            return;
        };
        let all = Arc::make_mut(&mut self.shown.pods);
        let node = all
            .get_key_value(row.node.as_str())
            .map_or_else(|| row.node.as_str().into(), |(name, _)| name.clone());
        all.entry(node.clone()).or_default().push(pod.clone());
        self.nodes.insert(row.uid, node);
    }

    fn forget(&mut self, pod: PodUid) {
        let Some(node) = self.nodes.remove(&pod) else { return };
        let all = Arc::make_mut(&mut self.shown.pods);
        if let Some(pods) = all.get_mut(&node) {
            pods.retain(|one| one.key != pod);
            if pods.is_empty() {
                all.remove(&node);
            }
        }
    }

    /// Takes in what has changed of budgets.
    pub(crate) fn renew(&mut self) {
        let Some(rows) = self.budgets.as_mut().filter(|rows| rows.is_synced()) else { return };
        let has_news = rows.news(|_| ()).is_some();
        if self.shown.budgets.is_some() && !has_news {
            return;
        }
        // Asked for first: one that changes in between has its old row still.
        let unreadable = rows.malformed();
        let unreadable = unreadable.keys().map(|key| Arc::new(BudgetRow::unreadable(&key.namespace)));
        let known: Vec<Arc<BudgetRow>> =
            rows.with(|rows| rows.values().map(|held| held.row.clone()).chain(unreadable).collect());
        self.shown.budgets = Some(known.into());
    }

    pub(crate) fn shown(&self) -> Evictables {
        self.shown.clone()
    }
}

/// The pod that needs room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preemptor {
    priority: i64,
    is_plain: bool,
    /// It is to be with other pods, which may be those that would be evicted.
    joins_others: bool,
    vendor: Option<GpuVendor>,
}

impl Preemptor {
    /// One that cannot be read evicts nobody but whom kube-scheduler chose.
    pub(crate) fn read(pod: Option<&RawValue>) -> Self {
        let nobody = Self { priority: i64::MIN, is_plain: false, joins_others: true, vendor: None };
        let Some(raw) = pod else { return nobody };
        let (Ok(object), Ok(summary)) = (serde_json::from_str::<Value>(raw.get()), PodSummary::read(raw))
        else {
            return nobody;
        };
        let vendor = summary.demand.gpus.map(|gpus| gpus.vendor);
        let required =
            &object["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let joins_others = required.as_array().is_some_and(|terms| !terms.is_empty());
        Self { priority: priority(&object), is_plain: is_plain(&object), joins_others, vendor }
    }
}

/// What kube-scheduler counts of pods when it asks whether another one fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    milli: u64,
    memory: u64,
    gpus: u64,
    pods: u64,
}

impl Counted {
    /// What must be free in their stead for these pods to stay: no less than they have.
    fn needed<'p>(pods: impl Iterator<Item = &'p CardPod>, vendor: Option<GpuVendor>) -> Self {
        Self::sum(pods, vendor, |pod| [pod.demand.cpu.get().into(), pod.demand.memory_bytes])
    }

    /// What is free for certain once these pods have left.
    fn freed<'p>(pods: impl Iterator<Item = &'p CardPod>, vendor: Option<GpuVendor>) -> Self {
        Self::sum(pods, vendor, |pod| pod.requested)
    }

    fn sum<'p>(
        pods: impl Iterator<Item = &'p CardPod>,
        vendor: Option<GpuVendor>,
        of: fn(&CardPod) -> [u64; 2],
    ) -> Self {
        pods.fold(Self::default(), |sum, pod| {
            let gpus = pod.demand.gpus.filter(|gpus| Some(gpus.vendor) == vendor);
            let [milli, memory] = of(pod);
            Self {
                milli: sum.milli.saturating_add(milli),
                memory: sum.memory.saturating_add(memory),
                gpus: sum.gpus.saturating_add(gpus.map_or(0, |gpus| gpus.count.into())),
                pods: sum.pods.saturating_add(1),
            }
        })
    }

    fn covers(self, other: Self) -> bool {
        self.milli >= other.milli
            && self.memory >= other.memory
            && self.gpus >= other.gpus
            && self.pods >= other.pods
    }
}

impl Evictables {
    /// Changes the victims of a node to pods that free what is asked for. False, and nothing is changed, where no pods of a lower
    /// priority do, where the budgets of disruptions are not known, or where the pod is to be with others.
    pub(crate) fn replace(
        &self,
        victims: &mut Victims<'_>,
        held: &[HeldCard],
        request: GpuRequest,
        preemptor: Preemptor,
    ) -> bool {
        let Some(budgets) = self.budgets.as_deref().filter(|_| !preemptor.joins_others) else { return false };
        let of_node = self.pods.get(victims.node.as_str()).map(Vec::as_slice).unwrap_or_default();
        let proposed: Vec<PodUid> = victims.uids.iter().map(|uid| pod::uid(uid.as_str())).collect();
        let has_card = |pod: &CardPod| {
            held.iter().any(|card| card.holders.iter().any(|one| one.pod == pod.key && !one.is_claim))
        };
        let may_go = |pod: &&CardPod| {
            pod.priority < preemptor.priority
                && !pod.is_leaving
                && !proposed.contains(&pod.key)
                && has_card(pod)
        };
        let mut more: Vec<&CardPod> = of_node.iter().map(|pod| &**pod).filter(may_go).collect();
        more.sort_by(|one, other| (one.priority, &one.uid).cmp(&(other.priority, &other.uid)));
        more.truncate(PODS_MAX);
        let is_enough = |spared: &[PodUid], also: &[&CardPod]| {
            let first = proposed.iter().filter(|pod| !spared.contains(pod)).copied();
            let gone: Vec<PodUid> = first.chain(also.iter().map(|pod| pod.key)).collect();
            let left: Vec<PhysicalGpu> = held.iter().map(|held| held.without(&gone)).collect();
            fits(request, &left).is_ok()
        };
        let Some(chosen) = fewest(budgets, &more, |also| is_enough(&[], also)) else { return false };
        let mut known: Vec<&CardPod> =
            of_node.iter().map(|pod| &**pod).filter(|pod| proposed.contains(&pod.key)).collect();
        // Not the order in which a replica has heard of them.
        known.sort_by(|one, other| one.uid.cmp(&other.uid));
        let mut may_stay: Vec<&CardPod> =
            known.iter().filter(|pod| pod.is_plain && preemptor.is_plain).copied().collect();
        may_stay.sort_by_key(|pod| Reverse(pod.priority));
        let freed = Counted::freed(chosen.iter().copied(), preemptor.vendor);
        let mut spared: Vec<&CardPod> = Vec::new();
        for pod in may_stay {
            spared.push(pod);
            let keys: Vec<PodUid> = spared.iter().map(|pod| pod.key).collect();
            let needed = Counted::needed(spared.iter().copied(), preemptor.vendor);
            if !freed.covers(needed) || !is_enough(&keys, &chosen) {
                spared.pop();
            }
        }
        // Of those that are not known here, nobody knows which budgets they violate: kube-scheduler has counted these.
        let others = if known.len() < proposed.len() { victims.pdb_violations } else { 0 };
        let left = known.iter().filter(|pod| spared.iter().all(|one| one.key != pod.key));
        let counted: Vec<&CardPod> = match others {
            0 => left.chain(&chosen).copied().collect(),
            _ => chosen.clone(),
        };
        victims.pdb_violations = others.saturating_add(violations(budgets, &counted));
        victims.uids.retain(|uid| spared.iter().all(|pod| *pod.uid != *uid.as_str()));
        victims.uids.extend(chosen.iter().map(|pod| Cow::<str>::Owned(pod.uid.to_string()).into()));
        true
    }
}

/// The fewest of these pods that are enough, and of as many those with the lowest priorities. Pods whose budgets allow it go
/// first.
fn fewest<'p>(
    budgets: &[Arc<BudgetRow>],
    pods: &[&'p CardPod],
    is_enough: impl Fn(&[&CardPod]) -> bool,
) -> Option<Vec<&'p CardPod>> {
    if !is_enough(pods) {
        return None;
    }
    if pods.len() <= ALL_SETS {
        let set = |mask: u32| -> Vec<&'p CardPod> {
            pods.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, pod)| *pod).collect()
        };
        let enough = (0_u32..1 << pods.len()).map(set).filter(|set| is_enough(set));
        return enough.min_by_key(|set| {
            let priorities = set.iter().map(|pod| pod.priority);
            let sum = priorities.clone().fold(0_i64, i64::saturating_add);
            (violations(budgets, set), set.len(), priorities.max(), sum)
        });
    }
    let mut spared = pods.to_vec();
    spared.sort_by_key(|pod| Reverse((violations(budgets, &[pod]), pod.priority)));
    let mut set = pods.to_vec();
    for pod in spared {
        let without: Vec<&CardPod> = set.iter().filter(|one| one.key != pod.key).copied().collect();
        if is_enough(&without) {
            set = without;
        }
    }
    Some(set)
}

/// How many of these pods cannot leave without a violation of a budget, as kube-scheduler counts it: the more important pods
/// use up what a budget allows.
fn violations(budgets: &[Arc<BudgetRow>], pods: &[&CardPod]) -> i64 {
    let mut sorted = pods.to_vec();
    sorted.sort_by_key(|pod| Reverse(pod.priority));
    let mut left: Vec<i64> = budgets.iter().map(|budget| budget.allowed).collect();
    let violates = |pod: &&CardPod| {
        let mut violates = false;
        for (_, left) in budgets.iter().zip(&mut left).filter(|(budget, _)| budget.covers(pod)) {
            *left = left.saturating_sub(1);
            violates |= *left < 0;
        }
        violates
    };
    i64::try_from(sorted.into_iter().filter(violates).count()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
