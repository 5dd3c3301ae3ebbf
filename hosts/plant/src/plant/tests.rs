use super::*;
use crate::curve::{Curve, Exponent};
use crate::limiter::PowerLimit;
use crate::load::{Load, LoadJitter, LoadProfile};
use crate::preset;
use crate::spec::{ActuatorSpec, Governor, LicenceSpec, NodeSpec, PackageSpec, PolicyLayout, TurboSpec};
use crate::thermal::ThermalSpec;
use power_units::MicroJoules;
use proptest::prelude::*;

const SECOND: Micros = Micros::new(1_000_000);

fn millis(n: u64) -> Micros {
    Micros::new(n * 1_000)
}

fn seconds(n: u64) -> Micros {
    Micros::new(n * 1_000_000)
}

fn node(spec: &NodeSpec) -> Plant {
    Plant::new(spec, 1).unwrap()
}

/// The bench node with its packages changed, under full load for a second.
fn loaded(change: impl Fn(&mut PackageSpec), load: Load, khz: u32) -> Plant {
    let mut spec = preset::xeon_2s();
    spec.packages.iter_mut().for_each(change);
    let mut plant = node(&spec);
    plant.set_load(load).unwrap();
    plant.set_all_frequencies(khz);
    plant.advance(SECOND);
    plant
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-4 * b.abs(), "{a} is not {b}");
}

/// A node with every changing part: heat, leakage, turbo, a lag, power limits, GPUs, jittering load.
fn busy_node(seed: u64) -> Plant {
    let mut spec = preset::client();
    spec.packages.push(spec.packages[0].clone());
    spec.packages[1].governor = Governor::AtLimit;
    spec.actuator = ActuatorSpec { dead_time: millis(7), lag_s: 0.02 };
    spec.gpus = vec![preset::h100_sxm(); 2];
    spec.gpus[1].thermal.leakage_per_kelvin = 0.005;
    let mut plant = Plant::new(&spec, seed).unwrap();
    plant.set_load(Load { vector: 0.5, memory: 0.25, ..Load::busy(0.75) }).unwrap();
    plant.set_gpu_load(0, Load::busy(0.75)).unwrap();
    plant.set_gpu_load(1, Load::busy(1.0)).unwrap();
    plant.set_gpu_cap(1, 350.0).unwrap();
    plant.set_power_limit(0, PowerLimitTerm::Long, Some(PowerLimit { watts: 35.0, window_s: 0.5 })).unwrap();
    plant
        .set_power_limit(0, PowerLimitTerm::Short, Some(PowerLimit { watts: 60.0, window_s: 0.002 }))
        .unwrap();
    plant.set_frequency(9, 2_000_000).unwrap();
    plant.set_frequency(25, 2_000_000).unwrap();
    let wave = LoadProfile::Square { high: 1.0, low: 0.5, high_for: millis(333), low_for: millis(777) };
    plant.set_profile(wave).unwrap();
    plant.set_gpu_profile(LoadProfile::Steps(vec![(millis(500), 0.5), (millis(1_500), 1.0)])).unwrap();
    plant.set_jitter(Some(LoadJitter { deviation: 0.1, every: millis(100) })).unwrap();
    plant
}

/// All of a plant's state, to the last bit: floats are printed so that they read back exactly.
fn state(mut plant: Plant) -> String {
    plant.still = false;
    format!("{plant:?}")
}

#[test]
fn the_bench_draws_what_the_baseline_was_measured_on() {
    // 120 W idle, 380 W of dynamic power, P ∝ f^2.5.
    let power = |load, khz| loaded(|_| (), Load::busy(load), khz).node_watts();
    near(power(0.0, 3_200_000), 120.0);
    near(power(1.0, 3_200_000), 500.0);
    near(power(0.5, 3_200_000), 310.0);
    near(power(1.0, 1_600_000), 187.175_14);
    near(power(1.0, 800_000), 131.875);
}

#[test]
fn exponents_give_their_hand_calculated_power() {
    let power = |eighths, khz| {
        let curve = Curve::Power(Exponent::of_eighths(eighths).unwrap());
        loaded(|p| p.curve = curve, Load::busy(1.0), khz).node_watts()
    };
    near(power(8, 1_600_000), 310.0);
    near(power(32, 1_600_000), 143.75);
    near(power(24, 1_600_000), 167.5);
}

