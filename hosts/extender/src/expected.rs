//! Predicts bindings from our own answers: a pod that was just scored is expected on the node that was offered as the
//! best one.
//!
//! Some ten milliseconds pass between an answer and the watch event that reports the binding. Meanwhile
//! kube-scheduler asks for the next pods, and all of them would be offered the same node. Therefore a pod's watts are
//! *expected* on the node that it was offered, until its binding is seen, on that node or another one, or until some
//! seconds have passed.
//!
//! Expectations affect scores only. An expectation is a guess that anyone who reaches the port can cause, so it never
//! keeps a pod from a node.
//!
//! kube-scheduler's watch may be ahead of ours, so that it asks about a pod that our watch has not reported yet. Such
//! an answer is kept with a weight of zero until our watch reports a pod with that UID that waits for a node. From
//! then on it weighs what that object requests. So an answer about an invented pod never weighs anything, and the
//! number of such answers has a bound of its own.
//!
//! The expectations are an immutable list behind an atomic pointer: each offer replaces the list that it read by a
//! new one, and tries again if another thread was faster. Nobody waits for a lock. A pod is listed once, by its UID.
//! The list is bounded: when it is full, the oldest entry of the same kind is dropped.

use arc_swap::{ArcSwap, Guard};
use host_kit::clock::Mono;
use joulie_core::placement::assumed::{NodeKey, PodUid};
use power_units::Watts;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The most expectations of known pods. kube-scheduler binds some hundred pods a second, and a binding is seen well
/// within a second.
const MOST: usize = 1024;
/// The most expectations of unknown pods. About that many are decided on while our watch is half a second behind
/// kube-scheduler's.
const UNKNOWN_MOST: usize = 256;

/// A pod and the node that it was offered as the best one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) pod: PodUid,
    pub(crate) node: NodeKey,
    /// The watts that the pod would add there; `None` while the watch has not reported the pod.
    pub(crate) watts: Option<Watts>,
}

/// The current expectations, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expectations(Vec<Expectation>);

#[derive(Clone, Copy, Debug)]
struct Expectation {
    offer: Offer,
    until: Mono,
}

impl Expectation {
    fn is_known(&self) -> bool {
        self.offer.watts.is_some()
    }
}

impl Expectations {
    /// The nodes and watts of other pods' expectations that weigh something now. A pod that is asked about again does
    /// not count against itself.
    pub(crate) fn of_others(&self, pod: Option<PodUid>, now: Mono) -> impl Iterator<Item = (NodeKey, Watts)> {
        let stands = move |one: &&Expectation| one.until > now && Some(one.offer.pod) != pod;
        self.0.iter().filter(stands).filter_map(|one| Some((one.offer.node, one.offer.watts?)))
    }

    /// How many answers are about pods that are not known yet.
    pub(crate) fn unknown(&self, now: Mono) -> usize {
        self.0.iter().filter(|one| one.until > now && !one.is_known()).count()
    }

    /// A copy with one more offer, which replaces an older one for the same pod.
    fn with(&self, offer: Offer, now: Mono, until: Mono) -> Self {
        let others = self.0.iter().filter(|one| one.until > now && one.offer.pod != offer.pod).copied();
        Self::bounded(others.chain([Expectation { offer, until }]))
    }

    /// The newest expectations within the bounds. Unknown pods never displace known ones.
    fn bounded(all: impl Iterator<Item = Expectation> + Clone) -> Self {
        let known = all.clone().filter(Expectation::is_known).count();
        let unknown = all.clone().count().saturating_sub(known);
        let (mut known_out, mut unknown_out) =
            (known.saturating_sub(MOST), unknown.saturating_sub(UNKNOWN_MOST));
        let mut kept = Vec::with_capacity(known.min(MOST).saturating_add(unknown.min(UNKNOWN_MOST)));
        kept.extend(all.filter(|one| {
            let out = if one.is_known() { &mut known_out } else { &mut unknown_out };
            let stays = *out == 0;
            *out = out.saturating_sub(1);
            stays
        }));
        Self(kept)
    }
}

/// The shared list of expectations. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    standing: Arc<ArcSwap<Expectations>>,
    age_max: Duration,
}

/// How many expectations were dropped because of their age, or because the list was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// About pods that are known.
    pub(crate) known: u64,
    /// About pods that the watch has not reported.
    pub(crate) unknown: u64,
}

