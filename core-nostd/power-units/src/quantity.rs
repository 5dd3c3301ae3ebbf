//! The operations of every fixed-point quantity, whatever its dimension. The short ones are inlined into other crates: a
//! control tick has dozens of them.

/// Defines a signed 32.32 quantity: ±2³¹ units with a resolution of 2⁻³².
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(fixed::types::I32F32);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(fixed::types::I32F32::ZERO);
            /// The largest value; results that would be larger become this one.
            pub const MAX: Self = Self(fixed::types::I32F32::MAX);
            /// The smallest value; results that would be smaller become this one.
            pub const MIN: Self = Self(fixed::types::I32F32::MIN);

            /// A whole number of units.
            #[inline]
            #[must_use]
            #[cfg_attr(not(test), expect(clippy::as_conversions, reason = "i64::from is not const"))]
            pub const fn from_int(units: i32) -> Self {
                Self(fixed::types::I32F32::const_from_int(units as i64))
            }

            /// The value whose bits are `bits`, in units of 2⁻³².
            #[inline]
            #[must_use]
            pub const fn from_bits(bits: i64) -> Self {
                Self(fixed::types::I32F32::from_bits(bits))
            }

            /// The value in units of 2⁻³².
            #[inline]
            #[must_use]
            pub const fn to_bits(self) -> i64 {
                self.0.to_bits()
            }

            /// Reads decimal text (a JSON number), rounded as `role` says.
            ///
            /// # Errors
            /// When the text is not a number or its value does not fit.
            pub fn parse(text: &str, role: crate::Role) -> Result<Self, crate::DecimalError> {
                crate::decimal::parse_bits(text, role).map(Self::from_bits)
            }

            /// The larger of zero and this.
            #[inline]
            #[must_use]
            pub fn or_zero(self) -> Self {
                self.max(Self::ZERO)
            }

            /// This value, clamped between two bounds; the upper one wins where they cross.
            #[inline]
            #[must_use]
            pub fn within(self, min: Self, max: Self) -> Self {
                self.max(min).min(max)
            }

            /// The absolute value.
            #[inline]
            #[must_use]
            pub const fn abs(self) -> Self {
                Self(self.0.saturating_abs())
            }

            /// The sum; `None` when it overflows.
            #[inline]
            #[must_use]
            pub const fn checked_add(self, other: Self) -> Option<Self> {
                match self.0.checked_add(other.0) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// The sum of all of them; `None` when it overflows: an overflow is unknown, not a number.
            pub fn checked_sum(all: impl IntoIterator<Item = Self>) -> Option<Self> {
                all.into_iter().try_fold(Self::ZERO, Self::checked_add)
            }

            /// This value multiplied by a count.
            #[inline]
            #[must_use]
            pub fn times(self, count: u32) -> Self {
                let wide = i128::from(self.to_bits()).saturating_mul(i128::from(count));
                Self::from_bits(crate::quantity::saturate(wide))
            }

            /// Scaled by a ratio, rounded as `role` says.
            #[inline]
            #[must_use]
            pub fn scale(self, ratio: crate::Ratio, role: crate::Role) -> Self {
                Self::from_bits(crate::quantity::scale_bits(self.to_bits(), ratio.to_bits(), role))
            }

            /// The fraction of `base` that this is, rounded as `role` says; `None` when the base is zero.
            #[must_use]
            pub fn ratio_to(self, base: Self, role: crate::Role) -> Option<crate::Ratio> {
                crate::quantity::ratio_bits(self.to_bits(), base.to_bits(), role).map(crate::Ratio::from_bits)
            }
        }

        impl crate::Amount for $name {
            fn to_wide(self) -> i128 {
                i128::from(self.to_bits())
            }
            fn from_wide(wide: i128) -> Self {
                Self::from_bits(crate::quantity::saturate(wide))
            }
        }

        impl core::ops::Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl core::ops::Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl core::ops::Neg for $name {
            type Output = Self;
            fn neg(self) -> Self {
                Self(self.0.saturating_neg())
            }
        }

        impl core::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = Self(self.0.saturating_add(other.0));
            }
        }

        impl core::ops::SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                *self = Self(self.0.saturating_sub(other.0));
            }
        }

        /// A short decimal text that parses back to the same value; a precision is honoured. A value one bit away from
        /// a tenth is displayed as the tenth: a limit of 0.1 is stored as the next lower value, and is still displayed
        /// as 0.1.
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&self.0, f)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!("{} ", $unit), self.0)
            }
        }
    };
}
pub(crate) use quantity;