#[test]
fn below_the_voltage_floor_power_is_linear() {
    let power =
        |khz| loaded(|p| p.curve = Curve::VoltageFloor { knee: 0.55 }, Load::busy(1.0), khz).node_watts();
    // 0.5·0.55² = 0.15125; 0.25·0.55² is half of that; 0.75³ = 0.421875.
    near(power(1_600_000), 120.0 + 380.0 * 0.151_25);
    near(power(800_000), 120.0 + 380.0 * 0.075_625);
    near(power(2_400_000), 120.0 + 380.0 * 0.421_875);
}

#[test]
fn a_limit_above_the_turbo_does_not_bind() {
    let turbo = |p: &mut PackageSpec| {
        p.turbo = Some(TurboSpec { all_core_khz: 2_600_000, free_cores: 4 });
    };
    let all = loaded(turbo, Load::busy(1.0), 3_200_000);
    // (2.6/3.2)^2.5 = 0.5950568.
    near(all.node_watts(), 120.0 + 380.0 * 0.595_056_8);
    near(all.effective_khz(0).unwrap(), 2_600_000.0);
    assert!(all.throttle(PlantDomain::Package(0)).unwrap().turbo);
    assert_eq!(loaded(turbo, Load::busy(1.0), 2_800_000).node_watts(), all.node_watts());
    let below = loaded(turbo, Load::busy(1.0), 2_400_000);
    near(below.node_watts(), 120.0 + 380.0 * 0.487_139_3);
    assert_eq!(below.throttle(PlantDomain::Package(0)), Some(Default::default()));
}

#[test]
fn turbo_depends_on_how_many_cores_are_busy() {
    let mut spec = preset::xeon_2s();
    spec.packages[0].turbo = Some(TurboSpec { all_core_khz: 2_600_000, free_cores: 4 });
    let mut plant = node(&spec);
    for core in 0..4 {
        plant.set_core_load(core, Load::busy(1.0)).unwrap();
    }
    plant.advance(SECOND);
    assert_eq!(plant.core_khz(0), Some(3_200_000.0));
    near(plant.watts(PlantDomain::Package(0)).unwrap(), 60.0 + 190.0 * 4.0 / 32.0);
    // 18 cores are half of the way from 4 to 32: 2.9 GHz.
    for core in 4..18 {
        plant.set_core_load(core, Load::busy(0.01)).unwrap();
    }
    plant.advance(SECOND);
    near(plant.core_khz(0).unwrap(), 2_900_000.0);
    near(plant.core_khz(32).unwrap(), 3_200_000.0);
}

#[test]
fn hardware_picks_its_clock_below_the_limit() {
    let hardware = |p: &mut PackageSpec| p.governor = Governor::Hardware { full_at: 0.8, ramp_s: 0.05 };
    let free = loaded(hardware, Load::busy(0.4), 3_200_000);
    near(free.effective_khz(0).unwrap(), 1_600_000.0);
    near(free.node_watts(), 120.0 + 380.0 * 0.4 * 0.176_776_7);
    let held = loaded(hardware, Load::busy(0.4), 1_200_000);
    near(held.effective_khz(0).unwrap(), 1_200_000.0);
    // 0.375^2.5 = 0.0861149.
    near(held.node_watts(), 120.0 + 380.0 * 0.4 * 0.086_114_9);
    near(loaded(hardware, Load::IDLE, 3_200_000).effective_khz(0).unwrap(), 800_000.0);
}

#[test]
fn hardware_takes_its_time_to_pick() {
    let hardware = |p: &mut PackageSpec| p.governor = Governor::Hardware { full_at: 0.8, ramp_s: 0.05 };
    let mut plant = loaded(hardware, Load::IDLE, 3_200_000);
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.advance(millis(50));
    // One time constant: 0.25 + 0.75·(1 − (1/1.02)^50) = 0.7214, an implicit Euler step of 1 ms.
    near(plant.effective_khz(0).unwrap() / 3_200_000.0, 1.0 - 0.75 * 0.371_527_9);
    plant.set_all_frequencies(1_000_000);
    plant.advance(millis(1));
    assert_eq!(plant.effective_khz(0), Some(1_000_000.0));
}

