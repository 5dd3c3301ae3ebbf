//! A package: cores under a common power limiter and a common temperature.

use crate::limiter::{Drawn, Limiter};
use crate::load::Load;
use crate::meter::Meter;
use crate::spec::{Governor, PackageSpec};
use crate::thermal::Heat;
use crate::units::real;
use crate::work::Work;

/// Why a domain runs slower than requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottleReasons {
    /// The power limiter slows it down.
    pub power: bool,
    /// It is too hot.
    pub thermal: bool,
    /// The turbo clock for this many busy cores is lower.
    pub turbo: bool,
    /// Vector code runs under the lower licence.
    pub licence: bool,
}

/// A core: its load, the limit of the policies, and its clock. Clocks are fractions of the package's highest.
#[derive(Clone, Debug, PartialEq)]
struct Core {
    load: Load,
    limit: f64,
    clock: f64,
}

/// Sums over the cores at one ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    /// Dynamic power; 1 is one busy core at the highest clock.
    power: f64,
    /// Speed, in the same unit.
    speed: f64,
    /// The highest clock that a busy core asks for.
    wanted: f64,
    /// The highest clock that any core asks for.
    highest: f64,
    /// A busy core runs vector code above the licence's clock.
    licence: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Package {
    spec: PackageSpec,
    step_us: u64,
    floor: f64,
    licence_clock: f64,
    cores: Vec<Core>,
    factor: f64,
    turbo: f64,
    limiter: Limiter,
    heat: Heat,
    /// The sums are valid for the present state of the cores, at `summed_at`.
    fresh: bool,
    summed_at: f64,
    sums: Sums,
    meter: Meter,
    work: Work,
    throttled_steps: u64,
}

