//! Reduces the caps that the policy desires until every limit of the tree is kept.
//!
//! Every node first gets its floor. What a group has beyond that is distributed from the root down, one priority after
//! the other: performance nodes get up to what is desired for them before draining nodes get anything above their
//! floor, and draining nodes before eco nodes. Within a priority every group divides what it has among its child
//! groups and its own nodes, in proportion to what each can still use. For a node that is the span from the floor to
//! the desired cap. For a child group it is the sum of these spans, cut to its own limit. So nodes of one priority in
//! one group all get the same fraction of their span, a limit deep in the tree leaves its unused share to the
//! neighbours, and a node is below what is desired for it only where a limit above it is used up.
//!
//! Shares round down. A floor is never undercut, even where the floors alone are above a limit: then every node below
//! that limit gets its floor, which is the least that is possible, and the group reports by how much it is short. A
//! node that does not answer is not expected to follow: what it counts is subtracted from the others' room.
//!
//! Where a base load or an unreachable node's largest draw is unknown, the room of the groups above it is unknown.
//! Then nothing below them is raised, and nothing is lowered for lack of knowledge: a meter that fails for a minute
//! must not lower a whole site to its floors. The target of every node there is at most what it counts now. Known
//! limits still bind: a child group whose sum is known keeps its own limit. Where the known part alone is above a
//! limit, it is lowered as if the unknown part were zero, which is the least that must be done.

use super::node::{BudgetNode, Priority};
use super::tree::{BudgetTree, gather, spread};
use super::{BudgetError, of_length, plus};
use power_units::{Amount, Role, Watts};

/// Whether a group's limit can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupVerdict {
    /// The limit is kept; after the allocation this much is left.
    Kept {
        /// What remains of the limit because nobody below it wants it, or another limit prevents its use.
        spare: Watts,
    },
    /// The limit is exceeded by the floors, the unreachable nodes and the base load alone.
    Short {
        /// The excess.
        by: Watts,
    },
    /// Unknown, because a base load or a largest draw below it is unknown or the sum overflows. The known part fits,
    /// or is at its floors.
    Unknown,
}

/// Working memory for one group, and afterwards what the group got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupShare {
    /// Power that does not depend on the decision: base loads, floors, and nodes that do not answer, as far as it is
    /// known.
    fixed: Watts,
    /// Whether all of it is known and no sum overflowed.
    known: bool,
    /// Whether this group or one above it is unknown, so that nothing is raised.
    held: bool,
    /// The limit less the fixed power and what has been given to earlier priorities; negative when short. An upper
    /// bound where not all is known.
    room: Watts,
    /// What the nodes and child groups of the current priority can use.
    wanted: Option<Watts>,
    /// The part of it that fits into the room of the group.
    usable: Watts,
    /// The part of it that they get.
    given: Watts,
    /// Whether this group or one above it has no power beyond the floors.
    floors_only: bool,
}

impl GroupShare {
    /// Before the first use.
    pub const EMPTY: Self = Self {
        fixed: Watts::ZERO,
        known: false,
        held: true,
        room: Watts::ZERO,
        wanted: None,
        usable: Watts::ZERO,
        given: Watts::ZERO,
        floors_only: true,
    };

    /// Whether the group's limit can be kept.
    #[must_use]
    pub fn verdict(&self) -> GroupVerdict {
        if !self.known {
            GroupVerdict::Unknown
        } else if self.room < Watts::ZERO {
            GroupVerdict::Short { by: -self.room }
        } else {
            GroupVerdict::Kept { spare: self.room }
        }
    }

    /// Adds to the fixed power. An unknown part counts as zero; a sum that overflows leaves no room.
    fn fix(&mut self, part: Option<Watts>) {
        self.known &= plus(Some(self.fixed), part).is_some();
        self.fixed += part.unwrap_or(Watts::ZERO);
    }

    /// The share of one who could use `usable`: the same fraction as of all that is wanted here, rounded down.
    fn part_of(&self, usable: Watts) -> Watts {
        let Some(wanted) = self.wanted else { return Watts::ZERO };
        if self.given >= wanted {
            return usable;
        }
        usable.part(self.given, wanted, Role::Limit).unwrap_or(Watts::ZERO)
    }
}

/// The result of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// How many groups cannot keep their limit.
    pub short: usize,
    /// The group that is short by most, the first of equals, and by how much.
    pub shortest: Option<(usize, Watts)>,
    /// How many groups cannot be judged because something is unknown.
    pub unknown: usize,
    /// How many nodes get less than the policy wants for them.
    pub curtailed: usize,
}

/// Reduces the desired caps until every limit is kept. `targets[i]` is for `nodes[i]`; afterwards `shares[g]` holds
/// the result for group `g`.
///
/// # Errors
/// When a slice has the wrong length or a node's group does not exist; the targets are then not valid.
pub fn allocate(
    tree: BudgetTree<'_>,
    nodes: &[BudgetNode],
    shares: &mut [GroupShare],
    targets: &mut [Watts],
) -> Result<Allocation, BudgetError> {
    of_length("shares", shares, tree.groups().len())?;
    of_length("targets", targets, nodes.len())?;
    give_floors(tree, nodes, shares, targets)?;
    for priority in Priority::ALL {
        ask(tree, nodes, shares, priority);
        divide(tree, shares);
        give(nodes, shares, targets, priority);
    }
    for (node, target) in nodes.iter().zip(targets.iter_mut()).filter(|(node, _)| !node.reachable) {
        *target = held(node, shares);
    }
    Ok(sum_up(nodes, shares, targets))
}

