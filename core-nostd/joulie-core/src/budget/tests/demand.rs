//! Demand, price and orders: examples calculated by hand, and laws over random trees and reports.

use super::*;
use crate::budget::demand::{
    Appetite, Bid, Bidders, DemandError, DemandHistory, DemandReport, GroupOrders, GroupPrice, OrderBounds,
    OrderCount, OrderTurn, QUANTILES, RESERVE, TokenBucket, YieldMemory, Yieldable, is_news, orders, price,
};
use Priority::{Eco, Performance};
use power_units::{Micros, Ratio, Stamp};
use proptest::prelude::*;

fn at(second: u64) -> Stamp {
    Stamp::new(seconds(second))
}

const fn seconds(seconds: u64) -> Micros {
    Micros::new(seconds * 1_000_000)
}

fn report(watts: &[i32], bites: bool) -> DemandReport {
    let watts: Vec<Watts> = watts.iter().map(|&watts| w(watts)).collect();
    DemandReport::new(&watts, bites).unwrap()
}

fn told(watts: &[i32], bites: bool) -> Appetite {
    Appetite::Told { demand: report(watts, bites), assumed: Watts::ZERO }
}

/// A bid of a node with a floor of 100 W that may have 600 W.
fn bid(key: u64, group: usize, priority: Priority, entitled: i32, appetite: Appetite) -> Bid {
    let (floor, most, entitled) = (w(100), w(600), w(entitled));
    Bid { key, group, priority, floor, most, entitled, appetite }
}

/// Shares are rounded down by less than a microwatt.
fn close(actual: Watts, expected: i32) -> bool {
    let below = w(expected) - actual;
    below >= Watts::ZERO && below.to_bits() < 4_295
}

fn priced(groups: &[Group], bids: &[Bid], reserve: Ratio) -> (Vec<Watts>, Vec<GroupPrice>) {
    let (mut prices, mut targets) = (vec![GroupPrice::EMPTY; groups.len()], vec![Watts::ZERO; bids.len()]);
    let tree = BudgetTree::new(groups).unwrap();
    price(tree, bids, reserve, &mut prices, &mut targets).unwrap();
    (targets, prices)
}

// Demand.

/// The history of one sample a second, ending at the last one.
fn history(samples: &[(i32, Option<i32>)]) -> (DemandHistory, Stamp) {
    let mut history = DemandHistory::EMPTY;
    for (second, &(drawn, throttled_at)) in samples.iter().enumerate() {
        history.record(at(second as u64), w(drawn), throttled_at.map(w));
    }
    (history, at(samples.len() as u64 - 1))
}

fn said((history, now): (DemandHistory, Stamp)) -> DemandReport {
    history.report(now, w(1000)).unwrap()
}

#[test]
fn what_is_drawn_freely_is_wanted_with_a_margin() {
    // 100 W × 1.03 + 10 W = 113 W.
    assert_eq!(said(history(&[(100, None); 20])), report(&[113], false));
    // One sample of twenty at 130 W: 143.9 W for at most 5 % of the time.
    let mut samples = [(100, None); 20];
    samples[7].0 = 130;
    assert_eq!(said(history(&samples)), report(&[144, 113], false));
    // Of ten samples one is 10 % of the time.
    assert_eq!(said(history(&samples[..10])), report(&[144, 144, 113], false));
}

#[test]
fn a_throttled_node_wants_half_more_or_what_it_had_before() {
    assert_eq!(said(history(&[(300, Some(300)); 3])), report(&[450], true));
    let (throttled, now) = history(&[(300, Some(300)); 3]);
    assert_eq!(throttled.report(now, w(400)), Some(report(&[400], true)), "it may have no more");
    // 800 W five minutes ago are 800 − 800 × 300 / 1200 = 600 W.
    let mut before = DemandHistory::EMPTY;
    before.record(at(0), w(800), None);
    before.record(at(300), w(300), Some(w(300)));
    assert_eq!(before.report(at(300), w(1000)), Some(report(&[600], true)));
}

