//! What the law remembers between rounds: times alone. Losing them delays a sleep, and nothing else.

use super::arrivals::Arrivals;
use super::{SleepFacts, SleepLaw, SleepPhase, SleepRound};
use power_units::{Micros, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// After so many nodes that were woken for a pod and did not take it, none is woken for it until [`TRIES_FOR`] is over.
const TRIES_MAX: usize = 3;
/// For how long it is remembered that a node did not take a pod.
const TRIES_FOR: Micros = Micros::new(3_600_000_000);

/// A node that has been awake and empty for so long would have taken a pod that fits there.
pub(super) const TAKES_WITHIN: Micros = Micros::new(120_000_000);

/// The times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SleepMemory {
    nodes: BTreeMap<Arc<str>, NodeTimes>,
    arrivals: BTreeMap<String, Arrivals>,
    /// For which pods which nodes were woken, and when.
    tried: BTreeMap<String, BTreeMap<Arc<str>, Tried>>,
    /// The limits, by their places in the round, that could not keep what was counted for a node that waited to be woken, and
    /// until when nobody is woken under them. If limits come or go this may be said of another one, which delays a wake.
    overdrawn: BTreeMap<usize, Stamp>,
}

/// A node that was woken for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tried {
    at: Stamp,
    /// It was there, and the pod was not put on it.
    in_vain: bool,
}

/// The times of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NodeTimes {
    /// Since when it is awake.
    up: Option<Stamp>,
    /// Since when it is awake and empty.
    empty: Option<Stamp>,
    /// It was last seen empty or not awake.
    was_free: bool,
    /// When it was last told to switch on or off.
    sent: Option<Stamp>,
    /// Until when it is not asked again to sleep or to wake.
    rests: Option<Stamp>,
    /// When it was decided here to stop it, by the time of day that its mark will have.
    stopped: Option<Micros>,
    /// While it is being stopped.
    stop: Option<StopTimes>,
    /// Its phase, the time of its mark, and since when it is seen here.
    marked: Option<(SleepPhase, Micros, Stamp)>,
}

/// What is known of the orders to switch off a node that is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StopTimes {
    /// The time of its mark.
    since: Micros,
    /// Another leader may have given some.
    foreign: bool,
    /// How many were given here that may have been taken.
    given: u32,
    /// When one was last given, or may have been.
    last: Stamp,
}

/// The times in marks are whole seconds.
const MARK_PRECISION: Micros = Micros::new(1_000_000);

impl NodeTimes {
    fn note_mark(&mut self, facts: &SleepFacts<'_>, now: Stamp) {
        self.marked = facts.mark.map(|mark| {
            let same = self.marked.filter(|(phase, since, _)| (*phase, *since) == (mark.phase, mark.since));
            same.unwrap_or((mark.phase, mark.since, now))
        });
    }

    fn note_stop(&mut self, facts: &SleepFacts<'_>, now: Stamp) {
        let Some(mark) = facts.mark.filter(|mark| mark.phase == SleepPhase::Stopping) else {
            self.stop = None;
            return;
        };
        let is_own = self.stopped.and_then(|wall| wall.checked_sub(mark.since));
        let is_own = is_own.is_some_and(|off| off < MARK_PRECISION);
        let begun = StopTimes { since: mark.since, foreign: !is_own, given: 0, last: now };
        let mut stop = self.stop.filter(|stop| stop.since == mark.since).unwrap_or(begun);
        if facts.busy {
            // An order may be on its way out just now.
            stop.last = now;
        }
        self.stop = Some(stop);
    }
}

/// Whether a node takes pods.
pub(super) fn is_awake(facts: &SleepFacts<'_>) -> bool {
    facts.mark.is_none() && facts.ready && !facts.cordoned
}

impl SleepMemory {
    /// Takes in what is known now.
    pub(super) fn note(&mut self, law: &SleepLaw, round: &SleepRound<'_>) {
        let SleepRound { now, nodes, waiting, .. } = *round;
        let pools: BTreeSet<&str> = nodes.iter().map(|facts| facts.pool).collect();
        self.arrivals.retain(|pool, _| pools.contains(pool.as_str()));
        for pool in pools {
            let arrivals = match self.arrivals.get_mut(pool) {
                Some(arrivals) => arrivals,
                None => self.arrivals.entry(pool.to_owned()).or_default(),
            };
            arrivals.advance(now, law.0.wake_takes);
        }
        self.overdrawn.retain(|at, until| now < *until && *at < round.spares.len());
        let names: BTreeSet<&Arc<str>> = nodes.iter().map(|facts| facts.name).collect();
        self.nodes.retain(|name, _| names.contains(name));
        for facts in nodes {
            let is_new = !self.nodes.contains_key(facts.name);
            let times = self.nodes.entry(facts.name.clone()).or_default();
            times.note_mark(facts, now);
            times.note_stop(facts, now);
            let Some(pods) = facts.pods else { continue };
            let awake = is_awake(facts);
            times.up = awake.then(|| times.up.unwrap_or(now));
            times.empty = (awake && pods == 0).then(|| times.empty.unwrap_or(now));
            let is_taken = awake && pods > 0;
            if is_taken
                && times.was_free
                && !is_new
                && let Some(arrivals) = self.arrivals.get_mut(facts.pool)
            {
                arrivals.arrived();
            }
            times.was_free = !is_taken;
            // An order belongs to its phase: what a node was told to sleep does not delay what it is told to wake.
            let is_told = matches!(
                facts.mark.map(|mark| mark.phase),
                Some(SleepPhase::Stopping | SleepPhase::Starting)
            );
            if !is_told {
                times.sent = None;
            }
            times.rests = times.rests.filter(|until| now < *until);
        }
        let keys: BTreeSet<&str> = waiting.iter().map(|pod| pod.key).collect();
        let nodes = &self.nodes;
        self.tried.retain(|key, tried| {
            tried.retain(|_, one| now.since(one.at).is_none_or(|ago| ago < TRIES_FOR));
            for (node, one) in tried.iter_mut() {
                let empty = nodes.get(node).and_then(|times| times.empty).and_then(|since| now.since(since));
                one.in_vain |= empty.is_some_and(|so_far| so_far >= TAKES_WITHIN);
            }
            keys.contains(key.as_str()) && !tried.is_empty()
        });
    }

