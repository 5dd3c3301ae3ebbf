//! The model-based law: one frequency for all policies, computed from the distance between the power and the cap.
//!
//! Around an operating point power follows frequency as `P ∝ fⁿ`, with an elasticity n that depends on the machine and
//! on its load. One measurement therefore gives the next frequency:
//!
//! ```text
//! next f = f · (target / P)^(1/n)        target = cap · (1 − guard)
//! ```
//!
//! The law moves down in one step, and up with half the exponent and by a bounded step. The elasticity starts as a
//! configured estimate and is measured at every larger move. Its rules:
//!
//! - **Pairs.** A power is paired with the frequency *of the same time*: the value of a sensor that averages over a
//!   second is paired with the mean frequency of that second, so that the sensor's lag causes no move. The frequency is
//!   the *effective* one, because the commanded one may not be binding (turbo, vector licences, hardware that chooses
//!   its own clock).
//! - **Evidence.** A remaining error counts as noise until the mean of enough readings exceeds a threshold that follows
//!   the measured noise (`trend`). Within the deadband nothing is written.
//! - **Anti-windup.** The limit stays in its range, and near the machine's real frequency while the power is near the
//!   cap. An error that cannot be removed is reported as `NotAchievable` and not accumulated.
//! - **Blind means safe.** Without readings the limit is held for a few steps and then moved to the safe frequency. A
//!   cap that is lowered meanwhile lowers the limit at once. A meter that stands still while the clock changes gives no
//!   readings (`pulse`).
//!
//! It is tuned for a period of 0.5 to 1 s. Its state:
//!
//! ```text
//!   Sight:    Unseen, Seeing, Dim, Blind (law/visibility.rs)
//!   Actuator: Landed, InFlight           (law/flight.rs)
//!   Trend:    the readings since the last move      Past: the frequencies of the last steps
//!   Model:    the elasticity, and the point that the next measurement of it starts from
//! ```

mod model;
mod past;
mod pulse;
mod root;
mod trend;
mod tuning;

pub use tuning::{DEFAULTS, Tuning, TuningError};

use super::law::{
    Actuator, Command, CommandOutcome, Decision, Facts, FrequencyRange, Hold, Landing, Law, LawAction, Look,
    PowerReading, Reach, Visibility,
};
use model::{Exponent, Model, Point};
use past::Past;
use power_units::{KiloHertz, Micros, Percent, Ratio, Role, Stamp, Watts};
use pulse::{Beat, Pulse};
use trend::Trend;

/// The law `tracking`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracking {
    tuning: Tuning,
    prior: Exponent,
    safe_level: Ratio,
}

/// How long after a move the frequency may still be falling, 2 s: the slowest known actuator (a management controller
/// between us and the processor) and a period.
const LAG: Micros = Micros::new(2_000_000);

impl Tracking {
    /// The law with these settings.
    ///
    /// # Errors
    /// When one of them is out of its range.
    pub fn new(tuning: Tuning) -> Result<Self, TuningError> {
        let within = |value: Ratio, max: Ratio| value >= Ratio::ZERO && value <= max;
        let prior = Exponent::of_elasticity(tuning.elasticity).ok_or(TuningError::Elasticity)?;
        if !within(tuning.guard, Ratio::from_bits((1 << 32) / 10)) {
            return Err(TuningError::Guard);
        }
        if !within(tuning.deadband, Ratio::from_bits((1 << 32) / 20)) || tuning.deadband == Ratio::ZERO {
            return Err(TuningError::Deadband);
        }
        if !within(tuning.rise, Ratio::ONE) || tuning.rise == Ratio::ZERO {
            return Err(TuningError::Rise);
        }
        if tuning.safe_level < Percent::ZERO || tuning.safe_level > Percent::HUNDRED {
            return Err(TuningError::SafeLevel);
        }
        Ok(Self { tuning, prior, safe_level: tuning.safe_level.to_ratio(Role::Limit) })
    }
}

/// The state of the law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    visibility: Visibility,
    actuator: Actuator,
    trend: Trend,
    past: Past,
    model: Model,
    stepped_at: Option<Stamp>,
    moved_at: Option<Stamp>,
    /// The mean that was asked for where less is in effect, because the hardware has no limit between, kHz; else zero.
    rounded: u32,
    /// How many steps ago that was.
    rounded_for: u8,
    /// The last limit that was seen to hold a target, kHz, or zero; and the target.
    held: u32,
    held_target: Watts,
    comeback: Comeback,
    pulse: Pulse,
}

