//! From where the nodes are to the targets, without an instant above any limit.
//!
//! A cap may be lowered at any time: until its receipt has come the node counts what it counted before. A cap is
//! raised as soon as there is room for the new one in every group above the node, and counts the new one from the
//! moment that it is written. So whatever subset of the orders of a round lands, in whatever order, no load rises
//! above its limit; and where a load is above its limit already (the limit was cut, a node has rebooted) nothing
//! below that limit is raised until it is not.
//!
//! Those that wait are raised by priority, then by key. A node may be raised part of its way: what room there is
//! goes to the first in the queue, so that nobody overtakes a performance node by wanting less.
//!
//! A change below the dead-band is not worth an order, unless somebody waits for the watts.

use super::node::Node;
use super::queue::{Turn, sort};
use super::tree::{Group, Tree, gather, spread};
use super::{BudgetError, of_length, plus};
use core::fmt;
use power_units::{Stamp, Watts};

/// The tuning of the moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    dead_band: Watts,
}

/// Why a tuning is refused: the dead-band is below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LawError(Watts);

impl fmt::Display for LawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the dead-band must be zero or more, not {} W", self.0)
    }
}

impl core::error::Error for LawError {}

impl Law {
    /// Moves of `dead_band` and more; with zero, of every difference.
    ///
    /// # Errors
    /// When the dead-band is below zero.
    pub fn new(dead_band: Watts) -> Result<Self, LawError> {
        if dead_band < Watts::ZERO { Err(LawError(dead_band)) } else { Ok(Self { dead_band }) }
    }
}

/// What is to be done with one node now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Nothing: it is where it should be, or as near as its devices or the dead-band let it.
    Keep,
    /// Nothing but to wait for the receipt.
    Await,
    /// Write this cap: it counts no more than what the node counts now.
    Lower(Watts),
    /// Write this cap: there is room for it. The target, or a part of the way.
    Raise(Watts),
    /// It is to be raised and must wait.
    Wait(Why),
}

/// Why a node is not raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// This group has no room, the one nearest to the node of those with the least.
    NoRoom {
        /// Its index.
        group: usize,
    },
    /// Nobody can say what this group draws.
    Unknown {
        /// Its index.
        group: usize,
    },
    /// The node does not answer.
    Unreachable,
}

/// Working memory for one group, and afterwards how the group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    limit: Watts,
    /// What it counts before this round's orders.
    load: Option<Watts>,
    /// What it would count if every node were raised to its target and none lowered.
    peak: Option<Watts>,
    /// What is left of the limit; taken up by the round's raises.
    room: Option<Watts>,
    /// What it will count once every reachable node's order, this round's included, has been read back.
    settled: Option<Watts>,
    awaited: usize,
    since: Option<Stamp>,
    unreachable: usize,
    /// Whether here or further up somebody must be lowered before all can be raised.
    tight: bool,
}

/// A limit that is exceeded, as far as anybody can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// By how much.
    pub by: Watts,
    /// By how much still when every reachable node has done what it was told: zero when waiting is enough.
    pub remains: Watts,
    /// How many receipts are awaited from reachable nodes, this round's orders included.
    pub awaited: usize,
    /// When the first order was written whose receipt has been awaited for longest, if it was before this round.
    pub since: Option<Stamp>,
    /// How many nodes below it do not answer, for whom no waiting is known to be enough.
    pub unreachable: usize,
}

impl Standing {
    /// Before the first use.
    pub const EMPTY: Self = Self {
        limit: Watts::ZERO,
        load: None,
        peak: None,
        room: None,
        settled: None,
        awaited: 0,
        since: None,
        unreachable: 0,
        tight: true,
    };

    /// What the group counts before this round's orders; nothing when nobody can say.
    #[must_use]
    pub const fn load(&self) -> Option<Watts> {
        self.load
    }

    /// What is left of the limit after this round's raises; below zero while it is exceeded.
    #[must_use]
    pub const fn room(&self) -> Option<Watts> {
        self.room
    }

    /// Whether, by how much and until when the limit is exceeded.
    #[must_use]
    pub fn overrun(&self) -> Option<Overrun> {
        let by = self.load? - self.limit;
        let remains = (self.settled? - self.limit).or_zero();
        let Self { awaited, since, unreachable, .. } = *self;
        (by > Watts::ZERO).then_some(Overrun { by, remains, awaited, since, unreachable })
    }

    fn of(group: &Group) -> Self {
        let base = group.base();
        Self { limit: group.limit(), load: base, peak: base, settled: base, tight: false, ..Self::EMPTY }
    }
}