#[test]
fn vector_code_runs_slower_and_hotter_for_its_part_of_the_time() {
    let licence = |p: &mut PackageSpec| p.licence = Some(LicenceSpec { max_khz: 2_400_000, power: 1.4 });
    let half = loaded(licence, Load { vector: 0.5, ..Load::busy(1.0) }, 3_200_000);
    // 0.5·1 + 0.5·1.4·0.75^2.5 = 0.8409975.
    near(half.node_watts(), 120.0 + 380.0 * 0.840_997_5);
    near(half.effective_khz(0).unwrap(), 2_800_000.0);
    near(half.cpu_speed(), 64.0 * 0.875);
    assert!(half.throttle(PlantDomain::Package(1)).unwrap().licence);
    // At and below the licence's clock only the higher power per cycle has an effect.
    let low = loaded(licence, Load { vector: 1.0, ..Load::busy(1.0) }, 1_600_000);
    near(low.node_watts(), 120.0 + 380.0 * 1.4 * 0.176_776_7);
    assert!(!low.throttle(PlantDomain::Package(1)).unwrap().licence);
    // Without a licence limit vector code has no effect.
    let none = loaded(|_| (), Load { vector: 1.0, ..Load::busy(1.0) }, 3_200_000);
    near(none.node_watts(), 500.0);
}

#[test]
fn leakage_and_heat_settle_where_they_feed_each_other() {
    let mut spec = preset::xeon_2s();
    spec.step = millis(10);
    for package in &mut spec.packages {
        package.thermal.leakage_per_kelvin = 0.004;
    }
    let mut plant = node(&spec);
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.advance(seconds(300));
    // T = (24 + 0.2·250 − 0.048·60) / (1 − 0.048) = 74.70588 °C; P = (T − 24)/0.2 = 253.5294 W.
    near(plant.celsius(PlantDomain::Package(0)).unwrap(), 74.705_88);
    near(plant.node_watts(), 507.058_8);
    plant.set_ambient(34.0).unwrap();
    plant.advance(seconds(300));
    // (34 + 50 − 2.88) / 0.952 = 85.21008 °C.
    near(plant.celsius(PlantDomain::Package(0)).unwrap(), 85.210_08);
    near(plant.watts(PlantDomain::Package(0)).unwrap(), 256.050_4);
}

#[test]
fn temperature_follows_power_with_its_time_constant() {
    let mut plant = node(&preset::xeon_2s());
    assert_eq!(plant.celsius(PlantDomain::Package(0)), Some(36.0));
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.advance(seconds(15));
    // 36 + (74 − 36)·(1 − 1/e) = 60.02 after one time constant.
    let celsius = plant.celsius(PlantDomain::Package(0)).unwrap();
    assert!((celsius - 60.02).abs() < 0.01, "{celsius}");
    plant.advance(seconds(600));
    assert_eq!(plant.celsius(PlantDomain::Package(0)), Some(74.0));
    assert_eq!(plant.celsius(PlantDomain::Node), None);
}

#[test]
fn a_package_that_is_too_hot_slows_down_to_where_it_can_stay() {
    let mut spec = preset::xeon_2s();
    spec.step = millis(10);
    spec.packages[0].thermal.trip_c = 55.0;
    spec.packages[0].thermal.critical_c = 65.0;
    let mut plant = node(&spec);
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.advance(seconds(400));
    let celsius = plant.celsius(PlantDomain::Package(0)).unwrap();
    let clock = plant.core_khz(0).unwrap() / 3_200_000.0;
    assert!(celsius > 55.0 && celsius < 65.0, "{celsius}");
    // On the line from the full clock at the trip point to a quarter of it at the critical one.
    near(clock, 1.0 - (celsius - 55.0) / 10.0 * 0.75);
    let throttle = plant.throttle(PlantDomain::Package(0)).unwrap();
    assert!(throttle.thermal && !throttle.power);
    assert_eq!(plant.throttle(PlantDomain::Package(1)), Some(Default::default()));
    assert_eq!(plant.core_khz(32), Some(3_200_000.0));
}

