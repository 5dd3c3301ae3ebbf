//! The limits of the site and its racks: what every node is granted, so that what may be drawn stays below them at every
//! instant.
//!
//! ```text
//!  grant, receipt and what was sent of each node ──▶ count ──▶ targets ──▶ what is to stand in its grant
//! ```
//!
//! Nothing is remembered of what was ordered: a grant that did not land is a difference in the next round. What a round does
//! remember, [`Memory`], are timers, and losing them costs nothing but time.
//!
//! A node's grant is for its packages and GPUs together; what it draws beside them is added when limits are looked at. Which
//! caps the policy wants decides how much of what there is falls to a node, and is the most that it is granted.

mod claim;
mod groups;
mod split;
mod steady;

pub use claim::{Ask, Claim};
pub use groups::{GroupStanding, SITE};
pub use split::Split;

use groups::Groups;
use joulie_core::budget::{
    Group, Law, Move, Node, Range, Share, Standing, Turn, Verdict, allocate, next_moves,
};
use power_units::{Micros, Ratio, Stamp, Watts};
use std::collections::BTreeMap;
use std::sync::Arc;
use steady::Band;

/// The limits to keep to, in watts. Without one nothing of the budget acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
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
}

impl Limits {
    /// Whether there is any limit.
    #[must_use]
    pub fn any(&self) -> bool {
        self.site.is_some() || !self.racks.is_empty()
    }
}

/// What is remembered from round to round: since when. A new leader begins anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Since when nodes would have more if that were worth a write.
    waits: BTreeMap<Arc<str>, Stamp>,
    /// Since when nodes have not read back what they are granted.
    silent: BTreeMap<Arc<str>, Stamp>,
    /// Since when each group counts more than its limit.
    over: BTreeMap<String, Stamp>,
}

/// What a round decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// What is to stand in the grant of each claimant; nothing where what stands is to stay.
    pub asks: Vec<Option<Ask>>,
    /// How the groups stand, the site first, then the racks in the order of their names.
    pub standings: Vec<GroupStanding>,
}

