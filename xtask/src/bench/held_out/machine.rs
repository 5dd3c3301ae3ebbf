//! A random machine, and the engine that controls it as node-kit does.
//!
//! It shares no code with the crate `plant`, on which the laws were tuned: another curve, other tables, other loads.

use anyhow::{Context, Result};
use hal_cpufreq::FrequencyTable;
use joulie_core::node::backend::{Package, PackageFacts, Route};
use joulie_core::node::cap::{CapIntent, CapRange, DesiredCap};
use joulie_core::node::energy::{Gap, MeterReading};
use joulie_core::node::engine::{
    Desire, Engine, EngineFacts, EngineLaws, EngineOrder, FrequencyPolicy, FrequencyPolicyFacts, Instruction,
    LoopLaw, NodeParts, Occasion, PolicyLimit, PolicyOutcome, Scale, TargetId, Wiring,
};
use joulie_core::node::throttle::PolicyLocation;
use node_kit::{Config, HardwareSources, NodeAccess};
use plant::{Random, to_watts};
use power_units::{KiloHertz, Micros, Stamp, Watts};
use std::path::PathBuf;

/// The most policies of a machine.
const POLICIES: usize = 128;
/// The grid of the simulation, s.
pub(super) const GRID_S: f64 = 0.01;
/// How far below a cap `tracking` aims: the rest of its guard of 0.5 %.
const AIM: f64 = 0.995;
/// What every machine draws at full load without a limit, W.
pub(super) const FREE_WATTS: f64 = 500.0;

/// How a driver takes a wish.
#[derive(Clone, Debug)]
enum Driver {
    /// Every value.
    Continuous,
    /// It reads back the wish, and the hardware runs at a multiple of 100 MHz.
    Silent,
    /// The highest entry that is not above the wish.
    Table(FrequencyTable),
}

/// What a machine is, as nobody outside knows it.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    /// How many cores, and whether two policies share one.
    cores: usize,
    siblings: bool,
    /// Of a machine with two kinds of cores, what its upper half is.
    small: Option<SmallCores>,
    min_khz: f64,
    max_khz: f64,
    driver: Driver,
    /// The part of the power at full load that follows nothing, and that leaks.
    idle: f64,
    leak: f64,
    /// The voltage is constant below this part of the clock, and `rest + (1 − rest) · part^bend` above.
    flat: f64,
    rest: f64,
    bend: f64,
    /// The highest clock with all cores busy, and how much more there is with few.
    turbo: f64,
    bins: f64,
    /// How fast a clock follows its limit, s.
    lag_s: f64,
    /// The deviation of a reading, relative.
    noise: f64,
    /// The load: its mean, how far it swings, and for how long, s.
    busy: f64,
    swing: f64,
    swing_s: f64,
    /// Whether the clock can be read.
    clock_is_read: bool,
}

/// Cores of another kind: their highest clock, a part of the others', and what one draws and does, of another at the same
/// clock.
#[derive(Clone, Copy, Debug)]
struct SmallCores {
    clock: f64,
    draws: f64,
    works: f64,
}

/// Cores at one clock: the clock and their number, parts of the whole machine's, and whether they are small.
#[derive(Clone, Copy, Debug)]
struct Group {
    clock: f64,
    share: f64,
    is_small: bool,
}

/// All cores at one clock, or a share of them at a higher one; parts of the highest clock.
#[derive(Clone, Copy, Debug)]
struct Level {
    low: f64,
    high: Option<f64>,
    share: f64,
}

/// How restless the load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// Swings of at most 0.5 %.
    Calm,
    /// Bursts: swings of up to 25 %, and steps.
    Bursty,
}