#[test]
fn a_core_runs_at_the_highest_request_of_its_threads() {
    let mut plant = node(&preset::xeon_2s_per_thread());
    assert_eq!(plant.policies(), 128);
    plant.set_load(Load::busy(1.0)).unwrap();
    // Half of the logical processors, but not one whole core: no effect.
    for policy in 0..64 {
        plant.set_frequency(policy, 800_000).unwrap();
    }
    plant.advance(SECOND);
    assert_eq!(plant.node_watts(), 500.0);
    assert_eq!(plant.frequency(0), Some(800_000));
    assert_eq!(plant.effective_khz(0), Some(3_200_000.0));
    // The siblings of eight cores: those eight slow down.
    for policy in 64..72 {
        plant.set_frequency(policy, 800_000).unwrap();
    }
    plant.advance(SECOND);
    near(plant.node_watts(), 120.0 + 190.0 * (24.0 + 8.0 * 0.031_25) / 32.0 + 190.0);
    assert_eq!(plant.effective_khz(0), Some(800_000.0));
    assert_eq!(plant.effective_khz(64), Some(800_000.0));
    assert_eq!(plant.effective_khz(8), Some(3_200_000.0));
}

#[test]
fn policies_cover_the_cores_that_the_layout_says() {
    let with = |layout| node(&NodeSpec { layout, ..preset::xeon_2s() });
    let per_package = with(PolicyLayout::PerPackage);
    assert_eq!((per_package.policies(), per_package.cores_of(1)), (2, Some(32..64)));
    let per_core = with(PolicyLayout::PerCore);
    assert_eq!((per_core.policies(), per_core.cores_of(63)), (64, Some(63..64)));
    let per_thread = with(PolicyLayout::PerThread { threads: 2 });
    assert_eq!((per_thread.policies(), per_thread.cores_of(127)), (128, Some(63..64)));
    assert_eq!(per_thread.cores_of(128), None);
    assert_eq!(per_thread.package_of(31), Some(0));
    assert_eq!(per_thread.package_of(32), Some(1));
    assert_eq!(per_thread.package_of(64), None);

    let mut plant = per_package;
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.set_frequency(1, 1_600_000).unwrap();
    plant.advance(SECOND);
    near(plant.watts(PlantDomain::Package(0)).unwrap(), 250.0);
    near(plant.watts(PlantDomain::Package(1)).unwrap(), 60.0 + 190.0 * 0.176_776_7);
}

#[test]
fn a_written_limit_waits_out_the_dead_time_and_then_lags() {
    let actuator = ActuatorSpec { dead_time: millis(50), lag_s: 0.1 };
    let mut plant = node(&NodeSpec { actuator, ..preset::xeon_2s() });
    plant.set_all_frequencies(1_200_000);
    plant.advance(millis(50));
    assert_eq!(plant.effective_khz(0), Some(3_200_000.0));
    plant.advance(millis(100));
    // 100 implicit Euler steps of 1 ms: (1/1.01)^100 = 0.3697112 of 2 GHz are left.
    near(plant.effective_khz(0).unwrap(), 1_200_000.0 + 2_000_000.0 * 0.369_711_2);
    plant.advance(seconds(2));
    assert_eq!(plant.effective_khz(0), Some(1_200_000.0));
    assert_eq!(plant.frequency(0), Some(1_200_000));
}

#[test]
fn writes_within_the_dead_time_take_effect_one_after_the_other() {
    let actuator = ActuatorSpec { dead_time: millis(20), lag_s: 0.0 };
    let mut plant = node(&NodeSpec { actuator, ..preset::xeon_2s() });
    let mut seen = Vec::new();
    for khz in [1_000_000, 2_000_000, 3_000_000] {
        plant.set_all_frequencies(khz);
        plant.advance(millis(10));
        seen.push(plant.effective_khz(5).unwrap());
    }
    for _ in 0..3 {
        plant.advance(millis(10));
        seen.push(plant.effective_khz(5).unwrap());
    }
    assert_eq!(seen, [3_200_000.0, 3_200_000.0, 1_000_000.0, 2_000_000.0, 3_000_000.0, 3_000_000.0]);
}