/// The readings were away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comeback {
    /// It is over.
    Done,
    /// They are back, and the first one is not acted on yet.
    Readings,
    /// The limit has gone back to where it was. The clock follows, and the first reading is of the way there, too.
    Limit,
    /// The limit is on its way to where it was.
    Nearing,
}

/// One reading, and the values with which it is compared.
struct Seen {
    now: Stamp,
    target: Watts,
    range: FrequencyRange,
    /// The reading.
    watts: Watts,
    /// The frequency of the same time.
    effective: KiloHertz,
    /// The limit in effect.
    limit: KiloHertz,
}

/// The decision of a step, before it is written as a [`Decision`].
#[derive(Clone, Copy)]
enum Plan {
    Hold(Hold),
    Move { action: LawAction, to: KiloHertz },
}

impl Law for Tracking {
    type Mode = Mode;

    fn start(&self, found: Option<Command>) -> Mode {
        Mode {
            visibility: Visibility::START,
            actuator: Actuator::new(found),
            trend: Trend::START,
            past: Past::START,
            model: Model::new(self.prior),
            stepped_at: None,
            moved_at: None,
            rounded: 0,
            rounded_for: 0,
            held: 0,
            held_target: Watts::ZERO,
            comeback: Comeback::Done,
            pulse: Pulse::START,
        }
    }

    fn step(&self, mode: &mut Mode, facts: &Facts) -> Decision {
        let pending = mode.settle(facts) == Landing::Pending;
        let beat = mode.beat(facts);
        if beat == Beat::MayHaveStopped {
            mode.held = 0;
        }
        mode.remember_frequency(facts);
        let mut observed = None;
        let plan = match (facts.cap_to_keep(), facts.range) {
            (None, _) => {
                mode.forget_readings();
                Plan::Hold(Hold::NoCap)
            }
            (Some(_), None) => Plan::Hold(Hold::NoRange),
            (Some(cap), Some(range)) => match mode.look(beat, facts.power) {
                Look::Fresh { watts, over, after_gap } => {
                    observed = Some(watts);
                    if after_gap {
                        mode.forget_readings();
                        mode.comeback = Comeback::Readings;
                    }
                    if pending {
                        Plan::Hold(Hold::Pending)
                    } else if let Some(plan) = mode.go_back(range, self.target(cap), watts) {
                        plan
                    } else {
                        self.judge(mode, facts, (cap, range), (watts, over))
                    }
                }
                Look::Dark if pending => Plan::Hold(Hold::Blind),
                Look::Lost if pending => Plan::Hold(Hold::Pending),
                Look::Dark => mode.lower_blind(range, self.target(cap)),
                Look::Lost => self.fail_safe(mode, range),
            },
        };
        mode.put(plan, facts, observed)
    }
}

impl Tracking {
    fn judge(
        &self,
        mode: &mut Mode,
        facts: &Facts,
        (cap, range): (Watts, FrequencyRange),
        (watts, over): (Watts, Micros),
    ) -> Plan {
        let limit = mode.limit(range);
        let effective = mode.past.mean_over(over).unwrap_or(limit);
        let target = self.target(cap);
        let seen = Seen { now: facts.now, target, range, watts, effective, limit };
        if mode.is_in_transit(&seen, over, facts.effective.is_some()) {
            self.catch_up(mode, &seen)
        } else {
            self.control(mode, &seen)
        }
    }

    /// The last move still shows its effect. Only a further move down is allowed, and only if the frequencies at which
    /// this power was drawn require it.
    fn catch_up(&self, mode: &mut Mode, seen: &Seen) -> Plan {
        mode.model.glimpse(Point { watts: seen.watts, frequency: seen.effective }, mode.trend.noise());
        if seen.watts > seen.target + mode.trend.threshold(self.deadband(seen)) {
            let next = mode.model.down().frequency_for(seen.effective, seen.target, seen.watts);
            if next < seen.limit - part(seen.limit, TRANSIT_SHIFT) {
                return seen.move_to(next);
            }
        }
        Plan::Hold(Hold::Settling)
    }

