//! Fractions of a whole.

use crate::quantity::quantity;
use crate::{Role, quantity};

quantity! {
    /// A dimensionless factor: 1 is the whole.
    Ratio, "×"
}

quantity! {
    /// A percentage, as people write it.
    Percent, "%"
}

impl Ratio {
    /// The whole.
    pub const ONE: Self = Self::from_int(1);

    /// The same fraction in percent.
    #[must_use]
    pub fn to_percent(self) -> Percent {
        Percent::from_bits(quantity::saturate(i128::from(self.to_bits()).wrapping_mul(100)))
    }
}

impl Percent {
    /// 100 %.
    pub const HUNDRED: Self = Self::from_int(100);

    /// The same fraction as a ratio, rounded as `role` says.
    #[must_use]
    pub fn to_ratio(self, role: Role) -> Ratio {
        self.ratio_to(Self::HUNDRED, role).unwrap_or(Ratio::ZERO)
    }

    /// The nearest whole percent, halves away from zero.
    #[must_use]
    pub fn round(self) -> i32 {
        self.0.saturating_round().to_num()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn halves_round_away_from_zero() {
        let percent = |text: &str| Percent::parse(text, Role::Nearest).unwrap();
        assert_eq!(percent("37.5").round(), 38);
        assert_eq!(percent("-37.5").round(), -38);
        assert_eq!(percent("0.4").round(), 0);
        assert_eq!(Percent::MAX.round(), i32::MAX);
    }

    proptest! {
        #[test]
        fn percent_and_ratio_agree(bits in -(1_i64 << 50)..(1 << 50)) {
            let ratio = Ratio::from_bits(bits);
            prop_assert_eq!(ratio.to_percent().to_ratio(Role::Nearest), ratio);
        }

        #[test]
        fn a_percentage_as_a_limit_never_permits_more(bits in any::<i64>()) {
            let percent = Percent::from_bits(bits);
            prop_assert!(percent.to_ratio(Role::Limit).to_percent() <= percent);
            prop_assert!(percent.to_ratio(Role::Demand).to_percent() >= percent);
        }
    }
}
