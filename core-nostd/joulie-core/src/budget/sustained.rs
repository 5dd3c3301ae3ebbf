//! Two limits for a group: one for every instant, and a lower one for the mean over a window.
//!
//! What grants may sum up to:
//!
//! > min(integral law on the measured mean, (window · sustained − energy of the last window − h) / h)
//!
//! where *h* is the time in which grants come down: to be told, and one round of lowerings. The integral law lies between the
//! two limits. The second term is what may be drawn for *h* without breaking the mean, whatever happens next; it is below the
//! sustained limit only where more was drawn before and less cannot follow by itself. So the grants are at most the
//! instant limit at every instant, and the mean is kept as long as what is drawn is known.
//!
//! What was drawn and is not known counts as what might have been drawn: the sum of the counts. While too little is
//! measured, or too late, or no whole window is known yet, the sustained limit holds at every instant.

use power_units::{Amount, MicroJoules, Micros, NonZeroMicros, Ratio, Role, Stamp, Watts};

/// A limit for the mean, below one for every instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SustainedLimit {
    instant: Watts,
    sustained: Watts,
    window: NonZeroMicros,
}

/// Why two limits make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SustainedError {
    /// The mean may be more than what is drawn at any instant.
    AboveInstant,
    /// The window is shorter than a minute or longer than an hour.
    Window,
}

impl core::fmt::Display for SustainedError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::AboveInstant => "the sustained limit is above the instant one, or below zero",
            Self::Window => "the window is not from a minute to an hour",
        })
    }
}

impl core::error::Error for SustainedError {}

/// Where the mean is known, no more than this part of the sustained limit is spent in a window, because one that ends before
/// the grants are down is not bounded.
const SPENT: Ratio = Ratio::from_bits((998 << 32) / 1000);
/// The mean is brought to this part of the sustained limit.
const AIM: Ratio = Ratio::from_bits((985 << 32) / 1000);
/// The energy of a window is kept in so many parts, and of some before it.
const SLOTS: u64 = 60;
const KEPT: usize = 64;
const KEPT_U64: u64 = 64;
/// A meter may be late by this part of the window, and by so much in any case.
const LATE_PART: u64 = 20;
const LATE_LEAST: Micros = Micros::new(3_000_000);
/// The integral law moves by this multiple of the error in a window.
const GAIN: u32 = 2;

impl SustainedLimit {
    /// Both limits, and the window of the second.
    ///
    /// # Errors
    /// When the mean could be above the instant limit, or the window is not from a minute to an hour.
    pub fn new(instant: Watts, sustained: Watts, window: Micros) -> Result<Self, SustainedError> {
        if sustained > instant || sustained < Watts::ZERO {
            return Err(SustainedError::AboveInstant);
        }
        let is_long = window >= Micros::MINUTE && window <= Micros::new(3_600_000_000);
        let window = window.non_zero().filter(|_| is_long).ok_or(SustainedError::Window)?;
        Ok(Self { instant, sustained, window })
    }

    /// The limit for the mean.
    #[must_use]
    pub const fn sustained(&self) -> Watts {
        self.sustained
    }

    /// The window.
    #[must_use]
    pub const fn window(&self) -> Micros {
        Micros::new(self.window.get())
    }

    /// A measurement that is older than this is none.
    #[must_use]
    pub fn late(&self) -> Micros {
        Micros::new(self.window().get().checked_div(LATE_PART).unwrap_or(0)).max(LATE_LEAST)
    }

    fn slot(&self) -> u64 {
        self.window().get().checked_div(SLOTS).unwrap_or(1).max(1)
    }
}

/// What is known of a group at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SustainedFacts {
    /// The moment.
    pub now: Stamp,
    /// What is drawn, with what is not measured at its counts; `None` where too little is measured.
    pub drawn: Option<Watts>,
    /// The most that can be drawn: the sum of all counts and the base load; `None` where nobody can say.
    pub counted: Option<Watts>,
    /// How old the oldest measurement is.
    pub lag: Micros,
    /// In how much time grants come down.
    pub lowered_within: Micros,
}

/// What is remembered of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SustainedMemory {
    /// The energy of each part of the window, and for how long of it more was drawn than the sustained limit.
    slots: [(MicroJoules, Micros); KEPT],
    /// The number of the newest part, counted from the start of the clock.
    newest: u64,
    /// When the memory begins, and the last step with what was drawn then.
    begun: Option<Stamp>,
    last: Option<(Stamp, Watts)>,
    /// What the integral law says.
    integral: Option<Watts>,
}

