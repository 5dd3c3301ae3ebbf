//! The state of every group: its load now, its load once the receipts have arrived, and what is exceeded.

use super::moves::{Move, is_awaited};
use super::node::BudgetNode;
use super::tree::{BudgetTree, Group, gather, spread};
use super::{BudgetError, plus};
use power_units::Watts;

/// Working memory for one group, and afterwards the group's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupState {
    limit: Watts,
    /// What it counts before this round's orders.
    load: Option<Watts>,
    /// What it would count if every node to be raised were at its target and none were lowered yet.
    peak: Option<Watts>,
    /// What remains of the limit; the raises of the round reduce it.
    pub(super) room: Option<Watts>,
    /// What it will count once every reachable node's order, this round's included, has been read back.
    settled: Option<Watts>,
    awaited: usize,
    unreachable: usize,
    /// Whether in this group or one above it some node must be lowered before all can be raised.
    pub(super) tight: bool,
}

/// A limit that is exceeded, by the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// The excess.
    pub by: Watts,
    /// By how much it is still exceeded once every reachable node has carried out its orders: zero when waiting
    /// suffices.
    pub remains: Watts,
    /// How many receipts are awaited from reachable nodes, this round's orders included.
    pub awaited: usize,
    /// How many nodes below it do not answer; whether waiting suffices for them is unknown.
    pub unreachable: usize,
}

impl GroupState {
    /// Before the first use.
    pub const EMPTY: Self = Self {
        limit: Watts::ZERO,
        load: None,
        peak: None,
        room: None,
        settled: None,
        awaited: 0,
        unreachable: 0,
        tight: true,
    };

    /// What the group counts before this round's orders; `None` when that is unknown.
    #[must_use]
    pub const fn load(&self) -> Option<Watts> {
        self.load
    }

    /// What is left of the limit after this round's raises; below zero while it is exceeded.
    #[must_use]
    pub const fn room(&self) -> Option<Watts> {
        self.room
    }

    /// By how much the limit is exceeded, what of it remains, and what is awaited; `None` while the limit is kept.
    #[must_use]
    pub fn overrun(&self) -> Option<Overrun> {
        let by = self.load? - self.limit;
        let remains = (self.settled? - self.limit).or_zero();
        let Self { awaited, unreachable, .. } = *self;
        (by > Watts::ZERO).then_some(Overrun { by, remains, awaited, unreachable })
    }

    fn of(group: &Group) -> Self {
        let base = group.base();
        Self { limit: group.limit(), load: base, peak: base, settled: base, tight: false, ..Self::EMPTY }
    }
}

/// Computes what every group counts now, and what it would count if all raises landed before any lowering.
pub(super) fn survey(
    tree: BudgetTree<'_>,
    nodes: &[BudgetNode],
    targets: &[Watts],
    standings: &mut [GroupState],
) -> Result<(), BudgetError> {
    for (standing, group) in standings.iter_mut().zip(tree.groups()) {
        *standing = GroupState::of(group);
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

/// Computes the loads once the receipts have arrived.
pub(super) fn foresee(
    tree: BudgetTree<'_>,
    nodes: &[BudgetNode],
    moves: &[Move],
    standings: &mut [GroupState],
) {
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
        }
    }
    gather(tree, standings, |parent, child| {
        parent.settled = plus(parent.settled, child.settled);
        parent.unreachable = parent.unreachable.saturating_add(child.unreachable);
        parent.awaited = parent.awaited.saturating_add(child.awaited);
    });
}