    fn control(&self, mode: &mut Mode, seen: &Seen) -> Plan {
        // Near the limit the machine follows the limit, so moving the limit removes an offset (a policy that is stuck,
        // a coarse table). Far from the limit, only the machine's own frequency is meaningful.
        let binding = seen.effective >= seen.limit - part(seen.limit, BINDING_SHIFT);
        let base = if binding { seen.limit } else { seen.effective };
        mode.model.learn(Point { watts: seen.watts, frequency: base }, mode.trend.noise());
        mode.trend.take(seen.watts);
        if seen.target < mode.held_target {
            mode.comeback = Comeback::Done;
        }
        let plan = self.correct(mode, seen, (base, binding));
        if matches!(plan, Plan::Move { action: LawAction::ThrottleUp, .. }) {
            mode.comeback = Comeback::Done;
        }
        if mode.pulse.repeats() == 0 && mode.comeback == Comeback::Done {
            mode.remember_held(seen, binding, plan);
        }
        plan
    }

    fn correct(&self, mode: &mut Mode, seen: &Seen, (base, binding): (KiloHertz, bool)) -> Plan {
        let Some(evidence) = mode.trend.evidence(seen.target, self.deadband(seen)) else {
            return Plan::Hold(Hold::Steady);
        };
        let watts = evidence.watts;
        mode.trend.aim(evidence, seen.target);
        mode.model.leave(Point { watts, frequency: base });
        let far = watts < seen.target - part(seen.target, FAR_SHIFT);
        let next = if far && !binding {
            seen.range.max()
        } else if watts > seen.target || !binding {
            mode.model.down().frequency_for(base, seen.target, watts)
        } else {
            mode.higher(seen, watts)
        };
        // Too much power never raises the limit, and too little never lowers it.
        if watts > seen.target {
            return seen.move_to(next.min(seen.limit));
        }
        let mut rise = seen.limit.scale(self.tuning.rise, Role::Limit);
        if mode.pulse.repeats() > 0 {
            // The power that is to be too low may be a meter's that has stopped. A short step shows it: at another clock a
            // meter that lives says something else. A step that was rounded away is doubled.
            rise = rise.min(mode.twice_rounded(seen, SHORT_SHIFT));
        }
        let next = mode.no_further_than_before(next.max(seen.limit).min(seen.limit + rise), seen);
        // What was rounded down to this very limit would be rounded down again, unless some policies only refused.
        if next.to_whole(Role::Limit) <= mode.rounded && mode.rounded_for < ROUNDED_STEPS {
            if mode.comeback == Comeback::Nearing {
                // It is the step to where the limit was. The next one is a careful one without that bound.
                mode.comeback = Comeback::Done;
            } else {
                mode.rounded_for = mode.rounded_for.saturating_add(1);
            }
            return Plan::Hold(Hold::Steady);
        }
        seen.move_to(next)
    }

    fn target(&self, cap: Watts) -> Watts {
        cap - cap.scale(self.tuning.guard, Role::Demand)
    }

    fn deadband(&self, seen: &Seen) -> Watts {
        seen.target.scale(self.tuning.deadband, Role::Limit)
    }

    /// The draw of the node is unknown.
    fn fail_safe(&self, mode: &mut Mode, range: FrequencyRange) -> Plan {
        mode.forget_readings();
        let to = range.min() + (range.max() - range.min()).scale(self.safe_level, Role::Limit);
        let limit = mode.limit(range);
        if limit <= to { Plan::Hold(Hold::AtBound) } else { Plan::Move { action: LawAction::FailSafe, to } }
    }
}

impl Seen {
    /// A move of the limit, clamped to the range, if it is large enough for a write.
    fn move_to(&self, next: KiloHertz) -> Plan {
        let (min, max) = (self.range.min(), self.range.max());
        let to = next.max(min).min(max);
        if (to - self.limit).abs() < part(self.limit, MOVE_SHIFT) {
            return Plan::Hold(if to == min || to == max { Hold::AtBound } else { Hold::Steady });
        }
        let action = if to < self.limit { LawAction::ThrottleUp } else { LawAction::ThrottleDown };
        Plan::Move { action, to }
    }
}