impl SustainedMemory {
    /// Nothing is known.
    pub const EMPTY: Self = Self {
        slots: [(MicroJoules::ZERO, Micros::ZERO); KEPT],
        newest: 0,
        begun: None,
        last: None,
        integral: None,
    };
}

impl Default for SustainedMemory {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// What follows for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SustainedState {
    /// What grants may sum up to now.
    pub effective: Watts,
    /// What was drawn in the mean over the last window; `None` until a whole one is known.
    pub mean: Option<Watts>,
    /// For how long of it more was drawn than the sustained limit.
    pub between: Micros,
    /// Enough is measured, and not too late.
    pub metered: bool,
}

impl SustainedLimit {
    /// One step. Nothing is assumed of how often it is made; between two steps the higher of what was drawn at both counts.
    pub fn step(&self, memory: &mut SustainedMemory, facts: &SustainedFacts) -> SustainedState {
        let is_late = facts.lag > self.late();
        let drawn = facts.drawn.filter(|_| !is_late);
        let Some(power) = drawn.or(facts.counted) else {
            *memory = SustainedMemory::EMPTY;
            return self.held(None, Micros::ZERO, false);
        };
        let passed = self.learn(memory, facts.now, power);
        let warm =
            memory.begun.and_then(|begun| facts.now.since(begun)).is_some_and(|all| all >= self.window());
        let mean = if warm { self.mean(memory, facts.now) } else { None };
        let between = self.newest(memory, SLOTS).fold(Micros::ZERO, |sum, (_, above)| sum + above);
        let part = if warm && drawn.is_some() { SPENT } else { Ratio::ONE };
        let left = self.left(memory, facts, (drawn.unwrap_or(power), part));
        let (Some(mean_now), Some(_)) = (mean, drawn) else {
            memory.integral = None;
            let held = self.held(mean, between, drawn.is_some());
            // What was drawn above it before has to be made up for also now.
            return if warm {
                SustainedState { effective: held.effective.min(left).or_zero(), ..held }
            } else {
                held
            };
        };
        let before = memory.integral.unwrap_or(self.sustained);
        let error = self.sustained.scale(AIM, Role::Limit) - mean_now;
        let moved =
            error.times(GAIN).part(passed.get(), self.window().get(), Role::Limit).unwrap_or(Watts::ZERO);
        let integral = (before + moved).within(self.sustained, self.instant);
        memory.integral = Some(integral);
        // Below the sustained limit only while what was drawn above it is still in the window.
        let effective = integral.min(left).within(Watts::ZERO, self.instant);
        SustainedState { effective, mean, between, metered: true }
    }

    /// The sustained limit holds at every instant.
    const fn held(&self, mean: Option<Watts>, between: Micros, metered: bool) -> SustainedState {
        SustainedState { effective: self.sustained, mean, between, metered }
    }

    /// What may be drawn while grants come down, so that the mean is kept whatever is drawn until then. Since the oldest
    /// measurement it may have been all that is counted.
    fn left(&self, memory: &SustainedMemory, facts: &SustainedFacts, (drawn, part): (Watts, Ratio)) -> Watts {
        let within = facts.lowered_within.max(Micros::new(1)).min(self.window());
        let Some(horizon) = within.non_zero() else { return self.sustained };
        let past = self.window().get().saturating_sub(within.get());
        let drawn_before = self.last(memory, facts.now, Micros::new(past));
        let unseen = facts.counted.map_or(Watts::ZERO, |counted| (counted - drawn).or_zero());
        let spent = drawn_before.get().saturating_add(energy(unseen, facts.lag).get());
        let all = self.sustained.scale(part, Role::Limit).during(self.window()).get();
        MicroJoules::new(all.saturating_sub(spent)).over(horizon)
    }

    /// Adds what was drawn since the last step. Returns how long ago that was.
    fn learn(&self, memory: &mut SustainedMemory, now: Stamp, power: Watts) -> Micros {
        let slot = self.slot();
        let number = |at: Stamp| at.since_start().get().checked_div(slot).unwrap_or(0);
        let Some((last, before)) = memory.last else {
            (memory.begun, memory.last, memory.newest) = (Some(now), Some((now, power)), number(now));
            return Micros::ZERO;
        };
        let Some(passed) = now.since(last) else { return Micros::ZERO };
        memory.last = Some((now, power));
        let power = power.max(before);
        // What is older than the window is forgotten.
        let kept = self.window().get().saturating_add(slot.saturating_mul(2));
        let mut from = last.since_start().get().max(now.since_start().get().saturating_sub(kept));
        let to = now.since_start().get();
        while from < to {
            let at = from.checked_div(slot).unwrap_or(0);
            let end = at.saturating_add(1).saturating_mul(slot).min(to).max(from.saturating_add(1));
            let lasted = Micros::new(end.saturating_sub(from));
            let above = if power > self.sustained { lasted } else { Micros::ZERO };
            let is_new = at != memory.newest;
            if let Some((sum, over)) = memory.slots.get_mut(place(at)) {
                if is_new {
                    (*sum, *over) = (MicroJoules::ZERO, Micros::ZERO);
                }
                *sum = MicroJoules::new(sum.get().saturating_add(energy(power, lasted).get()));
                *over = *over + above;
            }
            memory.newest = at;
            from = end;
        }
        passed
    }