#[test]
fn what_a_node_draws_above_its_former_cap_is_its_demand() {
    let raised = [(300, Some(300)), (300, Some(300)), (340, None)];
    // 340 W × 1.03 + 10 W = 360.2 W.
    assert_eq!(said(history(&raised)), report(&[361], false));
    // What it draws below that cap says nothing of the demand then: 450 W in two of three samples, and 270 W.
    let idle = [(300, Some(300)), (300, Some(300)), (250, None)];
    assert_eq!(said(history(&idle)), report(&[450, 450, 450, 450, 450, 450, 268], true));
}

#[test]
fn four_seconds_far_below_are_another_demand() {
    let mut samples = [(1000, None); 15];
    samples[10..].fill((100, None));
    assert_eq!(
        said(history(&samples[..14])).highest(),
        w(1000),
        "three seconds, and the most that it may have"
    );
    assert_eq!(said(history(&samples)), report(&[113], false));
}

#[test]
fn samples_that_are_old_are_no_demand() {
    let (history, now) = history(&[(100, None); 20]);
    assert!(history.report(now + seconds(10), w(1000)).is_some());
    assert_eq!(history.report(now + seconds(11), w(1000)), None);
    assert_eq!(DemandHistory::EMPTY.report(at(0), w(1000)), None);
}

#[test]
fn a_throttle_that_always_shows_while_little_is_drawn_is_not_believed() {
    let stuck = [(100, Some(1000)); 11];
    assert!(said(history(&stuck[..10])).bites());
    assert_eq!(said(history(&stuck)), report(&[113], false));
}

#[test]
fn a_report_is_told_when_it_has_changed_by_enough() {
    let old = report(&[100], false);
    let news =
        |watts: i32, bites, ago| is_news(Some(&report(&[watts], bites)), Some(&old), seconds(ago), None);
    assert!(!news(100, false, 3_600), "steady demand is told once");
    // 30 % of 143 W are 42.9 W, and 10 % of 112 W are 11.2 W.
    assert!(!news(142, false, 180) && news(143, false, 180) && !news(143, false, 179));
    assert!(!news(112, false, 299) && news(112, false, 300));
    let small = report(&[50], false);
    assert!(!is_news(Some(&report(&[59], false)), Some(&small), seconds(3_600), None), "10 W at least");
    assert!(news(100, true, 0), "a bite is told at once");
    assert!(!is_news(None, None, seconds(60), None) && is_news(None, Some(&old), seconds(2), None));
    assert!(is_news(Some(&old), None, seconds(2), None) && !is_news(Some(&old), None, seconds(1), None));
    let bites = report(&[100], true);
    assert!(!is_news(Some(&bites), Some(&bites), seconds(3_600), None));
    let ends = |ago| is_news(Some(&old), Some(&bites), seconds(ago), None);
    assert!(!ends(179) && ends(180));
    // Of what a cap of 100 W does not reach, nothing is told; of what it reaches, 30 % of 100 W.
    let capped = |watts| {
        is_news(Some(&report(&[watts], false)), Some(&report(&[300], false)), seconds(180), Some(w(100)))
    };
    assert!(!capped(120) && !capped(71) && capped(70));
}

#[test]
fn a_report_that_makes_no_sense_is_refused() {
    let refused = |watts: &[i32]| {
        let watts: Vec<Watts> = watts.iter().map(|&watts| w(watts)).collect();
        DemandReport::new(&watts, true).unwrap_err()
    };
    assert_eq!(refused(&[]), DemandError::Empty);
    assert_eq!(refused(&[9; QUANTILES + 1]), DemandError::TooMany(9));
    assert_eq!(refused(&[5, -1]), DemandError::Negative(w(-1)));
    assert_eq!(refused(&[5, 5, 6]), DemandError::Rising(w(6)));
}

// Price.

