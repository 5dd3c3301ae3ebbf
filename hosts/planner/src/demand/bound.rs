//! Who may ask for performance, and for how much: namespaces that may not, and the most nodes that the pods of one
//! namespace may hold. A pod past the bound counts as a standard one: it is no pressure, and holds no node. Its own
//! constraints stand, because the scheduler would still apply them.
//!
//! Everything is derived from the pods that are there: the oldest come first, so that a new pod takes nothing from one
//! that runs.

use std::collections::{BTreeMap, BTreeSet};

/// The bound on the demand for performance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandBound {
    /// The namespaces that may ask; `None` for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// The most nodes that the pods of a namespace may hold; `*` is for every other one.
    pub nodes_max: BTreeMap<String, u32>,
    /// So many pods count as one node, where the policy counts pods.
    pub pods_per_node: Option<u32>,
}

/// Why a pod that asks for performance counts as a standard one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PastBound {
    /// Its namespace may not ask.
    Namespace,
    /// The pods of its namespace hold as many nodes as they may.
    Nodes,
}

impl DemandBound {
    /// No bound.
    pub const NONE: Self = Self { namespaces: None, nodes_max: BTreeMap::new(), pods_per_node: None };

    /// Whether there is any.
    #[must_use]
    pub fn any(&self) -> bool {
        self.namespaces.is_some() || !self.nodes_max.is_empty()
    }

    /// Which of the pods of a namespace are past the bound. They come with their nodes, if they are bound to any, the
    /// oldest first.
    pub fn past<'a, K>(
        &self,
        namespace: &str,
        pods: impl IntoIterator<Item = (K, Option<&'a str>)>,
    ) -> Vec<(K, PastBound)> {
        if self.namespaces.as_ref().is_some_and(|may| !may.contains(namespace)) {
            return pods.into_iter().map(|(pod, _)| (pod, PastBound::Namespace)).collect();
        }
        let Some(&most) = self.nodes_max.get(namespace).or_else(|| self.nodes_max.get("*")) else {
            return Vec::new();
        };
        let of = |pods: u32| pods.div_ceil(self.pods_per_node.unwrap_or(1).max(1));
        let (mut nodes, mut waiting, mut counted, mut past) = (BTreeSet::new(), 0_u32, 0_u32, Vec::new());
        for (pod, node) in pods {
            let held = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            let fits = match node {
                Some(node) if nodes.contains(node) => true,
                Some(_) => held.saturating_add(1).saturating_add(of(waiting)) <= most,
                None => held.saturating_add(of(waiting.saturating_add(1))) <= most,
            };
            // A policy that counts pods raises nodes for those on one node too.
            let fits = fits && (self.pods_per_node.is_none() || of(counted.saturating_add(1)) <= most);
            if fits {
                counted = counted.saturating_add(1);
            }
            match (fits, node) {
                (false, _) => past.push((pod, PastBound::Nodes)),
                (true, Some(node)) => drop(nodes.insert(node)),
                (true, None) => waiting = waiting.saturating_add(1),
            }
        }
        past
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(nodes_max: &[(&str, u32)], pods_per_node: u32) -> DemandBound {
        let nodes_max = nodes_max.iter().map(|(name, most)| ((*name).to_owned(), *most)).collect();
        DemandBound {
            namespaces: None,
            nodes_max,
            pods_per_node: (pods_per_node > 1).then_some(pods_per_node),
        }
    }

    fn past(bound: &DemandBound, namespace: &str, nodes: &[&'static str]) -> Vec<(usize, PastBound)> {
        let node = |node: &'static str| (!node.is_empty()).then_some(node);
        bound.past(namespace, nodes.iter().map(|at| node(at)).enumerate())
    }

    #[test]
    fn the_oldest_pods_hold_as_many_nodes_as_their_namespace_may() {
        use PastBound::Nodes;
        let two = bound(&[("a", 2), ("*", 1)], 1);
        assert_eq!(past(&two, "a", &["x", "y", "x", "z", "y"]), [(3, Nodes)]);
        assert_eq!(past(&two, "b", &["x", "y", "x"]), [(1, Nodes)]);
        // A pod that waits will hold a node of its own.
        assert_eq!(past(&two, "a", &["x", "", "y", ""]), [(2, Nodes), (3, Nodes)]);
        // Where ten pods make up a node, eleven that wait are two.
        let waits = [""; 25];
        assert_eq!(
            past(&bound(&[("a", 2)], 10), "a", &waits),
            (20..25).map(|at| (at, Nodes)).collect::<Vec<_>>()
        );
        // It raises two nodes for twenty of them wherever they are.
        assert_eq!(
            past(&bound(&[("a", 2)], 10), "a", &["x"; 25]),
            (20..25).map(|at| (at, Nodes)).collect::<Vec<_>>()
        );
        assert_eq!(past(&bound(&[("*", 0)], 10), "a", &["x", ""]), [(0, Nodes), (1, Nodes)]);
        assert_eq!(past(&bound(&[("b", 0)], 0), "a", &["x", ""]), []);
    }

    #[test]
    fn a_namespace_that_may_not_ask_holds_nothing() {
        let one = DemandBound { namespaces: Some(BTreeSet::from(["a".to_owned()])), ..DemandBound::NONE };
        assert!(one.any() && !DemandBound::NONE.any());
        assert_eq!(past(&one, "b", &["x", ""]), [(0, PastBound::Namespace), (1, PastBound::Namespace)]);
        assert_eq!(past(&one, "a", &["x", ""]), []);
    }
}