    /// The mean of the last window.
    fn mean(&self, memory: &SustainedMemory, now: Stamp) -> Option<Watts> {
        let oldest = memory.newest.saturating_sub(SLOTS.saturating_sub(1)).saturating_mul(self.slot());
        let lasts = now.since_start().get().checked_sub(oldest)?;
        Some(self.energy(memory, SLOTS).over(Micros::new(lasts).non_zero()?))
    }

    /// The energy of this time up to now. Of the slot in which it begins, its part counts.
    fn last(&self, memory: &SustainedMemory, now: Stamp, lasting: Micros) -> MicroJoules {
        let (slot, now) = (self.slot(), now.since_start().get());
        let from = now.saturating_sub(lasting.get());
        let whole = memory.newest.saturating_sub(from.checked_div(slot).unwrap_or(0));
        let (all, later) =
            (self.energy(memory, whole.saturating_add(1)).get(), self.energy(memory, whole).get());
        let inside = slot.saturating_sub(from.checked_rem(slot).unwrap_or(0));
        let first = all.saturating_sub(later).part(inside, slot, Role::Demand).unwrap_or(0);
        MicroJoules::new(later.saturating_add(first))
    }

    /// The energy of so many slots up to now.
    fn energy(&self, memory: &SustainedMemory, slots: u64) -> MicroJoules {
        let sum = self.newest(memory, slots).fold(0_u64, |sum, (energy, _)| sum.saturating_add(energy.get()));
        MicroJoules::new(sum)
    }

    /// So many slots up to now, as far as they are known.
    fn newest<'a>(
        &self,
        memory: &'a SustainedMemory,
        slots: u64,
    ) -> impl Iterator<Item = (MicroJoules, Micros)> + 'a {
        let begun = memory.begun.map_or(0, |begun| begun.since_start().get());
        let (newest, begun) = (memory.newest, begun.checked_div(self.slot()).unwrap_or(0));
        let known = (0..slots.min(KEPT_U64)).filter_map(move |back| newest.checked_sub(back));
        let known = known.filter(move |at| *at >= begun);
        known.filter_map(|at| memory.slots.get(place(at)).copied())
    }
}

/// Where a slot is kept.
fn place(number: u64) -> usize {
    usize::try_from(number.checked_rem(KEPT_U64).unwrap_or(0)).unwrap_or(0)
}