#[test]
fn three_nodes_share_a_limit_by_the_time_in_which_each_wants_more() {
    // One wants 200 W always, one 300 W for 30 % and 200 W from 50 % of the time on, one is throttled and wants 600 W.
    let bids = |entitled: [i32; 3]| {
        [
            bid(1, 0, Performance, entitled[0], told(&[200], false)),
            bid(2, 0, Performance, entitled[1], told(&[300, 300, 300, 300, 300, 200], false)),
            bid(3, 0, Performance, entitled[2], told(&[600], true)),
        ]
    };
    let of = |limit, entitled| priced(&[group(None, limit, 0)], &bids(entitled), Ratio::ZERO);
    // 200 + 300 + 600 = 1100 W fit.
    assert_eq!(of(1100, [300, 300, 400]).0, [w(200), w(300), w(600)]);
    // From 30 to 50 % of the time the second falls by 25 W each 5 %: at 50 % the sum is 1000 W.
    let (targets, prices) = of(1000, [300, 300, 400]);
    assert_eq!(targets, [w(200), w(200), w(600)]);
    assert_eq!(prices[0].of(Performance), Ratio::from_bits(1 << 31));
    // 1010 W: 10 of the 25 W between 45 and 50 %.
    let (targets, _) = of(1010, [300, 300, 400]);
    assert!(targets[0] == w(200) && close(targets[1], 210) && targets[2] == w(600), "{targets:?}");
    // Between 95 and 100 % what is steady and within the entitlement stays, and the throttled one falls from 600 W
    // to its entitlement: 900 W are half of the way from 1000 to 800 W.
    assert_eq!(of(900, [300, 300, 400]).0, [w(200), w(200), w(500)]);
    assert_eq!(of(800, [300, 300, 400]).0, [w(200), w(200), w(400)]);
    // 700 W: 20 of the 320 W from 680 to 1000 W, and so of the throttled one's from 280 to 600 W.
    assert_eq!(of(700, [210, 210, 280]).0, [w(200), w(200), w(300)]);
}

#[test]
fn when_everybody_wants_everything_each_gets_its_entitlement() {
    let all = |key, entitled| bid(key, 0, Performance, entitled, told(&[600], true));
    let bids = [all(1, 200), all(2, 300), all(3, 500)];
    for reserve in [Ratio::ZERO, RESERVE] {
        assert_eq!(priced(&[group(None, 1000, 0)], &bids, reserve).0, [w(200), w(300), w(500)]);
    }
    assert!(priced(&[group(None, 1000, 0)], &bids, RESERVE).1[0].is_overloaded());
}

#[test]
fn eco_nodes_are_squeezed_before_others() {
    let bids = [bid(1, 0, Performance, 400, told(&[600], true)), bid(2, 0, Eco, 100, told(&[300], false))];
    // 900 W are wanted. The eco node falls from 300 to 100 W in its last 5 %: 800 W are half of that.
    let (targets, prices) = priced(&[group(None, 800, 0)], &bids, Ratio::ZERO);
    assert_eq!(targets, [w(600), w(200)]);
    assert_eq!(prices[0].of(Performance), Ratio::ZERO);
    assert_eq!(prices[0].of(Eco), Ratio::from_bits((39 * (1_i64 << 32) + 20) / 40));
}

#[test]
fn a_tight_rack_pays_more_than_the_site() {
    let bids = [
        bid(1, 1, Performance, 125, told(&[200], false)),
        bid(2, 1, Performance, 125, told(&[200], false)),
        bid(3, 0, Performance, 600, told(&[600], true)),
    ];
    let groups = [group(None, 1000, 0), group(Some(0), 250, 0)];
    let (targets, prices) = priced(&groups, &bids, Ratio::ZERO);
    assert_eq!(targets, [w(125), w(125), w(600)]);
    assert_eq!((prices[0].of(Performance), prices[1].of(Performance)), (Ratio::ZERO, Ratio::ONE));
}

#[test]
fn a_part_within_a_step_keeps_the_limit_above_it() {
    // In the last step each falls from 400 to 200 W. The rack's 600 W are half of it; the site's 900 W are a quarter of
    // the way from 600 + 400 to 400 + 200 W. The rack goes over a quarter of its other half, to 550 W: 2 × 275 W. (At its
    // own price it would have 600 W, and 950 W would be drawn.)
    let of = |key, group| bid(key, group, Performance, 200, told(&[400], true));
    let bids = [of(1, 1), of(2, 1), of(3, 0)];
    let (targets, _) = priced(&[group(None, 900, 0), group(Some(0), 600, 0)], &bids, Ratio::ZERO);
    assert_eq!(targets, [w(275), w(275), w(350)]);
}

