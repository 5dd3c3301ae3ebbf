//! The limiter in its usual environment: a package under load.

use super::*;
use crate::load::{Load, LoadProfile};
use crate::plant::{Plant, PlantDomain, PowerLimitTerm};
use crate::preset;
use crate::spec::PackageSpec;
use power_units::Micros;
use proptest::prelude::*;

fn limit(watts: f64, window_s: f64) -> Option<PowerLimit> {
    Some(PowerLimit { watts, window_s })
}

fn millis(n: u64) -> Micros {
    Micros::new(n * 1_000)
}

/// The bench node; its first package draws 60 W idle and 250 W under full load.
fn bench() -> Plant {
    Plant::new(&preset::xeon_2s(), 1).unwrap()
}

fn watts(plant: &Plant) -> f64 {
    plant.watts(PlantDomain::Package(0)).unwrap()
}

/// The mean power of the first package over the next span, W.
fn mean(plant: &mut Plant, span: Micros) -> f64 {
    let before = plant.energy(PlantDomain::Package(0)).unwrap();
    plant.advance(span);
    let energy = plant.energy(PlantDomain::Package(0)).unwrap() - before;
    energy.get() as f64 / span.get() as f64
}

#[test]
fn a_limit_is_held_within_a_tenth_of_a_percent() {
    for watts in [70.0, 100.0, 150.0, 200.0, 249.0] {
        for window_s in [0.001, 0.1, 1.0, 10.0] {
            let mut plant = bench();
            plant.set_load(Load::busy(1.0)).unwrap();
            plant.set_power_limit(0, PowerLimitTerm::Long, limit(watts, window_s)).unwrap();
            // First the longest window is filled.
            plant.advance(millis(120_000));
            let held = mean(&mut plant, millis(1_000));
            assert!((held - watts).abs() <= 1e-3 * watts, "{held} W for {watts} W over {window_s} s");
            assert!(plant.throttle(PlantDomain::Package(0)).unwrap().power);
        }
    }
}

#[test]
fn a_limit_above_what_is_drawn_and_no_limit_change_nothing() {
    for setting in [limit(251.0, 1.0), limit(1e5, 0.0), None] {
        let mut plant = bench();
        plant.set_load(Load::busy(1.0)).unwrap();
        plant.set_power_limit(0, PowerLimitTerm::Long, setting).unwrap();
        plant.set_power_limit(0, PowerLimitTerm::Short, setting).unwrap();
        plant.advance(millis(5_000));
        assert_eq!(watts(&plant), 250.0);
        assert_eq!(plant.throttled_for(PlantDomain::Package(0)), Some(Micros::ZERO));
    }
}

#[test]
fn a_lowered_limit_is_reached_in_tenths_of_a_second_without_going_far_below() {
    let mut plant = bench();
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.advance(millis(2_000));
    plant.set_power_limit(0, PowerLimitTerm::Long, limit(150.0, 1.0)).unwrap();
    plant.advance(millis(10));
    assert!(watts(&plant) > 220.0, "no silicon is that fast");
    plant.advance(millis(290));
    assert!((watts(&plant) - 150.0).abs() <= 3.0, "{}", watts(&plant));
    let mut lowest = f64::INFINITY;
    for _ in 0..5_000 {
        plant.advance(millis(1));
        lowest = lowest.min(watts(&plant));
    }
    assert!(lowest > 149.5, "{lowest}");
}

#[test]
fn the_short_term_limit_may_be_used_until_the_window_is_full() {
    let mut plant = bench();
    plant.set_power_limit(0, PowerLimitTerm::Long, limit(125.0, 28.0)).unwrap();
    plant.set_power_limit(0, PowerLimitTerm::Short, limit(200.0, 0.002)).unwrap();
    plant.advance(millis(1_000));
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.advance(millis(1_000));
    let mut at_short = 0;
    for _ in 0..60_000 {
        plant.advance(millis(1));
        at_short += u32::from(watts(&plant) > 199.0);
        assert!(plant.limiter_average(0).unwrap() <= 125.0 * 1.002);
    }
    // The average goes from 60 W toward 200 W and meets 125 W after 28 s · ln((200 − 60)/(200 − 125)) = 17.476 s.
    let spent = 1.0 + f64::from(at_short) / 1e3;
    assert!((spent - 17.476).abs() < 0.5, "{spent} s");
    assert!((watts(&plant) - 125.0).abs() < 0.1);
}

#[test]
fn without_a_short_term_limit_the_window_is_filled_with_all_that_can_be_drawn() {
    let mut plant = bench();
    plant.set_power_limit(0, PowerLimitTerm::Long, limit(125.0, 28.0)).unwrap();
    plant.set_load(Load::busy(1.0)).unwrap();
    // 28 s · ln((250 − 60)/(250 − 125)) = 11.724 s.
    plant.advance(millis(11_200));
    assert_eq!(watts(&plant), 250.0);
    plant.advance(millis(1_300));
    assert!(watts(&plant) < 127.0, "{}", watts(&plant));
}