/// The least that a node draws: its floor if it can be lowered, else what it counts.
fn least(node: &BudgetNode) -> Option<Watts> {
    if node.reachable { Some(node.lowest()) } else { node.count() }
}

/// The cap of a node when no limit binds: what the policy wants, but no more than the node counts where nothing is
/// raised. For a node whose draw is unknown, the watts of its present grant take the place of the count.
fn aim(node: &BudgetNode, held: bool) -> Watts {
    match node.count().or(node.account.asked()).filter(|_| held) {
        Some(count) => node.wanted().min(count).max(node.lowest()),
        None => node.wanted(),
    }
}

/// What a reachable node can use above its floor.
fn span(node: &BudgetNode, held: bool) -> Watts {
    if node.reachable { aim(node, held) - node.lowest() } else { Watts::ZERO }
}

fn give_floors(
    tree: BudgetTree<'_>,
    nodes: &[BudgetNode],
    shares: &mut [GroupShare],
    targets: &mut [Watts],
) -> Result<(), BudgetError> {
    for (share, group) in shares.iter_mut().zip(tree.groups()) {
        *share = GroupShare { known: true, ..GroupShare::EMPTY };
        share.fix(group.base());
    }
    for (node, target) in nodes.iter().zip(targets) {
        let share = shares.get_mut(node.group).ok_or(BudgetError::NoSuchGroup { node: node.key })?;
        share.fix(least(node));
        *target = node.lowest();
    }
    gather(tree, shares, |parent, child| {
        parent.fix(Some(child.fixed));
        parent.known &= child.known;
    });
    for (share, group) in shares.iter_mut().zip(tree.groups()) {
        share.room = group.limit() - share.fixed;
    }
    spread(tree, shares, |child, parent| {
        child.held = !child.known || parent.is_some_and(|parent| parent.held);
        child.floors_only = child.room < Watts::ZERO || parent.is_some_and(|parent| parent.floors_only);
    });
    Ok(())
}

/// From the leaves up: what the nodes of a priority could use, within what every group has left.
fn ask(tree: BudgetTree<'_>, nodes: &[BudgetNode], shares: &mut [GroupShare], priority: Priority) {
    for share in shares.iter_mut() {
        share.wanted = Some(Watts::ZERO);
    }
    for node in nodes.iter().filter(|node| node.priority == priority) {
        if let Some(share) = shares.get_mut(node.group) {
            share.wanted = plus(share.wanted, Some(span(node, share.held)));
        }
    }
    gather_usable(tree, shares);
}

fn gather_usable(tree: BudgetTree<'_>, shares: &mut [GroupShare]) {
    gather(tree, shares, |parent, child| parent.wanted = plus(parent.wanted, Some(usable(&child))));
    for share in shares.iter_mut() {
        share.usable = usable(share);
    }
}

/// What a group can use. A wanted sum that overflows is unknown, and then nothing is given.
fn usable(share: &GroupShare) -> Watts {
    share.wanted.map_or(Watts::ZERO, |wanted| wanted.min(share.room.or_zero()))
}

/// From the roots down: what every group gets of what it could use.
fn divide(tree: BudgetTree<'_>, shares: &mut [GroupShare]) {
    spread(tree, shares, |share, parent| {
        share.given = parent.map_or(share.usable, |parent| parent.part_of(share.usable));
        share.room -= share.given;
        if share.wanted.is_none() {
            (share.known, share.room) = (false, share.room.min(Watts::ZERO));
        }
    });
}

fn give(nodes: &[BudgetNode], shares: &[GroupShare], targets: &mut [Watts], priority: Priority) {
    for (node, target) in nodes.iter().zip(targets).filter(|(node, _)| node.priority == priority) {
        if let Some(share) = shares.get(node.group) {
            *target += share.part_of(span(node, share.held));
        }
    }
}

/// The target of a node that does not answer, for when it answers again: never more than it counts now.
fn held(node: &BudgetNode, shares: &[GroupShare]) -> Watts {
    let floors_only = shares.get(node.group).is_none_or(|share| share.floors_only);
    if floors_only { node.lowest() } else { aim(node, true) }
}

fn sum_up(nodes: &[BudgetNode], shares: &[GroupShare], targets: &[Watts]) -> Allocation {
    let mut sum = Allocation { short: 0, shortest: None, unknown: 0, curtailed: 0 };
    for (group, share) in shares.iter().enumerate() {
        match share.verdict() {
            GroupVerdict::Kept { .. } => {}
            GroupVerdict::Unknown => sum.unknown = sum.unknown.saturating_add(1),
            GroupVerdict::Short { by } => {
                sum.short = sum.short.saturating_add(1);
                if sum.shortest.is_none_or(|(_, most)| by > most) {
                    sum.shortest = Some((group, by));
                }
            }
        }
    }
    for (node, &target) in nodes.iter().zip(targets) {
        sum.curtailed = sum.curtailed.saturating_add(usize::from(target < node.wanted()));
    }
    sum
}
