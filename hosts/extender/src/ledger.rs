//! The watts of pods that were seen bound and that no sample shows yet.
//!
//! It follows what the watch of pods tells; what counts how long is the core's law. Nothing here reads a clock.

use crate::index::Registry;
use crate::rows::{PodRow, Stage};
use crate::snapshot::Fleet;
use host_kit::reflect::{Held, Key};
use joulie_core::placement::assumed::{
    AssumedRule, AssumedWatts, NodeKey, PodUid, Seen, Sighting, Slot, Swept,
};
use joulie_core::placement::estimate::Coefficients;
use joulie_core::placement::freshness::UnixTime;
use joulie_core::placement::score::PodTerms;
use power_units::Watts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who is counted.
pub(crate) struct Ledger {
    assumed: AssumedWatts<Box<[Slot]>>,
    coefficients: Coefficients,
    /// What was seen last of each pod, so that only what changed is looked at.
    seen: BTreeMap<Key, (PodUid, Arc<PodRow>)>,
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
        Self { assumed: AssumedWatts::new(rule, slots), coefficients, seen: BTreeMap::new() }
    }

    /// Takes in the pods as they are now.
    pub(crate) fn follow(
        &mut self,
        pods: &BTreeMap<Key, Held<PodRow>>,
        registry: &mut Registry,
        fleet: &Fleet,
        now: UnixTime,
    ) -> Round {
        let mut round = Round::default();
        let mut gone = Vec::new();
        self.seen.retain(|key, (uid, _)| {
            let stays = pods.get(key).is_some_and(|held| held.row.uid == *uid);
            if !stays {
                gone.push(*uid);
            }
            stays
        });
        for uid in gone {
            self.assumed.gone(uid, now);
        }
        for (key, held) in pods {
            let row = &held.row;
            if self.seen.get(key).is_some_and(|(_, seen)| Arc::ptr_eq(seen, row)) {
                continue;
            }
            self.seen.insert(key.clone(), (row.uid, row.clone()));
            self.see(row, registry, fleet, now, &mut round);
        }
        round
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

    /// Looks at every pod again: the hardware of their nodes has become known, or is another.
    pub(crate) fn weigh_again(&mut self) {
        self.seen.clear();
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