#[test]
fn where_many_are_blind_nothing_is_lent_and_where_a_sum_is_unknown_nothing_moves() {
    let mut bids: Vec<Bid> = (0..5).map(|key| bid(key, 0, Performance, 200, told(&[150], false))).collect();
    bids[4].appetite = Appetite::Blind(Some(w(180)));
    let groups = [group(None, 1000, 0)];
    // One of five: it keeps its entitlement, and the others have what they want.
    let (targets, prices) = priced(&groups, &bids, Ratio::ZERO);
    assert_eq!(targets, [w(150), w(150), w(150), w(150), w(200)]);
    assert!(prices[0].lends() && prices[0].blind() == (1, 5));
    bids[3].appetite = Appetite::Blind(Some(w(250)));
    let (targets, prices) = priced(&groups, &bids, Ratio::ZERO);
    assert_eq!(targets, [w(200); 5]);
    assert!(!prices[0].lends() && prices[0].is_known());
    bids[3].appetite = Appetite::Stands(None);
    let (targets, prices) = priced(&groups, &bids, Ratio::ZERO);
    assert_eq!(targets, [w(200); 5]);
    assert!(!prices[0].is_known());
}

#[test]
fn slices_of_another_length_are_refused() {
    let groups = [group(None, 1000, 0)];
    let tree = BudgetTree::new(&groups).unwrap();
    let stray = [bid(7, 1, Eco, 100, told(&[100], false))];
    let mut prices = [GroupPrice::EMPTY];
    let answer = price(tree, &stray, Ratio::ZERO, &mut prices, &mut [Watts::ZERO]);
    assert_eq!(answer, Err(BudgetError::NoSuchGroup { node: 7 }));
    let answer = price(tree, &stray, Ratio::ZERO, &mut prices, &mut []);
    assert_eq!(answer, Err(BudgetError::WrongLength { slice: "targets", expected: 1 }));
}

// Orders.

const FREE: OrderBounds =
    OrderBounds { orders: 100, beyond: 100, scarce: false, lends: true, reserve: RESERVE };

struct Ordered {
    made: OrderCount,
    targets: Vec<Watts>,
    states: Vec<GroupOrders>,
}

/// A round of orders. Each node has its cap, and the time since its raise.
fn ordered(
    bounds: OrderBounds,
    groups: &[Group],
    bids: &[Bid],
    caps: &[Watts],
    raised: &[Option<Micros>],
) -> Ordered {
    let held = |cap: Watts| GrantAccount::NONE.granted(cap, open()).heard(cap);
    let nodes: Vec<BudgetNode> = bids
        .iter()
        .zip(caps)
        .map(|(bid, &cap)| node(bid.key, bid.group, bid.priority, 600, held(cap)))
        .collect();
    let tree = BudgetTree::new(groups).unwrap();
    let (priced, prices) = priced(groups, bids, RESERVE);
    let (mut states, mut turns) =
        (vec![GroupOrders::EMPTY; groups.len()], vec![OrderTurn::EMPTY; bids.len()]);
    let mut targets = vec![Watts::ZERO; bids.len()];
    let bidders = Bidders { nodes: &nodes, bids, priced: &priced, raised };
    let made = orders(bounds, (tree, &prices), bidders, (&mut states, &mut turns), &mut targets).unwrap();
    Ordered { made, targets, states }
}

fn first_bites(entitled: [i32; 2], other: i32) -> [Bid; 2] {
    [
        bid(1, 0, Performance, entitled[0], told(&[450], true)),
        bid(2, 0, Performance, entitled[1], told(&[other], false)),
    ]
}

#[test]
fn a_throttled_node_is_raised_out_of_the_room_and_nobody_is_lowered_for_it() {
    // It wants 450 W, and has a claim to 500 W.
    let bids = first_bites([500, 500], 250);
    let Ordered { made, targets, .. } =
        ordered(FREE, &[group(None, 1000, 0)], &bids, &[w(300), w(300)], &[None; 2]);
    assert_eq!(targets, [w(500), w(300)]);
    assert_eq!(made, OrderCount { orders: 1, forced: 0, held_back: 0 });
}

