//! The GPUs of all nodes, as the GPU objects tell them, and what a pod asks for of them.
//!
//! A card counts as taken by the pods that the kubelet gave it to, and by those that a bind took it for and that the
//! kubelet has given no card of the node yet. What is not known for certain takes no pod.

mod grouped;

use self::grouped::AllGrouped;
use crate::dra::ClaimedCards;
use crate::index::Registry;
use crate::instances::{InstanceRow, Instances, InstancesAsk};
use crate::settings::{GpuPods, GpuRule};
use host_kit::reflect::{CachedRow, Row};
use jiff::Timestamp;
use joulie_api::extender::{GpuWish, instances_asked, pod};
use joulie_api::gpu::{Gpu, GpuAllocation, GpuAssumption, most_added};
use joulie_api::number::Whole;
use joulie_api::object;
use joulie_core::placement::assumed::{NodeKey, PodUid};
use joulie_core::placement::demand::{GpuDemand, GpuVendor, PodDemand};
use joulie_core::placement::filter::Rejection;
use joulie_core::placement::freshness::UnixTime;
use joulie_core::placement::gpu::{
    BadWish, GpuPhase, GpuRequest, Island, Model, ModelSet, PhysicalGpu, Vram, fit,
};
use power_units::{Micros, Watts};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// What a pod asks for of GPUs, or why that is not valid.
pub(crate) type GpuAsk = Result<GpuRequest, BadWish>;

/// A pod's part of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardShare {
    pub(crate) pod: PodUid,
    vram_mb: u32,
    /// Whether it has it by a claim.
    pub(crate) is_claim: bool,
}

/// A part that a bind took.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taken {
    share: CardShare,
    /// When; `None` if the object does not say so.
    since: Option<UnixTime>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GpuRow {
    pub(crate) node: String,
    uuid: Option<Arc<str>>,
    key: u64,
    model: Option<String>,
    vendor: Option<GpuVendor>,
    total_mb: Option<i64>,
    allocated_mb: Option<i64>,
    island: Option<Island>,
    phase: GpuPhase,
    shares: bool,
    /// What it draws more when a pod uses it, where that was measured.
    adds: Option<Watts>,
    held: Box<[CardShare]>,
    taken: Box<[Taken]>,
    /// The MIG instances of a card that is cut.
    instances: Box<[InstanceRow]>,
}

impl Row for GpuRow {
    const KIND: &'static str = "gpus";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let read: Gpu = object::parse(object).map_err(|error| error.to_string())?;
        let card = read.card();
        let status = read.status.as_ref();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let total_mb = read.spec.total_vram_mb.map(Whole::get);
        let held = status.and_then(|status| status.allocations.as_deref()).unwrap_or_default();
        let taken = status.and_then(|status| status.assumed.as_deref()).unwrap_or_default();
        Ok(Self {
            node: card.node.to_owned(),
            uuid: card.uuid.map(Arc::from),
            // Two objects of one card have one key, and are known to be wrong by that.
            key: key(card.uuid.unwrap_or(name)),
            model: card.model.map(str::to_owned),
            vendor: card.vendor,
            total_mb,
            allocated_mb: status.and_then(|status| status.allocated_vram_mb).map(Whole::get),
            island: card.island,
            phase: card.phase,
            shares: card.shares,
            adds: read.adds(),
            held: held.iter().filter_map(|one| allocation(one, total_mb)).collect(),
            taken: taken.iter().filter_map(|one| assumption(one, total_mb)).collect(),
            instances: InstanceRow::all(&read),
        })
    }
}

