//! The groups that have a limit, and the state of each after a round.

use super::by_demand::{Followed, GroupPower, Wants};
use super::reach::least;
use super::site_limits::overlapped;
use super::{BudgetMemory, Rules, Stake, Sum, short};
use crate::node::Node;
use joulie_core::budget::{BudgetNode as Row, BudgetTree, Group, GroupError, GroupShare};
use power_units::{Micros, Stamp, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where the limit of a group comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The settings: the whole site.
    Site,
    /// The limit that a person has written, by its index.
    Written(usize),
    /// The settings: a rack.
    Rack,
}

/// The state of a group after a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStanding {
    /// `site`, `powerbudget/NAME`, or the rack's name.
    pub name: String,
    /// Where its limit comes from.
    pub source: LimitSource,
    /// The index of the group that it is a part of.
    pub parent: Option<usize>,
    /// Its limit; `None` for the site without one.
    pub limit: Option<Watts>,
    /// Whether nodes are granted power so that the limit is kept.
    pub enforced: bool,
    /// How many nodes are in it, those in its parts included.
    pub nodes: usize,
    /// What this round takes from its nodes of what the policy lets them draw.
    pub lowered: Sum,
    /// The power it counts with; `None` when unknown.
    pub load: Option<Watts>,
    /// What of it is base load: no meter of a node shows it.
    pub base: Watts,
    /// By how much its limit is exceeded even when all nodes hold their targets.
    pub short: Option<Watts>,
    /// What is left of its limit when everything in it is brought to the least that it can be: a node that is woken has to
    /// fit in there. Below zero where even that is too much; `None` without a limit, and while it is not known.
    pub spare: Option<Watts>,
    /// Its power is unknown.
    pub unknown: bool,
    /// By how much its limit is exceeded as far as is known, if that has lasted longer than grants take to be
    /// confirmed.
    pub exceeded: Option<Watts>,
    /// If it is exceeded: some of the nodes that count most above their grants.
    pub holders: Vec<Arc<str>>,
    /// Nothing in it is raised, because an event is on for which it is armed.
    pub armed: bool,
    /// What follows demand in it, if its limit binds and power follows demand.
    pub power: Option<GroupPower>,
}

impl GroupStanding {
    /// Whether its limit is kept as far as is known.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.short.is_none() && !self.unknown && self.exceeded.is_none()
    }

    /// Whether there is room for all that is counted.
    pub(super) fn has_room(&self) -> bool {
        let fits = self.limit.is_none_or(|limit| self.load.is_some_and(|load| load <= limit));
        fits && !self.unknown
    }
}

/// The groups of a round.
///
/// A limit that binds nobody (there is none for the site, or a written one is only observed) is shown and is not part of the
/// tree by which power is divided: what is not known in it hinders nobody. Its base load counts in the next group above
/// that binds.
pub(super) struct Groups {
    /// The groups of the tree by which power is divided. The first one is the site; without a limit of the site it contains
    /// what no limit binds. The last one is for nodes of unknown hardware that no limit binds: they hinder nobody.
    pub(super) groups: Vec<Group>,
    /// All groups: the site first, then the written limits in their order, then the limited racks by name.
    shown: Vec<ShownGroup>,
    /// The index of the first rack.
    racks: usize,
    /// Every written limit binds in this round.
    trial: bool,
}

/// What a group is, and which group of the tree its nodes are in.
struct ShownGroup {
    name: String,
    source: LimitSource,
    parent: Option<usize>,
    limit: Option<Watts>,
    base: Watts,
    enforced: bool,
    /// A node counts here that has its place elsewhere: what is drawn here is not known.
    overlapped: bool,
    /// Nothing here is raised while an armed event is on.
    armed: bool,
    /// Nothing here is raised while a person has paused it.
    paused: bool,
    /// Its limit binds in this round.
    binds: bool,
    /// The index of the group of the tree.
    group: usize,
}

impl ShownGroup {
    const fn new(name: String, source: LimitSource, parent: Option<usize>, limit: Option<Watts>) -> Self {
        Self {
            name,
            source,
            parent,
            limit,
            base: Watts::ZERO,
            enforced: limit.is_some(),
            overlapped: false,
            armed: false,
            paused: false,
            binds: limit.is_some(),
            group: 0,
        }
    }
}