impl Spec {
    pub(super) fn random(random: &mut Random, weather: Weather) -> Self {
        let mut between = |low: f64, high: f64| low + (high - low) * random.unit();
        let min_khz = (between(0.8, 1.6) * 10.0).round() * 1e5;
        let max_khz = (between(2.4, 4.4) * 10.0).round() * 1e5;
        let kind = between(0.0, 4.0);
        let driver = if kind < 1.0 {
            Driver::Continuous
        } else if kind < 2.0 {
            Driver::Silent
        } else if kind < 3.0 {
            let step = 100_000 * whole(between(1.0, 5.0));
            let (min, max) = (whole(min_khz) / step * step, whole(max_khz) / step * step);
            Driver::Table(FrequencyTable::new((min / step..=max / step).map(|at| at * step).collect()))
        } else {
            let entries = whole(between(1.0, 12.0));
            let mut khz = vec![whole(min_khz), whole(max_khz)];
            khz.extend((0..entries).map(|_| whole(between(min_khz, max_khz) / 1e3) * 1_000));
            Driver::Table(FrequencyTable::new(khz))
        };
        let (min_khz, max_khz) = match &driver {
            Driver::Table(table) => {
                let end = |khz: Option<&u32>, or: f64| khz.map_or(or, |khz| f64::from(*khz));
                (end(table.khz().first(), min_khz), end(table.khz().last(), max_khz))
            }
            Driver::Continuous | Driver::Silent => (min_khz, max_khz),
        };
        let (swing, busy) = match weather {
            Weather::Calm => (between(0.0, 0.005), between(0.6, 1.0)),
            Weather::Bursty => (between(0.03, 0.25), between(0.5, 0.9)),
        };
        Self {
            cores: [8, 16, 32, 64][usize::try_from(whole(between(0.0, 4.0))).unwrap_or(0).min(3)],
            siblings: between(0.0, 1.0) < 0.3,
            small: (between(0.0, 1.0) < 0.2).then(|| SmallCores {
                clock: between(0.6, 0.95),
                draws: between(0.25, 0.6),
                works: between(0.4, 0.8),
            }),
            min_khz,
            max_khz,
            driver,
            idle: between(0.2, 0.6),
            leak: between(0.0, 0.15),
            flat: between(0.3, 0.7),
            rest: between(0.35, 0.8),
            bend: between(0.7, 2.5),
            turbo: between(0.75, 1.0),
            bins: between(0.0, 0.25),
            lag_s: between(0.0, 0.15),
            noise: between(0.0, 0.01),
            busy,
            swing,
            swing_s: between(0.2, 3.0),
            clock_is_read: between(0.0, 1.0) < 0.8,
        }
    }

    /// The core of a policy.
    const fn core_of(&self, policy: usize) -> usize {
        if self.siblings { policy / 2 } else { policy }
    }

    fn is_small(&self, core: usize) -> bool {
        self.small.is_some() && core >= self.cores / 2
    }

    /// The highest limit of a policy, kHz. Every driver's table is cut there.
    fn most_of(&self, policy: usize) -> f64 {
        let small = self.small.filter(|_| self.is_small(self.core_of(policy)));
        small.map_or(self.max_khz, |small| (small.clock * self.max_khz).max(self.min_khz).floor())
    }

    fn policies(&self) -> usize {
        if self.siblings { 2 * self.cores } else { self.cores }
    }

    /// The highest clock at this load, a part of the maximum: with fewer busy cores there is more.
    fn ceiling(&self, load: f64) -> f64 {
        (self.turbo + self.bins * (1.0 - load)).min(1.0)
    }

    fn voltage(&self, clock: f64) -> f64 {
        let above = ((clock - self.flat) / (1.0 - self.flat)).max(0.0);
        self.rest + (1.0 - self.rest) * above.powf(self.bend)
    }

    /// The dynamic and the leaking power of a busy core, in any unit.
    fn core(&self, clock: f64) -> (f64, f64) {
        let squared = self.voltage(clock) * self.voltage(clock);
        (clock * squared, squared)
    }

    /// All cores at this clock, as far as it is one of theirs.
    fn all_at(&self, clock: f64) -> Vec<Group> {
        let Some(small) = self.small else { return vec![Group { clock, share: 1.0, is_small: false }] };
        let half = |clock, is_small| Group { clock, share: 0.5, is_small };
        vec![half(clock, false), half(clock.min(small.clock), true)]
    }

    /// The dynamic and the leaking power of these cores.
    fn cores(&self, groups: &[Group]) -> (f64, f64) {
        let draws = self.small.map_or(1.0, |small| small.draws);
        groups.iter().fold((0.0, 0.0), |(dynamic, leaking), group| {
            let (one, leak) = self.core(group.clock);
            let share = group.share * if group.is_small { draws } else { 1.0 };
            (dynamic + share * one, leaking + share * leak)
        })
    }

    /// The power at this load with these clocks, W.
    fn watts(&self, load: f64, groups: &[Group]) -> f64 {
        let (full, full_leak) = self.cores(&self.all_at(self.ceiling(1.0)));
        let (dynamic, leaking) = self.cores(groups);
        let rest = 1.0 - self.idle - self.leak;
        FREE_WATTS * (self.idle + self.leak * leaking / full_leak + rest * load * dynamic / full)
    }

    /// The work of these cores, of that at the highest clock.
    fn work(&self, groups: &[Group]) -> f64 {
        let works = self.small.map_or(1.0, |small| small.works);
        groups.iter().map(|group| group.clock * group.share * if group.is_small { works } else { 1.0 }).sum()
    }