/// While a move is in progress, a second one must be at least 1/128 of the limit; smaller errors wait until the first
/// has finished. The mean of two powers is above the power of the mean frequency, by 1/100 after a large move: this
/// much too low is accepted.
const TRANSIT_SHIFT: u32 = 7;
/// A frequency more than 1/32 below the limit is not held down by it.
const BINDING_SHIFT: u32 = 5;
/// Power within 1/32 of the target is held there, where the limit binds.
const HELD_SHIFT: u32 = 5;
/// Power that is more than 1/4 below the target, at a frequency that the limit does not bind, is low because the load
/// is low. Then the limit is lifted, so that a short burst runs at full speed.
const FAR_SHIFT: u32 = 2;
/// An error of less than 1/32 is corrected upwards in a step that is not halved: an error of the estimate matters less then.
const NEAR_SHIFT: u32 = 5;
/// A target from 1/4 above the power on is far above the edge of such errors.
const CLEAR_SHIFT: u32 = 2;
/// A frequency within 1/64 of the limit has reached it.
const ARRIVED_SHIFT: u32 = 6;
/// A reading that begins less than 1/64 of its span before a move counts as one from after the move: with halved power
/// the error is less than 1 %.
const JITTER_SHIFT: u32 = 6;
/// A short step is 1/64 of the limit. A rise on a doubted reading is no longer, unless a step was rounded away.
const SHORT_SHIFT: u32 = 6;
/// A step to the next frequency that the hardware has is 1/16 of the limit at first.
const WHOLE_SHIFT: u32 = 4;
/// A move up aims at 1/512 below the target.
const AIM_SHIFT: u32 = 9;
/// The least room of a way back for a lower target, of the room of before.
const LEAST_ROOM_SHIFT: u32 = 3;
/// For how many steps a mean that was rounded down is not asked for again.
const ROUNDED_STEPS: u8 = 60;
/// A change of less than 1/1024 of the limit is not written.
const MOVE_SHIFT: u32 = 10;

/// `whole / 2^shift`.
fn part<Q: Halves>(whole: Q, shift: u32) -> Q {
    whole.halved(shift)
}

trait Halves {
    fn halved(self, times: u32) -> Self;
}

impl Halves for KiloHertz {
    fn halved(self, times: u32) -> Self {
        Self::from_bits(self.to_bits() >> times)
    }
}

impl Halves for Watts {
    fn halved(self, times: u32) -> Self {
        Self::from_bits(self.to_bits() >> times)
    }
}

impl Mode {
    fn settle(&mut self, facts: &Facts) -> Landing {
        let landing = self.actuator.settle(facts.outcome);
        if let (Landing::Applied { .. }, Some((asked, found))) = (landing, Self::means(facts.outcome)) {
            self.rounded_for = 0;
            self.rounded = if asked > found { asked.to_whole(Role::Limit) } else { 0 };
        }
        match landing {
            Landing::Applied { .. } => {
                // If the outcome came with the next step, this is the time of the decision. If it took longer, the
                // command may have taken effect as late as this.
                self.moved_at = self.stepped_at;
                // A move that ended elsewhere (policies at their ceilings) has no expected power, so a difference from
                // it is not noise.
                if Self::is_where_asked(facts.outcome) { self.trend.moved() } else { self.trend.restart() }
            }
            Landing::Refused => self.trend.stayed(),
            Landing::Idle | Landing::Pending => {}
        }
        landing
    }

    fn is_where_asked(outcome: CommandOutcome) -> bool {
        Self::means(outcome).is_none_or(|(asked, found)| (asked - found).abs() <= part(asked, TRANSIT_SHIFT))
    }

    /// The mean frequencies that were asked for and are in effect.
    const fn means(outcome: CommandOutcome) -> Option<(KiloHertz, KiloHertz)> {
        match outcome {
            CommandOutcome::Applied {
                asked: Command::MeanFrequency(asked),
                in_effect: Command::MeanFrequency(found),
            } => Some((asked, found)),
            CommandOutcome::Applied { .. } | CommandOutcome::Refused { .. } | CommandOutcome::Unknown => None,
        }
    }

