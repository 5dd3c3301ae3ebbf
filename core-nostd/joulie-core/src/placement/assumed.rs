//! Assumed watts: what pods will draw that no power sample includes yet.
//!
//! Between a pod's binding and the first sample that includes its power, a node appears less loaded than it is, and
//! the next pod would go to the same node. So a pod counts against its node from its binding on, until a sample was
//! taken later than its start plus a settle time.
//!
//! ```text
//!            seen bound            seen running        sampled later than running + settle
//!  (nothing) ──────────> Pending ─────────────> Running ──────────────────────────────> (nothing)
//!                           │ bound longer than    │
//!                           │ the maximum age      │          gone from anywhere
//!                           └──> (nothing)         └─────────> Gone ──a minute──> (nothing)
//! ```
//!
//! Events arrive late, twice and out of order: a watch reports what a pod is, not what happened. So a sighting is
//! merged with the known state (the earliest binding, the earliest start), a deleted pod stays deleted for a while,
//! and an expired pod does not count again, because its own times still show that it has expired. The result does not
//! depend on the order in which different pods are seen, except which pod is dropped when the storage is full, and
//! that is reported.
//!
//! The caller owns the storage: a slice of [`AssumedSlot`]s, kept sorted by UID.

use core::fmt;
use power_units::{Micros, Watts};

use super::freshness::UnixTime;

/// The UID of a pod: the 128 bits of a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(pub u128);

/// A node, by a number that its owner keeps for as long as the node exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(pub u32);

/// A pod on a node, as our own bind call or the watch reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The pod.
    pub pod: PodUid,
    /// The node to which it is bound.
    pub node: NodeKey,
    /// The watts that it is estimated to add there.
    pub watts: Watts,
    /// When it was bound.
    pub bound: UnixTime,
    /// When it started to run, if it has started.
    pub running: Option<UnixTime>,
}

/// The law of assumed watts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssumedRule {
    settle: Micros,
    age_max: Micros,
}

/// The maximum age of a pod that never runs must be longer than the settle time of a running one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeTooShort;

impl fmt::Display for AgeTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("assumed watts: expected a maximum age above the settle time")
    }
}

impl core::error::Error for AgeTooShort {}

/// How long a deleted pod is remembered, so that a late report of its binding does not restore it. Our own bind calls
/// and a lagging watch are much faster than this.
const GONE_FOR: Micros = Micros::MINUTE;

impl AssumedRule {
    /// A pod's power is visible `settle` after its start; a pod that never runs is forgotten after `age_max`.
    ///
    /// # Errors
    /// When the maximum age is not above the settle time.
    pub fn new(settle: Micros, age_max: Micros) -> Result<Self, AgeTooShort> {
        if age_max > settle { Ok(Self { settle, age_max }) } else { Err(AgeTooShort) }
    }

    /// Whether the pod of this sighting counts; `sampled` is when its node's power was last sampled.
    #[must_use]
    pub fn stands(&self, seen: &Sighting, now: UnixTime, sampled: Option<UnixTime>) -> bool {
        self.over(&Entry::of(seen, now), now, sampled).is_none()
    }