/// A round in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Nodes to be lowered now.
    pub lowered: usize,
    /// Nodes to be raised now.
    pub raised: usize,
    /// Nodes that are to be raised and must wait.
    pub waiting: usize,
    /// Nodes whose receipt is awaited, this round's orders included.
    pub awaited: usize,
    /// Groups whose limit is exceeded.
    pub over: usize,
    /// The group that exceeds its limit by most, the first of equals, and by how much.
    pub worst: Option<(usize, Watts)>,
    /// Groups of which nobody can say what they draw.
    pub unknown: usize,
}

/// Says for every node what to do now to bring it to its target. `moves[i]` is for `nodes[i]`, and `standings[g]`
/// says afterwards how group `g` stands. A target outside the node's range is brought into it.
///
/// # Errors
/// When a slice has the wrong length or a node's group does not exist; nothing may be written then.
pub fn next_moves(
    law: Law,
    tree: Tree<'_>,
    (nodes, targets): (&[Node], &[Watts]),
    (standings, queue): (&mut [Standing], &mut [Turn]),
    moves: &mut [Move],
) -> Result<Summary, BudgetError> {
    of_length("targets", targets, nodes.len())?;
    of_length("standings", standings, tree.groups().len())?;
    of_length("queue", queue, nodes.len())?;
    of_length("moves", moves, nodes.len())?;
    survey(tree, nodes, targets, standings)?;
    let queued = lower(law, nodes, targets, standings, (queue, moves));
    if let Some(queue) = queue.get_mut(..queued) {
        sort(queue);
        for turn in queue {
            let at = turn.index();
            if let (Some(node), Some(&target), Some(step)) =
                (nodes.get(at), targets.get(at), moves.get_mut(at))
            {
                *step = raise(law, tree, node, node.range.limit(target), standings);
            }
        }
    }
    foresee(tree, nodes, moves, standings);
    Ok(sum_up(nodes, moves, standings))
}

/// What every group draws now, and what it would draw if all were raised before any is lowered.
fn survey(
    tree: Tree<'_>,
    nodes: &[Node],
    targets: &[Watts],
    standings: &mut [Standing],
) -> Result<(), BudgetError> {
    for (standing, group) in standings.iter_mut().zip(tree.groups()) {
        *standing = Standing::of(group);
    }
    for (node, &target) in nodes.iter().zip(targets) {
        let standing = standings.get_mut(node.group).ok_or(BudgetError::NoSuchGroup { node: node.key })?;
        let count = node.count();
        standing.load = plus(standing.load, count);
        standing.peak = plus(standing.peak, count.map(|count| count.max(node.range.limit(target))));
    }
    gather(tree, standings, |parent, child| {
        parent.load = plus(parent.load, child.load);
        parent.peak = plus(parent.peak, child.peak);
    });
    spread(tree, standings, |child, parent| {
        child.room = child.load.map(|load| child.limit - load);
        let fits = child.peak.is_some_and(|peak| peak <= child.limit);
        child.tight = !fits || parent.is_some_and(|parent| parent.tight);
    });
    Ok(())
}

/// Decides about all nodes that are not raised, and queues the others.
fn lower(
    law: Law,
    nodes: &[Node],
    targets: &[Watts],
    standings: &[Standing],
    (queue, moves): (&mut [Turn], &mut [Move]),
) -> usize {
    let mut queued = 0_usize;
    let mut free = queue.iter_mut();
    for (index, ((node, &target), step)) in nodes.iter().zip(targets).zip(moves).enumerate() {
        let target = node.range.limit(target);
        let tight = standings.get(node.group).is_none_or(|standing| standing.tight);
        *step = match direction(law, node, target, tight) {
            Direction::Stay if node.account.awaited_since().is_some() => Move::Await,
            Direction::Stay => Move::Keep,
            Direction::Down => Move::Lower(target),
            Direction::Up if !node.reachable => Move::Wait(Why::Unreachable),
            Direction::Up => {
                if let Some(turn) = free.next() {
                    *turn = Turn::new(node.priority, node.key, index);
                    queued = queued.saturating_add(1);
                }
                Move::Keep
            }
        };
    }
    queued
}

/// Which way a node goes from what it was last told.
enum Direction {
    Stay,
    Down,
    Up,
}

