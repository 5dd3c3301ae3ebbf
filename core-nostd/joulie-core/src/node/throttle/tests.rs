use super::dither::Grid;
use super::*;
use crate::node::law::FrequencyRange;
use power_units::{KiloHertz, Role};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// The places of a machine whose CPUs are numbered as Linux does it: first one thread of each core, package by
/// package, then the siblings.
fn machine(packages: u16, cores: u32, threads: u32) -> Vec<PolicyLocation> {
    let one_thread =
        (0..packages).flat_map(|package| (0..cores).map(move |core| PolicyLocation { package, core }));
    (0..threads).flat_map(|_| one_thread.clone()).collect()
}

fn throttled(places: &[PolicyLocation], percent: i64) -> Vec<bool> {
    let mut seats = vec![Seat::EMPTY; places.len()];
    let order = PolicySequence::new(places, &mut seats).unwrap();
    order.throttled(ThrottlePercent::new(percent).unwrap()).collect()
}

fn count(limited: &[bool]) -> usize {
    limited.iter().filter(|&&limited| limited).count()
}

#[test]
fn a_percentage_outside_0_to_100_is_none() {
    for (percent, accepted) in
        [(0, true), (42, true), (100, true), (-1, false), (101, false), (i64::MAX, false)]
    {
        assert_eq!(ThrottlePercent::new(percent).map(ThrottlePercent::get).is_some(), accepted, "{percent}");
    }
    assert_eq!(ThrottlePercent::new(42).unwrap().get(), 42);
}

/// The table of facts section 7.4.
#[test]
fn what_a_profile_does_not_grant_is_throttled() {
    for (granted, throttle) in [
        ("100", 0),
        ("99.5", 1),
        ("62.5", 38),
        ("60", 40),
        ("37.5", 63),
        ("0.4", 100),
        ("150", 0),
        ("-5", 100),
    ] {
        assert_eq!(
            ThrottlePercent::leaving(Percent::parse(granted, Role::Limit).unwrap()).get(),
            throttle,
            "{granted}"
        );
    }
}

/// The table of the facts (section 11): `ceil(n · p / 100)` of n, at 10, 20, 30, 50 and 70 %.
#[test]
fn the_part_of_the_cores_is_rounded_up() {
    for (cores, expected) in [
        (4, [1, 1, 2, 2, 3]),
        (8, [1, 2, 3, 4, 6]),
        (16, [2, 4, 5, 8, 12]),
        (64, [7, 13, 20, 32, 45]),
        (192, [20, 39, 58, 96, 135]),
    ] {
        let places = machine(1, cores, 1);
        let counts = [10, 20, 30, 50, 70].map(|percent| count(&throttled(&places, percent)));
        assert_eq!(counts, expected, "{cores} cores");
    }
}