    /// Whether an entry has expired, and why.
    fn over(&self, entry: &Entry, now: UnixTime, sampled: Option<UnixTime>) -> Option<Over> {
        let older = |since: UnixTime, than: Micros| now.since(since).is_some_and(|age| age > than);
        match entry.state {
            State::Pending => older(entry.bound, self.age_max).then_some(Over::NeverRan),
            State::Running(since) => {
                // A sample from the future counts as taken now.
                let shown = sampled.and_then(|sampled| sampled.min(now).since(since));
                shown.is_some_and(|later| later > self.settle).then_some(Over::Shown)
            }
            State::Gone(at) => older(at, GONE_FOR).then_some(Over::Forgotten),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Shown,
    NeverRan,
    Forgotten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Running(UnixTime),
    Gone(UnixTime),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    pod: PodUid,
    node: NodeKey,
    watts: Watts,
    bound: UnixTime,
    state: State,
}

impl Entry {
    fn of(seen: &Sighting, now: UnixTime) -> Self {
        // Times in the future, from a clock that is ahead, count as now.
        let state = seen.running.map_or(State::Pending, |since| State::Running(since.min(now)));
        let (pod, node, watts) = (seen.pod, seen.node, seen.watts.or_zero());
        Self { pod, node, watts, bound: seen.bound.min(now), state }
    }

    /// Merges two sightings of one pod. On different nodes, the later binding counts.
    fn merged(self, seen: Self) -> Self {
        if matches!(self.state, State::Gone(_)) {
            return self;
        }
        if self.node != seen.node {
            let key = |entry: &Self| (entry.bound, entry.node);
            return if key(&seen) > key(&self) { seen } else { self };
        }
        let state = match (self.state, seen.state) {
            (State::Running(one), State::Running(other)) => State::Running(one.min(other)),
            (State::Pending, state) | (state, State::Pending) => state,
            (State::Gone(at), _) | (_, State::Gone(at)) => State::Gone(at),
        };
        Self { bound: self.bound.min(seen.bound), watts: self.watts.max(seen.watts), state, ..self }
    }

    fn counts(&self) -> bool {
        !matches!(self.state, State::Gone(_))
    }

    /// The order in which entries are dropped when the storage is full: first deleted pods, then those that were bound
    /// first, because samples include them first.
    fn rank(&self) -> (bool, UnixTime, PodUid) {
        let since = if let State::Gone(at) = self.state { at } else { self.bound };
        (self.counts(), since, self.pod)
    }
}

/// Storage for one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssumedSlot(Option<Entry>);

impl AssumedSlot {
    /// An empty slot.
    pub const EMPTY: Self = Self(None);
}

/// The result of a sighting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum SightingOutcome {
    /// The pod counts now.
    Counted,
    /// The pod counted already.
    Known,
    /// The pod does not count: it is deleted, its power is visible, or it has not run for too long.
    Ignored,
    /// The storage is full: the pod counts, and another one that counted no longer does.
    Displaced(PodUid),
    /// The storage is full of pods that were bound later: the pod does not count.
    Full,
}

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Pods whose power a sample includes.
    pub shown: u32,
    /// Pods that did not run within the maximum age.
    pub never_ran: u32,
}

/// The pods that count, in the caller's storage.
#[derive(Debug)]
pub struct AssumedWatts<S> {
    rule: AssumedRule,
    slots: S,
    /// The slots below this index are filled and sorted by UID, all others are empty.
    filled: usize,
}

impl<S: AsRef<[AssumedSlot]> + AsMut<[AssumedSlot]>> AssumedWatts<S> {
    /// Nothing is assumed yet.
    pub fn new(rule: AssumedRule, mut slots: S) -> Self {
        slots.as_mut().fill(AssumedSlot::EMPTY);
        Self { rule, slots, filled: 0 }
    }

    /// Takes in that a pod was seen bound to a node, by our own bind call or by the watch; `sampled` is when the
    /// node's power was last sampled.
    pub fn see(&mut self, seen: &Sighting, now: UnixTime, sampled: Option<UnixTime>) -> SightingOutcome {
        let fresh = Entry::of(seen, now);
        let known = self.find(seen.pod);
        let entry = known.map_or(fresh, |known| known.merged(fresh));
        if !entry.counts() {
            return SightingOutcome::Ignored;
        }
        if self.rule.over(&entry, now, sampled).is_some() {
            self.take_out(seen.pod);
            return SightingOutcome::Ignored;
        }
        if known.is_some() {
            self.replace(entry);
            return SightingOutcome::Known;
        }
        self.insert(entry)
    }

    /// The pod was deleted or has ended.
    pub fn gone(&mut self, pod: PodUid, now: UnixTime) {
        let nowhere =
            Entry { pod, node: NodeKey(0), watts: Watts::ZERO, bound: now, state: State::Gone(now) };
        match self.find(pod) {
            Some(entry) if entry.counts() => self.replace(Entry { state: State::Gone(now), ..entry }),
            Some(_) => {}
            // The binding of an unknown pod may be reported later.
            None => {
                let _ = self.insert(nowhere);
            }
        }
    }

    /// A bind to this node failed: the pod is not there, and may be bound again.
    pub fn unbound(&mut self, pod: PodUid, node: NodeKey) {
        self.remove(|entry| entry.pod == pod && entry.node == node && entry.state == State::Pending);
    }

    /// The node does not exist any more.
    pub fn node_gone(&mut self, node: NodeKey) {
        self.remove(|entry| entry.counts() && entry.node == node);
    }

