//! A node that can be simulated step by step.

use crate::gpu::Gpu;
use crate::load::Player;
use crate::meter::Meter;
use crate::package::Package;
use crate::policy::Policies;
use crate::random::Random;
use crate::spec::{NodeSpec, SpecError};
use power_units::Micros;
use std::fmt;

mod set;
#[cfg(test)]
mod tests;
mod view;

/// A node: packages, frequency policies and GPUs under load.
///
/// Inputs take effect with the next inner step. Between inputs, the time may be divided in any way: the result is the
/// same to the last bit.
#[derive(Clone, Debug)]
pub struct Plant {
    step_us: u64,
    steps_done: u64,
    /// Time that was passed in but is less than a whole step.
    rest_us: u64,
    ambient_c: f64,
    policies: Policies,
    packages: Vec<Package>,
    gpus: Vec<Gpu>,
    base_watts: f64,
    base: Meter,
    cpu_load: Player,
    gpu_load: Player,
    /// Nothing with an effect has changed in the last step, and no input was set since.
    still: bool,
}

/// A part of the node that draws power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlantDomain {
    /// The whole node.
    Node,
    /// A package.
    Package(usize),
    /// A GPU.
    Gpu(usize),
}

/// One of a package's two power limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PowerLimitTerm {
    /// PL1: limits the mean over its window.
    Long,
    /// PL2: limits every instant.
    Short,
}

/// An input that the plant rejects; its state is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputError {
    /// There is no such policy, core, package or GPU.
    Absent,
    /// The value is outside the accepted range.
    Refused(&'static str),
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("the node has no such part"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for InputError {}

/// The plant's own sources of noise; sensors have higher numbers.
const CPU_LOAD_SOURCE: u64 = 1;
const GPU_LOAD_SOURCE: u64 = 2;

impl Plant {
    /// A node that has been idle for a long time, at its highest clocks, without power limits.
    ///
    /// # Errors
    /// When no machine can have these values; the error names the field.
    pub fn new(spec: &NodeSpec, seed: u64) -> Result<Self, SpecError> {
        spec.check()?;
        let (step_us, ambient) = (spec.step.get(), spec.ambient_c);
        Ok(Self {
            step_us,
            steps_done: 0,
            rest_us: 0,
            ambient_c: ambient,
            policies: Policies::new(spec),
            packages: spec.packages.iter().map(|package| Package::new(package, step_us, ambient)).collect(),
            gpus: spec.gpus.iter().map(|gpu| Gpu::new(gpu, step_us, ambient)).collect(),
            base_watts: spec.base_watts,
            base: Meter::new(spec.base_watts),
            cpu_load: Player::new(Random::stream(seed, CPU_LOAD_SOURCE)),
            gpu_load: Player::new(Random::stream(seed, GPU_LOAD_SOURCE)),
            still: false,
        })
    }

    /// Advances the time, at most to the last microsecond that a clock can represent. Time that is less than a whole
    /// inner step is kept for the next call.
    pub fn advance(&mut self, by: Micros) {
        let time = self.rest_us.saturating_add(by.get()).min(u64::MAX - self.stepped_us());
        let mut steps = time / self.step_us;
        self.rest_us = time % self.step_us;
        while steps > 0 {
            let quiet = if self.still { steps.min(self.quiet_steps()) } else { 0 };
            if quiet > 0 {
                self.repeat(quiet);
                steps -= quiet;
            } else {
                self.step();
                steps -= 1;
            }
        }
    }

    /// The number of steps before a load may change.
    fn quiet_steps(&self) -> u64 {
        let next = self.cpu_load.changes_us().min(self.gpu_load.changes_us());
        next.saturating_sub(self.stepped_us()).div_ceil(self.step_us)
    }

    fn stepped_us(&self) -> u64 {
        self.steps_done * self.step_us
    }

    fn step(&mut self) {
        let now = self.stepped_us();
        let mut moved = false;
        if self.policies.step(now) {
            moved = true;
            for core in 0..self.policies.cores() {
                let (package, index) = self.policies.place(core);
                self.packages[package].set_limit(index, self.policies.request(core));
            }
        }
        let factor = self.cpu_load.factor(now);
        for package in &mut self.packages {
            package.set_factor(factor);
            moved |= package.step(now, self.ambient_c);
        }
        let factor = self.gpu_load.factor(now);
        for gpu in &mut self.gpus {
            gpu.set_factor(factor);
            moved |= gpu.step(now, self.ambient_c);
        }
        self.base.run(self.base_watts, now, self.step_us, 1);
        self.steps_done += 1;
        self.still = !moved;
    }

    fn repeat(&mut self, steps: u64) {
        let now = self.stepped_us();
        for package in &mut self.packages {
            package.repeat(now, steps, self.ambient_c);
        }
        for gpu in &mut self.gpus {
            gpu.repeat(now, steps, self.ambient_c);
        }
        self.base.run(self.base_watts, now, self.step_us, steps);
        self.steps_done += steps;
    }
}

fn present(index: usize, count: usize) -> Result<(), InputError> {
    if index < count { Ok(()) } else { Err(InputError::Absent) }
}

fn refuse(bad: bool, why: &'static str) -> Result<(), InputError> {
    if bad { Err(InputError::Refused(why)) } else { Ok(()) }
}

pub(crate) fn check_watts(watts: f64) -> Result<(), InputError> {
    refuse(!(0.0..=1e5).contains(&watts), "a power limit must lie between 0 and 100000 W")
}

pub(crate) fn check_ambient(celsius: f64) -> Result<(), InputError> {
    refuse(!(-50.0..=100.0).contains(&celsius), "an ambient temperature must lie between -50 and 100 °C")
}
