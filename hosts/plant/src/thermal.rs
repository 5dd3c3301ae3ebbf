//! Heat: a first-order lag from power to temperature, leakage that rises with it, and throttling near the limit.

/// How a package or a GPU warms up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThermalSpec {
    /// Degrees above ambient per watt in the long run, K/W.
    pub kelvin_per_watt: f64,
    /// The time constant, s.
    pub time_constant_s: f64,
    /// How much of the static power is added per degree above `reference_c`, 1/K.
    pub leakage_per_kelvin: f64,
    /// The temperature for which the static power is given, °C.
    pub reference_c: f64,
    /// Where throttling begins, °C.
    pub trip_c: f64,
    /// Where throttling has taken the clock down to its lowest, °C.
    pub critical_c: f64,
}

/// A temperature nearer than this to where it is going has arrived, K.
const ARRIVED_K: f64 = 1e-6;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heat {
    spec: ThermalSpec,
    pace: f64,
    celsius: f64,
}

impl Heat {
    /// Something that has drawn `static_watts` in this ambient for long.
    pub(crate) fn new(spec: ThermalSpec, step_s: f64, ambient_c: f64, static_watts: f64) -> Self {
        let pace = step_s / (spec.time_constant_s + step_s);
        Self { spec, pace, celsius: spec.settled(ambient_c, static_watts, 0.0) }
    }

    pub(crate) fn celsius(&self) -> f64 {
        self.celsius
    }

    /// The static power at this temperature, of what it is at the reference.
    pub(crate) fn leakage(&self) -> f64 {
        self.spec.leakage(self.celsius)
    }

    /// The highest clock that the temperature allows, between `floor` and 1.
    pub(crate) fn ceiling(&self, floor: f64) -> f64 {
        self.spec.ceiling(self.celsius, floor)
    }

    /// A step at this power; says whether the temperature moved and that has consequences.
    pub(crate) fn step(&mut self, ambient_c: f64, watts: f64) -> bool {
        let goal = self.goal(ambient_c, watts);
        let before = self.celsius;
        self.approach(goal);
        // Below the trip point and without leakage a temperature on its way changes nothing else.
        let matters = self.spec.leakage_per_kelvin > 0.0 || before.max(goal) > self.spec.trip_c;
        matters && self.celsius != before
    }

    /// `steps` steps at the power of the last one, after which `step` said that nothing of consequence moved.
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

    /// The static power at a temperature, of what it is at the reference.
    pub(crate) fn leakage(&self, celsius: f64) -> f64 {
        1.0 + self.leakage_per_kelvin * (celsius - self.reference_c)
    }

    /// The temperature at which a static power (given for the reference) and a dynamic power settle.
    ///
    /// T = ambient + R·(S·(1 + λ·(T − reference)) + D), solved for T.
    pub(crate) fn settled(&self, ambient_c: f64, static_watts: f64, dynamic_watts: f64) -> f64 {
        let feedback = self.kelvin_per_watt * static_watts * self.leakage_per_kelvin;
        let fixed = self.kelvin_per_watt * (static_watts + dynamic_watts);
        (ambient_c + fixed - feedback * self.reference_c) / (1.0 - feedback)
    }
}