fn key(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

fn share(uid: Option<&str>, vram_mb: Option<Whole>, total_mb: Option<i64>) -> Option<CardShare> {
    let uid = uid.filter(|uid| !uid.is_empty())?;
    // A part that is not said, or makes no sense, is all of it.
    let whole = vram_mb.map(Whole::get).filter(|&mb| mb >= 0).or(total_mb).unwrap_or(i64::MAX);
    Some(CardShare { pod: pod::uid(uid), vram_mb: u32::try_from(whole).unwrap_or(u32::MAX), is_claim: false })
}

fn allocation(one: &GpuAllocation, total_mb: Option<i64>) -> Option<CardShare> {
    share(one.pod_uid.as_deref(), one.vram_mb, total_mb)
}

fn assumption(one: &GpuAssumption, total_mb: Option<i64>) -> Option<Taken> {
    let share = share(one.pod_uid.as_deref(), one.vram_mb, total_mb)?;
    let since = one.since.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    Some(Taken { share, since: since.map(|time| UnixTime::from_micros(time.as_microsecond())) })
}

/// How long a part that a bind took counts without a word of the kubelet. The kubelet gives a pod its devices when it
/// admits the pod, before any image is fetched.
pub(crate) const TAKEN_FOR: Duration = Duration::from_secs(600);

impl Taken {
    /// Whether it still counts. One from the future does: clocks differ.
    fn stands(&self, now: UnixTime, most: Micros) -> bool {
        let age = self.since.and_then(|since| now.since(since));
        age.is_none_or(|age| age <= most)
    }
}

/// A card of a node, with those who have it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeldCard {
    pub(crate) card: PhysicalGpu,
    /// The UUID, if it is known.
    pub(crate) uuid: Option<Arc<str>>,
    /// Whether pods share it.
    pub(crate) shares: bool,
    pub(crate) holders: Vec<CardShare>,
}

impl HeldCard {
    /// The card once these pods have left.
    pub(crate) fn without(&self, gone: &[PodUid]) -> PhysicalGpu {
        let stay = self.holders.iter().filter(|one| !gone.contains(&one.pod));
        let left: Vec<&CardShare> = stay.collect();
        if left.len() == self.holders.len() || self.card.phase == GpuPhase::Unknown {
            return self.card;
        }
        let total = self.card.vram.map(Vram::total_mb);
        let allocated = left.iter().fold(0_i64, |sum, one| sum.saturating_add(i64::from(one.vram_mb)));
        let vram = total.and_then(|total| Vram::read(Some(total.into()), Some(allocated.min(total.into()))));
        let phase = if left.is_empty() || self.shares { GpuPhase::Available } else { GpuPhase::Allocated };
        PhysicalGpu { vram, phase, ..self.card }
    }
}

/// What is known of a card by its GPU object and by its driver's ResourceSlice, which is the truth where there is one.
struct Facts<'r> {
    total_mb: Option<i64>,
    model: Option<&'r str>,
    is_usable: bool,
    /// Who holds all of it by claims, and is not told by the kubelet.
    by_claim: Vec<CardShare>,
}

impl<'r> Facts<'r> {
    fn of(row: &'r GpuRow, claimed: &'r ClaimedCards) -> Self {
        let uuid = row.uuid.as_deref();
        let published = claimed.published(uuid);
        let total_mb = published.and_then(|device| device.vram_mb).or(row.total_mb);
        let vram_mb = total_mb.and_then(|mb| u32::try_from(mb).ok()).unwrap_or(u32::MAX);
        let is_told = |pod: &PodUid| row.held.iter().any(|one| one.pod == *pod);
        let holders = claimed.holders(uuid).iter().filter(|pod| !is_told(pod));
        Self {
            total_mb,
            model: published.and_then(|device| device.model.as_deref()).or(row.model.as_deref()),
            is_usable: published.is_none_or(|device| device.is_usable),
            by_claim: holders.map(|&pod| CardShare { pod, vram_mb, is_claim: true }).collect(),
        }
    }
}

