//! Pods that were bound a moment ago and do not draw yet, so that their nodes' grants are raised before their containers
//! start; and pods that wait because a limit lacks watts for them.
//!
//! What a pod will draw is estimated as the extender does, with the reference coefficients, and on GPUs by what was measured of
//! the cards of its node where GPU objects are watched. It counts on top of what its
//! node wants when it is first seen bound, until it has run for [`SETTLES`], and no longer than [`AGE_MAX`] without
//! running: a pod that never starts holds no watts.

use crate::gpu_repair::{self, GpuSeen};
use crate::rows::PodSeen;
use host_kit::reflect::{ObjectKey, RowChanges, Rows};
use joulie_core::placement::assumed::{AssumedRule, NodeKey, PodUid, Sighting};
use joulie_core::placement::demand::PodDemand;
use joulie_core::placement::estimate::{Coefficients, HardwareRecord, HardwareTerms, NodeGpus};
use joulie_core::placement::freshness::UnixTime;
use joulie_core::placement::score::PodTerms;
use planner::hardware::ResolvedHardware;
use planner::node::Node;
use power_units::{Micros, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a pod draws shows in its node's report, which is made of the last 20 seconds, a few seconds after it has begun.
const SETTLES: Micros = Micros::new(15_000_000);
/// A container whose image is fetched for longer starts with what its node has then.
const AGE_MAX: Micros = Micros::new(120_000_000);
const _: () = assert!(AGE_MAX.get() > SETTLES.get());

/// The pods.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    bound: BTreeMap<ObjectKey, Bound>,
    /// The PowerBudget that lacks watts for each pod that waits, and how many.
    waiting: BTreeMap<ObjectKey, (Box<str>, Watts)>,
}

/// A pod on a node.
#[derive(Clone, Debug)]
struct Bound {
    uid: PodUid,
    node: Arc<str>,
    demand: PodDemand,
    /// What it adds to a card of its node, where that was measured.
    added: Option<Watts>,
    /// When it was bound, or first seen bound.
    since: Option<UnixTime>,
    runs: bool,
    /// When it was first seen running.
    running: Option<UnixTime>,
    /// What its node will want with it; `None` while it is not known what the node wants.
    needs: Option<Watts>,
}

impl Bound {
    /// Whether what it adds to cards matters to what its node will want.
    fn awaits_cards(&self) -> bool {
        self.needs.is_none() && (self.demand.gpus.is_some() || self.demand.gpu_quarters > 0)
    }
}

/// Pods that wait for watts of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingForWatts {
    pub(crate) pods: usize,
    /// What is lacking for all of them.
    pub(crate) watts: Watts,
}

impl WaitingForWatts {
    pub(crate) const NONE: Self = Self { pods: 0, watts: Watts::ZERO };
}

impl Fresh {
    /// Takes in changed pods. Returns whether there are other pods now.
    pub(super) fn take(&mut self, news: &RowChanges<'_, PodSeen>) -> bool {
        let Some(changes) = &news.changes else {
            let gone = |key: &ObjectKey| !news.rows.contains_key(key);
            self.bound.retain(|key, _| !gone(key));
            self.waiting.retain(|key, _| !gone(key));
            let all = news.rows.iter().map(|(key, held)| self.follow(key, Some(&held.row)));
            return all.fold(false, |one, other| one | other);
        };
        let each = changes.iter().map(|change| self.follow(change.key, change.now.map(|held| &*held.row)));
        each.fold(false, |one, other| one | other)
    }

    fn follow(&mut self, key: &ObjectKey, pod: Option<&PodSeen>) -> bool {
        let lacks = pod.filter(|pod| pod.node().is_none()).and_then(|pod| pod.fresh.as_ref()?.lacks.clone());
        let waits = match lacks {
            Some(lacks) => self.waiting.insert(key.clone(), lacks.clone()) != Some(lacks),
            None => self.waiting.remove(key).is_some(),
        };
        let Some((pod, node)) = pod.and_then(|pod| Some((pod, pod.node()?))) else {
            return self.bound.remove(key).is_some() | waits;
        };
        let known = self.bound.get_mut(key).filter(|known| *known.node == *node);
        match (&pod.fresh, known) {
            (Some(fresh), Some(known)) if known.uid == fresh.uid => waits,
            (Some(fresh), _) => {
                let (uid, demand, since) = (fresh.uid, fresh.demand, fresh.bound);
                let node = node.into();
                let (runs, running, added, needs) = (false, None, None, None);
                let bound = Bound { uid, node, demand, added, since, runs, running, needs };
                self.bound.insert(key.clone(), bound);
                true
            }
            (None, Some(known)) if pod.runs() => {
                known.runs = true;
                waits
            }
            (None, _) => self.bound.remove(key).is_some() | waits,
        }
    }

