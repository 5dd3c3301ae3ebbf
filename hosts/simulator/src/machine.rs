//! One simulated machine: a plant, its controls, and the pods that load it. It has no I/O and no clock: the time is
//! passed in.
//!
//! Pods make progress on a fixed grid of simulated time ([`SLICE_US`]). So a machine that is read a thousand times a
//! second and one that is read once have the same result. Between two points of the grid only an input changes what a
//! pod does.
//!
//! Settings are clamped to the machine's range. [`crate::control`] handles requests and answers.

mod pods;
mod power;
mod view;

pub use pods::{PodId, Running};
pub use power::{MachinePower, PowerOrder, PowerSpent, SwitchTimes};
pub use view::TelemetryReading;

use crate::fleet::Member;
use crate::hardware::SimulatedHardware;
use crate::work::Work;
use plant::{Noise, Plant, PlantDomain, PowerLimit, PowerLimitTerm, PowerSensor, SensorError, SpecError};
use power::MachineSwitch;
use power_units::Micros;
use std::collections::BTreeMap;
use std::fmt;

/// How often pods make progress, in simulated time.
pub const SLICE_US: u64 = 200_000;
/// The averaging time of the telemetry: 250 ms for packages and 1 s for GPUs (facts/simulator.md section 3.2).
const CPU_WINDOW: Micros = Micros::new(250_000);
const GPU_WINDOW: Micros = Micros::new(1_000_000);
/// The averaging time of a package's limit. Its short-term limit has the same value, so that no instant is above it.
const LIMIT_WINDOW_S: f64 = 1.0;

/// A machine under load.
#[derive(Clone, Debug)]
pub struct SimulatedMachine {
    name: String,
    boot: String,
    hardware: SimulatedHardware,
    plant: Plant,
    cpu_sensors: Vec<PowerSensor>,
    gpu_sensors: Vec<PowerSensor>,
    pods: BTreeMap<PodId, Running>,
    /// The pod on each GPU.
    boards: Vec<Option<PodId>>,
    limit_watts: f64,
    throttle_pct: u8,
    board_watts: Option<f64>,
    seed: u64,
    switch: MachineSwitch,
}

/// A machine that cannot be built. An accepted fleet never causes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineError {
    /// Its plant is invalid.
    Plant(SpecError),
    /// A sensor is invalid.
    Sensor(SensorError),
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plant(error) => write!(f, "the plant cannot be built: {error}"),
            Self::Sensor(error) => write!(f, "a sensor cannot be built: {error}"),
        }
    }
}

impl std::error::Error for MachineError {}

impl SimulatedMachine {
    /// An idle machine with its highest limits.
    ///
    /// # Errors
    /// If the hardware is impossible.
    pub fn new(member: &Member, seed: u64) -> Result<Self, MachineError> {
        Self::of(&member.name, &member.hardware, seed)
    }

    fn of(name: &str, hardware: &SimulatedHardware, seed: u64) -> Result<Self, MachineError> {
        let hardware = hardware.clone();
        let plant = Plant::new(&hardware.plant, seed).map_err(MachineError::Plant)?;
        let sensor = |domain, window, number: usize| {
            let number = u64::try_from(number).unwrap_or(0);
            PowerSensor::new(domain, window, Noise::NONE, seed, number).map_err(MachineError::Sensor)
        };
        let packages = plant.packages();
        let cpu_sensors = (0..packages)
            .map(|at| sensor(PlantDomain::Package(at), CPU_WINDOW, at))
            .collect::<Result<_, _>>()?;
        let gpu_sensors = (0..plant.gpus())
            .map(|at| sensor(PlantDomain::Gpu(at), GPU_WINDOW, packages + at))
            .collect::<Result<_, _>>()?;
        let boards = vec![None; plant.gpus()];
        let limit_watts = hardware.package_cap.1;
        let board_watts = hardware.gpus.as_ref().map(|gpus| gpus.cap.1);
        let mut machine = Self {
            name: name.to_owned(),
            boot: String::new(),
            hardware,
            plant,
            cpu_sensors,
            gpu_sensors,
            pods: BTreeMap::new(),
            boards,
            limit_watts,
            throttle_pct: 0,
            board_watts,
            seed,
            switch: MachineSwitch::on(),
        };
        machine.set_package_cap(limit_watts);
        Ok(machine)
    }

