//! Nodes written by hand, and every subset of up to eight random cards compared with the chosen one.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

const A100: Model = Model(1);
const T4: Model = Model(2);

fn card(key: u64, total: i64, allocated: i64) -> PhysicalGpu {
    let vram = Vram::read(Some(total), Some(allocated));
    PhysicalGpu { key, model: Some(A100), vram, island: None, phase: GpuPhase::Available }
}

fn on(island: u16, card: PhysicalGpu) -> PhysicalGpu {
    PhysicalGpu { island: Some(Island(island)), ..card }
}

fn ask(vram_mb: i64, count: i64) -> GpuRequest {
    GpuRequest::new(Some(A100), Some(vram_mb), count).unwrap()
}

fn whole(count: i64) -> GpuRequest {
    GpuRequest::new(Some(A100), None, count).unwrap()
}

fn chosen(ask: GpuRequest, cards: &[PhysicalGpu]) -> BTreeSet<u64> {
    let fit = fit(ask, cards).unwrap();
    numbered(cards).filter(|(bit, _)| fit.cards & bit != 0).map(|(_, card)| card.key).collect()
}

#[test]
fn the_number_of_cards_counts_and_not_only_that_there_is_one() {
    let cards = [card(1, 40_000, 0), card(2, 40_000, 20_000)];
    assert!(fit(ask(30_000, 1), &cards).is_ok());
    assert_eq!(fit(ask(30_000, 2), &cards), Err(Reject::Vram { have: 1 }));
    assert!(fit(ask(20_000, 2), &cards).is_ok());
    assert_eq!(fit(ask(1, 3), &cards), Err(Reject::Model { have: 2 }));
    assert_eq!(fit(ask(1, i64::from(u32::MAX)), &cards), Err(Reject::Model { have: 2 }));
}

#[test]
fn the_least_gap_is_taken() {
    let cards = [card(1, 80_000, 0), card(2, 40_000, 5_000), card(3, 40_000, 9_000), card(4, 40_000, 11_000)];
    assert_eq!(chosen(ask(30_000, 1), &cards), BTreeSet::from([3]));
    assert_eq!(chosen(ask(31_001, 1), &cards), BTreeSet::from([2]));
    assert_eq!(chosen(ask(30_000, 2), &cards), BTreeSet::from([2, 3]));
}

#[test]
fn a_pod_that_names_no_amount_takes_whole_cards_and_the_smallest() {
    let cards = [card(1, 80_000, 0), card(2, 40_000, 1), card(3, 40_000, 0)];
    assert_eq!(chosen(whole(1), &cards), BTreeSet::from([3]));
    assert_eq!(chosen(whole(2), &cards), BTreeSet::from([1, 3]));
    assert_eq!(fit(whole(3), &cards), Err(Reject::Vram { have: 2 }));
}

#[test]
fn one_island_that_is_just_large_enough_leaves_the_larger_one_whole() {
    let mut cards: Vec<PhysicalGpu> = (0..4).map(|key| on(0, card(key, 40_000, 0))).collect();
    cards.extend((4..6).map(|key| on(1, card(key, 40_000, 0))));
    cards.extend((6..8).map(|key| card(key, 40_000, 10_000)));
    assert_eq!(chosen(ask(30_000, 2), &cards), BTreeSet::from([4, 5]));
    assert_eq!(chosen(ask(30_000, 3), &cards), BTreeSet::from([0, 1, 2]));
    assert_eq!(chosen(ask(30_000, 4), &cards), BTreeSet::from([0, 1, 2, 3]));
    // Five need two islands: one of four and any one card; the single card opens least.
    assert_eq!(chosen(ask(30_000, 5), &cards), BTreeSet::from([0, 1, 2, 3, 6]));
    assert_eq!(chosen(ask(30_000, 6), &cards), BTreeSet::from([0, 1, 2, 3, 4, 5]));
    // One card closes the smallest gap first; among equal gaps it does not open an island.
    assert_eq!(chosen(ask(30_000, 1), &cards), BTreeSet::from([6]));
    assert_eq!(chosen(ask(35_000, 1), &cards), BTreeSet::from([4]));
}

