use super::*;
use crate::workload::jobs;

/// Two hours of seed 42: every law does the same on every run, and none but the baseline drops before the fleet is full.
#[test]
fn a_run_repeats_to_the_bit() {
    let jobs = jobs(42, 2);
    for arm in ARMS {
        let (once, again) = (run(arm, 42, &jobs, 2), run(arm, 42, &jobs, 2));
        assert_eq!(once, again, "{}", arm.name());
        assert_eq!(once.jobs.iter().sum::<u32>(), 40_383);
    }
}

/// Two jobs by hand: 35 kW and 825 W for each GPU node stand, a minute each.
#[test]
fn the_energy_of_an_empty_fleet_is_its_floor() {
    let figures = run(CompatArm::Baseline, 1, &[], 1);
    // 2000 · 35 W + 500 · 825 W for an hour.
    assert!((figures.it_kwh - 482.5).abs() < 1e-6);
    assert!((figures.peak_kw - 482.5).abs() < 1e-6);
}

/// Upstream's own run of seed 42: jobs that were dropped, the mean and the peak in kW, for its baseline and its formulas; and what a
/// replica of it had with `LeastAllocated`.
#[test]
fn the_drops_of_seed_42_are_upstream_s_to_the_digit() {
    let jobs = jobs(42, 48);
    for (arm, drops, mean) in [
        (CompatArm::Baseline, 909_565, 2655.3),
        (CompatArm::Legacy, 783_594, 2524.4),
        (CompatArm::Ten, 791_668, 2484.1),
        (CompatArm::Adaptive, 782_227, 2487.5),
        (CompatArm::LeastAllocated, 774_962, 2438.2),
    ] {
        let figures = run(arm, 42, &jobs, 48);
        assert_eq!(figures.drops(), drops, "{}", arm.name());
        assert!((figures.it_kwh / 48.0 - mean).abs() < 0.1, "{} {}", arm.name(), figures.it_kwh / 48.0);
    }
}

/// Of two nodes with hashes of 256 values the first is chosen unless the second has a higher one: (1 + 1 / 256) / 2 of all times.
#[test]
fn a_hash_that_is_equal_falls_to_the_first_node() {
    assert_eq!((first_of_highest(0.0, 0.5, 0.5), first_of_highest(1.0, 0.5, 0.5)), (0.0, 0.0));
    let mut first = 0;
    for highest in 0..1000 {
        for place in 0..1000 {
            let of = |number: i32| (f64::from(number) + 0.5) / 1000.0;
            let number = first_of_highest(2.0, of(highest), of(place));
            assert!(number == 0.0 || number == 1.0);
            first += i32::from(number == 0.0);
        }
    }
    assert!((first - 501_953).abs() < 600, "{first}");
    // Of many nodes none is out of range.
    for place in 0..=1000 {
        let number = first_of_highest(2500.0, 0.999, f64::from(place) / 1000.0);
        assert!((0.0..2500.0).contains(&number));
    }
}
