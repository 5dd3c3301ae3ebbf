//! The integers that devices use, each named after its unit, and the clock.

use crate::{Role, Watts};
use core::fmt;
use core::num::NonZeroU64;
use core::ops::{Add, Sub};

macro_rules! edge_unit {
    ($(#[$doc:meta])* $name:ident, $raw:ty, $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($raw);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);
            /// The largest value; sums that would be larger become this one.
            pub const MAX: Self = Self(<$raw>::MAX);

            /// This number of units.
            #[must_use]
            pub const fn new(raw: $raw) -> Self {
                Self(raw)
            }

            /// The number of units.
            #[must_use]
            pub const fn get(self) -> $raw {
                self.0
            }

            /// The difference; `None` when `other` is larger.
            #[must_use]
            pub const fn checked_sub(self, other: Self) -> Option<Self> {
                match self.0.checked_sub(other.0) {
                    Some(difference) => Some(Self(difference)),
                    None => None,
                }
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        /// A negative difference becomes zero.
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{} ", $unit), self.0)
            }
        }
    };
}

edge_unit! {
    /// Power as powercap and hwmon write it.
    MicroWatts, u64, "µW"
}
edge_unit! {
    /// Power as NVML and HSMP write it.
    MilliWatts, u32, "mW"
}
edge_unit! {
    /// Energy as powercap counts it.
    MicroJoules, u64, "µJ"
}
edge_unit! {
    /// A span of time.
    Micros, u64, "µs"
}
edge_unit! {
    /// A span of time, as people configure it.
    Millis, u64, "ms"
}

impl MicroWatts {
    /// As a quantity to calculate with, rounded as `role` says; saturates at the range of [`Watts`].
    #[must_use]
    pub fn to_watts(self, role: Role) -> Watts {
        watts_of(self.0, 1_000_000, role)
    }
}

impl MilliWatts {
    /// As a quantity to calculate with, rounded as `role` says.
    #[must_use]
    pub fn to_watts(self, role: Role) -> Watts {
        watts_of(u64::from(self.0), 1_000, role)
    }
}

impl MicroJoules {
    /// The mean power for this energy in `elapsed`: J/s = W. A measurement, so it rounds up.
    #[must_use]
    pub fn over(self, elapsed: NonZeroMicros) -> Watts {
        watts_of(self.0, elapsed.get(), Role::Demand)
    }
}

impl Watts {
    /// The energy of this power in `elapsed`, rounded down; a negative power gives zero.
    #[must_use]
    pub fn during(self, elapsed: Micros) -> MicroJoules {
        let bits = u128::from(u64::try_from(self.to_bits()).unwrap_or(0));
        let energy = bits.wrapping_mul(u128::from(elapsed.0)) >> 32;
        MicroJoules(u64::try_from(energy).unwrap_or(u64::MAX))
    }
}

/// `dividend / divisor` watts, without a 128-bit division: first the whole part, then 32 bits of the remainder.
fn watts_of(dividend: u64, divisor: u64, role: Role) -> Watts {
    // A remainder below 2³² can be shifted up by 32 bits. A larger divisor, a span of more than 71 minutes, is
    // halved together with its dividend until it is small enough, each rounded as the role asks; this costs less
    // than one part in 2³¹.
    let excess = 32_u32.saturating_sub(divisor.leading_zeros());
    let (dividend, divisor) = match role {
        Role::Limit => (dividend.wrapping_shr(excess), halved_up(divisor, excess)),
        Role::Demand => (halved_up(dividend, excess), divisor.wrapping_shr(excess)),
        Role::Nearest => (dividend.wrapping_shr(excess), divisor.wrapping_shr(excess)),
    };
    let Some(whole) = dividend.checked_div(divisor) else { return Watts::MAX };
    let rest = dividend.wrapping_sub(whole.wrapping_mul(divisor)).wrapping_shl(32);
    let fraction = rest.checked_div(divisor).unwrap_or(0);
    let left = rest.wrapping_sub(fraction.wrapping_mul(divisor));
    let up = match role {
        Role::Limit => false,
        Role::Demand => left != 0,
        Role::Nearest => left >= divisor.wrapping_sub(left),
    };
    if whole >= 1 << 31 {
        return Watts::MAX;
    }
    let bits = whole.wrapping_shl(32).wrapping_add(fraction).wrapping_add(u64::from(up));
    Watts::from_bits(i64::try_from(bits).unwrap_or(i64::MAX))
}

/// `value / 2^times`, rounded up.
fn halved_up(value: u64, times: u32) -> u64 {
    let low = u64::MAX.checked_shl(times).map_or(0, |high| !high);
    value.wrapping_shr(times).wrapping_add(u64::from(value & low != 0))
}

impl Micros {
    /// One minute.
    pub const MINUTE: Self = Self(60_000_000);

    /// This span; `None` if it is zero.
    #[must_use]
    pub const fn non_zero(self) -> Option<NonZeroMicros> {
        NonZeroU64::new(self.0)
    }
}