#[test]
fn what_is_not_known_for_certain_is_no_fit() {
    let good = card(1, 40_000, 0);
    let unknown = [
        PhysicalGpu { phase: GpuPhase::Unknown, ..good },
        PhysicalGpu { vram: None, ..good },
        PhysicalGpu { model: None, ..good },
        card(1, 40_000, 40_001),
    ];
    for bad in unknown {
        assert_eq!(fit(ask(1, 1), &[bad]), Err(Reject::Unknown { have: 0 }), "{bad:?}");
        // A card with unknown data does not affect a valid one.
        assert_eq!(chosen(ask(1, 1), &[PhysicalGpu { key: 0, ..bad }, good]), BTreeSet::from([1]));
    }
    // Two rows of one card: it is not known which is correct.
    assert_eq!(fit(ask(1, 1), &[good, good]), Err(Reject::Unknown { have: 0 }));
    assert_eq!(chosen(ask(1, 1), &[good, card(2, 40_000, 0), card(1, 40_000, 39_000)]), BTreeSet::from([2]));
    // Keys that differ by 64 are of two cards.
    assert_eq!(chosen(ask(1, 2), &[card(1, 40_000, 0), card(65, 40_000, 0)]), BTreeSet::from([1, 65]));
    let once_more = [card(1, 40_000, 0), card(65, 40_000, 0), card(65, 40_000, 0)];
    assert_eq!(fit(ask(1, 2), &once_more), Err(Reject::Unknown { have: 1 }));
    // A pod that accepts any model takes a card of an unknown one.
    assert!(fit(GpuRequest::new(None, Some(1), 1).unwrap(), &[PhysicalGpu { model: None, ..good }]).is_ok());
}

#[test]
fn memory_that_cannot_be_is_unknown() {
    for (total, allocated) in [
        (None, Some(0)),
        (Some(40_000), None),
        (Some(0), Some(0)),
        (Some(-1), Some(0)),
        (Some(40_000), Some(-1)),
        (Some(i64::MAX), Some(0)),
        (Some(i64::from(u32::MAX) + 1), Some(0)),
    ] {
        assert_eq!(Vram::read(total, allocated), None, "{total:?} {allocated:?}");
    }
    assert_eq!(Vram::read(Some(10), Some(11)).unwrap().free_mb(), None);
    assert_eq!(Vram::read(Some(10), Some(10)).unwrap().free_mb(), Some(0));
    for text in ["available", "", "Free", "Available "] {
        assert_eq!(GpuPhase::read(text), GpuPhase::Unknown, "{text:?}");
    }
    assert_eq!(
        (GpuPhase::read("Available"), GpuPhase::read("Allocated")),
        (GpuPhase::Available, GpuPhase::Allocated)
    );
}

#[test]
fn an_ask_that_makes_no_sense_is_refused() {
    assert_eq!(GpuRequest::new(None, None, 0), Err(AskError::Count(0)));
    assert_eq!(GpuRequest::new(None, None, -8), Err(AskError::Count(-8)));
    assert_eq!(GpuRequest::new(None, Some(0), 1), Err(AskError::Vram(0)));
    assert_eq!(GpuRequest::new(None, Some(-30_000), 1), Err(AskError::Vram(-30_000)));
    assert_eq!(GpuRequest::new(None, Some(i64::MAX), 1), Err(AskError::Vram(i64::MAX)));
}

#[test]
fn a_rejection_names_the_first_test_that_too_few_pass_and_whether_preemption_may_help() {
    let busy = |key| PhysicalGpu { phase: GpuPhase::Allocated, ..card(key, 40_000, 0) };
    let t4 = |key| PhysicalGpu { model: Some(T4), ..card(key, 16_000, 0) };
    for (cards, ask, reject, preemptible) in [
        (vec![], ask(1, 1), Reject::NoCards, false),
        ((0..65).map(|key| card(key, 40_000, 0)).collect(), ask(1, 1), Reject::TooManyCards, false),
        (vec![t4(1), card(2, 40_000, 0)], ask(1, 2), Reject::Model { have: 1 }, false),
        (vec![card(1, 40_000, 0)], ask(40_001, 1), Reject::TooSmall { have: 0 }, false),
        (vec![busy(1), card(2, 40_000, 0)], ask(1, 2), Reject::Allocated { have: 1 }, true),
        (vec![card(1, 40_000, 30_000), card(2, 40_000, 0)], ask(20_000, 2), Reject::Vram { have: 1 }, true),
        (vec![card(1, 40_000, 0); 1], whole(2).linked(Link::Required), Reject::Model { have: 1 }, false),
    ] {
        assert_eq!(fit(ask, &cards), Err(reject));
        assert_eq!(reject.preemption_may_help(), preemptible, "{reject:?}");
    }
}

