use super::*;
use core::num::NonZeroU64;
use proptest::prelude::*;

const ENDLESS: ThrottledMeter = ThrottledMeter::Time { modulus: None };

fn at(us: u64) -> Stamp {
    Stamp::new(Micros::new(us))
}

fn time(us: u64) -> Throttled {
    Throttled::Time(Micros::new(us))
}

fn periods(held: u32, of: u32) -> Throttled {
    Throttled::Periods { held, of }
}

fn percent(whole: i32) -> Option<Percent> {
    Some(Percent::from_int(whole))
}

#[test]
fn each_kind_and_each_cause_is_a_bit_of_its_own() {
    for (at, kind) in StateReading::ALL.into_iter().enumerate() {
        let one = StateReadings::NONE.with(kind);
        assert!(StateReading::ALL.into_iter().all(|other| one.has(other) == (other == kind)), "{kind:?}");
        assert_eq!(one.to_bits(), 1 << at);
    }
    for cause in Slowdown::ALL {
        let one = Slowdowns::NONE.with(cause);
        assert!(Slowdown::ALL.into_iter().all(|other| one.has(other) == (other == cause)), "{cause:?}");
        assert!(one.iter().eq([cause]));
    }
    assert_eq!(Slowdowns::NONE.iter().count(), 0);
}

#[test]
fn what_no_device_can_have_is_no_reading() {
    assert_eq!(possible_temperature(Celsius::from_int(-61)), None);
    assert_eq!(possible_temperature(Celsius::from_int(201)), None);
    assert_eq!(possible_temperature(Celsius::from_int(-60)), Some(Celsius::from_int(-60)));
    assert_eq!(possible_utilisation(Percent::from_int(101)), None);
    assert_eq!(possible_utilisation(-Percent::from_int(1)), None);
    assert_eq!(possible_utilisation(Percent::HUNDRED), percent(100));
    assert_eq!(MemoryUse::new(0, 0), None);
    assert_eq!(MemoryUse::new(9, 8), None);
    let full = MemoryUse::new(8, 8).unwrap();
    assert_eq!((full.used_bytes(), full.total_bytes()), (8, 8));
}

#[test]
fn a_counter_of_time_gives_its_part_of_the_span() {
    let share = |from, to, span| ENDLESS.share((at(0), time(from)), (at(span), time(to)));
    assert_eq!(share(7, 7, 1_000_000), percent(0));
    assert_eq!(share(7, 500_007, 1_000_000), percent(50));
    // A step of the counter may contain a part of the time before: never above the whole.
    assert_eq!(share(0, 1_050_000, 1_000_000), percent(100));
    assert_eq!(share(0, 3_000_001, 1_000_000), None, "more than such a step");
    assert_eq!(share(9, 8, 1_000_000), None, "the driver was loaded again");
    assert_eq!(share(0, 0, 0), None, "no time has passed");
    assert_eq!(ENDLESS.share((at(9), time(0)), (at(8), time(0))), None, "the clock went back");
}

#[test]
fn a_counter_of_time_that_wraps_is_counted_through() {
    // 32 bits of 976 µs, as Intel's registers count.
    let modulus = NonZeroU64::new((1 << 32) * 976);
    let meter = ThrottledMeter::Time { modulus };
    let top = (1 << 32) * 976 - 100_000;
    assert_eq!(meter.share((at(0), time(top)), (at(1_000_000), time(150_000))), percent(25));
    assert_eq!(meter.share((at(0), time(5_000)), (at(1_000_000), time(0))), None, "it was reset");
    assert_eq!(meter.share((at(0), time((1 << 32) * 976)), (at(1), time(1))), None, "it cannot show that");
}

#[test]
fn counted_periods_give_their_part_over_a_wrap_too() {
    let meter = ThrottledMeter::Periods;
    let share = |from, to| meter.share((at(0), from), (at(1_000_000), to));
    assert_eq!(share(periods(10, 1_000), periods(260, 2_000)), percent(25));
    assert_eq!(share(periods(u32::MAX, u32::MAX - 499), periods(249, 500)), percent(25));
    assert_eq!(share(periods(10, 1_000), periods(10, 1_000)), None, "nothing was counted");
    assert_eq!(share(periods(10, 1_000), periods(0, 0)), None, "the firmware was started again");
    assert_eq!(share(periods(10, 1_000), periods(60, 1_010)), None, "more than there were");
}

#[test]
fn an_instant_is_all_or_nothing_and_another_kind_of_value_is_nothing() {
    let share = |meter: ThrottledMeter, value| meter.share((at(0), value), (at(1), value));
    assert_eq!(share(ThrottledMeter::Instant, Throttled::Instant(true)), percent(100));
    assert_eq!(share(ThrottledMeter::Instant, Throttled::Instant(false)), percent(0));
    for value in [time(1), periods(1, 1)] {
        assert_eq!(share(ThrottledMeter::Instant, value), None);
    }
    assert_eq!(share(ENDLESS, Throttled::Instant(true)), None);
    assert_eq!(share(ThrottledMeter::Periods, time(1)), None);
}

proptest! {
    #[test]
    fn a_share_lies_between_nothing_and_the_whole(
        from in any::<u64>(), to in any::<u64>(), span in any::<u64>(),
        held in any::<(u32, u32)>(), of in any::<(u32, u32)>(),
    ) {
        let shares = [
            ENDLESS.share((at(0), time(from)), (at(span), time(to))),
            ThrottledMeter::Periods.share((at(0), periods(held.0, of.0)), (at(span), periods(held.1, of.1))),
        ];
        for share in shares.into_iter().flatten() {
            prop_assert!(Percent::ZERO <= share && share <= Percent::HUNDRED, "{share:?}");
        }
    }

    #[test]
    fn a_part_is_the_exact_quotient_but_for_its_last_bits(all in 1_u64..(1 << 45), of_it in 0_u64..=1_000) {
        let held = u64::try_from(u128::from(all) * u128::from(of_it) / 1_000).unwrap();
        let exact = i64::try_from((u128::from(held) << 32) * 100 / u128::from(all)).unwrap();
        let found = part(held, all).unwrap().to_bits();
        // The quotient is rounded down to 2⁻³² before it is multiplied by 100; halving costs one part in 2³¹ more.
        prop_assert!((found - exact).abs() <= 600, "{found} and {exact}");
    }
}
