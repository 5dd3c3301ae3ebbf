//! The names of objects. A name is for people; `spec.nodeName` identifies the object.
//!
//! The name of an object is the name of its node, in which every character except `a-z`, `0-9` and `-` is replaced by
//! `-`. Two nodes can give the same name (`w.1` and `w-1`); then the object of the later one has a suffix made of a
//! hash of the full name. So an object is always looked up by its `spec.nodeName`, never by a computed name, and an
//! existing object keeps its name, whoever chose it.

use std::collections::{BTreeMap, BTreeSet};

/// The longest name that the API server accepts.
const LENGTH_MAX: usize = 253;
/// A hyphen and ten digits.
const SUFFIX: usize = 11;

/// The plain name of an object: the sanitised name of its node. If that is empty or too long, it is the name with the
/// suffix.
#[must_use]
pub fn plain(node: &str) -> String {
    let name = sanitised(node);
    if name.is_empty() || name.len() > LENGTH_MAX { hashed(node) } else { name }
}

/// The name for a node whose plain name belongs to another node's object.
#[must_use]
pub fn hashed(node: &str) -> String {
    let mut name = sanitised(node);
    name.truncate(LENGTH_MAX - SUFFIX);
    let stem = name.trim_end_matches('-');
    let stem = if stem.is_empty() { "node" } else { stem };
    format!("{stem}-{:010x}", fnv1a(node) >> 24)
}

/// The name of the object of a node, which may exist already. `holder` returns the `spec.nodeName` of the object with a
/// given name.
#[must_use]
pub fn name_for<'a>(node: &str, holder: impl Fn(&str) -> Option<&'a str>) -> String {
    let plain = plain(node);
    match holder(&plain) {
        Some(other) if other != node => hashed(node),
        Some(_) | None => plain,
    }
}

/// The names of the objects of all nodes at once. `existing` are the present objects by name, with their
/// `spec.nodeName`. They keep their names; if a node has several, the first in order counts. The result does not depend
/// on any order.
#[must_use]
pub fn names_for<'a>(
    nodes: impl IntoIterator<Item = &'a str>,
    existing: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut own: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, node) in existing {
        own.entry(node).or_insert(name);
    }
    let nodes: BTreeSet<&str> = nodes.into_iter().collect();
    let mut sharing: BTreeMap<String, u32> = BTreeMap::new();
    for node in &nodes {
        *sharing.entry(plain(node)).or_default() += 1;
    }
    let name = |node: &str| {
        if let Some(name) = own.get(node) {
            return (*name).to_owned();
        }
        let plain = plain(node);
        // If several nodes give the same name, the node with exactly that name gets it; if there is none, nobody gets
        // it.
        let shared = sharing.get(&plain).is_some_and(|&count| count > 1) && plain != node;
        if shared || existing.contains_key(&plain) { hashed(node) } else { plain }
    };
    nodes.iter().map(|node| ((*node).to_owned(), name(node))).collect()
}

/// The name of the object of a GPU: the node's name and the card's, so that a list shows a node's cards together.
#[must_use]
pub fn gpu(node: &str, uuid: &str) -> String {
    let full = format!("{node}/{uuid}");
    let name = sanitised(&full);
    if name.is_empty() || name.len() > LENGTH_MAX { hashed(&full) } else { name }
}

fn sanitised(name: &str) -> String {
    let keep = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    let name: String = name.trim().chars().map(|c| keep(c.to_ascii_lowercase())).collect();
    name.trim_matches('-').to_owned()
}