    /// Takes in what pods that are not counted yet add to the cards of their nodes.
    pub(super) fn measure(&mut self, gpus: &Rows<GpuSeen>) {
        let asking: Vec<&mut Bound> = self.bound.values_mut().filter(|pod| pod.awaits_cards()).collect();
        if asking.is_empty() || !gpus.is_synced() {
            return;
        }
        let nodes: Vec<Arc<str>> = asking.iter().map(|pod| pod.node.clone()).collect();
        let nodes: BTreeSet<&str> = nodes.iter().map(|node| &**node).collect();
        let added = gpu_repair::added(gpus, &nodes);
        for pod in asking {
            pod.added = added.get(&*pod.node).copied();
        }
    }

    /// Says of every node what it will want at least. Nodes are sorted by name.
    pub(super) fn expect(&mut self, nodes: &mut [Node], now: UnixTime) {
        nodes.iter_mut().for_each(|node| node.expected = None);
        // AssumedRule never fails here: the bounds are asserted above.
        let Ok(rule) = AssumedRule::new(SETTLES, AGE_MAX) else { return };
        self.bound.retain(|_, pod| {
            let bound = *pod.since.get_or_insert(now);
            if pod.runs {
                pod.running.get_or_insert(now);
            }
            let watts = pod.needs.unwrap_or(Watts::ZERO);
            let seen = Sighting { pod: pod.uid, node: NodeKey(0), watts, bound, running: pod.running };
            rule.stands(&seen, now, Some(now))
        });
        for pod in self.bound.values() {
            if let (Some(needs), Some(node)) = (pod.needs, find(nodes, &pod.node)) {
                node.expected = Some(node.expected.map_or(needs, |most| most.max(needs)));
            }
        }
        for pod in self.bound.values_mut().filter(|pod| pod.needs.is_none()) {
            let Some(node) = find(nodes, &pod.node) else { continue };
            let Some(demand) = node.demand() else { continue };
            let base = node.expected.map_or(demand.highest(), |expected| expected.max(demand.highest()));
            let needs = base + adds(&pod.demand, &node.machine.resolved.hardware, pod.added);
            (pod.needs, node.expected) = (Some(needs), Some(needs));
        }
    }

    /// The pods that wait for watts of a PowerBudget.
    pub(crate) fn waiting_for(&self, budget: &str) -> WaitingForWatts {
        let here = self.waiting.values().filter(|(name, _)| **name == *budget);
        here.fold(WaitingForWatts::NONE, |sum, (_, watts)| WaitingForWatts {
            pods: sum.pods + 1,
            watts: sum.watts + *watts,
        })
    }
}

/// A node of a list that is sorted by name.
fn find<'n>(nodes: &'n mut [Node], name: &str) -> Option<&'n mut Node> {
    let at = nodes.binary_search_by(|node| (*node.name).cmp(name)).ok();
    at.and_then(|at| nodes.get_mut(at))
}

/// The watts that a pod adds to a node with this hardware, of which it adds so many to a card where that was measured.
fn adds(demand: &PodDemand, hardware: &ResolvedHardware, added: Option<Watts>) -> Watts {
    let ResolvedHardware { cpu, gpu } = hardware;
    let record = HardwareRecord {
        cpu_max: cpu.max_per_socket.map(|each| HardwareRecord::packages(each, cpu.sockets)),
        cores: cpu.total_cores,
        gpus: gpu.as_ref().map(|gpus| NodeGpus {
            count: Some(gpus.count),
            max: gpus.max,
            vendor: None,
            adds: added,
        }),
    };
    let terms = HardwareTerms::of(Some(&record), &Coefficients::REFERENCE);
    PodTerms::of(demand, &Coefficients::REFERENCE).on(&terms).total()
}

#[cfg(test)]
mod tests;