/// The cards of one node, from its rows. The kubelet may give a card that was taken for one pod to another one: then the
/// first pod will have one of those that are free.
pub(crate) fn node_cards<'r>(
    rows: impl Iterator<Item = &'r GpuRow> + Clone,
    claimed: &'r ClaimedCards,
    now: UnixTime,
    mut model: impl FnMut(&'r str, Option<GpuVendor>) -> Model,
) -> Vec<HeldCard> {
    // A pod that the kubelet gave any card here is assumed on none: it may have another one than was taken for it. Who has
    // a card by a claim may have a taken one as well.
    let given: Vec<PodUid> = rows.clone().flat_map(|row| row.held.iter().map(|one| one.pod)).collect();
    let most = host_kit::clock::micros(TAKEN_FOR);
    let mut displaced: Vec<(&CardShare, Option<Model>)> = Vec::new();
    let cards = rows.map(|row| {
        let Facts { total_mb, model: name, is_usable, by_claim } = Facts::of(row, claimed);
        let model = name.map(|name| model(name, row.vendor));
        let taken = row.taken.iter().filter(|one| one.stands(now, most) && !given.contains(&one.share.pod));
        let mut taken: Vec<&CardShare> = taken.map(|one| &one.share).collect();
        let is_claimed = !by_claim.is_empty();
        if is_claimed || (!row.shares && !row.held.is_empty()) {
            let elsewhere = taken.drain(..).filter(|share| by_claim.iter().all(|one| one.pod != share.pod));
            displaced.extend(elsewhere.map(|share| (share, model)));
        }
        let sum = taken.iter().fold(0_i64, |sum, one| sum.saturating_add(i64::from(one.vram_mb)));
        let total = total_mb.unwrap_or(0).max(0);
        let allocated = match (is_claimed, taken.is_empty()) {
            (true, _) => Some(total),
            (false, true) => row.allocated_mb,
            (false, false) => row.allocated_mb.map(|mb| mb.saturating_add(sum).min(total)),
        };
        let is_alone = is_claimed || (!row.shares && !taken.is_empty());
        let phase = match row.phase {
            _ if !is_usable => GpuPhase::Unknown,
            GpuPhase::Available if is_alone => GpuPhase::Allocated,
            GpuPhase::Available if claimed.is_blind(&row.node) => GpuPhase::Unknown,
            phase @ (GpuPhase::Available | GpuPhase::Allocated | GpuPhase::Unknown) => phase,
        };
        HeldCard {
            card: PhysicalGpu {
                key: row.key,
                model,
                vram: Vram::read(total_mb, allocated),
                island: row.island,
                phase,
            },
            uuid: row.uuid.clone(),
            shares: row.shares,
            holders: row.held.iter().chain(taken).cloned().chain(by_claim).collect(),
        }
    });
    let mut cards: Vec<HeldCard> = cards.collect();
    for (share, model) in displaced {
        let is_free = |held: &HeldCard| held.card.phase == GpuPhase::Available && !held.shares;
        let of_model = cards.iter().position(|held| is_free(held) && held.card.model == model);
        let place = of_model.or_else(|| cards.iter().position(is_free));
        if let Some(HeldCard { card, holders, .. }) = place.and_then(|place| cards.get_mut(place)) {
            let total = card.vram.map(|vram| i64::from(vram.total_mb()));
            (card.phase, card.vram) = (GpuPhase::Allocated, Vram::read(total, total));
            holders.push(share.clone());
        }
    }
    cards
}

/// The models that are known, with their makers. A model's number is its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Models {
    names: Vec<(Box<str>, Option<GpuVendor>)>,
    numbers: BTreeMap<(Box<str>, Option<GpuVendor>), u32>,
}

impl Models {
    pub(crate) fn number(&mut self, name: &str, vendor: Option<GpuVendor>) -> Model {
        let named = (Box::from(name), vendor);
        if let Some(&number) = self.numbers.get(&named) {
            return Model(number);
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(named.clone());
        self.numbers.insert(named, number);
        Model(number)
    }

    /// What a pod asks for, where it asks for GPUs in a way that the rule covers.
    pub(crate) fn asked(
        &self,
        rule: &GpuRule,
        wish: Result<Option<GpuWish<'_>>, BadWish>,
        demand: &PodDemand,
    ) -> Option<GpuAsk> {
        let wish = match (wish, rule.scope) {
            (_, GpuPods::Off) | (Ok(None), GpuPods::Annotated) => return None,
            (Err(bad), GpuPods::Annotated | GpuPods::All) => return Some(Err(bad)),
            (Ok(None), GpuPods::All) if demand.gpus.is_none() => return None,
            (Ok(wish), GpuPods::Annotated | GpuPods::All) => wish.unwrap_or_default(),
        };
        Some(self.request(rule, &wish, demand.gpus))
    }

    /// What a pod asks for of MIG instances, where it asks for some in a way that the rule covers. The models that it wishes are those
    /// of its whole cards, if it has any.
    pub(crate) fn instances_asked(
        &self,
        rule: &GpuRule,
        wish: &Result<Option<GpuWish<'_>>, BadWish>,
        (demand, raw): (&PodDemand, &RawValue),
        all: &Instances,
    ) -> Option<InstancesAsk> {
        let wish = match (wish, rule.scope) {
            (_, GpuPods::Off) | (Err(_), _) | (Ok(None), GpuPods::Annotated) => return None,
            (Ok(wish), GpuPods::Annotated | GpuPods::All) => wish.as_ref(),
        };
        let asked = instances_asked(raw);
        if asked.is_empty() {
            return None;
        }
        let wish = wish.filter(|_| demand.gpus.is_none_or(|gpus| gpus.count == 0));
        let named = |wish: &GpuWish<'_>| {
            wish.model.as_ref()?;
            let named = (0..).zip(&self.names).filter(|(_, named)| wish.names(&named.0));
            Some(named.fold(ModelSet::EMPTY, |set, (number, _)| set.with(Model(number))))
        };
        Some(all.ask(&asked, wish.and_then(named), wish.and_then(|wish| wish.vram_mb)))
    }

