//! The limits of the site and its racks: what every node is granted, so that what may be drawn stays below them at every
//! instant.
//!
//! ```text
//!  grant, receipt and what was sent of each node ──▶ count ──▶ targets ──▶ what is to stand in its grant
//! ```
//!
//! Nothing is remembered of what was ordered: a grant that did not land is a difference in the next round. What a round does
//! remember, [`BudgetMemory`], are timers, and losing them costs nothing but time.
//!
//! A node's grant is for its packages and GPUs together; what it draws beside them is added when limits are looked at. Which
//! caps the policy wants decides how much of what there is falls to a node, and is the most that it is granted.

mod groups;
mod hysteresis;
mod node_power_model;
mod stake;

pub use groups::{GroupStanding, SITE};
pub use node_power_model::NodePowerModel;
pub use stake::{DesiredGrant, Stake};

use crate::node::{Node, Presence};
use groups::{Division, Groups};
use hysteresis::Band;
use joulie_core::budget::{
    BudgetNode as Row, Group, GroupShare, GroupState, GroupVerdict, Move, MoveTuning, Range, Turn, allocate,
    next_moves,
};
use power_units::{Micros, Ratio, Stamp, Watts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The limits to keep to, in watts. Without one nothing of the budget acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Of the site.
    pub site: Option<Watts>,
    /// What draws power in the site and is in no rack that is named, and is controlled by nobody.
    pub site_base: Watts,
    /// Of racks; `*` for every rack that is not named.
    pub racks: BTreeMap<String, Watts>,
    /// What draws power in racks and is controlled by nobody.
    pub rack_base: BTreeMap<String, Watts>,
    /// What a node draws beside its processors and GPUs.
    pub node_rest: Watts,
    /// What a node counts with while nobody knows what it can draw; nothing where that stays unknown.
    pub unknown_node: Option<Watts>,
    /// A change of a node's grant that is smaller is not worth a write.
    pub dead_band: Watts,
    /// A node at full power is raised by this part of its grant at least.
    pub raise_band: Ratio,
    /// Or when it has waited for more for so long, as the others do.
    pub raise_dwell: Micros,
    /// How long a node may take to read back what it is granted; after that the others make room for what it may draw.
    pub answer_within: Micros,
    /// How long the grant of a node that is gone counts after its agent was last heard.
    pub gone_hold: Micros,
}

impl BudgetLimits {
    /// No limit: nothing of the budget acts.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            site: None,
            site_base: Watts::ZERO,
            racks: BTreeMap::new(),
            rack_base: BTreeMap::new(),
            node_rest: Watts::ZERO,
            unknown_node: None,
            dead_band: Watts::ZERO,
            raise_band: Ratio::ZERO,
            raise_dwell: Micros::ZERO,
            answer_within: Micros::MINUTE,
            gone_hold: Micros::MINUTE,
        }
    }

    /// Whether there is any limit.
    #[must_use]
    pub fn any(&self) -> bool {
        self.site.is_some() || !self.racks.is_empty()
    }
}

/// What is remembered from round to round: since when. A new leader begins anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetMemory {
    /// Since when nodes would have more if that were worth a write.
    waits: BTreeMap<Arc<str>, Stamp>,
    /// Since when nodes have not read back what they are granted.
    silent: BTreeMap<Arc<str>, Stamp>,
    /// Since when each group counts more than its limit.
    over: BTreeMap<String, Stamp>,
    /// Nodes that are gone and whose grants stand: the state of the object, and since when it is so.
    gone: BTreeMap<Arc<str>, (String, Stamp)>,
}

/// What a round decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// What is to stand in the grants of nodes, where it is not what stands.
    pub asks: Vec<DesiredGrant>,
    /// Grants that are to be deleted, and why.
    pub ended: Vec<(Arc<str>, Ended)>,
    /// How the groups stand, the site first, then the racks in the order of their names.
    pub standings: Vec<GroupStanding>,
    /// What is asked back of nodes that were not asked for it before.
    pub lowered: Sum,
    /// What is given to nodes that were not given it before.
    pub raised: Sum,
    /// When a round decides otherwise although nothing has changed: the next node that does not answer is not counted on
    /// any more, and the others are to make room for it.
    pub again: Option<Stamp>,
}

/// Why a grant is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The node is released and has read that back.
    Released,
    /// The node is gone, and its agent has said nothing for long enough.
    Gone,
}

/// Watts of some nodes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The watts.
    pub watts: Watts,
    /// How many nodes.
    pub nodes: usize,
}

impl Default for Sum {
    fn default() -> Self {
        Self { watts: Watts::ZERO, nodes: 0 }
    }
}

