//! The cards of a node by what a filter looks at: cards that are alike together, and cards of one island together.
//!
//! A filter asks thousands of nodes the same question, and a node's cards are of a few kinds. What does not depend on the
//! question is done once for each node: which cards are alike, whether two rows are of one card, and which cards are of one
//! island. Then a question costs a few comparisons for each kind of card. The answer is that of [`fits`](super::fits), which
//! takes each card for itself: both are counted by the same code.

use super::{CARDS_MAX, GpuPhase, GpuRequest, Model, PhysicalGpu, Reject, Vram, doubled, numbered};

/// Cards of a node that are alike to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlikeCards {
    /// Bit `i` is for the `i`-th card of the node.
    cards: u64,
    model: Option<Model>,
    /// Their memory; `None` unless it is known for certain what the cards are and who has them.
    vram: Option<Vram>,
    is_available: bool,
}

// Two rows, for cards that are free and for those in use, of each of thousands of nodes stay in the processor's caches.
const _: () = assert!(size_of::<AlikeCards>() <= 32);

impl AlikeCards {
    fn of(bit: u64, card: &PhysicalGpu, doubled: u64) -> Self {
        let is_certain = card.phase != GpuPhase::Unknown && doubled & bit == 0;
        Self {
            cards: bit,
            model: card.model,
            vram: card.vram.filter(|vram| is_certain && vram.free_mb().is_some()),
            is_available: card.phase == GpuPhase::Available,
        }
    }

    fn is_like(self, other: Self) -> bool {
        Self { cards: other.cards, ..self } == other
    }
}

/// Each card of a node for itself.
pub(super) fn each(cards: &[PhysicalGpu]) -> impl Iterator<Item = AlikeCards> + Clone + '_ {
    let doubled = doubled(cards);
    numbered(cards).map(move |(bit, card)| AlikeCards::of(bit, card, doubled))
}

/// The cards of a node, those that are alike together.
pub fn alike(cards: &[PhysicalGpu]) -> impl Iterator<Item = AlikeCards> + '_ {
    let each = each(cards);
    let all = each.clone();
    each.filter_map(move |one| {
        let before = all.clone().take_while(|other| other.cards != one.cards).any(|other| other.is_like(one));
        let joined =
            || all.clone().filter(|other| other.is_like(one)).fold(0, |set, other| set | other.cards);
        (!before).then(|| AlikeCards { cards: joined(), ..one })
    })
}

/// The islands of a node, each as the set of its cards.
pub fn island_sets(cards: &[PhysicalGpu]) -> impl Iterator<Item = u64> + Clone + '_ {
    numbered(cards).filter_map(move |(own, card)| {
        let island = card.island?;
        let is_of = move |(_, other): &(u64, &PhysicalGpu)| other.island == Some(island);
        let before = numbered(cards).take_while(|(bit, _)| *bit != own).any(|one| is_of(&one));
        (!before).then(|| numbered(cards).filter(is_of).fold(0, |set, (bit, _)| set | bit))
    })
}

/// The cards of a node, grouped beforehand.
#[derive(Clone, Copy, Debug)]
pub struct GroupedCards<'a> {
    /// How many there are.
    pub count: usize,
    /// What [`alike`] says of them.
    pub alike: &'a [AlikeCards],
    /// What [`island_sets`] says of them.
    pub islands: &'a [u64],
}

impl GroupedCards<'_> {
    /// No cards.
    pub const NONE: Self = Self { count: 0, alike: &[], islands: &[] };

    /// What [`fits`](super::fits) says of these cards.
    ///
    /// # Errors
    /// Why the node cannot take the pod.
    #[inline]
    pub fn fits(self, ask: GpuRequest) -> Result<(), Reject> {
        eligible(ask, self.count, self.alike.iter().copied(), self.islands.iter().copied()).map(|_| ())
    }
}

/// The cards that pass each of the successive tests, as sets.
#[derive(Clone, Copy, Default)]
struct Passed {
    of_model: u64,
    known: u64,
    large: u64,
    available: u64,
    free: u64,
}

impl Passed {
    #[inline]
    fn of(ask: GpuRequest, cards: impl Iterator<Item = AlikeCards>) -> Self {
        let mut passed = Self::default();
        for one in cards {
            if !ask.may_take(one.model) {
                continue;
            }
            passed.of_model |= one.cards;
            let known_model = ask.models().is_none() || one.model.is_some();
            let Some(vram) = one.vram.filter(|_| known_model) else { continue };
            passed.known |= one.cards;
            let need = ask.need_mb(vram);
            if need > vram.total_mb() {
                continue;
            }
            passed.large |= one.cards;
            if !one.is_available {
                continue;
            }
            passed.available |= one.cards;
            if vram.free_mb().is_some_and(|left| need <= left) {
                passed.free |= one.cards;
            }
        }
        passed
    }
}

/// The cards that can take the pod, if they are enough.
#[inline]
pub(super) fn eligible(
    ask: GpuRequest,
    all: usize,
    cards: impl Iterator<Item = AlikeCards>,
    islands: impl Iterator<Item = u64> + Clone,
) -> Result<u64, Reject> {
    if all == 0 {
        return Err(Reject::NoCards);
    }
    if all > CARDS_MAX {
        return Err(Reject::TooManyCards);
    }
    let Passed { of_model, known, large, available, free } = Passed::of(ask, cards);
    let (count, lacks) = (ask.count(), |set: u64| set.count_ones() < ask.count());
    match () {
        () if lacks(of_model) => Err(Reject::Model { have: of_model.count_ones() }),
        () if lacks(known) => Err(Reject::Unknown { have: known.count_ones() }),
        () if lacks(large) => Err(Reject::TooSmall { have: large.count_ones() }),
        () if ask.needs_island() => within_island(count, islands, (large, free)),
        () if lacks(available) => Err(Reject::Allocated { have: available.count_ones() }),
        () if lacks(free) => Err(Reject::Vram { have: free.count_ones() }),
        () => Ok(free),
    }
}

/// The eligible cards of the islands that have enough of them.
fn within_island(
    count: u32,
    islands: impl Iterator<Item = u64> + Clone,
    (suitable, eligible): (u64, u64),
) -> Result<u64, Reject> {
    let (_, most) = joined(count, islands.clone(), suitable);
    if most < count {
        return Err(Reject::NoIsland { have: most });
    }
    let (enough, most) = joined(count, islands, eligible);
    if most < count { Err(Reject::Island { have: most }) } else { Ok(enough) }
}

/// The cards of a set that have `count` or more of the set in their island, and the most that any island has.
fn joined(count: u32, islands: impl Iterator<Item = u64>, set: u64) -> (u64, u32) {
    islands.fold((0, 0), |(enough, most), island| {
        let members = island & set;
        let has_enough = members.count_ones() >= count;
        (if has_enough { enough | members } else { enough }, most.max(members.count_ones()))
    })
}
