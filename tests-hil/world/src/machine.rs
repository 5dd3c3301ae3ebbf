//! An hour of one machine with its own hardware: the engine of a real node, on devices in memory with a plant,
//! stepped without threads.
//!
//! Every few minutes there is an event from the seed: another cap, another load, a limit that the firmware locks, a
//! device that cannot be read, delayed answers, another writer, or a restart that adopts the limits that it finds.
//! The true power is judged: it must not exceed the sum of the caps, except for a while after an event. At the end
//! nothing is desired, and every original must be back.

use crate::draw::{Draw, fnv};
use joulie_core::node::backend::{Package, PackageFacts, Route};
use joulie_core::node::cap::{CapIntent, CapRange, DesiredCap};
use joulie_core::node::energy::{Baseline, CounterSample, EnergyMeter, MeterReading, total};
use joulie_core::node::engine::{
    Desire, Engine, EngineFacts, EngineLaws, EngineOrder, FrequencyPolicy, FrequencyPolicyFacts, Instruction,
    MachineEngine, Occasion, PolicyLimit, PolicyOutcome, Scale, TargetId, Wiring,
};
use joulie_core::node::limiter::{LimitFacts, LimitOutcome, LimitReading};
use joulie_core::node::throttle::PolicyLocation;
use joulie_core::node::ticket::Ticket;
use plant::{Load, Plant, PlantDomain, PowerLimit, PowerLimitTerm, from_watts, to_watts};
use power_hal::{Counter, ErrorKind};
use power_units::{KiloHertz, Micros, Role, Stamp, Watts};

/// The behaviour of the devices besides their faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceBehaviour {
    /// Their reports are true.
    True,
    /// They report a limit as in force although it is not. The judge must detect it.
    Lying,
}

/// The result of an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineHour {
    /// The seconds in which the power exceeded the caps without an excuse, and by how many watts.
    pub breaches: Vec<(u64, i64)>,
    /// The controls that do not have their original at the end.
    pub left: Vec<String>,
    /// The number of orders for limits, of orders for policies, and of restarts.
    pub orders: (u64, u64, u64),
    /// The hash of all powers and orders: the same seed gives the same hash.
    pub hash: u64,
}

/// The limit of a package.
struct Limit {
    watts: f64,
    original: Option<f64>,
    /// Until when the firmware refuses writes, and until when the limit cannot be read.
    locked: u64,
    mute: u64,
    meter: EnergyMeter,
    baseline: Baseline,
    answer: Option<(u64, LimitOutcome)>,
}

/// A frequency policy.
struct Frequency {
    original: Option<u32>,
    answer: Option<(u64, PolicyOutcome)>,
}

struct Hour {
    draw: Draw,
    plant: Plant,
    devices: DeviceBehaviour,
    engine: Box<MachineEngine>,
    laws: EngineLaws,
    limits: Vec<Limit>,
    policies: Vec<Frequency>,
    desire: Desire,
    second: u64,
    /// The delay of an answer in seconds.
    late: u64,
    /// Until when a breach is excused.
    excused: u64,
    out: MachineHour,
}

const MOST: f64 = 250.0;
const LEAST: i32 = 50;
const SECONDS: u64 = 3_600;
/// A refused limit is repeated after a minute at most, the closed loop needs some periods, and a persistent other
/// writer is left alone for a while.
const EXCUSED: u64 = 90;
/// The accepted power relative to the cap: the band of the loop.
const BAND: f64 = 1.03;
const TRUCE: u64 = 200;

/// Runs an hour with these laws.
///
/// # Errors
/// If the plant cannot be built.
pub fn hour(seed: u64, laws: EngineLaws, devices: DeviceBehaviour) -> Result<MachineHour, String> {
    let mut hour = Hour::new(seed, laws, devices)?;
    while hour.second < SECONDS {
        hour.happens();
        hour.passes();
    }
    hour.ends();
    Ok(hour.out)
}

