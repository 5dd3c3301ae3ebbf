//! The groups that have a limit, and how each stands after a round.

use super::{BudgetLimits, BudgetMemory, Stake, short};
use joulie_core::budget::{BudgetNode as Row, BudgetTree, Group, GroupError, GroupShare, GroupState};
use power_units::{Micros, Stamp, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How a group stands after a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStanding {
    /// `site`, or the rack's name.
    pub name: String,
    /// Its limit.
    pub limit: Watts,
    /// What it counts; nothing when nobody can say.
    pub load: Option<Watts>,
    /// By how much its limit cannot be kept even when everybody has done what they were told.
    pub short: Option<Watts>,
    /// Nobody can say what it draws.
    pub unknown: bool,
    /// By how much its limit is exceeded as far as is known, and has been for longer than grants take to be read back.
    pub exceeded: Option<Watts>,
    /// Where it is exceeded: the nodes that count most above what they were granted, some of them.
    pub holders: Vec<Arc<str>>,
}

impl GroupStanding {
    /// Whether its limit is kept as far as is known.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.short.is_none() && !self.unknown && self.exceeded.is_none()
    }
}

/// The groups as the settings say, for the racks that there are: the site first, then the racks.
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
    /// `site`, then the racks in the order of their names.
    names: Vec<String>,
}

/// The name of the group that holds all others.
pub const SITE: &str = "site";
/// Every rack that is not named.
const OTHERS: &str = "*";
/// So many nodes are named that hold what is too much.
const NAMED: usize = 3;

/// How what the groups have is divided.
pub(super) struct Division<'a> {
    pub(super) shares: &'a [GroupShare],
    pub(super) states: &'a [GroupState],
    pub(super) stakes: &'a [Stake<'a>],
    pub(super) rows: &'a [Row],
}

impl Groups {
    /// The site, and each rack of these claimants that has a limit.
    pub(super) fn of(limits: &BudgetLimits, stakes: &[Stake<'_>]) -> Result<Self, String> {
        // Neighbours are often of one rack, and share its name.
        let mut racks: Vec<&Arc<str>> = stakes.iter().filter_map(Stake::rack).collect();
        racks.dedup_by(|one, other| Arc::ptr_eq(one, other));
        Self::of_racks(limits, racks.into_iter().map(|rack| &**rack))
    }

    pub(super) fn of_racks<'a>(
        limits: &'a BudgetLimits,
        racks: impl Iterator<Item = &'a str>,
    ) -> Result<Self, String> {
        let wrong = |error: GroupError| error.to_string();
        // Without a limit of its own the site has one that nothing reaches.
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

    /// The groups of those who claim.
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

    /// The group of a rack; the site where it has none of its own.
    pub(super) fn find(&self, rack: Option<&str>) -> usize {
        let racks = self.names.get(1..).unwrap_or_default();
        let found = rack.and_then(|rack| racks.binary_search_by(|name| name.as_str().cmp(rack)).ok());
        found.map_or(0, |at| at + 1)
    }

    pub(super) fn tree(&self) -> Result<BudgetTree<'_>, String> {
        BudgetTree::new(&self.groups).map_err(|error| error.to_string())
    }

    /// How the groups stand; what is exceeded for less than `grace` is not told yet.
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

    /// Who counts most above what he was granted, of a group and the groups in it.
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
