//! The PowerBudgets as a tree of limits, and the place of a node in it.
//!
//! A limit is never lost because something else is wrong: a budget whose parent does not exist, or that is its own ancestor, is
//! kept at the top of the tree.

use crate::rows::BudgetSeen;
use host_kit::reflect::Rows;
use joulie_api::labels;
use joulie_api::power_budget::BudgetMode;
use kube::core::SelectorExt;
use planner::budget::{LimitPlace, SiteLimit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How the key of a budget begins; its group has the same name in the planner.
const KEY: &str = planner::budget::WRITTEN;

/// Why a budget's parent is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParentFault {
    /// There is no such budget.
    Missing(String),
    /// The budget is its own ancestor.
    Cycle,
}

/// The PowerBudgets, in the order of the limits.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    /// Their content.
    pub(crate) seen: Vec<Arc<BudgetSeen>>,
    /// The faults of some, by index.
    pub(crate) faults: BTreeMap<usize, ParentFault>,
    /// The limits: parents first.
    pub(crate) limits: Vec<SiteLimit>,
    /// Whether one of them cannot be read.
    pub(crate) unread: bool,
}

impl Budgets {
    /// Takes in the objects. Returns whether nodes may have other places now.
    pub(super) fn take(&mut self, rows: &Rows<BudgetSeen>) -> bool {
        // The last readable content of a budget counts.
        let seen: BTreeMap<String, Arc<BudgetSeen>> =
            rows.with(|rows| rows.values().map(|held| (held.row.name.clone(), held.row.clone())).collect());
        let (order, faults) = order(&seen);
        let limits: Vec<SiteLimit> = order.iter().map(|(budget, parent)| limit(budget, *parent)).collect();
        let seen: Vec<Arc<BudgetSeen>> = order.into_iter().map(|(budget, _)| budget).collect();
        let unread = !rows.malformed().is_empty();
        // Other watts alone move no node.
        let places = |limits: &[SiteLimit], seen: &[Arc<BudgetSeen>]| -> Vec<_> {
            let each = limits.iter().zip(seen).map(|(limit, seen)| {
                (limit.name.clone(), limit.parent, limit.enforced, limit.paused, seen.selector.clone())
            });
            each.collect()
        };
        let changed = places(&limits, &seen) != places(&self.limits, &self.seen);
        *self = Self { seen, faults, limits, unread };
        changed
    }

    /// The place of a node with these labels.
    pub(super) fn place(&self, labels: &BTreeMap<String, String>) -> LimitPlace {
        let observed = labels
            .get(labels::node::BUDGET_MODE)
            .is_some_and(|mode| mode.trim().eq_ignore_ascii_case("observe"));
        let selected =
            |(at, budget): (usize, &Arc<BudgetSeen>)| budget.selector.matches(labels).then_some(at);
        let selected: Vec<usize> = self.seen.iter().enumerate().filter_map(selected).collect();
        LimitPlace::of(&self.limits, &selected, observed)
    }

    /// Whether a budget that selects a node with these labels asks its nodes to sleep.
    pub(crate) fn asks_to_sleep(&self, labels: &BTreeMap<String, String>) -> bool {
        self.seen.iter().any(|budget| budget.sleep && budget.selector.matches(labels))
    }

    /// The place of a machine of which only the grant is left, with the budget that the grant names.
    pub(super) fn place_of_grant(&self, budget: Option<&str>) -> LimitPlace {
        match budget.and_then(|name| self.limits.iter().position(|limit| &*limit.name == name)) {
            Some(at) => LimitPlace::of(&self.limits, &[at], false),
            None => LimitPlace::unknown(&self.limits),
        }
    }

    /// The key of a budget among the jobs and the groups. No node's name has a slash.
    pub(crate) fn key(name: &str) -> String {
        format!("{KEY}{name}")
    }

    /// The budget with this key.
    pub(crate) fn of_key(&self, key: &str) -> Option<&Arc<BudgetSeen>> {
        let name = key.strip_prefix(KEY)?;
        self.seen.iter().find(|seen| seen.name == name)
    }

    /// The version of the budget with this key.
    pub(crate) fn version_of(&self, key: &str) -> Option<&str> {
        self.of_key(key).map(|seen| seen.version.as_str())
    }

    /// The name of the budget that a node is in.
    pub(crate) fn name_of(&self, place: &LimitPlace) -> Option<&str> {
        self.limits.get(place.limit?).map(|limit| &*limit.name)
    }

    /// The same name, shared.
    pub(crate) fn limit_of(&self, place: &LimitPlace) -> Option<Arc<str>> {
        self.limits.get(place.limit?).map(|limit| limit.name.clone())
    }
}