#[test]
fn without_room_what_is_missing_is_taken_from_who_does_not_want_it() {
    let (bids, groups) = (first_bites([310, 310], 150), [group(None, 620, 0)]);
    let caps = [w(300), w(300)];
    // The 10 W to its entitlement are no order by themselves; the 20 W of room are one, of the 150 W that it wants. It
    // lacks 130 W, and the reserve 6.2 W. The other one is lowered by up to three times that, so to the 150 W that it wants.
    let Ordered { made, targets, states } = ordered(FREE, &groups, &bids, &caps, &[None; 2]);
    assert_eq!(targets[0], w(320));
    assert_eq!(targets[1], w(150));
    assert_eq!((made.orders, states[0].missing(), states[0].missing_entitled()), (2, w(130), Watts::ZERO));
    // Not soon after its own raise.
    let rests = [None, Some(seconds(5))];
    assert_eq!(ordered(FREE, &groups, &bids, &caps, &rests).targets, [w(320), w(300)]);
    assert_ne!(ordered(FREE, &groups, &bids, &caps, &[None, Some(seconds(10))]).targets[1], w(300));
    // Not by a new leader.
    let watches = OrderBounds { lends: false, ..FREE };
    assert_eq!(ordered(watches, &groups, &bids, &caps, &[None; 2]).targets, [w(320), w(300)]);
    // And only as many as may go out.
    let one = OrderBounds { orders: 1, ..FREE };
    let Ordered { made, targets, .. } = ordered(one, &groups, &bids, &caps, &[None; 2]);
    assert_eq!((targets, made.held_back), (vec![w(320), w(300)], 1));
}

#[test]
fn a_lowering_takes_at_most_three_times_what_is_missing() {
    // The first wants 330 W and lacks 30 W, and the reserve 8 W more: 38 W. The other one has 400 W to spare.
    let bids =
        [bid(1, 0, Performance, 300, told(&[330], true)), bid(2, 0, Performance, 300, told(&[100], false))];
    let Ordered { targets, .. } = ordered(FREE, &[group(None, 800, 0)], &bids, &[w(300), w(500)], &[None; 2]);
    assert_eq!(targets[0], w(300));
    assert!(close(w(2 * 386) - targets[1], 386), "500 − 3 · 38 W: {targets:?}");
}

#[test]
fn what_is_too_little_for_an_order_below_the_entitlement_is_missing_too() {
    // Neither the 5 W to the entitlement nor the 10 W of room are an order. So all of the 150 W are missing, and the
    // other is lowered for 150 + 6.1 − 10 = 146.1 W: by all of its 150 W.
    let (bids, groups) = (first_bites([305, 305], 150), [group(None, 610, 0)]);
    let Ordered { made, targets, states } = ordered(FREE, &groups, &bids, &[w(300), w(300)], &[None; 2]);
    assert_eq!(targets[0], w(300));
    assert_eq!(targets[1], w(150));
    assert_eq!((made.orders, states[0].missing(), states[0].missing_entitled()), (1, w(150), Watts::ZERO));
}

#[test]
fn what_is_held_above_an_entitlement_is_not_protected_from_who_is_below_its_own() {
    // 10 W of room are too little for an order. The other one rests, and holds 90 W above its entitlement.
    let (bids, groups) = (first_bites([400, 210], 150), [group(None, 610, 0)]);
    let rests = [None, Some(seconds(5))];
    let Ordered { targets, states, .. } = ordered(FREE, &groups, &bids, &[w(300), w(300)], &rests);
    assert_eq!(targets, [w(300), w(210)]);
    assert_eq!((states[0].missing(), states[0].missing_entitled()), (w(150), w(100)));
}

#[test]
fn the_last_orders_are_kept_for_who_is_throttled_below_its_entitlement() {
    let last = OrderBounds { beyond: 0, ..FREE };
    let caps = [w(300), w(300)];
    // The first wants 150 W more, all of it beyond its entitlement. 20 W of room would be worth an order (10 W are not).
    let groups = [group(None, 620, 0)];
    let Ordered { made, targets, .. } =
        ordered(last, &groups, &first_bites([300, 320], 150), &caps, &[None; 2]);
    assert_eq!((targets, made.orders, made.held_back), (vec![w(300), w(300)], 0, 1));
    // Now it is 100 W below it, and the other one holds 90 W above its own.
    let groups = [group(None, 610, 0)];
    let rests = [None, Some(seconds(5))];
    let Ordered { targets, .. } = ordered(last, &groups, &first_bites([400, 210], 150), &caps, &rests);
    assert_eq!(targets, [w(300), w(210)]);
}

