//! Node names, and the numbers that represent them.
//!
//! A node keeps its number as long as anything is known of it, so that data that is stored by number can be carried
//! from one snapshot to the next. A free number is given to the next new node.

use joulie_core::placement::assumed::{NodeKey, PodUid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Assigns the numbers.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    names: Vec<Option<Arc<str>>>,
    numbers: BTreeMap<Arc<str>, u32>,
    free: Vec<u32>,
    /// Changes whenever a name is added or removed.
    revision: u64,
}

impl Registry {
    /// The number of a node; assigns one if it has none.
    pub(crate) fn number(&mut self, name: &str) -> NodeKey {
        if let Some(&number) = self.numbers.get(name) {
            return NodeKey(number);
        }
        self.revision = self.revision.wrapping_add(1);
        let name: Arc<str> = name.into();
        let number = self.free.pop().unwrap_or_else(|| {
            self.names.push(None);
            u32::try_from(self.names.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(slot) = usize::try_from(number).ok().and_then(|at| self.names.get_mut(at)) {
            *slot = Some(name.clone());
        }
        self.numbers.insert(name, number);
        NodeKey(number)
    }

    /// The number of a node, if it has one.
    pub(crate) fn find(&self, name: &str) -> Option<NodeKey> {
        self.numbers.get(name).copied().map(NodeKey)
    }

    /// Frees the numbers of the nodes for which `is_known` returns false, and returns these numbers.
    pub(crate) fn retain(&mut self, is_known: impl Fn(&str, NodeKey) -> bool) -> Vec<NodeKey> {
        let mut gone = Vec::new();
        self.numbers.retain(|name, &mut number| {
            let keeps = is_known(name, NodeKey(number));
            if !keeps {
                gone.push(NodeKey(number));
            }
            keeps
        });
        for &NodeKey(number) in &gone {
            self.revision = self.revision.wrapping_add(1);
            self.free.push(number);
            if let Some(slot) = usize::try_from(number).ok().and_then(|at| self.names.get_mut(at)) {
                *slot = None;
            }
        }
        gone
    }

    /// How many numbers exist, including free ones.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// All names with their numbers, in the order of the names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, NodeKey)> {
        self.numbers.iter().map(|(name, &number)| (&**name, NodeKey(number)))
    }
}

/// Finds numbers by names. It is immutable.
///
/// Two small tables and no texts: for some thousand nodes both stay in the processor's caches, which texts would not.
/// A name is represented by its *fingerprint* of 64 bits. Among 5,000 nodes two have the same fingerprint in one of
/// 10¹² clusters; an unknown name is taken for a known one in one of 10¹⁹ look-ups. Whoever names nodes is trusted.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The size is a power of two, at most half of it is used; an empty slot holds `NOBODY`.
    slots: Box<[u32]>,
    /// By node number.
    fingerprints: Box<[u64]>,
}

const NOBODY: u32 = u32::MAX;

/// How many names are looked up together.
pub(crate) const AT_ONCE: usize = 64;

impl Index {
    pub(crate) fn of(registry: &Registry) -> Self {
        let wanted = registry.numbers.len().saturating_mul(2).max(2).next_power_of_two();
        let mut slots = vec![NOBODY; wanted].into_boxed_slice();
        let mut fingerprints = vec![0; registry.names.len()].into_boxed_slice();
        for ((name, kept), number) in registry.names.iter().zip(&mut fingerprints).zip(0..) {
            let Some(name) = name else { continue };
            *kept = fingerprint(name.as_bytes());
            let mut at = place(*kept, wanted);
            while slots.get(at).is_some_and(|&there| there != NOBODY) {
                at = (at + 1) & (wanted - 1);
            }
            if let Some(slot) = slots.get_mut(at) {
                *slot = number;
            }
        }
        Self { slots, fingerprints }
    }

    /// The number of a node, as an index into a list.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        known(self.find_fingerprint(fingerprint(name)))
    }

    /// The numbers of up to [`AT_ONCE`] nodes. It computes all fingerprints first and finds all numbers then: a
    /// look-up waits for memory, and without other work in between the processor waits for many of them at once.
    #[inline]
    pub(crate) fn find_all<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> Numbers {
        let (mut fingerprints, mut count) = ([0; AT_ONCE], 0);
        for (to, name) in fingerprints.iter_mut().zip(names) {
            *to = fingerprint(name);
            count += 1;
        }
        let mut numbers = Numbers([NOBODY; AT_ONCE]);
        for (number, fingerprint) in numbers.0.iter_mut().zip(fingerprints).take(count) {
            *number = self.find_fingerprint(fingerprint);
        }
        numbers
    }