fn limit(budget: &BudgetSeen, parent: Option<usize>) -> SiteLimit {
    let BudgetSeen { name, watts, base, mode, paused, sustained, .. } = budget;
    SiteLimit {
        name: name.as_str().into(),
        parent,
        watts: *watts,
        base: *base,
        enforced: *mode == BudgetMode::Enforce,
        paused: *paused,
        // That depends on the time.
        armed: false,
        sustained: *sustained,
    }
}

type Ordered = Vec<(Arc<BudgetSeen>, Option<usize>)>;

/// The budgets with parents first, the index of each one's parent, and the parents that are not used.
fn order(seen: &BTreeMap<String, Arc<BudgetSeen>>) -> (Ordered, BTreeMap<usize, ParentFault>) {
    let (mut order, mut faults): (Ordered, _) = (Vec::new(), BTreeMap::new());
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, budget) in seen {
        // The way up to a budget that has its place, or to the top.
        let mut way: Vec<&Arc<BudgetSeen>> = Vec::new();
        let mut on_the_way = BTreeSet::new();
        let mut next = Some((name, budget));
        let mut fault = None;
        while let Some((name, budget)) = next {
            if places.contains_key(name.as_str()) {
                break;
            }
            if !on_the_way.insert(name) {
                fault = Some(ParentFault::Cycle);
                break;
            }
            way.push(budget);
            next = match &budget.parent {
                None => None,
                Some(parent) => {
                    let found = seen.get_key_value(parent);
                    fault = found.is_none().then(|| ParentFault::Missing(parent.clone()));
                    found
                }
            };
        }
        for (at, budget) in way.into_iter().rev().enumerate() {
            let top = if at == 0 { fault.take() } else { None };
            let parent = budget.parent.as_deref().filter(|_| top.is_none());
            let place = order.len();
            order.push((budget.clone(), parent.and_then(|parent| places.get(parent).copied())));
            places.insert(&budget.name, place);
            faults.extend(top.map(|top| (place, top)));
        }
    }
    (order, faults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::by_hand;
    use serde_json::json;

    fn budgets(of: &[(&str, Option<&str>)]) -> Budgets {
        let (mut server, rows) = by_hand::<BudgetSeen>();
        for (name, parent) in of {
            let spec = json!({"parent": parent, "watts": 100, "mode": "enforce",
                "nodeSelector": {"matchLabels": {"in": name}}});
            server.apply(&json!({"metadata": {"name": name, "uid": name}, "spec": spec}));
        }
        let mut budgets = Budgets::default();
        assert!(budgets.take(&rows));
        assert!(!budgets.take(&rows), "nothing has changed");
        budgets
    }

    fn tree(budgets: &Budgets) -> Vec<(&str, Option<usize>)> {
        budgets.limits.iter().map(|limit| (&*limit.name, limit.parent)).collect()
    }

    #[test]
    fn parents_come_first_whatever_their_names() {
        let budgets = budgets(&[
            ("a-rack", Some("m-zone")),
            ("b-rack", Some("m-zone")),
            ("m-zone", Some("z-site")),
            ("z-site", None),
        ]);
        let expected = [("z-site", None), ("m-zone", Some(0)), ("a-rack", Some(1)), ("b-rack", Some(1))];
        assert_eq!(tree(&budgets), expected);
        assert!(budgets.faults.is_empty());
        let place = budgets.place(&[("in".to_owned(), "b-rack".to_owned())].into());
        assert_eq!(budgets.name_of(&place), Some("b-rack"));
        assert_eq!(budgets.name_of(&budgets.place_of_grant(Some("a-rack"))), Some("a-rack"));
        assert_eq!(budgets.place_of_grant(Some("gone")).overlaps, [0, 1, 2, 3]);
    }

    #[test]
    fn a_budget_without_its_parent_and_one_that_is_its_own_ancestor_keep_their_limits_at_the_top() {
        let budgets = budgets(&[
            ("a", Some("nowhere")),
            ("b", Some("c")),
            ("c", Some("d")),
            ("d", Some("b")),
            ("e", Some("e")),
        ]);
        let tops: Vec<&str> =
            tree(&budgets).into_iter().filter(|(_, parent)| parent.is_none()).map(|(name, _)| name).collect();
        assert_eq!(tops, ["a", "d", "e"]);
        assert_eq!(budgets.limits.len(), 5);
        let faults: Vec<_> = budgets.faults.values().cloned().collect();
        assert_eq!(
            faults,
            [ParentFault::Missing("nowhere".to_owned()), ParentFault::Cycle, ParentFault::Cycle]
        );
    }
}
