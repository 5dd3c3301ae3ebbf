//! The watts of pods that are known to be bound, but that no power sample includes yet.
//!
//! It follows the events of the pod watch. The core's rule decides which pods count and for how long. Nothing here
//! reads a clock.

use crate::index::Registry;
use crate::listing::Listing;
use crate::queue::Queue;
use crate::rows::{PodRow, Stage};
use crate::snapshot::{Fleet, Node};
use host_kit::reflect::ReflectEvent;
use joulie_api::extender::pod;
use joulie_core::placement::assumed::{
    AssumedRule, AssumedSlot, AssumedWatts, NodeKey, PodUid, Sighting, SightingOutcome, Swept,
};
use joulie_core::placement::estimate::{Coefficients, HardwareRecord, HardwareTerms};
use joulie_core::placement::freshness::UnixTime;
use joulie_core::placement::score::PodTerms;
use power_units::Watts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pods that count, the pods that cannot be weighed yet, and the pods that wait for a node.
pub(crate) struct AssumedLedger {
    rule: AssumedRule,
    assumed: AssumedWatts<Box<[AssumedSlot]>>,
    pods_max: usize,
    coefficients: Coefficients,
    /// Bound pods whose nodes' hardware is not known, so that they cannot be weighed yet: their agents report late,
    /// or not at all.
    waiting: BTreeMap<PodUid, Waiting>,
    /// Pods that wait for a node; `shown_queue` is the copy that requests read.
    queue: BTreeMap<PodUid, PodTerms>,
    shown_queue: Option<Arc<Queue>>,
    listing: Listing,
}

/// A bound pod that cannot be weighed yet.
#[derive(Clone, Debug)]
struct Waiting {
    /// When the pod was first seen. It is used for each time that the pod's object does not give.
    since: UnixTime,
    row: Arc<PodRow>,
}

/// The changes of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Pods that began to count.
    pub(crate) counted: u64,
    /// Pods that do not count because the table is full.
    pub(crate) dropped: u64,
    /// Pods that were seen bound, with their node if it has a number, and pods that are gone (`None`).
    pub(crate) bound: BTreeMap<PodUid, Option<NodeKey>>,
}

/// What the ledger needs to weigh a pod.
#[derive(Clone, Copy)]
pub(crate) struct Scales<'s> {
    pub(crate) registry: &'s Registry,
    pub(crate) fleet: &'s Fleet,
    pub(crate) now: UnixTime,
}

impl<'s> Scales<'s> {
    /// A node by its name, if its hardware is known.
    fn node(&self, name: &str) -> Option<(NodeKey, &'s Node, &'s HardwareRecord)> {
        let number = self.registry.find(name)?;
        let node = self.fleet.nodes.get(usize::try_from(number.0).ok()?)?;
        Some((number, node, node.hardware.as_ref()?))
    }
}

impl AssumedLedger {
    pub(crate) fn new(rule: AssumedRule, pods_max: usize, coefficients: Coefficients) -> Self {
        let slots = vec![AssumedSlot::EMPTY; pods_max].into_boxed_slice();
        let assumed = AssumedWatts::new(rule, slots);
        let (waiting, queue) = (BTreeMap::new(), BTreeMap::new());
        Self {
            rule,
            assumed,
            pods_max,
            coefficients,
            waiting,
            queue,
            shown_queue: None,
            listing: Listing::default(),
        }
    }

    /// Applies one event of the pod watch.
    pub(crate) fn follow(&mut self, event: ReflectEvent<PodRow>, scales: Scales<'_>, round: &mut Round) {
        match event {
            ReflectEvent::Begin => self.listing.begin(),
            ReflectEvent::Seen { row, .. } => {
                self.listing.see(row.uid);
                self.see(&row, scales, round);
            }
            ReflectEvent::Gone { uid } => self.gone(pod::uid(&uid), scales.now, round),
            ReflectEvent::Whole => {
                let known = self.assumed.pods().chain(self.waiting.keys().copied());
                let known = known.chain(self.queue.keys().copied());
                let gone = self.listing.end(known);
                gone.into_iter().for_each(|pod| self.gone(pod, scales.now, round));
            }
        }
    }

    fn gone(&mut self, pod: PodUid, now: UnixTime, round: &mut Round) {
        self.waiting.remove(&pod);
        if self.dequeue(pod) {
            round.bound.insert(pod, None);
        }
        self.assumed.gone(pod, now);
    }

    /// Adds a pod that needs a node. A pod with scheduling gates is not being scheduled yet, so it is removed
    /// instead.
    fn enqueue(&mut self, row: &PodRow, round: &mut Round) {
        if row.is_gated {
            self.dequeue(row.uid);
        } else if self.queue.len() < self.pods_max || self.queue.contains_key(&row.uid) {
            let terms = PodTerms::of(&row.demand, &self.coefficients);
            if self.queue.insert(row.uid, terms) != Some(terms) {
                self.shown_queue = None;
            }
        } else {
            round.dropped += 1;
        }
    }

