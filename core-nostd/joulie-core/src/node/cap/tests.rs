use super::*;
use crate::node::throttle::ThrottlePercent;
use power_units::Role;
use proptest::prelude::*;
use std::string::ToString;

fn w(text: &str) -> Watts {
    Watts::parse(text, Role::Nearest).unwrap()
}

fn pct(text: &str) -> Percent {
    Percent::parse(text, Role::Nearest).unwrap()
}

fn range(min: i32, max: i32) -> CapRange {
    CapRange::new(Some(Watts::from_int(min)), Some(Watts::from_int(max)), None)
}

fn target(requested: &str, effective: &str) -> Resolution {
    Resolution::Watts(ResolvedCap { requested: w(requested), effective: w(effective), as_found: false })
}

#[test]
fn watts_win_over_percent_and_what_is_no_cap_falls_through_to_the_percentage() {
    let both = |watts, percent| CapIntent { watts: Some(w(watts)), percent: Some(pct(percent)) };
    let on = |intent: CapIntent| intent.resolve(range(50, 270), Floor::NONE);
    assert_eq!(on(CapIntent::of_watts(w("120"))), target("120", "120"));
    assert_eq!(on(both("120", "60")), target("120", "120"));
    assert_eq!(on(both("0", "60")), target("162", "162"));
    assert_eq!(on(both("-5", "60")), target("162", "162"));
    assert_eq!(on(CapIntent::of_percent(pct("60"))), target("162", "162"));
}

#[test]
fn what_is_not_above_zero_is_refused_and_never_taken_for_a_small_cap() {
    for watts in [None, Some(Watts::ZERO), Some(w("-0.001")), Some(Watts::MIN)] {
        for percent in [None, Some(Percent::ZERO), Some(pct("-5")), Some(Percent::MIN)] {
            for range in [CapRange::UNKNOWN, range(50, 270)] {
                let refused = CapIntent { watts, percent }.resolve(range, Floor::NONE);
                assert_eq!(refused, Resolution::Blocked(Blocked::NotPositive), "{watts:?} {percent:?}");
            }
        }
    }
}

#[test]
fn a_percentage_of_an_unknown_maximum_takes_the_percent_path() {
    let on = |range| CapIntent::of_percent(pct("60")).resolve(range, Floor::NONE);
    assert_eq!(on(CapRange::UNKNOWN), Resolution::Percent(pct("60")));
    let only_min = CapRange::new(Some(w("50")), None, None);
    assert_eq!(on(only_min), Resolution::Percent(pct("60")));
}

#[test]
fn a_maximum_of_zero_or_below_the_limit_in_force_is_unknown() {
    // Fix list agent S2; a real firmware had a limit of 35 W and a maximum of 28 W.
    let max = |max: &str, original: &str| CapRange::new(None, Some(w(max)), Some(w(original))).max();
    assert_eq!(max("28", "35"), None);
    assert_eq!(max("0", "35"), None);
    assert_eq!(max("35", "35"), Some(w("35")));
    assert_eq!(CapRange::new(None, Some(w("-1")), None).max(), None);
    assert_eq!(CapRange::new(Some(w("300")), Some(w("270")), None).min(), None);
    assert_eq!(CapRange::new(Some(Watts::ZERO), Some(w("270")), None).min(), None);
}

#[test]
fn the_port_and_the_core_know_the_same_of_a_range() {
    let watts = [0, 1, 28, 35, 75, 270, 4_000];
    let micro = |watts: i32| power_units::MicroWatts::new(u64::from(watts.unsigned_abs()) * 1_000_000);
    let span = power_hal::Span { floor: micro(1), ceiling: micro(4_095) };
    let bounds = || watts.into_iter().map(Some).chain([None]);
    for (min, max) in bounds().flat_map(|min| bounds().map(move |max| (min, max))) {
        let port =
            power_hal::Limit::new(span, micro(0)).unwrap().known(min.map(micro), max.map(micro)).unwrap();
        let core = CapRange::new(min.map(Watts::from_int), max.map(Watts::from_int), None);
        let of_core = |bound: Option<Watts>| bound.map(|watts| micro((watts.to_bits() >> 32) as i32));
        assert_eq!(
            (port.min(), port.max()),
            (of_core(core.min()), of_core(core.max())),
            "{min:?} to {max:?}"
        );
    }
}

