//! Evaluates the readings since the last move against their noise.
//!
//! One reading suffices for a large error; a small one needs many. Beyond the deadband, an error counts when
//!
//! - the last reading exceeds 3 times the noise, or
//! - the last few (each half the weight of the next) exceed 1.5 times, or
//! - the mean of all m of them exceeds 1.75 / √m times.
//!
//! The *noise* is the mean difference between successive readings. The estimate rises fast and falls slowly, and on
//! independent readings settles at 1.64 deviations, so that the three thresholds are 4.9, 2.5 and 2.9 / √m deviations:
//! a single reading gives a false alarm in a million. So errors of a machine with quiet readings are corrected at once,
//! and noise is not followed.
//!
//! The noise is proportional to the power: an estimate from full power would hide a large error at a third of it. So
//! after a move to less than half of the power the estimate is scaled down with it, and learned again from there. After
//! a smaller move the estimate is accurate enough.

use super::model::part_of;
use power_units::{Ratio, Role, Watts};

/// How many readings a mean covers; beyond that, old ones fade: 32 s at two readings a second.
const READINGS: u8 = 64;
/// The least number of readings for the mean of the last few, and for the mean of all.
const FEW: u8 = 2;
const MANY: u8 = 4;
/// The estimate rises by 1/8 of the excess of a difference above it, and falls by 1/32 of the deficit: it is seldom too
/// low.
const NOISE_RISE_SHIFT: u32 = 3;
const NOISE_FALL_SHIFT: u32 = 5;
/// A difference counts up to three times the noise plus this: 1/512 of the power.
const NOISE_LEAST_SHIFT: u32 = 9;
/// An excess of 1/16 of the target in one reading, or of 1/32 in the last few, counts whatever the noise: the swings of a
/// load look like noise, and its excess would be ignored.
const EXCESS_SHIFT: u32 = 4;
const EXCESS_FEW_SHIFT: u32 = 5;
/// After a move by less than 1/16 of the power, the difference from the expected power is negligible for the noise.
const SMALL_MOVE_SHIFT: u32 = 4;
/// The noise of a sensor without earlier readings: 1/256 of the power.
const NOISE_UNSEEN_SHIFT: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trend {
    mean: Watts,
    /// How many readings the mean represents.
    count: u8,
    /// The last reading, corrected to the limit in effect; `None` when that is not possible.
    last: Option<Watts>,
    /// The mean of the last few readings.
    recent: Watts,
    noise: Option<Watts>,
    /// The power at which the noise was learned, each reading weighted by its effect on the estimate.
    noise_of: Watts,
    /// The move that has been decided.
    aim: Option<Aim>,
}

/// A move: the number of readings on which it was decided, and the expected change of the power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Aim {
    change: Watts,
    readings: u8,
}

/// The power to act on, and the number of readings that support it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) watts: Watts,
    readings: u8,
}

impl Trend {
    pub(super) const START: Self = Self {
        mean: Watts::ZERO,
        count: 0,
        last: None,
        recent: Watts::ZERO,
        noise: None,
        noise_of: Watts::ZERO,
        aim: None,
    };

    /// Forgets the readings, but not their noise.
    pub(super) fn restart(&mut self) {
        (self.count, self.last, self.aim) = (0, None, None);
    }

    pub(super) fn mean(&self) -> Option<Watts> {
        (self.count > 0).then_some(self.mean)
    }

    /// The mean difference between successive readings; zero before the first reading.
    pub(super) fn noise(&self) -> Watts {
        self.noise.unwrap_or(Watts::ZERO)
    }

    /// The noise at this power, after one or several moves.
    fn noise_at(&self, watts: Watts) -> Watts {
        let less = self.last.is_none() && watts > Watts::ZERO && watts < halved(self.noise_of, 1);
        if less { self.noise().scale(part_of(watts, self.noise_of), Role::Demand) } else { self.noise() }
    }

    /// Takes in a reading. (A function of its own, because the stack of a control tick is bounded.)
    #[inline(never)]
    pub(super) fn take(&mut self, watts: Watts) {
        let noise = match self.noise {
            Some(_) => self.noise_at(watts),
            None => halved(watts, NOISE_UNSEEN_SHIFT),
        };
        // A load step must not count as noise, so the estimate grows by a quarter per reading at most.
        let most = thrice(noise) + halved(watts, NOISE_LEAST_SHIFT);
        let difference = self.last.map_or(noise, |last| (watts - last).abs().min(most));
        let shift = if difference > noise { NOISE_RISE_SHIFT } else { NOISE_FALL_SHIFT };
        if self.noise.is_none() || noise < self.noise() {
            self.noise_of = watts;
        } else if self.last.is_some() {
            // The noise counts as learned at this power as far as this reading changes it. The first reading after a
            // large move has no predecessor, and changes nothing.
            self.noise_of += halved(watts - self.noise_of, shift);
        }
        self.noise = Some(noise + halved(difference - noise, shift));
        self.count = self.count.saturating_add(1).min(READINGS);
        let step = (watts - self.mean).to_bits().checked_div(i64::from(self.count));
        self.mean += Watts::from_bits(step.unwrap_or(0));
        self.recent = if self.last.is_some() { self.recent + halved(watts - self.recent, 1) } else { watts };
        self.last = Some(watts);
    }