    #[inline]
    fn find_fingerprint(&self, fingerprint: u64) -> u32 {
        let mut at = place(fingerprint, self.slots.len());
        while let Some(&number) = self.slots.get(at) {
            // `NOBODY` has no fingerprint.
            match usize::try_from(number).ok().and_then(|number| self.fingerprints.get(number)) {
                Some(&known) if known == fingerprint => return number,
                Some(_) => at = (at + 1) & (self.slots.len() - 1),
                None => break,
            }
        }
        NOBODY
    }
}

/// The result of looking up several nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers([u32; AT_ONCE]);

impl Numbers {
    pub(crate) const NONE: Self = Self([NOBODY; AT_ONCE]);

    /// All numbers, as indices into a list.
    #[inline]
    pub(crate) fn each(&self) -> impl Iterator<Item = Option<usize>> {
        self.0.iter().copied().map(known)
    }

    /// One of the numbers, as an index into a list.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> Option<usize> {
        self.0.get(place).copied().and_then(known)
    }
}

#[inline]
fn known(number: u32) -> Option<usize> {
    if number == NOBODY { None } else { usize::try_from(number).ok() }
}

fn place(fingerprint: u64, slots: usize) -> usize {
    usize::try_from(fingerprint & u64::from(u32::MAX)).unwrap_or(0) & slots.wrapping_sub(1)
}

/// Mixes sixteen bytes at a time; the last sixteen may overlap the ones before.
#[inline]
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    let length = u64::try_from(bytes.len()).unwrap_or(0);
    let mut state = (KEYS[2] ^ length.wrapping_mul(KEYS[0]), KEYS[1]);
    let last = match bytes.last_chunk::<16>() {
        Some(last) => {
            let (mut blocks, _) = bytes.as_chunks::<16>();
            // Node names of cloud providers have this many bytes, and a loop would cost more.
            if let [first, second, others @ ..] = blocks {
                state = mixed(second, mixed(first, state));
                blocks = others;
            }
            for block in blocks {
                state = mixed(block, state);
            }
            *last
        }
        None => {
            let mut short = [0_u8; 16];
            short.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            short
        }
    };
    let (low, high) = mixed(&last, state);
    low ^ high
}

/// A pseudo-random number that is always the same for the same node and pod.
pub(crate) fn draw(name: &[u8], pod: PodUid) -> u64 {
    let (low, high) = mixed(&pod.0.to_le_bytes(), (fingerprint(name), KEYS[2]));
    low ^ high
}

const KEYS: [u64; 3] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93, 0xA076_1D64_78BD_642F];

/// Both halves of the product are kept. A factor of zero would erase the other factor: one of 2⁶³ blocks makes it
/// zero.
#[inline]
fn mixed(block: &[u8; 16], (low, high): (u64, u64)) -> (u64, u64) {
    let (one, other) = halves(u128::from_le_bytes(*block));
    halves(u128::from(one ^ low).wrapping_mul(u128::from(other ^ high)))
}

#[inline]
fn halves(wide: u128) -> (u64, u64) {
    let low = u64::try_from(wide & u128::from(u64::MAX)).unwrap_or(0);
    (low, u64::try_from(wide >> 64).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_number_until_nothing_is_known_of_it() {
        let mut registry = Registry::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| registry.number(name));
        assert_eq!((a, b, c), (NodeKey(0), NodeKey(1), NodeKey(2)));
        let revision = registry.revision();
        assert_eq!(registry.number("b"), b);
        assert_eq!(registry.revision(), revision);
        assert_eq!(registry.retain(|name, _| name != "b"), [b]);
        assert_ne!(registry.revision(), revision);
        assert_eq!(registry.number("d"), b, "a free number is used again");
        assert_eq!((registry.number("c"), registry.len()), (c, 3));
        assert_eq!(registry.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "c", "d"]);
    }

    #[test]
    fn every_name_is_found_and_no_other() {
        let mut registry = Registry::default();
        let names: Vec<String> = (0..3000).map(|n| format!("ip-10-0-{n}.compute.internal")).collect();
        for name in &names {
            registry.number(name);
        }
        registry.retain(|name, _| !name.contains("-7"));
        let index = Index::of(&registry);
        for (name, number) in names.iter().zip(0_usize..) {
            let expected = (!name.contains("-7")).then_some(number);
            assert_eq!(index.find(name.as_bytes()), expected, "{name}");
        }
        for some in names.chunks(AT_ONCE) {
            let numbers = index.find_all(some.iter().map(|name| name.as_bytes()));
            let one_by_one = some.iter().map(|name| index.find(name.as_bytes()));
            assert!((0..some.len()).map(|place| numbers.at(place)).eq(one_by_one));
        }
        for name in ["", "ip-10-0-1.compute.interna", "ip-10-0-1.compute.internal ", "x"] {
            assert_eq!(index.find(name.as_bytes()), None, "{name}");
        }
        assert_eq!(Index::of(&Registry::default()).find(b"a"), None);
        assert_eq!(Index::default().find(b"a"), None);
    }
}
