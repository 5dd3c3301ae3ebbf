//! The hardware controller that holds a power limit: RAPL in a package, the power management unit in a GPU.
//!
//! It keeps the running average of the power at the long-term limit by lowering a ceiling on the clock. Until the
//! average has reached the limit the power may rise up to the short-term limit: with a window of 28 s a package may
//! stay at its short-term limit for tens of seconds. The average is exponential with the window as its time constant. A
//! limit that is not enabled has no effect. A limit below the power at the lowest clock is not reached.

/// A power limit and the window over which it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerLimit {
    /// The allowed mean power, W.
    pub watts: f64,
    /// The time over which the mean is taken, s.
    pub window_s: f64,
}

/// The exponent that the controller assumes for power by clock. It corrects itself every step, so this affects only its
/// speed; for exponents of 1 to 4 the correction never overshoots by more than a third.
const EXPECTED_EXPONENT: f64 = 3.0;
/// A ceiling closer than this to its goal has reached it: one part in 10⁹.
const ARRIVED: f64 = 1e-9;
/// The goal of the ceiling without a limit to hold: above the highest clock, so that the ceiling gets there in finite
/// time.
const BEYOND: f64 = 1.25;

/// The controller's measurements of the last step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    /// The power.
    pub(crate) watts: f64,
    /// The part that depends on the clock.
    pub(crate) dynamic: f64,
    /// The highest clock that any busy core or GPU asks for, as a fraction of the highest possible.
    pub(crate) wanted: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limiter {
    /// The fraction of the distance to its goal that the ceiling moves in a step.
    pace: f64,
    /// How soon an average below the limit is raised to it, s: slow enough for the ceiling to follow.
    horizon_s: f64,
    step_s: f64,
    floor: f64,
    ceiling: f64,
    average: f64,
    long: Option<PowerLimit>,
    short: Option<PowerLimit>,
}

impl Limiter {
    /// The controller of a domain that has drawn `watts` for a long time and whose lowest clock is `floor`.
    pub(crate) fn new(lag_s: f64, step_s: f64, floor: f64, watts: f64) -> Self {
        Self {
            pace: step_s / (lag_s + step_s),
            horizon_s: (4.0 * lag_s).max(10.0 * step_s),
            step_s,
            floor,
            ceiling: 1.0,
            average: watts,
            long: None,
            short: None,
        }
    }

    /// Sets or removes the long-term limit. The running average is not reset.
    pub(crate) fn set_long(&mut self, limit: Option<PowerLimit>) {
        self.long = limit;
    }

    /// Sets or removes the short-term limit, which holds at every instant.
    pub(crate) fn set_short(&mut self, limit: Option<PowerLimit>) {
        self.short = limit;
    }

    pub(crate) fn long(&self) -> Option<PowerLimit> {
        self.long
    }

    pub(crate) fn short(&self) -> Option<PowerLimit> {
        self.short
    }

    /// The highest clock that the limits allow now, as a fraction of the highest possible.
    pub(crate) fn ceiling(&self) -> f64 {
        self.ceiling
    }

    /// The running average, W.
    pub(crate) fn average(&self) -> f64 {
        self.average
    }

    /// Processes a step. Returns whether anything changed.
    pub(crate) fn step(&mut self, drawn: Drawn) -> bool {
        let average = self.next_average(drawn.watts);
        let ceiling = self.next_ceiling(drawn);
        let moved = average != self.average || ceiling != self.ceiling;
        self.average = average;
        self.ceiling = ceiling;
        moved
    }

    /// Without a long-term limit there is no window: the average is the present power.
    fn next_average(&self, watts: f64) -> f64 {
        let Some(PowerLimit { window_s, .. }) = self.long else { return watts };
        let next = self.average + (watts - self.average) * (self.step_s / (window_s + self.step_s));
        if (watts - next).abs() <= ARRIVED * watts { watts } else { next }
    }

    /// The power that is allowed now.
    fn allowed(&self) -> Option<f64> {
        let long = self.long.map(|limit| {
            let room = limit.watts - self.average;
            if room > 0.0 { limit.watts + room * (limit.window_s / self.horizon_s) } else { limit.watts }
        });
        match (long, self.short) {
            (Some(long), Some(short)) => Some(long.min(short.watts)),
            (Some(watts), None) | (None, Some(PowerLimit { watts, .. })) => Some(watts),
            (None, None) => None,
        }
    }

    fn next_ceiling(&self, drawn: Drawn) -> f64 {
        let goal = match self.allowed() {
            Some(allowed) if drawn.dynamic > 0.0 => {
                let excess = (allowed - drawn.watts) / drawn.dynamic;
                let at = self.ceiling.min(drawn.wanted);
                at + at * excess / EXPECTED_EXPONENT
            }
            // There is no limit, or the clock could not change anything.
            Some(_) | None => BEYOND,
        };
        // The goal moves with the ceiling: following it further would never end because of the last bit.
        if (goal - self.ceiling).abs() <= ARRIVED {
            return self.ceiling;
        }
        let next = self.ceiling + (goal.clamp(0.0, BEYOND) - self.ceiling) * self.pace;
        next.clamp(self.floor, 1.0)
    }
}

#[cfg(test)]
mod tests;
