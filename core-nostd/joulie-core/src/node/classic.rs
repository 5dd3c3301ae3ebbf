//! The DVFS fallback control loop as the specification defines it: smoothing, hysteresis, trip count, cooldown, step.
//!
//! Each step:
//! 1. EMA smoothing: `ema = alpha · observed + (1 − alpha) · ema`; the first reading sets it.
//! 2. Within [`Tuning::cooldown`] of the last action nothing is counted and nothing is done.
//! 3. `upper = cap + high margin`, `lower = cap − low margin`; `above` counts the steps in a row with `ema > upper`,
//!    `below` those with `ema < lower`, and a step between them sets both to zero.
//! 4. At [`Tuning::trip_count`] above, the throttle rises by [`Tuning::step`]; at as many below, it falls by it.
//!
//! The order is the contract: two programs that follow it take the same actions on the same readings. It is kept even
//! where it costs performance: while the EMA lags behind, the law goes on throttling although the power is already
//! below the cap, because the specification compares the EMA ("`aboveCount` if `ema > upper`") and not the reading.
//!
//! Throttle, counters and cooldown change only when a command has been reported as applied. The limits of the range
//! hold: there is no action from 0 % to 0 %. A new cap clears counters and cooldown, which belonged to the old cap,
//! and keeps the EMA, which describes the power. A gap in the readings clears EMA and counters. After more than
//! [`BLIND_STEPS_HELD`](super::law::BLIND_STEPS_HELD) steps without a reading the law throttles everything at once,
//! regardless of the cooldown: only the lowest clock keeps the cap at any load.

use super::law::{
    Actuator, Command, Decision, Facts, Hold, Landing, Law, LawAction, Look, Reach, TripCounts, Visibility,
};
use super::throttle::ThrottlePercent;
use core::fmt;
use power_units::{Micros, Ratio, Role, Stamp, Watts};

/// The settings, by the names of their environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// `DVFS_EMA_ALPHA`: the weight of a new reading, above 0 and at most 1.
    pub ema_alpha: Ratio,
    /// `DVFS_HIGH_MARGIN_W`: how far above the cap the EMA may lie; not negative.
    pub high_margin: Watts,
    /// `DVFS_LOW_MARGIN_W`: how far below the cap the EMA must fall before throttling is eased; not negative.
    pub low_margin: Watts,
    /// `DVFS_STEP_PCT`: by how much the throttle changes at once, above 0.
    pub step: ThrottlePercent,
    /// `DVFS_TRIP_COUNT`: after how many steps in a row beyond a threshold to act, at least 1.
    pub trip_count: u32,
    /// `DVFS_COOLDOWN`: the shortest time between two actions.
    pub cooldown: Micros,
}

/// The values in the agent's manual.
pub const DEFAULTS: Tuning = Tuning {
    // 0.30, to the nearest 2⁻³².
    ema_alpha: Ratio::from_bits(1_288_490_189),
    high_margin: Watts::from_int(10),
    low_margin: Watts::from_int(15),
    step: ThrottlePercent::TEN,
    trip_count: 2,
    cooldown: Micros::new(20_000_000),
};

/// Which setting is not valid, and what it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TuningError {
    /// `ema_alpha` is outside (0, 1].
    EmaAlpha,
    /// `high_margin` is negative.
    HighMargin,
    /// `low_margin` is negative.
    LowMargin,
    /// `step` is zero.
    Step,
    /// `trip_count` is zero.
    TripCount,
}

impl fmt::Display for TuningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EmaAlpha => "DVFS_EMA_ALPHA must be above 0 and at most 1",
            Self::HighMargin => "DVFS_HIGH_MARGIN_W must be 0 or more",
            Self::LowMargin => "DVFS_LOW_MARGIN_W must be 0 or more",
            Self::Step => "DVFS_STEP_PCT must be from 1 to 100",
            Self::TripCount => "DVFS_TRIP_COUNT must be 1 or more",
        })
    }
}

impl core::error::Error for TuningError {}

/// The law `classic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classic {
    tuning: Tuning,
}

impl Classic {
    /// The law with these settings.
    ///
    /// # Errors
    /// When one of them is out of its range.
    pub fn new(tuning: Tuning) -> Result<Self, TuningError> {
        let alpha = tuning.ema_alpha;
        if alpha <= Ratio::ZERO || alpha > Ratio::ONE {
            return Err(TuningError::EmaAlpha);
        }
        if tuning.high_margin < Watts::ZERO {
            return Err(TuningError::HighMargin);
        }
        if tuning.low_margin < Watts::ZERO {
            return Err(TuningError::LowMargin);
        }
        if tuning.step == ThrottlePercent::NONE {
            return Err(TuningError::Step);
        }
        if tuning.trip_count == 0 {
            return Err(TuningError::TripCount);
        }
        Ok(Self { tuning })
    }
}

/// What the law remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    visibility: Visibility,
    actuator: Actuator,
    cap: Option<Watts>,
    ema: Option<Watts>,
    counts: TripCounts,
    last_action: Option<Stamp>,
}

impl Law for Classic {
    type Mode = Mode;

    fn start(&self, found: Option<Command>) -> Mode {
        Mode {
            visibility: Visibility::START,
            actuator: Actuator::new(found),
            cap: None,
            ema: None,
            counts: TripCounts::ZERO,
            last_action: None,
        }
    }

