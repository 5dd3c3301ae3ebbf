//! Events that are armed beforehand: how much of one is on at a moment, and what it leaves a node.
//!
//! ```text
//!  what a node may have
//!   its grant  ───╮                  ╭───
//!                  ╲                ╱
//!   the share       ╰──────────────╯
//!               start            end
//!                 ◀ramp▶           ◀ramp▶
//! ```
//!
//! The share of an event is the part of the way from the floors of all devices of a node to the most that they can draw.
//! It only lowers: what counts of a node stays its grant, so that nothing has to be written when an event begins or ends.
//!
//! A node has two clocks, the time of day and one that never jumps. An event is on as far as **either** of them says, and
//! over only when **both** say so: a clock that jumps begins an event too early or ends it too late, and never the reverse.

use crate::placement::freshness::UnixTime;
use power_units::{Amount, Micros, Ratio, Role, Watts};

/// When an event is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmedTimes {
    /// When it begins; without one it is on already, in full.
    pub start: Option<UnixTime>,
    /// When it ends; without one it lasts until somebody says otherwise.
    pub end: Option<UnixTime>,
    /// In how much time it comes in full after its start, and goes after its end.
    pub ramp: Micros,
}

/// A ramp has so many steps, so that a limit is not written at every look.
const STEPS: u32 = 32;

impl ArmedTimes {
    /// How much of the event is on: 0 outside of it, 1 between its ramps.
    #[must_use]
    pub fn depth(&self, now: UnixTime) -> Ratio {
        let rise = match self.start {
            None => STEPS,
            Some(start) => match now.since(start) {
                None => return Ratio::ZERO,
                // The first step is made at the start.
                Some(since) => self.steps(since).saturating_add(1).min(STEPS),
            },
        };
        let fall = match self.end.and_then(|end| now.since(end)) {
            None => STEPS,
            Some(over) => STEPS.saturating_sub(self.steps(over)),
        };
        Ratio::ONE.part(u64::from(rise.min(fall)), u64::from(STEPS), Role::Demand).unwrap_or(Ratio::ONE)
    }

    /// How much of it is on as either of these clocks says.
    #[must_use]
    pub fn depth_of(&self, clocks: [UnixTime; 2]) -> Ratio {
        clocks.map(|now| self.depth(now)).into_iter().fold(Ratio::ZERO, Ratio::max)
    }

    /// How long the depth stays as it is by this clock; `None` if for good.
    #[must_use]
    pub fn stands_for(&self, now: UnixTime) -> Option<Micros> {
        let step = Micros::new(self.ramp.get().div_ceil(u64::from(STEPS)));
        let is_within =
            |at: Option<UnixTime>| at.and_then(|at| now.since(at)).is_some_and(|since| since < self.ramp);
        if is_within(self.start) || is_within(self.end) {
            return Some(step);
        }
        let until = |at: Option<UnixTime>| at?.since(now).filter(|until| *until > Micros::ZERO);
        until(self.start).or_else(|| until(self.end))
    }

    /// So many steps of a ramp are made after this time.
    fn steps(&self, since: Micros) -> u32 {
        let made = u64::from(STEPS).part(since.get(), self.ramp.get(), Role::Limit);
        u32::try_from(made.unwrap_or(u64::MAX)).unwrap_or(u32::MAX).min(STEPS)
    }
}

/// What an event of this depth leaves, where all of it leaves `share`.
#[must_use]
pub fn share_at(depth: Ratio, share: Ratio) -> Ratio {
    let share = share.within(Ratio::ZERO, Ratio::ONE);
    (Ratio::ONE - (Ratio::ONE - share).scale(depth, Role::Demand)).within(share, Ratio::ONE)
}

