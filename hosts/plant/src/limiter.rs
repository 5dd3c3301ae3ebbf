//! The controller in the silicon that holds a power limit: RAPL in a package, the power management unit in a GPU.
//!
//! It keeps the running average of the power at the long-term limit by lowering a ceiling on the clock. Until the
//! average has reached the limit the power may rise as far as the short-term limit: with a window of 28 s a package may
//! sit at its short-term limit for tens of seconds. The average is exponential with the window as its time constant.
//! A limit that is not enabled has no effect. A limit below what the lowest clock draws is not reached.

/// A power limit and the window over which it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerLimit {
    /// The mean power that is allowed, W.
    pub watts: f64,
    /// Over how long the mean goes, s.
    pub window_s: f64,
}

/// The exponent with which the controller expects power to follow the clock. It corrects itself every step, so this
/// decides only how fast; from 1 to 4 in the plant the correction never overshoots by more than a third.
const EXPECTED_EXPONENT: f64 = 3.0;
/// A ceiling nearer than this to where it is going has arrived: a part in 10⁹.
const ARRIVED: f64 = 1e-9;
/// Where the ceiling goes when there is nothing to hold: beyond the highest clock, so as to get there in finite time.
const BEYOND: f64 = 1.25;

/// What the controller sees of the step that has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    /// The power.
    pub(crate) watts: f64,
    /// The part of it that follows the clock.
    pub(crate) dynamic: f64,
    /// The highest clock asked for by anything that is busy, as a part of the highest there is.
    pub(crate) wanted: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limiter {
    /// How much of the way to its goal the ceiling goes in a step.
    pace: f64,
    /// How soon an average below the limit is brought up to it, s: slow enough for the ceiling to follow.
    horizon_s: f64,
    step_s: f64,
    floor: f64,
    ceiling: f64,
    average: f64,
    long: Option<PowerLimit>,
    short: Option<PowerLimit>,
}

impl Limiter {
    /// A controller of a domain that has drawn `watts` for long and may go down to the clock `floor`.
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

    /// Sets or lifts the long-term limit. The running average goes on as it is.
    pub(crate) fn set_long(&mut self, limit: Option<PowerLimit>) {
        self.long = limit;
    }

    /// Sets or lifts the short-term limit, which holds for every instant.
    pub(crate) fn set_short(&mut self, limit: Option<PowerLimit>) {
        self.short = limit;
    }

    pub(crate) fn long(&self) -> Option<PowerLimit> {
        self.long
    }

    pub(crate) fn short(&self) -> Option<PowerLimit> {
        self.short
    }

    /// The highest clock that the limits allow now, as a part of the highest there is.
    pub(crate) fn ceiling(&self) -> f64 {
        self.ceiling
    }

    /// The running average, W.
    pub(crate) fn average(&self) -> f64 {
        self.average
    }

    /// Takes note of a step; says whether anything moved.
    pub(crate) fn step(&mut self, drawn: Drawn) -> bool {
        let average = self.next_average(drawn.watts);
        let ceiling = self.next_ceiling(drawn);
        let moved = average != self.average || ceiling != self.ceiling;
        self.average = average;
        self.ceiling = ceiling;
        moved
    }

    /// Without a long-term limit there is no window: the average is what is drawn.
    fn next_average(&self, watts: f64) -> f64 {
        let Some(PowerLimit { window_s, .. }) = self.long else { return watts };
        let next = self.average + (watts - self.average) * (self.step_s / (window_s + self.step_s));
        if (watts - next).abs() <= ARRIVED * watts { watts } else { next }
    }

    /// The power that may be drawn now.
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
            // Nothing to limit, or nothing that the clock could change.
            Some(_) | None => BEYOND,
        };
        // The goal moves with the ceiling: to follow it further would be to chase the last bit for ever.
        if (goal - self.ceiling).abs() <= ARRIVED {
            return self.ceiling;
        }
        let next = self.ceiling + (goal.clamp(0.0, BEYOND) - self.ceiling) * self.pace;
        next.clamp(self.floor, 1.0)
    }
}

#[cfg(test)]
mod tests;