fn eight(free: u64, island: Option<u16>) -> Vec<PhysicalGpu> {
    let place = |key: u64| PhysicalGpu {
        island: island.map(Island),
        phase: if key < free { GpuPhase::Available } else { GpuPhase::Allocated },
        ..card(key, 40_000, if key < free { 0 } else { 1 })
    };
    (0..8).map(place).collect()
}

#[test]
fn packing_prefers_what_is_used_and_breaks_no_free_group() {
    // Article table, row 6.
    // Fix list article G7.
    let score = |ask, cards: &[PhysicalGpu]| fit(ask, cards).unwrap().score;
    // The last free card: 60 × 320 ÷ 320, 25 as the group was not free, 15 as nothing is left over.
    assert_eq!(score(whole(1), &eight(1, None)), 100);
    assert_eq!(score(whole(8), &eight(8, Some(0))), 100);
    // One of eight free cards: 60 × 30 ÷ 320 = 5.6, the group is broken, 15 × 30 ÷ 40 = 11.25.
    for island in [None, Some(0)] {
        assert_eq!(score(ask(30_000, 1), &eight(8, island)), 5 + 11);
    }
    // One of seven: 60 × (40 + 30) ÷ 320 = 13.1.
    assert_eq!(score(ask(30_000, 1), &eight(7, None)), 13 + 25 + 11);
    // Spread: 85 × 290 ÷ 320 = 77.03.
    assert_eq!(score(ask(30_000, 1).packed(Packing::Spread), &eight(8, None)), 77 + 11);
    // Cards of another model do not count: 60 × 40 ÷ 40.
    let mut mixed = vec![card(9, 40_000, 0)];
    mixed.extend(eight(8, None).iter().map(|card| PhysicalGpu { model: Some(T4), ..*card }));
    assert_eq!(score(whole(1), &mixed[..1]), 100);
    assert_eq!(score(whole(1), &mixed), 60 + 15, "the node's nine free cards are a group, which is broken");
}

#[test]
fn several_cards_score_by_their_links() {
    // Article table, row 5.
    let placed = |islands: [Option<u16>; 4]| -> Vec<PhysicalGpu> {
        let place = |(key, island): (u64, Option<u16>)| PhysicalGpu {
            island: island.map(Island),
            ..card(key, 40_000, 0)
        };
        (0..).zip(islands).map(place).collect()
    };
    // All four cards: 60 × 30 ÷ 40 = 45, nothing is broken, 6 × 30 ÷ 40 = 4, and 9, 9 × 2 ÷ 3 = 6 or 0 for the links.
    for (islands, links) in [([Some(0); 4], 9), ([Some(0), Some(1), Some(0), Some(1)], 6), ([None; 4], 0)] {
        assert_eq!(fit(ask(30_000, 4), &placed(islands)).unwrap().score, 45 + 25 + 4 + links);
    }
}

