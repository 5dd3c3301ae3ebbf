//! What the GPU objects of a node should say. Nothing here writes.

use super::curve::CardWatts;
use super::pci::PciFacts;
use crate::energy::{HeldCards, PodOwner};
use crate::front::events::{self, GPU_MISMATCH};
use crate::front::publish::without_nulls;
use host_kit::events::Note;
use host_kit::reflect::{CachedRow, ObjectKey};
use jiff::Timestamp;
use joulie_api::gpu::HEALTHY;
use joulie_api::names;
use node_kit::CardFacts;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// The pods of the node.
pub(super) type Pods = BTreeMap<ObjectKey, CachedRow<PodOwner>>;

/// A card as its driver lists it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    pub(super) vendor: &'static str,
    pub(super) facts: CardFacts,
    /// Whether the driver answers now, and does not only have listed it before.
    pub(super) is_shown: bool,
}

/// A card with what the bus says of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Card {
    pub(super) vendor: &'static str,
    pub(super) facts: CardFacts,
    pub(super) is_shown: bool,
    pub(super) pci: PciFacts,
    pub(super) island: Option<u16>,
}

/// The cards with what the files below a root say of them.
pub(super) fn cards(root: &Path, listed: &[Listed]) -> Vec<Card> {
    let read =
        |facts: &CardFacts| facts.pci.as_deref().map(|at| PciFacts::read(root, at)).unwrap_or_default();
    let mut cards: Vec<Card> = listed
        .iter()
        .map(|Listed { vendor, facts, is_shown }| Card {
            vendor,
            facts: facts.clone(),
            is_shown: *is_shown,
            pci: read(facts),
            island: facts.island,
        })
        .collect();
    // Hives are numbered after the islands that drivers told, in the order of their identities.
    let mut hives: BTreeMap<u64, u32> = BTreeMap::new();
    for card in &cards {
        if let Some(hive) = card.pci.hive {
            *hives.entry(hive).or_default() += 1;
        }
    }
    let first =
        cards.iter().filter_map(|card| card.island).max().map_or(0, |island| island.saturating_add(1));
    let joined = hives.into_iter().filter(|(_, members)| *members > 1).map(|(hive, _)| hive);
    let numbers: BTreeMap<u64, u16> = joined.zip(first..=u16::MAX).collect();
    for card in &mut cards {
        card.island = card.island.or_else(|| numbers.get(&card.pci.hive?).copied());
    }
    cards
}

/// How pods share the cards of a node, as the label of NVIDIA's feature discovery says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sharing(Option<&'static str>);

const SHARING_LABEL: &str = "nvidia.com/gpu.sharing-strategy";

impl Sharing {
    pub(super) fn of(labels: &BTreeMap<String, String>) -> Self {
        Self(match labels.get(SHARING_LABEL).map(String::as_str) {
            Some("none") => Some("none"),
            Some("time-slicing") => Some("time-slicing"),
            Some("mps") => Some("mps"),
            Some(_) | None => None,
        })
    }

    /// The word for a card of this maker: the label is of NVIDIA's.
    fn word(self, vendor: &str) -> Option<&'static str> {
        self.0.filter(|_| vendor == "nvidia")
    }

    fn shares(self, vendor: &str) -> bool {
        matches!(self.word(vendor), Some("time-slicing" | "mps"))
    }
}

/// Who holds which card.
#[derive(Clone, Debug)]
pub(super) struct Holders {
    /// By the card's key; `None` if nobody knows.
    of: Option<BTreeMap<power_hal::Key, Vec<Holder>>>,
    /// The holders of MIG instances, by what the device plugin calls these.
    instances: BTreeMap<String, Vec<Holder>>,
    /// Whether somebody holds a card that cannot be told from the others.
    elsewhere: bool,
}

#[derive(Clone, Debug)]
struct Holder {
    namespace: String,
    name: String,
    uid: Option<String>,
    /// The VRAM that the pod asks for of each card.
    vram_mb: Option<u64>,
}

impl Holders {
    pub(super) const UNKNOWN: Self = Self { of: None, instances: BTreeMap::new(), elsewhere: true };

