use super::*;
use crate::limiter::PowerLimit;
use crate::plant::{Plant, PlantDomain, PowerLimitTerm};
use crate::preset;
use power_units::Micros;
use proptest::prelude::*;

fn held(load: Load, limit_khz: u32, power_limit: Option<f64>) -> PackageSetpoint {
    PackageSetpoint { load, limit_khz, power_limit, ambient_c: 24.0 }
}

/// A family with one small package, so that the run to the steady state is short.
fn small(family: usize) -> (&'static str, NodeSpec) {
    let (name, mut spec) = preset::families().swap_remove(family);
    spec.step = Micros::new(10_000);
    spec.packages.truncate(1);
    spec.packages[0].cores = 5;
    (name, spec)
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-3 * b.abs()
}

#[test]
fn the_cubic_family_draws_with_the_cube_of_its_clock() {
    let cubic = preset::families().into_iter().find(|(name, _)| *name == "cubic").unwrap().1;
    let node = SteadyNode::new(&cubic).unwrap();
    // 120 + 380·s³ = 300: s = (180/380)^(1/3) = 0.7795243.
    let best = node.best_uniform(Load::busy(1.0), 300.0).unwrap().unwrap();
    assert!((best.khz - 3_200_000.0 * 0.779_524_3).abs() < 1.0, "{best:?}");
}

