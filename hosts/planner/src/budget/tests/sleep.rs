//! What a node counts that sleeps or wakes.

use super::*;
use crate::sleep::SleepCount;

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
