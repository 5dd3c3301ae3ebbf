//! The specification of a node. It is plain data; [`Plant::new`](crate::Plant::new) rejects impossible values and
//! names the field.

use crate::curve::{Curve, Exponent};
use crate::thermal::ThermalSpec;
use power_units::Micros;
use std::fmt;

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// The inner step: 1, 2, 5 or 10 ms. Results do not depend on how the calls to `advance` divide the time.
    pub step: Micros,
    /// The power outside of packages and GPUs (fans, drives, memory, conversion), W.
    pub base_watts: f64,
    /// The temperature of the node's inlet air, °C.
    pub ambient_c: f64,
    /// The packages. Cores are numbered across all packages.
    pub packages: Vec<PackageSpec>,
    /// How the cores are grouped into frequency policies.
    pub layout: PolicyLayout,
    /// How a written frequency limit takes effect.
    pub actuator: ActuatorSpec,
    /// The graphics processors.
    pub gpus: Vec<PlantGpuSpec>,
}

/// How cores are grouped into frequency policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyLayout {
    /// A policy per core.
    PerCore,
    /// A policy per logical processor. They are numbered as in Linux: the first thread of every core, then the
    /// second of every core. A core runs at the highest request of its threads.
    PerThread {
        /// Threads of a core, 1 to 8.
        threads: usize,
    },
    /// One policy for all cores of a package.
    PerPackage,
}

/// How a written frequency limit takes effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActuatorSpec {
    /// The time after a write without any effect.
    pub dead_time: Micros,
    /// The time constant of the limit's change after that, s; 0 is an immediate change.
    pub lag_s: f64,
}

/// A package.
#[derive(Clone, Debug, PartialEq)]
pub struct PackageSpec {
    /// Physical cores.
    pub cores: usize,
    /// The lowest clock.
    pub min_khz: u32,
    /// The highest clock.
    pub max_khz: u32,
    /// The power without load at the reference temperature, W.
    pub static_watts: f64,
    /// The additional power of full load on all cores at the highest clock, W.
    pub dynamic_watts: f64,
    /// The dynamic power by clock.
    pub curve: Curve,
    /// The turbo limit, if the highest clock cannot be sustained on all cores.
    pub turbo: Option<TurboSpec>,
    /// What sets the clock below the limit.
    pub governor: Governor,
    /// The licence for wide vector code, if there is one.
    pub licence: Option<LicenceSpec>,
    /// The thermal behaviour.
    pub thermal: ThermalSpec,
    /// The time constant of the power limiter's changes to the clock, s.
    pub limiter_lag_s: f64,
}

/// The highest clock by the number of busy cores: the package's highest clock up to `free_cores`, then falling
/// linearly to `all_core_khz` with all cores busy. A frequency limit above it does not bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurboSpec {
    /// The clock that all cores can hold together.
    pub all_core_khz: u32,
    /// How many busy cores may still run at the highest clock.
    pub free_cores: usize,
}

/// What sets the clock below the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Governor {
    /// Cores run at the limit.
    AtLimit,
    /// The hardware sets the clock of each core: proportional to the utilisation, with the highest clock at
    /// `full_at`, never above the limit.
    Hardware {
        /// The utilisation with the highest clock, above 0 and up to 1.
        full_at: f64,
        /// The time constant of the clock's changes, s.
        ramp_s: f64,
    },
}

/// The licence for wide vector code: a lower clock and more power per cycle, for the fraction of the time in which a
/// load runs such code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LicenceSpec {
    /// The highest clock under the licence.
    pub max_khz: u32,
    /// The power per cycle, relative to an ordinary cycle; 1 to 3.
    pub power: f64,
}

/// A graphics processor.
#[derive(Clone, Debug, PartialEq)]
pub struct PlantGpuSpec {
    /// The power without load at the reference temperature, W.
    pub idle_watts: f64,
    /// The power under full load at the highest clock, W.
    pub full_watts: f64,
    /// The lowest possible cap, W.
    pub cap_min: f64,
    /// The highest possible cap, W.
    pub cap_max: f64,
    /// The cap after start, W.
    pub cap_default: f64,
    /// The lowest clock, as a fraction of the highest.
    pub floor: f64,
    /// The exponent of the dynamic power by clock.
    pub exponent: Exponent,
    /// The time constant of the cap's enforcement, s.
    pub limiter_lag_s: f64,
    /// The thermal behaviour.
    pub thermal: ThermalSpec,
}

/// A specification with impossible values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The field, as in `packages[1].cores`.
    pub field: String,
    /// The accepted values.
    pub must: &'static str,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must {}", self.field, self.must)
    }
}

impl std::error::Error for SpecError {}

/// Checks fields under a common prefix.
struct Check {
    prefix: String,
}

impl Check {
    fn that(&self, holds: bool, field: &str, must: &'static str) -> Result<(), SpecError> {
        if holds { Ok(()) } else { Err(SpecError { field: format!("{}{field}", self.prefix), must }) }
    }
}