impl Round {
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

/// A round over all claimants, those first that are raised first where all else is equal. Until `raises`, nothing is raised:
/// a leader before may still be heard.
///
/// # Errors
/// When the limits make no sense, which would be a defect; nothing may be written then.
pub fn round(
    claims: &[Claim],
    limits: &Limits,
    memory: &mut Memory,
    (now, raises): (Stamp, bool),
) -> Result<Round, String> {
    let law = Law::new(limits.dead_band).map_err(|error| error.to_string())?;
    let groups = Groups::of(limits, claims)?;
    let places = groups.places(claims);
    let tree = groups.tree()?;
    let nodes =
        claims.iter().zip(0_u64..).zip(places).map(|((claim, key), group)| claim.node(key, group, limits));
    let mut nodes = nodes.collect::<Result<Vec<Node>, _>>()?;
    hear(claims, &mut nodes, memory, (now, limits.answer_within));
    let count = groups.groups.len();
    let (mut shares, mut targets) = (vec![Share::EMPTY; count], vec![Watts::ZERO; nodes.len()]);
    let mut divide =
        |nodes: &[Node]| allocate(tree, nodes, &mut shares, &mut targets).map_err(|error| error.to_string());
    // Who leaves is not to pay for those that stay, as long as they can keep the limits without it.
    let plain = keep_what_leaves(claims, &mut nodes);
    if divide(&nodes)?.short > 0
        && let Some(plain) = plain
    {
        nodes = plain;
        divide(&nodes)?;
    }
    let impatient = impatient(claims, &nodes, &targets, memory, (now, limits.raise_dwell));
    let band = Band(limits.raise_band);
    steady::hold(band, &groups.groups, &nodes, &impatient, &mut targets);
    let_go(claims, &groups.groups, &nodes, &mut targets);
    let mut standings = vec![Standing::EMPTY; count];
    let (mut queue, mut moves) = (vec![Turn::EMPTY; nodes.len()], vec![Move::Keep; nodes.len()]);
    next_moves(law, tree, (&nodes, &targets), (&mut standings, &mut queue), &mut moves)
        .map_err(|error| error.to_string())?;
    let all = claims.iter().zip(&nodes).zip(&targets).zip(moves.iter().zip(&impatient));
    let asks = all.map(|(((claim, node), &target), (&step, &impatient))| {
        // A short part of the way is no more worth a write than a short way.
        let short = |cap: Watts| node.account.asked().is_some_and(|from| band.is_within(from, cap));
        let step = match step {
            Move::Raise(cap) if !raises || (cap < target && !impatient && short(cap)) => Move::Keep,
            Move::Raise(_) | Move::Lower(_) | Move::Keep | Move::Await | Move::Wait(_) => step,
        };
        claim.ask(step, (node, target), limits)
    });
    let asks = asks.collect();
    let standings =
        groups.standings((&shares, &standings), (claims, &nodes), memory, (now, limits.answer_within));
    Ok(Round { asks, standings })
}

/// A node that does not read back what it is granted is not counted on: it may have come up without its agent.
fn hear(claims: &[Claim], nodes: &mut [Node], memory: &mut Memory, (now, within): (Stamp, Micros)) {
    let before = std::mem::take(&mut memory.silent);
    for (claim, node) in claims.iter().zip(nodes) {
        if node.account.is_proven() || claim.is_fixed() {
            continue;
        }
        let since = before.get(&claim.node).copied().unwrap_or(now);
        memory.silent.insert(claim.node.clone(), since);
        node.reachable &= now.since(since).is_none_or(|silent| silent < within);
    }
}

/// The nodes that leave have what they have for a floor. The nodes as they were, if any leaves.
fn keep_what_leaves(claims: &[Claim], nodes: &mut Vec<Node>) -> Option<Vec<Node>> {
    if claims.iter().all(|claim| !claim.leaves) {
        return None;
    }
    let plain = nodes.clone();
    for (claim, node) in claims.iter().zip(nodes) {
        let keeps = node.account.asked().filter(|_| claim.leaves).map(|asked| node.range.limit(asked));
        let range = keeps.and_then(|keeps| Range::new(keeps, node.range.max()).ok());
        node.range = range.unwrap_or(node.range);
    }
    Some(plain)
}

/// What nobody else wants goes to the nodes that leave, the first of them first, so that they can be released.
fn let_go(claims: &[Claim], groups: &[Group], nodes: &[Node], targets: &mut [Watts]) {
    if claims.iter().all(|claim| !claim.leaves) {
        return;
    }
    let mut loads = steady::loads(groups, nodes, targets);
    for ((claim, node), target) in claims.iter().zip(nodes).zip(targets) {
        let Some(max) = node.range.max().filter(|_| claim.leaves && node.reachable) else { continue };
        let path = || std::iter::successors(Some(node.group), |&at| groups.get(at).and_then(Group::parent));
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
    claims: &[Claim],
    nodes: &[Node],
    targets: &[Watts],
    memory: &mut Memory,
    (now, dwell): (Stamp, Micros),
) -> Vec<bool> {
    let before = std::mem::take(&mut memory.waits);
    let each = claims.iter().zip(nodes).zip(targets).map(|((claim, node), &target)| {
        if claim.leaves {
            return true;
        }
        let more = node.account.asked().is_none_or(|cap| node.range.limit(target) > cap);
        if !more || claim.is_fixed() {
            return false;
        }
        let since = before.get(&claim.node).copied().unwrap_or(now);
        memory.waits.insert(claim.node.clone(), since);
        now.since(since).is_some_and(|waited| waited >= dwell)
    });
    each.collect()
}

/// Whether a group's limit can be kept, as an allocation says.
fn short(verdict: Verdict) -> Option<Watts> {
    match verdict {
        Verdict::Short { by } => Some(by),
        Verdict::Kept { .. } | Verdict::Unknown => None,
    }
}

#[cfg(test)]
mod tests;
