//! Power headroom: "remaining power budget" in percent of the capped power.

use crate::share::percent_of;
use power_units::{Percent, Role, Watts};

/// (capped − power) / capped · 100, at most 100 and without a lower bound: a node above its cap is worse than a
/// fully used one. A cap that was rounded to zero counts as the smallest cap, not as a missing limit.
pub(super) fn of(capped: Watts, drawn: Watts) -> Percent {
    let capped = capped.max(Watts::from_bits(1));
    percent_of(capped - drawn, capped, Role::Limit).map_or(Percent::MIN, |left| left.min(Percent::HUNDRED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_left_of_no_cap_at_all() {
        assert_eq!(of(Watts::ZERO, Watts::ZERO), Percent::HUNDRED);
        assert_eq!(of(Watts::ZERO, Watts::from_int(1)), Percent::MIN);
        assert_eq!(of(Watts::MIN, Watts::from_int(1)), Percent::MIN);
    }

    proptest! {
        #[test]
        fn more_power_and_a_lower_cap_never_raise_it(
            (capped, less) in (1_i64..i64::MAX / 2, 0_i64..i64::MAX / 2),
            (drawn, more) in (0_i64..i64::MAX / 2, 0_i64..i64::MAX / 2),
        ) {
            let watts = Watts::from_bits;
            let here = of(watts(capped), watts(drawn));
            prop_assert!(of(watts(capped), watts(drawn + more)) <= here);
            prop_assert!(of(watts((capped - less).max(0)), watts(drawn)) <= here);
            prop_assert!(here <= Percent::HUNDRED);
        }
    }
}