#[test]
fn what_exceeds_a_limit_is_lowered_at_once_by_the_fewest_orders() {
    let bids =
        [bid(1, 0, Performance, 250, told(&[250], false)), bid(2, 0, Performance, 250, told(&[200], false))];
    let none = OrderBounds { orders: 0, beyond: 0, scarce: true, lends: false, reserve: RESERVE };
    // 600 W are 100 W too many: the second has 100 W that it does not want.
    let Ordered { made, targets, .. } =
        ordered(none, &[group(None, 500, 0)], &bids, &[w(300), w(300)], &[Some(seconds(1)); 2]);
    assert_eq!(targets, [w(300), w(200)]);
    assert_eq!(made, OrderCount { orders: 0, forced: 1, held_back: 0 });
}

#[test]
fn while_orders_are_scarce_each_one_for_a_limit_goes_further() {
    // 600 W are 20 W too many, and each is priced at its entitlement of 287 W: 1 % of 580 W is kept free.
    let bids = [1, 2].map(|key| bid(key, 0, Performance, 287, told(&[600], true)));
    let forced = |scarce| {
        let none = OrderBounds { orders: 0, beyond: 0, scarce, lends: false, reserve: RESERVE };
        let limits = [group(None, 580, 0)];
        let Ordered { made, targets, .. } = ordered(none, &limits, &bids, &[w(300), w(300)], &[None; 2]);
        assert_eq!(targets.iter().copied().fold(Watts::ZERO, |sum, watts| sum + watts), w(580));
        made.forced
    };
    assert_eq!((forced(false), forced(true)), (2, 1));
}

#[test]
fn who_says_nothing_or_belongs_to_a_person_keeps_its_entitlement_also_while_orders_are_scarce() {
    let none = OrderBounds { orders: 0, beyond: 0, scarce: true, lends: false, reserve: RESERVE };
    // More than a fifth say nothing, so that each is priced at its entitlement; 20 W are too many.
    let silent = Appetite::Blind(Some(w(300)));
    for other in [silent, Appetite::Owned(Some(w(300)))] {
        let bids = [bid(1, 0, Performance, 287, other), bid(2, 0, Performance, 287, silent)];
        let limits = [group(None, 580, 0)];
        let Ordered { made, targets, .. } = ordered(none, &limits, &bids, &[w(300), w(300)], &[None; 2]);
        assert_eq!((made.forced, targets.iter().min()), (2, Some(&w(287))));
    }
}

/// The first one wants 400 W of its cap back; the second holds 350 W of which it wants 200.
#[test]
fn one_that_only_wants_back_what_it_has_yielded_is_raised_to_that_and_lends_nothing() {
    let of = |back| {
        [
            bid(1, 0, Performance, 350, Appetite::Returns(w(back))),
            bid(2, 0, Performance, 250, told(&[200], false)),
        ]
    };
    let limits = [group(None, 1000, 0)];
    let (priced, prices) = priced(&limits, &of(400), RESERVE);
    assert_eq!((priced, prices[0].lends()), (vec![w(400), w(200)], true));
    let Ordered { targets, .. } = ordered(FREE, &limits, &of(400), &[w(300), w(350)], &[None; 2]);
    assert_eq!(targets, [w(400), w(350)]);
    // 650 of 660 W are counted. What is missing is taken from the second.
    let tight = [group(None, 660, 0)];
    let Ordered { targets, .. } = ordered(FREE, &tight, &of(400), &[w(300), w(350)], &[None; 2]);
    assert!(targets[0] >= w(300) && targets[1] == w(200), "{targets:?}");
    // It never gives anything: the second one wants 600 W, and is entitled to 250.
    let bids = [of(300)[0], bid(2, 0, Performance, 250, told(&[600], true))];
    let Ordered { targets, .. } = ordered(FREE, &tight, &bids, &[w(300), w(350)], &[None; 2]);
    assert_eq!(targets[0], w(300));
}