#[test]
fn required_links_are_one_island_or_nothing() {
    let linked = |count| whole(count).linked(Link::Required);
    let mut cards: Vec<PhysicalGpu> = (0..4).map(|key| on(0, card(key, 40_000, 0))).collect();
    cards.extend((4..8).map(|key| on(1, card(key, 40_000, 0))));
    assert_eq!(chosen(linked(4), &cards), BTreeSet::from([0, 1, 2, 3]));
    assert_eq!(fit(linked(5), &cards), Err(Reject::NoIsland { have: 4 }));
    assert!(fit(whole(5), &cards).is_ok(), "preferred links are no bound");
    cards[1].phase = GpuPhase::Allocated;
    assert_eq!(chosen(linked(4), &cards), BTreeSet::from([4, 5, 6, 7]));
    cards[5].phase = GpuPhase::Allocated;
    let reject = fit(linked(4), &cards).unwrap_err();
    assert_eq!(reject, Reject::Island { have: 3 });
    assert!(reject.preemption_may_help() && !Reject::NoIsland { have: 4 }.preemption_may_help());
    assert!(fit(whole(4), &cards).is_ok());
    // One card needs no link, and cards without links are no island.
    assert!(fit(linked(1), &[card(1, 40_000, 0)]).is_ok());
    assert_eq!(fit(linked(2), &[card(1, 40_000, 0), card(2, 40_000, 0)]), Err(Reject::NoIsland { have: 0 }));
    // Where links do not matter each card is the one that is chosen alone: the smallest gap first.
    let cards =
        [on(0, card(1, 40_000, 0)), on(0, card(2, 40_000, 0)), card(3, 32_000, 0), card(4, 80_000, 0)];
    assert_eq!(chosen(ask(30_000, 2).linked(Link::None), &cards), BTreeSet::from([1, 3]));
    assert_eq!(chosen(ask(30_000, 2), &cards), BTreeSet::from([1, 2]));
}

#[test]
fn a_set_of_models_takes_each_of_them_and_no_other() {
    let of = |models: ModelSet| whole(1).of(models);
    let both = ModelSet::EMPTY.with(A100).with(T4);
    let t4 = PhysicalGpu { model: Some(T4), ..card(1, 16_000, 0) };
    assert!(fit(of(both), &[t4]).is_ok() && fit(of(both), &[card(1, 40_000, 0)]).is_ok());
    assert_eq!(fit(of(ModelSet::EMPTY), &[t4]), Err(Reject::Model { have: 0 }));
    // More models than a set can name are in no set.
    let far = PhysicalGpu { model: Some(Model(128)), ..t4 };
    assert_eq!(fit(of(ModelSet::EMPTY.with(Model(128))), &[far]), Err(Reject::Model { have: 0 }));
    assert!(!ModelSet::EMPTY.with(Model(u32::MAX)).has(Model(u32::MAX)));
    assert!(ModelSet::EMPTY.with(Model(127)).has(Model(127)));
}

#[test]
fn sixty_four_cards_are_judged() {
    let cards: Vec<PhysicalGpu> =
        (0..64).map(|key| on(u16::try_from(key / 16).unwrap(), card(key, 40_000, 0))).collect();
    assert_eq!(fit(ask(1, 64), &cards).unwrap().cards, u64::MAX);
    assert_eq!(fit(ask(1, 16), &cards).unwrap().cards, 0xffff);
    assert_eq!(fit(ask(1, 17), &cards).unwrap().cards, 0x1_ffff);
    let loose: Vec<PhysicalGpu> = (0..64).map(|key| card(100 - key, 40_000, 0)).collect();
    assert_eq!(fit(ask(1, 63), &loose).unwrap().cards, u64::MAX - 1);
}

/// A set's cost as the documentation of [`choose`] defines it.
fn cost(ask: GpuRequest, cards: &[PhysicalGpu], fitting: u64, set: u64) -> (usize, usize, u64, Vec<u64>) {
    let of = |mask: u64| -> Vec<&PhysicalGpu> {
        numbered(cards).filter(|(bit, _)| mask & bit != 0).map(|(_, card)| card).collect()
    };
    let home = |card: &PhysicalGpu| card.island.map_or((1, card.key), |island| (0, u64::from(island.0)));
    let homes: BTreeSet<_> = of(set).into_iter().map(home).collect();
    let opened = of(fitting).into_iter().filter(|card| homes.contains(&home(card))).count();
    let free: u64 = of(set).into_iter().map(|card| u64::from(card.vram.unwrap().free_mb().unwrap())).sum();
    let mut keys: Vec<u64> = of(set).into_iter().map(|card| card.key).collect();
    keys.sort_unstable();
    if ask.count() == 1 {
        (0, 0, free, vec![opened as u64, keys[0]])
    } else {
        (homes.len(), opened, free, keys)
    }
}