impl Hour {
    fn new(seed: u64, laws: EngineLaws, devices: DeviceBehaviour) -> Result<Self, String> {
        let spec = plant::NodeSpec {
            step: Micros::new(10_000),
            packages: plant::preset::xeon_2s()
                .packages
                .into_iter()
                .map(|package| plant::PackageSpec { cores: 8, ..package })
                .collect(),
            ..plant::preset::xeon_2s()
        };
        let plant = Plant::new(&spec, seed).map_err(|error| format!("{error:?}"))?;
        let meter = EnergyMeter::new(
            Counter::endless(),
            Watts::from_int(1_000),
            Micros::new(50_000),
            Micros::new(3_000_000),
        )
        .map_err(|error| error.to_string())?;
        let limit = || Limit {
            watts: MOST,
            original: None,
            locked: 0,
            mute: 0,
            meter,
            baseline: Baseline::Nothing,
            answer: None,
        };
        let mut hour = Self {
            draw: Draw::new(seed, "machine"),
            devices,
            engine: engine(),
            laws,
            limits: (0..plant.packages()).map(|_| limit()).collect(),
            policies: (0..plant.policies()).map(|_| Frequency { original: None, answer: None }).collect(),
            plant,
            desire: Desire::UNKNOWN,
            second: 0,
            late: 0,
            excused: 0,
            out: MachineHour { breaches: Vec::new(), left: Vec::new(), orders: (0, 0, 0), hash: 0 },
        };
        hour.list();
        Ok(hour)
    }

    /// Lists the devices in a new engine, which adopts the limits that the originals attribute to Joulie.
    fn list(&mut self) {
        let packages: Vec<Package> = (0..self.limits.len())
            .map(|at| {
                let facts = self.package_facts(at);
                let is_ours = self.limits[at].original.is_some();
                if is_ours { Package::adopted(facts) } else { Package::untouched(facts) }
            })
            .collect();
        self.engine.list_packages(&packages);
        let policies: Vec<FrequencyPolicy> = (0..self.policies.len())
            .filter_map(|at| {
                let (floor, most) = self.plant.frequency_range(at)?;
                let scale = Scale::Frequency {
                    floor: khz(floor),
                    most: khz(most),
                    step: KiloHertz::from_int(100_000),
                };
                let core = self.plant.cores_of(at)?.start;
                let package = u16::try_from(self.plant.package_of(core)?).ok()?;
                let place = PolicyLocation { package, core: u32::try_from(core).ok()? };
                Some(FrequencyPolicy::listed(scale, place, self.policy_facts(at)))
            })
            .collect();
        self.engine.list_policies(&policies);
    }

    /// The event in this second, if any: some twenty in an hour.
    fn happens(&mut self) {
        let event = self.draw.below(6_000);
        let until = self.second + self.draw.below(60);
        let package = self.draw.index(self.limits.len());
        match event {
            0..8 => {
                let watts = Watts::from_int(i32::try_from(80 + self.draw.below(150)).unwrap_or(80));
                let cpu = DesiredCap::Cap(CapIntent::of_watts(watts));
                self.desire = Desire { cpu, ..Desire::GONE };
            }
            8..10 => self.desire = Desire::GONE,
            10..20 => {
                // The plant accepts every load between idle and busy.
                let _set = self.plant.set_load(Load::busy(self.draw.unit()));
            }
            20..25 => self.limits[package].locked = until,
            25..28 => self.limits.iter_mut().for_each(|limit| limit.locked = until),
            28..30 => self.limits[package].mute = until,
            30..32 => self.late = self.draw.below(4),
            32..34 => self.write_limit(package, MOST),
            34..36 => {
                let policy = self.draw.index(self.policies.len());
                let most = self.plant.frequency_range(policy).map_or(0, |(_, most)| most);
                let _written = self.plant.set_frequency(policy, most);
            }
            36..38 => {
                self.engine = engine();
                self.forget_answers();
                self.list();
                self.out.orders.2 += 1;
            }
            _ => return,
        }
        self.excused = until.max(self.second) + EXCUSED;
    }

    /// Drops the answers to a program that has ended.
    fn forget_answers(&mut self) {
        self.limits.iter_mut().for_each(|limit| limit.answer = None);
        self.policies.iter_mut().for_each(|policy| policy.answer = None);
    }

