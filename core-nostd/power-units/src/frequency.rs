//! Clock frequency, in the unit of cpufreq.

use crate::Role;
use crate::quantity::quantity;

quantity! {
    /// A clock frequency.
    KiloHertz, "kHz"
}

impl KiloHertz {
    /// The whole kilohertz for a driver; a negative value becomes zero.
    #[inline]
    #[must_use]
    pub fn to_whole(self, role: Role) -> u32 {
        let slack: i64 = match role {
            Role::Limit => 0,
            Role::Demand => (1 << 32) - 1,
            Role::Nearest => 1 << 31,
        };
        u32::try_from(self.to_bits().saturating_add(slack) >> 32).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_limit_rounds_down_to_whole_kilohertz() {
        let f = KiloHertz::parse("2399999.5", Role::Limit).unwrap();
        assert_eq!(f.to_whole(Role::Limit), 2_399_999);
        assert_eq!(f.to_whole(Role::Demand), 2_400_000);
        assert_eq!(f.to_whole(Role::Nearest), 2_400_000);
        assert_eq!((-f).to_whole(Role::Limit), 0);
        assert_eq!(KiloHertz::MAX.to_whole(Role::Limit), 2_147_483_647);
    }

    proptest! {
        #[test]
        fn a_limit_is_never_told_higher_than_it_is(bits in 0_i64..i64::MAX) {
            let f = KiloHertz::from_bits(bits);
            let (low, near, high) = (f.to_whole(Role::Limit), f.to_whole(Role::Nearest), f.to_whole(Role::Demand));
            prop_assert!(i64::from(low) << 32 <= bits && low <= near && near <= high && high - low <= 1);
            prop_assert!(high == 1 << 31 || i64::from(high) << 32 >= bits);
        }
    }
}