/// The name of the group that contains all others.
pub const SITE: &str = "site";
/// How the name of a written limit's group begins.
pub const WRITTEN: &str = "powerbudget/";
/// Every rack that is not named.
const OTHERS: &str = "*";
/// At most this many nodes are named as the cause of an excess.
const NAMED: usize = 3;

/// How what the groups have is divided.
pub(super) struct Division<'a> {
    pub(super) shares: &'a [GroupShare],
    pub(super) stakes: &'a [Stake<'a>],
    pub(super) rows: &'a [Row],
    /// The index of the shown group of each node.
    pub(super) places: &'a [usize],
    pub(super) lowered: &'a [Watts],
    /// Where power follows demand.
    pub(super) followed: Option<&'a Followed>,
}

impl Groups {
    /// The site, each written limit, and each rack of these nodes that has a limit.
    pub(super) fn of(rules: Rules<'_>, stakes: &[Stake<'_>]) -> Result<Self, String> {
        // Neighbouring nodes are often in one rack and share its name.
        let mut racks: Vec<&Arc<str>> = stakes.iter().filter_map(Stake::rack).collect();
        racks.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let nodes = stakes.iter().map(|stake| stake.node);
        let overlapped = overlapped(nodes, rules.limits.len());
        Self::of_racks(rules, &overlapped, racks.into_iter().map(|rack| &**rack))
    }

    pub(super) fn of_racks<'a>(
        rules: Rules<'a>,
        overlapped: &[bool],
        racks: impl Iterator<Item = &'a str>,
    ) -> Result<Self, String> {
        let limits = rules.settings;
        let mut site = ShownGroup::new(SITE.to_owned(), LimitSource::Site, None, limits.site);
        site.base = limits.site_base;
        let mut shown = vec![site];
        for (at, limit) in rules.limits.iter().enumerate() {
            let parent = Some(limit.parent.map_or(0, |parent| parent + 1));
            let name = format!("{WRITTEN}{}", limit.name);
            shown.push(ShownGroup {
                base: limit.base,
                overlapped: overlapped.get(at) == Some(&true),
                armed: limit.armed,
                paused: limit.paused,
                enforced: limit.enforced,
                binds: limit.enforced || rules.trial,
                ..ShownGroup::new(name, LimitSource::Written(at), parent, Some(limit.watts))
            });
        }
        let first = shown.len();
        let named = limits.racks.keys().map(String::as_str).filter(|&rack| rack != OTHERS);
        let all: BTreeSet<&str> = racks.chain(named).collect();
        for rack in all {
            let of = |map: &BTreeMap<String, Watts>| map.get(rack).or_else(|| map.get(OTHERS)).copied();
            let Some(limit) = of(&limits.racks) else { continue };
            let base = of(&limits.rack_base).unwrap_or(Watts::ZERO);
            let group = ShownGroup::new(rack.to_owned(), LimitSource::Rack, Some(0), Some(limit));
            shown.push(ShownGroup { base, ..group });
        }
        let groups = divided(&mut shown).map_err(|error| error.to_string())?;
        Ok(Self { groups, shown, racks: first, trial: rules.trial })
    }

    /// Whether a node may not be raised or released: one of its limits is paused, an event is on for which one that binds is
    /// armed, or what it counts is not known, because this node or another one in it has its place elsewhere.
    pub(super) fn holds(&self, node: &Node, place: usize) -> bool {
        node.limits.paused || self.shuts(node, place)
    }

    /// Whether only a person's pause keeps a node from being raised. What it yields meanwhile may be given back.
    pub(super) fn is_only_paused(&self, node: &Node, place: usize) -> bool {
        node.limits.paused && !self.shuts(node, place)
    }

    fn shuts(&self, node: &Node, place: usize) -> bool {
        let binds = |at: usize| self.shown.get(at).is_some_and(|group| group.binds);
        let is_shut = |at: usize| self.shown.get(at).is_some_and(|group| group.overlapped || group.armed);
        node.limits.overlaps.iter().any(|at| binds(at + 1))
            || self.path(place).any(|at| is_shut(at) && binds(at))
    }

    /// The group of the tree that a shown group's nodes are in.
    pub(super) fn group(&self, place: usize) -> usize {
        self.shown.get(place).map_or(0, |shown| shown.group)
    }

    /// The group of the tree that a node of this shown group is in.
    pub(super) fn group_of(&self, node: &Node, place: usize) -> usize {
        let group = self.group(place);
        let is_bound = self.groups.get(group).is_none_or(|group| group.limit() < Watts::MAX);
        if is_bound || node.machine.power_model.is_known() { group } else { self.groups.len() - 1 }
    }

    /// The shown group of each node.
    pub(super) fn places(&self, stakes: &[Stake<'_>]) -> Vec<usize> {
        let mut last: Option<(&Arc<str>, Option<usize>)> = None;
        let each = stakes.iter().map(|stake| {
            place(stake.node, self.trial, |rack| {
                let known = last.filter(|(known, _)| Arc::ptr_eq(known, rack));
                let found = known.map_or_else(|| self.find(rack), |(_, found)| found);
                last = Some((rack, found));
                found
            })
        });
        each.collect()
    }

    /// The group of a rack, if it has a limit of its own.
    pub(super) fn find(&self, rack: &str) -> Option<usize> {
        let racks = self.shown.get(self.racks..).unwrap_or_default();
        let found = racks.binary_search_by(|group| group.name.as_str().cmp(rack)).ok();
        found.map(|at| self.racks + at)
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
        let Division { shares, stakes: _, rows, places, lowered, followed } = division;
        let before = std::mem::take(&mut memory.over);
        let mut sums: Vec<Counts> = self.shown.iter().map(|group| Counts::of(group.base)).collect();
        for (at, ((row, &place), &lowered)) in rows.iter().zip(*places).zip(*lowered).enumerate() {
            if let Some(counts) = sums.get_mut(place) {
                let bid = followed.and_then(|followed| followed.bids.get(at));
                let wants = bid.map_or_else(Wants::default, |bid| Wants::of(bid, row));
                counts.add(&Counts { wants, ..Counts::of_node(row, lowered) });
            }
        }
        // Parents come before their parts.
        for at in (0..sums.len()).rev() {
            let parent = self.shown.get(at).and_then(|group| group.parent);
            if let Some((counts, whole)) = parent.and_then(|parent| {
                let (above, from) = sums.split_at_mut_checked(at)?;
                Some((from.first()?.clone(), above.get_mut(parent)?))
            }) {
                whole.add(&counts);
            }
        }
        let each = self.shown.iter().zip(sums).enumerate().map(|(at, (group, counts))| {
            let Counts { load, least, base, nodes, lowered, wants } = counts;
            let load = load.filter(|_| !group.overlapped);
            // Where the load is not known a wake is not paid for.
            let least = least.filter(|_| load.is_some());
            let over = group.limit.zip(load).map(|(limit, load)| load - limit);
            let over = over.filter(|over| group.binds && *over > Watts::ZERO);
            let lasts = over.is_some_and(|_| {
                let since = before.get(&group.name).copied().unwrap_or(now);
                memory.over.insert(group.name.clone(), since);
                now.since(since).is_some_and(|lasted| lasted >= grace)
            });
            let share = shares.get(group.group).filter(|_| group.binds);
            let power = followed.filter(|_| group.binds).and_then(|followed| {
                let is_shut = group.overlapped || group.armed || group.paused;
                let mut power =
                    wants.shown(followed.prices.get(group.group)?, followed.states.get(group.group)?);
                if is_shut {
                    // Nothing is raised here, so a pod cannot count on it.
                    power.grantable = [Watts::ZERO; 3];
                }
                Some(power)
            });
            GroupStanding {
                name: group.name.clone(),
                source: group.source,
                parent: group.parent,
                limit: group.limit,
                enforced: group.enforced,
                nodes,
                lowered,
                load,
                base,
                short: share.and_then(|share| short(share.verdict())),
                spare: group.limit.zip(least).map(|(limit, least)| limit - least),
                unknown: load.is_none() && group.limit.is_some(),
                exceeded: over.filter(|_| lasts),
                holders: if lasts { self.holders(at, division) } else { Vec::new() },
                armed: group.armed,
                power,
            }
        });
        let mut standings: Vec<GroupStanding> = each.collect();
        // Parents come before their parts. A limit that does not bind has nothing to say.
        for at in 0..standings.len() {
            let Some((above, from)) = standings.split_at_mut_checked(at) else { continue };
            let Some(part) = from.first_mut() else { continue };
            let path = std::iter::successors(part.parent, |&at| above.get(at).and_then(|group| group.parent));
            let binds = path.filter_map(|at| above.get(at)?.power.as_ref()).next();
            if let Some((power, binds)) = part.power.as_mut().zip(binds) {
                power.bound_by(binds);
            }
        }
        standings
    }

    /// The index of a group, and those above it.
    fn path(&self, from: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(from), |&at| self.shown.get(at).and_then(|group| group.parent))
    }

    /// The nodes of a group and its subgroups that count most above their grants.
    fn holders(&self, group: usize, division: &Division<'_>) -> Vec<Arc<str>> {
        let Division { stakes, rows, places, .. } = division;
        let is_here = |place: usize| self.path(place).any(|at| at == group);
        let above = |row: &Row| row.count().map(|count| count - row.account.asked().unwrap_or(Watts::ZERO));
        let here = stakes.iter().zip(*rows).zip(*places).filter(|(_, place)| is_here(**place));
        let mut holders: Vec<(Watts, &Arc<str>)> = here
            .filter_map(|((stake, row), _)| Some((above(row)?, &stake.node.name)))
            .filter(|(above, _)| *above > Watts::ZERO)
            .collect();
        holders.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1)));
        holders.into_iter().take(NAMED).map(|(_, node)| node.clone()).collect()
    }
}