    /// Runs one second: a period, and then steps until all answers that are due were processed.
    fn passes(&mut self) {
        self.second += 1;
        self.plant.advance(Micros::new(1_000_000));
        let now = self.now();
        let power = total((0..self.limits.len()).map(|at| self.measure(at, now)).collect::<Vec<_>>());
        for round in 0..8 {
            let occasion = if round == 0 { Occasion::Period } else { Occasion::News };
            if !self.tell() && round > 0 {
                break;
            }
            let facts =
                EngineFacts { now, occasion, desire: self.desire, power, has_meter: true, renewal: None };
            self.engine.step(&self.laws, &facts);
            let orders: Vec<EngineOrder> = self.engine.orders().collect();
            for order in orders {
                self.obey(order);
            }
        }
        self.judge();
    }

    fn now(&self) -> Stamp {
        Stamp::new(Micros::new(self.second * 1_000_000))
    }

    fn measure(&mut self, at: usize, now: Stamp) -> MeterReading {
        let energy = self.plant.energy(PlantDomain::Package(at));
        let limit = &mut self.limits[at];
        let sample =
            energy.filter(|_| limit.mute < self.second).map(|energy| CounterSample { energy, at: now });
        limit.meter.step(&mut limit.baseline, now, sample)
    }

    /// Passes the readings and the answers that are due to the engine. Returns whether there was an answer.
    fn tell(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.limits.len() {
            let mut facts = self.package_facts(at);
            if let Some((_, outcome)) = self.limits[at].answer.take_if(|(due, _)| *due <= self.second) {
                facts.limit.outcome = outcome;
                any = true;
            }
            self.engine.packages_mut()[at].facts = facts;
        }
        for at in 0..self.policies.len() {
            let mut facts = self.policy_facts(at);
            if let Some((_, outcome)) = self.policies[at].answer.take_if(|(due, _)| *due <= self.second) {
                facts.outcome = outcome;
                any = true;
            }
            self.engine.policies_mut()[at].facts = facts;
        }
        any
    }

    fn package_facts(&self, at: usize) -> PackageFacts {
        let limit = &self.limits[at];
        let most = to_watts(MOST);
        let range = CapRange::new(Some(Watts::from_int(LEAST)), most, None);
        let owners = limit.original.unwrap_or(limit.watts);
        let in_force = to_watts(limit.watts).filter(|_| limit.mute < self.second);
        let seen = match in_force {
            Some(limit) => LimitReading::At { limit, read: self.now() },
            None => LimitReading::Unread(ErrorKind::Io),
        };
        let limit = LimitFacts { outcome: LimitOutcome::Unknown, seen };
        PackageFacts { range: range.below(to_watts(owners)), has_limit: true, limit, in_force }
    }

    fn policy_facts(&self, at: usize) -> FrequencyPolicyFacts {
        let original = self.policies[at].original;
        FrequencyPolicyFacts {
            read: Some(self.now()),
            limit: self.plant.frequency(at).map(khz).map(PolicyLimit::Frequency),
            running: self.plant.effective_khz(at).and_then(whole).map(khz),
            original: original.map(khz).map(PolicyLimit::Frequency),
            touched: original.is_some(),
            outcome: PolicyOutcome::Unknown,
        }
    }

    fn obey(&mut self, EngineOrder { target, ticket, instruction }: EngineOrder) {
        let words = format!("{} {target:?} {instruction:?}", self.second);
        self.out.hash = fnv(self.out.hash, words.as_bytes());
        let due = self.second + self.late;
        match target {
            TargetId::Package(at) => {
                self.out.orders.0 += 1;
                self.limits[at].answer = Some((due, self.obey_limit(at, ticket, instruction)));
            }
            TargetId::Policy(at) => {
                self.out.orders.1 += 1;
                self.policies[at].answer = Some((due, self.obey_policy(at, ticket, instruction)));
            }
            TargetId::Gpu(_) | TargetId::Clock(_) => {}
        }
    }

