//! The nodes that can accept pods of stressed nodes.
//!
//! The least stressed node comes first. A place is given away once: what a pod takes of a node is not free for the
//! next pod. The work is bounded: after `CHECKS_MAX` comparisons no node is found any more, so that a thousand pods
//! that fit nowhere do not cost a pass its time.

use super::eviction::RequestedResources;
use super::{MigrationLaw, MigrationReason, NodeConditions, Stress};
use power_units::Percent;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// How far below the threshold the stress of a destination must be: after it has accepted a pod, it should not be
/// stressed itself.
pub const RELIEF: Percent = Percent::from_int(10);

/// The most comparisons of a pod with a node in one round.
const CHECKS_MAX: u32 = 20_000;

/// A node that pods might leave or move to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site<'a> {
    /// The node.
    pub node: NodeConditions<'a>,
    /// It is ready and accepts new pods.
    pub open: bool,
    /// Its free resources.
    pub free: RequestedResources,
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedPlace {
    /// The index of the node that the pod leaves.
    pub from: usize,
    /// Why.
    pub reason: MigrationReason,
    /// The resources that it needs.
    pub needs: RequestedResources,
    /// The index of the node that was found before: it stays the destination while it is one.
    pub before: Option<usize>,
}

/// The nodes in one round.
#[derive(Debug)]
pub struct Destinations<'a> {
    law: MigrationLaw,
    relief: Percent,
    sites: &'a [Site<'a>],
    /// What pods of this round take of the nodes.
    taken: BTreeMap<usize, RequestedResources>,
    /// The indices of the nodes, the least stressed first; most rounds need no order.
    order: OnceCell<Vec<usize>>,
    checks: u32,
}

impl<'a> Destinations<'a> {
    /// These nodes, for the pods of one round.
    #[must_use]
    pub const fn new(law: MigrationLaw, relief: Percent, sites: &'a [Site<'a>]) -> Self {
        Self { law, relief, sites, taken: BTreeMap::new(), order: OnceCell::new(), checks: 0 }
    }

    /// Finds a node for a pod, and gives the place away. Returns its index. `may_run` says whether the scheduler would
    /// put the pod on the node with this index at all.
    pub fn take(&mut self, wanted: &WantedPlace, may_run: impl Fn(usize) -> bool) -> Option<usize> {
        let at = self.find(wanted, may_run)?;
        let taken = self.taken.entry(at).or_default();
        *taken = taken.plus(wanted.needs);
        Some(at)
    }

    fn find(&mut self, wanted: &WantedPlace, may_run: impl Fn(usize) -> bool) -> Option<usize> {
        let (law, relief, sites, taken) = (&self.law, self.relief, self.sites, &self.taken);
        let mut left = CHECKS_MAX.saturating_sub(self.checks);
        let mut fits = |at: usize| {
            let Some(site) = sites.get(at).filter(|_| left > 0) else { return false };
            left -= 1;
            let free = taken.get(&at).map_or(site.free, |taken| site.free.less(*taken));
            at != wanted.from
                && law.is_destination(site, wanted.reason, relief)
                && free.holds(wanted.needs)
                && may_run(at)
        };
        let found = wanted.before.filter(|&at| fits(at)).or_else(|| {
            let percent = |stress: Option<Stress>| stress.map(|stress| stress.percent);
            let stress = |site: &Site<'_>| percent(site.node.cooling).max(percent(site.node.psu));
            let order = self.order.get_or_init(|| {
                let mut order: Vec<usize> = (0..sites.len()).collect();
                order.sort_by_cached_key(|&at| sites.get(at).map(|site| (stress(site), site.node.name)));
                order
            });
            order.iter().copied().find(|&at| fits(at))
        });
        self.checks = CHECKS_MAX - left;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{law, node};
    use super::*;

    const ROOM: RequestedResources =
        RequestedResources { cpu_milli: 4_000, memory_bytes: 1 << 33, gpus: 0, pods: 4 };
    const NEEDS: RequestedResources =
        RequestedResources { cpu_milli: 3_000, memory_bytes: 1 << 30, gpus: 0, pods: 1 };

    fn site(name: &'static str, cooling: i32) -> Site<'static> {
        Site { node: node(name, cooling, 10), open: true, free: ROOM }
    }

    fn wanted(before: Option<usize>) -> WantedPlace {
        let reason = MigrationReason::CoolingStress(Percent::from_int(90));
        WantedPlace { from: 0, reason, needs: NEEDS, before }
    }

    #[test]
    fn the_least_stressed_node_comes_first_and_each_place_is_given_once() {
        let sites = [site("hot", 90), site("mild", 40), site("cool", 20), site("warm", 65)];
        let mut all = Destinations::new(law(), RELIEF, &sites);
        assert_eq!(all.take(&wanted(None), |_| true), Some(2));
        assert_eq!(all.take(&wanted(None), |_| true), Some(1));
        assert_eq!(all.take(&wanted(None), |_| true), None, "warm is not below the threshold by the relief");
    }

    #[test]
    fn the_node_that_was_found_before_stays_while_it_is_a_destination() {
        let sites = [site("hot", 90), site("mild", 40), site("cool", 20)];
        let take = |sites: &[Site<'_>], before, may: fn(usize) -> bool| {
            Destinations::new(law(), RELIEF, sites).take(&wanted(before), may)
        };
        assert_eq!(take(&sites, Some(1), |_| true), Some(1));
        assert_eq!(take(&sites, Some(1), |at| at != 1), Some(2));
        // Neither the node that it leaves nor one that does not exist any more.
        assert_eq!(take(&sites, Some(0), |_| true), Some(2));
        assert_eq!(take(&sites, Some(7), |_| true), Some(2));
        let full = [site("hot", 90), Site { free: RequestedResources::default(), ..site("mild", 40) }];
        assert_eq!(take(&full, Some(1), |_| true), None);
    }

    #[test]
    fn the_work_of_a_round_is_bounded() {
        let sites: Vec<_> = (0..1_000).map(|_| site("n", 20)).collect();
        let mut all = Destinations::new(law(), RELIEF, &sites);
        let mut asked = std::cell::Cell::new(0_u32);
        for _ in 0..100 {
            let found = all.take(&wanted(None), |_| {
                asked.set(asked.get() + 1);
                false
            });
            assert_eq!(found, None);
        }
        assert!(*asked.get_mut() <= CHECKS_MAX);
        assert_eq!(all.take(&wanted(None), |_| true), None);
    }
}