#[test]
fn a_short_term_limit_holds_alone_and_below_a_long_term_limit() {
    let mut plant = bench();
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.set_power_limit(0, PowerLimitTerm::Short, limit(140.0, 0.002)).unwrap();
    plant.advance(millis(2_000));
    assert!((watts(&plant) - 140.0).abs() < 0.05);
    plant.set_power_limit(0, PowerLimitTerm::Long, limit(180.0, 1.0)).unwrap();
    plant.advance(millis(5_000));
    assert!((watts(&plant) - 140.0).abs() < 0.05);
    plant.set_power_limit(0, PowerLimitTerm::Short, None).unwrap();
    plant.advance(millis(5_000));
    assert!((watts(&plant) - 180.0).abs() < 0.1);
    assert_eq!(plant.power_limit(0, PowerLimitTerm::Short), None);
    assert_eq!(plant.power_limit(0, PowerLimitTerm::Long), limit(180.0, 1.0));
}

#[test]
fn a_limit_below_the_lowest_clock_is_not_reached() {
    let mut plant = bench();
    plant.set_load(Load::busy(1.0)).unwrap();
    for watts_limit in [0.0, 30.0, 65.0] {
        plant.set_power_limit(0, PowerLimitTerm::Long, limit(watts_limit, 1.0)).unwrap();
        plant.advance(millis(5_000));
        // 60 W + 190 W · 0.25^2.5.
        assert!((watts(&plant) - 65.937_5).abs() < 1e-6);
        assert_eq!(plant.core_khz(0), Some(800_000.0));
    }
    plant.set_power_limit(0, PowerLimitTerm::Long, None).unwrap();
    plant.advance(millis(5_000));
    assert_eq!(watts(&plant), 250.0);
}

#[test]
fn the_limiter_brings_the_fastest_cores_down_first() {
    let mut plant = bench();
    plant.set_load(Load::busy(1.0)).unwrap();
    for core in 0..16 {
        plant.set_frequency(core, 1_600_000).unwrap();
    }
    // 60 + 95·0.176777 + 95 = 171.79 W without a limit; at 160 W only the fast half slows down.
    plant.set_power_limit(0, PowerLimitTerm::Long, limit(160.0, 1.0)).unwrap();
    plant.advance(millis(5_000));
    assert_eq!(plant.core_khz(0), Some(1_600_000.0));
    assert!(plant.core_khz(16).unwrap() < 3_200_000.0);
    assert!((watts(&plant) - 160.0).abs() < 0.1);
    assert_eq!(plant.core_khz(32), Some(3_200_000.0));
}

#[test]
fn the_limiter_holds_its_average_through_a_square_wave() {
    let mut plant = bench();
    plant.set_load(Load::busy(1.0)).unwrap();
    let wave = LoadProfile::Square { high: 1.0, low: 0.1, high_for: millis(700), low_for: millis(500) };
    plant.set_profile(wave).unwrap();
    plant.set_power_limit(0, PowerLimitTerm::Long, limit(130.0, 1.0)).unwrap();
    plant.advance(millis(10_000));
    for _ in 0..12_000 {
        plant.advance(millis(1));
        assert!(plant.limiter_average(0).unwrap() <= 130.0 * 1.01);
    }
    // The power that the low part leaves unused is used in the high part, so the mean comes close to the limit
    // from below.
    let mean = mean(&mut plant, millis(12_000));
    assert!(mean > 105.0 && mean <= 131.0, "{mean}");
    // In each period of 1.2 s only the high part was slowed down, and 0.1 s more while the ceiling rose.
    let held = plant.throttled_for(PlantDomain::Package(0)).unwrap().get();
    assert!(held > 5_000_000 && held < plant.now().get() * 2 / 3, "{held}");
}

#[test]
fn load_out_of_idle_overshoots_for_the_limiters_lag_only() {
    let mut plant = bench();
    plant.set_power_limit(0, PowerLimitTerm::Long, limit(120.0, 0.1)).unwrap();
    plant.advance(millis(3_000));
    plant.set_load(Load::busy(1.0)).unwrap();
    let mut joules_above = 0.0;
    for _ in 0..3_000 {
        plant.advance(millis(1));
        joules_above += (watts(&plant) - 120.0).max(0.0) * 1e-3;
    }
    assert!(joules_above > 1.0, "no silicon foresees a load: {joules_above}");
    assert!(joules_above < 130.0 * 0.3, "{joules_above}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn a_limit_is_held_on_every_family(
        family in 0_usize..9,
        part in 0.3_f64..0.99,
        utilisation in 0.4_f64..1.0,
        window_s in 0.01_f64..2.0,
    ) {
        let (name, mut spec) = preset::families().swap_remove(family);
        spec.packages.truncate(1);
        spec.packages[0] = PackageSpec { cores: 4, ..spec.packages[0].clone() };
        if let Some(turbo) = &mut spec.packages[0].turbo {
            turbo.free_cores = 1;
        }
        let mut plant = Plant::new(&spec, 1).unwrap();
        plant.set_load(Load { vector: 0.5, ..Load::busy(utilisation) }).unwrap();
        plant.advance(millis(120_000));
        let free = watts(&plant);
        plant.set_all_frequencies(0);
        plant.advance(millis(120_000));
        let floor = watts(&plant);
        plant.set_all_frequencies(u32::MAX);
        let wanted = floor + part * (free - floor);
        plant.set_power_limit(0, PowerLimitTerm::Long, limit(wanted, window_s)).unwrap();
        plant.advance(millis(120_000));
        let held = mean(&mut plant, millis(1_000));
        prop_assert!((held - wanted).abs() <= 1e-3 * wanted, "{held} W for {wanted} W on {name}");
    }
}