/// The energy of this power, rounded up.
fn energy(power: Watts, lasting: Micros) -> MicroJoules {
    MicroJoules::new(power.during(lasting).get().saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn w(watts: i32) -> Watts {
        Watts::from_int(watts)
    }

    fn s(seconds: u64) -> Micros {
        Micros::new(seconds * 1_000_000)
    }

    fn facts(second: u64, drawn: Option<i32>, counted: i32) -> SustainedFacts {
        SustainedFacts {
            now: Stamp::new(s(second)),
            drawn: drawn.map(w),
            counted: Some(w(counted)),
            lag: Micros::ZERO,
            lowered_within: s(6),
        }
    }

    /// 1200 W at an instant, 1000 W in the mean of a minute.
    fn two() -> SustainedLimit {
        SustainedLimit::new(w(1200), w(1000), Micros::MINUTE).unwrap()
    }

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        let new = |instant, sustained, window| SustainedLimit::new(w(instant), w(sustained), s(window)).err();
        assert_eq!(new(1000, 1001, 60), Some(SustainedError::AboveInstant));
        assert_eq!(new(1000, -1, 60), Some(SustainedError::AboveInstant));
        assert_eq!([59, 3601].map(|window| new(1000, 1000, window)), [Some(SustainedError::Window); 2]);
        assert_eq!((new(1000, 1000, 60), new(0, 0, 3600)), (None, None));
        assert_eq!((two().late(), SustainedLimit::new(w(2), w(1), s(900)).unwrap().late()), (s(3), s(45)));
    }

    #[test]
    fn the_sustained_limit_holds_until_a_whole_window_is_known_and_then_what_was_saved_may_be_drawn() {
        let (law, mut memory) = (two(), SustainedMemory::EMPTY);
        let mut at = |second| law.step(&mut memory, &facts(second, Some(600), 1000));
        for second in 0..60 {
            let state = at(second);
            assert_eq!((state.effective, state.mean, state.metered), (w(1000), None, true), "{second}");
        }
        assert_eq!(at(60).mean.map(|mean| (mean - w(600)).abs() < w(1)), Some(true));
        // The error is 985 - 600 = 385 W: 2 · 385 / 60 = 12.8 W a second, 200 W in 16 s.
        let risen: Vec<Watts> = (61..80).map(|second| at(second).effective).collect();
        assert!(risen[0] > w(1010) && risen[0] < w(1030), "{risen:?}");
        assert_eq!(risen[18], w(1200));
    }

    #[test]
    fn what_is_left_of_the_window_bounds_what_may_be_drawn_while_grants_come_down() {
        let (law, mut memory) = (two(), SustainedMemory::EMPTY);
        for second in 0..=100 {
            law.step(&mut memory, &facts(second, Some(800), 1000));
        }
        let mut worst = Watts::ZERO;
        // Everybody draws all that he may, at once. Only the window that ends after 6 s is bounded, so that one which ends
        // before may have a little more than 60 kJ: 6 W were measured.
        let mut drawn: Vec<i64> = vec![800; 60];
        let mut may = w(1200);
        for second in 101..400 {
            let power = i32::try_from(may.to_bits() >> 32).unwrap();
            drawn.push(power.into());
            may = law.step(&mut memory, &facts(second, Some(power), power)).effective;
            let mean = drawn[drawn.len() - 60..].iter().sum::<i64>() / 60;
            worst = worst.max(w(i32::try_from(mean).unwrap()));
        }
        assert!(worst <= w(1010) && worst > w(950), "{worst}");
    }

    #[test]
    fn at_a_steady_draw_of_the_sustained_limit_nothing_moves() {
        let (law, mut memory) = (two(), SustainedMemory::EMPTY);
        for millis in (0..300_000).step_by(700) {
            let at = Stamp::new(Micros::new(millis * 1_000 + 123_456));
            // Nothing is measured, and everybody counts with his cap.
            let state = law.step(&mut memory, &SustainedFacts { now: at, ..facts(0, None, 1000) });
            assert!(w(1000) - state.effective < w(1), "{state:?} at {millis} ms");
        }
    }

    #[test]
    fn a_meter_that_is_blind_or_late_makes_the_sustained_limit_the_limit_at_once() {
        let (law, mut memory) = (two(), SustainedMemory::EMPTY);
        for second in 0..=200 {
            law.step(&mut memory, &facts(second, Some(600), 1100));
        }
        let blind = law.step(&mut memory, &facts(201, None, 1100));
        assert_eq!((blind.effective, blind.metered), (w(1000), false));
        let late = SustainedFacts { lag: Micros::new(3_000_001), ..facts(202, Some(600), 1100) };
        assert!(!law.step(&mut memory, &late).metered);
        let again = law.step(&mut memory, &facts(203, Some(600), 1100));
        assert!(again.metered && again.effective < w(1050), "the integral begins anew: {again:?}");
        let nobody = SustainedFacts { drawn: None, counted: None, ..facts(204, None, 0) };
        assert_eq!(law.step(&mut memory, &nobody).effective, w(1000));
        assert_eq!(memory, SustainedMemory::EMPTY, "what was drawn is not known any more");
    }

    #[test]
    fn the_time_above_the_sustained_limit_is_that_of_the_last_window() {
        let (law, mut memory) = (two(), SustainedMemory::EMPTY);
        let mut at = |second, power| law.step(&mut memory, &facts(second, Some(power), 1200)).between;
        for second in 0..=100 {
            at(second, 900);
        }
        for second in 101..=110 {
            at(second, 1100);
        }
        let between = at(111, 900);
        assert_eq!(between, s(11), "between two steps the higher counts");
        assert_eq!(at(180, 900), Micros::ZERO);
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_and_a_long_silence_are_no_surprise() {
        let (law, mut memory) = (two(), SustainedMemory::EMPTY);
        law.step(&mut memory, &facts(500, Some(900), 1000));
        law.step(&mut memory, &facts(500, Some(900), 1000));
        law.step(&mut memory, &facts(400, Some(900), 1000));
        let state = law.step(&mut memory, &facts(90_000, Some(700), 1000));
        assert_eq!(state.mean.map(|mean| (mean - w(900)).abs() < w(1)), Some(true), "{state:?}");
    }
}
