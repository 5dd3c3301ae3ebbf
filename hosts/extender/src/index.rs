//! Names of nodes, and the numbers that stand for them.
//!
//! A node keeps its number for as long as anything is known of it, so that what is kept by number can be carried
//! from one snapshot to the next. A number that is free again is given to the next node.

use joulie_core::placement::assumed::{NodeKey, PodUid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who gives the numbers.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    names: Vec<Option<Arc<str>>>,
    numbers: BTreeMap<Arc<str>, u32>,
    free: Vec<u32>,
    /// Changes whenever a name comes or goes.
    revision: u64,
}

impl Registry {
    /// The number of a node, which is given to it now if it has none.
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

    /// The number of a node that has one.
    pub(crate) fn find(&self, name: &str) -> Option<NodeKey> {
        self.numbers.get(name).copied().map(NodeKey)
    }

    /// Takes the numbers of those back of which `is_known` says no, and returns them.
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

    /// How many numbers there are, free ones among them.
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

/// Finds numbers by names, without a change from then on.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// A power of two, at most half full; where nothing is, `EMPTY`.
    slots: Box<[Slot]>,
    /// All names, one behind the other.
    text: Box<[u8]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    number: u32,
    start: u32,
    length: u32,
}

const EMPTY: Slot = Slot { hash: 0, number: u32::MAX, start: 0, length: 0 };

impl Index {
    pub(crate) fn of(registry: &Registry) -> Self {
        let wanted = registry.numbers.len().saturating_mul(2).max(2).next_power_of_two();
        let mut slots = vec![EMPTY; wanted].into_boxed_slice();
        let mut text = Vec::new();
        for (name, NodeKey(number)) in registry.iter() {
            let hash = hash(name.as_bytes());
            let (start, length) = (u32::try_from(text.len()), u32::try_from(name.len()));
            let (Ok(start), Ok(length)) = (start, length) else { continue };
            text.extend_from_slice(name.as_bytes());
            let mut at = place(hash, wanted);
            while slots.get(at).is_some_and(|slot| slot.number != EMPTY.number) {
                at = (at + 1) & (wanted - 1);
            }
            if let Some(slot) = slots.get_mut(at) {
                *slot = Slot { hash, number, start, length };
            }
        }
        Self { slots, text: text.into_boxed_slice() }
    }

    /// The number of a node, as a place in a list.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let hash = hash(name);
        let mut at = place(hash, self.slots.len());
        loop {
            let slot = self.slots.get(at)?;
            if slot.number == EMPTY.number {
                return None;
            }
            if slot.hash == hash && self.text_of(slot).is_some_and(|known| same(known, name)) {
                return usize::try_from(slot.number).ok();
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn text_of(&self, slot: &Slot) -> Option<&[u8]> {
        let start = usize::try_from(slot.start).ok()?;
        self.text.get(start..start.checked_add(usize::try_from(slot.length).ok()?)?)
    }
}

/// Whether two names are the same, sixteen bytes at a time and without a branch between them; the last sixteen may overlap
/// those before.
#[inline]
fn same(one: &[u8], other: &[u8]) -> bool {
    let (Some(last), Some(other_last)) = (one.last_chunk::<16>(), other.last_chunk::<16>()) else {
        return one == other;
    };
    let differ = |one: &[u8; 16], other: &[u8; 16]| u128::from_ne_bytes(*one) ^ u128::from_ne_bytes(*other);
    let blocks = one.as_chunks::<16>().0.iter().zip(other.as_chunks::<16>().0);
    let differs = blocks.fold(differ(last, other_last), |sum, (one, other)| sum | differ(one, other));
    one.len() == other.len() && differs == 0
}

fn place(hash: u32, slots: usize) -> usize {
    usize::try_from(hash).unwrap_or(0) & slots.wrapping_sub(1)
}

/// Sixteen bytes at a time, multiplied to twice their width and folded; the last sixteen may overlap those before. Who
/// names nodes is trusted; who asks for names can at worst walk over as many slots as are next to each other.
#[inline]
fn hash(bytes: &[u8]) -> u32 {
    let length = u64::try_from(bytes.len()).unwrap_or(0);
    let mut state = KEYS[2] ^ length.wrapping_mul(KEYS[0]);
    let last = match bytes.last_chunk::<16>() {
        Some(last) => {
            for block in bytes.as_chunks::<16>().0 {
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
    let state = mixed(&last, state);
    u32::try_from((state ^ (state >> 32)) & u64::from(u32::MAX)).unwrap_or(0)
}

/// A number that is as good as drawn, and always the same for a node and a pod.
pub(crate) fn draw(name: &[u8], pod: PodUid) -> u64 {
    let mut block = pod.0.to_le_bytes();
    block.iter_mut().zip(hash(name).to_le_bytes()).for_each(|(to, from)| *to ^= from);
    mixed(&block, KEYS[2])
}

const KEYS: [u64; 3] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93, 0xA076_1D64_78BD_642F];

#[inline]
fn mixed(block: &[u8; 16], state: u64) -> u64 {
    let wide = u128::from_le_bytes(*block) ^ (u128::from(KEYS[1] ^ state) << 64) ^ u128::from(KEYS[0]);
    let (low, high) = halves(wide);
    let (low, high) = halves(u128::from(low).wrapping_mul(u128::from(high)));
    low ^ high
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
        for name in ["", "ip-10-0-1.compute.interna", "ip-10-0-1.compute.internal ", "x"] {
            assert_eq!(index.find(name.as_bytes()), None, "{name}");
        }
        assert_eq!(Index::of(&Registry::default()).find(b"a"), None);
        assert_eq!(Index::default().find(b"a"), None);
    }
}