    fn request(&self, rule: &GpuRule, wish: &GpuWish<'_>, demand: Option<GpuDemand>) -> GpuAsk {
        let GpuDemand { count, vendor } = demand.filter(|gpus| gpus.count > 0).ok_or(BadWish::NoCount)?;
        let request = GpuRequest::new(None, wish.vram_mb, count.into()).map_err(|_| BadWish::Vram)?;
        let request =
            request.linked(wish.link.unwrap_or_default()).packed(wish.packing.unwrap_or(rule.packing));
        let is_of = |(_, of): &(Box<str>, Option<GpuVendor>)| of.is_none_or(|of| of == vendor);
        if wish.model.is_none() && self.names.iter().all(is_of) {
            return Ok(request);
        }
        let named = (0..).zip(&self.names).filter(|(_, named)| is_of(named) && wish.names(&named.0));
        Ok(request.of(named.fold(ModelSet::EMPTY, |set, (number, _)| set.with(Model(number)))))
    }
}

/// Whether it is certain who has which instance of a card: no claim may have one of them.
fn is_certain(row: &GpuRow, claimed: &ClaimedCards) -> bool {
    let uuid = row.uuid.as_deref();
    claimed.holders(uuid).is_empty()
        && !claimed.is_blind(&row.node)
        && claimed.published(uuid).is_none_or(|device| device.is_usable)
}

/// The cards of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Gpus {
    models: Models,
    /// Where the cards of each node begin, by node number, and where the last ones end.
    starts: Box<[u32]>,
    cards: Box<[PhysicalGpu]>,
    /// The same as a filter looks at them.
    grouped: AllGrouped,
    /// In the order of the cards.
    held: Box<[HeldCard]>,
    /// Whether a card is taken by a bind that the kubelet has not confirmed: that ends by time.
    pub(crate) has_taken: bool,
    /// Whether a row is of a node without a number.
    pub(crate) has_strangers: bool,
    /// What claims say of them.
    claimed: Arc<ClaimedCards>,
    instances: Instances,
    /// What a pod adds to a card of each node, by node number, where that was measured.
    adds: Box<[Option<Watts>]>,
}