fn direction(law: Law, node: &Node, target: Watts, tight: bool) -> Direction {
    let Some(asked) = node.account.asked() else {
        // No order stands. One that is no more than what the node may draw anyway can do no harm.
        return match node.count() {
            Some(count) if target > count => Direction::Up,
            Some(_) | None => Direction::Down,
        };
    };
    let matters = |difference: Watts| difference > Watts::ZERO && difference >= law.dead_band;
    if node.account.is_as_low_as(target) {
        Direction::Stay
    } else if target < asked && (tight || matters(asked - target)) {
        Direction::Down
    } else if matters(target - asked) {
        Direction::Up
    } else {
        Direction::Stay
    }
}

/// Raises a node as far as there is room above it, and takes the room.
fn raise(law: Law, tree: Tree<'_>, node: &Node, target: Watts, standings: &mut [Standing]) -> Move {
    let (nearest, room) = match least_room(tree, node, standings) {
        Ok(found) => found,
        Err(group) => return Move::Wait(Why::Unknown { group }),
    };
    let no_room = Move::Wait(Why::NoRoom { group: nearest });
    let Some(count) = node.count().filter(|_| room >= Watts::ZERO) else { return no_room };
    let from = node.account.asked().unwrap_or(count);
    let cap = target.min(count.checked_add(room).unwrap_or(count));
    if cap <= from || (cap < target && cap - from < law.dead_band) {
        return no_room;
    }
    let taken = (cap - count).or_zero();
    for group in tree.path(node.group) {
        if let Some(standing) = standings.get_mut(group) {
            standing.room = standing.room.map(|room| room - taken);
        }
    }
    Move::Raise(cap)
}

/// The least room on the way up and where it is; or the first group of which nobody can say.
fn least_room(tree: Tree<'_>, node: &Node, standings: &[Standing]) -> Result<(usize, Watts), usize> {
    let mut least = (node.group, Watts::MAX);
    for group in tree.path(node.group) {
        let room = standings.get(group).and_then(Standing::room).ok_or(group)?;
        if room < least.1 {
            least = (group, room);
        }
    }
    Ok(least)
}

/// What will be when the receipts have come.
fn foresee(tree: Tree<'_>, nodes: &[Node], moves: &[Move], standings: &mut [Standing]) {
    for (node, step) in nodes.iter().zip(moves) {
        let Some(standing) = standings.get_mut(node.group) else { continue };
        let settled = match step {
            Move::Lower(cap) | Move::Raise(cap) if node.reachable => Some(node.range.limit(*cap)),
            Move::Keep | Move::Await | Move::Wait(_) if node.reachable => {
                node.account.count_when_heard(node.range)
            }
            Move::Keep | Move::Await | Move::Lower(_) | Move::Raise(_) | Move::Wait(_) => node.count(),
        };
        standing.settled = plus(standing.settled, settled);
        if !node.reachable {
            standing.unreachable = standing.unreachable.saturating_add(1);
        } else if is_awaited(node, step) {
            standing.awaited = standing.awaited.saturating_add(1);
            standing.since = earlier(standing.since, node.account.awaited_since());
        }
    }
    gather(tree, standings, |parent, child| {
        parent.settled = plus(parent.settled, child.settled);
        parent.unreachable = parent.unreachable.saturating_add(child.unreachable);
        parent.awaited = parent.awaited.saturating_add(child.awaited);
        parent.since = earlier(parent.since, child.since);
    });
}

fn is_awaited(node: &Node, step: &Move) -> bool {
    match step {
        Move::Lower(_) | Move::Raise(_) => true,
        Move::Keep | Move::Await | Move::Wait(_) => node.account.awaited_since().is_some(),
    }
}

fn earlier(one: Option<Stamp>, other: Option<Stamp>) -> Option<Stamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn sum_up(nodes: &[Node], moves: &[Move], standings: &[Standing]) -> Summary {
    let mut sum = Summary { lowered: 0, raised: 0, waiting: 0, awaited: 0, over: 0, worst: None, unknown: 0 };
    for (node, step) in nodes.iter().zip(moves) {
        match step {
            Move::Lower(_) => sum.lowered = sum.lowered.saturating_add(1),
            Move::Raise(_) => sum.raised = sum.raised.saturating_add(1),
            Move::Wait(_) => sum.waiting = sum.waiting.saturating_add(1),
            Move::Keep | Move::Await => {}
        }
        sum.awaited = sum.awaited.saturating_add(usize::from(is_awaited(node, step)));
    }
    for (group, standing) in standings.iter().enumerate() {
        if standing.load.is_none() {
            sum.unknown = sum.unknown.saturating_add(1);
        }
        if let Some(Overrun { by, .. }) = standing.overrun() {
            sum.over = sum.over.saturating_add(1);
            if sum.worst.is_none_or(|(_, most)| by > most) {
                sum.worst = Some((group, by));
            }
        }
    }
    sum
}
