//! The limits that persons have written as PowerBudgets: a tree, and the place of each node in it.

use crate::node::Node;
use joulie_core::budget::sustained::SustainedLimit;
use power_units::Watts;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A limit on a part of the site. Its place in the list of all limits is its index; parents come before their parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteLimit {
    /// The name of its object.
    pub name: Arc<str>,
    /// The limit that it is a part of.
    pub parent: Option<usize>,
    /// The most that everything in it may draw.
    pub watts: Watts,
    /// What is drawn in it that nobody controls.
    pub base: Watts,
    /// Nodes are granted power so that it is kept; otherwise it is only computed what would be granted.
    pub enforced: bool,
    /// Nothing in it is raised, released or given another profile.
    pub paused: bool,
    /// An event is on for which it is armed: what that takes from its nodes is granted to nobody, so that none of them is raised.
    pub armed: bool,
    /// What may be drawn in the mean, where that is less than what may be drawn at an instant.
    pub sustained: Option<SustainedLimit>,
}

/// The place of a node in the tree of limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitPlace {
    /// The limit that it is in; those above it hold as well.
    pub limit: Option<usize>,
    /// Limits that select it too, and those above them, as far as they are not above its place: what they count is not
    /// known.
    pub overlaps: Vec<usize>,
    /// Its label asks that limits only count it.
    pub observed: bool,
    /// A limit that selects it, or one above that, is enforced.
    pub bound: bool,
    /// A limit that selects it, or one above that, is paused.
    pub paused: bool,
}

/// The index of a limit, and those above it.
fn path(limits: &[SiteLimit], from: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(from), |&at| limits.get(at).and_then(|limit| limit.parent))
}

impl LimitPlace {
    /// The place of a node that these limits select: the deepest of them. Of several, one under an enforced limit comes
    /// first.
    #[must_use]
    pub fn of(limits: &[SiteLimit], selected: &[usize], observed: bool) -> Self {
        let has = |at: usize, what: fn(&SiteLimit) -> bool| {
            path(limits, at).any(|at| limits.get(at).is_some_and(what))
        };
        let rank = |&at: &usize| (has(at, |limit| limit.enforced), path(limits, at).count(), at);
        let limit = selected.iter().copied().max_by_key(rank);
        let above: Vec<usize> = limit.into_iter().flat_map(|limit| path(limits, limit)).collect();
        let others = selected.iter().flat_map(|&at| path(limits, at)).filter(|at| !above.contains(at));
        Self {
            limit,
            overlaps: others.collect::<BTreeSet<usize>>().into_iter().collect(),
            observed,
            bound: selected.iter().any(|&at| has(at, |limit| limit.enforced)),
            paused: selected.iter().any(|&at| has(at, |limit| limit.paused)),
        }
    }

    /// The place of a machine of which only the grant is left, when it is not known which limit it is under: it may be
    /// under any.
    #[must_use]
    pub fn unknown(limits: &[SiteLimit]) -> Self {
        Self { overlaps: (0..limits.len()).collect(), ..Self::default() }
    }

    /// Whether it is granted power because of a written limit.
    #[must_use]
    pub const fn is_enforced(&self) -> bool {
        self.bound && !self.observed
    }
}

/// The limits that count a node which has its place elsewhere.
pub(super) fn overlapped<'a>(nodes: impl Iterator<Item = &'a Node>, limits: usize) -> Vec<bool> {
    let mut overlapped = vec![false; limits];
    for at in nodes.flat_map(|node| &node.limits.overlaps) {
        if let Some(slot) = overlapped.get_mut(*at) {
            *slot = true;
        }
    }
    overlapped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(name: &str, parent: Option<usize>, enforced: bool, paused: bool) -> SiteLimit {
        let watts = Watts::from_int(100);
        SiteLimit {
            name: name.into(),
            parent,
            watts,
            base: Watts::ZERO,
            enforced,
            paused,
            armed: false,
            sustained: None,
        }
    }

    /// A site with two racks, and another top.
    fn tree() -> Vec<SiteLimit> {
        vec![
            limit("site", None, false, false),
            limit("other", None, true, false),
            limit("r1", Some(0), true, false),
            limit("r2", Some(0), false, true),
        ]
    }

    #[test]
    fn a_node_is_in_the_deepest_limit_that_selects_it() {
        let tree = tree();
        let place = LimitPlace::of(&tree, &[0, 2], false);
        assert_eq!((place.limit, place.bound, place.paused), (Some(2), true, false));
        assert!(place.overlaps.is_empty());
        let place = LimitPlace::of(&tree, &[3], false);
        assert_eq!((place.limit, place.bound, place.paused), (Some(3), false, true));
        assert_eq!(LimitPlace::of(&tree, &[], false), LimitPlace::default());
        let counted = LimitPlace::of(&tree, &[0, 2], true);
        assert!(counted.bound && !counted.is_enforced(), "its label asks for counting only");
    }

    #[test]
    fn limits_that_are_not_above_each_other_and_select_one_node_overlap() {
        let tree = tree();
        // r1 is enforced and r2 is not; the site is above both.
        let both = LimitPlace::of(&tree, &[0, 2, 3], false);
        assert_eq!((both.limit, both.overlaps, both.bound, both.paused), (Some(2), vec![3], true, true));
        // r1 is deeper; nothing above it counts in the other one.
        let tops = LimitPlace::of(&tree, &[1, 2], false);
        assert_eq!((tops.limit, tops.overlaps), (Some(2), vec![1]));
        // An observed limit takes no node out of an enforced one, and what is above it counts the node no more either.
        let observed = LimitPlace::of(&tree, &[1, 3], false);
        assert_eq!((observed.limit, observed.overlaps, observed.bound), (Some(1), vec![0, 3], true));
        assert_eq!(LimitPlace::unknown(&tree).overlaps, [0, 1, 2, 3]);
    }
}
