//! A graphics processor: one clock, one cap, one temperature.

use crate::curve::speed;
use crate::limiter::{Drawn, Limiter, PowerLimit};
use crate::load::Load;
use crate::meter::Meter;
use crate::package::{ThrottleReasons, utilisation};
use crate::spec::PlantGpuSpec;
use crate::thermal::Heat;
use crate::units::real;
use crate::work::Work;

#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    spec: PlantGpuSpec,
    step_us: u64,
    load: Load,
    factor: f64,
    cap: f64,
    /// The highest clock that is allowed, as a fraction of the highest.
    locked: f64,
    limiter: Limiter,
    heat: Heat,
    meter: Meter,
    work: Work,
    throttled_steps: u64,
}

impl PlantGpuSpec {
    /// The dynamic power at a clock.
    pub(crate) fn dynamic(&self, load: Load, utilisation: f64, clock: f64) -> f64 {
        let range = self.full_watts - self.idle_watts;
        range * utilisation * load.intensity * self.exponent.raise(clock)
    }
}

impl Gpu {
    pub(crate) fn new(spec: &PlantGpuSpec, step_us: u64, ambient_c: f64) -> Self {
        let step_s = real(step_us) / 1e6;
        let heat = Heat::new(spec.thermal, step_s, ambient_c, spec.idle_watts);
        let idle = spec.idle_watts * heat.leakage();
        let mut gpu = Self {
            step_us,
            load: Load::IDLE,
            factor: 1.0,
            cap: spec.cap_default,
            locked: 1.0,
            limiter: Limiter::new(spec.limiter_lag_s, step_s, spec.floor, idle),
            heat,
            meter: Meter::new(idle),
            work: Work::default(),
            throttled_steps: 0,
            spec: spec.clone(),
        };
        gpu.set_cap(spec.cap_default);
        gpu
    }

    /// The lowest and the highest possible cap, W.
    pub(crate) fn cap_range(&self) -> (f64, f64) {
        (self.spec.cap_min, self.spec.cap_max)
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    pub(crate) fn celsius(&self) -> f64 {
        self.heat.celsius()
    }

    pub(crate) fn cap(&self) -> f64 {
        self.cap
    }

    pub(crate) fn throttled_us(&self) -> u64 {
        self.throttled_steps * self.step_us
    }

    /// Sets the cap, clamped to its range. It holds at every instant: a GPU has no window in which it may exceed
    /// the cap.
    pub(crate) fn set_cap(&mut self, watts: f64) -> f64 {
        self.cap = watts.clamp(self.spec.cap_min, self.spec.cap_max);
        self.limiter.set_short(Some(PowerLimit { watts: self.cap, window_s: 0.0 }));
        self.cap
    }

    /// Allows no clock above this fraction of the highest, but always the lowest one.
    pub(crate) fn lock_clock(&mut self, highest: f64) {
        self.locked = highest.clamp(self.spec.floor, 1.0);
    }

    pub(crate) fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    pub(crate) fn set_factor(&mut self, factor: f64) {
        self.factor = factor;
    }

    /// The fraction of the time in which it is busy.
    pub(crate) fn utilisation(&self) -> f64 {
        utilisation(self.load, self.factor)
    }

    /// The clock, as a fraction of the highest.
    pub(crate) fn clock(&self) -> f64 {
        self.limiter.ceiling().min(self.wanted())
    }

    /// The clock at which it would run without a cap.
    fn wanted(&self) -> f64 {
        self.heat.ceiling(self.spec.floor).min(self.locked)
    }

    /// The present speed; 1 is fully busy at the highest clock.
    pub(crate) fn speed(&self) -> f64 {
        self.utilisation() * speed(self.clock(), self.load.memory)
    }

    pub(crate) fn throttle(&self) -> ThrottleReasons {
        let thermal = self.heat.ceiling(self.spec.floor);
        let busy = self.utilisation() > 0.0;
        ThrottleReasons {
            power: busy && self.limiter.ceiling() < self.wanted(),
            thermal: busy && thermal < 1.0,
            turbo: false,
            licence: false,
        }
    }

    /// Runs a step from `now_us`. Returns whether anything changed besides the counters and a temperature without
    /// effect.
    pub(crate) fn step(&mut self, now_us: u64, ambient_c: f64) -> bool {
        let range = self.spec.full_watts - self.spec.idle_watts;
        let dynamic =
            range * self.utilisation() * self.load.intensity * self.spec.exponent.raise(self.clock());
        let watts = self.spec.idle_watts * self.heat.leakage() + dynamic;
        let mut moved = watts != self.meter.watts();
        self.count(watts, now_us, 1);
        let wanted = self.wanted();
        moved |= self.limiter.step(Drawn { watts, dynamic, wanted });
        moved |= self.heat.step(ambient_c, watts);
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
        self.work.run(self.speed(), self.step_us, steps);
        if self.throttle().power {
            self.throttled_steps += steps;
        }
    }
}
