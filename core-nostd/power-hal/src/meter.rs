//! The meters of domains, and the energy between two values of a counter that wraps.
//!
//! The difference of a counter is meaningful only if the number of wraps between its two values is known, which needs a
//! bound on the energy drawn between them. If it is not known there is no number: the sample is dropped.

use power_units::{MicroJoules, MicroWatts};

/// The meter of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// It counts energy.
    Energy(Counter),
    /// It reports its power.
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

/// An energy counter, by its wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// It starts again at zero after this much energy, which is its largest value plus one step.
    Wraps {
        /// How much; above zero.
        modulus: MicroJoules,
    },
    /// It is wide enough never to wrap while the machine runs (GPUs, perf events).
    Endless,
    /// The driver does not report it: its range is absent, or zero.
    Unknown,
}

/// Why the energy between two values of a counter is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untold {
    /// A value that the counter cannot show.
    AboveRange,
    /// A counter that does not wrap went backwards: it was reset.
    RanBackwards,
    /// A counter of unknown range went backwards: the number of wraps is unknown.
    WrapsUnknowable,
}

/// The smallest known modulus of a package counter (a quantum of 15.258 µJ). A counter of unknown range is trusted no
/// longer than this one.
const MODULUS_LEAST: MicroJoules = MicroJoules::new(65_532_611_003);

impl Counter {
    /// A counter that starts again at zero after `modulus`. A modulus of zero, as some firmware reports, is unknown.
    #[must_use]
    pub fn new(modulus: MicroJoules) -> Self {
        if modulus == MicroJoules::ZERO { Self::Unknown } else { Self::Wraps { modulus } }
    }

    /// A counter as powercap describes it, by its largest value; a missing range, or one of zero, is unknown.
    #[must_use]
    pub fn of_range(range: Option<MicroJoules>) -> Self {
        match range {
            None | Some(MicroJoules::ZERO) => Self::Unknown,
            Some(range) => Self::Wraps { modulus: range + quantum(range) },
        }
    }

    /// A counter that never wraps in a machine's life; a lower value means that it was reset.
    #[must_use]
    pub const fn endless() -> Self {
        Self::Endless
    }

    /// The energy after which it starts again, if known.
    #[must_use]
    pub const fn modulus(&self) -> Option<MicroJoules> {
        match *self {
            Self::Wraps { modulus } => Some(modulus),
            Self::Endless | Self::Unknown => None,
        }
    }

    /// Whether it can show this value.
    #[must_use]
    pub fn can_show(&self, value: MicroJoules) -> bool {
        self.modulus().is_none_or(|modulus| value < modulus)
    }

    /// Whether two values can be compared when at most `drawn` was drawn between them. If that is more than half of the
    /// modulus, a larger value may hide a wrap.
    #[must_use]
    pub fn tells(&self, drawn: MicroJoules) -> bool {
        let modulus = match *self {
            Self::Endless => return true,
            Self::Wraps { modulus } => modulus,
            Self::Unknown => MODULUS_LEAST,
        };
        drawn <= MicroJoules::new(modulus.get() >> 1)
    }

    /// The energy from `earlier` to `later`, if [`tells`](Self::tells) has confirmed that they can be compared.
    ///
    /// ```
    /// use power_hal::{Counter, Untold};
    /// use power_units::MicroJoules;
    /// let uj = MicroJoules::new;
    /// let counter = Counter::new(uj(65_532_626_245));
    /// assert_eq!(counter.between(uj(65_532_600_000), uj(299_973_755)), Ok(uj(300_000_000)));
    /// assert_eq!(Counter::endless().between(uj(5), uj(4)), Err(Untold::RanBackwards));
    /// ```
    ///
    /// # Errors
    /// When a value is out of the counter's range, or the counter went backwards and does not wrap.
    pub fn between(&self, earlier: MicroJoules, later: MicroJoules) -> Result<MicroJoules, Untold> {
        if !self.can_show(earlier) || !self.can_show(later) {
            return Err(Untold::AboveRange);
        }
        if let Some(grown) = later.checked_sub(earlier) {
            return Ok(grown);
        }
        match *self {
            // Both values are below the modulus, so the difference does not saturate.
            Self::Wraps { modulus } => Ok((modulus - earlier) + later),
            Self::Endless => Err(Untold::RanBackwards),
            Self::Unknown => Err(Untold::WrapsUnknowable),
        }
    }
}

