//! What a domain can measure, and the energy between two readings of a counter that wraps.
//!
//! A counter's difference is a fact only if the number of wraps between its two readings is known, which needs the
//! time between them and a bound on the power. Where it is not known there is no number: the sample is dropped.

use core::num::NonZeroU64;
use power_units::{MicroJoules, MicroWatts, Micros, Stamp};

/// What a domain measures itself with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// It counts energy.
    Energy(Counter),
    /// It says its power.
    Power,
}

/// A value of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// The state of an energy counter; only a difference of two means anything.
    Energy(MicroJoules),
    /// Power, over a span that the device chooses.
    Power(MicroWatts),
}

/// An energy counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    modulus: Option<NonZeroU64>,
}

impl Counter {
    /// A counter that starts again at zero after `modulus` microjoules: its largest value and one unit more. A modulus
    /// of zero, as some firmware says, is unknown: then a value below the one before is no difference at all.
    #[must_use]
    pub const fn new(modulus: MicroJoules) -> Self {
        Self { modulus: NonZeroU64::new(modulus.get()) }
    }

    /// A counter that never wraps in a machine's life; a lower value means that it was reset.
    #[must_use]
    pub const fn endless() -> Self {
        Self { modulus: None }
    }

    /// After how much energy it starts again, if that is known.
    #[must_use]
    pub const fn modulus(&self) -> Option<MicroJoules> {
        match self.modulus {
            Some(modulus) => Some(MicroJoules::new(modulus.get())),
            None => None,
        }
    }

    /// The energy between two readings of a domain that draws at most `draw_max`, or nothing when it cannot be told:
    ///
    /// - no time passed, or the clock went backwards;
    /// - so much time passed that more than half of the counter may have gone by, and a wrap may hide in it;
    /// - the difference is more than the domain can have drawn, so the counter was reset or a value is wrong.
    ///
    /// ```
    /// use power_hal::Counter;
    /// use power_units::{MicroJoules, MicroWatts, Micros, Stamp};
    /// let counter = Counter::new(MicroJoules::new(65_532_626_245));
    /// let at = |ms: u64, uj: u64| (Stamp::new(Micros::new(ms * 1_000)), MicroJoules::new(uj));
    /// let draw_max = MicroWatts::new(400_000_000);
    /// let wrapped = counter.between(at(0, 65_532_600_000), at(1_000, 299_973_755), draw_max);
    /// assert_eq!(wrapped, Some(MicroJoules::new(300_000_000)));
    /// // 65.5 kJ are gone within 164 s at 400 W; after 82 s the number of wraps is not certain any more.
    /// assert_eq!(counter.between(at(0, 0), at(82_000, 5_000_000), draw_max), None);
    /// ```
    #[must_use]
    pub fn between(
        &self,
        earlier: (Stamp, MicroJoules),
        later: (Stamp, MicroJoules),
        draw_max: MicroWatts,
    ) -> Option<MicroJoules> {
        let elapsed = later.0.since(earlier.0)?.non_zero()?;
        let difference = match self.modulus {
            None => later.1.checked_sub(earlier.1)?,
            Some(modulus) => {
                let whole = MicroJoules::new(modulus.get());
                // µs · µW = 10⁻⁶ µJ, doubled against half the counter.
                let doubled = most(Micros::new(elapsed.get()), draw_max).saturating_mul(2);
                if doubled > picojoules(whole) || earlier.1 >= whole || later.1 >= whole {
                    return None;
                }
                // Both values are below the modulus, so neither branch can leave the range.
                later.1.checked_sub(earlier.1).unwrap_or((whole - earlier.1) + later.1)
            }
        };
        let credible = most(Micros::new(elapsed.get()) + UPDATE, draw_max).saturating_mul(2);
        (picojoules(difference) <= credible).then_some(difference)
    }
}

/// Counters move in jumps about once per millisecond, so over a short span they show up to one jump more than was
/// drawn in it.
const UPDATE: Micros = Micros::new(1_000);

fn most(elapsed: Micros, draw_max: MicroWatts) -> u128 {
    u128::from(elapsed.get()).saturating_mul(u128::from(draw_max.get()))
}