/// A span of time that is not zero, for divisions.
pub type NonZeroMicros = NonZeroU64;

impl Millis {
    /// The same span in microseconds.
    #[must_use]
    pub const fn to_micros(self) -> Micros {
        Micros(self.0.saturating_mul(1_000))
    }
}

/// A time on a monotonic clock, counted from a start that only its owner knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stamp(Micros);

impl Stamp {
    /// The time `since_start` after the clock's start.
    #[must_use]
    pub const fn new(since_start: Micros) -> Self {
        Self(since_start)
    }

    /// How long after the clock's start this is.
    #[must_use]
    pub const fn since_start(self) -> Micros {
        self.0
    }

    /// The time from `earlier` until this; `None` when the clock went backwards.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Option<Micros> {
        self.0.checked_sub(earlier.0)
    }
}

impl Add<Micros> for Stamp {
    type Output = Self;
    fn add(self, later: Micros) -> Self {
        Self(Micros(self.0.0.saturating_add(later.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn joules_over_seconds_are_watts() {
        let second = Micros::new(1_000_000).non_zero().unwrap();
        assert_eq!(MicroJoules::new(100_000_000).over(second), Watts::from_int(100));
        assert_eq!(MicroJoules::MAX.over(NonZeroU64::MIN), Watts::MAX);
        // An hour and a half is more than 2³² µs.
        let long = Micros::new(5_400_000_000).non_zero().unwrap();
        assert_eq!(MicroJoules::new(5_400_000_000 * 250).over(long), Watts::from_int(250));
    }

    #[test]
    fn a_clock_that_goes_backwards_gives_no_span() {
        let (early, late) = (Stamp::new(Micros::new(5)), Stamp::new(Micros::new(9)));
        assert_eq!(late.since(early), Some(Micros::new(4)));
        assert_eq!(early.since(late), None);
        assert_eq!(early + Micros::new(4), late);
    }

    #[test]
    fn edge_sums_saturate() {
        assert_eq!(MicroJoules::MAX + MicroJoules::new(1), MicroJoules::MAX);
        assert_eq!(MicroJoules::ZERO - MicroJoules::new(1), MicroJoules::ZERO);
        assert_eq!(Millis::MAX.to_micros(), Micros::MAX);
        assert_eq!(MicroWatts::MAX.to_watts(Role::Limit), Watts::MAX);
    }

    #[test]
    fn a_measurement_over_hours_still_rounds_up() {
        let hours = Micros::new(1 << 33).non_zero().unwrap();
        assert!(MicroJoules::new(1).over(hours) > Watts::ZERO);
        assert_eq!(watts_of(u64::MAX, (1 << 33) + 1, Role::Limit).to_bits() >> 32, (1 << 31) - 1);
    }

    proptest! {
        #[test]
        fn the_roles_enclose_the_exact_quotient(dividend in any::<u64>(), divisor in 1_u64..) {
            let exact = (u128::from(dividend) << 32) / u128::from(divisor);
            prop_assume!(exact < 1 << 62);
            let bits = |role| u128::try_from(watts_of(dividend, divisor, role).to_bits()).unwrap();
            prop_assert!(bits(Role::Limit) <= exact);
            prop_assert!(bits(Role::Demand) >= exact);
        }

        #[test]
        fn power_over_time_is_the_energy_again(watts in 0_i64..(100_000 << 32), micros in 1_u64..(1 << 32)) {
            let watts = Watts::from_bits(watts);
            let energy = watts.during(Micros::new(micros));
            let back = energy.over(NonZeroU64::new(micros).unwrap());
            // The energy lost less than 1 µJ; over the span that is less than one part in `micros`.
            let slack = i64::try_from((1_u64 << 32) / micros).unwrap() + 2;
            prop_assert!((back.to_bits() - watts.to_bits()).abs() <= slack);
        }

        #[test]
        fn a_quotient_is_exact_below_an_hour(dividend in 0_u64..(1 << 50), divisor in 1_u64..(1 << 32)) {
            prop_assume!(dividend / divisor < 1 << 31);
            let exact = (u128::from(dividend) << 32) / u128::from(divisor);
            let rest = (u128::from(dividend) << 32) % u128::from(divisor);
            let low = watts_of(dividend, divisor, Role::Limit).to_bits();
            prop_assert_eq!(i128::from(low), i128::try_from(exact).unwrap());
            let high = watts_of(dividend, divisor, Role::Demand).to_bits();
            prop_assert_eq!(high - low, i64::from(rest != 0));
        }

        #[test]
        fn any_quotient_is_answered(dividend in any::<u64>(), divisor in any::<u64>()) {
            let low = watts_of(dividend, divisor, Role::Limit);
            prop_assert!(low >= Watts::ZERO && low <= watts_of(dividend, divisor, Role::Demand));
        }
    }
}