    /// Removes what has expired by now. `sampled` returns when a node's power was last sampled.
    pub fn sweep(&mut self, now: UnixTime, sampled: impl Fn(NodeKey) -> Option<UnixTime>) -> Swept {
        let rule = self.rule;
        let mut swept = Swept::default();
        self.remove(|entry| {
            let over = rule.over(entry, now, sampled(entry.node));
            match over {
                Some(Over::Shown) => swept.shown = swept.shown.saturating_add(1),
                Some(Over::NeverRan) => swept.never_ran = swept.never_ran.saturating_add(1),
                Some(Over::Forgotten) | None => {}
            }
            over.is_some()
        });
        swept
    }

    /// The watts assumed on a node.
    #[must_use]
    pub fn of_node(&self, node: NodeKey) -> Watts {
        let here = self.entries().filter(|entry| entry.counts() && entry.node == node);
        here.fold(Watts::ZERO, |sum, entry| sum + entry.watts)
    }

    /// The watts assumed on every node, at the index of its key; nodes without an entry in the slice are left out.
    pub fn sum_into(&self, nodes: &mut [Watts]) {
        nodes.fill(Watts::ZERO);
        for entry in self.entries().filter(|entry| entry.counts()) {
            let place = usize::try_from(entry.node.0).ok();
            if let Some(sum) = place.and_then(|place| nodes.get_mut(place)) {
                *sum += entry.watts;
            }
        }
    }

    /// The pods that count.
    pub fn pods(&self) -> impl Iterator<Item = PodUid> {
        self.entries().filter(|entry| entry.counts()).map(|entry| entry.pod)
    }

    /// How many pods count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries().filter(|entry| entry.counts()).fold(0, |pods: usize, _| pods.saturating_add(1))
    }

    /// Whether no pod counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.as_ref().iter().take(self.filled).filter_map(|slot| slot.0.as_ref())
    }

    /// The index of the pod, or the index at which it would be inserted.
    fn place(&self, pod: PodUid) -> usize {
        let (mut low, mut high) = (0, self.filled);
        while low < high {
            let middle = low.saturating_add(high) >> 1;
            let before =
                self.slots.as_ref().get(middle).and_then(|slot| slot.0).is_some_and(|at| at.pod < pod);
            if before {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low
    }

    fn find(&self, pod: PodUid) -> Option<Entry> {
        let entry = self.slots.as_ref().get(self.place(pod)).and_then(|slot| slot.0);
        entry.filter(|entry| entry.pod == pod)
    }

    fn replace(&mut self, entry: Entry) {
        let place = self.place(entry.pod);
        if let Some(slot) = self.slots.as_mut().get_mut(place) {
            *slot = AssumedSlot(Some(entry));
        }
    }

    fn insert(&mut self, entry: Entry) -> SightingOutcome {
        let mut seen = SightingOutcome::Counted;
        if self.filled >= self.slots.as_ref().len() {
            let Some(first) = self.entries().copied().min_by_key(Entry::rank) else {
                return SightingOutcome::Full;
            };
            if first.rank() > entry.rank() {
                return SightingOutcome::Full;
            }
            self.take_out(first.pod);
            if first.counts() {
                seen = SightingOutcome::Displaced(first.pod);
            }
        }
        let place = self.place(entry.pod);
        let mut carried = AssumedSlot(Some(entry));
        for slot in self.slots.as_mut().iter_mut().take(self.filled.saturating_add(1)).skip(place) {
            core::mem::swap(slot, &mut carried);
        }
        self.filled = self.filled.saturating_add(1);
        seen
    }

    /// Removes one pod, if it is there.
    fn take_out(&mut self, pod: PodUid) {
        if self.find(pod).is_none() {
            return;
        }
        let place = self.place(pod);
        let mut carried = AssumedSlot::EMPTY;
        let behind = self.slots.as_mut().get_mut(place..self.filled).unwrap_or_default();
        for slot in behind.iter_mut().rev() {
            core::mem::swap(slot, &mut carried);
        }
        self.filled = self.filled.saturating_sub(1);
    }

    /// Removes what is `over` and closes the gaps.
    fn remove(&mut self, mut over: impl FnMut(&Entry) -> bool) {
        let slots = self.slots.as_mut();
        let mut kept = 0_usize;
        for at in 0..self.filled {
            let Some(slot) = slots.get(at).copied().filter(|slot| slot.0.is_some_and(|entry| !over(&entry)))
            else {
                continue;
            };
            if let Some(place) = slots.get_mut(kept) {
                *place = slot;
            }
            kept = kept.saturating_add(1);
        }
        for slot in slots.iter_mut().take(self.filled).skip(kept) {
            *slot = AssumedSlot::EMPTY;
        }
        self.filled = kept;
    }
}

#[cfg(test)]
mod tests;
