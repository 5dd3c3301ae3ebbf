//! What of the cluster kube-scheduler's other scores depend on: zones, taints and images of nodes, Services, and the
//! affinity of other pods.

use super::ListAnswer;
use super::rows::{AffinityReach, IMAGE_BYTES_MIN, ServiceRow, SiteRow};
use crate::index::{self, Registry};
use crate::listing::Listing;
use crate::rows::PodRow;
use host_kit::reflect::{CachedRow, ObjectKey, ReflectEvent, Rows};
use joulie_api::extender::IndifferentPod;
use joulie_api::extender::pod;
use joulie_core::placement::assumed::{NodeKey, PodUid};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The present facts, immutable. Without any, no pod is safe, and no node has a zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherScores {
    /// By node number.
    sites: Arc<[Site]>,
    images: Arc<Images>,
    /// The selectors of the Services of each namespace.
    services: Arc<BTreeMap<String, Vec<Selector>>>,
    neighbours: Arc<Neighbours>,
    /// Whether all of it was read.
    is_read: bool,
}

type Selector = Box<[(String, String)]>;

/// A node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site {
    /// The number of its zone; 0 if it has none.
    zone: u16,
    is_known: bool,
    is_tainted: bool,
}

impl Site {
    pub(crate) fn zone(self) -> u16 {
        self.zone
    }

    /// Whether its taints turn no score of a pod.
    pub(crate) fn indifferent(self) -> Result<(), ListAnswer> {
        match self {
            Self { is_known: false, .. } => Err(ListAnswer::Unknown),
            Self { is_tainted: true, .. } => Err(ListAnswer::Taint),
            Self { .. } => Ok(()),
        }
    }
}

impl OtherScores {
    /// Nodes of these zones, by number, and nothing else.
    #[cfg(test)]
    pub(crate) fn of_zones(zones: impl Iterator<Item = u16>) -> Self {
        let sites = zones.map(|zone| Site { zone, is_known: true, is_tainted: false }).collect();
        Self { sites, ..Self::default() }
    }

    pub(crate) fn site(&self, number: Option<usize>) -> Site {
        number.and_then(|number| self.sites.get(number)).copied().unwrap_or_default()
    }

    /// Whether none of kube-scheduler's other scores of a pod depends on which nodes are compared, taints aside.
    pub(crate) fn indifferent(&self, pod: Option<&RawValue>) -> Result<(), ListAnswer> {
        let (Some(pod), true) = (pod, self.is_read) else { return Err(ListAnswer::Unknown) };
        let pod = IndifferentPod::read(pod)?;
        let is_selected = |selector: &Selector| selector.iter().all(|(key, value)| pod.has_label(key, value));
        let mut services = self.services.get(pod.namespace()).into_iter().flatten();
        if pod.spreads_by_default() && services.any(is_selected) {
            return Err(ListAnswer::Spread);
        }
        if self.neighbours.reach(pod.namespace()) {
            return Err(ListAnswer::Neighbour);
        }
        match self.images.matter(&pod) {
            Some(false) => Ok(()),
            Some(true) => Err(ListAnswer::Image),
            None => Err(ListAnswer::Unknown),
        }
    }
}

/// How many nodes have each image, and its size.
#[derive(Clone, Debug, Default)]
struct Images {
    known: BTreeMap<u64, (u64, u32)>,
    nodes: u32,
}

/// The bounds between which kube-scheduler scores images: all images of a pod together, and each container.
const LEAST: u64 = 23 * 1024 * 1024;
const MOST_EACH: u64 = 1000 * 1024 * 1024;

impl Images {
    fn add(&mut self, row: &SiteRow) {
        self.nodes += 1;
        for &(image, size) in &row.images {
            let (known, nodes) = self.known.entry(image).or_default();
            *known = size.max(*known);
            *nodes += 1;
        }
    }

    fn take(&mut self, row: &SiteRow) {
        self.nodes = self.nodes.saturating_sub(1);
        for (image, _) in &row.images {
            if let Some((_, nodes)) = self.known.get_mut(image) {
                *nodes = nodes.saturating_sub(1);
                if *nodes == 0 {
                    self.known.remove(image);
                }
            }
        }
    }