#[test]
fn a_stuck_policy_takes_writes_and_does_nothing() {
    let mut plant = node(&preset::xeon_2s());
    plant.stick_policy(3, true).unwrap();
    plant.set_all_frequencies(1_600_000);
    plant.advance(SECOND);
    assert_eq!(plant.frequency(3), Some(1_600_000));
    assert_eq!(plant.effective_khz(3), Some(3_200_000.0));
    assert_eq!(plant.effective_khz(4), Some(1_600_000.0));
    plant.stick_policy(3, false).unwrap();
    plant.advance(SECOND);
    assert_eq!(plant.effective_khz(3), Some(1_600_000.0));
}

#[test]
fn a_limit_is_brought_into_the_range_of_its_policy() {
    let mut plant = node(&preset::xeon_2s());
    assert_eq!(plant.frequency_range(0), Some((800_000, 3_200_000)));
    assert_eq!(plant.set_frequency(0, 0), Ok(800_000));
    assert_eq!(plant.set_frequency(0, u32::MAX), Ok(3_200_000));
    assert_eq!(plant.set_frequency(0, 1_234_567), Ok(1_234_567));
}

#[test]
fn inputs_that_mean_nothing_are_refused_and_change_nothing() {
    let mut spec = preset::xeon_2s();
    spec.gpus.push(preset::h100_sxm());
    let mut plant = node(&spec);
    plant.advance(SECOND);
    let before = state(plant.clone());
    for bad in [f64::NAN, -1.0, f64::NEG_INFINITY, f64::INFINITY] {
        let limit = |watts, window_s| Some(PowerLimit { watts, window_s });
        let refused = |result| matches!(result, Err(InputError::Refused(_)));
        assert!(refused(plant.set_load(Load::busy(bad))));
        assert!(refused(plant.set_core_load(0, Load { intensity: bad, ..Load::IDLE })));
        assert!(refused(plant.set_gpu_load(0, Load::busy(bad))));
        assert!(refused(plant.set_power_limit(0, PowerLimitTerm::Long, limit(bad, 1.0))));
        assert!(refused(plant.set_power_limit(0, PowerLimitTerm::Long, limit(1.0, bad))));
        assert!(refused(plant.set_gpu_cap(0, bad).map(|_| ())));
        assert!(refused(plant.set_profile(LoadProfile::Constant(bad))));
        assert!(refused(plant.set_gpu_profile(LoadProfile::Constant(bad))));
        assert!(refused(plant.set_jitter(Some(LoadJitter { deviation: bad, every: SECOND }))));
    }
    assert!(plant.set_jitter(Some(LoadJitter { deviation: 0.1, every: Micros::ZERO })).is_err());
    assert!(plant.set_ambient(f64::NAN).is_err());
    assert!(plant.set_ambient(101.0).is_err());
    assert_eq!(plant.set_frequency(64, 1), Err(InputError::Absent));
    assert_eq!(plant.stick_policy(64, true), Err(InputError::Absent));
    assert_eq!(plant.set_core_load(64, Load::IDLE), Err(InputError::Absent));
    assert_eq!(plant.set_power_limit(2, PowerLimitTerm::Long, None), Err(InputError::Absent));
    assert_eq!(plant.set_gpu_cap(1, 300.0), Err(InputError::Absent));
    assert_eq!(plant.set_gpu_load(1, Load::IDLE), Err(InputError::Absent));
    assert_eq!(state(plant), before);
}

#[test]
fn what_a_node_does_not_have_is_nothing() {
    let plant = node(&preset::xeon_2s());
    for domain in [PlantDomain::Package(2), PlantDomain::Gpu(0)] {
        assert_eq!(plant.watts(domain), None);
        assert_eq!(plant.energy(domain), None);
        assert_eq!(plant.celsius(domain), None);
        assert_eq!(plant.work(domain), None);
        assert_eq!(plant.speed(domain), None);
        assert_eq!(plant.throttle(domain), None);
        assert_eq!(plant.throttled_for(domain), None);
    }
    assert_eq!(plant.effective_khz(64), None);
    assert_eq!(plant.core_khz(64), None);
    assert_eq!(plant.gpu_cap(0), None);
    assert_eq!(plant.power_limit(0, PowerLimitTerm::Long), None);
}

