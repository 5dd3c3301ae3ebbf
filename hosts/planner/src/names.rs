//! Texts that are often shared, such as names of nodes. Reading each text through its pointer would dominate a pass,
//! so texts at the same address are equal without being read.

use std::cmp::Ordering;

/// Whether two texts are at the same address; equal texts need not be.
#[must_use]
pub fn is_same(a: &str, b: &str) -> bool {
    std::ptr::eq(a, b)
}

/// Compares two texts.
fn compare(a: &str, b: &str) -> Ordering {
    if is_same(a, b) { Ordering::Equal } else { a.cmp(b) }
}

/// Values joined to a list of nodes by index, and values of other names.
#[derive(Clone, Debug)]
pub struct Beside<'a, T> {
    at: Vec<Option<T>>,
    others: Vec<(&'a str, T)>,
}

impl<'a, T: Copy> Beside<'a, T> {
    /// Nodes and values must be sorted by name, each name once.
    pub fn new<'n>(
        nodes: impl ExactSizeIterator<Item = &'n str>,
        things: impl Iterator<Item = (&'a str, T)>,
    ) -> Self {
        let (mut at, mut others) = (Vec::with_capacity(nodes.len()), Vec::new());
        let mut things = things.peekable();
        for node in nodes {
            let found = loop {
                let Some(&(name, thing)) = things.peek() else { break None };
                match compare(name, node) {
                    Ordering::Less => others.extend(things.next()),
                    Ordering::Equal => {
                        things.next();
                        break Some(thing);
                    }
                    Ordering::Greater => break None,
                }
            };
            at.push(found);
        }
        others.extend(things);
        Self { at, others }
    }

    /// The value of the node at this index.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<T> {
        self.at.get(place).copied().flatten()
    }

    /// The values of the nodes, in their order.
    pub fn each(&self) -> impl Iterator<Item = Option<T>> {
        self.at.iter().copied()
    }

    /// The values of other names.
    #[must_use]
    pub fn others(&self) -> &[(&'a str, T)] {
        &self.others
    }

    /// The value of one of the other names.
    #[must_use]
    pub fn other(&self, name: &str) -> Option<T> {
        let found = self.others.binary_search_by_key(&name, |&(other, _)| other);
        found.ok().and_then(|at| self.others.get(at)).map(|&(_, thing)| thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn what_is_beside_a_node_is_what_has_its_name(
            nodes in prop::collection::btree_set("[a-c]{0,3}", 0..20),
            things in prop::collection::btree_map("[a-c]{0,3}", any::<u8>(), 0..20),
        ) {
            // Some names are the same text in memory, and some are only equal.
            let shared = things.iter().map(|(name, &thing)| match nodes.get(name) {
                Some(same) if thing % 2 == 0 => (same.as_str(), thing),
                Some(_) | None => (name.as_str(), thing),
            });
            let beside = Beside::new(nodes.iter().map(String::as_str).collect::<Vec<_>>().into_iter(), shared);
            for (at, node) in nodes.iter().enumerate() {
                prop_assert_eq!(beside.at(at), things.get(node).copied());
                prop_assert_eq!(beside.other(node), None);
            }
            let others: BTreeMap<&String, u8> =
                things.iter().filter(|(name, _)| !nodes.contains(*name)).map(|(name, &thing)| (name, thing)).collect();
            prop_assert_eq!(beside.others().len(), others.len());
            for (name, thing) in others {
                prop_assert_eq!(beside.other(name), Some(thing));
            }
        }
    }
}