    /// Whether a node with the pod's images scores more than one without them; `None` if that is not known.
    fn matter(&self, pod: &IndifferentPod<'_>) -> Option<bool> {
        // What every node has, and what a node has at most.
        let (mut least, mut most, mut containers) = (0_u64, 0_u64, 0_u64);
        for image in pod.images() {
            let image = image?;
            containers += 1;
            // As kube-scheduler's normalizedImageName.
            let has_tag = image.rfind(':').is_some_and(|tag| image.rfind('/').is_none_or(|path| path < tag));
            let found = match has_tag {
                true => self.known.get(&index::fingerprint(image.as_bytes())),
                false => self.known.get(&index::fingerprint(format!("{image}:latest").as_bytes())),
            };
            let Some(&(size, nodes)) = found else {
                most = most.saturating_add(IMAGE_BYTES_MIN);
                continue;
            };
            let scaled = u128::from(size) * u128::from(nodes) / u128::from(self.nodes.max(1));
            let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
            most = most.saturating_add(scaled);
            if nodes >= self.nodes {
                least = least.saturating_add(scaled);
            }
        }
        let points = |sum: u64| {
            let most = MOST_EACH.saturating_mul(containers.max(1));
            u128::from(sum.clamp(LEAST, most) - LEAST) * 100 / u128::from(most - LEAST)
        };
        Some(points(least) != points(most))
    }
}

/// The namespaces that the affinity of pods reaches, with the number of these pods.
#[derive(Clone, Debug, Default)]
struct Neighbours {
    namespaces: BTreeMap<String, u32>,
    anybody: u32,
}

impl Neighbours {
    fn reach(&self, namespace: &str) -> bool {
        self.anybody > 0 || self.namespaces.contains_key(namespace)
    }

    fn add(&mut self, reach: &AffinityReach) {
        match reach {
            AffinityReach::Nobody => {}
            AffinityReach::Anybody => self.anybody += 1,
            AffinityReach::Namespaces(names) => {
                for name in names {
                    *self.namespaces.entry(name.clone()).or_default() += 1;
                }
            }
        }
    }

    fn take(&mut self, reach: &AffinityReach) {
        match reach {
            AffinityReach::Nobody => {}
            AffinityReach::Anybody => self.anybody = self.anybody.saturating_sub(1),
            AffinityReach::Namespaces(names) => {
                for name in names {
                    if let Some(pods) = self.namespaces.get_mut(name) {
                        *pods = pods.saturating_sub(1);
                        if *pods == 0 {
                            self.namespaces.remove(name);
                        }
                    }
                }
            }
        }
    }
}

/// The most pods with an affinity that are kept. While there are more, no pod is safe.
const NEIGHBOURS_MAX: usize = 200_000;

/// Follows the watches.
#[derive(Default)]
pub(crate) struct OtherScoresBuilder {
    nodes: Option<Rows<SiteRow>>,
    services: Option<Rows<ServiceRow>>,
    /// Pods whose affinity counts for others.
    pods: BTreeMap<PodUid, AffinityReach>,
    listing: Listing,
    /// Whether all pods were listed once.
    has_pods: bool,
    is_overfull: bool,
    /// The revision of the registry by which the sites are numbered.
    revision: Option<u64>,
    shown: OtherScores,
}

impl OtherScoresBuilder {
    /// Without Services and pods no pod is safe, and only zones are known.
    pub(crate) fn new(nodes: Option<Rows<SiteRow>>, services: Option<Rows<ServiceRow>>) -> Self {
        Self { nodes, services, ..Self::default() }
    }

    /// The present facts.
    pub(crate) fn shown(&self) -> Arc<OtherScores> {
        Arc::new(self.shown.clone())
    }

    /// Whether nodes are followed at all.
    fn is_on(&self) -> bool {
        self.nodes.is_some()
    }