/// Fix list agent S9: 8 CPUs in 2 policies.
#[test]
fn a_low_percentage_on_two_policies_limits_one_of_them() {
    let places = [PolicyLocation { package: 0, core: 0 }, PolicyLocation { package: 0, core: 4 }];
    let counts: Vec<usize> = (0..=10).map(|tenth| count(&throttled(&places, tenth * 10))).collect();
    assert_eq!(counts, [0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
}

/// Fix list agent C12.
#[test]
fn siblings_go_together_and_the_packages_in_turn_from_their_highest_cores() {
    // 2 packages of 4 cores with 2 threads: 16 policies, the sibling of policy i is i + 8. 10 % of 8 cores is one
    // core, 20 % two, 50 % four.
    let places = machine(2, 4, 2);
    let limited = |percent| -> Vec<usize> {
        let limited = throttled(&places, percent);
        limited.iter().enumerate().filter(|&(_, &limited)| limited).map(|(at, _)| at).collect()
    };
    assert_eq!(limited(10), [7, 15]);
    assert_eq!(limited(20), [3, 7, 11, 15]);
    assert_eq!(limited(50), [2, 3, 6, 7, 10, 11, 14, 15]);
}

#[test]
fn packages_of_different_size_give_in_proportion() {
    let mut places = machine(1, 12, 1);
    places.extend((0..4).map(|core| PolicyLocation { package: 1, core }));
    for percent in 0..=100 {
        let limited = throttled(&places, percent);
        let (large, small) = limited.split_at(12);
        let (large, small) = (count(large) as f64 / 12.0, count(small) as f64 / 4.0);
        // Each is within one core of the percentage.
        assert!((large - percent as f64 / 100.0).abs() <= 1.0 / 12.0 + 1e-9, "{percent}: {large}");
        assert!((small - percent as f64 / 100.0).abs() <= 1.0 / 4.0 + 1e-9, "{percent}: {small}");
    }
}

#[test]
fn as_many_seats_as_policies_are_needed_and_no_policies_are_no_trouble() {
    assert!(PolicySequence::new(&machine(1, 2, 1), &mut [Seat::EMPTY]).is_none());
    assert_eq!(throttled(&[], 100), Vec::<bool>::new());
}

fn grid(min: i32, max: i32, step: i32) -> Grid<'static> {
    let range = FrequencyRange::new(KiloHertz::from_int(min), KiloHertz::from_int(max)).unwrap();
    Grid::new(range, KiloHertz::from_int(step)).unwrap()
}

fn spread(places: &[PolicyLocation], target: i32, grid: &Grid<'_>) -> Vec<i64> {
    let mut seats = vec![Seat::EMPTY; places.len()];
    let order = PolicySequence::new(places, &mut seats).unwrap();
    order.spread(KiloHertz::from_int(target), grid).map(|f| i64::from(f.to_whole(Role::Nearest))).collect()
}

#[test]
fn some_policies_one_step_higher_make_the_mean() {
    // 2.43 GHz on a grid of 100 MHz: 30 % of ten policies at 2.5, the others at 2.4; the low cores are the fast ones.
    let fast_and_slow = spread(&machine(1, 10, 1), 2_430_000, &grid(800_000, 3_200_000, 100_000));
    assert_eq!(fast_and_slow, [[2_500_000; 3].as_slice(), &[2_400_000; 7]].concat());
}

#[test]
fn the_ends_of_the_range_are_kept_even_off_the_grid() {
    let grid = grid(850_000, 3_250_000, 100_000);
    let places = machine(1, 4, 1);
    for (target, limits) in [
        (0, [850_000; 4]),
        (850_000, [850_000; 4]),
        // Halfway from 850 to 900 MHz.
        (875_000, [900_000, 900_000, 850_000, 850_000]),
        (3_225_000, [3_250_000, 3_250_000, 3_200_000, 3_200_000]),
        (3_250_000, [3_250_000; 4]),
        (9_000_000, [3_250_000; 4]),
    ] {
        assert_eq!(spread(&places, target, &grid), limits, "{target}");
    }
    let range = FrequencyRange::new(KiloHertz::from_int(1), KiloHertz::from_int(2)).unwrap();
    assert_eq!(Grid::new(range, KiloHertz::ZERO), None);
    assert_eq!(Grid::new(range, -KiloHertz::from_int(1)), None);
}

/// Fix list agent C13: the core contains no fixed frequency. The lowest frequency is the processor's own minimum, be
/// it below or above the 1.5 GHz of another model.
#[test]
fn the_lowest_frequency_is_the_processors_own() {
    for (min, max) in [(400_000, 1_200_000), (800_000, 3_200_000), (2_000_000, 5_700_000)] {
        let grid = grid(min, max, 100_000);
        for (target, limit) in [(1, min), (min, min), (max, max), (i32::MAX, max)] {
            assert_eq!(spread(&machine(1, 4, 1), target, &grid), [i64::from(limit); 4], "{min} to {max}");
        }
    }
}

fn places() -> impl Strategy<Value = Vec<PolicyLocation>> {
    prop::collection::vec((0_u16..3, 0_u32..12), 1..48)
        .prop_map(|all| all.into_iter().map(|(package, core)| PolicyLocation { package, core }).collect())
}

/// The largest number of policies that share a core.
fn largest_group(places: &[PolicyLocation]) -> usize {
    places.iter().map(|a| places.iter().filter(|b| a == *b).count()).max().unwrap()
}

proptest! {
    #[test]
    fn more_throttle_limits_the_same_policies_and_more(places in places(), p in 0_i64..=100, q in 0_i64..=100) {
        let (less, more) = (throttled(&places, p.min(q)), throttled(&places, p.max(q)));
        prop_assert!(less.iter().zip(&more).all(|(less, more)| more >= less));
    }

    #[test]
    fn the_throttled_part_is_the_percentage_rounded_up_by_less_than_a_core(places in places(), p in 0_i64..=100) {
        let limited = count(&throttled(&places, p));
        let asked = (places.len() * p as usize).div_ceil(100);
        prop_assert!(limited >= asked && limited < asked + largest_group(&places), "{limited} of {asked}");
        prop_assert_eq!(limited == 0, p == 0);
        if p == 100 {
            prop_assert_eq!(limited, places.len());
        }
    }

    #[test]
    fn siblings_are_never_parted(places in places(), p in 0_i64..=100, target in 1_000_000..3_000_000) {
        let limited = throttled(&places, p);
        let limits = spread(&places, target, &grid(1_000_000, 3_000_000, 100_000));
        for (a, b) in (0..places.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            if places[a] == places[b] {
                prop_assert_eq!(limited[a], limited[b]);
                prop_assert_eq!(limits[a], limits[b]);
            }
        }
    }

    #[test]
    fn which_policies_are_throttled_does_not_depend_on_how_they_are_listed(
        (listed, shuffled) in places().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        p in 0_i64..=100,
    ) {
        let by_place = |places: &[PolicyLocation]| {
            let mut all: Vec<_> = places.iter().map(|p| (p.package, p.core)).zip(throttled(places, p)).collect();
            all.sort_unstable();
            all
        };
        prop_assert_eq!(by_place(&listed), by_place(&shuffled));
    }

    #[test]
    fn the_mean_is_the_target_to_less_than_a_core_and_never_above(
        places in places(), target in 1_000_000..=3_000_000, step in 1..400_000,
    ) {
        let limits = spread(&places, target, &grid(1_000_000, 3_000_000, step));
        let sum: i64 = limits.iter().sum();
        let asked = i64::from(target) * places.len() as i64;
        prop_assert!(sum <= asked);
        prop_assert!(asked - sum < i64::from(step) * largest_group(&places) as i64 + 1);
        let (low, high) = (*limits.iter().min().unwrap(), *limits.iter().max().unwrap());
        prop_assert!(high - low <= i64::from(step));
    }

    #[test]
    fn a_target_that_moves_little_moves_few_policies(
        places in places(), target in 1_000_000..2_900_000, by in 0..100_000,
    ) {
        let grid = grid(1_000_000, 3_000_000, 100_000);
        let (before, after) = (spread(&places, target, &grid), spread(&places, target + by, &grid));
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        // The fraction of a step by which the target moved, in policies, and a core at either end.
        let part = (places.len() as i64 * i64::from(by)) as f64 / 100_000.0;
        prop_assert!(moved as f64 <= part + 2.0 * largest_group(&places) as f64, "{moved} for {part}");
        // A higher mean lowers no policy.
        prop_assert!(before.iter().zip(&after).all(|(before, after)| after >= before));
    }
}