    /// The power to act on, if the readings are clear: the last one if it suffices alone, else the last few, else all.
    /// (Inlined, because the stack of a control tick is bounded.)
    #[inline]
    pub(super) fn evidence(&self, target: Watts, deadband: Watts) -> Option<Evidence> {
        let last = self.last?;
        let beyond = |watts: Watts| (watts - target).abs() - deadband;
        let noise = self.noise();
        let three = thrice(noise);
        let counts = |watts: Watts, clear: Watts, excess: Watts| {
            beyond(watts) > if watts > target { clear.min(excess) } else { clear }
        };
        if counts(last, three, halved(target, EXCESS_SHIFT)) {
            Some(Evidence { watts: last, readings: 1 })
        } else if self.count >= FEW && counts(self.recent, halved(three, 1), halved(target, EXCESS_FEW_SHIFT))
        {
            Some(Evidence { watts: self.recent, readings: FEW })
        } else if self.count >= MANY && beyond(self.mean) > noise.scale(over_root(self.count), Role::Demand) {
            Some(Evidence { watts: self.mean, readings: self.count })
        } else {
            None
        }
    }

    /// A move was commanded that should bring the power of the evidence to `target`.
    pub(super) fn aim(&mut self, evidence: Evidence, target: Watts) {
        self.aim = Some(Aim { change: target - evidence.watts, readings: evidence.readings });
    }

    /// The move is in effect. After a small move half of the readings still count, shifted by the expected change of
    /// the power, so that a correction of noise is not repeated with the next noise.
    pub(super) fn moved(&mut self) {
        let aim = self.aim.take().filter(|aim| aim.change.abs() <= halved(self.mean, SMALL_MOVE_SHIFT));
        let Some(Aim { change, readings }) = aim else {
            self.restart();
            return;
        };
        self.last = self.last.map(|last| last + change);
        self.recent += change;
        self.mean += change;
        self.count = readings >> 1;
    }

    /// The move was refused.
    pub(super) fn stayed(&mut self) {
        self.aim = None;
    }

    /// How far a single reading must be from the target to count, while a move still shows its effect.
    pub(super) fn threshold(&self, deadband: Watts) -> Watts {
        deadband + thrice(self.noise())
    }
}

fn halved(watts: Watts, times: u32) -> Watts {
    Watts::from_bits(watts.to_bits() >> times)
}

fn thrice(watts: Watts) -> Watts {
    watts + watts + watts
}

/// `7/4 / √m`, in steps of 1/256. More readings than [`READINGS`] are never counted.
fn over_root(readings: u8) -> Ratio {
    Ratio::from_bits(i64::from(OVER_ROOT.get(usize::from(readings)).copied().unwrap_or(0)) << 24)
}

/// The numbers of 256ths, by the number of readings.
static OVER_ROOT: [u16; COUNTS] = over_roots();

#[allow(clippy::as_conversions, reason = "usize::from is not const")]
const COUNTS: usize = READINGS as usize + 1;

