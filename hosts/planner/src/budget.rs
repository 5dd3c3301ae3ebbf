//! The limits of the site and its parts: the grant of every node, so that the power that may be drawn stays below the
//! limits at every instant.
//!
//! ```text
//!  grant, receipt and sent grants of each node ──▶ count ──▶ targets ──▶ desired grants
//! ```
//!
//! The budget keeps no record of what it ordered: a grant that was not written shows as a difference in the next round.
//! A round only keeps timers, [`BudgetMemory`]; losing them costs nothing but time.
//!
//! Where power follows demand ([`PowerSharing`]), the caps that the policy wants are the most that nodes are granted, and
//! their shares follow what they report that they want to draw.
//!
//! A node's grant is for its packages and GPUs together; the node's other power is added when limits are checked. The
//! caps that the policy wants decide a node's share of the available power, and are the most that it is granted.

mod by_demand;
mod groups;
mod hysteresis;
mod node_power_model;
mod reach;
mod response;
mod site_limits;
mod stake;
mod sustained;

pub use by_demand::{GroupPower, PowerSharing};
pub use groups::{GroupStanding, LimitSource, SITE, WRITTEN};
pub use node_power_model::NodePowerModel;
pub use reach::GrantReach;
pub use response::{
    LimitWindow, LocalTime, LoweredBy, ResponseError, SignalHeard, SignalLaw, SignalLimit, SignalRule,
    SignalStep, lowered,
};
pub use site_limits::{LimitPlace, SiteLimit};
pub use stake::{DesiredGrant, Stake};
pub use sustained::SustainedStates;

use crate::node::{Node, Presence};
use crate::sleep::WakePrice;
use by_demand::{Raised, Shares, follow};
use groups::{Division, Groups};
use hysteresis::Band;
use joulie_core::budget::demand::{OrderCount, TokenBucket};
use joulie_core::budget::sustained::{SustainedLimit, SustainedMemory};
use joulie_core::budget::{
    BudgetNode as Row, Group, GroupShare, GroupState, GroupVerdict, Move, MoveTuning, Priority, Range, Turn,
    allocate, next_moves,
};
use power_units::{Micros, Ratio, Stamp, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The limits of the settings, in watts, and how every limit is kept. Without any limit the budget does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLimits {
    /// The site's limit.
    pub site: Option<Watts>,
    /// Power drawn in the site outside the named racks that nothing controls.
    pub site_base: Watts,
    /// The racks' limits; `*` is for every rack that is not named.
    pub racks: BTreeMap<String, Watts>,
    /// Power drawn in racks that nothing controls.
    pub rack_base: BTreeMap<String, Watts>,
    /// The power that a node draws besides its processors and GPUs.
    pub node_rest: Watts,
    /// A node whose meter has shown more beside them counts with that.
    pub rest_measured: bool,
    /// The power that a node counts with while its greatest power is unknown; `None` leaves it unknown.
    pub unknown_node: Option<Watts>,
    /// A smaller change of a node's grant is not written.
    pub dead_band: Watts,
    /// A node at full power is raised by at least this fraction of its grant.
    pub raise_band: Ratio,
    /// A node that has waited this long for more is raised by less too, as are nodes that are not at full power.
    pub raise_dwell: Micros,
    /// How long a node may take to confirm its grant; after that the other nodes are lowered to leave it what it may
    /// draw.
    pub answer_within: Micros,
    /// How long the grant of a removed node still counts after the last sign of its agent.
    pub gone_hold: Micros,
    /// How power is shared.
    pub sharing: PowerSharing,
}

impl BudgetLimits {
    /// No limit: the budget does nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            site: None,
            site_base: Watts::ZERO,
            racks: BTreeMap::new(),
            rack_base: BTreeMap::new(),
            node_rest: Watts::ZERO,
            rest_measured: false,
            unknown_node: None,
            dead_band: Watts::ZERO,
            raise_band: Ratio::ZERO,
            raise_dwell: Micros::ZERO,
            answer_within: Micros::MINUTE,
            gone_hold: Micros::MINUTE,
            sharing: PowerSharing::Static,
        }
    }

    /// Whether there is any limit.
    #[must_use]
    pub fn any(&self) -> bool {
        self.site.is_some() || !self.racks.is_empty()
    }
}

