//! Power and its slope.

use crate::quantity::{divide, quantity, saturate};
use crate::{MicroWatts, Micros, MilliWatts, NonZeroMicros, Role};

quantity! {
    /// Power. The range is ±2 GW, enough for a site.
    Watts, "W"
}

quantity! {
    /// How fast power rises, or falls when negative.
    WattsPerMinute, "W/min"
}

const BITS_PER_WATT: u64 = 1 << 32;

impl Watts {
    /// The microwatts for a driver. A limit rounds down; a negative value becomes zero.
    #[must_use]
    pub fn to_micro_watts(self, role: Role) -> MicroWatts {
        MicroWatts::new(self.to_parts(1_000_000, role))
    }

    /// The milliwatts for a driver. A limit rounds down; a negative value becomes zero.
    #[must_use]
    pub fn to_milli_watts(self, role: Role) -> MilliWatts {
        MilliWatts::new(u32::try_from(self.to_parts(1_000, role)).unwrap_or(u32::MAX))
    }

    fn to_parts(self, parts: u64, role: Role) -> u64 {
        let bits = u64::try_from(self.to_bits()).unwrap_or(0);
        let slack = match role {
            Role::Limit => 0,
            Role::Demand => u128::from(BITS_PER_WATT).wrapping_sub(1),
            Role::Nearest => u128::from(BITS_PER_WATT) >> 1,
        };
        let scaled = u128::from(bits).wrapping_mul(u128::from(parts)).wrapping_add(slack) >> 32;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// The slope of a change that took `elapsed`, rounded as `role` says.
    #[must_use]
    pub fn per(self, elapsed: NonZeroMicros, role: Role) -> WattsPerMinute {
        let micros = i128::from(elapsed.get());
        let wide = i128::from(self.to_bits()).wrapping_mul(i128::from(Micros::MINUTE.get()));
        WattsPerMinute::from_bits(saturate(divide(wide, micros, role).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Amount, Percent, Ratio, Role};
    use proptest::prelude::*;
    use std::format;
    use std::string::ToString;

    #[test]
    fn operators_saturate_and_sums_over_a_cluster_are_checked() {
        assert_eq!(Watts::MAX + Watts::from_int(1), Watts::MAX);
        assert_eq!(Watts::MIN - Watts::from_int(1), Watts::MIN);
        assert_eq!(-Watts::MIN, Watts::MAX);
        assert_eq!(Watts::MAX.times(2), Watts::MAX);
        assert_eq!(Watts::checked_sum([Watts::MAX, Watts::from_int(1)]), None);
        assert_eq!(Watts::checked_sum([Watts::from_int(2), Watts::from_int(3)]), Some(Watts::from_int(5)));
    }

    #[test]
    fn text_is_short_and_reads_back() {
        assert_eq!(Watts::from_int(350).to_string(), "350");
        assert_eq!(Watts::parse("350.5", Role::Limit).unwrap().to_string(), "350.5");
        assert_eq!(format!("{:?}", Watts::from_int(-3)), "-3 W");
        assert_eq!(format!("{:.2}", Watts::parse("41.1666", Role::Nearest).unwrap()), "41.17");
    }

    #[test]
    fn one_bit_beside_a_tenth_the_tenth_is_shown() {
        // 2³² / 10 is 429,496,729.6.
        let (below, above) = (Watts::from_bits(429_496_729), Watts::from_bits(429_496_730));
        assert_eq!((below.to_string(), above.to_string()), ("0.1".into(), "0.1".into()));
        assert_eq!(Watts::parse("0.1", Role::Limit), Ok(below));
        assert_eq!(Watts::parse("0.1", Role::Nearest), Ok(above));
        // Two bits away it is displayed as another number.
        assert_eq!(Watts::from_bits(429_496_728).to_string(), "0.0999999996");
    }

    #[test]
    fn a_limit_for_a_driver_never_exceeds_the_limit_that_was_meant() {
        let meant = Watts::parse("123.4567891", Role::Limit).unwrap();
        assert_eq!(meant.to_micro_watts(Role::Limit), MicroWatts::new(123_456_789));
        assert_eq!(meant.to_micro_watts(Role::Demand), MicroWatts::new(123_456_790));
        assert_eq!(meant.to_milli_watts(Role::Limit), MilliWatts::new(123_456));
        assert_eq!(Watts::from_int(-5).to_micro_watts(Role::Limit), MicroWatts::new(0));
        assert_eq!(Watts::MAX.to_milli_watts(Role::Limit), MilliWatts::new(u32::MAX));
    }

    #[test]
    fn a_slope_is_watts_over_minutes() {
        let half_a_minute = Micros::new(30_000_000).non_zero().unwrap();
        assert_eq!(Watts::from_int(60).per(half_a_minute, Role::Nearest), WattsPerMinute::from_int(120));
        assert_eq!(Watts::from_int(-60).per(half_a_minute, Role::Nearest), WattsPerMinute::from_int(-120));
    }

    #[test]
    fn a_part_of_nothing_is_no_ratio() {
        assert_eq!(Watts::from_int(5).ratio_to(Watts::ZERO, Role::Demand), None);
        assert_eq!(
            Watts::from_int(-1).ratio_to(Watts::from_int(-2), Role::Nearest),
            Some(Ratio::from_bits(1 << 31))
        );
    }

    #[test]
    fn a_part_is_exact_where_a_ratio_of_32_bits_would_lose_some() {
        let (max, sixty) = (Watts::from_int(350), Percent::from_int(60));
        assert_eq!(max.part(sixty, Percent::HUNDRED, Role::Limit), Some(Watts::from_int(210)));
        assert!(max.scale(sixty.to_ratio(Role::Limit), Role::Limit) < Watts::from_int(210));
        assert_eq!(max.part(sixty, Percent::ZERO, Role::Demand), None);
        assert_eq!(Watts::MAX.part(Percent::MAX, Percent::from_bits(1), Role::Nearest), Some(Watts::MAX));
        assert_eq!(Watts::MIN.part(Percent::MAX, Percent::from_bits(1), Role::Nearest), Some(Watts::MIN));
    }

    #[test]
    fn counts_are_shared_out_too() {
        let of_ten = |part: u64, whole: u64, role| 10_u64.part(part, whole, role);
        assert_eq!(of_ten(2, 3, Role::Limit), Some(6));
        assert_eq!(of_ten(2, 3, Role::Demand), Some(7));
        assert_eq!(of_ten(1, 4, Role::Nearest), Some(3));
        assert_eq!(of_ten(0, 0, Role::Limit), None);
        assert_eq!(of_ten(u64::MAX, 1, Role::Limit), Some(u64::MAX));
        assert_eq!(u64::MAX.part(u64::MAX, 1, Role::Limit), None);
    }

    proptest! {
        #[test]
        fn a_part_is_within_one_bit_of_the_exact_one(bits in any::<i64>(), part in any::<i64>(), whole in 1..i64::MAX) {
            let of = |role| i128::from(Watts::from_bits(bits).part(Watts::from_bits(part), Watts::from_bits(whole), role).unwrap().to_bits());
            let (low, high, exact) = (of(Role::Limit), of(Role::Demand), i128::from(bits) * i128::from(part));
            let whole = i128::from(whole);
            prop_assert!(low == i128::from(i64::MIN) || low * whole <= exact);
            prop_assert!(high == i128::from(i64::MAX) || high * whole >= exact);
            prop_assert!(high - low == i128::from(low * whole != exact) || low == high);
        }

        #[test]
        fn text_round_trips(bits in any::<i64>()) {
            let watts = Watts::from_bits(bits);
            prop_assert_eq!(Watts::parse(&watts.to_string(), Role::Nearest), Ok(watts));
        }

        #[test]
        fn the_edge_units_round_trip(micro in 0_u64..2_000_000_000_000_000) {
            let edge = MicroWatts::new(micro);
            prop_assert_eq!(edge.to_watts(Role::Demand).to_micro_watts(Role::Limit), edge);
            prop_assert!(edge.to_watts(Role::Limit) <= edge.to_watts(Role::Demand));
        }

        #[test]
        fn a_ratio_of_a_limit_never_gives_more_than_the_exact_product(bits in any::<i64>(), ratio in 0_i64..=(1 << 32)) {
            let watts = Watts::from_bits(bits);
            let low = watts.scale(Ratio::from_bits(ratio), Role::Limit);
            let high = watts.scale(Ratio::from_bits(ratio), Role::Demand);
            let exact = i128::from(bits) * i128::from(ratio);
            prop_assert!(i128::from(low.to_bits()) << 32 <= exact);
            prop_assert!(i128::from(high.to_bits()) << 32 >= exact);
            prop_assert!(high.to_bits() - low.to_bits() <= 1);
        }

        #[test]
        fn a_quotient_lies_between_its_roundings(value in any::<i64>(), base in any::<i64>()) {
            prop_assume!(base != 0);
            let (value, base) = (Watts::from_bits(value), Watts::from_bits(base));
            let low = value.ratio_to(base, Role::Limit).unwrap();
            let near = value.ratio_to(base, Role::Nearest).unwrap();
            let high = value.ratio_to(base, Role::Demand).unwrap();
            prop_assert!(low <= near && near <= high);
            let inside = |r: Ratio| r > Ratio::MIN && r < Ratio::MAX;
            if inside(low) && inside(high) {
                // low·base ≤ value ≤ high·base for a positive base; reversed for a negative one.
                let exact = i128::from(value.to_bits()) << 32;
                let (a, b) = (i128::from(low.to_bits()) * i128::from(base.to_bits()),
                              i128::from(high.to_bits()) * i128::from(base.to_bits()));
                prop_assert!(a.min(b) <= exact && exact <= a.max(b));
                prop_assert!(high.to_bits() - low.to_bits() <= 1);
            }
        }
    }
}