    /// What the reading says about its meter.
    fn beat(&mut self, facts: &Facts) -> Beat {
        let PowerReading::Fresh { watts, .. } = facts.power else { return Beat::Lives };
        let limit = facts.range.map(|range| self.limit(range));
        self.pulse.feel(watts, facts.effective, limit)
    }

    /// A meter that has stopped is not waited for.
    fn look(&mut self, beat: Beat, power: PowerReading) -> Look {
        match beat {
            Beat::Lives => self.visibility.look(power),
            Beat::MayHaveStopped => self.visibility.look(PowerReading::Stale),
            Beat::HasStopped => self.visibility.lose(),
        }
    }

    fn remember_frequency(&mut self, facts: &Facts) {
        let passed = self.stepped_at.and_then(|last| facts.now.since(last));
        let commanded = facts.range.map(|range| self.limit(range));
        let measured = facts.effective.filter(|&effective| effective > KiloHertz::ZERO);
        match (measured.or(commanded), passed) {
            (Some(frequency), Some(passed)) => self.past.push(frequency, passed),
            (Some(frequency), None) => self.past = Past::of(frequency),
            (None, _) => self.past = Past::START,
        }
        self.stepped_at = Some(facts.now);
    }

    /// A limit holds the target that it was seen to hold, or to rest below as near as the hardware's frequencies allow.
    fn remember_held(&mut self, seen: &Seen, binding: bool, plan: Plan) {
        let short = seen.target - seen.watts;
        let is_near = short.abs() <= part(seen.target, HELD_SHIFT);
        let rests =
            matches!(plan, Plan::Hold(_)) && short > Watts::ZERO && short <= part(seen.target, FAR_SHIFT);
        self.held = if binding && (is_near || rests) { seen.limit.to_whole(Role::Limit) } else { 0 };
        self.held_target = seen.target;
    }

    /// The readings are back. The last limit that was seen to hold a target is a better start than the safe one, less 1/32 for
    /// a load that may have changed, and less what a lower target takes. From the safe one, at which little of the power
    /// follows the frequency, the steps up are too long on a machine whose power rises steeply further up. A reading above the
    /// target says that it would not hold this load.
    fn go_back(&mut self, range: FrequencyRange, target: Watts, watts: Watts) -> Option<Plan> {
        if self.comeback != Comeback::Readings {
            return None;
        }
        let limit = self.limit(range);
        if target < self.held_target {
            self.held = self.held_for(target, limit, watts);
            self.held_target = target;
        }
        let holds = self.held > 0 && watts <= target;
        self.comeback = if holds { Comeback::Nearing } else { Comeback::Done };
        let held = self.held_limit().min(range.max());
        let to = held - part(held, BINDING_SHIFT);
        if !holds || to <= limit {
            return None;
        }
        self.comeback = Comeback::Limit;
        Some(Plan::Move { action: LawAction::ThrottleDown, to })
    }

    /// What is left for a lower target of the limit that was seen to hold one, kHz, or zero. Power over frequency is convex, so
    /// that it is below the line from the point without readings to the point that was held.
    fn held_for(&self, target: Watts, limit: KiloHertz, watts: Watts) -> u32 {
        let (room, whole) = (target - watts, self.held_target - watts);
        if self.held == 0 || room < part(whole, LEAST_ROOM_SHIFT) {
            return 0;
        }
        let held = past::kilohertz(self.held);
        let line = limit + (held - limit).scale(model::part_of(room, whole), Role::Limit);
        line.min(self.model.down().frequency_for(held, target, self.held_target)).to_whole(Role::Limit)
    }

    /// The next whole number: the limit itself would be rounded down to the one below.
    fn held_limit(&self) -> KiloHertz {
        past::kilohertz(self.held.saturating_add(1))
    }

    /// A limit on its way to where it was does not go past that in one step.
    fn no_further_than_before(&mut self, next: KiloHertz, seen: &Seen) -> KiloHertz {
        if self.comeback != Comeback::Nearing {
            return next;
        }
        let held = self.held_limit();
        if seen.limit + part(seen.limit, MOVE_SHIFT) < held {
            return next.min(held);
        }
        self.comeback = Comeback::Done;
        next
    }

