//! A law and a machine in a closed loop: sense, step, act, and record the result.

use super::scene::{BEFORE_S, Scene, Sensor, micros};
use anyhow::{Context, Result};
use joulie_core::node::law::{
    Command, CommandOutcome, Decision, Facts, FrequencyRange, Hold, Law, LawAction, PowerReading, Reach,
};
use joulie_core::node::throttle::dither::Grid;
use joulie_core::node::throttle::{PolicyLocation, PolicySequence, Seat};
use plant::{EnergyCounter, LoadProfile, Plant, PlantDomain, PowerSensor, to_watts};
use power_units::{KiloHertz, MicroJoules, Micros, Role, Stamp};

/// The record of a run, on a grid of [`GRID_S`] that begins at the step of the cap.
pub(super) struct Record {
    /// The true power in each cell, W.
    pub(super) watts: Vec<f64>,
    /// The work done in each cell.
    pub(super) work: Vec<f64>,
    /// The number of policies written in each cell.
    pub(super) writes: Vec<u32>,
    /// The number of policies.
    pub(super) policies: usize,
    /// The times at which the law reported that the cap cannot be kept.
    pub(super) not_achievable: Vec<f64>,
}

/// The grid on which power is recorded, s.
pub(super) const GRID_S: f64 = 0.01;
const GRID: Micros = Micros::new(10_000);
/// The frequency that a throttled policy is limited to by default (`DVFS_MIN_FREQ_KHZ`).
const THROTTLED_KHZ: u32 = 1_500_000;
/// The step in which clocks are limited.
const STEP: KiloHertz = KiloHertz::from_int(100_000);

/// The machine with its sensors and actuators.
struct Machine {
    plant: Plant,
    counter: EnergyCounter,
    gauge: PowerSensor,
    sensor: Sensor,
    read: Option<(Micros, MicroJoules)>,
    seats: Vec<Seat>,
    places: Vec<PolicyLocation>,
    range: FrequencyRange,
}

/// Lets `law` control the scene's machine every `period` seconds. The first step is at the first cap.
pub(super) fn run<L: Law>(law: &L, period: f64, scene: &Scene) -> Result<Record> {
    let mut machine = Machine::new(scene)?;
    machine.plant.advance(micros(BEFORE_S));
    machine.sense();
    let mut mode = law.start(None);
    let mut outcome = CommandOutcome::Unknown;
    let every = cells(period).max(1);
    let cells = cells(scene.lasts);
    let mut record = Record {
        watts: Vec::with_capacity(cells),
        work: Vec::with_capacity(cells),
        writes: vec![0; cells],
        policies: machine.plant.policies(),
        not_achievable: Vec::new(),
    };
    let mut clock = Clock::default();
    clock.add(&machine);
    for cell in 0..cells {
        let at = cell as f64 * GRID_S;
        if cell % every == 0 {
            let facts = Facts {
                now: Stamp::new(machine.plant.now()),
                cap: scene.cap(at).and_then(to_watts),
                power: if cell == 0 { machine.settled() } else { machine.sense() },
                effective: if scene.effective { clock.take() } else { None },
                range: Some(machine.range),
                outcome,
            };
            let decision: Decision = law.step(&mut mode, &facts);
            if decision.reach == Reach::NotAchievable {
                record.not_achievable.push(at);
            }
            outcome = match decision.command {
                Some(asked) => {
                    let (in_effect, writes) = machine.act(asked)?;
                    record.writes[cell] = writes;
                    CommandOutcome::Applied { asked, in_effect }
                }
                None => CommandOutcome::Unknown,
            };
        }
        let (energy, work) = (machine.energy()?, machine.plant.cpu_work());
        machine.plant.advance(GRID);
        clock.add(&machine);
        let joules = (machine.energy()?.get() - energy.get()) as f64 / 1e6;
        record.watts.push(joules / GRID_S);
        record.work.push(machine.plant.cpu_work() - work);
    }
    Ok(record)
}

/// A span in cells of the grid.
pub(super) fn cells(seconds: f64) -> usize {
    usize::try_from(micros(seconds).get() / GRID.get()).unwrap_or(usize::MAX)
}

/// The mean clock since the last step, as counters of real cycles would report it.
#[derive(Default)]
struct Clock {
    sum: f64,
    count: u32,
}

impl Clock {
    fn add(&mut self, machine: &Machine) {
        let policies = machine.plant.policies();
        let sum: f64 = (0..policies).filter_map(|policy| machine.plant.effective_khz(policy)).sum();
        self.sum += sum / policies as f64;
        self.count += 1;
    }

    fn take(&mut self) -> Option<KiloHertz> {
        let mean =
            to_watts(self.sum / f64::from(self.count)).map(|value| KiloHertz::from_bits(value.to_bits()));
        *self = Self::default();
        mean
    }
}

impl Machine {
    fn new(scene: &Scene) -> Result<Self> {
        let mut plant = Plant::new(&scene.spec, scene.seed)?;
        plant.set_load(scene.load)?;
        plant.set_profile(scene.profile())?;
        plant.set_jitter(scene.jitter)?;
        for policy in 0..scene.stuck {
            plant.stick_policy(policy, true)?;
        }
        let places: Vec<PolicyLocation> =
            (0..plant.policies()).filter_map(|policy| place(&plant, policy)).collect();
        let (min, max) = plant.frequency_range(0).context("a machine without policies")?;
        let khz = |khz| i32::try_from(khz).map(KiloHertz::from_int);
        Ok(Self {
            counter: EnergyCounter::new(PlantDomain::Node, Micros::new(1_000), scene.noise, scene.seed, 0)?,
            gauge: PowerSensor::new(PlantDomain::Node, Micros::new(1_000_000), scene.noise, scene.seed, 1)?,
            sensor: scene.sensor,
            read: None,
            seats: vec![Seat::EMPTY; places.len()],
            places,
            range: FrequencyRange::new(khz(min)?, khz(max)?).context("a machine without a range")?,
            plant,
        })
    }

