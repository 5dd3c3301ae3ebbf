//! A percentage of a whole by one exact division: 35,000 W of 50,000 W are 70 % and not the next number above, so
//! that a strict threshold comparison agrees with the decimal numbers.

use power_units::{Percent, Role, Watts};

/// The percentage of `base` that `value` is, rounded as `role` says; `None` when the base is not positive.
pub(crate) fn percent_of(value: Watts, base: Watts, role: Role) -> Option<Percent> {
    of_bits(value.to_bits(), base.to_bits(), role)
}

/// The percentage of `base` that a count is, to the nearest; `None` when the base is zero.
pub(crate) fn percent_of_count(count: u32, base: u32) -> Option<Percent> {
    of_bits(i64::from(count), i64::from(base), Role::Nearest)
}

fn of_bits(value: i64, base: i64, role: Role) -> Option<Percent> {
    if base <= 0 {
        return None;
    }
    // 63 bits, times a hundred, shifted by 32: 102 bits at most.
    let dividend = (i128::from(value) * 100) << 32;
    let divisor = i128::from(base);
    let floor = dividend.div_euclid(divisor);
    let rest = dividend - floor * divisor;
    let up = match role {
        Role::Limit => false,
        Role::Demand => rest != 0,
        Role::Nearest => rest * 2 >= divisor,
    };
    let bits = floor + i128::from(up);
    let saturated = i64::try_from(bits).unwrap_or(if bits < 0 { i64::MIN } else { i64::MAX });
    Some(Percent::from_bits(saturated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exact_in_decimals_is_exact_here() {
        let percent = |value, base| percent_of(Watts::from_int(value), Watts::from_int(base), Role::Demand);
        assert_eq!(percent(35_000, 50_000), Some(Percent::from_int(70)));
        assert_eq!(percent(-50, 100), Some(Percent::from_int(-50)));
        assert_eq!(percent(39_000_000, 40_000_000), Percent::parse("97.5", Role::Nearest).ok());
        assert_eq!(percent(1, 0), None);
        assert_eq!(percent(1, -5), None);
    }

    #[test]
    fn a_third_rounds_as_the_role_says_and_extremes_saturate() {
        let third = |role| percent_of(Watts::from_int(1), Watts::from_int(3), role).unwrap().to_bits();
        // 100/3 · 2³² = 143165576533.3
        assert_eq!(third(Role::Limit), 143_165_576_533);
        assert_eq!(third(Role::Demand), 143_165_576_534);
        assert_eq!(third(Role::Nearest), 143_165_576_533);
        let smallest = Watts::from_bits(1);
        // Half of the last bit: away from zero.
        assert_eq!(percent_of(smallest, Watts::from_int(200), Role::Nearest), Some(Percent::from_bits(1)));
        assert_eq!(percent_of(Watts::MAX, smallest, Role::Limit), Some(Percent::MAX));
        assert_eq!(percent_of(Watts::MIN, smallest, Role::Limit), Some(Percent::MIN));
    }
}
