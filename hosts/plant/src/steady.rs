//! The steady state of a package, a GPU or a node under constant inputs, without stepping to it.
//!
//! For simulations of thousands of nodes over days, and as the reference for the laws: the best possible result with
//! one frequency for all cores under a cap.

use crate::curve::speed;
use crate::load::Load;
use crate::plant::{InputError, check_ambient, check_watts};
use crate::spec::{NodeSpec, PackageSpec, PlantGpuSpec, SpecError};
use crate::thermal::ThermalSpec;
use crate::units::real;

/// A steady state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// The power, W.
    pub watts: f64,
    /// The speed; 1 is one core, or one GPU, fully busy at its highest clock.
    pub speed: f64,
    /// The clock while busy, as a fraction of the highest.
    pub clock: f64,
    /// The temperature, °C.
    pub celsius: f64,
}

/// The common frequency of all cores at which a node is fastest under a cap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestUniform {
    /// The limit for every policy, kHz.
    pub khz: f64,
    /// The node's power at that limit, W.
    pub watts: f64,
    /// The speed of all cores.
    pub speed: f64,
}

/// The number of halvings of an interval that exhaust a double's 53 bits.
const HALVINGS: u32 = 54;

/// The highest allowed value in the interval, if everything below an allowed value is allowed too; the low end if
/// none is.
fn highest(low: f64, high: f64, allowed: impl Fn(f64) -> bool) -> f64 {
    if allowed(high) {
        return high;
    }
    let (mut low, mut high) = (low, high);
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2.0;
        if allowed(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

impl ThermalSpec {
    /// The power and the temperature of the steady state for a static and a dynamic power.
    fn rest(&self, ambient_c: f64, static_watts: f64, dynamic_watts: f64) -> (f64, f64) {
        let celsius = self.settled(ambient_c, static_watts, dynamic_watts);
        (static_watts * self.leakage(celsius) + dynamic_watts, celsius)
    }
}

/// The constant inputs of a package.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackageSetpoint {
    /// The load on every core.
    pub load: Load,
    /// The frequency limit of every policy, clamped to its range, kHz.
    pub limit_khz: u32,
    /// The power limit, if one is enabled, W. In the steady state the lower of PL1 and PL2 applies.
    pub power_limit: Option<f64>,
    /// The temperature of the node's inlet air, °C.
    pub ambient_c: f64,
}

/// A node for which only steady states are computed.
#[derive(Clone, Debug)]
pub struct SteadyNode {
    spec: NodeSpec,
}

impl SteadyNode {
    /// The steady states of a node.
    ///
    /// # Errors
    /// When no machine can have these values; the error names the field.
    pub fn new(spec: &NodeSpec) -> Result<Self, SpecError> {
        spec.check()?;
        Ok(Self { spec: spec.clone() })
    }

    /// The steady state of a package.
    ///
    /// # Errors
    /// When there is no such package, or an input is out of range.
    pub fn package(&self, package: usize, held: PackageSetpoint) -> Result<Steady, InputError> {
        let package = self.spec.packages.get(package).ok_or(InputError::Absent)?;
        held.load.check()?;
        check_watts(held.power_limit.unwrap_or(0.0))?;
        check_ambient(held.ambient_c)?;
        let limit = f64::from(held.limit_khz) / f64::from(package.max_khz);
        Ok(package.steady(held.load, limit, held.power_limit, held.ambient_c))
    }

    /// The steady state of a GPU under a load and a cap, which is clamped to its range.
    ///
    /// # Errors
    /// When there is no such GPU, or an input is out of range.
    pub fn gpu(&self, gpu: usize, load: Load, cap: f64, ambient_c: f64) -> Result<Steady, InputError> {
        let gpu = self.spec.gpus.get(gpu).ok_or(InputError::Absent)?;
        load.check()?;
        check_watts(cap)?;
        check_ambient(ambient_c)?;
        Ok(gpu.steady(load, cap, ambient_c))
    }

    /// The highest frequency limit for all policies at which the node under this load stays within a cap, counting
    /// packages and the power outside them but not the GPUs; `None` when even the lowest limit draws more.
    ///
    /// If the limit does not bind (turbo, hardware that sets the clock), this is the highest limit.
    ///
    /// # Errors
    /// When an input is out of range.
    pub fn best_uniform(&self, load: Load, cap: f64) -> Result<Option<BestUniform>, InputError> {
        load.check()?;
        check_watts(cap)?;
        let packages = &self.spec.packages;
        let low = packages.iter().map(|package| package.min_khz).min().unwrap_or(0);
        let high = packages.iter().map(|package| package.max_khz).max().unwrap_or(0);
        let khz = highest(f64::from(low), f64::from(high), |khz| self.uniform(load, khz).watts <= cap);
        let best = self.uniform(load, khz);
        Ok((best.watts <= cap).then_some(best))
    }

    fn uniform(&self, load: Load, khz: f64) -> BestUniform {
        let mut sum = BestUniform { khz, watts: self.spec.base_watts, speed: 0.0 };
        for package in &self.spec.packages {
            let limit = khz / f64::from(package.max_khz);
            let steady = package.steady(load, limit, None, self.spec.ambient_c);
            sum.watts += steady.watts;
            sum.speed += steady.speed;
        }
        sum
    }
}

impl PackageSpec {
    fn steady(&self, load: Load, limit: f64, power_limit: Option<f64>, ambient_c: f64) -> Steady {
        let busy_cores = if load.utilisation > 0.0 { self.cores } else { 0 };
        let asked = self.governed(load.utilisation, limit.clamp(self.floor(), 1.0));
        let top = asked.min(self.turbo_clock(busy_cores));
        let state = |clock: f64| {
            let (power, speed) = self.core_at(load, load.utilisation, clock);
            let (watts, celsius) =
                self.thermal.rest(ambient_c, self.static_watts, self.dynamic_watts * power);
            let clock = self.mean_clock(clock, load.vector);
            Steady { watts, speed: speed * real(self.cores as u64), clock, celsius }
        };
        let allowed = |clock: f64| {
            let Steady { watts, celsius, .. } = state(clock);
            power_limit.is_none_or(|limit| watts <= limit)
                && clock <= self.thermal.ceiling(celsius, self.floor())
        };
        // Without load the clock has no effect on the power, and is not lowered.
        if load.utilisation == 0.0 { state(top) } else { state(highest(self.floor(), top, allowed)) }
    }
}

impl PlantGpuSpec {
    fn steady(&self, load: Load, cap: f64, ambient_c: f64) -> Steady {
        let cap = cap.clamp(self.cap_min, self.cap_max);
        let state = |clock: f64| {
            let dynamic = self.dynamic(load, load.utilisation, clock);
            let (watts, celsius) = self.thermal.rest(ambient_c, self.idle_watts, dynamic);
            Steady { watts, speed: load.utilisation * speed(clock, load.memory), clock, celsius }
        };
        let allowed = |clock: f64| {
            let Steady { watts, celsius, .. } = state(clock);
            watts <= cap && clock <= self.thermal.ceiling(celsius, self.floor)
        };
        if load.utilisation == 0.0 { state(1.0) } else { state(highest(self.floor, 1.0, allowed)) }
    }
}

#[cfg(test)]
mod tests;