#[test]
fn a_cap_is_clamped_into_what_the_package_can_do() {
    // Fix list agent S16: 5000 W, the chart's default for full power, on a package of 270 W.
    let on = |watts: &str| CapIntent::of_watts(w(watts)).resolve(range(50, 270), Floor::NONE);
    assert_eq!(on("5000"), target("5000", "270"));
    assert_eq!(on("20"), target("20", "50"));
    let percent = |text: &str| CapIntent::of_percent(pct(text)).resolve(range(50, 270), Floor::NONE);
    assert_eq!(percent("120"), target("324", "270"));
    assert_eq!(percent("10"), target("27", "50"));
    let unknown = CapIntent::of_watts(w("5000")).resolve(CapRange::UNKNOWN, Floor::NONE);
    assert_eq!(unknown, target("5000", "5000"), "what nobody knows clamps nothing; the read-back tells");
}

#[test]
fn the_nodes_own_floor_is_never_undercut() {
    let floor = Floor::new(w("120")).unwrap();
    let on = |intent: CapIntent, range| intent.resolve(range, floor);
    assert_eq!(on(CapIntent::of_watts(w("60")), range(50, 270)), target("60", "120"));
    assert_eq!(on(CapIntent::of_watts(w("60")), CapRange::UNKNOWN), target("60", "120"));
    assert_eq!(on(CapIntent::of_percent(pct("1")), range(50, 270)), target("2.7", "120"));
    let forbidden = on(CapIntent::of_watts(w("60")), range(20, 100));
    assert_eq!(forbidden, Resolution::Blocked(Blocked::FloorAboveMax));
    assert_eq!(Floor::new(w("-1")), Err(FloorError));
}

#[test]
fn no_cap_is_above_the_limit_that_the_owner_has_set() {
    let floor = |watts: &str| Floor::new(w(watts)).unwrap();
    let on =
        |intent: CapIntent, owners: &str, floor| intent.resolve(range(50, 270).below(Some(w(owners))), floor);
    let watts = |watts: &str| CapIntent::of_watts(w(watts));
    assert_eq!(on(watts("180"), "200", Floor::NONE), target("180", "180"));
    assert_eq!(on(watts("220"), "200", Floor::NONE), target("220", "200"));
    assert_eq!(on(watts("5000"), "4095.875", Floor::NONE), target("5000", "270"), "which limits nothing");
    // 80 % of 270 W, and not of 200.
    assert_eq!(on(CapIntent::of_percent(pct("80")), "200", Floor::NONE), target("216", "200"));
    assert_eq!(on(watts("60"), "200", floor("120")), target("60", "120"));
    assert_eq!(on(watts("220"), "120", floor("120")), target("220", "120"));
    assert_eq!(on(watts("220"), "0", Floor::NONE), target("220", "220"), "0 W is no limit");
    let unknown = watts("220").resolve(range(50, 270).below(None), Floor::NONE);
    assert_eq!(unknown, target("220", "220"));
}

#[test]
fn an_owners_limit_below_what_a_cap_may_be_holds_as_it_was_found() {
    let on = |asked: &str, owners: &str, floor: &str| {
        let range = range(50, 270).below(Some(w(owners)));
        CapIntent::of_watts(w(asked)).resolve(range, Floor::new(w(floor)).unwrap())
    };
    let found = |requested: &str, effective: &str| {
        Resolution::Watts(ResolvedCap { requested: w(requested), effective: w(effective), as_found: true })
    };
    assert_eq!(on("220", "80", "100"), found("220", "80"));
    assert_eq!(on("80", "80", "100"), found("80", "80"));
    // The floor raises what is asked, but nothing raises it above the owner's limit.
    assert_eq!(on("60", "80", "100"), found("60", "80"));
    assert_eq!(on("20", "40", "0"), found("20", "40"), "the least that the device takes is 50 W");
    // The floor is above the device's maximum, and its owner's limit holds all the same.
    assert_eq!(on("220", "80", "300"), found("220", "80"));
    assert_eq!(on("220", "4000", "300"), Resolution::Blocked(Blocked::FloorAboveMax));
}

#[test]
fn no_cap_rises_where_nobody_knows_what_its_owner_has_set() {
    let on = |asked: &str, stands: Option<Watts>| {
        let floor = Floor::new(w("100.5")).unwrap();
        CapIntent::of_watts(w(asked)).resolve(range(50, 270).no_more_than(stands), floor)
    };
    assert_eq!(on("220", Some(w("120"))), target("220", "120"));
    assert_eq!(on("110", Some(w("120"))), target("110", "110"));
    assert_eq!(on("220", Some(w("100"))), target("220", "100.5"), "a device of whole watts, at the floor");
    assert_eq!(on("220", None), target("220", "220"));
}