#[test]
fn no_load_draws_static_power_whatever_the_clock() {
    let mut plant = node(&NodeSpec { base_watts: 15.0, ..preset::xeon_2s() });
    for khz in [800_000, 2_000_000, 3_200_000] {
        plant.set_all_frequencies(khz);
        plant.advance(SECOND);
        assert_eq!(plant.node_watts(), 135.0);
        assert_eq!(plant.cpu_work(), 0.0);
    }
}

#[test]
fn energy_is_power_over_time_and_the_node_is_the_sum_of_its_parts() {
    let mut plant = busy_node(3);
    let mut joules = 0.0;
    for _ in 0..3_000 {
        plant.advance(millis(1));
        joules += plant.node_watts() * 1e-3;
    }
    let energy = |domain| plant.energy(domain).unwrap().get();
    let node = energy(PlantDomain::Node);
    assert!((node as f64 / 1e6 - joules).abs() < 1e-3, "{node} µJ is not {joules} J");
    let packages = energy(PlantDomain::Package(0)) + energy(PlantDomain::Package(1));
    let gpus = energy(PlantDomain::Gpu(0)) + energy(PlantDomain::Gpu(1));
    // 4 W outside of packages and GPUs for 3 s.
    assert_eq!(node, packages + gpus + 12_000_000);
    let parts = [PlantDomain::Package(0), PlantDomain::Package(1), PlantDomain::Gpu(0), PlantDomain::Gpu(1)];
    let sum: f64 = parts.iter().map(|&part| plant.watts(part).unwrap()).sum();
    near(plant.node_watts(), sum + 4.0);
}

#[test]
fn work_is_speed_over_time() {
    let mut plant = node(&preset::xeon_2s());
    plant.set_load(Load { memory: 0.5, ..Load::busy(0.5) }).unwrap();
    plant.set_all_frequencies(1_600_000);
    plant.advance(seconds(3));
    // Half of the time busy, at 1/(0.5/0.5 + 0.5) of the speed, on 64 cores for 3 s.
    near(plant.cpu_work(), 64.0);
    near(plant.work(PlantDomain::Package(1)).unwrap(), 32.0);
    near(plant.cpu_speed(), 64.0 / 3.0);
}