    fn energy(&self) -> Result<MicroJoules> {
        self.plant.energy(PlantDomain::Node).context("a node has a meter")
    }

    fn sense(&mut self) -> PowerReading {
        match self.sensor {
            Sensor::Counter => self.sense_counter(),
            Sensor::Averaging => self.sense_gauge(Micros::new(1_000_000)),
            Sensor::AveragingUntold => self.sense_gauge(Micros::ZERO),
        }
    }

    fn sense_counter(&mut self) -> PowerReading {
        let Some(energy) = self.counter.read(&self.plant) else { return PowerReading::Missing };
        let now = self.plant.now();
        let before = self.read.replace((now, energy));
        let Some((then, earlier)) = before else { return PowerReading::Missing };
        let Some(over) = (now - then).non_zero() else { return PowerReading::Missing };
        PowerReading::Fresh { watts: (energy - earlier).over(over), over: now - then }
    }

    fn sense_gauge(&mut self, over: Micros) -> PowerReading {
        match self.gauge.read(&self.plant).and_then(to_watts) {
            Some(watts) => PowerReading::Fresh { watts, over },
            None => PowerReading::Missing,
        }
    }

    /// The reading at the change of the cap: the machine has been in a steady state for long.
    fn settled(&mut self) -> PowerReading {
        match self.plant.watts(PlantDomain::Node).and_then(to_watts) {
            Some(watts) => PowerReading::Fresh { watts, over: Micros::ZERO },
            None => PowerReading::Missing,
        }
    }

    /// Writes a command and reads it back; also returns how many policies were written.
    fn act(&mut self, command: Command) -> Result<(Command, u32)> {
        let order = PolicySequence::new(&self.places, &mut self.seats).context("a seat for each policy")?;
        let limits: Vec<u32> = match command {
            Command::Throttle(throttle) => {
                let (low, high) = (THROTTLED_KHZ, self.range.max().to_whole(Role::Limit));
                order.throttled(throttle).map(|limited| if limited { low } else { high }).collect()
            }
            Command::MeanFrequency(mean) => {
                let grid = Grid::new(self.range, STEP).context("a step above zero")?;
                order.spread(mean, &grid).map(|limit| limit.to_whole(Role::Limit)).collect()
            }
        };
        let mut writes = 0;
        let mut sum = 0.0;
        for (policy, &limit) in limits.iter().enumerate() {
            if self.plant.frequency(policy) != Some(limit) {
                writes += 1;
                self.plant.set_frequency(policy, limit)?;
            }
            sum += f64::from(self.plant.frequency(policy).unwrap_or(limit));
        }
        let in_effect = match command {
            Command::Throttle(_) => command,
            Command::MeanFrequency(_) => {
                let mean = to_watts(sum / limits.len() as f64).context("a number")?;
                Command::MeanFrequency(KiloHertz::from_bits(mean.to_bits()))
            }
        };
        Ok((in_effect, writes))
    }
}

fn place(plant: &Plant, policy: usize) -> Option<PolicyLocation> {
    let core = plant.cores_of(policy)?.start;
    let package = u16::try_from(plant.package_of(core)?).ok()?;
    Some(PolicyLocation { package, core: u32::try_from(core).ok()? })
}

/// A constant frequency, for comparison with a law.
pub(super) struct Fixed(KiloHertz);

impl Law for Fixed {
    type Mode = bool;

    fn start(&self, _: Option<Command>) -> bool {
        false
    }

    fn step(&self, set: &mut bool, facts: &Facts) -> Decision {
        let command = (!*set).then_some(Command::MeanFrequency(self.0));
        *set = true;
        let (action, reach) = (LawAction::Hold(Hold::Steady), Reach::Achievable);
        let in_effect = match facts.outcome {
            CommandOutcome::Applied { in_effect, .. } => Some(in_effect),
            CommandOutcome::Unknown | CommandOutcome::Refused { .. } => None,
        };
        Decision { action, command, in_effect, observed: None, smoothed: None, counts: None, reach }
    }
}

/// The best constant frequency of all policies under the scene's last cap and load, and the work per second at it. It
/// is found by bisection, because power rises with the frequency.
pub(super) fn best_static(scene: &Scene) -> Result<(Fixed, f64)> {
    let cap = scene.caps.last().context("a scene without a cap")?.1;
    let factor = scene.steps.last().map_or(1.0, |&(_, factor)| factor);
    let range = Machine::new(scene)?.plant.frequency_range(0).context("a machine without policies")?;
    let (mut low, mut high) = range;
    let mut speed = None;
    // To an accuracy of two megahertz.
    while high - low > 2_000 {
        let middle = low.midpoint(high);
        let mut plant = Machine::new(scene)?.plant;
        plant.set_profile(LoadProfile::Constant(factor))?;
        plant.set_jitter(None)?;
        for policy in 0..plant.policies() {
            plant.set_frequency(policy, middle)?;
        }
        plant.advance(micros(BEFORE_S));
        if plant.watts(PlantDomain::Node).is_some_and(|watts| watts <= cap) {
            (low, speed) = (middle, Some(plant.cpu_speed()));
        } else {
            high = middle;
        }
    }
    let speed = speed.context("a cap below the floor")?;
    Ok((Fixed(KiloHertz::from_int(i32::try_from(low)?)), speed))
}