#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "the compiler evaluates it, and refuses what would overflow"
)]
const fn over_roots() -> [u16; COUNTS] {
    let mut table = [0; COUNTS];
    let mut at = 1;
    while at < table.len() {
        table[at] = (((7_u32 * 7) << 12) / at as u32).isqrt() as u16;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Watts = Watts::from_int(300);
    const DEADBAND: Watts = Watts::from_int(1);

    fn watts(watts: f64) -> Watts {
        Watts::from_bits((watts * 2_f64.powi(32)) as i64)
    }

    fn of(readings: impl IntoIterator<Item = f64>) -> Trend {
        let mut trend = Trend::START;
        readings.into_iter().for_each(|reading| trend.take(watts(reading)));
        trend
    }

    /// The evidence on which the law would act.
    fn evidence(trend: &Trend) -> Option<f64> {
        trend
            .evidence(TARGET, DEADBAND)
            .map(|evidence| (evidence.watts.to_bits() as f64 / 2_f64.powi(32)).round())
    }

    /// `count` readings in turn 6 W above and below `middle`.
    fn noisy(middle: f64, count: usize) -> Trend {
        of((0..count).map(|i| middle + if i % 2 == 0 { 6.0 } else { -6.0 }))
    }

    #[test]
    fn quiet_readings_are_believed_at_once_and_the_deadband_left_alone() {
        // After a hundred equal readings the noise is negligible.
        for (reading, acted_on) in [(302.0, Some(302.0)), (298.0, Some(298.0)), (300.9, None), (299.1, None)]
        {
            let mut trend = of([TARGET.to_bits() as f64 / 2_f64.powi(32); 100]);
            trend.take(watts(reading));
            assert_eq!(evidence(&trend), acted_on, "{reading}");
        }
    }

    #[test]
    fn of_a_sensor_that_was_not_watched_yet_a_large_error_is_believed_and_a_small_one_waits() {
        // 1/256 of 304 W is 1.2 W: one reading must be 4.6 W off.
        assert_eq!(evidence(&of([320.0])), Some(320.0));
        assert_eq!(evidence(&of([304.0])), None);
        assert_eq!(evidence(&of([304.0; 3])), Some(304.0));
    }

    #[test]
    fn noise_is_not_chased_and_a_jump_is_met_at_once() {
        assert_eq!(evidence(&noisy(300.0, 1_000)), None);
        // The noise is 12 W: a single reading must be 37 W off.
        let trend = noisy(302.0, 1_000);
        assert!((trend.threshold(DEADBAND) - watts(37.0)).abs() < watts(0.1));
        assert_eq!(evidence(&trend), None);
        let mut jump = trend;
        jump.take(watts(420.0));
        assert_eq!(evidence(&jump), Some(420.0));
    }

    #[test]
    fn a_small_error_in_noise_is_found_by_the_mean_of_many() {
        // 1 + 1.75 · 12 / √64 = 3.6 W.
        assert_eq!(evidence(&noisy(304.0, 1_000)), Some(304.0));
        assert_eq!(evidence(&noisy(304.0, 8)), None);
    }

    #[test]
    fn a_load_that_steps_does_not_pass_for_noise() {
        let mut trend = of([300.0; 100]);
        let before = trend.noise();
        trend.take(watts(500.0));
        // A quarter and a fourth part of 1/512 of the power at most.
        assert!(trend.noise() <= before + before + watts(0.25));
    }

    #[test]
    fn after_a_small_move_half_of_what_was_known_is_where_the_move_was_aimed() {
        let mut trend = of([302.5; 10]);
        let evidence = trend.evidence(TARGET, DEADBAND).unwrap();
        trend.aim(evidence, TARGET);
        assert_eq!(trend.mean(), Some(watts(302.5)), "a command is not a move");
        let mut refused = trend;
        refused.stayed();
        refused.moved();
        assert_eq!(refused.mean(), None, "what moved without being aimed is unknown");
        trend.moved();
        assert_eq!((trend.mean(), trend.count), (Some(TARGET), FEW / 2), "the last few said so");
        let mut many = Trend { noise: Some(watts(6.0)), ..of([303.5; 64]) };
        let evidence = many.evidence(TARGET, DEADBAND).unwrap();
        many.aim(evidence, TARGET);
        many.moved();
        assert_eq!((many.mean(), many.count), (Some(TARGET), 32));
    }

    #[test]
    fn after_a_large_move_nothing_is_known() {
        let mut trend = of([400.0; 10]);
        let evidence = trend.evidence(TARGET, DEADBAND).unwrap();
        trend.aim(evidence, TARGET);
        trend.moved();
        assert_eq!((trend.mean(), trend.last), (None, None));
        assert!(trend.noise() > Watts::ZERO);
    }

    #[test]
    fn after_a_move_to_less_than_half_the_noise_is_that_part_of_the_power_that_it_was() {
        // 1.5625 W at 400 W are 0.625 W at 160 W, and neither more at 800 W nor less at 240 W.
        for (at, noise) in [(800.0, 1.5625), (400.0, 1.5625), (240.0, 1.5625), (160.0, 0.625)] {
            let mut after = of([400.0]);
            after.restart();
            after.take(watts(at));
            assert!((after.noise() - watts(noise)).abs() < watts(1e-3), "{at}: {}", after.noise());
        }
        let mut trend = of([400.0]);
        trend.restart();
        trend.take(watts(160.0));
        // Several moves have the same effect as one.
        let mut steps = of([400.0]);
        for at in [240.0, 160.0] {
            steps.restart();
            steps.take(watts(at));
        }
        assert!((steps.noise() - watts(0.625)).abs() < watts(1e-3), "{}", steps.noise());
        // Between successive readings it follows their difference, and nothing else.
        trend.take(watts(159.375));
        assert!((trend.noise() - watts(0.625)).abs() < watts(1e-2), "{}", trend.noise());
    }

    #[test]
    fn what_a_few_readings_at_less_power_leave_of_the_noise_was_still_learned_at_more() {
        // 1.5625 W at 400 W; two readings of 240 W take 1/32 of it, and of the 160 W between: 1.5137 W at 395 W, and at
        // 150 W 0.5748 W.
        let mut trend = of([400.0]);
        trend.restart();
        [240.0, 240.0].into_iter().for_each(|reading| trend.take(watts(reading)));
        trend.restart();
        trend.take(watts(150.0));
        assert!((trend.noise() - watts(0.5748)).abs() < watts(1e-3), "{}", trend.noise());
        // After a hundred it was learned there, and above half of that it is near enough.
        let mut long = of([400.0]);
        long.restart();
        (0..100).for_each(|_| long.take(watts(240.0)));
        let before = long.noise();
        long.restart();
        long.take(watts(150.0));
        assert_eq!(long.noise(), before);
    }

    #[test]
    fn seven_quarters_over_root_is() {
        for readings in 1..=64_u8 {
            let exact = 1.75 / f64::from(readings).sqrt();
            let value = over_root(readings).to_bits() as f64 / 2_f64.powi(32);
            assert!((value - exact).abs() <= 1.0 / 256.0, "{readings}: {value}");
        }
    }
}
