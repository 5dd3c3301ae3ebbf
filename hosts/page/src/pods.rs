//! The pods of all nodes, counted as they change: of tens of thousands mostly a few have.

use crate::rows::PodRow;
use host_kit::reflect::{ObjectKey, RowChange, RowChanges, Rows};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The placements that are told of one picture: more come only when a whole cluster starts.
const PLACED_MAX: usize = 40;

/// Pods that have got a node.
pub(crate) type Placed = Vec<(ObjectKey, Arc<PodRow>)>;

/// The pods, and which had a node at the last look.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CountedPods {
    /// By node: those that have not ended, and how many of them ask for performance.
    pub(crate) by_node: BTreeMap<String, (usize, usize)>,
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) waiting_performance: usize,
    bound: BTreeSet<ObjectKey>,
    /// Whether all pods were known at the last look; before that none of them is new.
    known: bool,
}

impl CountedPods {
    /// Takes in what has changed; returns the pods that have got a node since the last look.
    pub(crate) fn look(&mut self, pods: &mut Rows<PodRow>) -> Placed {
        let synced = pods.is_synced();
        let placed = pods.news(|RowChanges { rows, changes }| match changes {
            Some(changes) if self.known => self.follow(changes),
            Some(_) | None => {
                let all = rows.iter().map(|(key, now)| RowChange { key, before: None, now: Some(now) });
                let before = std::mem::take(self);
                let mut placed = self.follow(all);
                placed.retain(|(key, _)| before.known && !before.bound.contains(key));
                self.known = synced;
                placed
            }
        });
        let mut placed = placed.unwrap_or_default();
        placed.truncate(PLACED_MAX);
        placed
    }

    fn follow<'r>(&mut self, changes: impl IntoIterator<Item = RowChange<'r, PodRow>>) -> Placed {
        let mut placed = Vec::new();
        for RowChange { key, before, now } in changes {
            if let Some(before) = before {
                self.count(&before.row, false);
            }
            if let Some(now) = now {
                self.count(&now.row, true);
            }
            match now.filter(|now| now.row.node.is_some()) {
                Some(now) if self.bound.insert(key.clone()) => placed.push((key.clone(), now.row.clone())),
                Some(_) => {}
                None => drop(self.bound.remove(key)),
            }
        }
        placed
    }

    fn count(&mut self, pod: &PodRow, more: bool) {
        if pod.ended {
            return;
        }
        let step = |count: &mut usize| {
            *count = if more { count.saturating_add(1) } else { count.saturating_sub(1) };
        };
        let Some(node) = &pod.node else {
            step(&mut self.waiting);
            if pod.performance {
                step(&mut self.waiting_performance);
            }
            return;
        };
        step(&mut self.running);
        let of = self.by_node.entry(node.clone()).or_default();
        step(&mut of.0);
        if pod.performance {
            step(&mut of.1);
        }
        if *of == (0, 0) {
            self.by_node.remove(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::by_hand;
    use serde_json::{Value, json};

    fn pod(name: &str, node: Option<&str>, phase: &str) -> Value {
        let class = if name.starts_with('p') { "performance" } else { "standard" };
        json!({"metadata": {"name": name, "namespace": "d", "uid": name, "annotations": {"joulie.io/workload-class": class}},
            "spec": {"nodeName": node}, "status": {"phase": phase}})
    }

    fn names(placed: &Placed) -> Vec<&str> {
        placed.iter().map(|(key, _)| key.name.as_str()).collect()
    }

    /// What one who reads everything counts.
    fn anew(rows: &Rows<PodRow>) -> CountedPods {
        let mut counted = CountedPods::default();
        counted.look(&mut rows.clone());
        counted
    }

    #[test]
    fn what_is_counted_by_changes_is_what_is_counted_anew() {
        let (mut feed, mut rows) = by_hand();
        let unread = rows.clone();
        let mut counted = CountedPods::default();
        feed.list(&[pod("a", Some("n1"), "Running"), pod("p1", None, "Pending")]);
        assert_eq!(names(&counted.look(&mut rows)), [""; 0], "what was there before is not new");
        assert_eq!((counted.running, counted.waiting, counted.waiting_performance), (1, 1, 1));
        let steps: [(Value, bool, &[&str]); 7] = [
            (pod("p1", Some("n1"), "Pending"), true, &["p1"]),
            (pod("p1", Some("n1"), "Running"), true, &[]),
            (pod("b", None, "Pending"), true, &[]),
            (pod("a", Some("n1"), "Succeeded"), true, &[]),
            (pod("p1", Some("n1"), "Running"), false, &[]),
            (pod("p1", Some("n2"), "Pending"), true, &["p1"]),
            (pod("b", None, "Pending"), false, &[]),
        ];
        for (object, is_there, placed) in steps {
            if is_there {
                feed.apply(&object)
            } else {
                feed.delete(&object)
            }
            assert_eq!(names(&counted.look(&mut rows)), placed, "{object}");
            assert_eq!(counted, anew(&unread), "{object}");
        }
        assert_eq!(counted.by_node, BTreeMap::from([("n2".to_owned(), (1, 1))]));
        // More than is kept of changes, or a list, is read as a whole: only what is new is told.
        feed.list(&[pod("p1", Some("n2"), "Running"), pod("c", Some("n1"), "Running")]);
        assert_eq!(names(&counted.look(&mut rows)), ["c"]);
        assert_eq!(counted, anew(&unread));
        for number in 0..300 {
            feed.apply(&pod(&format!("s{number:03}"), Some("n3"), "Running"));
        }
        assert_eq!(counted.look(&mut rows).len(), PLACED_MAX);
        assert_eq!((counted.running, counted.by_node["n3"]), (302, (300, 0)));
    }
}