fn takes(ask: GpuRequest, cards: &[PhysicalGpu], at: usize) -> bool {
    let card = cards[at];
    let single = cards.iter().filter(|other| other.key == card.key).count() == 1;
    let of_model = ask.models().is_none_or(|models| card.model.is_some_and(|model| models.has(model)));
    let room = card.vram.is_some_and(|vram| {
        i64::from(vram.total_mb()) - i64::from(vram.allocated_mb) >= i64::from(ask.need_mb(vram))
    });
    single && of_model && room && card.phase == GpuPhase::Available
}

/// Whether a node's cards can take a pod, test by test and card by card as the documentation says it.
fn by_the_book(ask: GpuRequest, cards: &[PhysicalGpu]) -> Result<(), Reject> {
    match cards.len() {
        0 => return Err(Reject::NoCards),
        1..=CARDS_MAX => {}
        _ => return Err(Reject::TooManyCards),
    }
    let count = |some: &[&PhysicalGpu]| u32::try_from(some.len()).unwrap();
    let of_model: Vec<&PhysicalGpu> = cards
        .iter()
        .filter(|card| match (ask.models(), card.model) {
            (Some(models), Some(model)) => models.has(model),
            (None, _) | (_, None) => true,
        })
        .collect();
    let is_known = |card: &&PhysicalGpu| {
        let rows = cards.iter().filter(|other| other.key == card.key).count();
        let has_model = ask.models().is_none() || card.model.is_some();
        let vram = card.vram.is_some_and(|vram| vram.allocated_mb <= vram.total_mb());
        rows == 1 && has_model && vram && card.phase != GpuPhase::Unknown
    };
    let known: Vec<&PhysicalGpu> = of_model.iter().copied().filter(is_known).collect();
    let need = |card: &PhysicalGpu| card.vram.map_or(0, |vram| ask.need_mb(vram));
    let is_large = |card: &&PhysicalGpu| need(card) <= card.vram.unwrap().total_mb();
    let large: Vec<&PhysicalGpu> = known.iter().copied().filter(is_large).collect();
    let is_available = |card: &&PhysicalGpu| card.phase == GpuPhase::Available;
    let available: Vec<&PhysicalGpu> = large.iter().copied().filter(is_available).collect();
    let is_free = |card: &&PhysicalGpu| need(card) <= card.vram.unwrap().free_mb().unwrap();
    let free: Vec<&PhysicalGpu> = available.iter().copied().filter(is_free).collect();
    let largest = |some: &[&PhysicalGpu]| {
        let of = |island| some.iter().filter(|card| card.island == Some(island)).count();
        let most = some.iter().filter_map(|card| card.island).map(of).max().unwrap_or(0);
        u32::try_from(most).unwrap()
    };
    let wanted = ask.count();
    match () {
        () if count(&of_model) < wanted => Err(Reject::Model { have: count(&of_model) }),
        () if count(&known) < wanted => Err(Reject::Unknown { have: count(&known) }),
        () if count(&large) < wanted => Err(Reject::TooSmall { have: count(&large) }),
        () if ask.link() == Link::Required && wanted > 1 => match () {
            () if largest(&large) < wanted => Err(Reject::NoIsland { have: largest(&large) }),
            () if largest(&free) < wanted => Err(Reject::Island { have: largest(&free) }),
            () => Ok(()),
        },
        () if count(&available) < wanted => Err(Reject::Allocated { have: count(&available) }),
        () if count(&free) < wanted => Err(Reject::Vram { have: count(&free) }),
        () => Ok(()),
    }
}

/// What the grouped cards of a node say.
fn grouped_fits(ask: GpuRequest, cards: &[PhysicalGpu]) -> Result<(), Reject> {
    let (alike, islands): (Vec<_>, Vec<_>) = (alike(cards).collect(), island_sets(cards).collect());
    GroupedCards { count: cards.len(), alike: &alike, islands: &islands }.fits(ask)
}

