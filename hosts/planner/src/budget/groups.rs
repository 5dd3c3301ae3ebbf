//! The groups that have a limit, and the state of each after a round.

use super::{BudgetLimits, BudgetMemory, Stake, short};
use joulie_core::budget::{BudgetNode as Row, BudgetTree, Group, GroupError, GroupShare, GroupState};
use power_units::{Micros, Stamp, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state of a group after a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStanding {
    /// `site`, or the rack's name.
    pub name: String,
    /// Its limit.
    pub limit: Watts,
    /// The power it counts with; `None` when unknown.
    pub load: Option<Watts>,
    /// By how much its limit is exceeded even when all nodes hold their targets.
    pub short: Option<Watts>,
    /// Its power is unknown.
    pub unknown: bool,
    /// By how much its limit is exceeded as far as is known, if that has lasted longer than grants take to be
    /// confirmed.
    pub exceeded: Option<Watts>,
    /// If it is exceeded: some of the nodes that count most above their grants.
    pub holders: Vec<Arc<str>>,
}

impl GroupStanding {
    /// Whether its limit is kept as far as is known.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.short.is_none() && !self.unknown && self.exceeded.is_none()
    }
}

/// The groups of the settings, for the racks that exist: the site first, then the racks.
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
    /// `site`, then the racks sorted by name.
    names: Vec<String>,
}

/// The name of the group that contains all others.
pub const SITE: &str = "site";
/// Every rack that is not named.
const OTHERS: &str = "*";
/// At most this many nodes are named as the cause of an excess.
const NAMED: usize = 3;

/// How what the groups have is divided.
pub(super) struct Division<'a> {
    pub(super) shares: &'a [GroupShare],
    pub(super) states: &'a [GroupState],
    pub(super) stakes: &'a [Stake<'a>],
    pub(super) rows: &'a [Row],
}

impl Groups {
    /// The site, and each rack of these nodes that has a limit.
    pub(super) fn of(limits: &BudgetLimits, stakes: &[Stake<'_>]) -> Result<Self, String> {
        // Neighbouring nodes are often in one rack and share its name.
        let mut racks: Vec<&Arc<str>> = stakes.iter().filter_map(Stake::rack).collect();
        racks.dedup_by(|one, other| Arc::ptr_eq(one, other));
        Self::of_racks(limits, racks.into_iter().map(|rack| &**rack))
    }

    pub(super) fn of_racks<'a>(
        limits: &'a BudgetLimits,
        racks: impl Iterator<Item = &'a str>,
    ) -> Result<Self, String> {
        let wrong = |error: GroupError| error.to_string();
        // Without a limit of its own the site has a limit that is never reached.
        let site = limits.site.unwrap_or(Watts::MAX);
        let mut groups = vec![Group::new(None, site, Some(limits.site_base)).map_err(wrong)?];
        let mut names = vec![SITE.to_owned()];
        let named = limits.racks.keys().map(String::as_str).filter(|&rack| rack != OTHERS);
        let all: BTreeSet<&str> = racks.chain(named).collect();
        for rack in all {
            let of = |map: &BTreeMap<String, Watts>| map.get(rack).or_else(|| map.get(OTHERS)).copied();
            let Some(limit) = of(&limits.racks) else { continue };
            let base = of(&limits.rack_base).unwrap_or(Watts::ZERO);
            groups.push(Group::new(Some(0), limit, Some(base)).map_err(wrong)?);
            names.push(rack.to_owned());
        }
        Ok(Self { groups, names })
    }

    /// The group index of each node.
    pub(super) fn places(&self, stakes: &[Stake<'_>]) -> Vec<usize> {
        let mut last: Option<(&Arc<str>, usize)> = None;
        let each = stakes.iter().map(|stake| {
            let Some(rack) = stake.rack() else { return 0 };
            let known = last.filter(|(known, _)| Arc::ptr_eq(known, rack));
            let place = known.map_or_else(|| self.find(Some(rack)), |(_, place)| place);
            last = Some((rack, place));
            place
        });
        each.collect()
    }

    /// The group of a rack; the site if the rack has no limit of its own.
    pub(super) fn find(&self, rack: Option<&str>) -> usize {
        let racks = self.names.get(1..).unwrap_or_default();
        let found = rack.and_then(|rack| racks.binary_search_by(|name| name.as_str().cmp(rack)).ok());
        found.map_or(0, |at| at + 1)
    }

    pub(super) fn tree(&self) -> Result<BudgetTree<'_>, String> {
        BudgetTree::new(&self.groups).map_err(|error| error.to_string())
    }

    /// The states of the groups; an excess that has lasted less than `grace` is not reported yet.
    pub(super) fn standings(
        &self,
        division: &Division<'_>,
        memory: &mut BudgetMemory,
        now: Stamp,
        grace: Micros,
    ) -> Vec<GroupStanding> {
        let Division { shares, states, stakes, rows } = division;
        let before = std::mem::take(&mut memory.over);
        let each = shares.iter().zip(*states).zip(self.groups.iter().zip(&self.names)).enumerate();
        let each = each.map(|(at, ((share, state), (group, name)))| {
            let over = state.overrun().map(|over| over.by);
            let lasts = over.is_some_and(|_| {
                let since = before.get(name).copied().unwrap_or(now);
                memory.over.insert(name.clone(), since);
                now.since(since).is_some_and(|lasted| lasted >= grace)
            });
            GroupStanding {
                name: name.clone(),
                limit: group.limit(),
                load: state.load(),
                short: short(share.verdict()),
                unknown: state.load().is_none(),
                exceeded: over.filter(|_| lasts),
                holders: if lasts { self.holders(at, stakes, rows) } else { Vec::new() },
            }
        });
        each.collect()
    }

    /// The nodes of a group and its subgroups that count most above their grants.
    fn holders(&self, group: usize, stakes: &[Stake<'_>], rows: &[Row]) -> Vec<Arc<str>> {
        let is_here = |row: &Row| group == 0 || row.group == group;
        let above = |row: &Row| row.count().map(|count| count - row.account.asked().unwrap_or(Watts::ZERO));
        let here = stakes.iter().zip(rows).filter(|(_, row)| is_here(row));
        let mut holders: Vec<(Watts, &Arc<str>)> = here
            .filter_map(|(stake, row)| Some((above(row)?, &stake.node.name)))
            .filter(|(above, _)| *above > Watts::ZERO)
            .collect();
        holders.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1)));
        holders.into_iter().take(NAMED).map(|(_, node)| node.clone()).collect()
    }
}