    /// The least that it draws at this load, W.
    pub(super) fn least(&self, load: f64) -> f64 {
        self.watts(load, &self.all_at(self.min_khz / self.max_khz))
    }

    /// The best that can be done under a cap: the power and the work. All cores have one clock, as far as it is one of
    /// theirs, or two neighbouring ones where the driver has a table.
    pub(super) fn oracle(&self, load: f64, cap: f64) -> (f64, f64) {
        let work = |clock| self.work(&self.all_at(clock));
        match self.level(load, cap) {
            None => (cap, work(self.ceiling(load))),
            Some(Level { low, high: None, .. }) => (self.watts(load, &self.all_at(low)), work(low)),
            Some(Level { low, high: Some(high), share }) => {
                (cap, work(low) + share * (work(high) - work(low)))
            }
        }
    }

    /// The clocks of the oracle; `None` if the machine has none at this load.
    fn level(&self, load: f64, cap: f64) -> Option<Level> {
        let ceiling = self.ceiling(load);
        let entries: Vec<f64> = match &self.driver {
            Driver::Table(table) => table.khz().iter().map(|khz| f64::from(*khz)).collect(),
            Driver::Silent => (0..64).map(|at| f64::from(at) * 1e5).collect(),
            Driver::Continuous => {
                let grains = 4_000;
                (0..=grains).map(|at| self.max_khz * f64::from(at) / f64::from(grains)).collect()
            }
        };
        let clocks =
            entries.iter().filter(|khz| **khz >= self.min_khz).map(|khz| (khz / self.max_khz).min(ceiling));
        let mut below = None;
        for clock in clocks {
            let watts = self.watts(load, &self.all_at(clock));
            match below {
                // Power is linear in the share of the cores that run at the higher of two clocks.
                Some((low, under)) if watts > cap => {
                    return Some(Level { low, high: Some(clock), share: (cap - under) / (watts - under) });
                }
                Some(_) | None => below = Some((clock, watts)),
            }
        }
        below.map(|(low, _)| Level { low, high: None, share: 0.0 })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
fn whole(value: f64) -> u32 {
    value as u32
}

fn khz(value: f64) -> KiloHertz {
    KiloHertz::from_int(i32::try_from(whole(value)).unwrap_or(i32::MAX))
}

/// A machine under the engine.
#[derive(Clone)]
pub(super) struct Machine {
    pub(super) spec: Spec,
    random: Random,
    engine: Box<Engine<1, 1, POLICIES>>,
    laws: EngineLaws,
    /// What each policy is limited to, and the present clock of each core, kHz.
    limits: Vec<f64>,
    clocks: Vec<f64>,
    now_s: f64,
    /// The factor of the load, and until when.
    pub(super) load: f64,
    load_until_s: f64,
    /// Since the last period: the sums of clocks and of loads, and the time.
    clock_sum: f64,
    load_sum: f64,
    passed_s: f64,
    /// Since the last reading, if the meter counts energy, else since the last period: energy, and the time.
    joules: f64,
    metered_s: f64,
    /// The meter counts energy, so that the first reading after lost ones is the mean of all that time.
    pub(super) counts_energy: bool,
    /// Whoever knows the machine, and the loads until the last reading, sets the limits instead of the law.
    pub(super) is_known: bool,
    /// How often the loop has commanded a move.
    pub(super) moves: u32,
    /// No reading arrives.
    pub(super) is_blind: bool,
    /// The meter shows the last reading for ever.
    pub(super) is_stuck: bool,
    reading: f64,
}

/// A cell of the grid: what is drawn, W, and the work, a part of that at the highest clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) watts: f64,
    pub(super) work: f64,
    pub(super) load: f64,
}

impl Machine {
    pub(super) fn new(spec: Spec, law: LoopLaw, random: Random, period: Micros) -> Result<Self> {
        let config =
            Config::standard(HardwareSources::machine(), PathBuf::new(), NodeAccess::Control, period)?;
        let laws = EngineLaws {
            cpu: config.cpu,
            gpu: config.gpu,
            dvfs: law,
            grants: NodeParts::ALL,
            access: NodeAccess::Control,
        };
        let mut engine =
            Box::new(Engine::start(Route::Host, Wiring::EachItsOwn, None, Stamp::new(Micros::ZERO)));
        let range = CapRange::new(Some(Watts::from_int(1)), Some(Watts::from_int(1_000)), None);
        engine.list_packages(&[Package::untouched(PackageFacts {
            range,
            has_limit: false,
            ..PackageFacts::UNKNOWN
        })]);
        let step = match &spec.driver {
            Driver::Table(table) => f64::from(table.step()),
            Driver::Silent | Driver::Continuous => 0.0,
        };
        match &spec.driver {
            Driver::Table(table) => engine.set_frequency_table(table.khz()),
            Driver::Silent => {
                let steps = whole(spec.min_khz / 1e5)..=whole(spec.max_khz / 1e5);
                let table: Vec<u32> = steps.map(|at| at * 100_000).collect();
                engine.set_frequency_table(&table);
            }
            Driver::Continuous => {}
        }
        let policies = (0..spec.policies()).map(|at| {
            let most = khz(spec.most_of(at));
            let scale = Scale::Frequency { floor: khz(spec.min_khz), most, step: khz(step) };
            let core = u32::try_from(spec.core_of(at))?;
            let place = PolicyLocation { package: 0, core };
            Ok(FrequencyPolicy::listed(scale, place, FrequencyPolicyFacts::UNKNOWN))
        });
        let policies: Vec<FrequencyPolicy> = policies.collect::<Result<_>>()?;
        engine.list_policies(&policies);
        let load = spec.busy;
        Ok(Self {
            limits: (0..spec.policies()).map(|at| spec.most_of(at)).collect(),
            clocks: vec![spec.max_khz * spec.ceiling(load); spec.cores],
            spec,
            random,
            engine,
            laws,
            now_s: 0.0,
            load,
            load_until_s: 0.0,
            clock_sum: 0.0,
            load_sum: 0.0,
            passed_s: 0.0,
            joules: 0.0,
            metered_s: 0.0,
            counts_energy: false,
            is_known: false,
            moves: 0,
            is_blind: false,
            is_stuck: false,
            reading: 0.0,
        })
    }

