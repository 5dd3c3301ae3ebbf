use crate::curve::Curve;
use crate::plant::Plant;
use crate::preset;
use crate::spec::{Governor, LicenceSpec, NodeSpec, PolicyLayout, TurboSpec};
use power_units::Micros;

#[test]
fn every_preset_is_a_machine_that_can_be() {
    let mut nodes = preset::families();
    nodes.push(("per thread", preset::xeon_2s_per_thread()));
    nodes.push(("epyc", preset::epyc_2s()));
    nodes.push(("client", preset::client()));
    nodes.push(("gpus", NodeSpec { gpus: vec![preset::h100_sxm(); 2], ..preset::xeon_2s() }));
    for (name, spec) in nodes {
        assert!(Plant::new(&spec, 1).is_ok(), "{name}");
    }
}

#[test]
fn a_specification_that_cannot_be_is_refused_by_the_name_of_its_field() {
    type Change = fn(&mut NodeSpec);
    let cases: &[(&str, Change)] = &[
        ("step", |n| n.step = Micros::ZERO),
        ("step", |n| n.step = Micros::new(3_000)),
        ("base_watts", |n| n.base_watts = -1.0),
        ("base_watts", |n| n.base_watts = f64::NAN),
        ("ambient_c", |n| n.ambient_c = f64::INFINITY),
        ("packages", |n| n.packages.clear()),
        ("packages", |n| n.packages = vec![n.packages[0].clone(); 65]),
        ("gpus", |n| n.gpus = vec![n.gpus[0].clone(); 65]),
        ("layout.threads", |n| n.layout = PolicyLayout::PerThread { threads: 0 }),
        ("layout.threads", |n| n.layout = PolicyLayout::PerThread { threads: 9 }),
        ("actuator.lag_s", |n| n.actuator.lag_s = -0.1),
        ("actuator.dead_time", |n| n.actuator.dead_time = Micros::MAX),
        ("packages[1].cores", |n| n.packages[1].cores = 0),
        ("packages[1].cores", |n| n.packages[1].cores = 1_025),
        ("packages[1].min_khz", |n| n.packages[1].min_khz = 0),
        ("packages[1].min_khz", |n| n.packages[1].min_khz = 3_200_001),
        ("packages[0].static_watts", |n| n.packages[0].static_watts = f64::NAN),
        ("packages[0].dynamic_watts", |n| n.packages[0].dynamic_watts = -0.1),
        ("packages[0].curve.knee", |n| n.packages[0].curve = Curve::VoltageFloor { knee: 0.0 }),
        ("packages[0].curve.knee", |n| n.packages[0].curve = Curve::VoltageFloor { knee: f64::NAN }),
        ("packages[0].turbo.all_core_khz", |n| {
            n.packages[0].turbo = Some(TurboSpec { all_core_khz: 3_200_001, free_cores: 0 });
        }),
        ("packages[0].turbo.free_cores", |n| {
            n.packages[0].turbo = Some(TurboSpec { all_core_khz: 3_000_000, free_cores: 32 });
        }),
        ("packages[0].governor.full_at", |n| {
            n.packages[0].governor = Governor::Hardware { full_at: 0.0, ramp_s: 0.1 };
        }),
        ("packages[0].governor.ramp_s", |n| {
            n.packages[0].governor = Governor::Hardware { full_at: 0.8, ramp_s: f64::NAN };
        }),
        ("packages[0].licence.max_khz", |n| {
            n.packages[0].licence = Some(LicenceSpec { max_khz: 700_000, power: 1.2 });
        }),
        ("packages[0].licence.power", |n| {
            n.packages[0].licence = Some(LicenceSpec { max_khz: 2_000_000, power: 0.9 });
        }),
        ("packages[0].limiter_lag_s", |n| n.packages[0].limiter_lag_s = -1.0),
        ("packages[0].thermal.kelvin_per_watt", |n| n.packages[0].thermal.kelvin_per_watt = -1.0),
        ("packages[0].thermal.time_constant_s", |n| n.packages[0].thermal.time_constant_s = f64::NAN),
        ("packages[0].thermal.leakage_per_kelvin", |n| n.packages[0].thermal.leakage_per_kelvin = 0.11),
        // 0.2 K/W · 60 W · 0.08/K = 0.96: heat that runs away.
        ("packages[0].thermal.leakage_per_kelvin", |n| {
            n.packages[0].thermal.leakage_per_kelvin = 0.08;
            n.packages[0].thermal.reference_c = -45.0;
        }),
        ("packages[0].thermal.leakage_per_kelvin", |n| n.packages[0].thermal.leakage_per_kelvin = 0.01),
        ("packages[0].thermal.reference_c", |n| n.packages[0].thermal.reference_c = 200.0),
        ("packages[0].thermal.trip_c", |n| n.packages[0].thermal.trip_c = -1.0),
        ("packages[0].thermal.critical_c", |n| n.packages[0].thermal.critical_c = 95.0),
        ("gpus[0].idle_watts", |n| n.gpus[0].idle_watts = -1.0),
        ("gpus[0].full_watts", |n| n.gpus[0].full_watts = 99.0),
        ("gpus[0].cap_min", |n| n.gpus[0].cap_min = 0.0),
        ("gpus[0].cap_max", |n| n.gpus[0].cap_max = 199.0),
        ("gpus[0].cap_default", |n| n.gpus[0].cap_default = 701.0),
        ("gpus[0].floor", |n| n.gpus[0].floor = 0.0),
        ("gpus[0].limiter_lag_s", |n| n.gpus[0].limiter_lag_s = 11.0),
        ("gpus[0].thermal.trip_c", |n| n.gpus[0].thermal.trip_c = f64::NAN),
    ];
    for (field, change) in cases {
        let mut spec = NodeSpec { gpus: vec![preset::h100_sxm()], ..preset::xeon_2s() };
        change(&mut spec);
        let error = Plant::new(&spec, 1).err().unwrap_or_else(|| panic!("{field} was accepted"));
        assert_eq!(error.field, *field);
        assert!(error.to_string().starts_with(&format!("{field} must ")));
    }
}
