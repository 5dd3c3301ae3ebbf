//! Who used each GPU lately, by the control groups of the processes that its driver names.
//!
//! A driver tells the use of a moment up to a second later, and between two answers there may be none. So what was used in
//! the last five seconds counts for what is drawn now.

use super::cgroup::pod_of;
use super::ledger::CardUsed;
use super::pods::Pods;
use node_kit::GpuGroupUse;
use power_hal::Key;
use power_units::{Micros, Stamp};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// For how long what was used counts.
const WINDOW: Micros = Micros::new(5_000_000);
/// More groups than use a card.
const GROUPS_MOST: usize = 1_024;

/// What control groups used of a card; `None` is the group that is not known.
type Groups = BTreeMap<Option<Arc<str>>, u64>;

/// What was told since it was last taken: of each card of which its driver said anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CardUses(BTreeMap<Key, Groups>);

impl CardUses {
    /// Adds what a driver has told.
    pub(super) fn add(&mut self, told: &[GpuGroupUse]) {
        for GpuGroupUse { key, groups } in told {
            let all = self.0.entry(*key).or_default();
            for (group, used) in groups {
                let group =
                    if all.len() < GROUPS_MOST || all.contains_key(group) { group.clone() } else { None };
                let sum = all.entry(group).or_default();
                *sum = sum.saturating_add(*used);
            }
        }
    }
}

/// What was used in the last seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct CardUsers {
    lately: BTreeMap<Key, VecDeque<(Stamp, Groups)>>,
}

impl CardUsers {
    /// Takes in what was told up to a time.
    pub(super) fn take(&mut self, at: Stamp, uses: CardUses) {
        for (key, groups) in uses.0 {
            self.lately.entry(key).or_default().push_back((at, groups));
        }
        for told in self.lately.values_mut() {
            // A time that is later than now is of a control loop that has ended.
            told.retain(|(then, _)| at.since(*then).is_some_and(|age| age <= WINDOW));
        }
        self.lately.retain(|_, told| !told.is_empty());
    }

    /// Who used a card; `None` if its driver has not said so lately.
    pub(super) fn of(&self, key: &Key, pods: &Pods) -> Option<CardUsed> {
        let (mut by_uid, mut unknown, mut system) = (BTreeMap::new(), 0_u64, 0_u64);
        for (group, used) in self.lately.get(key)?.iter().flat_map(|(_, groups)| groups) {
            let sum = match group.as_deref().map(pod_of) {
                Some(Some(uid)) => by_uid.entry(uid).or_default(),
                Some(None) => &mut system,
                None => &mut unknown,
            };
            *sum = sum.saturating_add(*used);
        }
        let of_pods = by_uid.into_iter().map(|(uid, used)| (pods.of_uid(&uid), used));
        Some(CardUsed { pods: of_pods.chain([(None, unknown)]).collect(), system })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::gpu("0000:c1:00.0").unwrap()
    }

    fn told(groups: &[(Option<&str>, u64)]) -> CardUses {
        let mut uses = CardUses::default();
        let groups = groups.iter().map(|(group, used)| (group.map(Arc::from), *used)).collect();
        uses.add(&[GpuGroupUse { key: key(), groups }]);
        uses
    }

    fn at(seconds: u64) -> Stamp {
        Stamp::new(Micros::new(seconds * 1_000_000))
    }

    fn used(users: &CardUsers) -> Option<(u64, u64)> {
        let used = users.of(&key(), &Pods::default())?;
        Some((used.pods.iter().map(|(_, used)| used).sum(), used.system))
    }

    #[test]
    fn what_was_used_counts_for_five_seconds_and_silence_is_not_nobody() {
        let mut users = CardUsers::default();
        assert_eq!(used(&users), None);
        let pod = "/kubepods.slice/kubepods-podu1.slice/cri-containerd-c.scope";
        users.take(at(1), told(&[(Some(pod), 60), (Some("/system.slice/dcgm.service"), 5), (None, 1)]));
        users.take(at(2), told(&[(Some(pod), 20)]));
        assert_eq!(used(&users), Some((81, 5)), "60 and 20 of the pod, and 1 of nobody knows whom");
        users.take(at(6), told(&[]));
        assert_eq!(used(&users), Some((81, 5)));
        users.take(at(7), told(&[]));
        assert_eq!(used(&users), Some((20, 0)));
        users.take(at(8), told(&[]));
        assert_eq!(used(&users), Some((0, 0)), "nobody uses it");
        users.take(at(14), CardUses::default());
        assert_eq!(used(&users), None, "its driver says nothing any more");
        // The control loop begins anew, with a time of its own.
        users.take(at(20), told(&[(Some(pod), 60)]));
        users.take(at(0), told(&[]));
        assert_eq!(used(&users), Some((0, 0)));
    }

    #[test]
    fn groups_beyond_the_bound_are_of_nobody_knows_whom() {
        let names: Vec<String> = (0..2 * GROUPS_MOST).map(|at| format!("/a/{at}")).collect();
        let groups: Vec<(Option<&str>, u64)> = names.iter().map(|name| (Some(name.as_str()), 1)).collect();
        let uses = told(&groups);
        assert!(uses.0[&key()].len() <= GROUPS_MOST + 1);
        assert_eq!(uses.0[&key()].values().sum::<u64>(), 2 * 1_024);
    }
}