fn picojoules(energy: MicroJoules) -> u128 {
    u128::from(energy.get()).saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Energy status unit 16 and 14, as the kernel's arithmetic gives them, plus the one unit that the range leaves out.
    const ESU16: u64 = 65_532_610_987 + 15;
    const ESU14: u64 = 262_143_328_850 + 61;

    fn at(us: u64, uj: u64) -> (Stamp, MicroJoules) {
        (Stamp::new(Micros::new(us)), MicroJoules::new(uj))
    }

    const KILOWATT: MicroWatts = MicroWatts::new(1_000_000_000);

    fn between(modulus: u64, earlier: (Stamp, MicroJoules), later: (Stamp, MicroJoules)) -> Option<u64> {
        Counter::new(MicroJoules::new(modulus)).between(earlier, later, KILOWATT).map(MicroJoules::get)
    }

    #[test]
    fn one_wrap_is_counted_through() {
        assert_eq!(between(ESU14, at(0, ESU14 - 1), at(1_000_000, 0)), Some(1));
        assert_eq!(between(ESU14, at(0, ESU14 - 250_000_000), at(1_000_000, 50_000_000)), Some(300_000_000));
    }

    #[test]
    fn a_stalled_reader_drops_the_sample() {
        // 65.5 kJ at 1 kW are gone in 65.5 s; half of it is the last span in which a wrap cannot hide.
        assert_eq!(between(ESU16, at(0, 0), at(32_766_000, 9)), Some(9));
        assert_eq!(between(ESU16, at(0, 0), at(32_767_000, 9)), None);
        assert_eq!(between(ESU16, at(0, 0), at(u64::MAX, 9)), None);
    }

    #[test]
    fn a_counter_that_was_reset_gives_no_energy() {
        // Falling by 1 J in a second reads as 65.5 kJ through a wrap, which nothing draws.
        assert_eq!(between(ESU16, at(0, 10_000_000), at(1_000_000, 9_000_000)), None);
        assert_eq!(between(0, at(0, 10_000_000), at(1_000_000, 9_000_000)), None);
        assert_eq!(between(0, at(0, 10_000_000), at(1_000_000, 11_000_000)), Some(1_000_000));
        assert_eq!(Counter::new(MicroJoules::ZERO), Counter::endless());
    }

    #[test]
    fn no_time_and_time_backwards_give_no_energy() {
        assert_eq!(between(ESU16, at(5, 0), at(5, 0)), None);
        assert_eq!(between(ESU16, at(5, 0), at(4, 9)), None);
    }

    #[test]
    fn a_value_beyond_the_modulus_is_no_value() {
        assert_eq!(between(ESU16, at(0, ESU16), at(1_000_000, 1)), None);
        assert_eq!(between(ESU16, at(0, 1), at(1_000_000, u64::MAX)), None);
    }

    #[test]
    fn a_jump_of_the_counter_in_a_short_span_is_not_impossible() {
        assert_eq!(between(ESU16, at(0, 0), at(10, 1_000_000)), Some(1_000_000));
    }

    proptest! {
        #[test]
        fn what_was_drawn_is_what_is_told(
            start in 0..ESU16, drawn in 0_u64..400_000_000, elapsed in 1_000_000_u64..30_000_000,
        ) {
            let end = (start + drawn) % ESU16;
            prop_assert_eq!(between(ESU16, at(7, start), at(7 + elapsed, end)), Some(drawn));
        }

        #[test]
        fn any_reading_is_answered_and_never_with_more_than_can_be(
            modulus in any::<u64>(), a in any::<(u64, u64)>(), b in any::<(u64, u64)>(), draw_max in any::<u64>(),
        ) {
            let counter = Counter::new(MicroJoules::new(modulus));
            if let Some(energy) = counter.between(at(a.0, a.1), at(b.0, b.1), MicroWatts::new(draw_max)) {
                let span = u128::from(b.0 - a.0) + 1_000;
                prop_assert!(u128::from(energy.get()) * 1_000_000 <= (2 * span).saturating_mul(u128::from(draw_max)));
                prop_assert!(modulus == 0 || energy.get() < modulus);
            }
        }
    }
}