    /// The next limit up, where the limit binds.
    fn higher(&self, seen: &Seen, watts: Watts) -> KiloHertz {
        if self.rounded_for > 0 {
            // A careful step was rounded away. A longer one may reach the next frequency there is.
            let whole = self.model.whole().frequency_for(seen.limit, seen.target, watts);
            return whole.min(seen.limit + self.twice_rounded(seen, WHOLE_SHIFT));
        }
        let aim = (seen.target - part(seen.target, AIM_SHIFT)).max(watts);
        let edge = watts + part(watts, NEAR_SHIFT);
        if aim <= edge {
            return self.model.near().frequency_for(seen.limit, aim, watts);
        }
        let next = self.model.up().frequency_for(seen.limit, aim, watts);
        // Never less than for a lower target at that edge. Far above it the step is longer anyway: the exponent is not less than
        // a quarter of that of a short step, and (5/4)^(1/4) is more than 33/32.
        if aim >= watts + part(watts, CLEAR_SHIFT) {
            next
        } else {
            next.max(self.model.near().frequency_for(seen.limit, edge, watts))
        }
    }

    /// This part of the limit, or twice the step that was rounded away.
    fn twice_rounded(&self, seen: &Seen, shift: u32) -> KiloHertz {
        let step = past::kilohertz(self.rounded) - seen.limit;
        part(seen.limit, shift).max(step + step)
    }

    /// There is no reading, and the limit that held the former target is too high for this one. How much less power a lower
    /// limit draws cannot be seen, so it is taken for as little as on any machine.
    fn lower_blind(&mut self, range: FrequencyRange, target: Watts) -> Plan {
        let (held, limit) = (past::kilohertz(self.held), self.limit(range));
        if self.held == 0 || target >= self.held_target {
            return Plan::Hold(Hold::Blind);
        }
        let to = Exponent::LEAST_SENSITIVE.frequency_for(held, target, self.held_target).max(range.min());
        if limit - to < part(limit, MOVE_SHIFT) {
            return Plan::Hold(Hold::Blind);
        }
        Plan::Move { action: LawAction::ThrottleUp, to }
    }

    fn forget_readings(&mut self) {
        self.trend.restart();
        self.model.forget_point();
    }

    /// The limit in effect; a machine whose limit is unknown counts as free.
    fn limit(&self, range: FrequencyRange) -> KiloHertz {
        match self.actuator.in_effect() {
            Some(Command::MeanFrequency(limit)) => limit.within(range.min(), range.max()),
            Some(Command::Throttle(_)) | None => range.max(),
        }
    }

    /// Whether the reading, or the machine, still shows the time before the last move.
    fn is_in_transit(&mut self, seen: &Seen, over: Micros, measured: bool) -> bool {
        let Some(age) = self.moved_at.and_then(|moved| seen.now.since(moved)) else { return false };
        // The period jitters: a reading that is almost entirely from after the move counts as one from after it.
        if Micros::new(over.get().saturating_sub(over.get() >> JITTER_SHIFT)) > age {
            return true;
        }
        if self.comeback == Comeback::Limit {
            self.comeback = Comeback::Nearing;
            return true;
        }
        let arrived = part(seen.limit, ARRIVED_SHIFT);
        let falling = seen.effective > seen.limit + arrived;
        let rising = seen.effective < seen.limit - arrived && self.past.is_rising();
        measured && age <= LAG && (falling || rising)
    }

    fn put(&mut self, plan: Plan, facts: &Facts, observed: Option<Watts>) -> Decision {
        let in_effect = self.actuator.in_effect();
        let (action, command) = match plan {
            Plan::Hold(why) => (LawAction::Hold(why), None),
            Plan::Move { action, to } => {
                let command = Command::MeanFrequency(to);
                self.actuator.ask(command, facts.now);
                (action, Some(command))
            }
        };
        let smoothed = self.trend.mean();
        let reach = match (facts.cap, facts.range, observed) {
            (Some(cap), Some(range), Some(watts)) => {
                let drawn = smoothed.unwrap_or(watts);
                let spent = self.limit(range) <= range.min();
                if spent && drawn > cap { Reach::NotAchievable } else { Reach::Achievable }
            }
            (None, _, _) | (_, None, _) | (_, _, None) => Reach::Unknown,
        };
        Decision { action, command, in_effect, observed, smoothed, counts: None, reach }
    }
}

#[cfg(test)]
mod tests;