use crate::Role;

/// An amount that can be divided into shares: any quantity, or a count.
pub trait Amount: Copy {
    /// As an integer: a quantity in units of 2⁻³².
    fn to_wide(self) -> i128;

    /// The nearest amount to the value of [`Amount::to_wide`].
    fn from_wide(wide: i128) -> Self;

    /// The same fraction of this as `part` is of `whole`, in one exact step and then rounded as `role` says: 60 of 100
    /// parts of 350 W are exactly 210 W. `None` when the whole is zero, or when counts are so large that their product
    /// exceeds 128 bits.
    fn part<Q: Amount>(self, part: Q, whole: Q, role: Role) -> Option<Self> {
        let product = self.to_wide().checked_mul(part.to_wide())?;
        divide(product, whole.to_wide(), role).map(Self::from_wide)
    }
}

impl Amount for u64 {
    fn to_wide(self) -> i128 {
        i128::from(self)
    }

    fn from_wide(wide: i128) -> Self {
        Self::try_from(wide).unwrap_or(if wide < 0 { 0 } else { Self::MAX })
    }
}

/// The nearest value that fits in 64 bits.
#[inline]
pub(crate) fn saturate(wide: i128) -> i64 {
    i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
}

/// A product of two 32.32 numbers.
#[inline]
pub(crate) fn scale_bits(value: i64, ratio: i64, role: Role) -> i64 {
    let product = i128::from(value).wrapping_mul(i128::from(ratio));
    let slack: i128 = match role {
        Role::Limit => 0,
        Role::Demand => (1 << 32) - 1,
        Role::Nearest => 1 << 31,
    };
    // Both factors are below 2⁶³ in size, so the product and the slack are far inside 128 bits.
    saturate(product.wrapping_add(slack) >> 32)
}

/// A quotient of two 32.32 numbers.
pub(crate) fn ratio_bits(value: i64, base: i64, role: Role) -> Option<i64> {
    divide(i128::from(value).wrapping_shl(32), i128::from(base), role).map(saturate)
}

/// A quotient, rounded as `role` says; `None` when the divisor is zero. (One division of 128 bits, because each takes
/// longer than all else here.)
pub(crate) fn divide(dividend: i128, divisor: i128, role: Role) -> Option<i128> {
    // Toward zero, so that the rest has the sign of the dividend.
    let toward_zero = dividend.checked_div(divisor)?;
    let rest = dividend.wrapping_sub(toward_zero.wrapping_mul(divisor));
    if rest == 0 {
        return Some(toward_zero);
    }
    let negative = (dividend < 0) != (divisor < 0);
    let below = if negative { toward_zero.saturating_sub(1) } else { toward_zero };
    let up = match role {
        Role::Limit => false,
        Role::Demand => true,
        Role::Nearest => {
            let (twice, size) = (rest.unsigned_abs().saturating_mul(2), divisor.unsigned_abs());
            // Halves go up: toward zero in a negative quotient, away from it in a positive one.
            if negative { twice <= size } else { twice >= size }
        }
    };
    Some(below.saturating_add(i128::from(up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_small_quotient_is_rounded_as_its_role_says() {
        for dividend in -40_i128..=40 {
            for divisor in (-9_i128..=9).filter(|&divisor| divisor != 0) {
                let floor = (dividend * divisor.signum()).div_euclid(divisor.abs());
                let exact = floor * divisor == dividend;
                // ⌊x + 1/2⌋ of a quotient is ⌊(2 · dividend + divisor) / (2 · divisor)⌋.
                let nearest = ((2 * dividend + divisor) * divisor.signum()).div_euclid(2 * divisor.abs());
                let all =
                    [Role::Limit, Role::Nearest, Role::Demand].map(|role| divide(dividend, divisor, role));
                assert_eq!(
                    all,
                    [floor, nearest, floor + i128::from(!exact)].map(Some),
                    "{dividend} / {divisor}"
                );
            }
            assert_eq!(divide(dividend, 0, Role::Nearest), None);
        }
        assert_eq!(divide(i128::MIN, -1, Role::Limit), None);
        assert_eq!(divide(i128::MAX, 2, Role::Nearest), Some(1 << 126));
    }
}
