//! What a node counts that sleeps or wakes.

use super::*;
use crate::sleep::{SleepCount, WakePrice};

/// Two nodes that hold 432 W each, one of them on its way to sleep or back.
fn two(sleep: SleepCount) -> [Claim; 2] {
    let held = |name: &str| Claim { grant: grant(1, 432), receipt: receipt(1, 432), ..claim(name) };
    [held("a"), Claim { sleep, ..held("b") }]
}

fn of(site: i32, sleep: SleepCount) -> (Asked, Option<Watts>) {
    let mut memory = BudgetMemory::default();
    let (asks, round) = round_of(&two(sleep), &limits(site), &mut memory, at(1), true);
    (plain(asks), round.standings[0].load)
}

#[test]
fn a_node_that_is_off_counts_its_standby_and_leaves_the_rest_to_others() {
    assert_eq!(of(864, SleepCount::Awake), (vec![None, None], Some(w(864))));
    assert_eq!(of(864, SleepCount::Kept), (vec![None, None], Some(w(864))));
    // 432 + 35 W. Its own grant stays as it is.
    assert_eq!(of(864, SleepCount::Off(w(35))), (vec![None, None], Some(w(467))));
    let mut pair = two(SleepCount::Off(w(35)));
    (pair[0].grant, pair[0].receipt) = (grant(1, 200), receipt(1, 200));
    let (asks, _) = round_of(&pair, &limits(600), &mut BudgetMemory::default(), at(1), true);
    assert_eq!(plain(asks), vec![Some((w(432), w(432), false)), None]);
}

#[test]
fn a_node_that_wakes_counts_its_largest_draw_and_the_others_make_room_for_it() {
    // 432 + 720 W. Of 1,000 W that leaves 280 W for the other one.
    let (asks, load) = of(1_000, SleepCount::Full);
    assert_eq!(asks, vec![Some((w(280), w(432), false)), None]);
    assert_eq!(load, Some(w(1_152)), "until the other one has confirmed that");
    let mut pair = two(SleepCount::Full);
    (pair[0].grant, pair[0].receipt) = (grant(2, 280), receipt(2, 280));
    let (asks, round) = round_of(&pair, &limits(1_000), &mut BudgetMemory::default(), at(1), true);
    assert_eq!((plain(asks), round.standings[0].load), (vec![None, None], Some(w(1_000))));
}

#[test]
fn a_node_is_switched_on_only_where_there_is_room_and_nodes_may_be_raised() {
    let pays = |tree: &[SiteLimit], selected: &[usize]| {
        let node = Claim { sleep: SleepCount::Full, ..under("a", tree, selected, Some(432)) };
        let (_, round) = round_of_written(std::slice::from_ref(&node), tree, false);
        round.pays_for(&node.node())
    };
    let site = |watts: i32, armed: bool| SiteLimit { armed, ..written("site", None, watts, true) };
    assert!(pays(&[site(720, false)], &[0]));
    assert!(!pays(&[site(719, false)], &[0]), "it counts 720 W");
    assert!(!pays(&[site(10_000, true)], &[0]), "what an event takes is granted to nobody");
    assert!(!pays(&[site(10_000, true), written("rack", Some(0), 10_000, true)], &[1]));
    assert!(!pays(&[written("paused", None, 10_000, true)], &[0]));
    let other = |enforced: bool| [site(10_000, false), written("other", None, 10_000, enforced)];
    assert!(!pays(&other(true), &[0, 1]), "what the other one counts is not known");
    assert!(pays(&other(false), &[0]));
}

#[test]
fn a_group_is_measured_although_some_of_its_nodes_are_off() {
    let both = SustainedLimit::new(w(500), w(400), Micros::MINUTE).unwrap();
    let tree = [SiteLimit { sustained: Some(both), ..written("site", None, 500, true) }];
    let metered = |sleep: SleepCount| {
        let node = Claim { sleep, ..under("a", &tree, &[0], Some(432)) };
        round_of_written(&[node], &tree, false).1.sustained[&0].metered
    };
    let counts = [SleepCount::Off(w(35)), SleepCount::Full, SleepCount::Awake];
    assert_eq!(counts.map(metered), [true, false, false]);
}

#[test]
fn what_is_left_for_a_wake_is_the_limit_less_the_least_of_all() {
    let spare = |claims: &[Claim]| {
        let (_, round) = round_of(claims, &limits(1_000), &mut BudgetMemory::default(), at(1), true);
        (round.standings[0].spare, round.spares())
    };
    let of = |sleep| spare(&two(sleep)).0;
    // Each can be brought to 200 W. One that is off counts 35 W, and 720 W once it is to be woken: 685 W more.
    assert_eq!(of(SleepCount::Awake), Some(w(600)));
    assert_eq!(of(SleepCount::Off(w(35))), Some(w(765)));
    assert_eq!(of(SleepCount::Full), Some(w(80)));
    // One that does not answer stays where it is, and one of which nothing is known may draw anything.
    let mut pair = two(SleepCount::Off(w(35)));
    pair[0].aside = true;
    assert_eq!(spare(&pair).0, Some(w(1_000 - 432 - 35)));
    pair[0] = Claim { power_model: NodePowerModel::of(&node(None), BOTH), ..claim("a") };
    assert_eq!(spare(&pair), (None, vec![None]));
}

#[test]
fn a_wake_has_to_be_paid_for_under_each_enforced_limit() {
    let tree = [written("site", None, 10_000, true), written("rack", Some(0), 800, true)];
    let observed = [tree[0].clone(), written("rack", Some(0), 800, false)];
    let price = |tree: &[SiteLimit], selected: &[usize], known: bool, settings: &BudgetLimits| {
        let plain = under("a", tree, selected, Some(432));
        let power_model = NodePowerModel::of(&node(known.then_some(360)), BOTH);
        let node = Claim { sleep: SleepCount::Off(w(35)), power_model, ..plain };
        let (_, round) = round_of_written(std::slice::from_ref(&node), tree, false);
        round.wake_price(&node.node(), settings)
    };
    let none = BudgetLimits::none();
    let watts = |full: i32, under: &[usize]| WakePrice::Watts { full: w(full), under: under.to_vec() };
    // The site of the settings, without a limit, is the first.
    assert_eq!(price(&tree, &[1], true, &none), watts(720, &[2, 1]));
    assert_eq!(price(&observed, &[1], true, &none), watts(720, &[1]));
    assert_eq!(price(&tree, &[], true, &none), WakePrice::Free);
    let rest = BudgetLimits { node_rest: w(50), unknown_node: Some(w(900)), ..BudgetLimits::none() };
    assert_eq!(price(&tree, &[1], true, &rest), watts(770, &[2, 1]));
    // What its largest draw is nobody knows.
    assert_eq!(price(&tree, &[1], false, &none), WakePrice::Shut);
    assert_eq!(price(&tree, &[1], false, &rest), watts(900, &[2, 1]));
    // Nothing may be raised there.
    let armed = [SiteLimit { armed: true, ..tree[0].clone() }, tree[1].clone()];
    assert_eq!(price(&armed, &[1], true, &none), WakePrice::Shut);
    let paused = [tree[0].clone(), written("paused", Some(0), 800, true)];
    assert_eq!(price(&paused, &[1], true, &none), WakePrice::Shut);
}