    fn obey_limit(&mut self, at: usize, ticket: Ticket, instruction: Instruction) -> LimitOutcome {
        let is_locked = self.limits[at].locked >= self.second;
        match instruction {
            Instruction::Power(watts) if !is_locked => {
                let before = self.limits[at].watts;
                self.limits[at].original.get_or_insert(before);
                self.write_limit(at, from_watts(watts));
                LimitOutcome::Set { ticket, read_back: Ok(watts) }
            }
            Instruction::Power(_) => LimitOutcome::Set { ticket, read_back: Err(ErrorKind::Locked) },
            Instruction::Limit(_) | Instruction::Release if is_locked => {
                LimitOutcome::Released { ticket, outcome: Err(ErrorKind::Locked) }
            }
            Instruction::Limit(_) | Instruction::Release => {
                if let Some(original) = self.limits[at].original.take() {
                    self.write_limit(at, original);
                }
                LimitOutcome::Released { ticket, outcome: Ok(()) }
            }
        }
    }

    fn write_limit(&mut self, at: usize, watts: f64) {
        self.limits[at].watts = watts;
        if self.devices == DeviceBehaviour::True {
            let limit = Some(PowerLimit { watts, window_s: 1.0 });
            // All limits that are written are in the range.
            let _set = self.plant.set_power_limit(at, PowerLimitTerm::Long, limit);
        }
    }

    fn obey_policy(&mut self, at: usize, ticket: Ticket, instruction: Instruction) -> PolicyOutcome {
        let before = self.plant.frequency(at);
        let policy = &mut self.policies[at];
        match instruction {
            Instruction::Limit(PolicyLimit::Frequency(limit)) => {
                policy.original = policy.original.or(before);
                let written = self.plant.set_frequency(at, limit.to_whole(Role::Limit));
                let read_back = written.map(|limit| PolicyLimit::Frequency(khz(limit)));
                PolicyOutcome::Set { ticket, read_back: read_back.map_err(|_| ErrorKind::Gone) }
            }
            Instruction::Limit(PolicyLimit::Throttle(_)) | Instruction::Power(_) | Instruction::Release => {
                if let Some(original) = policy.original.take() {
                    let _written = self.plant.set_frequency(at, original);
                }
                PolicyOutcome::Released { ticket, outcome: Ok(()) }
            }
        }
    }

    /// Judges the true power against the sum of the caps.
    fn judge(&mut self) {
        let drawn: f64 =
            (0..self.limits.len()).filter_map(|at| self.plant.watts(PlantDomain::Package(at))).sum();
        self.out.hash = fnv(self.out.hash, &drawn.to_bits().to_le_bytes());
        let DesiredCap::Cap(CapIntent { watts: Some(cap), .. }) = self.desire.cpu else { return };
        let most = from_watts(cap).min(MOST) * 2.0;
        if drawn > most * BAND && self.second > self.excused {
            let above = whole(drawn - most).map_or(0, i64::from);
            self.out.breaches.push((self.second, above));
        }
    }

    /// Ends all faults, and desires nothing.
    fn ends(&mut self) {
        self.desire = Desire::GONE;
        self.late = 0;
        self.limits.iter_mut().for_each(|limit| (limit.locked, limit.mute) = (0, 0));
        for _ in 0..TRUCE {
            self.passes();
        }
        for (at, limit) in self.limits.iter().enumerate() {
            if limit.original.is_some() {
                self.out.left.push(format!("package {at} stands at {} W", limit.watts));
            }
        }
        for at in (0..self.policies.len()).filter(|&at| self.policies[at].original.is_some()) {
            self.out.left.push(format!("policy {at} stands at {:?} kHz", self.plant.frequency(at)));
        }
    }
}

fn engine() -> Box<MachineEngine> {
    Box::new(Engine::start(Route::Host, Wiring::EachItsOwn, None, Stamp::new(Micros::ZERO)))
}

fn khz(khz: u32) -> KiloHertz {
    KiloHertz::from_int(i32::try_from(khz).unwrap_or(i32::MAX))
}

/// A number as a count; `None` if it is not a valid number.
fn whole(number: f64) -> Option<u32> {
    to_watts(number).and_then(|number| u32::try_from(number.to_bits() >> 32).ok())
}