    /// Draws the load anew where its time is over.
    fn blow(&mut self) {
        if self.now_s >= self.load_until_s {
            self.load_until_s = self.now_s + self.spec.swing_s * (0.5 + self.random.unit());
            self.load = (self.spec.busy * (1.0 + self.spec.swing * self.random.normal())).clamp(0.05, 1.0);
        }
    }

    /// The mean limit, the mean clock and what the law last did, for a trace.
    pub(super) fn clock(&self) -> String {
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64 / 1e6;
        let did = self.engine.law().map_or("nothing", |law| law.action.as_str());
        format!("limit {:.3} GHz clock {:.3} GHz {did}", mean(&self.limits), mean(&self.clocks))
    }

    /// One cell of the grid.
    pub(super) fn pass(&mut self) -> Cell {
        self.blow();
        let ceiling = self.spec.ceiling(self.load) * self.spec.max_khz;
        let pace = GRID_S / (self.spec.lag_s + GRID_S);
        let mut groups: Vec<Group> = Vec::new();
        let share = 1.0 / self.spec.cores as f64;
        for (core, clock) in self.clocks.iter_mut().enumerate() {
            // The threads of a core run at the higher of their two limits.
            let limit = if self.spec.siblings {
                self.limits[2 * core].max(self.limits[2 * core + 1])
            } else {
                self.limits[core]
            };
            let limit = match self.spec.driver {
                Driver::Silent => (limit / 1e5).floor() * 1e5,
                Driver::Continuous | Driver::Table(_) => limit,
            };
            *clock += (limit.min(ceiling) - *clock) * pace;
            let part = *clock / self.spec.max_khz;
            let is_small = self.spec.is_small(core);
            let like = |known: &&mut Group| (known.clock - part).abs() < 1e-6 && known.is_small == is_small;
            match groups.iter_mut().find(like) {
                Some(group) => group.share += share,
                None => groups.push(Group { clock: part, share, is_small }),
            }
        }
        let watts = self.spec.watts(self.load, &groups);
        let mean: f64 = groups.iter().map(|group| group.clock * group.share).sum();
        self.now_s += GRID_S;
        self.joules += watts * GRID_S;
        self.metered_s += GRID_S;
        self.clock_sum += mean * self.spec.max_khz * GRID_S;
        self.load_sum += self.load * GRID_S;
        self.passed_s += GRID_S;
        Cell { watts, work: self.load * self.spec.work(&groups), load: self.load }
    }