    /// Takes in what has changed of nodes and Services.
    pub(crate) fn renew(&mut self, registry: &Registry) {
        let Self { nodes: Some(nodes), services, shown, revision, .. } = self else { return };
        let known = &mut shown.images;
        let has_news = nodes.news(|news| {
            let images = Arc::make_mut(known);
            match news.changes {
                Some(changes) => {
                    for change in changes {
                        let (before, now) =
                            (change.before.map(|held| &*held.row), change.now.map(|held| &*held.row));
                        if before != now {
                            before.into_iter().for_each(|row| images.take(row));
                            now.into_iter().for_each(|row| images.add(row));
                        }
                    }
                }
                None => {
                    *images = Images::default();
                    news.rows.values().for_each(|held| images.add(&held.row));
                }
            }
        });
        if has_news.is_some() || *revision != Some(registry.revision()) {
            *revision = Some(registry.revision());
            shown.sites = nodes.with(|rows| sites(rows, registry));
        }
        let selectors = services.as_mut().and_then(|services| {
            services.news(|news| {
                let mut all: BTreeMap<String, Vec<Selector>> = BTreeMap::new();
                for (key, held) in news.rows.iter().filter(|(_, held)| !held.row.selector.is_empty()) {
                    all.entry(key.namespace.clone()).or_default().push(held.row.selector.clone());
                }
                all
            })
        });
        if let Some(selectors) = selectors {
            shown.services = Arc::new(selectors);
        }
        self.settle();
    }

    /// What cannot be read may turn a score.
    fn settle(&mut self) {
        let is_whole = |is_synced: bool, unreadable: usize| is_synced && unreadable == 0;
        let nodes = self.nodes.as_ref();
        let services = self.services.as_ref();
        self.shown.is_read = self.has_pods
            && !self.is_overfull
            && nodes.is_some_and(|rows| is_whole(rows.is_synced(), rows.malformed().len()))
            && services.is_some_and(|rows| is_whole(rows.is_synced(), rows.malformed().len()));
    }

    /// Follows an event of the watch of pods.
    pub(crate) fn follow(&mut self, event: &ReflectEvent<PodRow>) {
        if !self.is_on() {
            return;
        }
        match event {
            ReflectEvent::Begin => {
                self.listing.begin();
                self.is_overfull = false;
            }
            ReflectEvent::Seen { row, .. } => {
                self.listing.see(row.uid);
                self.see(row.uid, &row.reach);
            }
            ReflectEvent::Gone { uid } => self.see(pod::uid(uid), &AffinityReach::Nobody),
            ReflectEvent::Whole => {
                let gone = self.listing.end(self.pods.keys().copied());
                gone.into_iter().for_each(|pod| self.see(pod, &AffinityReach::Nobody));
                self.has_pods = true;
                self.settle();
            }
        }
    }

    fn see(&mut self, pod: PodUid, reach: &AffinityReach) {
        if *reach == AffinityReach::Nobody && !self.pods.contains_key(&pod) {
            return;
        }
        if self.pods.len() >= NEIGHBOURS_MAX && !self.pods.contains_key(&pod) {
            self.is_overfull = true;
            return self.settle();
        }
        let before = match reach {
            AffinityReach::Nobody => self.pods.remove(&pod),
            AffinityReach::Namespaces(_) | AffinityReach::Anybody => self.pods.insert(pod, reach.clone()),
        };
        if before.as_ref() != Some(reach) {
            let neighbours = Arc::make_mut(&mut self.shown.neighbours);
            before.iter().for_each(|before| neighbours.take(before));
            neighbours.add(reach);
        }
    }
}

/// The nodes by their numbers. Zones are numbered in the order of their names.
fn sites(rows: &BTreeMap<ObjectKey, CachedRow<SiteRow>>, registry: &Registry) -> Arc<[Site]> {
    let zones: BTreeSet<&str> = rows.values().filter_map(|held| held.row.zone.as_deref()).collect();
    let zones: BTreeMap<&str, u16> = zones.into_iter().zip(1..=u16::MAX).collect();
    let mut sites = vec![Site::default(); registry.len()];
    for (key, held) in rows {
        let Some(NodeKey(number)) = registry.find(&key.name) else { continue };
        if let Some(site) = usize::try_from(number).ok().and_then(|at| sites.get_mut(at)) {
            let zone = held.row.zone.as_deref().and_then(|zone| zones.get(zone)).copied().unwrap_or(0);
            let is_known = held.stale_since.is_none();
            *site = Site { zone, is_known, is_tainted: held.row.is_tainted };
        }
    }
    sites.into()
}

#[cfg(test)]
mod tests;