impl Forgotten {
    fn of<'e>(all: impl Iterator<Item = &'e Expectation>) -> Self {
        let mut forgotten = Self::default();
        all.for_each(|one| {
            *(if one.is_known() { &mut forgotten.known } else { &mut forgotten.unknown }) += 1
        });
        forgotten
    }
}

/// Expectations that ended because their pods were seen bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BoundCounts {
    /// Bound to the expected node.
    pub(crate) met: u64,
    /// Bound to another node, or gone.
    pub(crate) elsewhere: u64,
}

impl Expected {
    /// An empty list. A pod is expected for at most `age_max`; zero disables expectations.
    pub(crate) fn new(age_max: Duration) -> Self {
        Self { standing: Arc::default(), age_max }
    }

    /// The current expectations. Load them *before* the snapshot: then a pod that is seen bound in between counts
    /// twice for one answer. In the other order it would not count at all.
    pub(crate) fn load(&self) -> Guard<Arc<Expectations>> {
        self.standing.load()
    }

    /// Expects a pod on the node that it was offered. Returns what was dropped for it.
    pub(crate) fn offer(&self, offer: Offer, now: Mono) -> Forgotten {
        if self.age_max.is_zero() {
            return Forgotten::default();
        }
        let until = now.plus(self.age_max);
        let before = self.standing.rcu(|standing| standing.with(offer, now, until));
        let alike = |one: &&Expectation| {
            one.until > now && one.offer.pod != offer.pod && one.is_known() == offer.watts.is_some()
        };
        let most = if offer.watts.is_some() { MOST } else { UNKNOWN_MOST };
        Forgotten::of(before.0.iter().filter(alike).skip(most.saturating_sub(1)))
    }

    /// Updates unknown pods that the watch has reported by now. Those that wait for a node weigh from now on what
    /// they add to the node that they were offered; those that add nothing there are dropped. Returns what was
    /// dropped because the list was full.
    pub(crate) fn tell(&self, weigh: impl Fn(PodUid, NodeKey) -> Option<Watts>) -> Forgotten {
        let told = |one: &Expectation| match one.offer {
            Offer { pod, node, watts: None } => weigh(pod, node),
            Offer { watts: Some(_), .. } => None,
        };
        if !self.standing.load().0.iter().any(|one| told(one).is_some()) {
            return Forgotten::default();
        }
        let mut forgotten = Forgotten::default();
        self.standing.rcu(|standing| {
            let weighed = standing.0.iter().filter_map(|one| {
                let watts = told(one).or(one.offer.watts);
                let offer = Offer { watts, ..one.offer };
                (watts != Some(Watts::ZERO)).then_some(Expectation { offer, ..*one })
            });
            let known = weighed.clone().filter(Expectation::is_known).count();
            forgotten.known = u64::try_from(known.saturating_sub(MOST)).unwrap_or(u64::MAX);
            Expectations::bounded(weighed)
        });
        forgotten
    }

    /// Ends the expectations of pods that were seen bound: their watts count on their nodes by now.
    pub(crate) fn settle(&self, bound: &BTreeMap<PodUid, Option<NodeKey>>) -> BoundCounts {
        let mut settled = BoundCounts::default();
        for Expectation { offer, .. } in self.keep(|one| !bound.contains_key(&one.offer.pod)) {
            if bound.get(&offer.pod) == Some(&Some(offer.node)) {
                settled.met += 1;
            } else {
                settled.elsewhere += 1;
            }
        }
        settled
    }

    /// Drops the expectations that are too old, and returns how many.
    pub(crate) fn sweep(&self, now: Mono) -> Forgotten {
        Forgotten::of(self.keep(|one| one.until > now).iter())
    }

    /// Drops the expectations on nodes whose numbers will be reused for other nodes.
    pub(crate) fn nodes_gone(&self, nodes: &[NodeKey]) {
        self.keep(|one| !nodes.contains(&one.offer.node));
    }

