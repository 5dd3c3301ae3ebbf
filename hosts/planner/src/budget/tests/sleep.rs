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
