//! The steps that bring the nodes to their targets without any load above its limit in between.
//!
//! A cap may be lowered at any time: until the receipt arrives the node counts what it counted before. A cap is
//! raised as soon as every group above the node has room for the new cap, which counts from the moment that it is
//! written. So whichever of a round's orders land, in any order, no load rises above its limit. Where a load is
//! above its limit already (the limit was cut, a node has rebooted), nothing below that limit is raised until the
//! load is within it again.
//!
//! Waiting nodes are raised by priority, then by key. A node may be raised part of its way: the room goes to the
//! first in the queue, so that no node overtakes a performance node by wanting less.
//!
//! A change smaller than the dead-band is not ordered, unless another node waits for the watts.

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
    /// Orders moves of `dead_band` watts and more; with zero, every difference.
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
    /// Nothing: it is at its target, or as near as its devices or the dead-band allow.
    Keep,
    /// Nothing but to wait for the receipt.
    Await,
    /// Write this cap. It is not above what the node counts now.
    Lower(Watts),
    /// Write this cap: there is room for it. It is the target, or part of the way to it.
    Raise(Watts),
    /// The node is to be raised and must wait.
    Wait(Why),
}

/// Why a node is not raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// This group has no room. It is the group with the least room; of equals, the one nearest to the node.
    NoRoom {
        /// Its index.
        group: usize,
    },
    /// What this group draws is unknown.
    Unknown {
        /// Its index.
        group: usize,
    },
    /// The node does not answer.
    Unreachable,
}

/// Totals of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Nodes to be lowered now.
    pub lowered: usize,
    /// Nodes to be raised now.
    pub raised: usize,
    /// Nodes that are to be raised and must wait.
    pub waiting: usize,
    /// Nodes whose receipt is awaited, including those ordered in this round.
    pub awaited: usize,
    /// Groups whose limit is exceeded.
    pub over: usize,
    /// The group that exceeds its limit by most, the first of equals, and by how much.
    pub worst: Option<(usize, Watts)>,
    /// Groups whose load is unknown.
    pub unknown: usize,
}

/// Decides for every node what to do now to bring it to its target. `moves[i]` is for `nodes[i]`; afterwards
/// `standings[g]` holds the state of group `g`. A target outside the node's range is clamped to it.
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

/// In which direction a node's cap moves from its present grant.
enum Direction {
    Stay,
    Down,
    Up,
    /// The same cap must be written again, see [`GrantAccount::has_strayed`](super::GrantAccount::has_strayed).
    Again(Watts),
}

fn direction(law: MoveTuning, node: &BudgetNode, target: Watts, tight: bool) -> Direction {
    let Some(asked) = node.account.asked() else {
        // The node has no grant. A cap that is not above what the node may draw anyway can be written at once.
        return match node.count() {
            Some(count) if target > count => Direction::Up,
            Some(_) | None => Direction::Down,
        };
    };
    let matters = |difference: Watts| difference > Watts::ZERO && difference >= law.dead_band;
    if node.account.is_as_low_as(target) && !node.account.has_strayed(node.range) {
        Direction::Stay
    } else if target < asked && (tight || matters(asked - target)) {
        Direction::Down
    } else if matters(target - asked) {
        Direction::Up
    } else if node.account.has_strayed(node.range) {
        Direction::Again(asked)
    } else {
        Direction::Stay
    }
}

/// A node that must wait gets its present grant again with a higher serial, where that is due. It makes a grant void that
/// was sent and may still land: what that would have allowed is room again, perhaps for this very node.
fn or_again(node: &BudgetNode, step: Move) -> Move {
    match (step, node.account.asked()) {
        (Move::Wait(_), Some(asked)) if node.account.has_strayed(node.range) => Move::Lower(asked),
        (step, _) => step,
    }
}

/// Raises a node as far as the groups above it have room, and takes that room.
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

/// The least room on the path to the root, and the group that has it; or the first group whose room is unknown.
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