    /// Its boot id.
    #[must_use]
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// The name of its node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its hardware.
    #[must_use]
    pub const fn hardware(&self) -> &SimulatedHardware {
        &self.hardware
    }

    /// Lets the plant and the pods run until this moment since the present boot.
    fn run(&mut self, until: Micros) {
        loop {
            let now = self.plant.now().get();
            let next = (now / SLICE_US + 1).saturating_mul(SLICE_US);
            if next > until.get() {
                self.plant.advance(Micros::new(until.get().saturating_sub(now)));
                return;
            }
            self.plant.advance(Micros::new(next - now));
            self.work(next);
        }
    }

    /// Sets the power limit of every package, clamped to its range, and returns the new limit, W.
    pub fn set_package_cap(&mut self, watts: f64) -> f64 {
        let (low, high) = self.hardware.package_cap;
        // Keep the limit if the value is not a number.
        let watts = if watts.is_nan() { self.limit_watts } else { watts.clamp(low, high) };
        self.limit_watts = watts;
        let long = PowerLimit { watts, window_s: LIMIT_WINDOW_S };
        let short = PowerLimit { watts, window_s: 0.0 };
        for package in 0..self.plant.packages() {
            for (term, limit) in [(PowerLimitTerm::Long, long), (PowerLimitTerm::Short, short)] {
                let set = self.plant.set_power_limit(package, term, Some(limit));
                debug_assert!(set.is_ok(), "the range was checked with the plant");
            }
        }
        watts
    }

    /// Reduces the highest clock by a percentage from 0 to 100, but not below the lowest clock.
    pub fn set_throttle(&mut self, percent: i64) -> u8 {
        let percent = u8::try_from(percent.clamp(0, 100)).unwrap_or(0);
        self.throttle_pct = percent;
        for policy in 0..self.plant.policies() {
            let Some((_, most)) = self.plant.frequency_range(policy) else { continue };
            let khz = u64::from(most) * u64::from(100 - percent) / 100;
            let set = self.plant.set_frequency(policy, u32::try_from(khz).unwrap_or(most));
            debug_assert!(set.is_ok(), "the policy is there");
        }
        percent
    }

    /// Sets the power cap of every GPU, clamped to its range, and returns the new cap, W; `None` without GPUs.
    pub fn set_board_cap(&mut self, watts: f64) -> Option<f64> {
        let (low, high) = self.hardware.gpus.as_ref()?.cap;
        let watts = if watts.is_nan() { self.board_watts? } else { watts.clamp(low, high) };
        for board in 0..self.plant.gpus() {
            let set = self.plant.set_gpu_cap(board, watts);
            debug_assert!(set.is_ok(), "the range is the board's");
        }
        self.board_watts = Some(watts);
        self.board_watts
    }

    /// Starts a pod with this part of its work done. A pod that runs already is not changed.
    pub fn begin(&mut self, id: PodId, work: Work, done: f64) {
        if self.pods.contains_key(&id) {
            return;
        }
        let wanted = usize::try_from(work.gpus).unwrap_or(usize::MAX);
        let free = self.boards.iter_mut().filter(|board| board.is_none()).take(wanted);
        for board in free {
            *board = Some(id.clone());
        }
        let since_us = self.plant.now().get();
        self.pods.insert(id, Running::new(work, done, since_us));
        self.load();
    }

    /// Ends a pod, whether or not its work is done.
    pub fn end(&mut self, id: &PodId) {
        if self.pods.remove(id).is_none() {
            return;
        }
        for board in &mut self.boards {
            if board.as_ref() == Some(id) {
                *board = None;
            }
        }
        self.load();
    }

    /// The pods on this machine.
    #[must_use]
    pub const fn pods(&self) -> &BTreeMap<PodId, Running> {
        &self.pods
    }
}

#[cfg(test)]
mod tests;
