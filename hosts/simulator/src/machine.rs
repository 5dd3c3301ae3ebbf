//! One simulated machine: a plant, the controls on it, and the pods that load it. No I/O, no clock: time is handed in.
//!
//! Pods make progress on a grid of simulated time ([`SLICE_US`]), so that a machine that is looked at a thousand times a
//! second and one that is looked at once come to the same result. Between two points of the grid nothing but an input
//! changes what a pod does.
//!
//! What is set here is clamped to what the machine takes; who asked and what the answer was is [`crate::control`]'s.

mod pods;
mod view;

pub use pods::{PodId, Running};
pub use view::TelemetryReading;

use crate::fleet::Member;
use crate::hardware::SimulatedHardware;
use crate::work::Work;
use plant::{Noise, Plant, PlantDomain, PowerLimit, PowerLimitTerm, PowerSensor, SensorError, SpecError};
use power_units::Micros;
use std::collections::BTreeMap;
use std::fmt;

/// How often pods make progress, in simulated time.
pub const SLICE_US: u64 = 200_000;
/// Over how long the telemetry's averages go: 250 ms for packages and 1 s for GPUs (facts/simulator.md section 3.2).
const CPU_WINDOW: Micros = Micros::new(250_000);
const GPU_WINDOW: Micros = Micros::new(1_000_000);
/// Over how long a package's limit holds as a mean. Its short-term limit is the same, so that no instant is above it.
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
}

/// A machine that cannot be built, which no fleet that was accepted leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineError {
    /// Its plant cannot be.
    Plant(SpecError),
    /// A sensor cannot be.
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
    /// An idle machine with the highest limits that it has.
    ///
    /// # Errors
    /// When the hardware is impossible.
    pub fn new(member: &Member, seed: u64) -> Result<Self, MachineError> {
        let hardware = member.hardware.clone();
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
            name: member.name.clone(),
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
        };
        machine.set_package_cap(limit_watts);
        Ok(machine)
    }

    /// The machine in the boot of this id.
    #[must_use]
    pub(crate) fn booted(self, boot: &str) -> Self {
        Self { boot: boot.to_owned(), ..self }
    }

    /// The boot that it is in.
    #[must_use]
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// The name of its node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is made of.
    #[must_use]
    pub const fn hardware(&self) -> &SimulatedHardware {
        &self.hardware
    }

    /// Simulated time since it was started.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.plant.now()
    }

    /// Lets time pass until this moment since the start; one that has passed changes nothing.
    pub fn advance(&mut self, until: Micros) {
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

    /// Sets the power limit of every package, brought into its range; what then holds for each of them, W.
    pub fn set_package_cap(&mut self, watts: f64) -> f64 {
        let (low, high) = self.hardware.package_cap;
        // What is not a number limits nothing further: it stays as it is.
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

    /// Takes so many percent off the highest clock, 0 to 100; the lowest clock that there is stays.
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

    /// Sets the power cap of every GPU, brought into its range; what then holds for each of them, W. Nothing where
    /// there is no GPU.
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

    /// Begins a pod, of which this part is already done. A pod that runs already goes on as it is.
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

    /// Ends a pod, whatever is left of it.
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

    /// The pods that it holds.
    #[must_use]
    pub const fn pods(&self) -> &BTreeMap<PodId, Running> {
        &self.pods
    }
}

#[cfg(test)]
mod tests;
