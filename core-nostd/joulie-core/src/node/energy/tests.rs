use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// The range of a counter with a quantum of 61.035 µJ: (2³² − 1) · 61035 nJ / 1000, as the kernel shows it.
const RANGE: u64 = 262_143_328_850;
/// The range of a counter with a quantum of 15.258 µJ.
const RANGE_FINE: u64 = 65_532_610_987;
const SECOND: u64 = 1_000_000;

fn at(micros: u64) -> Stamp {
    Stamp::new(Micros::new(micros))
}

fn sample(energy: u64, micros: u64) -> CounterSample {
    CounterSample { energy: MicroJoules::new(energy), at: at(micros) }
}

fn meter(counter: Counter) -> EnergyMeter {
    EnergyMeter::new(counter, Watts::from_int(700), Micros::new(10_000), Micros::new(5 * SECOND)).unwrap()
}

fn wrapping() -> EnergyMeter {
    meter(Counter::of_range(Some(MicroJoules::new(RANGE))))
}

/// Feeds samples, each at its own time, and returns the readings.
fn told(meter: &EnergyMeter, samples: &[(u64, u64)]) -> Vec<MeterReading> {
    let mut baseline = Baseline::Nothing;
    samples
        .iter()
        .map(|&(energy, micros)| meter.step(&mut baseline, at(micros), Some(sample(energy, micros))))
        .collect()
}

fn over(watts: Watts, span: u64) -> MeterReading {
    MeterReading::Fresh { watts, over: Micros::new(span) }
}

/// The mean over a second.
fn fresh(watts: i32) -> MeterReading {
    over(Watts::from_int(watts), SECOND)
}

fn watts(text: &str) -> Watts {
    Watts::parse(text, power_units::Role::Nearest).unwrap()
}

#[test]
fn the_first_sample_is_only_a_baseline_and_joules_over_seconds_are_watts() {
    assert_eq!(
        told(&wrapping(), &[(1_000_000, SECOND), (301_000_000, 2 * SECOND), (376_000_000, 2_500_000)]),
        vec![MeterReading::Missing(Gap::FirstSample), fresh(300), over(Watts::from_int(150), SECOND / 2)]
    );
}

#[test]
fn a_counter_that_wraps_counts_the_step_from_its_largest_value_to_zero() {
    // From 262143000000 to the top: 328850 µJ; from zero to 99671150. Together 100000000 µJ, which is the figure that
    // leaves out the step from the top to zero. That step is one quantum of 61.035 µJ, counted as 62: 100000062 µJ.
    let told = told(&wrapping(), &[(262_143_000_000, SECOND), (99_671_150, 2 * SECOND)]);
    let MeterReading::Fresh { watts: power, .. } = told[1] else { panic!("{told:?}") };
    assert_eq!(power, MicroJoules::new(100_000_062).over(NonZeroMicros::new(SECOND).unwrap()));
    assert!(power >= Watts::from_int(100) && power < watts("100.0001"), "100 W to one part in a million");
}

/// The total of two packages would be half of their draw, and a closed loop would raise the frequency.
#[test]
fn a_counter_that_stands_still_is_no_package_without_power() {
    let told = told(&wrapping(), &[(7, SECOND), (7, 2 * SECOND), (7, 3 * SECOND), (300_000_007, 4 * SECOND)]);
    let stale = |seconds| MeterReading::Stale { age: Micros::new(seconds * SECOND) };
    let after = over(Watts::from_int(100), 3 * SECOND);
    assert_eq!(told[1..], [stale(1), stale(2), after], "what was drawn meanwhile counts when it moves on");
    assert_eq!(total([fresh(200), told[1]]), stale(1));
}

