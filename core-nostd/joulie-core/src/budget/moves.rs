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

use super::node::BudgetNode;
use super::queue::{Turn, sort};
use super::standing::{GroupState, Overrun, foresee, survey};
use super::tree::BudgetTree;
use super::{BudgetError, of_length};
use core::fmt;
use power_units::Watts;

/// The tuning of the moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveTuning {
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

impl MoveTuning {
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
    law: MoveTuning,
    tree: BudgetTree<'_>,
    (nodes, targets): (&[BudgetNode], &[Watts]),
    (standings, queue): (&mut [GroupState], &mut [Turn]),
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
                *step = or_again(node, raise(law, tree, node, node.range.limit(target), standings));
            }
        }
    }
    foresee(tree, nodes, moves, standings);
    Ok(sum_up(nodes, moves, standings))
}

/// Decides about all nodes that are not raised, and queues the others.
fn lower(
    law: MoveTuning,
    nodes: &[BudgetNode],
    targets: &[Watts],
    standings: &[GroupState],
    (queue, moves): (&mut [Turn], &mut [Move]),
) -> usize {
    let mut queued = 0_usize;
    let mut free = queue.iter_mut();
    for (index, ((node, &target), step)) in (0..nodes.len()).zip(nodes.iter().zip(targets).zip(moves)) {
        let target = node.range.limit(target);
        let tight = standings.get(node.group).is_none_or(|standing| standing.tight);
        *step = match direction(law, node, target, tight) {
            Direction::Stay if node.account.is_awaited() => Move::Await,
            Direction::Stay => Move::Keep,
            Direction::Down => Move::Lower(target),
            Direction::Again(asked) => Move::Lower(asked),
            Direction::Up if !node.reachable => or_again(node, Move::Wait(Why::Unreachable)),
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
    /// Where it is: another grant was sent meanwhile, and may still land.
    Again(Watts),
}

fn direction(law: MoveTuning, node: &BudgetNode, target: Watts, tight: bool) -> Direction {
    let Some(asked) = node.account.asked() else {
        // No order stands. One that is no more than what the node may draw anyway can do no harm.
        return match node.count() {
            Some(count) if target > count => Direction::Up,
            Some(_) | None => Direction::Down,
        };
    };
    let matters = |difference: Watts| difference > Watts::ZERO && difference >= law.dead_band;
    if node.account.is_as_low_as(target) && !node.account.has_strayed() {
        Direction::Stay
    } else if target < asked && (tight || matters(asked - target)) {
        Direction::Down
    } else if matters(target - asked) {
        Direction::Up
    } else if node.account.has_strayed() {
        Direction::Again(asked)
    } else {
        Direction::Stay
    }
}

/// Who waits while another grant may still land is told again what stands: with a higher serial the other one is void, and
/// what it would have allowed is room again, perhaps for this very node.
fn or_again(node: &BudgetNode, step: Move) -> Move {
    match (step, node.account.asked()) {
        (Move::Wait(_), Some(asked)) if node.account.has_strayed() => Move::Lower(asked),
        (step, _) => step,
    }
}

/// Raises a node as far as there is room above it, and takes the room.
fn raise(
    law: MoveTuning,
    tree: BudgetTree<'_>,
    node: &BudgetNode,
    target: Watts,
    standings: &mut [GroupState],
) -> Move {
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
fn least_room(
    tree: BudgetTree<'_>,
    node: &BudgetNode,
    standings: &[GroupState],
) -> Result<(usize, Watts), usize> {
    let mut least = (node.group, Watts::MAX);
    for group in tree.path(node.group) {
        let room = standings.get(group).and_then(GroupState::room).ok_or(group)?;
        if room < least.1 {
            least = (group, room);
        }
    }
    Ok(least)
}

pub(super) fn is_awaited(node: &BudgetNode, step: &Move) -> bool {
    match step {
        Move::Lower(_) | Move::Raise(_) => true,
        Move::Keep | Move::Await | Move::Wait(_) => node.account.is_awaited(),
    }
}

fn sum_up(nodes: &[BudgetNode], moves: &[Move], standings: &[GroupState]) -> Summary {
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
        if standing.load().is_none() {
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