/// FNV-1a: the same on every machine and in every version. Names are not secret, and if two hashes were equal, the
/// `spec.nodeName` would still distinguish the objects.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn objects(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(name, node)| (name.to_owned(), node.to_owned())).collect()
    }

    #[test]
    fn the_plain_name_is_the_sanitised_name_of_the_node() {
        for (node, name) in [
            ("Node-A", "node-a"),
            ("node.example.com", "node-example-com"),
            ("Node_B/x", "node-b-x"),
            ("-a-", "a"),
            (" a ", "a"),
            ("a@b", "a-b"),
        ] {
            assert_eq!(plain(node), name);
        }
    }

    #[test]
    fn a_node_with_dots_has_one_object_whoever_asks() {
        // Fix list operator B4: spec and status, operator and agent use the same name.
        // Fix list extender B30.
        let node = "ip-10-0-0-1.eu.compute.internal";
        let names = names_for([node], &BTreeMap::new());
        assert_eq!(names[node], "ip-10-0-0-1-eu-compute-internal");
        assert_eq!(names[node], plain(node));
        assert_eq!(names[node], name_for(node, |_| None));
        // The next pass finds what the first one created.
        assert_eq!(names_for([node], &objects(&[(names[node].as_str(), node)])), names);
    }

    #[test]
    fn a_hash_is_the_published_one() {
        // The test vectors of FNV-1a, 64 bits.
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(hashed("foobar"), "foobar-85944171f7");
    }

    #[test]
    fn a_name_that_is_nothing_or_too_long_is_still_a_name() {
        assert_eq!(plain("..."), hashed("..."));
        assert!(plain("...").starts_with("node-"));
        let long = format!("{}.a", "n".repeat(260));
        assert_eq!(plain(&long).len(), LENGTH_MAX);
        assert_ne!(plain(&long), plain(&format!("{}.b", "n".repeat(260))));
    }

    #[test]
    fn two_nodes_that_come_out_alike_never_share_an_object() {
        // Fix list operator B5: w-1 and w.1.
        let names = names_for(["w-1", "w.1"], &BTreeMap::new());
        assert_eq!(names["w-1"], "w-1");
        assert_eq!(names["w.1"], hashed("w.1"));
        assert_ne!(names["w.1"], names["w-1"]);
        let names = names_for(["w.1", "w_1"], &BTreeMap::new());
        assert_eq!((&names["w.1"], &names["w_1"]), (&hashed("w.1"), &hashed("w_1")));
    }

    #[test]
    fn an_object_that_exists_keeps_its_name_and_its_node() {
        // An operator of another generation named it node-w-1; a person chose the name of another one.
        let existing = objects(&[("node-w-1", "w.1"), ("mine", "b"), ("other", "b"), ("c", "elsewhere")]);
        let names = names_for(["w.1", "b", "c", "d"], &existing);
        assert_eq!(names["w.1"], "node-w-1");
        assert_eq!(names["b"], "mine");
        assert_eq!(names["c"], hashed("c"));
        assert_eq!(names["d"], "d");
    }

    #[test]
    fn one_node_alone_yields_to_whoever_has_the_plain_name() {
        assert_eq!(name_for("w.1", |_| None), "w-1");
        assert_eq!(name_for("w.1", |_| Some("w.1")), "w-1");
        assert_eq!(name_for("w.1", |name| (name == "w-1").then_some("w-1")), hashed("w.1"));
    }

    #[test]
    fn a_card_is_listed_with_its_node() {
        assert_eq!(gpu("n.1", "GPU-5C1B2F3A"), "n-1-gpu-5c1b2f3a");
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_the_api_server_takes(node in ".{0,300}") {
            for name in [plain(&node), hashed(&node), gpu(&node, "GPU-1")] {
                prop_assert!(!name.is_empty() && name.len() <= LENGTH_MAX);
                prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
                prop_assert!(!name.starts_with('-') && !name.ends_with('-'));
            }
        }

        #[test]
        fn names_are_distinct_and_do_not_depend_on_the_order(mut nodes in proptest::collection::btree_set("[a-b.-]{1,4}", 0..30)) {
            nodes.retain(|node| node.bytes().any(|b| b.is_ascii_alphanumeric()));
            let names = names_for(nodes.iter().map(String::as_str), &BTreeMap::new());
            let distinct: BTreeSet<&String> = names.values().collect();
            prop_assert_eq!(distinct.len(), nodes.len());
            let reversed = names_for(nodes.iter().rev().map(String::as_str), &BTreeMap::new());
            prop_assert_eq!(names, reversed);
        }
    }
}