#[test]
fn cards_that_are_alike_are_looked_at_once() {
    // Eight equal cards in two islands, three of them in use, and one with two rows.
    let mut cards: Vec<PhysicalGpu> =
        (0..8).map(|key| on(u16::from(key > 3), card(key, 40_000, 0))).collect();
    for card in &mut cards[..3] {
        *card =
            PhysicalGpu { phase: GpuPhase::Allocated, vram: Vram::read(Some(40_000), Some(40_000)), ..*card };
    }
    assert_eq!((alike(&cards).count(), island_sets(&cards).collect::<Vec<_>>()), (2, vec![0x0f, 0xf0]));
    cards.push(card(7, 40_000, 0));
    assert_eq!(alike(&cards).count(), 3, "of the doubled card nothing is known");
    for count in 1..10 {
        let ask = whole(count).linked(Link::Required);
        assert_eq!(grouped_fits(ask, &cards), by_the_book(ask, &cards), "{count}");
    }
    assert_eq!(grouped_fits(whole(3).linked(Link::Required), &cards), Ok(()));
    assert_eq!(grouped_fits(whole(4).linked(Link::Required), &cards), Err(Reject::Island { have: 3 }));
    assert_eq!(GroupedCards::NONE.fits(whole(1)), Err(Reject::NoCards));
}

fn any_card() -> impl Strategy<Value = PhysicalGpu> {
    let vram = prop_oneof![
        8 => (1_i64..4, 0_i64..5).prop_map(|(total, used)| Vram::read(Some(total * 2_000), Some(used * 1_000))),
        1 => Just(None),
    ];
    let phase = prop_oneof![6 => Just(GpuPhase::Available), 1 => Just(GpuPhase::Allocated), 1 => Just(GpuPhase::Unknown)];
    let model = prop_oneof![6 => Just(Some(A100)), 1 => Just(Some(T4)), 1 => Just(None)];
    let island = prop_oneof![1 => Just(None), 3 => (0_u16..4).prop_map(|n| Some(Island(n)))];
    // Some keys differ only beyond their last six bits.
    let key = (0_u64..40, 0_u64..2).prop_map(|(last, beyond)| beyond << 6 | last);
    (key, model, vram, island, phase).prop_map(|(key, model, vram, island, phase)| PhysicalGpu {
        key,
        model,
        vram,
        island,
        phase,
    })
}

fn any_ask() -> impl Strategy<Value = GpuRequest> {
    (prop::bool::ANY, prop::option::of(1_i64..6_000), 1_i64..6)
        .prop_map(|(named, vram, count)| GpuRequest::new(named.then_some(A100), vram, count).unwrap())
}

