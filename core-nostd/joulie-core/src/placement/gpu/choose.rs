//! Chooses among the cards that can take a pod.

use super::{GpuRequest, Link, PhysicalGpu, all, numbered};

/// The most cards of one node that are considered.
pub const CARDS_MAX: usize = 64;

/// Chooses as many of the `eligible` cards as the pod asks for.
///
/// For one card, the best is the one with
/// 1. the least free VRAM, which leaves the least unused (**best fit**: larger gaps remain for larger pods; for a pod
///    that takes a whole card, it is the smallest card);
/// 2. the fewest eligible cards in its NVLink island, so that larger islands remain free;
/// 3. the smallest key.
///
/// For several cards, the best are those
/// 1. that are spread over the fewest islands: one, wherever one is large enough;
/// 2. whose islands have the fewest eligible cards, so the smallest island that suffices;
/// 3. with the least total free VRAM;
/// 4. with the smallest keys (the set that contains the smallest key in which the two differ).
///
/// With [`Link::None`] several are chosen as one card is, one after the other.
///
/// A card without NVLink counts as an island. The order of the slice does not matter. When fewer cards are eligible
/// than requested, none is chosen.
#[must_use]
pub fn choose(ask: GpuRequest, cards: &[PhysicalGpu], eligible: u64) -> u64 {
    let eligible = eligible & all(cards);
    if eligible.count_ones() == ask.count() {
        return eligible;
    }
    match (ask.count(), ask.link()) {
        (1, _) => choose_one(cards, eligible),
        (count, Link::None) => choose_each(count, cards, eligible),
        (count, Link::Required | Link::Preferred) => choose_several(count, cards, eligible),
    }
}

/// Each card by itself.
fn choose_each(count: u32, cards: &[PhysicalGpu], eligible: u64) -> u64 {
    if eligible.count_ones() < count {
        return 0;
    }
    let (mut left, mut chosen) = (eligible, 0);
    for _ in 0..count {
        let one = choose_one(cards, left);
        left &= !one;
        chosen |= one;
    }
    chosen
}

fn choose_one(cards: &[PhysicalGpu], eligible: u64) -> u64 {
    let ranked = numbered(cards).filter(|(bit, _)| eligible & bit != 0);
    let least = ranked.clone().map(|(_, card)| free_mb(card)).min();
    // Islands are counted only for those that are alike in this.
    ranked
        .filter(|(_, card)| Some(free_mb(card)) == least)
        .min_by_key(|(_, card)| (companions(card, cards, eligible), card.key))
        .map_or(0, |(bit, _)| bit)
}

fn free_mb(card: &PhysicalGpu) -> u32 {
    card.vram.and_then(|vram| vram.free_mb()).unwrap_or(0)
}

/// The number of eligible cards in its island, itself included.
fn companions(card: &PhysicalGpu, cards: &[PhysicalGpu], eligible: u64) -> u32 {
    let Some(island) = card.island else { return 1 };
    let joined = numbered(cards).filter(|(bit, other)| eligible & bit != 0 && other.island == Some(island));
    joined.fold(0, |sum, _| sum.saturating_add(1))
}

/// The cost of a set of cards, the most important field first. The costs of sets in different islands add up field by
/// field, and adding the same cost to two sets does not change their order: the search below relies on that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    islands: u32,
    /// The eligible cards in these islands.
    opened: u32,
    free_mb: u64,
    /// All bits except those of the set; the smallest key is the highest bit, so a set with smaller keys costs less.
    without: u64,
}

impl Cost {
    const NOTHING: Self = Self { islands: 0, opened: 0, free_mb: 0, without: u64::MAX };

    fn and(self, other: Self) -> Self {
        Self {
            islands: self.islands.saturating_add(other.islands),
            opened: self.opened.saturating_add(other.opened),
            free_mb: self.free_mb.saturating_add(other.free_mb),
            without: self.without & other.without,
        }
    }
}

/// The eligible cards, best first within their islands.
struct Deck {
    /// Island (a number of its own for a card without one), free VRAM, rank of the key, bit in the caller's slice.
    cards: [(u32, u32, u32, u64); CARDS_MAX],
    len: usize,
}

impl Deck {
    fn sorted(cards: &[PhysicalGpu], eligible: u64) -> Self {
        let mut deck = Self { cards: [(u32::MAX, u32::MAX, u32::MAX, 0); CARDS_MAX], len: 0 };
        for (bit, card) in numbered(cards).filter(|(bit, _)| eligible & bit != 0) {
            let before = numbered(cards).filter(|(b, other)| eligible & b != 0 && other.key < card.key);
            let rank = before.fold(0_u32, |sum, _| sum.saturating_add(1));
            let alone = rank.saturating_add(1 << 16);
            let island = card.island.map_or(alone, |island| u32::from(island.0));
            deck.insert((island, free_mb(card), rank, bit));
        }
        deck
    }

    /// Inserts a card in order; larger cards move one place up.
    fn insert(&mut self, card: (u32, u32, u32, u64)) {
        let mut carried = card;
        self.len = self.len.saturating_add(1);
        for slot in self.cards.iter_mut().take(self.len) {
            if carried < *slot {
                core::mem::swap(slot, &mut carried);
            }
        }
    }

    fn cards(&self) -> &[(u32, u32, u32, u64)] {
        self.cards.get(..self.len).unwrap_or(&[])
    }
}

/// Finds the best sets of every size, adding one island after the other. The best `n` cards of an island are its first
/// `n`.
fn choose_several(count: u32, cards: &[PhysicalGpu], eligible: u64) -> u64 {
    let Some(count) = usize::try_from(count).ok().filter(|&count| count <= CARDS_MAX) else { return 0 };
    let deck = Deck::sorted(cards, eligible);
    let mut best: [Option<Cost>; CARDS_MAX + 1] = [None; CARDS_MAX + 1];
    if let Some(none) = best.first_mut() {
        *none = Some(Cost::NOTHING);
    }
    let mut rest = deck.cards();
    while let Some((island, _, _, _)) = rest.first() {
        let len =
            rest.iter().take_while(|card| card.0 == *island).fold(0_usize, |sum, _| sum.saturating_add(1));
        take_from(rest.get(..len).unwrap_or(&[]), count, &mut best);
        rest = rest.get(len..).unwrap_or(&[]);
    }
    let Some(Some(found)) = best.get(count) else { return 0 };
    let chosen = deck.cards().iter().filter(|(_, _, rank, _)| found.without & high_bit(*rank) == 0);
    chosen.fold(0, |set, (_, _, _, bit)| set | bit)
}

fn high_bit(rank: u32) -> u64 {
    (1_u64 << 63).wrapping_shr(rank)
}

/// Improves the best sets by the first one, two, three … cards of one more island.
fn take_from(island: &[(u32, u32, u32, u64)], count: usize, best: &mut [Option<Cost>; CARDS_MAX + 1]) {
    // Larger sets first, so that the smaller sets they build on do not contain this island yet.
    for size in (1..=count).rev() {
        let mut adds =
            Cost { islands: 1, opened: u32::try_from(island.len()).unwrap_or(u32::MAX), ..Cost::NOTHING };
        let mut better = best.get(size).copied().flatten();
        for (taken, (_, free, rank, _)) in (1..=size).zip(island) {
            adds.free_mb = adds.free_mb.saturating_add(u64::from(*free));
            adds.without &= !high_bit(*rank);
            let rest = best.get(size.saturating_sub(taken)).copied().flatten();
            let sum = rest.map(|rest| rest.and(adds));
            better = match (better, sum) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        if let Some(slot) = best.get_mut(size) {
            *slot = better;
        }
    }
}
