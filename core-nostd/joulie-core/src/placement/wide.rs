//! Products and quotients with intermediate values above 64 bits. Their role tells how they are rounded.

use power_units::Role;

/// `a · b / 2^shift`; an overflow becomes the largest value. `shift` is in 1..=64.
#[inline]
pub(crate) fn scaled(a: u64, b: u64, shift: u32, role: Role) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    let one = 1_u128.wrapping_shl(shift);
    // A product of two 64-bit numbers is at most 2¹²⁸ − 2⁶⁵ + 1, so adding `more` does not overflow.
    let more = match role {
        Role::Limit => 0,
        Role::Demand => one.wrapping_sub(1),
        Role::Nearest => one.wrapping_shr(1),
    };
    u64::try_from(product.wrapping_add(more).wrapping_shr(shift)).unwrap_or(u64::MAX)
}

/// `dividend / divisor`; an overflow, and a division by zero, become the largest value. The dividend is below 2¹²⁷.
pub(crate) fn quotient(dividend: u128, divisor: u64, role: Role) -> u64 {
    let more = match role {
        Role::Limit => 0,
        Role::Demand => divisor.saturating_sub(1),
        Role::Nearest => divisor >> 1,
    };
    let whole = dividend.wrapping_add(u128::from(more)).checked_div(u128::from(divisor));
    whole.and_then(|whole| u64::try_from(whole).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::Role::{Demand, Limit, Nearest};

    #[test]
    fn each_role_rounds_its_way_and_what_does_not_fit_is_the_largest_value() {
        for (a, shift, limit, nearest, demand) in
            [(3, 1, 1, 2, 2), (5, 2, 1, 1, 2), (7, 2, 1, 2, 2), (8, 2, 2, 2, 2), (1, 64, 0, 0, 1)]
        {
            for (role, expected) in [(Limit, limit), (Nearest, nearest), (Demand, demand)] {
                assert_eq!(scaled(a, 1, shift, role), expected, "{a} {shift} {role:?}");
                if shift < 64 {
                    assert_eq!(quotient(u128::from(a), 1 << shift, role), expected, "{a} {shift} {role:?}");
                }
            }
        }
        assert_eq!(scaled(u64::MAX, u64::MAX, 64, Nearest), u64::MAX - 1);
        assert_eq!(scaled(u64::MAX, u64::MAX, 64, Demand), u64::MAX);
        for role in [Limit, Nearest, Demand] {
            assert_eq!(scaled(u64::MAX, u64::MAX, 63, role), u64::MAX);
            assert_eq!(quotient(1 << 100, 3, role), u64::MAX);
            assert_eq!(quotient(5, 0, role), u64::MAX);
        }
    }
}