fn any_wish() -> impl Strategy<Value = GpuRequest> {
    let models = prop::option::of((prop::bool::ANY, prop::bool::ANY));
    let link = prop_oneof![3 => Just(Link::Required), 1 => Just(Link::Preferred), 1 => Just(Link::None)];
    (models, prop::option::of(1_i64..7_000), 1_i64..10, link).prop_map(|(models, vram, count, link)| {
        let ask = GpuRequest::new(None, vram, count).unwrap().linked(link);
        models.map_or(ask, |(a100, t4)| {
            let set = if a100 { ModelSet::EMPTY.with(A100) } else { ModelSet::EMPTY };
            ask.of(if t4 { set.with(T4) } else { set })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn cards_that_are_grouped_beforehand_are_judged_as_each_for_itself(
        cards in prop::collection::vec(any_card(), 0..=12),
        more in 0_usize..70,
        ask in any_wish(),
    ) {
        // Sometimes more cards than are looked at.
        let cards: Vec<PhysicalGpu> = cards.iter().cycle().take(if more > 60 { more } else { cards.len() }).copied().collect();
        let told = by_the_book(ask, &cards);
        prop_assert_eq!(fits(ask, &cards), told);
        prop_assert_eq!(grouped_fits(ask, &cards), told);
        prop_assert_eq!(fit(ask, &cards).map(|_| ()), told);
    }

    #[test]
    fn the_chosen_cards_are_the_best_of_all_sets_and_none_is_missed(
        cards in prop::collection::vec(any_card(), 0..=8),
        ask in any_ask(),
    ) {
        let fitting = (0..cards.len()).filter(|&at| takes(ask, &cards, at)).fold(0_u64, |set, at| set | 1 << at);
        let sets = (0_u64..1 << cards.len())
            .filter(|set| set & !fitting == 0 && set.count_ones() == ask.count());
        let best = sets.min_by_key(|&set| cost(ask, &cards, fitting, set));
        let got = fit(ask, &cards);
        prop_assert_eq!(got.ok().map(|fit| fit.cards), best);
        if let Ok(fit) = got {
            prop_assert!(fit.score <= 100);
            prop_assert_eq!(fits(ask, &cards), Ok(()));
        }
    }

    #[test]
    fn a_group_is_broken_where_all_its_cards_were_free_and_some_are_taken(
        cards in prop::collection::vec(any_card(), 0..=8),
        chosen in any::<u8>(),
    ) {
        let chosen = u64::from(chosen) & all(&cards);
        let is_free = |card: &PhysicalGpu| {
            card.phase == GpuPhase::Available && card.vram.is_some_and(|vram| vram.allocated_mb == 0)
        };
        let is_broken = |one: &PhysicalGpu| {
            let group = || numbered(&cards).filter(|(_, other)| other.island == one.island);
            group().all(|(_, other)| is_free(other)) && group().any(|(bit, _)| chosen & bit == 0)
        };
        let taken: Vec<_> = numbered(&cards).filter(|(bit, _)| chosen & bit != 0).collect();
        prop_assert_eq!(breaks(&cards, chosen), taken.iter().any(|(_, card)| is_broken(card)));
        let homes: BTreeSet<_> =
            taken.iter().map(|(bit, card)| (card.island, card.island.map_or(*bit, |_| 0))).collect();
        prop_assert_eq!(islands(&cards, chosen), homes.len() as u64);
    }

    #[test]
    fn the_order_of_the_cards_does_not_matter(
        (cards, shuffled) in prop::collection::vec(any_card(), 1..=12)
            .prop_flat_map(|cards| (Just(cards.clone()), Just(cards).prop_shuffle())),
        ask in any_ask(),
    ) {
        let keys = |cards: &[PhysicalGpu]| fit(ask, cards).map(|fit| {
            let keys: BTreeSet<u64> =
                numbered(cards).filter(|(bit, _)| fit.cards & bit != 0).map(|(_, card)| card.key).collect();
            (keys, fit.score)
        });
        prop_assert_eq!(keys(&cards), keys(&shuffled));
    }

    #[test]
    fn any_numbers_are_answered(
        raw in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u32>(), any::<Option<u16>>()), 0..70),
        need in 1_i64..=i64::from(u32::MAX),
        count in 1_i64..=i64::from(u32::MAX),
    ) {
        let cards: Vec<PhysicalGpu> = raw.iter().map(|&(key, total, allocated, island)| PhysicalGpu {
            key,
            model: None,
            vram: Vram::read(Some(i64::from(total)), Some(i64::from(allocated))),
            island: island.map(Island),
            phase: GpuPhase::Available,
        }).collect();
        for ask in [GpuRequest::new(None, Some(need), count), GpuRequest::new(None, None, count % 70 + 1)].into_iter().flatten() {
            if let Ok(fit) = fit(ask, &cards) {
                prop_assert_eq!(fit.cards.count_ones(), ask.count());
            }
        }
    }
}

#[test]
fn a_node_is_scored_by_its_cards_its_fill_and_the_rest_by_share() {
    // 60 % of 80 and 40 % of 50; then the cards count half and the fill of 40 the other half: 60 % of 60 and 40 % of 50.
    assert_eq!(mixed(80, None, 50, 60), 68);
    assert_eq!(mixed(80, Some(40), 50, 60), 56);
    assert_eq!(
        (mixed(100, Some(100), 100, 60), mixed(100, Some(0), 0, 100), mixed(9, None, 33, 0)),
        (100, 50, 33)
    );
    assert_eq!(mixed(255, Some(255), 255, 255), 255);
}
