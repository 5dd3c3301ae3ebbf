//! Keeps the present caps where the limits allow it.
//!
//! The allocation divides the power anew in every round, so that one node's change of profile moves every node's share
//! a little. Here the targets are set back to the present caps, wherever no limit requires the change:
//!
//! - a node above its share keeps its cap while everything fits; otherwise as few nodes as possible are lowered to
//!   their shares, at once: eco nodes first, and among equals those furthest above their share;
//! - a node below its share is raised when it has waited long enough; a node at full power is raised at once if the
//!   raise is at least one band of its cap. An eco node does not need the power at once, and the next change may take
//!   it back.
//!
//! A node for which the policy itself wants less is lowered as usual. This module decides targets only: the moves keep
//! every instant below the limits, whatever the targets are.

use joulie_core::budget::{BudgetNode, Group, Priority};
use power_units::{Ratio, Role, Watts};
use std::cmp::Reverse;

/// How far caps are held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Band(pub(super) Ratio);

impl Band {
    /// Whether the raise from a cap to a target is too small to be worth a write.
    pub(super) fn is_within(self, cap: Watts, target: Watts) -> bool {
        target > cap && target - cap < cap.scale(self.0, Role::Limit)
    }
}

/// A node that keeps more than its share: the share to lower it to if needed, and its order.
struct Above {
    order: (Reverse<Priority>, Reverse<Watts>, u64),
    at: usize,
    share: Watts,
}

/// Sets targets back to the present caps where the limits allow it. `impatient[i]` is true if node `i` has waited long
/// enough for a raise. `targets` fit the limits or come as close as possible; afterwards they fit equally well.
pub(super) fn hold(
    band: Band,
    groups: &[Group],
    nodes: &[BudgetNode],
    impatient: &[bool],
    targets: &mut [Watts],
) {
    let above = keep(band, groups, nodes, impatient, targets);
    let mut loads = own_loads(groups, nodes, targets);
    // Parents come before their subgroups, so the reverse order checks the narrow limits first.
    for group in (0..groups.len()).rev() {
        let load = loads.get(group).copied().flatten();
        let load = bring_down((group, load), groups, nodes, &above, targets);
        let parent = groups.get(group).and_then(Group::parent);
        if let Some(whole) = parent.and_then(|parent| loads.get_mut(parent)) {
            *whole = whole.zip(load).and_then(|(whole, part)| whole.checked_add(part));
        }
    }
}

/// Sets targets back to the present caps, whether they fit or not. Returns the nodes that then keep more than their
/// share, in the order in which to lower them.
fn keep(
    band: Band,
    groups: &[Group],
    nodes: &[BudgetNode],
    impatient: &[bool],
    targets: &mut [Watts],
) -> Vec<Above> {
    let mut above: Vec<Above> = Vec::new();
    for (at, ((node, target), &impatient)) in nodes.iter().zip(targets.iter_mut()).zip(impatient).enumerate()
    {
        let Some(cap) = keeps(node, groups) else { continue };
        let share = node.range.limit(*target);
        if share > cap {
            let is_urgent = node.priority == Priority::Performance && !band.is_within(cap, share);
            if !impatient && !is_urgent {
                *target = cap;
            }
        } else if share < cap && node.range.limit(node.desired) >= cap {
            let order = (Reverse(node.priority), Reverse(cap - share), node.key);
            above.push(Above { order, at, share });
            *target = cap;
        }
    }
    above.sort_by_key(|above| above.order);
    above
}

/// The power of each group with its subgroups; `None` where it is unknown.
pub(super) fn loads(groups: &[Group], nodes: &[BudgetNode], targets: &[Watts]) -> Vec<Option<Watts>> {
    let mut loads = own_loads(groups, nodes, targets);
    // Parents come before their subgroups.
    for group in (0..groups.len()).rev() {
        let load = loads.get(group).copied().flatten();
        let parent = groups.get(group).and_then(Group::parent);
        if let Some(whole) = parent.and_then(|parent| loads.get_mut(parent)) {
            *whole = whole.zip(load).and_then(|(whole, part)| whole.checked_add(part));
        }
    }
    loads
}

/// The power of each group without its subgroups; `None` where it is unknown.
fn own_loads(groups: &[Group], nodes: &[BudgetNode], targets: &[Watts]) -> Vec<Option<Watts>> {
    let mut loads: Vec<Option<Watts>> = groups.iter().map(Group::base).collect();
    for (node, &target) in nodes.iter().zip(targets) {
        if let Some(load) = loads.get_mut(node.group) {
            *load = load.zip(draws(node, target)).and_then(|(load, drawn)| load.checked_add(drawn));
        }
    }
    loads
}

/// The power that a node counts with; `None` when unknown.
fn draws(node: &BudgetNode, target: Watts) -> Option<Watts> {
    if node.reachable { Some(target) } else { node.count() }
}

/// The present cap of a node that can keep it: the node is reachable and holds the cap.
fn keeps(node: &BudgetNode, groups: &[Group]) -> Option<Watts> {
    let cap = node.account.asked().filter(|_| node.reachable)?;
    let holds = !node.account.is_proven() || node.count() == Some(node.range.limit(cap));
    let is_in_range = node.range.limit(cap) == cap;
    (holds && is_in_range && node.group < groups.len()).then_some(cap)
}

/// Lowers nodes that keep more than their share until the group fits, and returns the group's power then. If that power
/// is unknown, every such node is lowered to its share.
fn bring_down(
    (group, mut load): (usize, Option<Watts>),
    groups: &[Group],
    nodes: &[BudgetNode],
    above: &[Above],
    targets: &mut [Watts],
) -> Option<Watts> {
    let limit = groups.get(group).map(Group::limit)?;
    for one in above {
        if load.is_some_and(|load| load <= limit) {
            return load;
        }
        let here = nodes.get(one.at).is_some_and(|node| is_in(node.group, group, groups));
        if let Some(target) = targets.get_mut(one.at).filter(|_| here) {
            load = load.map(|load| load - (*target - one.share));
            *target = one.share;
        }
    }
    load
}

/// Whether a group is the other one or one of its subgroups.
fn is_in(mut group: usize, of: usize, groups: &[Group]) -> bool {
    loop {
        if group == of {
            return true;
        }
        match groups.get(group).and_then(Group::parent) {
            Some(parent) => group = parent,
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests;