#[test]
fn the_best_uniform_frequency_is_what_hand_calculation_gives() {
    let node = SteadyNode::new(&preset::xeon_2s()).unwrap();
    // 120 + 380·s^2.5 = 300: s = (180/380)^0.4 = 0.7416441.
    let best = node.best_uniform(Load::busy(1.0), 300.0).unwrap().unwrap();
    assert!((best.khz - 3_200_000.0 * 0.741_644_1).abs() < 1.0, "{best:?}");
    assert!((best.watts - 300.0).abs() < 1e-9 && best.watts <= 300.0);
    assert!((best.speed - 64.0 * 0.741_644_1).abs() < 1e-4);
    // The floor draws 131.875 W, and nothing draws more than 500 W.
    assert_eq!(node.best_uniform(Load::busy(1.0), 131.87).unwrap(), None);
    assert_eq!(node.best_uniform(Load::busy(1.0), 501.0).unwrap().unwrap().khz, 3_200_000.0);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut spec = preset::xeon_2s();
    spec.packages[0].cores = 0;
    assert_eq!(SteadyNode::new(&spec).unwrap_err().field, "packages[0].cores");
    let node = SteadyNode::new(&preset::xeon_2s()).unwrap();
    let load = Load::busy(1.0);
    assert_eq!(node.package(2, held(load, 1, None)), Err(InputError::Absent));
    assert_eq!(node.gpu(0, load, 300.0, 24.0), Err(InputError::Absent));
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        assert!(node.package(0, held(Load::busy(bad), 1, None)).is_err());
        assert!(node.package(0, held(load, 1, Some(bad))).is_err());
        assert!(node.package(0, PackageSetpoint { ambient_c: bad * 200.0, ..held(load, 1, None) }).is_err());
        assert!(node.best_uniform(Load::busy(bad), 300.0).is_err());
        assert!(node.best_uniform(load, bad).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn a_package_comes_to_rest_where_it_is_said_to(
        family in 0_usize..10,
        utilisation in 0.0_f64..=1.0,
        vector in 0.0_f64..=1.0,
        memory in 0.0_f64..=1.0,
        khz in 800_000_u32..3_200_000,
        limit in prop::option::of(50.0_f64..260.0),
        trip in prop::option::of(40.0_f64..70.0),
    ) {
        let (name, mut spec) = small(family);
        if let Some(trip) = trip {
            spec.packages[0].thermal.trip_c = trip;
            spec.packages[0].thermal.critical_c = trip + 10.0;
        }
        let load = Load { utilisation, vector, memory, intensity: 1.0 };
        let steady = SteadyNode::new(&spec).unwrap().package(0, held(load, khz, limit)).unwrap();
        let mut plant = Plant::new(&spec, 1).unwrap();
        plant.set_load(load).unwrap();
        plant.set_all_frequencies(khz);
        let power_limit = limit.map(|watts| PowerLimit { watts, window_s: 1.0 });
        plant.set_power_limit(0, PowerLimitTerm::Long, power_limit).unwrap();
        plant.advance(Micros::new(400_000_000));
        let watts = plant.watts(PlantDomain::Package(0)).unwrap();
        prop_assert!(near(watts, steady.watts), "{name}: {watts} W, said to be {steady:?}");
        prop_assert!(near(plant.cpu_speed(), steady.speed), "{name}: {}, {steady:?}", plant.cpu_speed());
        prop_assert!(near(plant.core_khz(0).unwrap(), steady.clock * 3_200_000.0), "{name}");
        prop_assert!(near(plant.celsius(PlantDomain::Package(0)).unwrap(), steady.celsius), "{name}");
    }

    #[test]
    fn a_gpu_comes_to_rest_where_it_is_said_to(
        utilisation in 0.0_f64..=1.0,
        memory in 0.0_f64..=1.0,
        cap in 0.0_f64..1_000.0,
        leakage in 0.0_f64..0.01,
        trip in 40.0_f64..100.0,
    ) {
        let mut spec = preset::xeon_2s();
        spec.step = Micros::new(10_000);
        let mut gpu = preset::h100_sxm();
        gpu.thermal.leakage_per_kelvin = leakage;
        gpu.thermal.trip_c = trip;
        gpu.thermal.critical_c = trip + 10.0;
        spec.gpus.push(gpu);
        let load = Load { memory, ..Load::busy(utilisation) };
        let steady = SteadyNode::new(&spec).unwrap().gpu(0, load, cap, 24.0).unwrap();
        let mut plant = Plant::new(&spec, 1).unwrap();
        plant.set_gpu_load(0, load).unwrap();
        plant.set_gpu_cap(0, cap).unwrap();
        plant.advance(Micros::new(300_000_000));
        prop_assert!(near(plant.watts(PlantDomain::Gpu(0)).unwrap(), steady.watts), "{steady:?}");
        prop_assert!(near(plant.speed(PlantDomain::Gpu(0)).unwrap(), steady.speed), "{steady:?}");
        prop_assert!(near(plant.celsius(PlantDomain::Gpu(0)).unwrap(), steady.celsius), "{steady:?}");
    }
}

proptest! {
    #[test]
    fn lower_limits_and_less_load_never_draw_more(
        family in 0_usize..10,
        loads in (0.0_f64..=1.0, 0.0_f64..=1.0),
        limits in (800_000_u32..=3_200_000, 800_000_u32..=3_200_000),
        powers in (0.0_f64..300.0, 0.0_f64..300.0),
        vector in 0.0_f64..=1.0,
        trip in 40.0_f64..100.0,
    ) {
        let (name, mut spec) = small(family);
        spec.packages[0].thermal.trip_c = trip;
        spec.packages[0].thermal.critical_c = trip + 10.0;
        let node = SteadyNode::new(&spec).unwrap();
        let watts = |load, limit, power| {
            let load = Load { vector, ..Load::busy(load) };
            node.package(0, held(load, limit, Some(power))).unwrap().watts
        };
        let most = watts(loads.0.max(loads.1), limits.0.max(limits.1), powers.0.max(powers.1));
        // The steady state of thermal throttling is exact only to the last halvings of the clock.
        let most = most + 1e-9;
        prop_assert!(watts(loads.0.min(loads.1), limits.0.max(limits.1), powers.0.max(powers.1)) <= most, "{name}");
        prop_assert!(watts(loads.0.max(loads.1), limits.0.min(limits.1), powers.0.max(powers.1)) <= most, "{name}");
        prop_assert!(watts(loads.0.max(loads.1), limits.0.max(limits.1), powers.0.min(powers.1)) <= most, "{name}");
    }

    #[test]
    fn a_lower_cap_never_draws_more_and_speed_falls_slower_than_power(
        caps in (200.0_f64..700.0, 200.0_f64..700.0),
        utilisation in 0.01_f64..=1.0,
    ) {
        let spec = NodeSpec { gpus: vec![preset::h100_sxm()], ..preset::xeon_2s() };
        let node = SteadyNode::new(&spec).unwrap();
        let at = |cap| node.gpu(0, Load::busy(utilisation), cap, 24.0).unwrap();
        let (low, high) = (at(caps.0.min(caps.1)), at(caps.0.max(caps.1)));
        prop_assert!(low.watts <= high.watts && low.speed <= high.speed);
        prop_assert!(low.speed / high.speed >= low.watts / high.watts - 1e-12);
    }
}
