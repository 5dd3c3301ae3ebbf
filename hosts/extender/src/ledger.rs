//! The watts of pods that were seen bound and that no sample shows yet.
//!
//! It follows what the watch of pods tells; what counts how long is the core's law. Nothing here reads a clock.

use crate::index::Registry;
use crate::rows::{PodRow, Stage, uid_of};
use crate::snapshot::Fleet;
use host_kit::reflect::Event;
use joulie_core::placement::assumed::{
    AssumedRule, AssumedWatts, NodeKey, PodUid, Seen, Sighting, Slot, Swept,
};
use joulie_core::placement::estimate::Coefficients;
use joulie_core::placement::freshness::UnixTime;
use joulie_core::placement::score::PodTerms;
use power_units::Watts;
use std::collections::BTreeSet;

/// Who is counted.
pub(crate) struct Ledger {
    assumed: AssumedWatts<Box<[Slot]>>,
    coefficients: Coefficients,
    /// Who is in the list that comes in now: who counts and is not in it is gone.
    listed: Option<BTreeSet<PodUid>>,
}

/// What a round brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Pods that count from now on.
    pub(crate) counted: u64,
    /// Pods that do not count because there is no room.
    pub(crate) dropped: u64,
}

impl Ledger {
    pub(crate) fn new(rule: AssumedRule, pods_max: usize, coefficients: Coefficients) -> Self {
        let slots = vec![Slot::EMPTY; pods_max].into_boxed_slice();
        Self { assumed: AssumedWatts::new(rule, slots), coefficients, listed: None }
    }

    /// Takes in what happened.
    pub(crate) fn follow(
        &mut self,
        event: Event<PodRow>,
        registry: &mut Registry,
        fleet: &Fleet,
        now: UnixTime,
        round: &mut Round,
    ) {
        match event {
            Event::Begin => self.listed = Some(BTreeSet::new()),
            Event::Seen { row, .. } => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(row.uid);
                }
                self.see(&row, registry, fleet, now, round);
            }
            Event::Gone { uid } => self.assumed.gone(uid_of(&uid), now),
            Event::Whole => {
                let Some(listed) = self.listed.take() else { return };
                let gone: Vec<PodUid> = self.assumed.pods().filter(|pod| !listed.contains(pod)).collect();
                gone.into_iter().for_each(|pod| self.assumed.gone(pod, now));
            }
        }
    }

    fn see(
        &mut self,
        row: &PodRow,
        registry: &mut Registry,
        fleet: &Fleet,
        now: UnixTime,
        round: &mut Round,
    ) {
        let running = match row.stage {
            _ if row.node.is_empty() => return,
            Stage::Ended => return self.assumed.gone(row.uid, now),
            Stage::Waits => None,
            Stage::Runs(since) => Some(since.unwrap_or(now)),
        };
        let node = registry.number(&row.node);
        let number = usize::try_from(node.0).unwrap_or(usize::MAX);
        let terms = PodTerms::of(&row.demand, &self.coefficients);
        let watts = fleet.terms.get(number).map_or(Watts::ZERO, |node| node.estimate(&terms).total());
        let sampled = fleet.nodes.get(number).and_then(|node| node.sampled);
        let sighting = Sighting { pod: row.uid, node, watts, bound: row.bound.unwrap_or(now), running };
        match self.assumed.see(&sighting, now, sampled) {
            Seen::Counted => round.counted += 1,
            Seen::Displaced(_) => {
                round.counted += 1;
                round.dropped += 1;
            }
            Seen::Full => round.dropped += 1,
            Seen::Known | Seen::Ignored => {}
        }
    }

    /// Drops what samples show by now.
    pub(crate) fn sweep(&mut self, fleet: &Fleet, now: UnixTime) -> Swept {
        self.assumed.sweep(now, |NodeKey(number)| {
            usize::try_from(number).ok().and_then(|at| fleet.nodes.get(at)).and_then(|node| node.sampled)
        })
    }

    /// A number that is given to another node next.
    pub(crate) fn node_gone(&mut self, node: NodeKey) {
        self.assumed.node_gone(node);
    }

    /// The watts by number, for so many numbers.
    pub(crate) fn sums(&self, numbers: usize) -> Box<[Watts]> {
        let mut sums = vec![Watts::ZERO; numbers].into_boxed_slice();
        self.assumed.sum_into(&mut sums);
        sums
    }

    pub(crate) fn pods(&self) -> usize {
        self.assumed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Node;
    use host_kit::reflect::Row;
    use power_units::Micros;
    use serde_json::json;
    use std::sync::Arc;

    fn ledger() -> Ledger {
        let rule = AssumedRule::new(Micros::new(30_000_000), Micros::MINUTE).unwrap();
        Ledger::new(rule, 16, Coefficients::REFERENCE)
    }

    fn pod(name: &str, status: serde_json::Value) -> Event<PodRow> {
        let object = json!({"metadata": {"name": name, "uid": name}, "status": status,
            "spec": {"nodeName": "a", "containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
        Event::Seen { uid: name.to_owned(), row: Arc::new(PodRow::read(&object).unwrap()) }
    }

    fn at(second: i64) -> UnixTime {
        UnixTime::from_micros(second * 1_000_000)
    }

    /// Plays events at one moment, and tells how many pods count then.
    fn play(ledger: &mut Ledger, events: Vec<Event<PodRow>>, now: i64) -> usize {
        let (mut registry, mut round) = (Registry::default(), Round::default());
        let mut nodes = vec![Node::unknown("a")].into_boxed_slice();
        nodes[0].sampled = Some(at(90));
        let fleet = Fleet { nodes, ..Fleet::default() };
        for event in events {
            ledger.follow(event, &mut registry, &fleet, at(now), &mut round);
        }
        ledger.pods()
    }

    #[test]
    fn a_list_after_a_gap_ends_those_that_are_not_in_it() {
        let mut ledger = ledger();
        let waits = || json!({"phase": "Pending"});
        assert_eq!(
            play(&mut ledger, vec![Event::Begin, pod("x", waits()), pod("y", waits()), Event::Whole], 100),
            2
        );
        assert_eq!(
            play(&mut ledger, vec![Event::Begin, pod("y", waits())], 101),
            2,
            "not before it is whole"
        );
        assert_eq!(play(&mut ledger, vec![Event::Whole], 101), 1);
        assert_eq!(play(&mut ledger, vec![Event::Gone { uid: "y".to_owned() }], 102), 0);
        assert_eq!(play(&mut ledger, vec![pod("y", waits())], 103), 0, "a late word does not bring it back");
    }

    #[test]
    fn a_pod_whose_power_the_last_sample_shows_does_not_count() {
        let mut ledger = ledger();
        let runs = |second: &str| json!({"phase": "Running", "startTime": second});
        // Sampled 90 s after the beginning; 30 s to settle.
        assert_eq!(play(&mut ledger, vec![pod("old", runs("1970-01-01T00:00:59Z"))], 100), 0);
        assert_eq!(play(&mut ledger, vec![pod("new", runs("1970-01-01T00:01:01Z"))], 100), 1);
        assert_eq!(play(&mut ledger, vec![pod("ended", json!({"phase": "Failed"}))], 100), 1);
    }
}