/// The shown group of a node: the written limit that it is in, else its rack, else the site. A limit that is only observed
/// takes no node out of its rack.
pub(super) fn place<'a>(
    node: &'a Node,
    trial: bool,
    find: impl FnOnce(&'a Arc<str>) -> Option<usize>,
) -> usize {
    let written = node.limits.limit.map(|limit| limit + 1);
    let bound = written.filter(|_| trial || node.limits.bound);
    let rack = || node.labels.rack.as_ref().and_then(find);
    bound.or_else(rack).or(written).unwrap_or(0)
}

/// The tree by which power is divided: the site, and the groups whose limits bind.
fn divided(shown: &mut [ShownGroup]) -> Result<Vec<Group>, GroupError> {
    // Without a limit of its own the first group has a limit that is never reached, and no other is a part of it.
    let mut tree: Vec<(Option<usize>, Watts, Watts)> = Vec::new();
    for at in 0..shown.len() {
        let above = shown.get(at).and_then(|group| shown.get(group.parent?));
        let above = above.map_or(0, |above| above.group);
        let Some(group) = shown.get_mut(at) else { continue };
        if at == 0 || group.binds {
            let is_part = at > 0 && tree.get(above).is_some_and(|(_, limit, _)| *limit < Watts::MAX);
            group.group = tree.len();
            tree.push((is_part.then_some(above), group.limit.unwrap_or(Watts::MAX), group.base));
        } else {
            group.group = above;
            if let Some((_, _, base)) = tree.get_mut(above) {
                *base += group.base;
            }
        }
    }
    tree.push((None, Watts::MAX, Watts::ZERO));
    tree.into_iter().map(|(parent, limit, base)| Group::new(parent, limit, Some(base))).collect()
}

/// What is counted in a group.
#[derive(Clone, Debug)]
struct Counts {
    load: Option<Watts>,
    least: Option<Watts>,
    base: Watts,
    nodes: usize,
    lowered: Sum,
    wants: Wants,
}

impl Counts {
    fn of(base: Watts) -> Self {
        let known = Some(base);
        Self { load: known, least: known, base, nodes: 0, lowered: Sum::default(), wants: Wants::default() }
    }

    fn of_node(row: &Row, lowered: Watts) -> Self {
        let is_lowered = usize::from(lowered > Watts::ZERO);
        let lowered = Sum { watts: lowered, nodes: is_lowered };
        let (load, least) = (row.count(), least(row));
        Self { load, least, base: Watts::ZERO, nodes: 1, lowered, wants: Wants::default() }
    }

    fn add(&mut self, part: &Self) {
        let both =
            |one: Option<Watts>, other: Option<Watts>| one.zip(other).and_then(|(a, b)| a.checked_add(b));
        self.load = both(self.load, part.load);
        self.least = both(self.least, part.least);
        self.base += part.base;
        self.nodes += part.nodes;
        self.lowered.watts += part.lowered.watts;
        self.lowered.nodes += part.lowered.nodes;
        self.wants.add(&part.wants);
    }
}