/// One step of a 32-bit counter whose largest value is `range`. A measurement, so it rounds up.
fn quantum(range: MicroJoules) -> MicroJoules {
    MicroJoules::new((range.get() >> 32).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// (2³² − 1) steps of 61035 nJ and of 15258 nJ, as the kernel shows it.
    const RANGE: u64 = 262_143_328_850;
    const RANGE_FINE: u64 = 65_532_610_987;

    fn uj(value: u64) -> MicroJoules {
        MicroJoules::new(value)
    }

    fn of_range(range: u64) -> Counter {
        Counter::of_range(Some(uj(range)))
    }

    #[test]
    fn the_quantum_is_that_of_the_kernels_32_bit_counters() {
        // 61035 nJ and 15258 nJ, and 15300 nJ for memory; rounded up to whole microjoules.
        assert_eq!(of_range(RANGE), Counter::new(uj(RANGE + 62)));
        assert_eq!(of_range(RANGE_FINE), Counter::new(uj(RANGE_FINE + 16)));
        assert_eq!(of_range(65_712_999_613), Counter::new(uj(65_712_999_613 + 16)));
    }

    #[test]
    fn a_range_of_zero_is_unknown() {
        assert_eq!(Counter::of_range(None), Counter::Unknown);
        assert_eq!(of_range(0), Counter::Unknown);
        assert_eq!(Counter::new(MicroJoules::ZERO), Counter::Unknown);
    }

    #[test]
    fn one_wrap_is_counted_through() {
        let counter = of_range(RANGE);
        assert_eq!(counter.between(uj(RANGE), uj(0)), Ok(uj(62)));
        assert_eq!(counter.between(uj(RANGE + 62 - 250_000_000), uj(50_000_000)), Ok(uj(300_000_000)));
    }

    #[test]
    fn a_wrap_may_hide_in_more_than_half_of_a_counter() {
        let half = (RANGE_FINE + 16) / 2;
        assert!(of_range(RANGE_FINE).tells(uj(half)) && !of_range(RANGE_FINE).tells(uj(half + 1)));
        assert!(Counter::Unknown.tells(uj(half)) && !Counter::Unknown.tells(uj(half + 1)));
        assert!(Counter::Endless.tells(MicroJoules::MAX));
    }

    #[test]
    fn what_went_back_or_cannot_be_shown_is_no_energy() {
        assert_eq!(Counter::Endless.between(uj(9), uj(8)), Err(Untold::RanBackwards));
        assert_eq!(Counter::Unknown.between(uj(9), uj(8)), Err(Untold::WrapsUnknowable));
        assert_eq!(Counter::Unknown.between(uj(8), uj(9)), Ok(uj(1)));
        assert_eq!(of_range(RANGE).between(uj(RANGE + 62), uj(1)), Err(Untold::AboveRange));
        assert_eq!(of_range(RANGE).between(uj(1), MicroJoules::MAX), Err(Untold::AboveRange));
    }

    proptest! {
        #[test]
        fn what_was_drawn_is_what_is_told(modulus in 1_u64.., start in any::<u64>(), drawn in any::<u64>()) {
            let (start, drawn) = (start % modulus, drawn % modulus);
            let end = ((u128::from(start) + u128::from(drawn)) % u128::from(modulus)) as u64;
            prop_assert_eq!(Counter::new(uj(modulus)).between(uj(start), uj(end)), Ok(uj(drawn)));
        }
    }
}
