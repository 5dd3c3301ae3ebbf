//! What our own answers lead us to expect: a pod that was just scored will be bound to the node that was offered as the
//! best one.
//!
//! Between an answer and the watch that tells of the binding pass some ten milliseconds, in which kube-scheduler asks
//! for the next pods. Without more all of them would be told that the same node is the best. So a pod's watts are
//! *expected* on the node that it was offered, from the answer on, until its binding is seen, here or elsewhere, or
//! some seconds have passed.
//!
//! Scores alone go by it. An expectation is a guess, and whoever reaches the port can make us guess: it never keeps a pod
//! from a node.
//!
//! Those that stand are an immutable list behind an atomic pointer: whoever offers puts a new list in the place of the
//! one that it saw, and tries again if somebody else was faster. Nobody waits for a lock. A pod stands in it once, by its
//! UID, and the list is bounded: beyond that the oldest is forgotten.

use arc_swap::{ArcSwap, Guard};
use host_kit::clock::Mono;
use joulie_core::placement::assumed::{NodeKey, PodUid};
use power_units::Watts;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How many stand at most. kube-scheduler binds some hundred pods a second, and a binding is seen well within one.
const MOST: usize = 1024;

/// A pod, and the node that it was offered as the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) pod: PodUid,
    pub(crate) node: NodeKey,
    /// What it would add there.
    pub(crate) watts: Watts,
}

/// Those that stand, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expectations(Vec<Expectation>);

#[derive(Clone, Copy, Debug)]
struct Expectation {
    offer: Offer,
    until: Mono,
}

impl Expectations {
    /// Those of other pods that stand at this moment. A pod that is asked for again does not stand in its own way.
    pub(crate) fn of_others(&self, pod: Option<PodUid>, now: Mono) -> impl Iterator<Item = &Offer> {
        let stands = move |one: &&Expectation| one.until > now && Some(one.offer.pod) != pod;
        self.0.iter().filter(stands).map(|one| &one.offer)
    }

    /// With one more, which replaces an older one of the same pod.
    fn with(&self, offer: Offer, now: Mono, until: Mono) -> Self {
        let others = || self.0.iter().filter(|one| one.until > now && one.offer.pod != offer.pod).copied();
        let count = others().count();
        let mut all = Vec::with_capacity(count.saturating_add(1).min(MOST));
        all.extend(others().skip(count.saturating_add(1).saturating_sub(MOST)));
        all.push(Expectation { offer, until });
        Self(all)
    }
}

/// Where they stand. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    standing: Arc<ArcSwap<Expectations>>,
    age_max: Duration,
}

/// What became of expectations whose pods were seen bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// To the node that was expected.
    pub(crate) met: u64,
    /// To another one.
    pub(crate) elsewhere: u64,
}

impl Expected {
    /// Nothing is expected. A pod is for `age_max` at most; zero for never.
    pub(crate) fn new(age_max: Duration) -> Self {
        Self { standing: Arc::default(), age_max }
    }

    /// Those that stand. To be read *before* the snapshot: a pod that was seen bound meanwhile then counts twice for one
    /// answer; the other way round it would not count at all.
    pub(crate) fn load(&self) -> Guard<Arc<Expectations>> {
        self.standing.load()
    }

    /// Expects a pod where it was offered. Whether another one had to be forgotten for it.
    pub(crate) fn offer(&self, offer: Offer, now: Mono) -> bool {
        if self.age_max.is_zero() {
            return false;
        }
        let until = now.plus(self.age_max);
        let before = self.standing.rcu(|standing| standing.with(offer, now, until));
        before.of_others(Some(offer.pod), now).count() >= MOST
    }

    /// These pods were seen bound to these nodes, and count there.
    pub(crate) fn settle(&self, bound: &BTreeMap<PodUid, Option<NodeKey>>) -> Settled {
        let mut settled = Settled::default();
        for Expectation { offer, .. } in self.keep(|one| !bound.contains_key(&one.offer.pod)) {
            if bound.get(&offer.pod) == Some(&Some(offer.node)) {
                settled.met += 1;
            } else {
                settled.elsewhere += 1;
            }
        }
        settled
    }

    /// Forgets those that stood for long enough; how many.
    pub(crate) fn sweep(&self, now: Mono) -> usize {
        self.keep(|one| one.until > now).len()
    }

    /// These numbers are given to other nodes next.
    pub(crate) fn nodes_gone(&self, nodes: &[NodeKey]) {
        self.keep(|one| !nodes.contains(&one.offer.node));
    }

    /// Forgets the others, and returns them.
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

    fn offer(pod: u128, node: u32) -> Offer {
        Offer { pod: PodUid(pod), node: NodeKey(node), watts: Watts::from_int(10) }
    }

    /// The pods that stand, with their nodes.
    fn standing(expected: &Expected, pod: Option<u128>, now: u64) -> Vec<(u128, u32)> {
        let all = expected.load();
        let pairs = all.of_others(pod.map(PodUid), at(now)).map(|offer| (offer.pod.0, offer.node.0));
        pairs.collect()
    }

    #[test]
    fn a_pod_that_is_asked_for_again_counts_once_and_never_against_itself() {
        let expected = Expected::new(AGE);
        for (pod, node) in [(1, 7), (2, 7), (1, 8)] {
            assert!(!expected.offer(offer(pod, node), at(0)));
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
        // Whether or not anybody has swept.
        assert_eq!(standing(&expected, None, 5_000), [(2, 7)]);
        assert_eq!(expected.sweep(at(5_000)), 1);
        assert_eq!(expected.sweep(at(5_001)), 1);
        assert!(expected.load().0.is_empty());
    }

    #[test]
    fn a_binding_that_is_seen_ends_it_wherever_it_is() {
        let expected = Expected::new(AGE);
        (1..=4).for_each(|pod| assert!(!expected.offer(offer(pod, 7), at(0))));
        let place = |node| Some(NodeKey(node));
        let bound =
            [(PodUid(1), place(7)), (PodUid(2), place(8)), (PodUid(9), place(7)), (PodUid(4), None)].into();
        assert_eq!(expected.settle(&bound), Settled { met: 1, elsewhere: 2 });
        assert_eq!(expected.settle(&bound), Settled::default());
        assert_eq!(standing(&expected, None, 1), [(3, 7)]);
        expected.nodes_gone(&[NodeKey(7)]);
        assert_eq!(standing(&expected, None, 1), []);
    }

    #[test]
    fn however_many_uids_come_no_more_room_is_taken() {
        let expected = Expected::new(AGE);
        let (mut forgotten, uids) = (0, 10_000);
        // All within the time for which they stand.
        for pod in 0..uids {
            forgotten += usize::from(expected.offer(offer(pod, 7), at(0)));
            assert!(expected.load().0.capacity() <= MOST);
        }
        let most = u128::try_from(MOST).unwrap();
        assert_eq!(forgotten, 10_000 - MOST);
        let left = standing(&expected, None, 1);
        assert_eq!((left.len(), left[0].0), (MOST, uids - most));
        assert_eq!(expected.sweep(at(5_000)), MOST);
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
        assert!(!expected.offer(offer(1, 7), at(0)));
        assert_eq!(standing(&expected, None, 0), []);
    }
}