    /// Removes a pod from the queue. Returns whether it was queued.
    fn dequeue(&mut self, pod: PodUid) -> bool {
        let was_there = self.queue.remove(&pod).is_some();
        if was_there {
            self.shown_queue = None;
        }
        was_there
    }

    /// The pods that wait for a node, as requests see them.
    pub(crate) fn queue(&mut self) -> Arc<Queue> {
        let pods = &self.queue;
        let all = || Arc::new(pods.iter().map(|(pod, terms)| (*pod, *terms)).collect());
        self.shown_queue.get_or_insert_with(all).clone()
    }

    fn see(&mut self, row: &Arc<PodRow>, scales: Scales<'_>, round: &mut Round) {
        let now = scales.now;
        if row.node.is_empty() {
            return match row.stage {
                Stage::Ended => self.gone(row.uid, now, round),
                Stage::Waits | Stage::Runs(_) => self.enqueue(row, round),
            };
        }
        self.dequeue(row.uid);
        let since = self.waiting.remove(&row.uid).map_or(now, |waited| waited.since);
        let running = match row.stage {
            Stage::Ended => return self.gone(row.uid, now, round),
            Stage::Waits => None,
            Stage::Runs(started) => Some(started.unwrap_or(since)),
        };
        round.bound.insert(row.uid, scales.registry.find(&row.node));
        let bound = row.bound.unwrap_or(since);
        let Some((node, known, hardware)) = scales.node(&row.node) else {
            let nowhere = Sighting { pod: row.uid, node: NodeKey(0), watts: Watts::ZERO, bound, running };
            // No need to keep a pod that every sample from now on includes.
            if self.rule.stands(&nowhere, now, Some(now)) {
                if self.waiting.len() < self.pods_max {
                    self.waiting.insert(row.uid, Waiting { since, row: row.clone() });
                } else {
                    round.dropped += 1;
                }
            }
            return;
        };
        let hardware = HardwareTerms::of(Some(hardware), &self.coefficients);
        let watts = PodTerms::of(&row.demand, &self.coefficients).on(&hardware).total();
        let sighting = Sighting { pod: row.uid, node, watts, bound, running };
        match self.assumed.see(&sighting, now, known.sampled) {
            SightingOutcome::Counted => round.counted += 1,
            SightingOutcome::Displaced(_) => {
                round.counted += 1;
                round.dropped += 1;
            }
            SightingOutcome::Full => round.dropped += 1,
            SightingOutcome::Known | SightingOutcome::Ignored => {}
        }
    }

    /// Weighs the pods whose nodes' hardware is known by now, and drops those that need not wait any longer.
    pub(crate) fn weigh(&mut self, scales: Scales<'_>, round: &mut Round) {
        let rows: Vec<Arc<PodRow>> = self.waiting.values().map(|waiting| waiting.row.clone()).collect();
        rows.iter().for_each(|row| self.see(row, scales, round));
    }

    /// Drops the pods that a sample includes by now.
    pub(crate) fn sweep(&mut self, fleet: &Fleet, now: UnixTime) -> Swept {
        self.assumed.sweep(now, |NodeKey(number)| {
            usize::try_from(number).ok().and_then(|at| fleet.nodes.get(at)).and_then(|node| node.sampled)
        })
    }

    /// Forgets a node whose number will be reused for another node.
    pub(crate) fn node_gone(&mut self, node: NodeKey) {
        self.assumed.node_gone(node);
    }

    /// The assumed watts of each node, by number, for this many numbers.
    pub(crate) fn sums(&self, numbers: usize) -> Box<[Watts]> {
        let mut sums = vec![Watts::ZERO; numbers].into_boxed_slice();
        self.assumed.sum_into(&mut sums);
        sums
    }

    pub(crate) fn pods(&self) -> usize {
        self.assumed.len()
    }

    /// How many pods cannot be weighed yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::Row;
    use power_units::Micros;
    use serde_json::json;

    fn ledger() -> AssumedLedger {
        let rule = AssumedRule::new(Micros::new(30_000_000), Micros::MINUTE).unwrap();
        AssumedLedger::new(rule, 16, Coefficients::REFERENCE)
    }