#[test]
fn no_cap_is_below_a_watt() {
    let half_a_watt = CapRange::new(Some(w("0.5")), Some(w("270")), None);
    for intent in [CapIntent::of_watts(Watts::from_bits(1)), CapIntent::of_percent(Percent::from_bits(1))] {
        for range in [half_a_watt, range(0, 270)] {
            let Resolution::Watts(target) = intent.resolve(range, Floor::NONE) else { panic!("{intent:?}") };
            assert_eq!(target.effective(), CAP_LEAST);
        }
    }
}

#[test]
fn caps_are_per_package() {
    // Fix list agent S4: 100 W per package are 200 W for a node of two.
    let Resolution::Watts(one) = CapIntent::of_watts(w("100")).resolve(range(50, 270), Floor::NONE) else {
        panic!()
    };
    assert_eq!(one.and(one).effective(), w("200"));
    let result = CapResult::of_all([one.result(one), one.result(one)]);
    assert_eq!(result, Some(CapResult::Applied { effective: w("200") }));
}

#[test]
fn what_is_read_back_decides() {
    // Fix list agent S17: the error code of a write proves nothing about what is in force.
    let asked = ResolvedCap { requested: w("100.123456"), effective: w("100.123456"), as_found: false };
    let stands = |found: &str| asked.read_back(w(found), Floor::NONE).map(|as_is| asked.result(as_is));
    assert_eq!(stands("100"), Ok(CapResult::Applied { effective: w("100") }));
    assert_eq!(stands("100.123456"), Ok(CapResult::Applied { effective: w("100.123456") }));
    let clamped = CapResult::Clamped { requested: w("100.123456"), effective: w("90") };
    assert_eq!(stands("90"), Ok(clamped), "another limit is stricter");
    assert_eq!(stands("250"), Err(ErrorKind::Locked), "the write was ignored");
    assert_eq!(stands("0"), Err(ErrorKind::BadData), "the write wrapped");
}

#[test]
fn what_is_read_back_below_the_nodes_own_floor_does_not_stand() {
    let asked = ResolvedCap { requested: w("100"), effective: w("100"), as_found: false };
    let stands = |found: &str, floor| asked.read_back(w(found), Floor(w(floor))).map(ResolvedCap::effective);
    assert_eq!(stands("75", "75"), Ok(w("75")));
    assert_eq!(stands("74.99", "75.9"), Ok(w("74.99")), "a device that takes whole watts");
    assert_eq!(stands("74", "75"), Err(ErrorKind::Busy));
    assert_eq!(stands("1", "75"), Err(ErrorKind::Busy));
    assert_eq!(stands("1", "0"), Ok(w("1")));
}

#[test]
fn a_change_by_resolution_is_said_however_small() {
    let lifted = ResolvedCap { requested: w("99.5"), effective: w("100"), as_found: false };
    assert_eq!(lifted.result(lifted), CapResult::Clamped { requested: w("99.5"), effective: w("100") });
    let lowered = ResolvedCap { requested: w("270.5"), effective: w("270"), as_found: false };
    assert_eq!(lowered.result(lowered), CapResult::Clamped { requested: w("270.5"), effective: w("270") });
}

fn results() -> [CapResult; 6] {
    [
        CapResult::Applied { effective: w("100") },
        CapResult::Clamped { requested: w("50"), effective: w("75") },
        CapResult::Blocked(Blocked::NotPositive),
        CapResult::Blocked(Blocked::NoBackend),
        CapResult::Failed(ErrorKind::Locked),
        CapResult::Failed(ErrorKind::Io),
    ]
}

#[test]
fn the_verdict_is_the_worst_of_the_packages_whatever_their_order() {
    let worst = results();
    for (i, a) in worst.into_iter().enumerate() {
        for (j, b) in worst.into_iter().enumerate() {
            let verdict = CapResult::of_all([a, b]).unwrap();
            let expected = match (i.min(j), i.max(j)) {
                (0, 0) => CapResult::Applied { effective: w("200") },
                (0, 1) => CapResult::Clamped { requested: w("150"), effective: w("175") },
                (1, 1) => CapResult::Clamped { requested: w("100"), effective: w("150") },
                (_, high) => worst[high],
            };
            assert_eq!(verdict, expected, "{a:?} and {b:?}");
        }
    }
    assert_eq!(CapResult::of_all([]), None);
}