impl Round {
    fn count(&mut self, stake: &Stake<'_>, ask: &DesiredGrant) {
        if !stake.node.granted.sent.is_empty() {
            return;
        }
        let stands = stake.grant().map(|grant| grant.watts).or(stake.node.machine.power_model.max());
        let stands = stands.unwrap_or(ask.watts);
        let sum = if ask.watts < stands { &mut self.lowered } else { &mut self.raised };
        *sum = Sum { watts: sum.watts + (stands - ask.watts).abs(), nodes: sum.nodes + 1 };
    }

    /// How the group that binds a node stands: the first above it that is not kept, else the nearest.
    #[must_use]
    pub fn standing_of(&self, rack: Option<&str>) -> Option<&GroupStanding> {
        let site = self.standings.first()?;
        // Behind the site the racks are in the order of their names.
        let racks = self.standings.get(1..).unwrap_or_default();
        let rack = rack.and_then(|rack| {
            let found = racks.binary_search_by(|group| group.name.as_str().cmp(rack)).ok();
            found.and_then(|at| racks.get(at))
        });
        let all = [rack, Some(site)];
        all.into_iter().flatten().find(|group| !group.is_kept()).or(rack).or(Some(site))
    }
}

/// A round over all nodes that have a stake, those first that are raised first where all else is equal. Until `raises`,
/// nothing is raised: a leader before may still be heard.
///
/// # Errors
/// When the limits make no sense, which would be a defect; nothing may be written then.
pub fn round(
    stakes: &[Stake<'_>],
    limits: &BudgetLimits,
    memory: &mut BudgetMemory,
    now: Stamp,
    raises: bool,
) -> Result<Round, String> {
    let law = MoveTuning::new(limits.dead_band).map_err(|error| error.to_string())?;
    let groups = Groups::of(limits, stakes)?;
    let places = groups.places(stakes);
    let tree = groups.tree()?;
    let rows =
        stakes.iter().zip(0_u64..).zip(places).map(|((stake, key), group)| stake.row(key, group, limits));
    let mut rows = rows.collect::<Result<Vec<Row>, _>>()?;
    let again = hear(stakes, &mut rows, memory, now, limits.answer_within);
    let count = groups.groups.len();
    let (mut shares, mut targets) = (vec![GroupShare::EMPTY; count], vec![Watts::ZERO; rows.len()]);
    let mut divide =
        |rows: &[Row]| allocate(tree, rows, &mut shares, &mut targets).map_err(|error| error.to_string());
    // Who leaves is not to pay for those that stay, as long as they can keep the limits without it.
    let plain = keep_what_leaves(stakes, &mut rows);
    if divide(&rows)?.short > 0
        && let Some(plain) = plain
    {
        rows = plain;
        divide(&rows)?;
    }
    let impatient = impatient(stakes, &rows, &targets, memory, now, limits.raise_dwell);
    let band = Band(limits.raise_band);
    hysteresis::hold(band, &groups.groups, &rows, &impatient, &mut targets);
    let_go(stakes, &groups.groups, &rows, &mut targets);
    let mut states = vec![GroupState::EMPTY; count];
    let (mut queue, mut moves) = (vec![Turn::EMPTY; rows.len()], vec![Move::Keep; rows.len()]);
    next_moves(law, tree, (&rows, &targets), (&mut states, &mut queue), &mut moves)
        .map_err(|error| error.to_string())?;
    let ended = ended(stakes, memory, now, limits.gone_hold);
    let mut made = Round { ended, again, ..Round::default() };
    let all = stakes.iter().zip(&rows).zip(&targets).zip(moves.iter().zip(&impatient));
    for (((stake, row), &target), (&step, &impatient)) in all {
        // A short part of the way is no more worth a write than a short way.
        let short = |cap: Watts| row.account.asked().is_some_and(|from| band.is_within(from, cap));
        let step = match step {
            Move::Raise(cap) if !raises || (cap < target && !impatient && short(cap)) => Move::Keep,
            Move::Raise(_) | Move::Lower(_) | Move::Keep | Move::Await | Move::Wait(_) => step,
        };
        if let Some(ask) = stake.ask(step, row, target, limits) {
            made.count(stake, &ask);
            made.asks.push(ask);
        }
    }
    let division = Division { shares: &shares, states: &states, stakes, rows: &rows };
    made.standings = groups.standings(&division, memory, now, limits.answer_within);
    Ok(made)
}

/// The grants that are to go: of nodes that are released and know it, and of nodes that are gone.
fn ended(
    stakes: &[Stake<'_>],
    memory: &mut BudgetMemory,
    now: Stamp,
    hold: Micros,
) -> Vec<(Arc<str>, Ended)> {
    let before = std::mem::take(&mut memory.gone);
    let mut ended = Vec::new();
    for Stake { node, leaves, .. } in stakes {
        let Node { name, presence, granted, .. } = node;
        if *presence == Presence::Gone {
            // Whatever its agent says makes the wait begin anew.
            let known = before.get(name).filter(|(of, _)| *of == granted.version);
            let since = known.map_or(now, |(_, since)| *since);
            if now.since(since).is_some_and(|silent| silent >= hold) {
                ended.push((name.clone(), Ended::Gone));
            }
            memory.gone.insert(name.clone(), (granted.version.clone(), since));
        } else if *leaves && granted.released && granted.is_read_back() {
            ended.push((name.clone(), Ended::Released));
        }
    }
    ended
}

/// A node that does not read back what it is granted is not counted on: it may have come up without its agent. When the next
/// one is not any more.
fn hear(
    stakes: &[Stake<'_>],
    rows: &mut [Row],
    memory: &mut BudgetMemory,
    now: Stamp,
    within: Micros,
) -> Option<Stamp> {
    let before = std::mem::take(&mut memory.silent);
    let mut again: Option<Stamp> = None;
    for (stake, row) in stakes.iter().zip(rows) {
        if row.account.is_proven() || stake.is_fixed() {
            continue;
        }
        let since = before.get(&stake.node.name).copied().unwrap_or(now);
        memory.silent.insert(stake.node.name.clone(), since);
        let is_counted_on = now.since(since).is_none_or(|silent| silent < within);
        if is_counted_on && row.reachable {
            let until = since + within;
            again = Some(again.map_or(until, |first| first.min(until)));
        }
        row.reachable &= is_counted_on;
    }
    again
}

/// The nodes that leave have what they have for a floor. The nodes as they were, if any leaves.
fn keep_what_leaves(stakes: &[Stake<'_>], rows: &mut Vec<Row>) -> Option<Vec<Row>> {
    if stakes.iter().all(|stake| !stake.leaves) {
        return None;
    }
    let plain = rows.clone();
    for (stake, row) in stakes.iter().zip(rows) {
        let keeps = row.account.asked().filter(|_| stake.leaves).map(|asked| row.range.limit(asked));
        let range = keeps.and_then(|keeps| Range::new(keeps, row.range.max()).ok());
        row.range = range.unwrap_or(row.range);
    }
    Some(plain)
}

/// What nobody else wants goes to the nodes that leave, the first of them first, so that they can be released.
fn let_go(stakes: &[Stake<'_>], groups: &[Group], rows: &[Row], targets: &mut [Watts]) {
    if stakes.iter().all(|stake| !stake.leaves) {
        return;
    }
    let mut loads = hysteresis::loads(groups, rows, targets);
    for ((stake, row), target) in stakes.iter().zip(rows).zip(targets) {
        let Some(max) = row.range.max().filter(|_| stake.leaves && row.reachable) else { continue };
        let path = || std::iter::successors(Some(row.group), |&at| groups.get(at).and_then(Group::parent));
        let room = |at: usize| Some(groups.get(at)?.limit() - loads.get(at).copied().flatten()?);
        let Some(room) = path().map(room).collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().min())
        else {
            continue;
        };
        let more = (max - *target).min(room).or_zero();
        *target += more;
        for at in path().collect::<Vec<_>>() {
            if let Some(load) = loads.get_mut(at) {
                *load = load.and_then(|load| load.checked_add(more));
            }
        }
    }
}

/// Which nodes would have more and have waited for that for long enough.
fn impatient(
    stakes: &[Stake<'_>],
    rows: &[Row],
    targets: &[Watts],
    memory: &mut BudgetMemory,
    now: Stamp,
    dwell: Micros,
) -> Vec<bool> {
    let before = std::mem::take(&mut memory.waits);
    let each = stakes.iter().zip(rows).zip(targets).map(|((stake, row), &target)| {
        if stake.leaves {
            return true;
        }
        let more = row.account.asked().is_none_or(|cap| row.range.limit(target) > cap);
        if !more || stake.is_fixed() {
            return false;
        }
        let since = before.get(&stake.node.name).copied().unwrap_or(now);
        memory.waits.insert(stake.node.name.clone(), since);
        now.since(since).is_some_and(|waited| waited >= dwell)
    });
    each.collect()
}

/// Whether a group's limit can be kept, as an allocation says.
fn short(verdict: GroupVerdict) -> Option<Watts> {
    match verdict {
        GroupVerdict::Short { by } => Some(by),
        GroupVerdict::Kept { .. } | GroupVerdict::Unknown => None,
    }
}

#[cfg(test)]
mod rig;
#[cfg(test)]
mod tests;