    fn pod(name: &str, status: serde_json::Value) -> ReflectEvent<PodRow> {
        let object = json!({"metadata": {"name": name, "uid": name}, "status": status,
            "spec": {"nodeName": "a", "containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
        ReflectEvent::Seen { uid: name.to_owned(), row: Arc::new(PodRow::read(&object).unwrap()) }
    }

    fn at(second: i64) -> UnixTime {
        UnixTime::from_micros(second * 1_000_000)
    }

    /// A node that was sampled at 90 s, with a hardware record or without.
    fn world(hardware: Option<HardwareRecord>) -> (Registry, Fleet) {
        let mut registry = Registry::default();
        registry.number("a");
        let node = Node { sampled: Some(at(90)), hardware, ..Node::unknown("a") };
        (registry, Fleet { nodes: [node].into(), ..Fleet::default() })
    }

    /// Applies events at one moment, and returns how many pods count then.
    fn play(ledger: &mut AssumedLedger, events: Vec<ReflectEvent<PodRow>>, now: i64) -> usize {
        let ((registry, fleet), mut round) = (world(Some(HardwareRecord::EMPTY)), Round::default());
        let scales = Scales { registry: &registry, fleet: &fleet, now: at(now) };
        for event in events {
            ledger.follow(event, scales, &mut round);
        }
        ledger.pods()
    }

    #[test]
    fn a_list_after_a_gap_ends_those_that_are_not_in_it() {
        let mut ledger = ledger();
        let waits = || json!({"phase": "Pending"});
        assert_eq!(
            play(
                &mut ledger,
                vec![ReflectEvent::Begin, pod("x", waits()), pod("y", waits()), ReflectEvent::Whole],
                100
            ),
            2
        );
        assert_eq!(
            play(&mut ledger, vec![ReflectEvent::Begin, pod("y", waits())], 101),
            2,
            "not before it is whole"
        );
        assert_eq!(play(&mut ledger, vec![ReflectEvent::Whole], 101), 1);
        assert_eq!(play(&mut ledger, vec![ReflectEvent::Gone { uid: "y".to_owned() }], 102), 0);
        assert_eq!(play(&mut ledger, vec![pod("y", waits())], 103), 0, "a late word does not bring it back");
    }

    #[test]
    fn a_pod_whose_power_the_last_sample_shows_does_not_count() {
        let mut ledger = ledger();
        let runs = |second: &str| json!({"phase": "Running", "startTime": second});
        // Sampled 90 s after the epoch; 30 s to settle.
        assert_eq!(play(&mut ledger, vec![pod("old", runs("1970-01-01T00:00:59Z"))], 100), 0);
        assert_eq!(play(&mut ledger, vec![pod("new", runs("1970-01-01T00:01:01Z"))], 100), 1);
        assert_eq!(play(&mut ledger, vec![pod("ended", json!({"phase": "Failed"}))], 100), 1);
    }

    #[test]
    fn a_pod_counts_from_the_moment_at_which_its_node_s_hardware_is_known() {
        let (mut ledger, mut round) = (ledger(), Round::default());
        let (registry, blind) = world(None);
        let early = Scales { registry: &registry, fleet: &blind, now: at(100) };
        // A pod that is pending, one that has just started, one that every sample from now on includes, and one that
        // ended.
        let runs = |second: &str| json!({"phase": "Running", "startTime": second});
        for event in [
            pod("waits", json!({"phase": "Pending"})),
            pod("new", runs("1970-01-01T00:01:30Z")),
            pod("old", runs("1970-01-01T00:00:30Z")),
            pod("ends", json!({"phase": "Pending"})),
            pod("ends", json!({"phase": "Succeeded"})),
        ] {
            ledger.follow(event, early, &mut round);
        }
        ledger.weigh(early, &mut round);
        assert_eq!((ledger.pods(), ledger.waiting(), round.counted), (0, 2, 0));
        // One core of one, at the lowest power that a node is assumed to have: 0.7 · 150 W each.
        let (_, seen) = world(Some(HardwareRecord::EMPTY));
        ledger.weigh(Scales { fleet: &seen, now: at(101), ..early }, &mut round);
        assert_eq!((ledger.pods(), ledger.waiting(), round.counted), (2, 0, 2));
        let [watts] = *ledger.sums(1) else { panic!("one node") };
        assert!(
            watts - Watts::from_int(210) < Watts::from_bits(100) && watts >= Watts::from_int(210),
            "{watts}"
        );
    }

    #[test]
    fn a_pod_on_a_node_that_never_gets_an_agent_is_not_kept() {
        let (mut ledger, mut round) = (ledger(), Round::default());
        let ((_, fleet), registry) = (world(None), Registry::default());
        let mut scales = Scales { registry: &registry, fleet: &fleet, now: at(100) };
        ledger.follow(pod("waits", json!({"phase": "Pending"})), scales, &mut round);
        ledger.follow(pod("gone", json!({"phase": "Pending"})), scales, &mut round);
        ledger.follow(ReflectEvent::Gone { uid: "gone".to_owned() }, scales, &mut round);
        assert_eq!(ledger.waiting(), 1);
        // It does not run within the minute.
        scales.now = at(161);
        ledger.weigh(scales, &mut round);
        assert_eq!((ledger.pods(), ledger.waiting()), (0, 0));
    }
}