    /// Keeps the expectations that `keeps` selects, and returns the others.
    fn keep(&self, keeps: impl Fn(&Expectation) -> bool) -> Vec<Expectation> {
        if self.standing.load().0.iter().all(&keeps) {
            return Vec::new();
        }
        let kept = |standing: &Arc<Expectations>| {
            Expectations(standing.0.iter().filter(|one| keeps(one)).copied().collect())
        };
        let before = self.standing.rcu(kept);
        before.0.iter().filter(|one| !keeps(one)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(5);

    fn at(millis: u64) -> Mono {
        Mono::from_millis(millis)
    }

    const NONE: Forgotten = Forgotten { known: 0, unknown: 0 };

    fn offer(pod: u128, node: u32) -> Offer {
        Offer { watts: Some(Watts::from_int(10)), ..unknown(pod, node) }
    }

    /// An offer to a pod that the watch has not reported.
    fn unknown(pod: u128, node: u32) -> Offer {
        Offer { pod: PodUid(pod), node: NodeKey(node), watts: None }
    }

    /// The pods that weigh something, with their nodes.
    fn standing(expected: &Expected, pod: Option<u128>, now: u64) -> Vec<(u128, u32)> {
        let all = expected.load();
        let weighs = all.of_others(pod.map(PodUid), at(now)).count();
        let stands =
            |one: &&Expectation| one.until > at(now) && one.is_known() && pod != Some(one.offer.pod.0);
        let pairs: Vec<_> =
            all.0.iter().filter(stands).map(|one| (one.offer.pod.0, one.offer.node.0)).collect();
        assert_eq!(pairs.len(), weighs);
        pairs
    }

    /// The watch reports these pods, each of which adds this many watts on any node.
    fn tell(expected: &Expected, pods: std::ops::Range<u128>, watts: i32) -> Forgotten {
        expected.tell(|pod, _| pods.contains(&pod.0).then(|| Watts::from_int(watts)))
    }

    #[test]
    fn a_pod_that_is_asked_for_again_counts_once_and_never_against_itself() {
        let expected = Expected::new(AGE);
        for (pod, node) in [(1, 7), (2, 7), (1, 8)] {
            assert_eq!(expected.offer(offer(pod, node), at(0)), NONE);
        }
        assert_eq!(standing(&expected, None, 1), [(2, 7), (1, 8)]);
        assert_eq!(standing(&expected, Some(1), 1), [(2, 7)]);
    }

    #[test]
    fn a_pod_that_is_never_placed_leaves_nothing_behind() {
        let expected = Expected::new(AGE);
        expected.offer(offer(1, 7), at(0));
        expected.offer(offer(2, 7), at(1));
        assert_eq!(standing(&expected, None, 4_999).len(), 2);
        // Whether or not `sweep` was called.
        assert_eq!(standing(&expected, None, 5_000), [(2, 7)]);
        assert_eq!(expected.sweep(at(5_000)), Forgotten { known: 1, unknown: 0 });
        assert_eq!(expected.sweep(at(5_001)), Forgotten { known: 1, unknown: 0 });
        assert!(expected.load().0.is_empty());
    }

    #[test]
    fn a_binding_that_is_seen_ends_it_wherever_it_is() {
        let expected = Expected::new(AGE);
        (1..=4).for_each(|pod| assert_eq!(expected.offer(offer(pod, 7), at(0)), NONE));
        let place = |node| Some(NodeKey(node));
        let bound =
            [(PodUid(1), place(7)), (PodUid(2), place(8)), (PodUid(9), place(7)), (PodUid(4), None)].into();
        assert_eq!(expected.settle(&bound), BoundCounts { met: 1, elsewhere: 2 });
        assert_eq!(expected.settle(&bound), BoundCounts::default());
        assert_eq!(standing(&expected, None, 1), [(3, 7)]);
        expected.nodes_gone(&[NodeKey(7)]);
        assert_eq!(standing(&expected, None, 1), []);
    }

    #[test]
    fn however_many_uids_come_no_more_room_is_taken() {
        let expected = Expected::new(AGE);
        let (mut forgotten, uids) = (0, 10_000);
        // All within the maximum age.
        for pod in 0..uids {
            forgotten += expected.offer(offer(pod, 7), at(0)).known;
            assert!(expected.load().0.capacity() <= MOST);
        }
        let most = u128::try_from(MOST).unwrap();
        assert_eq!(forgotten, 10_000 - u64::try_from(MOST).unwrap());
        let left = standing(&expected, None, 1);
        assert_eq!((left.len(), left[0].0), (MOST, uids - most));
        assert_eq!(expected.sweep(at(5_000)), Forgotten { known: 1024, unknown: 0 });
    }

    #[test]
    fn an_answer_about_a_pod_that_is_not_known_weighs_nothing_until_the_watch_tells_of_it() {
        let expected = Expected::new(AGE);
        for pod in 1..=3 {
            assert_eq!(expected.offer(unknown(pod, 7), at(0)), NONE);
        }
        assert_eq!((standing(&expected, None, 1), expected.load().unknown(at(1))), (vec![], 3));
        // It weighs what the object requests, and lasts no longer than an answer about a known pod.
        assert_eq!(tell(&expected, 1..3, 25), NONE);
        let all: Vec<_> = expected.load().of_others(None, at(4_999)).collect();
        assert_eq!(all, [(NodeKey(7), Watts::from_int(25)); 2]);
        assert_eq!(standing(&expected, None, 5_000), []);
        // It is weighed once.
        assert_eq!(tell(&expected, 1..3, 99), NONE);
        assert_eq!(
            expected.load().of_others(None, at(1)).map(|(_, watts)| watts).max(),
            Some(Watts::from_int(25))
        );
        // A pod that the watch reports only when it is bound already.
        let bound = [(PodUid(3), Some(NodeKey(7)))].into();
        assert_eq!(expected.settle(&bound), BoundCounts { met: 1, elsewhere: 0 });
        assert_eq!(expected.sweep(at(5_000)), Forgotten { known: 2, unknown: 0 });
    }

    #[test]
    fn a_pod_that_turns_out_to_add_nothing_is_not_kept() {
        let expected = Expected::new(AGE);
        expected.offer(unknown(1, 7), at(0));
        assert_eq!(tell(&expected, 1..2, 0), NONE);
        assert!(expected.load().0.is_empty());
    }

    #[test]
    fn made_up_pods_evict_no_real_one_and_take_no_more_room() {
        let expected = Expected::new(AGE);
        let known = u128::try_from(MOST).unwrap();
        (0..known).for_each(|pod| assert_eq!(expected.offer(offer(pod, 7), at(0)), NONE));
        let mut forgotten = Forgotten::default();
        for pod in 0..10_000 {
            let out = expected.offer(unknown(known + pod, 7), at(1));
            forgotten =
                Forgotten { known: forgotten.known + out.known, unknown: forgotten.unknown + out.unknown };
            assert!(expected.load().0.capacity() <= MOST + UNKNOWN_MOST);
        }
        assert_eq!(forgotten, Forgotten { known: 0, unknown: 10_000 - 256 });
        assert_eq!(standing(&expected, None, 2).len(), MOST);
        // The last ones are left, and expire in time. One that becomes known displaces the oldest known one.
        assert_eq!(tell(&expected, known..known + 10_000 - 256, 10), NONE);
        assert_eq!(tell(&expected, known + 9_999..known + 10_000, 10), Forgotten { known: 1, unknown: 0 });
        let left = standing(&expected, None, 2);
        assert_eq!((left.len(), left[0].0, left[MOST - 1].0), (MOST, 1, known + 9_999));
        assert_eq!(expected.sweep(at(5_001)), Forgotten { known: 1024, unknown: 255 });
    }

    #[test]
    fn nobody_is_lost_when_many_offer_at_once() {
        let expected = Expected::new(AGE);
        std::thread::scope(|scope| {
            for caller in 0..4_u128 {
                let expected = expected.clone();
                scope.spawn(move || {
                    for pod in 0..100 {
                        expected.offer(offer(caller * 100 + pod, 1), at(0));
                    }
                });
            }
        });
        let mut pods: Vec<u128> = standing(&expected, None, 1).into_iter().map(|(pod, _)| pod).collect();
        pods.sort_unstable();
        assert_eq!(pods, (0..400).collect::<Vec<_>>());
    }

    #[test]
    fn it_can_be_switched_off() {
        let expected = Expected::new(Duration::ZERO);
        assert_eq!(expected.offer(offer(1, 7), at(0)), NONE);
        expected.offer(unknown(2, 7), at(0));
        assert_eq!((standing(&expected, None, 0), expected.load().unknown(at(0))), (vec![], 0));
    }
}
