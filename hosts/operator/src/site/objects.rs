//! The objects of one kind by their nodes. They are kept from look to look, because of thousands mostly one has
//! changed.

use crate::rows::{GrantSeen, HardwareSeen, ProfileSeen, TwinSeen};
use host_kit::reflect::{CachedRow, ObjectKey, RowChange, RowChanges};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An object that describes a node.
pub(crate) trait OfNode {
    /// Whether its last readable content still counts when it cannot be read any more.
    const LASTS: bool;
    /// Its own name, if it is needed.
    fn name(&self) -> &str;
    /// The node.
    fn node(&self) -> &str;
    /// Whether the operator wrote it.
    fn is_ours(&self) -> bool;
}

impl OfNode for HardwareSeen {
    // The hardware of a node stays the same when its object becomes unreadable.
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

impl OfNode for GrantSeen {
    // Its last readable content still counts.
    const LASTS: bool = true;

    fn name(&self) -> &str {
        &self.name
    }

    fn node(&self) -> &str {
        &self.node
    }

    fn is_ours(&self) -> bool {
        true
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
                &self.state.node
            }

            fn is_ours(&self) -> bool {
                self.state.ours
            }
        }
    };
}

of_state!(ProfileSeen);
of_state!(TwinSeen);

/// The nodes whose objects have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// These.
    Few(BTreeSet<String>),
    /// All nodes, perhaps.
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

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Objects<R> {
    by_node: BTreeMap<String, Arc<R>>,
    /// The nodes, by the objects' names.
    names: BTreeMap<String, String>,
}

impl<R> Default for Objects<R> {
    fn default() -> Self {
        Self { by_node: BTreeMap::new(), names: BTreeMap::new() }
    }
}

impl<R: OfNode> Objects<R> {
    /// The objects by their nodes, including deleted nodes. If a node has several, the operator's own counts, else the
    /// first by name.
    pub(crate) const fn by_node(&self) -> &BTreeMap<String, Arc<R>> {
        &self.by_node
    }

    /// The object of this node.
    pub(crate) fn get(&self, node: &str) -> Option<&Arc<R>> {
        self.by_node.get(node)
    }

    /// The node whose object has this name.
    pub(super) fn holder(&self, name: &str) -> Option<&str> {
        self.names.get(name).map(String::as_str)
    }

    /// Takes in what has changed.
    pub(super) fn take(&mut self, news: &RowChanges<'_, R>) -> Touched {
        match news.changes.as_ref().and_then(|changes| self.replacements(changes)) {
            Some(others) => {
                let nodes = others.iter().map(|now| now.node().to_owned()).collect();
                for now in others {
                    if let Some(slot) = self.by_node.get_mut(now.node()) {
                        *slot = now.clone();
                    }
                }
                Touched::Few(nodes)
            }
            None => {
                self.put_together(news.rows);
                Touched::All
            }
        }
    }

    /// The objects that have changed, if each is still the one that counts for its node.
    fn replacements<'a>(&self, changes: &[RowChange<'a, R>]) -> Option<Vec<&'a Arc<R>>> {
        let mut others = Vec::new();
        for change in changes {
            match (change.before, change.now) {
                (None, None) => {}
                (Some(was), Some(now)) => {
                    let stands = self.by_node.get(was.row.node());
                    if tells(was) != tells(now) || !stands.is_some_and(|row| Arc::ptr_eq(row, &was.row)) {
                        return None;
                    }
                    others.push(&now.row);
                }
                (Some(_), None) | (None, Some(_)) => return None,
            }
        }
        Some(others)
    }

    fn put_together(&mut self, rows: &BTreeMap<ObjectKey, CachedRow<R>>) {
        self.by_node.clear();
        for row in rows.values().filter(|held| R::LASTS || held.stale_since.is_none()).map(|held| &held.row) {
            match self.by_node.get_mut(row.node()) {
                Some(first) if row.is_ours() && !first.is_ours() => *first = row.clone(),
                Some(_) => {}
                None => drop(self.by_node.insert(row.node().to_owned(), row.clone())),
            }
        }
        let names = rows.values().map(|held| (held.row.name().to_owned(), held.row.node().to_owned()));
        self.names = names.collect();
    }
}

/// The node of a row, whether the operator wrote it, and whether it is from before the object became unreadable.
fn tells<R: OfNode>(held: &CachedRow<R>) -> (&str, bool, bool) {
    (held.row.node(), held.row.is_ours(), held.stale_since.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::{Row, by_hand};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[derive(Debug, PartialEq)]
    struct Some3 {
        name: String,
        node: String,
        ours: bool,
        version: u64,
    }

    impl Row for Some3 {
        const KIND: &'static str = "somethings";
        const OWNERS: bool = false;

        fn read(object: &Value) -> Result<Self, String> {
            Ok(Self {
                name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                node: object["node"].as_str().ok_or("it has no node")?.to_owned(),
                ours: object["ours"] == true,
                version: object["version"].as_u64().unwrap_or_default(),
            })
        }
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
            let (mut server, mut rows) = by_hand::<Some3>();
            let mut objects = Objects::default();
            for (version, look) in (0_u32..).zip(looks) {
                let before: BTreeMap<String, Arc<Some3>> = objects.by_node().clone();
                for (name, node, what, ours) in look {
                    // Mostly an object stays with its node, as in a real cluster.
                    let node = if what == 7 { node } else { name.min(49) };
                    let node = json!(format!("n{node}"));
                    let node = if what == 5 { json!(null) } else { node };
                    let object = json!({"metadata": {"name": format!("o{name}")}, "node": node, "ours": ours, "version": version});
                    if what == 6 { server.delete(&object) } else { server.apply(&object) }
                }
                let touched = rows.news(|news| objects.take(&news)).unwrap_or(Touched::NOTHING);
                let mut anew = Objects::default();
                rows.with(|rows| anew.put_together(rows));
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