#[test]
fn a_span_in_which_a_wrap_is_unknowable_is_dropped_and_the_next_one_counts_again() {
    // Fix list agent C10. Half of 65532.610987 J at 700 W is 46.808 s.
    let meter = meter(Counter::of_range(Some(MicroJoules::new(RANGE_FINE))));
    let after = |span: u64| {
        told(&meter, &[(0, SECOND), (1_000_000, SECOND + span), (201_000_000, 2 * SECOND + span)])
    };
    assert!(matches!(after(46_800_000)[1], MeterReading::Fresh { .. }));
    assert_eq!(after(46_900_000)[1], MeterReading::Missing(Gap::WrapsUnknowable));
    assert_eq!(after(46_900_000)[2], fresh(200));
    assert_eq!(after(u64::MAX / 4)[1], MeterReading::Missing(Gap::WrapsUnknowable));
}

#[test]
fn a_counter_without_a_range_is_read_while_it_grows_and_says_nothing_when_it_falls() {
    // Fix list agent C10: a missing range must neither be guessed nor discard the samples that need none.
    let readings = told(
        &meter(Counter::Unknown),
        &[(0, 1), (50_000_000, SECOND + 1), (0, 2 * SECOND + 1), (70_000_000, 3 * SECOND + 1)],
    );
    assert_eq!(readings[1], fresh(50));
    assert_eq!(readings[2], MeterReading::Missing(Gap::WrapsUnknowable));
    assert_eq!(readings[3], fresh(70));
    let long = told(&meter(Counter::Unknown), &[(0, 1), (1, 60 * SECOND)]);
    assert_eq!(long[1], MeterReading::Missing(Gap::WrapsUnknowable));
}

#[test]
fn more_power_than_the_package_can_draw_is_impossible_and_not_a_reading() {
    // Fix list agent C10: 701 J in a second of a package that draws 700 W at most, then an ordinary second.
    let readings = told(&wrapping(), &[(0, SECOND), (701_000_000, 2 * SECOND), (901_000_000, 3 * SECOND)]);
    assert_eq!(readings[1], MeterReading::Impossible(Oddity::AboveMaximum));
    assert_eq!(readings[2], fresh(200));
    assert!(matches!(
        told(&wrapping(), &[(0, SECOND), (700_000_000, 2 * SECOND)])[1],
        MeterReading::Fresh { .. }
    ));
}

#[test]
fn a_counter_that_was_reset_is_not_an_idle_package() {
    // A driver was reloaded: 500 J back to 1 J looks like nearly a full wrap of the counter.
    let reset = [(500_000_000, SECOND), (1_000_000, 2 * SECOND), (101_000_000, 3 * SECOND)];
    assert_eq!(told(&wrapping(), &reset)[1], MeterReading::Impossible(Oddity::AboveMaximum));
    assert_eq!(told(&meter(Counter::Endless), &reset)[1], MeterReading::Impossible(Oddity::RanBackwards));
    for counter in [Counter::Endless, Counter::of_range(Some(MicroJoules::new(RANGE))), Counter::Unknown] {
        assert_eq!(told(&meter(counter), &reset)[2], fresh(100), "{counter:?}");
    }
}

#[test]
fn a_value_that_the_counter_cannot_show_is_impossible_and_spoils_nothing() {
    let readings = told(&wrapping(), &[(0, SECOND), (RANGE + 62, 2 * SECOND), (400_000_000, 3 * SECOND)]);
    assert_eq!(readings[1], MeterReading::Impossible(Oddity::AboveRange));
    assert_eq!(
        readings[2],
        over(Watts::from_int(200), 2 * SECOND),
        "400 J over the two seconds since the good one"
    );
    assert_eq!(told(&wrapping(), &[(u64::MAX, 1)])[0], MeterReading::Impossible(Oddity::AboveRange));
}

#[test]
fn a_clock_that_goes_backwards_gives_no_power_and_starts_anew() {
    let readings =
        told(&wrapping(), &[(0, 9 * SECOND), (100_000_000, 2 * SECOND), (200_000_000, 3 * SECOND)]);
    assert_eq!(readings[1], MeterReading::Impossible(Oddity::ClockBackwards));
    assert_eq!(readings[2], fresh(100));
}