    fn times(&self, node: &Arc<str>) -> NodeTimes {
        self.nodes.get(node).copied().unwrap_or_default()
    }

    /// How long the node has been awake and empty.
    pub(super) fn empty_for(&self, node: &Arc<str>, now: Stamp) -> Option<Micros> {
        self.times(node).empty.and_then(|since| now.since(since))
    }

    /// How long it has been awake.
    pub(super) fn up_for(&self, node: &Arc<str>, now: Stamp) -> Option<Micros> {
        self.times(node).up.and_then(|since| now.since(since))
    }

    /// For how long its mark has been seen here. What opens a node to pods, switches one off, or leaves one to people goes by this
    /// and not by the time of day of its mark, which another machine has written: a clock that is ahead would do so too early, and
    /// one that is behind not before it has caught up.
    pub(super) fn marked_for(&self, node: &Arc<str>, now: Stamp) -> Micros {
        self.times(node).marked.and_then(|(.., since)| now.since(since)).unwrap_or(Micros::ZERO)
    }

    /// Whether it was told something within this time.
    pub(super) fn was_sent(&self, node: &Arc<str>, now: Stamp, within: Micros) -> bool {
        self.times(node).sent.is_some_and(|at| now.since(at).is_none_or(|ago| ago < within))
    }

    pub(super) fn send(&mut self, node: &Arc<str>, now: Stamp) {
        let times = self.nodes.entry(node.clone()).or_default();
        times.sent = Some(now);
        if let Some(stop) = &mut times.stop {
            (stop.given, stop.last) = (stop.given.saturating_add(1), now);
        }
    }

    /// The last order for a node has not left this process.
    pub fn not_sent(&mut self, node: &str) {
        if let Some(stop) = self.nodes.get_mut(node).and_then(|times| times.stop.as_mut()) {
            stop.given = stop.given.saturating_sub(1);
        }
    }

    /// It is decided to stop this node.
    pub(super) fn stops(&mut self, node: &Arc<str>, wall: Micros) {
        self.nodes.entry(node.clone()).or_default().stopped = Some(wall);
    }

    /// Whether no order to switch off can be under way to this node: none was given since it is being stopped, or none for as
    /// long as one may take. Another leader may have given one until this one began. All is counted by the clock that does
    /// not jump.
    pub(super) fn is_still(&self, node: &Arc<str>, now: Stamp, takes: Micros) -> bool {
        self.times(node).stop.is_some_and(|stop| {
            let is_untold = stop.given == 0 && !stop.foreign;
            is_untold || now.since(stop.last).is_some_and(|so_far| so_far >= takes)
        })
    }

    /// Under this limit nobody is woken until then.
    pub(super) fn overdraws(&mut self, at: usize, until: Stamp) {
        self.overdrawn.insert(at, until);
    }

    /// The limits under which nobody is woken for now.
    pub(super) fn overdrawn(&self) -> BTreeSet<usize> {
        self.overdrawn.keys().copied().collect()
    }

    /// Whether it is not to be asked again yet.
    pub(super) fn rests(&self, node: &Arc<str>) -> bool {
        self.times(node).rests.is_some()
    }

    pub(super) fn rest(&mut self, node: &Arc<str>, until: Stamp) {
        self.nodes.entry(node.clone()).or_default().rests = Some(until);
    }

    /// How many empty nodes of a pool stay awake; `None` while that is not known.
    pub(super) fn warm(&self, law: &SleepLaw, pool: &str) -> Option<u32> {
        self.arrivals.get(pool).and_then(|arrivals| arrivals.warm(law.0.quantile))
    }

    /// Whether a node may be woken for a pod.
    pub(super) fn may_try(&self, pod: &str, node: &Arc<str>) -> bool {
        self.tried.get(pod).is_none_or(|tried| {
            let in_vain = tried.values().filter(|one| one.in_vain).count();
            in_vain < TRIES_MAX && !tried.get(node).is_some_and(|one| one.in_vain)
        })
    }

    pub(super) fn tries(&mut self, pod: &str, node: &Arc<str>, now: Stamp) {
        self.tried
            .entry(pod.to_owned())
            .or_default()
            .entry(node.clone())
            .or_insert(Tried { at: now, in_vain: false });
    }
}