    pub(super) fn known(held: &HeldCards, pods: &Pods) -> Self {
        let holder = |(namespace, name): (&str, &str)| {
            let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
            let row = pods.get(&key).map(|held| &held.row);
            // A pod that has ended holds nothing, though some kubelets still tell it.
            (!row.is_some_and(|row| row.has_ended())).then(|| Holder {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: row.map(|row| row.api_uid().to_owned()),
                vram_mb: row.and_then(|row| row.vram_mb()),
            })
        };
        let of = held.by_card().map(|(key, names)| (key, names.filter_map(holder).collect())).collect();
        let instances = held.by_instance();
        let instances = instances.map(|(id, names)| (id.to_owned(), names.filter_map(holder).collect()));
        Self { of: Some(of), instances: instances.collect(), elsewhere: held.has_elsewhere() }
    }
}

/// An object as it should be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document {
    pub(super) name: String,
    pub(super) spec: Value,
    /// `None` while it is waited for who holds the card.
    pub(super) status: Option<Value>,
}

impl Document {
    /// The object of a card. An object that exists keeps its name.
    pub(super) fn of(
        node: &str,
        card: &Card,
        sharing: Sharing,
        holders: Option<&Holders>,
        named: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let Card { vendor, facts, is_shown: _, pci, island } = card;
        let total = facts.vram_mib.or(pci.vram_mib);
        let spec = json!({
            "nodeName": node, "uuid": facts.id, "model": facts.model.as_ref().or(pci.model.as_ref()),
            "totalVRAMmb": total, "vendor": vendor, "pciAddress": facts.pci, "island": island,
            "sliced": facts.sliced, "instances": instances(card), "pcieRoot": pci.root, "numaNode": pci.numa_node,
            "sharing": sharing.word(vendor),
        });
        let status = holders.map(|holders| status(card, total, sharing.shares(vendor), holders));
        let name = named(&facts.id).unwrap_or_else(|| names::gpu(node, &facts.id));
        Self { name, spec: without_nulls(spec), status }
    }

    /// The same with what the card was measured to draw. What was not measured since the start stays as the object has it.
    pub(super) fn with_watts(mut self, watts: CardWatts, seen: Option<&Value>) -> Self {
        let before = |field: &str| seen.and_then(|status| status["power"][field].as_u64());
        let CardWatts { idle, busy, limit } = watts;
        let power = without_nulls(json!({
            "idleWatts": idle.map(u64::from).or_else(|| before("idleWatts")),
            "busyWatts": busy.map(u64::from).or_else(|| before("busyWatts")),
            "limitWatts": limit,
        }));
        if let Some(status) =
            self.status.as_mut().filter(|_| power.as_object().is_some_and(|it| !it.is_empty()))
        {
            status["power"] = power;
        }
        self
    }
}

fn status(card: &Card, total: Option<u64>, shares: bool, holders: &Holders) -> Value {
    let none = Vec::new();
    let is_sliced = card.facts.sliced == Some(true);
    let of = holders.of.as_ref().map(|of| of.get(&card.facts.key).unwrap_or(&none));
    let known = of.unwrap_or(&none);
    let part = |holder: &Holder| match (shares, total) {
        // Where it is not said how much a pod has of a shared card, it has all.
        (true, Some(total)) => holder.vram_mb.unwrap_or(total).min(total),
        (true, None) => holder.vram_mb.unwrap_or(0),
        (false, total) => total.unwrap_or(0),
    };
    let sum = known.iter().fold(0_u64, |sum, holder| sum.saturating_add(part(holder)));
    let allocated = total.map_or(sum, |total| sum.min(total));
    let is_full = total.is_some_and(|total| allocated >= total);
    let phase = match (of.is_some(), known.is_empty()) {
        _ if is_sliced => "Unknown",
        (false, _) => "Unknown",
        (true, true) if holders.elsewhere => "Unknown",
        (true, false) if !shares || is_full => "Allocated",
        (true, _) => "Available",
    };
    let allocations: Vec<Value> = known
        .iter()
        .map(|holder| {
            json!({"podNamespace": holder.namespace, "podName": holder.name, "podUID": holder.uid, "vramMb": part(holder)})
        })
        .collect();
    let first = known.first();
    without_nulls(json!({
        "allocatedVRAMmb": of.map(|_| allocated),
        "podNamespace": first.map(|holder| &holder.namespace), "podName": first.map(|holder| &holder.name),
        "phase": phase, "health": if card.is_shown { HEALTHY } else { UNHEALTHY },
        "instances": instance_statuses(card, holders),
        "allocations": Some(allocations).filter(|all| !all.is_empty()),
    }))
}

/// The instances of a divided card.
fn instances(card: &Card) -> Option<Vec<Value>> {
    let all =
        card.facts.instances.iter().map(|one| {
            without_nulls(json!({"uuid": one.id, "profile": one.profile, "memoryMb": one.vram_mib}))
        });
    Some(all.collect::<Vec<_>>()).filter(|all| !all.is_empty())
}

