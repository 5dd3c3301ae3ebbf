//! Caps that stand are left standing while they may.
//!
//! The allocation divides what there is anew in every round, so that one node's change of profile moves everybody's
//! share by a little. Here the targets are brought back to the caps that stand, wherever no limit asks for the change:
//!
//! - a node above its share keeps what it has while everything fits; where it does not, as few nodes as possible are
//!   brought down to their shares, at once, eco nodes first and those first that are furthest above;
//! - a node below its share is raised when it has waited long enough; a node at full power at once, when the way is a
//!   band of its cap at least. An eco node is in no hurry, and what it is given now the next change may take back.
//!
//! What the policy itself asks less of is brought down as ever. This decides about targets alone: that no instant is
//! above a limit is the business of the moves, whatever the targets are.

use joulie_core::budget::{BudgetNode, Group, Priority};
use power_units::{Ratio, Role, Watts};
use std::cmp::Reverse;

/// How steady caps are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Band(pub(super) Ratio);

impl Band {
    /// Whether the way from a cap up to a target is too short to be worth a write.
    pub(super) fn is_within(self, cap: Watts, target: Watts) -> bool {
        target > cap && target - cap < cap.scale(self.0, Role::Limit)
    }
}

/// A node that keeps more than its share: what it is brought down to where that is needed, and who is first.
struct Above {
    order: (Reverse<Priority>, Reverse<Watts>, u64),
    at: usize,
    share: Watts,
}

/// Brings targets back to the caps that stand, where they may. `impatient[i]` says that node `i` has waited for more for
/// long enough. `targets` fit their limits, or are as near to that as they can be; afterwards they do so as before.
pub(super) fn hold(
    band: Band,
    groups: &[Group],
    nodes: &[BudgetNode],
    impatient: &[bool],
    targets: &mut [Watts],
) {
    let above = keep(band, groups, nodes, impatient, targets);
    let mut loads = own_loads(groups, nodes, targets);
    // Parents come before their parts, so that the narrow limits are looked at first.
    for group in (0..groups.len()).rev() {
        let load = loads.get(group).copied().flatten();
        let load = bring_down((group, load), groups, nodes, &above, targets);
        let parent = groups.get(group).and_then(Group::parent);
        if let Some(whole) = parent.and_then(|parent| loads.get_mut(parent)) {
            *whole = whole.zip(load).and_then(|(whole, part)| whole.checked_add(part));
        }
    }
}

/// Brings targets back to the caps that stand, whether they fit or not. Who keeps more than his share then, those first that
/// are brought down first.
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

/// What each group would draw with the groups in it; nothing where nobody can say.
pub(super) fn loads(groups: &[Group], nodes: &[BudgetNode], targets: &[Watts]) -> Vec<Option<Watts>> {
    let mut loads = own_loads(groups, nodes, targets);
    // Parents come before their parts.
    for group in (0..groups.len()).rev() {
        let load = loads.get(group).copied().flatten();
        let parent = groups.get(group).and_then(Group::parent);
        if let Some(whole) = parent.and_then(|parent| loads.get_mut(parent)) {
            *whole = whole.zip(load).and_then(|(whole, part)| whole.checked_add(part));
        }
    }
    loads
}

/// What each group would draw apart from the groups in it; nothing where nobody can say.
fn own_loads(groups: &[Group], nodes: &[BudgetNode], targets: &[Watts]) -> Vec<Option<Watts>> {
    let mut loads: Vec<Option<Watts>> = groups.iter().map(Group::base).collect();
    for (node, &target) in nodes.iter().zip(targets) {
        if let Some(load) = loads.get_mut(node.group) {
            *load = load.zip(draws(node, target)).and_then(|(load, drawn)| load.checked_add(drawn));
        }
    }
    loads
}

/// What a node counts with; nothing when nobody can say.
fn draws(node: &BudgetNode, target: Watts) -> Option<Watts> {
    if node.reachable { Some(target) } else { node.count() }
}

/// The cap that stands, of a node that can keep it: it answers, and holds what it was told.
fn keeps(node: &BudgetNode, groups: &[Group]) -> Option<Watts> {
    let cap = node.account.asked().filter(|_| node.reachable)?;
    let holds = !node.account.is_proven() || node.count() == Some(node.range.limit(cap));
    let is_in_range = node.range.limit(cap) == cap;
    (holds && is_in_range && node.group < groups.len()).then_some(cap)
}

/// Takes from those that keep more than their share until the group fits, and says what it draws then. Where nobody can
/// say what it draws, everybody is brought to his share.
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

/// Whether a group is another one or a part of it.
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
