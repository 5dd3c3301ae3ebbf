//! Whether one node's profile can be changed now, after others have been lowered, or not at all.
//!
//! A policy that asks before it upgrades a node gives the label of full power only to nodes for which the limits
//! allow it. Nodes of a later priority are counted at their floors, since they can be lowered so far; nodes of the
//! same and of earlier priorities keep what is desired for them. An admitted wish is booked, so that the next
//! question takes it into account.

use super::node::{BudgetNode, Priority};
use super::tree::{BudgetTree, gather};
use super::{BudgetError, of_length, plus};
use power_units::Watts;

/// The change that is wanted for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Its new priority.
    pub priority: Priority,
    /// The cap that the policy would desire for it.
    pub desired: Watts,
}

/// The answer to a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// There is room now.
    Now,
    /// There will be room once nodes of later priorities have been lowered and have confirmed it.
    Later {
        /// Where the most must be freed.
        group: usize,
        /// How much.
        watts: Watts,
    },
    /// Not without lowering nodes of the same or an earlier priority.
    Never {
        /// Where the most is missing.
        group: usize,
        /// How much.
        short: Watts,
    },
    /// What this group draws is unknown.
    Unknown {
        /// Its index.
        group: usize,
    },
    /// The node does not answer.
    Unreachable,
}

/// What the nodes below a group count, what is wanted for them, and the least that they need. Working memory for one
/// group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDemand {
    load: Option<Watts>,
    base: Option<Watts>,
    /// By priority.
    wanted: [Option<Watts>; 3],
    least: [Option<Watts>; 3],
}

impl GroupDemand {
    /// Before the first use.
    pub const EMPTY: Self =
        Self { load: None, base: None, wanted: [Some(Watts::ZERO); 3], least: [Some(Watts::ZERO); 3] };

    fn add(&mut self, other: Self) {
        self.load = plus(self.load, other.load);
        self.base = plus(self.base, other.base);
        for (sum, part) in self.wanted.iter_mut().zip(other.wanted) {
            *sum = plus(*sum, part);
        }
        for (sum, part) in self.least.iter_mut().zip(other.least) {
            *sum = plus(*sum, part);
        }
    }

    fn take(&mut self, other: Self) {
        let less = |sum: Option<Watts>, part: Option<Watts>| Some(sum? - part?);
        self.load = less(self.load, other.load);
        for (sum, part) in self.wanted.iter_mut().zip(other.wanted) {
            *sum = less(*sum, part);
        }
        for (sum, part) in self.least.iter_mut().zip(other.least) {
            *sum = less(*sum, part);
        }
    }

    /// The group's load when every node of a later priority than `priority` is at its floor.
    fn bottom(&self, priority: Priority) -> Option<Watts> {
        let mut sum = self.base;
        for (other, (&wanted, &least)) in Priority::ALL.iter().zip(self.wanted.iter().zip(&self.least)) {
            sum = plus(sum, if *other <= priority { wanted } else { least });
        }
        sum
    }

    /// What one node adds. A node that does not answer counts the same whether it is to be lowered or raised.
    fn of(node: &BudgetNode) -> Self {
        let count = node.count();
        let (wanted, least) =
            if node.reachable { (Some(node.wanted()), Some(node.lowest())) } else { (count, count) };
        let mut demand = Self { load: count, base: Some(Watts::ZERO), ..Self::EMPTY };
        for (of, (slot, low)) in Priority::ALL.iter().zip(demand.wanted.iter_mut().zip(&mut demand.least)) {
            if *of == node.priority {
                (*slot, *low) = (wanted, least);
            }
        }
        demand
    }
}

/// Sums up the present demand; call it before the first [`admit`] of a round.
///
/// # Errors
/// When the slice has the wrong length or a node's group does not exist.
pub fn demands(
    tree: BudgetTree<'_>,
    nodes: &[BudgetNode],
    demands: &mut [GroupDemand],
) -> Result<(), BudgetError> {
    of_length("demands", demands, tree.groups().len())?;
    for (demand, group) in demands.iter_mut().zip(tree.groups()) {
        *demand = GroupDemand { load: group.base(), base: group.base(), ..GroupDemand::EMPTY };
    }
    for node in nodes {
        let demand = demands.get_mut(node.group).ok_or(BudgetError::NoSuchGroup { node: node.key })?;
        demand.add(GroupDemand::of(node));
    }
    gather(tree, demands, |parent, child| parent.add(child));
    Ok(())
}

/// Whether `node` can be changed as wished; if so, books the change. Only a wish for more than the node has can be
/// refused: a downgrade always frees power.
pub fn admit(tree: BudgetTree<'_>, demands: &mut [GroupDemand], node: &BudgetNode, wish: Wish) -> Admission {
    let Wish { priority, desired } = wish;
    let becomes = BudgetNode { priority, desired, ..*node };
    let answer = if priority >= node.priority && becomes.wanted() <= node.wanted() {
        Admission::Now
    } else if !node.reachable {
        Admission::Unreachable
    } else {
        judge(tree, demands, node, &becomes)
    };
    match answer {
        Admission::Now | Admission::Later { .. } => book(tree, demands, node, &becomes),
        Admission::Never { .. } | Admission::Unknown { .. } | Admission::Unreachable => {}
    }
    answer
}

/// What the node counts from now on: a raised cap counts at once, a lowered one only after its receipt.
fn with_order(node: &BudgetNode, becomes: &BudgetNode) -> GroupDemand {
    let mut demand = GroupDemand::of(becomes);
    if node.reachable {
        demand.load = node.count().map(|count| count.max(becomes.wanted()));
    }
    demand
}

fn judge(
    tree: BudgetTree<'_>,
    demands: &[GroupDemand],
    node: &BudgetNode,
    becomes: &BudgetNode,
) -> Admission {
    let (before, after) = (GroupDemand::of(node), with_order(node, becomes));
    let (mut never, mut later) = (None, None);
    for group in tree.path(node.group) {
        let (Some(demand), Some(limit)) = (demands.get(group), tree.groups().get(group).map(|g| g.limit()))
        else {
            return Admission::Unknown { group };
        };
        let mut then = *demand;
        then.take(before);
        then.add(after);
        let (Some(load), Some(bottom)) = (then.load, then.bottom(becomes.priority)) else {
            return Admission::Unknown { group };
        };
        never = most(never, group, bottom - limit);
        later = most(later, group, load - limit);
    }
    match (never, later) {
        (Some((group, short)), _) => Admission::Never { group, short },
        (None, Some((group, watts))) => Admission::Later { group, watts },
        (None, None) => Admission::Now,
    }
}

/// The larger excess; the first of equals, which is nearest to the node.
fn most(so_far: Option<(usize, Watts)>, group: usize, excess: Watts) -> Option<(usize, Watts)> {
    match so_far {
        _ if excess <= Watts::ZERO => so_far,
        Some((_, most)) if excess <= most => so_far,
        Some(_) | None => Some((group, excess)),
    }
}

fn book(tree: BudgetTree<'_>, demands: &mut [GroupDemand], node: &BudgetNode, becomes: &BudgetNode) {
    let (before, after) = (GroupDemand::of(node), with_order(node, becomes));
    for group in tree.path(node.group) {
        if let Some(demand) = demands.get_mut(group) {
            demand.take(before);
            demand.add(after);
        }
    }
}