    /// A period of the engine under this cap.
    pub(super) fn period(&mut self, cap: Option<f64>) -> Result<()> {
        let now = Stamp::new(super::micros(self.now_s));
        let passed = self.passed_s.max(GRID_S);
        let noisy = self.joules / self.metered_s.max(GRID_S) * (1.0 + self.spec.noise * self.random.normal());
        if !self.is_stuck {
            self.reading = noisy;
        }
        let noisy = self.reading;
        let running = Some(khz(self.clock_sum / passed)).filter(|_| self.spec.clock_is_read);
        let power = match to_watts(noisy).filter(|_| !self.is_blind && self.passed_s > 0.0) {
            Some(watts) => MeterReading::Fresh { watts, over: super::micros(self.metered_s) },
            None => MeterReading::Missing(Gap::Unread),
        };
        let load = self.load_sum / passed;
        (self.clock_sum, self.load_sum, self.passed_s) = (0.0, 0.0, 0.0);
        if !(self.is_blind && self.counts_energy) {
            (self.joules, self.metered_s) = (0.0, 0.0);
        }
        if self.is_known {
            self.set_for(load, cap);
            return Ok(());
        }
        let cpu = match cap.and_then(to_watts) {
            Some(cap) => DesiredCap::Cap(CapIntent::of_watts(cap)),
            None => DesiredCap::Gone,
        };
        let desire = Desire { cpu, ..Desire::GONE };
        let mut occasion = Occasion::Period;
        // An outcome leads to a step of its own, as with the carrier's threads.
        for _ in 0..4 {
            for (at, (policy, limit)) in self.engine.policies_mut().iter_mut().zip(&self.limits).enumerate() {
                policy.facts.read = Some(now);
                policy.facts.limit = Some(PolicyLimit::Frequency(khz(*limit)));
                policy.facts.running = running;
                policy.facts.touched = *limit < self.spec.most_of(at);
            }
            let facts = EngineFacts { now, occasion, desire, power, has_meter: true, renewal: None };
            self.engine.step(&self.laws, &facts);
            if occasion == Occasion::Period && self.engine.law().is_some_and(|law| law.command.is_some()) {
                self.moves += 1;
            }
            let orders: Vec<EngineOrder> = self.engine.orders().collect();
            if orders.is_empty() && occasion == Occasion::News {
                break;
            }
            for order in orders {
                self.obey(order)?;
            }
            occasion = Occasion::News;
        }
        Ok(())
    }

    /// What the least power above the cap takes: at the lowest clock without readings, and else at the clocks that hold
    /// the law's target at the load of the last period.
    fn set_for(&mut self, load: f64, cap: Option<f64>) {
        let Some(cap) = cap else { return };
        let lowest = Level { low: self.spec.min_khz / self.spec.max_khz, high: None, share: 0.0 };
        let level = match self.spec.level(load, cap * AIM) {
            Some(level) if !self.is_blind && !self.is_stuck => level,
            Some(_) | None => lowest,
        };
        let half = self.spec.cores / 2;
        let mut given = 0.0;
        for place in 0..self.spec.cores {
            // Large and small cores in turn.
            let core = if self.spec.small.is_some() { place / 2 + half * (place % 2) } else { place };
            let is_high = given + 1.0 <= level.share * self.spec.cores as f64;
            given += if is_high { 1.0 } else { 0.0 };
            let part = level.high.filter(|_| is_high).unwrap_or(level.low);
            let threads = if self.spec.siblings { 2 * core..2 * core + 2 } else { core..core + 1 };
            for policy in threads {
                // A driver that cuts to multiples cuts no rounding error.
                self.limits[policy] = (part * self.spec.max_khz).round().min(self.spec.most_of(policy));
            }
        }
    }

    fn obey(&mut self, EngineOrder { target, ticket, instruction }: EngineOrder) -> Result<()> {
        let TargetId::Policy(at) = target else { return Ok(()) };
        let outcome = match instruction {
            Instruction::Limit(PolicyLimit::Frequency(wish)) => {
                let wish = f64::from(wish.to_whole(power_units::Role::Limit))
                    .clamp(self.spec.min_khz, self.spec.most_of(at));
                let told = match &self.spec.driver {
                    Driver::Table(table) => f64::from(table.at_or_below(whole(wish))),
                    Driver::Continuous | Driver::Silent => wish,
                };
                self.limits[at] = told;
                PolicyOutcome::Set { ticket, read_back: Ok(PolicyLimit::Frequency(khz(told))) }
            }
            Instruction::Release => {
                self.limits[at] = self.spec.most_of(at);
                PolicyOutcome::Released { ticket, outcome: Ok(()) }
            }
            Instruction::Limit(PolicyLimit::Throttle(_)) | Instruction::Power(_) => return Ok(()),
        };
        let policy = self.engine.policies_mut().get_mut(at).context("a policy that is not there")?;
        policy.facts.outcome = outcome;
        Ok(())
    }
}