impl Package {
    pub(crate) fn new(spec: &PackageSpec, step_us: u64, ambient_c: f64) -> Self {
        let step_s = real(step_us) / 1e6;
        let floor = spec.floor();
        let heat = Heat::new(spec.thermal, step_s, ambient_c, spec.static_watts);
        let idle = spec.static_watts * heat.leakage();
        let start = match spec.governor {
            Governor::AtLimit => 1.0,
            Governor::Hardware { .. } => floor,
        };
        Self {
            step_us,
            floor,
            licence_clock: spec.licence_clock(),
            cores: vec![Core { load: Load::IDLE, limit: 1.0, clock: start }; spec.cores],
            factor: 1.0,
            turbo: 1.0,
            limiter: Limiter::new(spec.limiter_lag_s, step_s, floor, idle),
            heat,
            fresh: false,
            summed_at: 1.0,
            sums: Sums::default(),
            meter: Meter::new(idle),
            work: Work::default(),
            throttled_steps: 0,
            spec: spec.clone(),
        }
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    pub(crate) fn limiter_mut(&mut self) -> &mut Limiter {
        &mut self.limiter
    }

    pub(crate) fn celsius(&self) -> f64 {
        self.heat.celsius()
    }

    pub(crate) fn throttled_us(&self) -> u64 {
        self.throttled_steps * self.step_us
    }

    pub(crate) fn set_load(&mut self, core: usize, load: Load) {
        if self.cores[core].load != load {
            self.cores[core].load = load;
            self.fresh = false;
        }
    }

    /// Sets the limit that the policies request for a core, kHz.
    pub(crate) fn set_limit(&mut self, core: usize, khz: f64) {
        let limit = khz / f64::from(self.spec.max_khz);
        if self.cores[core].limit != limit {
            self.cores[core].limit = limit;
            self.fresh = false;
        }
    }

    /// Sets the profile's factor on every core's utilisation.
    pub(crate) fn set_factor(&mut self, factor: f64) {
        if self.factor != factor {
            self.factor = factor;
            self.fresh = false;
        }
    }

    /// Runs a step from `now_us`. Returns whether anything changed besides the counters and a temperature without
    /// effect.
    pub(crate) fn step(&mut self, now_us: u64, ambient_c: f64) -> bool {
        let mut moved = self.govern();
        moved |= self.sum();
        let drawn = self.drawn();
        moved |= self.meter.watts() != drawn.watts;
        self.count(drawn.watts, now_us, 1);
        moved |= self.limiter.step(drawn);
        moved |= self.heat.step(ambient_c, drawn.watts);
        moved
    }

    /// Runs `steps` steps in which nothing changes besides the counters and a temperature without effect.
    pub(crate) fn repeat(&mut self, now_us: u64, steps: u64, ambient_c: f64) {
        let watts = self.meter.watts();
        self.count(watts, now_us, steps);
        self.heat.repeat(ambient_c, watts, steps);
    }

    fn count(&mut self, watts: f64, now_us: u64, steps: u64) {
        self.meter.run(watts, now_us, self.step_us, steps);
        self.work.run(self.sums.speed, self.step_us, steps);
        if self.throttle().power {
            self.throttled_steps += steps;
        }
    }

    fn drawn(&self) -> Drawn {
        let cores = real(self.cores.len() as u64);
        let dynamic = self.spec.dynamic_watts * self.sums.power / cores;
        let watts = self.spec.static_watts * self.heat.leakage() + dynamic;
        Drawn { watts, dynamic, wanted: self.sums.wanted.min(self.hard_ceiling()) }
    }

    /// The lowest ceiling besides the power limiter's.
    fn hard_ceiling(&self) -> f64 {
        self.turbo.min(self.heat.ceiling(self.floor))
    }

    fn ceiling(&self) -> f64 {
        self.limiter.ceiling().min(self.hard_ceiling())
    }

    /// Lets the hardware choose clocks below the limits. Returns whether one changed.
    fn govern(&mut self) -> bool {
        let Governor::Hardware { ramp_s, .. } = self.spec.governor else { return false };
        let step_s = real(self.step_us) / 1e6;
        let pace = step_s / (ramp_s + step_s);
        let mut moved = false;
        for core in &mut self.cores {
            let goal = self.spec.governed(utilisation(core.load, self.factor), core.limit);
            let next = if (goal - core.clock).abs() <= 1e-9 {
                goal
            } else {
                (core.clock + (goal - core.clock) * pace).min(core.limit)
            };
            moved |= next != core.clock;
            core.clock = next;
        }
        self.fresh &= !moved;
        moved
    }

    /// Updates the sums. Returns whether they changed.
    fn sum(&mut self) -> bool {
        if !self.fresh {
            let busy = |core: &&Core| utilisation(core.load, self.factor) > 0.0;
            self.turbo = self.spec.turbo_clock(self.cores.iter().filter(busy).count());
        }
        let ceiling = self.ceiling();
        // A ceiling above every requested clock does not bind.
        let binds = ceiling.min(self.summed_at) < self.sums.highest;
        if self.fresh && (ceiling == self.summed_at || !binds) {
            self.summed_at = ceiling;
            return false;
        }
        let before = self.sums;
        self.sums = self.sums_at(ceiling);
        self.summed_at = ceiling;
        self.fresh = true;
        self.sums != before
    }

    fn sums_at(&self, ceiling: f64) -> Sums {
        let mut sums = Sums::default();
        let mut last: Option<(&Core, f64, f64)> = None;
        for core in &self.cores {
            // Neighbouring cores are mostly equal: the result of one is reused for the next.
            let (power, speed) = match last {
                Some((alike, power, speed)) if alike == core => (power, speed),
                Some(_) | None => {
                    let clock = self.asked(core).min(ceiling);
                    self.spec.core_at(core.load, utilisation(core.load, self.factor), clock)
                }
            };
            last = Some((core, power, speed));
            sums.power += power;
            sums.speed += speed;
            let asked = self.asked(core);
            sums.highest = sums.highest.max(asked);
            if utilisation(core.load, self.factor) > 0.0 {
                sums.wanted = sums.wanted.max(asked);
                sums.licence |= core.load.vector > 0.0 && asked.min(ceiling) > self.licence_clock;
            }
        }
        sums
    }

    /// The clock of a core without a ceiling.
    fn asked(&self, core: &Core) -> f64 {
        match self.spec.governor {
            Governor::AtLimit => core.limit,
            Governor::Hardware { .. } => core.clock,
        }
    }

    /// The clock of a core while it is busy, kHz; with vector load the mean of both licences.
    pub(crate) fn core_khz(&self, core: usize) -> f64 {
        let core = &self.cores[core];
        let clock = self.asked(core).min(self.ceiling());
        self.spec.mean_clock(clock, core.load.vector) * f64::from(self.spec.max_khz)
    }

    /// The present speed; 1 is one core at its highest clock.
    pub(crate) fn speed(&self) -> f64 {
        self.sums.speed
    }

    pub(crate) fn throttle(&self) -> ThrottleReasons {
        let wanted = self.sums.wanted;
        let hard = self.hard_ceiling();
        ThrottleReasons {
            power: self.limiter.ceiling() < wanted.min(hard),
            thermal: self.heat.ceiling(self.floor) < wanted,
            turbo: self.turbo < wanted,
            licence: self.sums.licence,
        }
    }
}

/// The utilisation of a load with the profile's factor.
pub(crate) fn utilisation(load: Load, factor: f64) -> f64 {
    (load.utilisation * factor).min(1.0)
}
