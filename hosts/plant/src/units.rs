//! Conversions between floating point and the integers and fixed point outside the plant, in one module.

use power_units::Watts;

/// The nearest whole number; zero for negative values.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what is wanted of it"
)]
pub(crate) fn whole(value: f64) -> u64 {
    (value + 0.5) as u64
}

/// A count as a float; exact below 2⁵³.
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

/// A power of the plant for the control core; `None` when it is not a number.
///
/// Rounded to the nearest 2⁻³² W, saturating.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, and what is not a number went before"
)]
pub fn to_watts(watts: f64) -> Option<Watts> {
    if watts.is_nan() {
        return None;
    }
    // Multiplication by a power of two is exact.
    Some(Watts::from_bits((watts * 4_294_967_296.0).round() as i64))
}

/// A power from the control core, for the plant.
#[must_use]
pub fn from_watts(watts: Watts) -> f64 {
    watts.to_bits() as f64 / 4_294_967_296.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watts_pass_both_ways() {
        assert_eq!(to_watts(350.5).map(from_watts), Some(350.5));
        assert_eq!(to_watts(-0.25), Some(Watts::from_bits(-(1 << 30))));
        assert_eq!(to_watts(f64::INFINITY), Some(Watts::MAX));
        assert_eq!(to_watts(f64::NAN), None);
    }

    #[test]
    fn whole_numbers_are_the_nearest() {
        assert_eq!(whole(2.4), 2);
        assert_eq!(whole(2.5), 3);
        assert_eq!(whole(-7.0), 0);
        assert_eq!(whole(f64::NAN), 0);
        assert_eq!(whole(1e300), u64::MAX);
    }
}