#[test]
fn missing_stale_and_impossible_are_three_facts() {
    let meter = wrapping();
    let mut baseline = Baseline::At(sample(0, SECOND));
    let before = baseline;
    let mut tell = |now: u64, delivered| meter.step(&mut baseline, at(now), delivered);
    assert_eq!(tell(2 * SECOND, None), MeterReading::Missing(Gap::Unread));
    assert_eq!(
        tell(10 * SECOND, Some(sample(1, 4 * SECOND))),
        MeterReading::Stale { age: Micros::new(6 * SECOND) }
    );
    assert_eq!(
        tell(2 * SECOND, Some(sample(1, 3 * SECOND))),
        MeterReading::Impossible(Oddity::FromTheFuture)
    );
    assert_eq!(
        tell(2 * SECOND, Some(sample(0, SECOND))),
        MeterReading::Stale { age: Micros::new(SECOND) },
        "twice"
    );
    assert_eq!(tell(2 * SECOND, Some(sample(7, SECOND))), MeterReading::Impossible(Oddity::TwoAtOnce));
    assert_eq!(tell(2 * SECOND, Some(sample(7, SECOND + 9_999))), MeterReading::Missing(Gap::TooSoon));
    assert_eq!(baseline, before, "none of them may move the baseline");
}

#[test]
fn a_gap_is_bridged_by_the_mean_over_it() {
    let meter = wrapping();
    let mut baseline = Baseline::At(sample(0, 0));
    assert_eq!(meter.step(&mut baseline, at(SECOND), None), MeterReading::Missing(Gap::Unread));
    let after = meter.step(&mut baseline, at(4 * SECOND), Some(sample(800_000_000, 4 * SECOND)));
    assert_eq!(after, over(Watts::from_int(200), 4 * SECOND));
}

#[test]
fn a_partial_sum_is_not_the_total() {
    // Fix list agent C9, every pair of readings.
    let one = fresh(100);
    let stale = MeterReading::Stale { age: Micros::new(7) };
    let missing = MeterReading::Missing(Gap::FirstSample);
    let impossible = MeterReading::Impossible(Oddity::AboveMaximum);
    let worst = [one, stale, missing, impossible];
    for (i, a) in worst.into_iter().enumerate() {
        for (j, b) in worst.into_iter().enumerate() {
            let expected = if i == 0 && j == 0 { fresh(200) } else { worst[i.max(j)] };
            assert_eq!(total([a, b]), expected, "{a:?} + {b:?}");
        }
    }
    assert_eq!(total([one, over(Watts::ZERO, 9)]), one, "the longer of the spans");
    assert_eq!(total([]), MeterReading::Missing(Gap::NoMeter));
    assert_eq!(total([one]), one);
    assert_eq!(
        total([stale, MeterReading::Stale { age: Micros::new(9) }]),
        MeterReading::Stale { age: Micros::new(9) }
    );
    let most = over(Watts::MAX, SECOND);
    assert_eq!(
        total([most, one]),
        MeterReading::Impossible(Oddity::AboveMaximum),
        "an overflow is not a number"
    );
}

/// One of each kind of reading; the sum of two of the largest exceeds the unit.
fn every_reading() -> Vec<MeterReading> {
    use Gap::{FirstSample, NoMeter, TooSoon, Unread, WrapsUnknowable};
    use Oddity::{AboveMaximum, AboveRange, ClockBackwards, FromTheFuture, RanBackwards, TwoAtOnce};
    let gaps = [NoMeter, Unread, FirstSample, TooSoon, WrapsUnknowable].map(MeterReading::Missing);
    let oddities = [AboveMaximum, AboveRange, RanBackwards, ClockBackwards, FromTheFuture, TwoAtOnce];
    let numbers = [fresh(100), over(Watts::from_int(70), 9), over(Watts::MAX - Watts::from_int(1), 5)];
    let stale = [3, 7].map(|age| MeterReading::Stale { age: Micros::new(age) });
    [numbers.as_slice(), &stale, &gaps, &oddities.map(MeterReading::Impossible)].concat()
}

fn any_reading() -> impl Strategy<Value = MeterReading> {
    proptest::sample::select(every_reading())
}