#[test]
fn orders_are_bounded_in_time() {
    // One a second, ten at once.
    let mut bucket = TokenBucket::new(60, seconds(10));
    assert_eq!((bucket.refill(at(100)), bucket.beyond_half()), (10, 5));
    bucket.take(8);
    assert_eq!(bucket.beyond_half(), 0);
    assert!(!bucket.is_scarce());
    bucket.take(1);
    assert!(bucket.is_scarce());
    assert_eq!((bucket.refill(at(100)), bucket.refill(at(101))), (1, 2));
    bucket.take(5);
    assert_eq!(bucket.refill(at(90)), 0, "a clock that went back");
    assert_eq!((bucket.refill(at(102)), bucket.refill(at(1_000_000))), (1, 10));
}

// Yields.

/// What is left of a grant of 500 W, in the second given, of a node that wants so much.
fn left(it: &mut YieldMemory, serial: u64, second: u64, watts: i32, bites: bool) -> Option<Watts> {
    let grant = Yieldable { serial, watts: w(500), floor: w(100), lends: true };
    it.left(at(second), grant, Some(&report(&[watts], bites)))
}

#[test]
fn a_node_that_wants_back_soon_what_it_has_yielded_rests_for_twice_as_long() {
    let mut it = YieldMemory::default();
    let (mut serial, mut second) = (1, 0);
    // Each time it is raised again 5 s after its yield: 5, 10, 20, 40, 80 s, and no longer.
    for rests in [5, 10, 20, 40, 80, 80] {
        assert_eq!(left(&mut it, serial, second, 500, true), None);
        assert_eq!(left(&mut it, serial, second + rests - 1, 200, false), None, "it rests for {rests} s");
        assert_eq!(left(&mut it, serial, second + rests, 200, false), Some(w(200)));
        let yielded = Yieldable { serial, watts: w(200), floor: w(100), lends: true };
        assert_eq!(it.left(at(second + rests), yielded, Some(&report(&[190], false))), None);
        (serial, second) = (serial + 1, second + rests + 5);
    }
    // One that lasts for 20 s halves the rest.
    assert_eq!(left(&mut it, serial, second, 500, true), None);
    assert_eq!(left(&mut it, serial, second + 80, 200, false), Some(w(200)));
    let yielded = Yieldable { serial, watts: w(200), floor: w(100), lends: true };
    assert_eq!(it.left(at(second + 80), yielded, Some(&report(&[190], false))), None);
    let (serial, second) = (serial + 1, second + 100);
    assert_eq!(left(&mut it, serial, second, 500, true), None);
    assert_eq!(left(&mut it, serial, second + 39, 200, false), None);
    assert_eq!(left(&mut it, serial, second + 40, 200, false), Some(w(200)));
}

// Laws.

fn a_report() -> impl Strategy<Value = DemandReport> {
    (prop::collection::vec(0_i32..800, 1..=QUANTILES), any::<bool>()).prop_map(|(mut watts, bites)| {
        watts.sort_by_key(|watts| -watts);
        report(&watts, bites)
    })
}

/// A node: its group, its class, its cap, and its report, if it has one.
type Drawn = (usize, usize, i32, Option<DemandReport>);

fn drawn() -> impl Strategy<Value = (Vec<Drawn>, [i32; 3])> {
    let node = (0_usize..3, 0_usize..3, 100_i32..=600, prop::option::weighted(0.9, a_report()));
    (prop::collection::vec(node, 1..12), [200_i32..6000, 100..3000, 100..3000])
}