    fn step(&self, mode: &mut Mode, facts: &Facts) -> Decision {
        let pending = mode.settle(facts) == Landing::Pending;
        let Some(cap) = facts.cap_to_keep() else {
            mode.forget_readings();
            mode.cap = None;
            return mode.hold(Hold::NoCap, None);
        };
        mode.notice_cap(cap);
        match mode.visibility.look(facts.power) {
            Look::Fresh { watts, after_gap, .. } => {
                if after_gap {
                    mode.ema = None;
                    mode.counts = TripCounts::ZERO;
                }
                mode.ema = Some(self.smooth(mode.ema, watts));
                if pending {
                    return mode.hold(Hold::Pending, Some(watts));
                }
                self.control(mode, cap, watts, facts.now)
            }
            Look::Dark => mode.hold(Hold::Blind, None),
            Look::Lost if pending => mode.hold(Hold::Pending, None),
            Look::Lost => Self::fail_safe(mode, facts.now),
        }
    }
}

impl Classic {
    fn smooth(&self, ema: Option<Watts>, watts: Watts) -> Watts {
        match ema {
            Some(ema) => ema + (watts - ema).scale(self.tuning.ema_alpha, Role::Nearest),
            None => watts,
        }
    }

    fn control(&self, mode: &mut Mode, cap: Watts, watts: Watts, now: Stamp) -> Decision {
        if self.cooling(mode, now) {
            return mode.hold(Hold::Cooldown, Some(watts));
        }
        let ema = mode.ema.unwrap_or(watts);
        mode.counts = if ema > cap + self.tuning.high_margin {
            TripCounts { above: mode.counts.above.saturating_add(1), below: 0 }
        } else if ema < cap - self.tuning.low_margin {
            TripCounts { above: 0, below: mode.counts.below.saturating_add(1) }
        } else {
            TripCounts::ZERO
        };
        let throttle = mode.throttle();
        let (action, next) = if mode.counts.above >= self.tuning.trip_count {
            (LawAction::ThrottleUp, throttle.raised(self.tuning.step))
        } else if mode.counts.below >= self.tuning.trip_count {
            (LawAction::ThrottleDown, throttle.lowered(self.tuning.step))
        } else {
            return mode.hold(Hold::Steady, Some(watts));
        };
        if next == throttle {
            return mode.hold(Hold::AtBound, Some(watts));
        }
        mode.ask(action, next, now, Some(watts))
    }

    /// What the node draws is unknown: the lowest clock, without intermediate steps.
    fn fail_safe(mode: &mut Mode, now: Stamp) -> Decision {
        mode.forget_readings();
        if mode.throttle() == ThrottlePercent::ALL {
            return mode.hold(Hold::AtBound, None);
        }
        mode.ask(LawAction::FailSafe, ThrottlePercent::ALL, now, None)
    }

    /// After a clock that went backwards the span is unknown, and then nothing is held back.
    fn cooling(&self, mode: &Mode, now: Stamp) -> bool {
        let since = mode.last_action.and_then(|last| now.since(last));
        since.is_some_and(|since| since < self.tuning.cooldown)
    }
}

impl Mode {
    fn settle(&mut self, facts: &Facts) -> Landing {
        let landing = self.actuator.settle(facts.outcome);
        if let Landing::Applied { at } = landing {
            self.counts = TripCounts::ZERO;
            self.last_action = Some(at);
        }
        landing
    }

    fn notice_cap(&mut self, cap: Watts) {
        if self.cap != Some(cap) {
            self.cap = Some(cap);
            self.counts = TripCounts::ZERO;
            self.last_action = None;
        }
    }

    fn forget_readings(&mut self) {
        self.ema = None;
        self.counts = TripCounts::ZERO;
    }

    /// Nothing that this law commanded is in effect until its first command.
    fn throttle(&self) -> ThrottlePercent {
        match self.actuator.in_effect() {
            Some(Command::Throttle(throttle)) => throttle,
            Some(Command::MeanFrequency(_)) | None => ThrottlePercent::NONE,
        }
    }

    fn ask(
        &mut self,
        action: LawAction,
        next: ThrottlePercent,
        now: Stamp,
        observed: Option<Watts>,
    ) -> Decision {
        let command = Command::Throttle(next);
        self.actuator.ask(command, now);
        self.decision(action, Some(command), observed)
    }

    fn hold(&self, why: Hold, observed: Option<Watts>) -> Decision {
        self.decision(LawAction::Hold(why), None, observed)
    }

    fn decision(&self, action: LawAction, command: Option<Command>, observed: Option<Watts>) -> Decision {
        let reach = match (self.cap, self.ema, observed) {
            (Some(cap), Some(ema), Some(_)) if self.throttle() == ThrottlePercent::ALL && ema > cap => {
                Reach::NotAchievable
            }
            (Some(_), Some(_), Some(_)) => Reach::Achievable,
            (None, _, _) | (_, None, _) | (_, _, None) => Reach::Unknown,
        };
        Decision {
            action,
            command,
            in_effect: Some(Command::Throttle(self.throttle())),
            observed,
            smoothed: self.ema,
            counts: Some(self.counts),
            reach,
        }
    }
}

#[cfg(test)]
mod tests;