#[test]
fn every_three_readings_have_one_total_in_every_order() {
    let all = every_reading();
    for &a in &all {
        for &b in &all {
            for &c in &all {
                let told = total([a, b, c]);
                for order in [[a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]] {
                    assert_eq!(total(order), told, "{order:?}");
                }
            }
        }
    }
}

#[test]
fn a_new_zone_makes_the_total_unknown_until_it_can_tell() {
    let meter = wrapping();
    let mut known = vec![Baseline::At(sample(0, 0))];
    let mut pass = |zones: usize, second: u64| {
        known.resize(zones, Baseline::Nothing);
        let now = second * SECOND;
        total(known.iter_mut().map(|zone| meter.step(zone, at(now), Some(sample(now * 100, now)))))
    };
    assert_eq!(pass(1, 1), fresh(100));
    assert_eq!(pass(2, 2), MeterReading::Missing(Gap::FirstSample));
    assert_eq!(pass(2, 3), fresh(200));
    // A package that is no longer enumerated is no longer known.
    assert_eq!(pass(1, 4), fresh(100));
}

#[test]
fn a_meter_that_could_not_tell_is_refused() {
    let ms = Micros::new(10_000);
    let s = Micros::new(SECOND);
    let new = |power, span, stale| EnergyMeter::new(Counter::Unknown, power, span, stale);
    assert_eq!(new(Watts::ZERO, ms, s), Err(MeterError::PowerMax));
    assert_eq!(new(Watts::MIN, ms, s), Err(MeterError::PowerMax));
    assert_eq!(new(Watts::from_int(1), Micros::ZERO, s), Err(MeterError::Spans));
    assert_eq!(new(Watts::from_int(1), s, s), Err(MeterError::Spans));
    assert!(new(Watts::MAX, ms, s).is_ok());
}

proptest! {
    #[test]
    fn the_energy_drawn_is_the_energy_told_wherever_the_counter_stands(
        start in 0_u64..=RANGE, drawn in 0_u64..700_000_000,
    ) {
        // The counter counts quanta and shows whole microjoules, so a wrap may lose or add up to two of them.
        let shown = if start + drawn <= RANGE { start + drawn } else { start + drawn - RANGE - 61 };
        prop_assume!(shown <= RANGE);
        let readings = told(&wrapping(), &[(start, SECOND), (shown, 2 * SECOND)]);
        match readings[1] {
            MeterReading::Fresh { watts: power, .. } => {
                let slack = power - Watts::from_bits((i128::from(drawn) * (1 << 32) / 1_000_000) as i64);
                prop_assert!(slack >= Watts::ZERO && slack <= watts("0.000002"), "{slack}");
            }
            MeterReading::Impossible(Oddity::AboveMaximum) => prop_assert!(drawn >= 699_999_998),
            other @ (MeterReading::Impossible(_) | MeterReading::Missing(_) | MeterReading::Stale { .. }) => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn no_reading_is_negative_or_above_what_the_package_can_draw(
        samples in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..6),
        kind in 0_usize..3,
    ) {
        let meter = meter([Counter::of_range(Some(MicroJoules::new(RANGE))), Counter::Endless, Counter::Unknown][kind]);
        let mut baseline = Baseline::Nothing;
        for (energy, read, now) in samples {
            if let MeterReading::Fresh { watts: power, .. } = meter.step(&mut baseline, at(now), Some(sample(energy, read))) {
                prop_assert!(power >= Watts::ZERO && power <= Watts::from_int(700));
            }
        }
    }

    #[test]
    fn the_total_does_not_depend_on_the_order(
        (listed, shuffled) in proptest::collection::vec(any_reading(), 0..6)
            .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
    ) {
        let told = total(listed.iter().copied());
        prop_assert_eq!(told, total(shuffled));
        let is_fresh = |reading: &MeterReading| matches!(reading, MeterReading::Fresh { .. });
        prop_assert!(!is_fresh(&told) || (!listed.is_empty() && listed.iter().all(is_fresh)));
    }
}