/// What a share leaves of devices that can be held to `floor` and draw `most` together.
#[must_use]
pub fn armed_watts(floor: Watts, most: Watts, share: Ratio) -> Watts {
    floor + (most - floor).or_zero().scale(share.within(Ratio::ZERO, Ratio::ONE), Role::Limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(second: i64) -> UnixTime {
        UnixTime::from_micros(second * 1_000_000)
    }

    fn times(start: Option<i64>, end: Option<i64>, ramp_s: u64) -> ArmedTimes {
        ArmedTimes { start: start.map(at), end: end.map(at), ramp: Micros::new(ramp_s * 1_000_000) }
    }

    fn thirty_seconds(n: i32) -> Ratio {
        Ratio::from_bits(i64::from(n) << 27)
    }

    #[test]
    fn an_event_is_on_between_its_ramps() {
        let event = times(Some(100), Some(200), 32);
        let depths = [99, 100, 101, 115, 131, 132, 199, 200, 201, 216, 231, 232].map(|s| event.depth(at(s)));
        let steps = [0, 1, 2, 16, 32, 32, 32, 32, 31, 16, 1, 0].map(thirty_seconds);
        assert_eq!(depths, steps);
        let sudden = times(Some(100), Some(200), 0);
        assert_eq!([99, 100, 199, 200].map(|s| sudden.depth(at(s))), [0, 32, 32, 0].map(thirty_seconds));
        assert_eq!(times(None, None, 60).depth(at(-5)), Ratio::ONE, "on until somebody says otherwise");
        assert_eq!(times(Some(200), Some(100), 0).depth(at(150)), Ratio::ZERO, "it ends before it begins");
    }

    #[test]
    fn a_clock_that_jumps_ends_no_event_and_begins_one_at_most_too_early() {
        let event = times(Some(100), Some(200), 0);
        let depth = |wall, steady| event.depth_of([at(wall), at(steady)]);
        assert_eq!(depth(150, 150), Ratio::ONE);
        assert_eq!((depth(300, 150), depth(50, 150)), (Ratio::ONE, Ratio::ONE), "the time of day jumped");
        assert_eq!((depth(150, 50), depth(150, 300)), (Ratio::ONE, Ratio::ONE));
        assert_eq!((depth(300, 200), depth(99, 99)), (Ratio::ZERO, Ratio::ZERO));
    }

    #[test]
    fn the_next_change_is_known_beforehand() {
        let event = times(Some(100), Some(200), 32);
        let stands = |second| event.stands_for(at(second)).map(|micros| micros.get() / 1_000_000);
        assert_eq!(
            [40, 100, 131, 132, 200, 232].map(stands),
            [Some(60), Some(1), Some(1), Some(68), Some(1), None]
        );
        assert_eq!(times(None, None, 9).stands_for(at(0)), None);
    }

    #[test]
    fn what_is_left_lies_on_the_way_from_the_floors_to_the_most() {
        let w = Watts::from_int;
        // 400 + 0.7 · (1400 − 400) = 1100, rounded down.
        let share = Ratio::parse("0.7", Role::Limit).unwrap();
        assert!(w(1100) - armed_watts(w(400), w(1400), share) < Watts::from_int(1));
        assert_eq!(armed_watts(w(400), w(1400), Ratio::ZERO), w(400));
        assert_eq!(armed_watts(w(400), w(1400), Ratio::from_int(9)), w(1400));
        assert_eq!(armed_watts(w(400), w(300), Ratio::ONE), w(400), "a range that makes no sense");
        let half = Ratio::from_bits(1 << 31);
        // Half of the way to 0.5.
        assert_eq!(share_at(half, half), Ratio::from_bits(3 << 30));
        assert_eq!((share_at(Ratio::ZERO, half), share_at(Ratio::ONE, half)), (Ratio::ONE, half));
        assert_eq!(share_at(Ratio::ONE, Ratio::from_int(-4)), Ratio::ZERO);
    }

    proptest! {
        #[test]
        fn no_times_and_no_clock_give_more_than_all_or_less_than_the_share(
            (start, end) in any::<(Option<i64>, Option<i64>)>(),
            ramp in any::<u64>(),
            now in any::<i64>(),
            share in any::<i64>(),
        ) {
            let event = ArmedTimes {
                start: start.map(UnixTime::from_micros),
                end: end.map(UnixTime::from_micros),
                ramp: Micros::new(ramp),
            };
            let depth = event.depth(UnixTime::from_micros(now));
            prop_assert!(depth >= Ratio::ZERO && depth <= Ratio::ONE);
            let _ = event.stands_for(UnixTime::from_micros(now));
            let share = Ratio::from_bits(share);
            let left = share_at(depth, share);
            prop_assert!(left >= Ratio::ZERO && left <= Ratio::ONE);
            prop_assert!(left >= share.within(Ratio::ZERO, Ratio::ONE));
        }
    }
}