/// The limits of one round.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Those of the settings, and how every limit is kept. The site's holds above all others; a rack's holds for nodes that no
    /// enforced one of these selects.
    pub settings: &'a BudgetLimits,
    /// Those that persons have written, which may be only observed.
    pub limits: &'a [SiteLimit],
    /// Computes what would be granted if every limit were enforced.
    pub trial: bool,
}

/// The timers that are kept between rounds. A new leader starts without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetMemory {
    /// Since when each node would be raised if the change were worth a write.
    waits: BTreeMap<Arc<str>, Stamp>,
    /// Since when each node has not confirmed its grant.
    silent: BTreeMap<Arc<str>, Stamp>,
    /// Since when each group counts more than its limit.
    over: BTreeMap<String, Stamp>,
    /// Removed nodes whose grants still exist: the version of the object, and since when it has had it.
    gone: BTreeMap<Arc<str>, (String, Stamp)>,
    /// When each node was last raised by demand.
    raised: Raised,
    /// Since when demand is followed.
    begun: Option<Stamp>,
    /// The orders that may go out.
    tokens: TokenBucket,
    /// What was drawn below each limit that has two.
    sustained: BTreeMap<Arc<str>, (SustainedLimit, Box<SustainedMemory>)>,
    /// The nodes at full power, or planned for it, whose entitlement the limits above them cannot keep; `None` before the
    /// first round.
    unfit: Option<BTreeSet<Arc<str>>>,
    /// The nodes without a receipt below a limit that is exceeded by what is counted, or of which that is not known; `None`
    /// before the first round.
    exceeded: Option<BTreeSet<Arc<str>>>,
}

impl BudgetMemory {
    /// Nothing is remembered, and so many orders may go out.
    #[must_use]
    pub fn with_tokens(tokens: TokenBucket) -> Self {
        Self { tokens, ..Self::default() }
    }

    /// Whether the entitlement of a node at full power, or planned for it, is kept by every limit above it. Nobody knows
    /// before the first round.
    #[must_use]
    pub fn fits(&self, node: &str) -> bool {
        self.unfit.as_ref().is_some_and(|unfit| !unfit.contains(node))
    }

    /// Whether what is counted now keeps every limit above a node without a receipt. Nobody knows before the first round.
    #[must_use]
    pub fn keeps(&self, node: &str) -> bool {
        self.exceeded.as_ref().is_some_and(|exceeded| !exceeded.contains(node))
    }
}

/// What a round decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The grants to write, where they differ from the present ones.
    pub asks: Vec<DesiredGrant>,
    /// The grants to delete, and why.
    pub ended: Vec<(Arc<str>, Ended)>,
    /// The state of the groups: the site first, then the written limits in their order, then the racks by name.
    pub standings: Vec<GroupStanding>,
    /// When a round decides differently although nothing has changed: then the next silent node is no longer trusted,
    /// and the other nodes must be lowered for it.
    pub again: Option<Stamp>,
    /// It was computed as if every limit were enforced.
    pub trial: bool,
    /// The orders that follow demand.
    pub orders: OrderCount,
    /// What each node with a stake could be granted, in their order; empty where power does not follow demand.
    pub reach: Vec<GrantReach>,
    /// What is in use of the limits that are two.
    pub sustained: SustainedStates,
}

/// Why a grant is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The node is released and has confirmed that.
    Released,
    /// The node was removed, and its agent has been silent for long enough.
    Gone,
}

