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