#[test]
fn a_quiet_span_in_one_stroke_is_the_span_step_by_step() {
    // Settled power limits, settled leakage, and temperatures that still change without effect.
    let build = || {
        let mut spec = preset::xeon_2s();
        spec.step = millis(10);
        spec.packages[1].thermal.leakage_per_kelvin = 0.004;
        spec.gpus.push(preset::h100_sxm());
        let mut plant = node(&spec);
        plant.set_load(Load::busy(0.9)).unwrap();
        plant.set_gpu_load(0, Load::busy(1.0)).unwrap();
        plant.set_gpu_cap(0, 420.0).unwrap();
        plant
            .set_power_limit(0, PowerLimitTerm::Long, Some(PowerLimit { watts: 180.0, window_s: 1.0 }))
            .unwrap();
        plant.set_profile(LoadProfile::Steps(vec![(seconds(600), 0.5)])).unwrap();
        plant
    };
    let (mut stroke, mut steps) = (build(), build());
    stroke.advance(seconds(580));
    assert!(stroke.still, "there must be a quiet span to skip");
    stroke.advance(seconds(50));
    for _ in 0..63_000 {
        steps.still = false;
        steps.advance(millis(10));
    }
    assert_eq!(state(stroke), state(steps));
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed| {
        let mut plant = busy_node(seed);
        plant.advance(seconds(2));
        state(plant)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn a_run_is_the_same_on_every_machine() {
    // Recorded once: it does not show correctness, but independence of the processor and the compiler.
    let mut plant = busy_node(42);
    plant.advance(seconds(30));
    let energy = plant.energy(PlantDomain::Node).unwrap().get();
    let bits = (energy, plant.node_watts().to_bits(), plant.cpu_work().to_bits());
    assert_eq!(bits, (28_481_631_354, 4_651_918_431_962_968_852, 4_640_598_433_530_132_348));
}

#[test]
fn a_cap_on_a_gpu_holds_within_tenths_of_a_second_and_costs_less_speed_than_power() {
    let mut plant = node(&NodeSpec { gpus: vec![preset::h100_sxm(); 8], ..preset::xeon_2s() });
    for gpu in 0..8 {
        plant.set_gpu_load(gpu, Load::busy(1.0)).unwrap();
    }
    plant.advance(SECOND);
    near(plant.watts(PlantDomain::Gpu(7)).unwrap(), 700.0);
    near(plant.speed(PlantDomain::Gpu(7)).unwrap(), 1.0);
    assert_eq!(plant.set_gpu_cap(7, 400.0), Ok(400.0));
    plant.advance(millis(50));
    assert!(plant.watts(PlantDomain::Gpu(7)).unwrap() > 450.0, "no silicon is that fast");
    plant.advance(millis(450));
    assert!(plant.watts(PlantDomain::Gpu(7)).unwrap() < 408.0, "2 % after half a second");
    // Half of the dynamic power: 0.5^(1/2.375) = 0.74688 of the clock and of the speed.
    plant.advance(seconds(2));
    near(plant.watts(PlantDomain::Gpu(7)).unwrap(), 400.0);
    assert!((plant.speed(PlantDomain::Gpu(7)).unwrap() - 0.746_88).abs() < 1e-5);
    assert!(plant.throttle(PlantDomain::Gpu(7)).unwrap().power);
    near(plant.watts(PlantDomain::Gpu(6)).unwrap(), 700.0);
    assert!(!plant.throttle(PlantDomain::Gpu(6)).unwrap().power);
}

#[test]
fn a_lock_of_the_clock_holds_power_without_a_cap_and_is_no_throttle_by_power() {
    let mut plant = node(&NodeSpec { gpus: vec![preset::h100_sxm(); 2], ..preset::xeon_2s() });
    plant.set_gpu_load(0, Load::busy(1.0)).unwrap();
    plant.lock_gpu_clock(0, 0.5).unwrap();
    plant.advance(SECOND);
    // 100 W + 600 W · 0.5^2.375 = 215.66 W.
    assert!((plant.watts(PlantDomain::Gpu(0)).unwrap() - 215.66).abs() < 0.01);
    assert_eq!(plant.gpu_clock(0), Some(0.5));
    assert!(!plant.throttle(PlantDomain::Gpu(0)).unwrap().power);
    plant.lock_gpu_clock(0, 0.0).unwrap();
    assert_eq!(plant.gpu_clock(0), Some(0.175), "its lowest clock");
    plant.lock_gpu_clock(0, 1.0).unwrap();
    plant.advance(SECOND);
    near(plant.watts(PlantDomain::Gpu(0)).unwrap(), 700.0);
    for bad in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
        assert!(plant.lock_gpu_clock(0, bad).is_err());
    }
    assert_eq!(plant.lock_gpu_clock(2, 0.5), Err(InputError::Absent));
}

#[test]
fn a_gpu_cap_keeps_to_its_range_and_the_clock_to_its_floor() {
    let mut gpu = preset::h100_sxm();
    gpu.floor = 0.8;
    let mut plant = node(&NodeSpec { gpus: vec![gpu], ..preset::xeon_2s() });
    assert_eq!(plant.gpu_cap_range(0), Some((200.0, 700.0)));
    assert_eq!(plant.set_gpu_cap(0, 900.0), Ok(700.0));
    assert_eq!(plant.set_gpu_cap(0, 0.0), Ok(200.0));
    assert_eq!(plant.gpu_cap(0), Some(200.0));
    plant.set_gpu_load(0, Load::busy(1.0)).unwrap();
    plant.advance(seconds(3));
    assert_eq!(plant.gpu_clock(0), Some(0.8));
    // 100 + 600·0.8^2.375.
    near(plant.watts(PlantDomain::Gpu(0)).unwrap(), 100.0 + 600.0 * 0.8_f64.powf(2.375));
}

#[test]
fn an_idle_gpu_is_not_throttled() {
    let mut plant = node(&NodeSpec { gpus: vec![preset::h100_sxm()], ..preset::xeon_2s() });
    plant.set_gpu_cap(0, 200.0).unwrap();
    plant.advance(SECOND);
    assert_eq!(plant.throttle(PlantDomain::Gpu(0)), Some(Default::default()));
    assert_eq!(plant.throttled_for(PlantDomain::Gpu(0)), Some(Micros::ZERO));
}

#[test]
fn heat_slows_a_gpu_down_too() {
    let mut gpu = preset::h100_sxm();
    gpu.thermal = ThermalSpec { trip_c: 50.0, critical_c: 60.0, time_constant_s: 1.0, ..gpu.thermal };
    let mut plant = node(&NodeSpec { gpus: vec![gpu], ..preset::xeon_2s() });
    plant.set_gpu_load(0, Load::busy(1.0)).unwrap();
    plant.advance(seconds(60));
    let celsius = plant.celsius(PlantDomain::Gpu(0)).unwrap();
    assert!(celsius > 50.0 && celsius < 60.0);
    assert!(plant.throttle(PlantDomain::Gpu(0)).unwrap().thermal);
    assert!(plant.watts(PlantDomain::Gpu(0)).unwrap() < 600.0);
}

#[test]
fn a_span_of_nothing_changes_nothing_and_a_part_of_a_step_is_kept() {
    let mut plant = node(&preset::xeon_2s());
    plant.advance(Micros::ZERO);
    assert_eq!(plant.now(), Micros::ZERO);
    plant.advance(Micros::new(600));
    assert_eq!((plant.now(), plant.energy(PlantDomain::Node)), (Micros::new(600), Some(MicroJoules::ZERO)));
    plant.advance(Micros::new(600));
    assert_eq!(plant.now(), Micros::new(1_200));
    // One whole step of 1 ms at 120 W.
    assert_eq!(plant.energy(PlantDomain::Node), Some(MicroJoules::new(120_000)));
}

#[test]
fn the_end_of_time_is_no_end_of_the_plant() {
    let mut plant = node(&preset::xeon_2s());
    plant.advance(Micros::MAX);
    plant.advance(Micros::MAX);
    assert_eq!(plant.now(), Micros::MAX);
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.advance(seconds(1));
    assert_eq!(plant.now(), Micros::MAX);
    assert_eq!(plant.energy(PlantDomain::Node), Some(MicroJoules::MAX));
}

#[test]
fn the_dual_socket_preset_meets_the_ends_of_its_published_curve() {
    let mut plant = node(&preset::epyc_2s());
    plant.advance(SECOND);
    near(plant.node_watts(), 128.0);
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.advance(SECOND);
    assert!((plant.node_watts() - 817.0).abs() < 0.5, "{}", plant.node_watts());
    near(plant.effective_khz(0).unwrap(), 3_550_000.0);
    assert_eq!((plant.policies(), plant.cores()), (384, 192));
}

#[test]
fn a_client_boosts_out_of_idle_and_ends_at_its_long_term_limit() {
    let mut plant = node(&preset::client());
    plant.set_power_limit(0, PowerLimitTerm::Long, Some(PowerLimit { watts: 28.0, window_s: 28.0 })).unwrap();
    plant
        .set_power_limit(0, PowerLimitTerm::Short, Some(PowerLimit { watts: 60.0, window_s: 0.002 }))
        .unwrap();
    plant.advance(seconds(60));
    plant.set_load(Load::busy(1.0)).unwrap();
    plant.advance(seconds(5));
    assert!((plant.watts(PlantDomain::Package(0)).unwrap() - 60.0).abs() < 0.5);
    plant.advance(seconds(120));
    assert!((plant.watts(PlantDomain::Package(0)).unwrap() - 28.0).abs() < 0.05);
    assert!(plant.core_khz(0).unwrap() < 4_200_000.0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn the_result_does_not_depend_on_how_time_is_cut(cuts in prop::collection::vec(1_u64..250_000, 1..40)) {
        let (mut cut, mut whole) = (busy_node(9), busy_node(9));
        for &span in &cuts {
            cut.advance(Micros::new(span));
        }
        whole.advance(Micros::new(cuts.iter().sum()));
        prop_assert_eq!(state(cut), state(whole));
    }
}
