//! The tree of limits: a site with zones with racks, or any other tree.

use core::fmt;
use power_units::Watts;

/// A part of the site that has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    parent: Option<usize>,
    limit: Watts,
    base: Option<Watts>,
}

/// Why a group is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// A limit below zero.
    NegativeLimit(Watts),
    /// A base load below zero: that would be room that does not exist.
    NegativeBase(Watts),
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NegativeLimit(limit) => write!(f, "a limit must be zero or more, not {limit} W"),
            Self::NegativeBase(base) => {
                write!(f, "a base load must be zero or more, or unknown, not {base} W")
            }
        }
    }
}

impl core::error::Error for GroupError {}

impl Group {
    /// A group within the group at index `parent`, or a root.
    ///
    /// `base` is what draws power in this very group and nobody controls: switches, storage, nodes without an agent.
    /// The base loads of its child groups are added to it. Give an upper bound where one is known. `None` is
    /// unknown: then nothing below this group and the groups above it is raised, and nothing is lowered for that
    /// reason alone.
    ///
    /// # Errors
    /// When the limit or the base load is below zero.
    pub fn new(parent: Option<usize>, limit: Watts, base: Option<Watts>) -> Result<Self, GroupError> {
        if limit < Watts::ZERO {
            return Err(GroupError::NegativeLimit(limit));
        }
        match base {
            Some(base) if base < Watts::ZERO => Err(GroupError::NegativeBase(base)),
            Some(_) | None => Ok(Self { parent, limit, base }),
        }
    }

    /// The group that this one is a part of.
    #[must_use]
    pub const fn parent(&self) -> Option<usize> {
        self.parent
    }

    /// The most that everything in it may draw.
    #[must_use]
    pub const fn limit(&self) -> Watts {
        self.limit
    }

    /// The base load: power that nobody controls.
    #[must_use]
    pub const fn base(&self) -> Option<Watts> {
        self.base
    }
}

/// Why a tree is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// The parent is not among the groups before this one. In an order with parents first there is no cycle.
    ParentNotBefore {
        /// The group.
        group: usize,
        /// What it names as its parent.
        parent: usize,
    },
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::ParentNotBefore { group, parent } = self;
        write!(f, "group {group} names {parent} as its parent; a parent must come before its parts")
    }
}

impl core::error::Error for TreeError {}

/// Groups in an order in which every group comes after its parent. There may be several roots.
#[derive(Clone, Copy, Debug)]
pub struct BudgetTree<'a> {
    groups: &'a [Group],
}

impl<'a> BudgetTree<'a> {
    /// The tree that the parents' indices describe.
    ///
    /// # Errors
    /// When a parent does not come before its child. Every cycle and every index outside the slice is such a case.
    pub fn new(groups: &'a [Group]) -> Result<Self, TreeError> {
        for (group, facts) in groups.iter().enumerate() {
            if let Some(parent) = facts.parent.filter(|&parent| parent >= group) {
                return Err(TreeError::ParentNotBefore { group, parent });
            }
        }
        Ok(Self { groups })
    }

    /// The groups, in the order given.
    #[must_use]
    pub const fn groups(&self) -> &'a [Group] {
        self.groups
    }

    /// A group and all groups above it, up to the root.
    pub(super) fn path(&self, from: usize) -> Path<'a> {
        Path { groups: self.groups, next: Some(from) }
    }
}

/// The path from a group to its root. It ends because every step goes to a smaller index.
pub(super) struct Path<'a> {
    groups: &'a [Group],
    next: Option<usize>,
}

impl Iterator for Path<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let here = self.next?;
        self.next = self.groups.get(here).and_then(Group::parent);
        Some(here)
    }
}

/// Joins every group's entry into its parent's, from the leaves to the roots: `join(parent, child)`.
pub(super) fn gather<T: Copy>(tree: BudgetTree<'_>, entries: &mut [T], mut join: impl FnMut(&mut T, T)) {
    for (group, facts) in tree.groups.iter().enumerate().rev() {
        let Some(parent) = facts.parent else { continue };
        let Some(child) = entries.get(group).copied() else { continue };
        if let Some(parent) = entries.get_mut(parent) {
            join(parent, child);
        }
    }
}

/// Gives every group its parent's entry, from the roots to the leaves: `join(child, parent)`.
pub(super) fn spread<T: Copy>(
    tree: BudgetTree<'_>,
    entries: &mut [T],
    mut join: impl FnMut(&mut T, Option<T>),
) {
    for (group, facts) in tree.groups.iter().enumerate() {
        let above = facts.parent.and_then(|parent| entries.get(parent).copied());
        if let Some(child) = entries.get_mut(group) {
            join(child, above);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    fn group(parent: Option<usize>) -> Group {
        Group::new(parent, Watts::from_int(100), Some(Watts::ZERO)).unwrap()
    }

    #[test]
    fn every_cycle_and_every_parent_that_is_not_there_is_refused() {
        let refused = |parents: &[Option<usize>]| {
            let groups: Vec<Group> = parents.iter().map(|&parent| group(parent)).collect();
            BudgetTree::new(&groups).err()
        };
        assert_eq!(refused(&[None, Some(0), Some(1), Some(0), None]), None);
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&[Some(0)]), Some(TreeError::ParentNotBefore { group: 0, parent: 0 }));
        assert_eq!(
            refused(&[None, Some(2), Some(1)]),
            Some(TreeError::ParentNotBefore { group: 1, parent: 2 })
        );
        assert_eq!(refused(&[None, Some(7)]), Some(TreeError::ParentNotBefore { group: 1, parent: 7 }));
    }

    #[test]
    fn the_way_up_names_every_group_once_and_ends_at_the_root() {
        let groups = [group(None), group(Some(0)), group(Some(1)), group(Some(0))];
        let tree = BudgetTree::new(&groups).unwrap();
        assert_eq!(tree.path(2).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(tree.path(0).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_limit_or_a_base_load_below_zero_is_refused_with_what_is_accepted() {
        let (minus, plus) = (Watts::from_int(-1), Watts::from_int(1));
        assert_eq!(Group::new(None, minus, None), Err(GroupError::NegativeLimit(minus)));
        assert_eq!(Group::new(None, plus, Some(minus)), Err(GroupError::NegativeBase(minus)));
        assert!(Group::new(None, Watts::ZERO, Some(Watts::ZERO)).is_ok());
        assert_eq!(GroupError::NegativeLimit(minus).to_string(), "a limit must be zero or more, not -1 W");
    }
}
