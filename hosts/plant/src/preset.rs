//! Predefined nodes and families. Their fields may be changed before a plant is created from them.

use crate::curve::{Curve, Exponent};
use crate::spec::{
    ActuatorSpec, Governor, LicenceSpec, NodeSpec, PackageSpec, PlantGpuSpec, PolicyLayout, TurboSpec,
};
use crate::thermal::ThermalSpec;
use power_units::Micros;

/// The test bench of the laws: two packages of 32 cores with two threads each, one policy per core; 120 W idle, 380 W
/// more under full load at 3.2 GHz, power proportional to the clock to the power of 2.5. Limits take effect at once
/// and heat has no effect.
#[must_use]
pub fn xeon_2s() -> NodeSpec {
    NodeSpec {
        step: Micros::new(1_000),
        base_watts: 0.0,
        ambient_c: 24.0,
        packages: vec![xeon_package(); 2],
        layout: PolicyLayout::PerCore,
        actuator: ActuatorSpec { dead_time: Micros::ZERO, lag_s: 0.0 },
        gpus: Vec::new(),
    }
}

/// The same machine with one policy per logical processor, 128 of them.
#[must_use]
pub fn xeon_2s_per_thread() -> NodeSpec {
    NodeSpec { layout: PolicyLayout::PerThread { threads: 2 }, ..xeon_2s() }
}

fn xeon_package() -> PackageSpec {
    PackageSpec {
        cores: 32,
        min_khz: 800_000,
        max_khz: 3_200_000,
        static_watts: 60.0,
        dynamic_watts: 190.0,
        curve: Curve::Power(Exponent::NOMINAL),
        turbo: None,
        governor: Governor::AtLimit,
        licence: None,
        thermal: ThermalSpec { leakage_per_kelvin: 0.0, ..server_thermal() },
        limiter_lag_s: 0.05,
    }
}

/// 250 W heat a package by 50 K; throttling starts at 95 °C.
fn server_thermal() -> ThermalSpec {
    ThermalSpec {
        kelvin_per_watt: 0.2,
        time_constant_s: 15.0,
        leakage_per_kelvin: 0.004,
        reference_c: 60.0,
        trip_c: 95.0,
        critical_c: 105.0,
    }
}

/// A pair of 96-core packages of the 350-watt class without an active power limiter: 128 W idle and 817 W under full
/// load (the ends of the published SPECpower curve), an all-core turbo of 3.55 GHz under a limit of 3.7 GHz, constant
/// voltage below 2.2 GHz.
#[must_use]
pub fn epyc_2s() -> NodeSpec {
    // Full load runs at the all-core turbo: (817 W − 128 W) / 2 packages = D·(3.55/3.7)³, so D = 390.0 W.
    let package = PackageSpec {
        cores: 96,
        min_khz: 1_500_000,
        max_khz: 3_700_000,
        static_watts: 64.0,
        dynamic_watts: 390.0,
        curve: Curve::VoltageFloor { knee: 0.6 },
        turbo: Some(TurboSpec { all_core_khz: 3_550_000, free_cores: 16 }),
        governor: Governor::AtLimit,
        licence: None,
        thermal: ThermalSpec { leakage_per_kelvin: 0.0, kelvin_per_watt: 0.15, ..server_thermal() },
        limiter_lag_s: 0.05,
    };
    NodeSpec { packages: vec![package; 2], layout: PolicyLayout::PerThread { threads: 2 }, ..xeon_2s() }
}

/// A client: eight cores whose clock the hardware chooses, in a case that cannot dissipate their full power.
#[must_use]
pub fn client() -> NodeSpec {
    let package = PackageSpec {
        cores: 8,
        min_khz: 800_000,
        max_khz: 4_800_000,
        static_watts: 5.0,
        dynamic_watts: 90.0,
        curve: Curve::VoltageFloor { knee: 0.4 },
        turbo: Some(TurboSpec { all_core_khz: 4_200_000, free_cores: 2 }),
        governor: Governor::Hardware { full_at: 0.8, ramp_s: 0.03 },
        licence: None,
        thermal: ThermalSpec { kelvin_per_watt: 1.2, time_constant_s: 8.0, ..server_thermal() },
        limiter_lag_s: 0.02,
    };
    NodeSpec {
        base_watts: 4.0,
        packages: vec![package],
        layout: PolicyLayout::PerThread { threads: 2 },
        ..xeon_2s()
    }
}

/// The same bench for every family of packages: the laws must hold on all of them.
#[must_use]
pub fn families() -> Vec<(&'static str, NodeSpec)> {
    let with = |change: fn(&mut PackageSpec)| {
        let mut node = xeon_2s();
        node.packages.iter_mut().for_each(change);
        node
    };
    vec![
        ("power law", xeon_2s()),
        ("exponent 1", with(|p| p.curve = Curve::Power(exponent(8)))),
        ("cubic", with(|p| p.curve = Curve::Power(exponent(24)))),
        ("exponent 4", with(|p| p.curve = Curve::Power(exponent(32)))),
        ("voltage floor", with(|p| p.curve = Curve::VoltageFloor { knee: 0.55 })),
        ("turbo", with(|p| p.turbo = Some(TurboSpec { all_core_khz: 2_600_000, free_cores: 4 }))),
        ("hardware", with(|p| p.governor = Governor::Hardware { full_at: 0.8, ramp_s: 0.05 })),
        ("licence", with(|p| p.licence = Some(LicenceSpec { max_khz: 2_400_000, power: 1.4 }))),
        ("leaky", with(|p| p.thermal = server_thermal())),
        ("slow actuator", NodeSpec { actuator: slow(), ..xeon_2s() }),
    ]
}

fn exponent(eighths: u8) -> Exponent {
    Exponent::of_eighths(eighths).unwrap_or(Exponent::NOMINAL)
}

fn slow() -> ActuatorSpec {
    ActuatorSpec { dead_time: Micros::new(50_000), lag_s: 0.1 }
}

/// A 700-watt GPU of the SXM type: 100 W idle, caps from 200 W to 700 W. Giving up half of the dynamic power costs a
/// quarter of the speed.
#[must_use]
pub fn h100_sxm() -> PlantGpuSpec {
    PlantGpuSpec {
        idle_watts: 100.0,
        full_watts: 700.0,
        cap_min: 200.0,
        cap_max: 700.0,
        cap_default: 700.0,
        floor: 0.175,
        exponent: exponent(19),
        limiter_lag_s: 0.1,
        thermal: ThermalSpec {
            kelvin_per_watt: 0.06,
            time_constant_s: 10.0,
            leakage_per_kelvin: 0.0,
            reference_c: 35.0,
            trip_c: 85.0,
            critical_c: 95.0,
        },
    }
}

/// A 600-watt GPU of Intel's OAM type, with caps from 100 W: the curve, the idle power and the times are those of
/// [`h100_sxm`].
#[must_use]
pub fn max_1550() -> PlantGpuSpec {
    PlantGpuSpec {
        full_watts: 600.0,
        cap_min: 100.0,
        cap_max: 600.0,
        cap_default: 600.0,
        floor: 0.1,
        ..h100_sxm()
    }
}

/// A 750-watt GPU of the OAM type, with caps from 350 W: the curve, the idle power and the times are those of
/// [`h100_sxm`].
#[must_use]
pub fn mi300x() -> PlantGpuSpec {
    PlantGpuSpec { full_watts: 750.0, cap_min: 350.0, cap_max: 750.0, cap_default: 750.0, ..h100_sxm() }
}