impl NodeSpec {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let check = Check { prefix: String::new() };
        check.that(
            matches!(self.step.get(), 1_000 | 2_000 | 5_000 | 10_000),
            "step",
            "be 1, 2, 5 or 10 ms",
        )?;
        check.that((0.0..=1e5).contains(&self.base_watts), "base_watts", "lie between 0 and 100000 W")?;
        check.that((-50.0..=100.0).contains(&self.ambient_c), "ambient_c", "lie between -50 and 100 °C")?;
        check.that(!self.packages.is_empty(), "packages", "have at least one")?;
        check.that(self.packages.len() <= 64, "packages", "have at most 64")?;
        check.that(self.gpus.len() <= 64, "gpus", "have at most 64")?;
        if let PolicyLayout::PerThread { threads } = self.layout {
            check.that((1..=8).contains(&threads), "layout.threads", "lie between 1 and 8")?;
        }
        let lag = self.actuator.lag_s;
        check.that((0.0..=60.0).contains(&lag), "actuator.lag_s", "lie between 0 and 60 s")?;
        let dead = self.actuator.dead_time.get() <= 60_000_000;
        check.that(dead, "actuator.dead_time", "be at most 60 s")?;
        for (index, package) in self.packages.iter().enumerate() {
            package.check(&Check { prefix: format!("packages[{index}].") })?;
        }
        for (index, gpu) in self.gpus.iter().enumerate() {
            gpu.check(&Check { prefix: format!("gpus[{index}].") })?;
        }
        Ok(())
    }
}

impl PackageSpec {
    fn check(&self, check: &Check) -> Result<(), SpecError> {
        check.that((1..=1024).contains(&self.cores), "cores", "lie between 1 and 1024")?;
        check.that(self.min_khz > 0, "min_khz", "be above 0")?;
        check.that(self.min_khz <= self.max_khz, "min_khz", "not be above max_khz")?;
        check.that((0.0..=1e5).contains(&self.static_watts), "static_watts", "lie between 0 and 100000 W")?;
        check.that(
            (0.0..=1e5).contains(&self.dynamic_watts),
            "dynamic_watts",
            "lie between 0 and 100000 W",
        )?;
        if let Curve::VoltageFloor { knee } = self.curve {
            check.that(knee > 0.0 && knee < 1.0, "curve.knee", "lie between 0 and 1")?;
        }
        let clocks = self.min_khz..=self.max_khz;
        if let Some(turbo) = self.turbo {
            let within = clocks.contains(&turbo.all_core_khz);
            check.that(within, "turbo.all_core_khz", "lie between min_khz and max_khz")?;
            check.that(turbo.free_cores < self.cores, "turbo.free_cores", "be fewer than cores")?;
        }
        if let Governor::Hardware { full_at, ramp_s } = self.governor {
            check.that(full_at > 0.0 && full_at <= 1.0, "governor.full_at", "lie above 0 and up to 1")?;
            check.that((0.0..=60.0).contains(&ramp_s), "governor.ramp_s", "lie between 0 and 60 s")?;
        }
        if let Some(licence) = self.licence {
            let within = clocks.contains(&licence.max_khz);
            check.that(within, "licence.max_khz", "lie between min_khz and max_khz")?;
            check.that((1.0..=3.0).contains(&licence.power), "licence.power", "lie between 1 and 3")?;
        }
        check.that((0.0..=10.0).contains(&self.limiter_lag_s), "limiter_lag_s", "lie between 0 and 10 s")?;
        self.thermal.check(check, self.static_watts)
    }
}

impl PlantGpuSpec {
    fn check(&self, check: &Check) -> Result<(), SpecError> {
        check.that((0.0..=1e5).contains(&self.idle_watts), "idle_watts", "lie between 0 and 100000 W")?;
        let full = (self.idle_watts..=1e5).contains(&self.full_watts);
        check.that(full, "full_watts", "lie between idle_watts and 100000 W")?;
        check.that(self.cap_min > 0.0, "cap_min", "be above 0")?;
        let max = (self.cap_min..=1e5).contains(&self.cap_max);
        check.that(max, "cap_max", "lie between cap_min and 100000 W")?;
        let default = (self.cap_min..=self.cap_max).contains(&self.cap_default);
        check.that(default, "cap_default", "lie between cap_min and cap_max")?;
        check.that(self.floor > 0.0 && self.floor <= 1.0, "floor", "lie above 0 and up to 1")?;
        check.that((0.0..=10.0).contains(&self.limiter_lag_s), "limiter_lag_s", "lie between 0 and 10 s")?;
        self.thermal.check(check, self.idle_watts)
    }
}

impl ThermalSpec {
    fn check(&self, check: &Check, static_watts: f64) -> Result<(), SpecError> {
        let resistance = (0.0..=100.0).contains(&self.kelvin_per_watt);
        check.that(resistance, "thermal.kelvin_per_watt", "lie between 0 and 100 K/W")?;
        let time = (0.0..=1e4).contains(&self.time_constant_s);
        check.that(time, "thermal.time_constant_s", "lie between 0 and 10000 s")?;
        let leakage = (0.0..=0.1).contains(&self.leakage_per_kelvin);
        check.that(leakage, "thermal.leakage_per_kelvin", "lie between 0 and 0.1 per K")?;
        let stable = self.kelvin_per_watt * static_watts * self.leakage_per_kelvin <= 0.9;
        check.that(stable, "thermal.leakage_per_kelvin", "not let heat run away: R·P·λ up to 0.9")?;
        let reference = (-50.0..=150.0).contains(&self.reference_c);
        check.that(reference, "thermal.reference_c", "lie between -50 and 150 °C")?;
        let cold = self.leakage_per_kelvin * (self.reference_c + 50.0) <= 1.0;
        check.that(
            cold,
            "thermal.leakage_per_kelvin",
            "leave some static power at -50 °C: λ·(reference + 50) up to 1",
        )?;
        let trip = (0.0..=1e4).contains(&self.trip_c);
        check.that(trip, "thermal.trip_c", "lie between 0 and 10000 °C")?;
        let critical = self.critical_c > self.trip_c && self.critical_c <= 2e4;
        check.that(critical, "thermal.critical_c", "lie above trip_c and up to 20000 °C")
    }
}

#[cfg(test)]
mod tests;
