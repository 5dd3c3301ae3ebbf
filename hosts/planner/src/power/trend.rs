//! The power trend in watts per minute: "rolling derivative of power draw, positive = rising".
//!
//! The slope is the median of the slopes between every two samples (Theil and Sen): for two samples it is the plain
//! quotient, and with more samples it tolerates almost three false readings in ten. A false trend can change a
//! node's score by up to 25 points, so one spike must not cause one.

use power_units::{Stamp, Watts, WattsPerMinute};

/// One measurement on the time axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) at: Stamp,
    pub(crate) watts: Watts,
}

/// The most points that are kept; one slope costs half their square.
pub(crate) const POINTS_MAX: usize = 16;

const PAIRS_MAX: usize = POINTS_MAX * (POINTS_MAX - 1) / 2;

/// 0.1 min: points that span less have no slope.
const SPAN_MIN_MS: u64 = 6_000;

/// The slope of points sorted by time, if they span long enough.
pub(crate) fn slope(points: &[Point]) -> Option<WattsPerMinute> {
    let (first, last) = (points.first()?, points.last()?);
    if elapsed_ms(first, last)? < SPAN_MIN_MS {
        return None;
    }
    let mut slopes = [0_i64; PAIRS_MAX];
    let mut count = 0;
    for (later, end) in points.iter().enumerate() {
        for start in points.iter().take(later) {
            if let (Some(slot), Some(slope)) = (slopes.get_mut(count), between(start, end)) {
                *slot = slope;
                count += 1;
            }
        }
    }
    median(slopes.get_mut(..count)?)
        .map(|steps| WattsPerMinute::from_bits(steps.saturating_mul(1 << STEP_BITS)))
}

/// Slopes are counted in 2⁻²⁰ W/min, so that 64 bits hold the difference of any two nodes' power times a minute.
const STEP_BITS: u32 = 12;

const MINUTE_MS: i64 = 60_000;

fn between(start: &Point, end: &Point) -> Option<i64> {
    let elapsed = i64::try_from(elapsed_ms(start, end)?).ok()?;
    let rise = (end.watts - start.watts).to_bits() >> STEP_BITS;
    rise.saturating_mul(MINUTE_MS).checked_div_euclid(elapsed)
}

fn elapsed_ms(start: &Point, end: &Point) -> Option<u64> {
    end.at.since(start.at).map(|span| span.get() / 1_000)
}

/// The middle value, or the mean of the two middle ones.
fn median(values: &mut [i64]) -> Option<i64> {
    let middle = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    if values.is_empty() {
        return None;
    }
    let (below, &mut upper, _) = values.select_nth_unstable(middle);
    if !even {
        return Some(upper);
    }
    let lower = below.iter().max()?;
    // Halved separately, so that the sum of two extremes cannot overflow.
    Some((lower >> 1) + (upper >> 1) + (lower & upper & 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::{Micros, Role};
    use proptest::prelude::*;

    fn points(of: &[(u64, i32)]) -> Vec<Point> {
        let at = |seconds: u64| Stamp::new(Micros::new(seconds * 1_000_000));
        of.iter().map(|&(seconds, watts)| Point { at: at(seconds), watts: Watts::from_int(watts) }).collect()
    }

    fn slope_of(of: &[(u64, i32)]) -> Option<WattsPerMinute> {
        slope(&points(of))
    }

    #[test]
    fn two_samples_give_their_quotient_and_less_than_a_tenth_of_a_minute_gives_none() {
        assert_eq!(slope_of(&[(0, 300), (60, 180)]), Some(WattsPerMinute::from_int(-120)));
        assert_eq!(slope_of(&[(0, 300), (20, 310)]), Some(WattsPerMinute::from_int(30)));
        assert_eq!(slope_of(&[(0, 300), (6, 310)]), Some(WattsPerMinute::from_int(100)));
        assert_eq!(slope_of(&[(0, 300), (5, 900)]), None);
        assert_eq!(slope_of(&[(0, 300)]), None);
        assert_eq!(slope_of(&[]), None);
    }

    #[test]
    fn one_false_reading_makes_no_trend() {
        // Fix list operator B32. The two-point slope of the second row would be +1000 W/min.
        let flat = [(0, 300), (30, 300), (60, 5_000), (90, 300), (120, 300)];
        assert_eq!(slope_of(&flat), Some(WattsPerMinute::ZERO));
        let spike_last = [(0, 300), (30, 300), (60, 300), (90, 300), (120, 2_300)];
        assert_eq!(slope_of(&spike_last), Some(WattsPerMinute::ZERO));
    }

    #[test]
    fn a_slope_that_is_no_multiple_of_the_step_is_right_to_a_millionth() {
        // 100 W in 7 s = 857.142857… W/min.
        let slope = slope_of(&[(0, 0), (7, 100)]).unwrap();
        let exact = WattsPerMinute::parse("857.142857142", Role::Nearest).unwrap();
        assert!((slope - exact).abs() < WattsPerMinute::parse("0.000002", Role::Nearest).unwrap(), "{slope}");
    }

    #[test]
    fn extremes_saturate() {
        let ends = |low: Watts, high: Watts| {
            let mut pair = points(&[(0, 0), (60, 0)]);
            (pair[0].watts, pair[1].watts) = (low, high);
            slope(&pair).unwrap()
        };
        assert!(ends(Watts::ZERO, Watts::MAX) > WattsPerMinute::from_int(100_000_000));
        assert!(ends(Watts::MAX, Watts::ZERO) < WattsPerMinute::from_int(-100_000_000));
    }

    proptest! {
        #[test]
        fn a_straight_line_has_its_own_slope(start in 0_i32..100_000, rise in -500_i32..500, count in 2_usize..=POINTS_MAX) {
            let line: Vec<_> = (0_i32..).take(count).map(|i| (u64::from(i.unsigned_abs()) * 60, start + rise * i)).collect();
            prop_assert_eq!(slope_of(&line), Some(WattsPerMinute::from_int(rise)));
        }

        #[test]
        fn the_slope_lies_between_the_steepest_and_the_flattest_step(watts in prop::collection::vec(0_i32..10_000, 3..=POINTS_MAX)) {
            let line: Vec<_> = watts.iter().enumerate().map(|(i, &w)| (i as u64 * 60, w)).collect();
            let slope = slope_of(&line).unwrap();
            let steps: Vec<_> = watts.windows(2).map(|w| WattsPerMinute::from_int(w[1] - w[0])).collect();
            // The division may lose one step of 2⁻²⁰.
            let step = WattsPerMinute::from_bits(1 << STEP_BITS);
            prop_assert!(*steps.iter().min().unwrap() - step <= slope && slope <= *steps.iter().max().unwrap());
        }
    }
}