/// The watts of several nodes together.
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
    /// The groups that a node is in, from the nearest to the site.
    pub fn groups_of(&self, node: &Node) -> impl Iterator<Item = (usize, &GroupStanding)> {
        let at = groups::place(node, self.trial, |rack| self.find(rack));
        let of = |at: usize| Some((at, self.standings.get(at)?));
        std::iter::successors(of(at), move |(_, group)| of(group.parent?))
    }

    /// Whether a node that counts its largest draw may be switched on: every enforced limit has room for it, and none above
    /// it forbids raises.
    #[must_use]
    pub fn pays_for(&self, node: &Node) -> bool {
        self.limits_over(node).is_some_and(|above| above.iter().all(|(_, group)| group.has_room()))
    }

    /// What it takes to wake this node.
    #[must_use]
    pub fn wake_price(&self, node: &Node, limits: &BudgetLimits) -> WakePrice {
        let max = node.machine.power_model.max().map(|max| max + stake::rest(node, limits));
        match (self.limits_over(node), max.or(limits.unknown_node)) {
            (None, _) => WakePrice::Shut,
            (Some(above), _) if above.is_empty() => WakePrice::Free,
            (Some(_), None) => WakePrice::Shut,
            (Some(above), Some(full)) => {
                WakePrice::Watts { full, under: above.into_iter().map(|(at, _)| at).collect() }
            }
        }
    }

    /// The enforced limits above a node; `None` where nothing may be raised: one is paused or armed for an event that is on, or
    /// the node counts under another one too.
    fn limits_over(&self, node: &Node) -> Option<Vec<(usize, &GroupStanding)>> {
        let mut elsewhere = node.limits.overlaps.iter().filter_map(|at| self.standings.get(at + 1));
        let above: Vec<_> = self.groups_of(node).filter(|(_, group)| group.enforced).collect();
        let is_shut = node.limits.paused
            || elsewhere.any(|group| group.enforced)
            || above.iter().any(|(_, group)| group.armed);
        (!is_shut).then_some(above)
    }

    /// What is left of each limit, by its place, for nodes that are woken.
    #[must_use]
    pub fn spares(&self) -> Vec<Option<Watts>> {
        self.standings.iter().map(|group| group.spare).collect()
    }

    fn find(&self, rack: &str) -> Option<usize> {
        // The racks come last, sorted by name.
        let first = self.standings.partition_point(|group| group.source != LimitSource::Rack);
        let racks = self.standings.get(first..).unwrap_or_default();
        racks.binary_search_by(|group| group.name.as_str().cmp(rack)).ok().map(|at| first + at)
    }

    /// The state of the group that binds a node: the nearest group above it that is not kept, else the nearest group.
    /// Groups whose limit binds nobody are left out.
    #[must_use]
    pub fn standing_of(&self, node: &Node) -> Option<&GroupStanding> {
        let binding = || self.groups_of(node).map(|(_, group)| group).filter(|group| group.enforced);
        binding().find(|group| !group.is_kept()).or_else(|| binding().next())
    }
}