impl Gpus {
    /// The cards of these rows. A row whose object cannot be read any more is of a card in an unknown state.
    pub(crate) fn of<'r>(
        rows: impl Iterator<Item = &'r CachedRow<GpuRow>>,
        registry: &Registry,
        claimed: Arc<ClaimedCards>,
        now: UnixTime,
    ) -> Self {
        let mut by_node: BTreeMap<u32, Vec<(&'r GpuRow, bool)>> = BTreeMap::new();
        let mut last: Option<(&str, Option<NodeKey>)> = None;
        let (mut has_strangers, mut has_taken) = (false, false);
        for held in rows {
            let row = &*held.row;
            // The objects of a node follow each other, mostly.
            let number = match last {
                Some((node, number)) if node == row.node => number,
                _ => registry.find(&row.node),
            };
            last = Some((row.node.as_str(), number));
            has_taken |= !row.taken.is_empty();
            match number {
                Some(NodeKey(number)) => {
                    by_node.entry(number).or_default().push((row, held.stale_since.is_some()));
                }
                None => has_strangers = true,
            }
        }
        let mut models = Models::default();
        let (mut starts, mut held) = (Vec::with_capacity(registry.len() + 1), Vec::new());
        let mut instances = Instances::default();
        let mut adds = vec![None; registry.len()].into_boxed_slice();
        for number in 0..registry.len() {
            starts.push(u32::try_from(held.len()).unwrap_or(u32::MAX));
            let Some(rows) = u32::try_from(number).ok().and_then(|number| by_node.get(&number)) else {
                continue;
            };
            let cards = node_cards(rows.iter().map(|(row, _)| *row), &claimed, now, |name, vendor| {
                models.number(name, vendor)
            });
            if let Some(slot) = adds.get_mut(number) {
                *slot = most_added(rows.iter().map(|(row, _)| (row.phase, row.adds)));
            }
            held.extend(cards.into_iter().zip(rows).map(|(mut card, (row, is_stale))| {
                if *is_stale {
                    card.card.phase = GpuPhase::Unknown;
                }
                if !row.instances.is_empty() {
                    let is_certain = !is_stale && is_certain(row, &claimed);
                    instances.add(number, &row.instances, card.card.model, is_certain);
                }
                card
            }));
        }
        starts.push(u32::try_from(held.len()).unwrap_or(u32::MAX));
        let cards = held.iter().map(|held| held.card).collect();
        let (starts, held, grouped) = (starts.into(), held.into(), AllGrouped::default());
        let all =
            Self { models, starts, cards, grouped, held, has_taken, has_strangers, claimed, instances, adds };
        let grouped = AllGrouped::of((0..registry.len()).map(|number| all.cards(Some(number))));
        Self { grouped, ..all }
    }

    fn range(&self, number: usize) -> std::ops::Range<usize> {
        let at = |place: usize| self.starts.get(place).and_then(|&start| usize::try_from(start).ok());
        at(number).zip(at(number.saturating_add(1))).map_or(0..0, |(start, end)| start..end)
    }

    /// The cards of the node of this number; none if it has none, or is not known.
    pub(crate) fn cards(&self, number: Option<usize>) -> &[PhysicalGpu] {
        number.and_then(|number| self.cards.get(self.range(number))).unwrap_or_default()
    }

    /// The same with those who have them.
    pub(crate) fn held(&self, number: Option<usize>) -> &[HeldCard] {
        number.and_then(|number| self.held.get(self.range(number))).unwrap_or_default()
    }

    /// What a pod adds to a card of the node of this number, where that was measured.
    pub(crate) fn adds(&self, number: usize) -> Option<Watts> {
        self.adds.get(number).copied().flatten()
    }

    /// The MIG instances of all nodes.
    pub(crate) const fn instances(&self) -> &Instances {
        &self.instances
    }

    /// What claims say of cards.
    pub(crate) const fn claimed(&self) -> &Arc<ClaimedCards> {
        &self.claimed
    }

    /// What a pod asks for of cards and of MIG instances.
    pub(crate) fn asked(
        &self,
        rule: &GpuRule,
        demand: &PodDemand,
        raw: &RawValue,
    ) -> (Option<GpuAsk>, Option<InstancesAsk>) {
        let wish = GpuWish::read(raw);
        let instances = self.models.instances_asked(rule, &wish, (demand, raw), &self.instances);
        let cards = self.models.asked(rule, wish, demand);
        // Annotations may be about instances alone.
        (cards.filter(|ask| instances.is_none() || *ask != Err(BadWish::NoCount)), instances)
    }

    /// Why a pod cannot have cards of a node.
    #[inline]
    pub(crate) fn rejects(&self, ask: &GpuAsk, number: Option<usize>) -> Option<Rejection> {
        match ask {
            Ok(request) => self.grouped.node(number).fits(*request).err().map(Rejection::Gpu),
            Err(bad) => Some(Rejection::GpuWish(*bad)),
        }
    }

    /// How well the cards of a node suit a pod, from 0 to 100.
    pub(crate) fn score(&self, request: GpuRequest, number: Option<usize>) -> u8 {
        fit(request, self.cards(number)).map_or(0, |fit| fit.score)
    }
}

#[cfg(test)]
mod tests;
