//! How every group stands: what it counts now, what it will count when the receipts have come, and what is exceeded.

use super::moves::{Move, is_awaited};
use super::node::BudgetNode;
use super::tree::{BudgetTree, Group, gather, spread};
use super::{BudgetError, plus};
use power_units::Watts;

/// Working memory for one group, and afterwards how the group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupState {
    limit: Watts,
    /// What it counts before this round's orders.
    load: Option<Watts>,
    /// What it would count if every node were raised to its target and none lowered.
    peak: Option<Watts>,
    /// What is left of the limit; taken up by the round's raises.
    pub(super) room: Option<Watts>,
    /// What it will count once every reachable node's order, this round's included, has been read back.
    settled: Option<Watts>,
    awaited: usize,
    unreachable: usize,
    /// Whether here or further up somebody must be lowered before all can be raised.
    pub(super) tight: bool,
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
    /// How many nodes below it do not answer, for whom no waiting is known to be enough.
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
        let Self { awaited, unreachable, .. } = *self;
        (by > Watts::ZERO).then_some(Overrun { by, remains, awaited, unreachable })
    }

    fn of(group: &Group) -> Self {
        let base = group.base();
        Self { limit: group.limit(), load: base, peak: base, settled: base, tight: false, ..Self::EMPTY }
    }
}

/// What every group draws now, and what it would draw if all were raised before any is lowered.
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

/// What will be when the receipts have come.
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
