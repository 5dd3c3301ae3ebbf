//! The objects of one kind by their nodes, kept from look to look: of thousands mostly one has changed.

use crate::rows::{HardwareSeen, ProfileSeen, TwinSeen};
use host_kit::reflect::{Row, Rows};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An object that tells of a node.
pub(crate) trait OfNode {
    /// What it said before it could not be read any more still counts.
    const LASTS: bool;
    /// Its own name, where anybody asks for it.
    fn name(&self) -> &str;
    /// The node.
    fn node(&self) -> &str;
    /// The operator wrote it.
    fn is_ours(&self) -> bool;
}

impl OfNode for HardwareSeen {
    // What a node is made of does not change with what can be read of it.
    const LASTS: bool = true;

    fn name(&self) -> &str {
        &self.node
    }

    fn node(&self) -> &str {
        &self.node
    }

    fn is_ours(&self) -> bool {
        false
    }
}

macro_rules! of_state {
    ($kind:ty) => {
        impl OfNode for $kind {
            const LASTS: bool = false;

            fn name(&self) -> &str {
                &self.state.name
            }

            fn node(&self) -> &str {
                &self.state.desired.node
            }

            fn is_ours(&self) -> bool {
                self.state.owners.ours
            }
        }
    };
}

of_state!(ProfileSeen);
of_state!(TwinSeen);

/// Which nodes something has changed of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// These.
    Few(BTreeSet<String>),
    /// Perhaps all.
    All,
}

impl Touched {
    pub(super) const NOTHING: Self = Self::Few(BTreeSet::new());

    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Few(mut some), Self::Few(others)) => {
                some.extend(others);
                Self::Few(some)
            }
            (Self::All, _) | (_, Self::All) => Self::All,
        }
    }
}

/// With more changes than these everything is put together anew.
pub(super) const FEW: usize = 64;

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Objects<R> {
    /// All of them in the order of their keys, and whether what they say is from before they became unreadable.
    seen: Vec<(Arc<R>, bool)>,
    by_node: BTreeMap<String, Arc<R>>,
    /// The nodes, by the objects' names.
    names: BTreeMap<String, String>,
}

impl<R> Default for Objects<R> {
    fn default() -> Self {
        Self { seen: Vec::new(), by_node: BTreeMap::new(), names: BTreeMap::new() }
    }
}

impl<R: OfNode> Objects<R> {
    /// By their nodes, also of nodes that are gone. Of several for one node the operator's own counts, else the first
    /// by name.
    pub(crate) const fn by_node(&self) -> &BTreeMap<String, Arc<R>> {
        &self.by_node
    }

    /// Of this node.
    pub(crate) fn get(&self, node: &str) -> Option<&Arc<R>> {
        self.by_node.get(node)
    }

    /// Whose object has this name.
    pub(super) fn holder(&self, name: &str) -> Option<&str> {
        self.names.get(name).map(String::as_str)
    }

    /// Takes in what is there now.
    pub(super) fn read(&mut self, rows: &Rows<R>) -> Touched
    where
        R: Row,
    {
        self.take(
            rows.with(|rows| {
                rows.values().map(|held| (held.row.clone(), held.stale_since.is_some())).collect()
            }),
        )
    }

    fn take(&mut self, seen: Vec<(Arc<R>, bool)>) -> Touched {
        let others = self.few_others(&seen);
        match others {
            Some(others) => {
                for now in &others {
                    if let Some(slot) = self.by_node.get_mut(now.node()) {
                        *slot = now.clone();
                    }
                }
                self.seen = seen;
                Touched::Few(others.iter().map(|now| now.node().to_owned()).collect())
            }
            None => {
                self.put_together(seen);
                Touched::All
            }
        }
    }

    /// The objects that have changed, if they are few and each stands for the node that it stood for.
    fn few_others(&self, seen: &[(Arc<R>, bool)]) -> Option<Vec<Arc<R>>> {
        if seen.len() != self.seen.len() {
            return None;
        }
        let changed =
            seen.iter().zip(&self.seen).filter(|(now, was)| !Arc::ptr_eq(&now.0, &was.0) || now.1 != was.1);
        let mut others = Vec::new();
        for ((now, stale), (was, was_stale)) in changed {
            let stands = |one: &Arc<R>| self.by_node.get(was.node()).is_some_and(|of| Arc::ptr_eq(of, one));
            let is_same = (now.name(), now.node(), now.is_ours(), stale)
                == (was.name(), was.node(), was.is_ours(), was_stale);
            if others.len() == FEW || !is_same || !stands(was) {
                return None;
            }
            others.push(now.clone());
        }
        Some(others)
    }

    fn put_together(&mut self, seen: Vec<(Arc<R>, bool)>) {
        self.by_node.clear();
        for (row, _) in seen.iter().filter(|(_, stale)| R::LASTS || !stale) {
            match self.by_node.get_mut(row.node()) {
                Some(first) if row.is_ours() && !first.is_ours() => *first = row.clone(),
                Some(_) => {}
                None => drop(self.by_node.insert(row.node().to_owned(), row.clone())),
            }
        }
        self.names = seen.iter().map(|(row, _)| (row.name().to_owned(), row.node().to_owned())).collect();
        self.seen = seen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq)]
    struct Some3 {
        name: String,
        node: String,
        ours: bool,
        version: u32,
    }

    impl OfNode for Some3 {
        const LASTS: bool = false;

        fn name(&self) -> &str {
            &self.name
        }

        fn node(&self) -> &str {
            &self.node
        }

        fn is_ours(&self) -> bool {
            self.ours
        }
    }

    proptest! {
        #[test]
        fn the_objects_are_those_that_would_be_read_anew(
            looks in prop::collection::vec(prop::collection::vec((0_u8..60, 0_u8..50, 0_u8..8, any::<bool>()), 0..12), 1..12)
        ) {
            let mut there: BTreeMap<u8, (Arc<Some3>, bool)> = BTreeMap::new();
            let mut objects = Objects::default();
            for (version, look) in (0_u32..).zip(looks) {
                let before: BTreeMap<String, Arc<Some3>> = objects.by_node().clone();
                for (name, node, what, ours) in look {
                    // Mostly an object stays with its node, as it does in a cluster.
                    let node = if what == 7 { node } else { name.min(49) };
                    let object = Some3 { name: format!("o{name}"), node: format!("n{node}"), ours, version };
                    match what {
                        6 => drop(there.remove(&name)),
                        5 => if let Some((_, stale)) = there.get_mut(&name) { *stale = true },
                        _ => drop(there.insert(name, (Arc::new(object), false))),
                    }
                }
                let touched = objects.take(there.values().cloned().collect());
                let mut anew = Objects::default();
                anew.put_together(there.values().cloned().collect());
                prop_assert_eq!(objects.by_node(), anew.by_node());
                prop_assert_eq!(&objects.names, &anew.names);
                if let Touched::Few(nodes) = touched {
                    for (node, object) in objects.by_node() {
                        prop_assert!(nodes.contains(node) || before.get(node) == Some(object), "{node} is told");
                    }
                }
            }
        }
    }
}
