//! The trials of the laws: machines, sensors and events.

use anyhow::{Context, Result};
use plant::{Load, LoadJitter, LoadProfile, NodeSpec, Noise, preset};
use power_units::Micros;

/// How the law measures the power.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sensor {
    /// The difference of an energy counter: the mean since the last reading.
    Counter,
    /// A mean over the last second, which the law knows.
    Averaging,
    /// A mean over the last second, which the law takes for a momentary value.
    AveragingUntold,
}

/// One trial. Time counts from the step of the cap; before that the machine runs uncapped.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// Its name in the tables.
    pub(super) name: &'static str,
    /// The machine.
    pub(super) spec: NodeSpec,
    /// The load of every core.
    pub(super) load: Load,
    /// The changes of the load: time and factor.
    pub(super) steps: Vec<(f64, f64)>,
    /// The random fluctuation of the load.
    pub(super) jitter: Option<LoadJitter>,
    /// The sensor.
    pub(super) sensor: Sensor,
    /// The errors of the sensor.
    pub(super) noise: Noise,
    /// The seed of its noise.
    pub(super) seed: u64,
    /// How many policies ignore writes.
    pub(super) stuck: usize,
    /// Whether the effective frequency can be read.
    pub(super) effective: bool,
    /// The caps, W, and their start times.
    pub(super) caps: Vec<(f64, f64)>,
    /// Until when the cap cannot be kept, s.
    pub(super) unreachable_until: f64,
    /// Its length, s.
    pub(super) lasts: f64,
}

/// How long the machine runs before the step of the cap, s. Temperatures are steady by then.
pub(super) const BEFORE_S: f64 = 80.0;

/// The trial for which the law was tuned; its power is plotted.
pub(super) fn nominal() -> Scene {
    Scene {
        name: "nominal",
        spec: preset::xeon_2s(),
        load: Load::busy(1.0),
        steps: Vec::new(),
        jitter: None,
        sensor: Sensor::Counter,
        noise: Noise::NONE,
        seed: 2026,
        stuck: 0,
        effective: true,
        caps: vec![(0.0, 300.0)],
        unreachable_until: 0.0,
        lasts: 600.0,
    }
}

/// The plant's client without its power outside the package.
fn client() -> NodeSpec {
    NodeSpec { base_watts: 0.0, ..preset::client() }
}

fn family(name: &'static str) -> Result<NodeSpec> {
    let found = preset::families().into_iter().find(|(known, _)| *known == name);
    found.map(|(_, spec)| spec).with_context(|| format!("the plant has no family {name:?}"))
}

/// All trials.
pub(super) fn all() -> Result<Vec<Scene>> {
    let noise = |deviation, dropped| Noise { deviation, dropped };
    let vector = Load { vector: 1.0, ..Load::busy(1.0) };
    let mixed = Load { vector: 0.3, ..Load::busy(0.9) };
    // Slightly after a tick, so that one reading contains a part of the change.
    let square = vec![(300.3, 0.6), (600.3, 1.0)];
    let second = Micros::new(1_000_000);
    Ok(vec![
        nominal(),
        Scene { name: "exponent 1 (×0.4)", spec: family("exponent 1")?, ..nominal() },
        Scene { name: "cubic (exponent 3)", spec: family("cubic")?, ..nominal() },
        Scene { name: "exponent 4 (×1.6)", spec: family("exponent 4")?, ..nominal() },
        Scene { name: "voltage floor (linear, then cubic)", spec: family("voltage floor")?, ..nominal() },
        Scene { name: "turbo-limited", spec: family("turbo")?, caps: vec![(0.0, 240.0)], ..nominal() },
        Scene { name: "hardware picks the clock", spec: family("hardware")?, ..nominal() },
        Scene {
            name: "hardware picks, load 60 %",
            spec: family("hardware")?,
            load: Load::busy(0.6),
            caps: vec![(0.0, 180.0)],
            ..nominal()
        },
        Scene { name: "vector licence", spec: family("licence")?, load: vector, ..nominal() },
        Scene {
            name: "vector licence, 30 % of the time",
            spec: family("licence")?,
            load: mixed,
            ..nominal()
        },
        Scene { name: "leaky and warm", spec: family("leaky")?, ..nominal() },
        Scene {
            name: "192 cores, policy per thread",
            spec: preset::epyc_2s(),
            caps: vec![(0.0, 500.0)],
            ..nominal()
        },
        Scene { name: "8 cores in a hot case", spec: client(), caps: vec![(0.0, 40.0)], ..nominal() },
        Scene { name: "slow actuator (50 + 100 ms)", spec: family("slow actuator")?, ..nominal() },
        Scene {
            name: "slow actuator, clock unknown",
            spec: family("slow actuator")?,
            effective: false,
            ..nominal()
        },
        Scene { name: "sensor averages 1 s", sensor: Sensor::Averaging, ..nominal() },
        Scene { name: "sensor averages 1 s, untold", sensor: Sensor::AveragingUntold, ..nominal() },
        Scene { name: "2 % noise", noise: noise(0.02, 0.0), ..nominal() },
        Scene {
            name: "2 % noise, sensor averages 1 s",
            noise: noise(0.02, 0.0),
            sensor: Sensor::Averaging,
            ..nominal()
        },
        Scene { name: "5 % dropped reads", noise: noise(0.0, 0.05), ..nominal() },
        Scene { name: "one policy of 64 stuck", stuck: 1, ..nominal() },
        Scene {
            name: "restless load (2 % each second)",
            jitter: Some(LoadJitter { deviation: 0.02, every: second }),
            load: Load::busy(0.9),
            ..nominal()
        },
        Scene { name: "load 100 → 60 → 100 %", steps: square.clone(), lasts: 900.0, ..nominal() },
        Scene {
            name: "load 100 → 60 → 100 %, sensor averages 1 s",
            steps: square.clone(),
            sensor: Sensor::Averaging,
            lasts: 900.0,
            ..nominal()
        },
        Scene {
            name: "load 100 → 60 → 100 %, voltage floor",
            spec: family("voltage floor")?,
            steps: square,
            lasts: 900.0,
            ..nominal()
        },
        Scene {
            name: "cap below the floor, then not",
            caps: vec![(0.0, 100.0), (300.0, 300.0)],
            unreachable_until: 300.0,
            ..nominal()
        },
    ])
}

impl Scene {
    /// The cap at this time.
    pub(super) fn cap(&self, at: f64) -> Option<f64> {
        self.caps.iter().rev().find(|(from, _)| *from <= at).map(|(_, cap)| *cap)
    }

    /// The load over time, from the machine's start.
    pub(super) fn profile(&self) -> LoadProfile {
        let from_start = |(at, factor): &(f64, f64)| (micros(at + BEFORE_S), *factor);
        LoadProfile::Steps(self.steps.iter().map(from_start).collect())
    }

    /// The times of changes of the caps and the load.
    pub(super) fn events(&self) -> Vec<f64> {
        let mut events: Vec<f64> = self.caps.iter().chain(&self.steps).map(|(at, _)| *at).collect();
        events.sort_by(f64::total_cmp);
        events
    }
}

/// Converts seconds to the plant's unit.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few hundred seconds, never negative"
)]
pub(super) fn micros(seconds: f64) -> Micros {
    Micros::new((seconds * 1e6).round() as u64)
}