/// Runs a round over all nodes with a stake; of equal nodes the first is raised first. Nothing is raised before
/// `raises` is true, because writes of a former leader may still arrive.
///
/// # Errors
/// When the limits are inconsistent, which would be a defect; then nothing may be written.
pub fn round(
    stakes: &[Stake<'_>],
    rules: Rules<'_>,
    memory: &mut BudgetMemory,
    now: Stamp,
    raises: bool,
) -> Result<Round, String> {
    let (of_now, sustained) = sustained::limits(stakes, rules, memory, now)?;
    let rules = Rules { limits: &of_now, ..rules };
    let limits = rules.settings;
    let law = MoveTuning::new(limits.dead_band).map_err(|error| error.to_string())?;
    let groups = Groups::of(rules, stakes)?;
    let places = groups.places(stakes);
    let tree = groups.tree()?;
    let rows = stakes
        .iter()
        .zip(0_u64..)
        .zip(&places)
        .map(|((stake, key), &place)| stake.row(key, groups.group_of(stake.node, place), limits));
    let mut rows = rows.collect::<Result<Vec<Row>, _>>()?;
    let again = hear(stakes, &mut rows, rules, memory, now);
    let kept: Vec<bool> =
        stakes.iter().zip(&places).map(|(stake, &place)| groups.holds(stake.node, place)).collect();
    let held: Vec<bool> = kept.iter().map(|kept| !raises || *kept).collect();
    let returns: Vec<Option<Watts>> = stakes
        .iter()
        .zip(&places)
        .zip(&rows)
        .map(|((stake, &place), row)| {
            let is_free = raises && groups.is_only_paused(stake.node, place);
            stake.yielded_from(row, limits).filter(|_| is_free)
        })
        .collect();
    want_no_more(&held, &returns, &mut rows);
    let count = groups.groups.len();
    let (mut shares, mut targets) = (vec![GroupShare::EMPTY; count], vec![Watts::ZERO; rows.len()]);
    let mut divide =
        |rows: &[Row]| allocate(tree, rows, &mut shares, &mut targets).map_err(|error| error.to_string());
    // A leaving node does not give up power for the others while the limits can be kept without it.
    let plain = keep_what_leaves(stakes, &mut rows);
    if divide(&rows)?.short > 0
        && let Some(plain) = plain
    {
        rows = plain;
        divide(&rows)?;
    }
    let band = Band(limits.raise_band);
    // What would be granted is told by the entitlements alone.
    let by_demand = limits.sharing == PowerSharing::Demand && !rules.trial;
    let rests: Vec<Watts> = stakes.iter().map(|stake| stake.rest(limits)).collect();
    let entitled: Vec<Watts> =
        targets.iter().zip(&rests).map(|(target, rest)| (*target - *rest).or_zero()).collect();
    let shared = Shares { tree, stakes, rows: &rows, kept: &kept, returns: &returns, rests: &rests };
    let followed = match by_demand {
        true => Some(follow(shared, memory, now, raises, &mut targets)?),
        false => None,
    };
    let applies = followed.as_ref().is_some_and(|followed| followed.applies);
    let impatient = match applies {
        true => vec![true; rows.len()],
        false => impatient(stakes, &rows, &targets, memory, now, limits.raise_dwell),
    };
    if !applies {
        hysteresis::hold(band, &groups.groups, &rows, &impatient, &mut targets);
    }
    let_go(stakes, &groups.groups, &rows, &held, &mut targets);
    let mut states = vec![GroupState::EMPTY; count];
    let (mut queue, mut moves) = (vec![Turn::EMPTY; rows.len()], vec![Move::Keep; rows.len()]);
    next_moves(law, tree, (&rows, &targets), (&mut states, &mut queue), &mut moves)
        .map_err(|error| error.to_string())?;
    let ended = ended(stakes, memory, now, limits.gone_hold);
    let looks = (!sustained.is_empty()).then(|| now + sustained::LOOKS);
    let again =
        [again, followed.as_ref().and_then(|followed| followed.again), looks].into_iter().flatten().min();
    let orders = followed.as_ref().map_or_else(OrderCount::default, |followed| followed.made);
    let reach = match applies {
        true => reach::reaches(&groups.groups, &rows, &rests, &entitled),
        false => Vec::new(),
    };
    let mut made = Round { ended, again, trial: rules.trial, orders, reach, sustained, ..Round::default() };
    let fits = |row: &Row| {
        path(&groups.groups, row.group)
            .all(|at| matches!(shares.get(at).map(GroupShare::verdict), Some(GroupVerdict::Kept { .. })))
    };
    let mut lowered = vec![Watts::ZERO; rows.len()];
    let all = stakes.iter().zip(&rows).zip(&targets).zip(moves.iter().zip(&impatient));
    for ((((stake, row), &target), (&step, &impatient)), ((&is_kept, &returns), lowered)) in
        all.zip(kept.iter().zip(&returns).zip(&mut lowered))
    {
        let is_shut = |cap: Watts| is_kept && returns.is_none_or(|most| cap > most);
        // A small part of a large raise is not worth a write, just as a small raise is not.
        let short = |cap: Watts| row.account.asked().is_some_and(|from| band.is_within(from, cap));
        let step = match step {
            Move::Raise(cap) if !raises || is_shut(cap) || (cap < target && !impatient && short(cap)) => {
                // What must be written again waits for no raise.
                let again = row.account.asked().filter(|_| row.account.has_strayed(row.range));
                again.map_or(Move::Keep, Move::Lower)
            }
            Move::Raise(_) | Move::Lower(_) | Move::Keep | Move::Await | Move::Wait(_) => step,
        };
        // A release lifts the caps.
        let ask = stake
            .ask(step, row, (target, stake.leaves && fits(row)), limits)
            .filter(|ask| !(is_kept && ask.released));
        if let Some(mut ask) = ask {
            // What a node yields while it may not be raised, nobody can give back in full.
            let is_short = followed.as_ref().is_some_and(|it| it.is_short(row.group));
            ask.lends = !(ask.released || is_kept) && is_short;
            if applies && matches!(step, Move::Raise(_)) {
                memory.raised.insert(stake.node.name.clone(), now);
            }
            *lowered = stake.lowered_by(&ask);
            made.asks.push(ask);
        }
    }
    let planned_for_full = |stake: &Stake<'_>| stake.priority == Priority::Performance;
    let unfit = stakes.iter().zip(&rows).filter(|(stake, row)| planned_for_full(stake) && !fits(row));
    memory.unfit = Some(unfit.map(|(stake, _)| stake.node.name.clone()).collect());
    let keeps = |row: &Row| {
        path(&groups.groups, row.group)
            .all(|at| states.get(at).and_then(GroupState::room).is_some_and(|room| room >= Watts::ZERO))
    };
    let exceeded =
        stakes.iter().zip(&rows).filter(|(stake, row)| !keeps(row) && stake.node.receipt().is_none());
    memory.exceeded = Some(exceeded.map(|(stake, _)| stake.node.name.clone()).collect());
    let division = Division {
        shares: &shares,
        stakes,
        rows: &rows,
        places: &places,
        lowered: &lowered,
        followed: followed.as_ref(),
    };
    made.standings = groups.standings(&division, memory, now, limits.answer_within);
    Ok(made)
}

/// The grants to delete: of released nodes that have confirmed it, and of removed nodes.
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
            // Any report of its agent restarts the wait.
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

/// Stops trusting nodes that have not confirmed their grant in time: such a node may have started without its agent.
/// Returns when the next node stops being trusted.
fn hear(
    stakes: &[Stake<'_>],
    rows: &mut [Row],
    rules: Rules<'_>,
    memory: &mut BudgetMemory,
    now: Stamp,
) -> Option<Stamp> {
    let within = rules.settings.answer_within;
    let before = std::mem::take(&mut memory.silent);
    let mut again: Option<Stamp> = None;
    for (stake, row) in stakes.iter().zip(rows) {
        // In a trial most nodes were never sent a grant: there is nothing that they could confirm.
        let is_asked_nothing = rules.trial && stake.grant().is_none() && stake.node.granted.sent.is_empty();
        let is_confirmed = row.account.is_proven() || row.account.is_only_raised();
        if is_confirmed || stake.is_fixed() || is_asked_nothing {
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

/// A node that may not be raised wants no more than it has, so that no other one is lowered for it, or no more than it may
/// have back of what it has yielded.
fn want_no_more(held: &[bool], returns: &[Option<Watts>], rows: &mut [Row]) {
    for ((row, held), returns) in rows.iter_mut().zip(held).zip(returns) {
        let most = returns.or(row.account.asked()).filter(|_| *held);
        row.desired = most.map_or(row.desired, |most| row.desired.min(most));
    }
}

/// Sets the floor of each leaving node to its present grant. Returns the nodes as they were, if any is leaving.
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

/// A group and those above it.
fn path(groups: &[Group], from: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(from), |&at| groups.get(at).and_then(Group::parent))
}

/// Gives unclaimed power to the leaving nodes, in order, so that they can be released.
fn let_go(stakes: &[Stake<'_>], groups: &[Group], rows: &[Row], held: &[bool], targets: &mut [Watts]) {
    if stakes.iter().all(|stake| !stake.leaves) {
        return;
    }
    let mut loads = hysteresis::loads(groups, rows, targets);
    for (((stake, row), target), held) in stakes.iter().zip(rows).zip(targets).zip(held) {
        let may_rise = stake.leaves && row.reachable && !held;
        let Some(max) = row.range.max().filter(|_| may_rise) else { continue };
        let path = || path(groups, row.group);
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

/// Which nodes have waited long enough for a raise.
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

/// By how much the allocation cannot keep a group's limit.
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
