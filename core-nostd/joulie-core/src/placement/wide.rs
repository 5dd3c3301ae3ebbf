//! Products and quotients whose middle does not fit 64 bits.

/// `a · b / 2^shift`, to the nearest; what does not fit becomes the largest value. `shift` lies in 1..=64.
#[inline]
pub(crate) fn scaled(a: u64, b: u64, shift: u32) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    let half = 1_u128.wrapping_shl(shift.wrapping_sub(1));
    // A product of two 64-bit numbers is at most 2¹²⁸ − 2⁶⁵ + 1, so half of 2⁶⁴ still fits beside it.
    u64::try_from(product.wrapping_add(half).wrapping_shr(shift)).unwrap_or(u64::MAX)
}

/// `dividend / divisor`, to the nearest; what does not fit, and everything over zero, becomes the largest value.
/// The dividend is below 2¹²⁷.
pub(crate) fn quotient(dividend: u128, divisor: u64) -> u64 {
    let half = u128::from(divisor >> 1);
    let whole = dividend.wrapping_add(half).checked_div(u128::from(divisor));
    whole.and_then(|whole| u64::try_from(whole).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_up_and_what_does_not_fit_is_the_largest_value() {
        assert_eq!(scaled(3, 1, 1), 2);
        assert_eq!(scaled(5, 1, 2), 1);
        assert_eq!(scaled(u64::MAX, u64::MAX, 64), u64::MAX - 1);
        assert_eq!(scaled(u64::MAX, u64::MAX, 63), u64::MAX);
        assert_eq!(quotient(7, 2), 4);
        assert_eq!(quotient(1 << 100, 3), u64::MAX);
        assert_eq!(quotient(5, 0), u64::MAX);
    }
}