#[test]
fn status_and_metrics_get_the_words_they_know() {
    let words: std::vec::Vec<_> = results().into_iter().map(CapResult::word).collect();
    assert_eq!(words, ["applied", "applied", "blocked", "blocked", "error", "error"]);
    assert_eq!([Backend::None, Backend::Rapl, Backend::Dvfs].map(Backend::word), ["none", "rapl", "dvfs"]);
    assert_eq!(Blocked::NoGpus.to_string(), "node has no allocatable GPU resources");
    assert!(Blocked::NoRange.to_string().contains("cannot resolve capPctOfMax"));
    let clamped = CapResult::Clamped { requested: w("20"), effective: w("50") };
    assert_eq!(clamped.to_string(), "asked for 20.000 W, 50.000 W are in force");
    assert_eq!(CapResult::refused(ErrorKind::NotSupported), CapResult::Blocked(Blocked::NoBackend));
    assert_eq!(CapResult::refused(ErrorKind::Locked), CapResult::Failed(ErrorKind::Locked));
}

fn any_watts() -> impl Strategy<Value = Option<Watts>> {
    prop_oneof![
        Just(None),
        any::<i64>().prop_map(|bits| Some(Watts::from_bits(bits))),
        (-10_i64..1_000_000).prop_map(|milli| Some(Watts::from_bits(milli * (1 << 32) / 1_000))),
    ]
}

fn any_range() -> impl Strategy<Value = CapRange> {
    (any_watts(), any_watts(), any_watts()).prop_map(|(min, max, original)| CapRange::new(min, max, original))
}

fn any_floor() -> impl Strategy<Value = Floor> {
    any_watts().prop_map(|watts| Floor(watts.unwrap_or(Watts::ZERO).or_zero()))
}

proptest! {
    #[test]
    fn a_cap_exceeds_what_was_asked_only_when_lifted_to_a_minimum(
        watts in any_watts(), bits in any::<i64>(), range in any_range(), floor in any_floor(),
    ) {
        let intent = CapIntent { watts, percent: Some(Percent::from_bits(bits)) };
        if let Resolution::Watts(target) = intent.resolve(range, floor) {
            let lowest = floor.watts().max(range.min().unwrap_or(CAP_LEAST)).max(CAP_LEAST);
            prop_assert!(target.effective() <= target.requested() || target.effective() == lowest);
            prop_assert!(target.effective() >= floor.watts() && target.effective() >= CAP_LEAST);
            prop_assert!(range.max().is_none_or(|max| target.effective() <= max));
            if target.effective() != target.requested() {
                let said = matches!(target.result(target), CapResult::Clamped { .. });
                prop_assert!(said);
            }
        }
    }

    #[test]
    fn who_asks_for_more_never_gets_less(
        a in any::<i64>(), b in any::<i64>(), by_percent in any::<bool>(), range in any_range(), floor in any_floor(),
    ) {
        let resolve = |bits| {
            let intent = if by_percent {
                CapIntent::of_percent(Percent::from_bits(bits))
            } else {
                CapIntent::of_watts(Watts::from_bits(bits))
            };
            intent.resolve(range, floor)
        };
        if let (Resolution::Watts(less), Resolution::Watts(more)) = (resolve(a.min(b)), resolve(a.max(b))) {
            prop_assert!(less.effective() <= more.effective());
            prop_assert!(less.requested() <= more.requested());
        }
    }

    #[test]
    fn a_part_of_a_maximum_is_rounded_down_by_less_than_one_bit(max in any::<i64>(), percent in 1_i64..(200 << 32)) {
        prop_assume!(max > 0);
        let part = i128::from(Watts::from_bits(max).part(Percent::from_bits(percent), Percent::HUNDRED, Role::Limit).unwrap().to_bits());
        let exact = i128::from(max) * i128::from(percent);
        let whole = 100_i128 << 32;
        prop_assert!(part * whole <= exact);
        prop_assert!(part == i128::from(i64::MAX) || (part + 1) * whole > exact);
    }

    #[test]
    fn less_speed_is_more_throttle(a in any::<i64>(), b in any::<i64>()) {
        let (less, more) = (Percent::from_bits(a.min(b)), Percent::from_bits(a.max(b)));
        prop_assert!(ThrottlePercent::leaving(less) >= ThrottlePercent::leaving(more));
    }

    #[test]
    fn nothing_is_read_back_as_more_than_was_written(asked in 1_i64..(1 << 50), found in any::<i64>(), floor in any_floor()) {
        let target = ResolvedCap { requested: Watts::from_bits(asked), effective: Watts::from_bits(asked), as_found: false };
        if let Ok(as_is) = target.read_back(Watts::from_bits(found), floor) {
            prop_assert!(!floor.is_undercut_by(as_is.effective()));
            prop_assert!(as_is.effective() <= target.effective() && as_is.effective() > Watts::ZERO);
        }
    }
}