/// Who has which of them. While somebody has a GPU that cannot be told from others, one that nobody is said to have may be had.
fn instance_statuses(card: &Card, holders: &Holders) -> Option<Vec<Value>> {
    let all = card.facts.instances.iter().map(|one| {
        let first = holders.instances.get(&one.id).and_then(|holders| holders.first());
        let phase = match first {
            _ if holders.of.is_none() => "Unknown",
            Some(_) => "Allocated",
            None if holders.elsewhere => "Unknown",
            None => "Available",
        };
        without_nulls(json!({
            "uuid": one.id, "phase": phase, "podNamespace": first.map(|holder| &holder.namespace),
            "podName": first.map(|holder| &holder.name), "podUID": first.and_then(|holder| holder.uid.as_ref()),
        }))
    });
    Some(all.collect::<Vec<_>>()).filter(|all| !all.is_empty())
}

/// The status of a card that its driver does not list at the moment.
pub(super) fn unseen(status: &Value) -> Value {
    let mut status = if status.is_object() { status.clone() } else { json!({}) };
    status["health"] = json!(UNHEALTHY);
    status
}

/// The word for a card that the driver does not show.
const UNHEALTHY: &str = "Unknown";

/// The part of a status that the agent writes.
pub(super) fn published(status: &Value) -> Value {
    const OURS: [&str; 8] = [
        "allocatedVRAMmb",
        "podNamespace",
        "podName",
        "phase",
        "health",
        "instances",
        "allocations",
        "power",
    ];
    let fields = status.as_object().into_iter().flatten();
    let ours = fields.filter(|(key, _)| OURS.contains(&key.as_str()));
    Value::Object(ours.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// A pod that was bound is in the watch of its node well within this time.
const BOUND_WITHIN: Duration = Duration::from_secs(60);

/// What bind took, without what no pod needs any more: the kubelet has given the pod its cards, or the pod is not on the
/// node and had time to come, or it has ended.
pub(super) fn standing(taken: &[Value], held: Option<&HeldCards>, pods: &Pods, now: Timestamp) -> Vec<Value> {
    let uid_of = |(namespace, name): (&str, &str)| {
        let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
        pods.get(&key).map(|held| held.row.api_uid())
    };
    let holders = held.into_iter().flat_map(|held| held.by_card()).flat_map(|(_, names)| names);
    let given: BTreeSet<&str> = holders.filter_map(uid_of).collect();
    let stays = |uid: &str, since: Option<Timestamp>| {
        if given.contains(uid) {
            return false;
        }
        match pods.values().find(|held| held.row.api_uid() == uid) {
            Some(held) => !held.row.has_ended(),
            None => since.is_some_and(|since| {
                now.duration_since(since).as_secs() < BOUND_WITHIN.as_secs().cast_signed()
            }),
        }
    };
    let stands = taken.iter().filter(|one| {
        let since = one["since"].as_str().and_then(|text| text.parse().ok());
        stays(one["podUID"].as_str().unwrap_or_default(), since)
    });
    stands.cloned().collect()
}

/// The UIDs of the pods that hold other cards than bind took for them.
pub(super) fn mismatched(held: &HeldCards, pods: &Pods, cards: &[Card]) -> BTreeSet<String> {
    let mut got: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for (key, names) in held.by_card() {
        let Some(card) = cards.iter().find(|card| card.facts.key == key) else { continue };
        for name in names {
            got.entry(name).or_default().insert(&card.facts.id);
        }
    }
    let wrong = pods.iter().filter_map(|(key, row)| {
        let got = got.get(&(key.namespace.as_str(), key.name.as_str()))?;
        let taken: BTreeSet<&str> = row.row.cards_taken()?.split(',').collect();
        (taken != *got && !row.row.has_ended()).then(|| row.row.api_uid().to_owned())
    });
    wrong.collect()
}

/// What is told of such a pod.
pub(super) fn mismatch_note(node: &str, uid: &str, pods: &Pods) -> Note {
    let named = pods.iter().find(|(_, held)| held.row.api_uid() == uid);
    let pod = named.map_or_else(|| uid.to_owned(), |(key, _)| key.to_string());
    let text = format!(
        "the kubelet gave the pod {pod} other GPUs than were taken for it; the GPU objects say which"
    );
    events::note(node, (&GPU_MISMATCH, text))
}

#[cfg(test)]
mod tests;
