//! The GPUs that are connected by NVLink: the connected components over all active links, in which a switch is
//! a node like a card.

use power_hal::Key;
use std::collections::BTreeMap;

/// The islands of cards at `addresses`, where each link connects a card to the device at an address. Islands
/// are numbered in the order of their lowest address; a card without an NVLink connection to another card has
/// none.
pub(crate) fn islands(addresses: &[Option<Key>], links: &[(usize, Key)]) -> Vec<Option<u16>> {
    let mut root: BTreeMap<Key, Key> = BTreeMap::new();
    for address in addresses.iter().flatten() {
        root.insert(*address, *address);
    }
    for (from, to) in links {
        let Some(from) = addresses.get(*from).copied().flatten() else { continue };
        let (from, to) = (lowest(&root, from), lowest(&root, *to));
        let (low, high) = (from.min(to), from.max(to));
        root.insert(low, low);
        root.insert(high, low);
    }
    let mut members: BTreeMap<Key, Vec<Key>> = BTreeMap::new();
    for address in addresses.iter().flatten() {
        members.entry(lowest(&root, *address)).or_default().push(*address);
    }
    let mut joined: Vec<Vec<Key>> = members.into_values().filter(|cards| cards.len() > 1).collect();
    joined.sort_unstable_by_key(|cards| cards.iter().min().copied());
    let island = |address: &Option<Key>| {
        let at = joined.iter().position(|cards| address.is_some_and(|key| cards.contains(&key)))?;
        u16::try_from(at).ok()
    };
    addresses.iter().map(island).collect()
}

/// The current name of a node's component.
fn lowest(root: &BTreeMap<Key, Key>, node: Key) -> Key {
    let mut at = node;
    // Every step goes to a lower key, so the loop ends.
    while let Some(&next) = root.get(&at)
        && next < at
    {
        at = next;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bus: u8) -> Key {
        Key::gpu(&format!("0000:{bus:02x}:00.0")).unwrap()
    }

    fn cards(buses: &[u8]) -> Vec<Option<Key>> {
        buses.iter().map(|bus| Some(at(*bus))).collect()
    }

    #[test]
    fn cards_on_one_switch_are_one_island() {
        // An HGX board: every card to every switch.
        let links: Vec<_> = (0..4).flat_map(|card| [0xa0, 0xa1].map(|switch| (card, at(switch)))).collect();
        assert_eq!(islands(&cards(&[0x10, 0x20, 0x30, 0x40]), &links), [Some(0); 4]);
    }

    #[test]
    fn bridged_pairs_are_islands_numbered_by_their_lowest_address() {
        let links = [(0, at(0x20)), (2, at(0x10)), (1, at(0x40)), (3, at(0x20))];
        // 0x30 – 0x20 – 0x30 … : cards 30, 40, 20, 10; 30 joins 20, 20 joins 10, 40 joins itself.
        assert_eq!(islands(&cards(&[0x30, 0x40, 0x20, 0x10]), &links), [Some(0), None, Some(0), Some(0)]);
        let pairs = [(0, at(0x40)), (2, at(0x10))];
        assert_eq!(islands(&cards(&[0x30, 0x40, 0x20, 0x10]), &pairs), [Some(1), Some(1), Some(0), Some(0)]);
    }

    #[test]
    fn a_card_without_a_link_to_a_card_is_on_no_island() {
        assert_eq!(islands(&cards(&[0x10, 0x20]), &[]), [None, None]);
        // Each to a separate device, such as its CPU.
        assert_eq!(islands(&cards(&[0x10, 0x20]), &[(0, at(0xf0)), (1, at(0xf1))]), [None, None]);
        assert_eq!(islands(&[None, Some(at(0x20))], &[(0, at(0x20)), (9, at(0x20))]), [None, None]);
    }

    #[test]
    fn the_order_of_cards_and_links_does_not_matter() {
        let links = [(0, at(0xa1)), (1, at(0xa0)), (2, at(0xa0)), (3, at(0xa1)), (1, at(0x30))];
        let buses = [0x10, 0x20, 0x30, 0x40];
        let expected = islands(&cards(&buses), &links);
        assert_eq!(expected, [Some(0), Some(1), Some(1), Some(0)]);
        let turned: Vec<u8> = buses.iter().rev().copied().collect();
        let back: Vec<_> = links.iter().rev().map(|(card, to)| (3 - card, *to)).collect();
        let mut found = islands(&cards(&turned), &back);
        found.reverse();
        assert_eq!(found, expected);
    }
}