/// The groups, the nodes, their bids with the entitlements, and whether every limit can be kept.
fn site(drawn: &[Drawn], limits: [i32; 3]) -> (Vec<Group>, Vec<Bid>, Vec<Watts>, bool) {
    let [site, one, other] = limits;
    let groups = vec![group(None, site, 7), group(Some(0), one, 0), group(Some(0), other, 3)];
    let nodes: Vec<BudgetNode> = drawn
        .iter()
        .zip(0_u64..)
        .map(|(&(group, class, cap, _), key)| node(key, group, Priority::ALL[class], 600, holding(cap)))
        .collect();
    let planned = plan(&groups, &nodes);
    let bids = nodes.iter().zip(&planned.targets).zip(drawn).map(|((node, &entitled), (.., report))| {
        let appetite = match report {
            Some(demand) => Appetite::Told { demand: *demand, assumed: Watts::ZERO },
            None => Appetite::Blind(node.count()),
        };
        Bid::of(node, entitled, appetite)
    });
    let bids = bids.collect();
    let caps = drawn.iter().map(|(_, _, cap, _)| w(*cap)).collect();
    let is_kept = planned.verdicts.iter().all(|verdict| matches!(verdict, GroupVerdict::Kept { .. }));
    (groups, bids, caps, is_kept)
}

/// The sum of a group with its parts.
fn sum(groups: &[Group], bids: &[Bid], targets: &[Watts], of: usize) -> Watts {
    let is_in = |group: usize| group == of || groups[group].parent() == Some(of);
    let nodes = bids.iter().zip(targets).filter(|(bid, _)| is_in(bid.group)).map(|(_, target)| *target);
    let bases = (0..groups.len()).filter(|&group| is_in(group)).map(|group| groups[group].base().unwrap());
    Watts::checked_sum(nodes.chain(bases)).unwrap()
}

proptest! {
    #[test]
    fn priced_caps_keep_every_limit_that_can_be_kept((drawn, limits) in drawn()) {
        let (groups, bids, _, is_kept) = site(&drawn, limits);
        prop_assume!(is_kept);
        for reserve in [Ratio::ZERO, RESERVE] {
            let (targets, _) = priced(&groups, &bids, reserve);
            for (at, group) in groups.iter().enumerate() {
                prop_assert!(sum(&groups, &bids, &targets, at) <= group.limit(), "group {at}: {targets:?}");
            }
            for (bid, target) in bids.iter().zip(&targets) {
                prop_assert!(*target >= bid.floor && *target <= bid.most.max(bid.entitled));
            }
        }
    }

    #[test]
    fn who_is_throttled_has_its_entitlement_whatever_the_others_want((drawn, limits) in drawn()) {
        let (groups, bids, _, is_kept) = site(&drawn, limits);
        prop_assume!(is_kept);
        let (targets, _) = priced(&groups, &bids, RESERVE);
        for (bid, target) in bids.iter().zip(&targets).filter(|(bid, _)| bid.bites()) {
            prop_assert!(*target >= bid.entitled, "{bid:?} {target:?}");
        }
    }

    #[test]
    fn the_order_of_the_nodes_changes_nothing((drawn, limits) in drawn(), turn in 0_usize..12) {
        let (groups, mut bids, mut caps, _) = site(&drawn, limits);
        let raised = vec![None; bids.len()];
        let one = priced(&groups, &bids, RESERVE).0;
        let first = ordered(FREE, &groups, &bids, &caps, &raised).targets;
        let turn = turn % bids.len();
        bids.rotate_left(turn);
        caps.rotate_left(turn);
        let (mut other, mut second) =
            (priced(&groups, &bids, RESERVE).0, ordered(FREE, &groups, &bids, &caps, &raised).targets);
        other.rotate_right(turn);
        second.rotate_right(turn);
        prop_assert_eq!(one, other);
        prop_assert_eq!(first, second);
    }

    #[test]
    fn steady_demand_comes_to_rest_within_the_limits((drawn, limits) in drawn()) {
        let (groups, bids, mut caps, is_kept) = site(&drawn, limits);
        prop_assume!(is_kept);
        let raised = vec![None; bids.len()];
        let quiet = (0..1000).any(|_| {
            let Ordered { made, targets, .. } = ordered(FREE, &groups, &bids, &caps, &raised);
            caps = targets;
            made == OrderCount::default()
        });
        prop_assert!(quiet, "{caps:?}");
        for (at, group) in groups.iter().enumerate() {
            prop_assert!(sum(&groups, &bids, &caps, at) <= group.limit(), "group {at}: {caps:?}");
        }
    }
}
