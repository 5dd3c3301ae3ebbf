//! Heat: a first-order lag from power to temperature, leakage that rises with the temperature, and throttling
//! near the limit.

/// The thermal behaviour of a package or a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThermalSpec {
    /// Degrees above ambient per watt in the steady state, K/W.
    pub kelvin_per_watt: f64,
    /// The time constant, s.
    pub time_constant_s: f64,
    /// The fraction of the static power that is added per degree above `reference_c`, 1/K.
    pub leakage_per_kelvin: f64,
    /// The temperature at which the static power is specified, °C.
    pub reference_c: f64,
    /// The temperature at which throttling starts, °C.
    pub trip_c: f64,
    /// The temperature at which throttling reaches the lowest clock, °C.
    pub critical_c: f64,
}

/// A temperature closer than this to its goal has reached it, K.
const ARRIVED_K: f64 = 1e-6;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heat {
    spec: ThermalSpec,
    pace: f64,
    celsius: f64,
}

impl Heat {
    /// The state after drawing `static_watts` at this ambient temperature for a long time.
    pub(crate) fn new(spec: ThermalSpec, step_s: f64, ambient_c: f64, static_watts: f64) -> Self {
        let pace = step_s / (spec.time_constant_s + step_s);
        Self { spec, pace, celsius: spec.settled(ambient_c, static_watts, 0.0) }
    }

    pub(crate) fn celsius(&self) -> f64 {
        self.celsius
    }

    /// The static power at this temperature, relative to that at the reference.
    pub(crate) fn leakage(&self) -> f64 {
        self.spec.leakage(self.celsius)
    }

    /// The highest clock that the temperature allows, between `floor` and 1.
    pub(crate) fn ceiling(&self, floor: f64) -> f64 {
        self.spec.ceiling(self.celsius, floor)
    }

    /// Runs a step at this power. Returns whether the temperature changed with an effect.
    pub(crate) fn step(&mut self, ambient_c: f64, watts: f64) -> bool {
        let goal = self.goal(ambient_c, watts);
        let before = self.celsius;
        self.approach(goal);
        // Below the trip point and without leakage a change of temperature has no effect.
        let matters = self.spec.leakage_per_kelvin > 0.0 || before.max(goal) > self.spec.trip_c;
        matters && self.celsius != before
    }

    /// Runs `steps` steps at the power of the last one, after `step` returned that nothing with an effect
    /// changed.
    pub(crate) fn repeat(&mut self, ambient_c: f64, watts: f64, steps: u64) {
        let goal = self.goal(ambient_c, watts);
        for _ in 0..steps {
            if self.celsius == goal {
                return;
            }
            self.approach(goal);
        }
    }

    fn goal(&self, ambient_c: f64, watts: f64) -> f64 {
        ambient_c + self.spec.kelvin_per_watt * watts
    }

    fn approach(&mut self, goal: f64) {
        let way = goal - self.celsius;
        self.celsius = if way.abs() <= ARRIVED_K { goal } else { self.celsius + way * self.pace };
    }
}

impl ThermalSpec {
    /// The highest clock that a temperature allows, between `floor` and 1.
    pub(crate) fn ceiling(&self, celsius: f64, floor: f64) -> f64 {
        let over = ((celsius - self.trip_c) / (self.critical_c - self.trip_c)).clamp(0.0, 1.0);
        1.0 - over * (1.0 - floor)
    }

    /// The static power at a temperature, relative to that at the reference.
    pub(crate) fn leakage(&self, celsius: f64) -> f64 {
        1.0 + self.leakage_per_kelvin * (celsius - self.reference_c)
    }

    /// The steady temperature for a static power (specified at the reference) and a dynamic power.
    ///
    /// T = ambient + R·(S·(1 + λ·(T − reference)) + D), solved for T.
    pub(crate) fn settled(&self, ambient_c: f64, static_watts: f64, dynamic_watts: f64) -> f64 {
        let feedback = self.kelvin_per_watt * static_watts * self.leakage_per_kelvin;
        let fixed = self.kelvin_per_watt * (static_watts + dynamic_watts);
        (ambient_c + fixed - feedback * self.reference_c) / (1.0 - feedback)
    }
}
