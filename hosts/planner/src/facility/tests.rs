use super::*;

const HOLD: Micros = Micros::new(300_000_000);

fn at(seconds: u64) -> Stamp {
    Stamp::new(Micros::new(seconds * 1_000_000))
}

fn facility(observations: &[(u64, Observation<'_>)]) -> Facility {
    let mut facility = Facility::default();
    for &(seconds, observation) in observations {
        facility.record(at(seconds), at(seconds), observation).unwrap();
    }
    facility
}

fn celsius(value: i32) -> Observation<'static> {
    Observation::Ambient(Celsius::from_int(value))
}

fn known(facility: &Facility, now: u64, zone: Option<&str>) -> Option<(Celsius, bool)> {
    match facility.at(at(now), HOLD).ambient(zone) {
        Room::Known(aged) => Some((aged.value, aged.fresh)),
        Room::Unknown | Room::Unmetered => None,
    }
}

#[test]
fn a_failed_query_leaves_the_last_good_value_which_turns_stale_and_is_forgotten_after_a_day() {
    // Fix list operator B24.
    let facility = facility(&[(0, celsius(31))]);
    let degrees = Celsius::from_int(31);
    let aged =
        |age: u64, fresh| Room::Known(Aged { value: degrees, age: Micros::new(age * 1_000_000), fresh });
    let ambient = |now| facility.at(at(now), HOLD).ambient(None);
    assert_eq!(ambient(0), aged(0, true));
    assert_eq!(ambient(300), aged(300, true));
    assert_eq!(ambient(301), aged(301, false));
    assert_eq!(ambient(86_400), aged(86_400, false));
    assert_eq!(ambient(86_401), Room::Unmetered);
}

#[test]
fn a_thermometer_that_says_nothing_is_not_the_same_as_none() {
    let room = |facility: &Facility| facility.at(at(1), HOLD).ambient(Some("hot"));
    assert_eq!(room(&Facility::default()), Room::Unmetered);
    assert_eq!(room(&Facility::new(true)), Room::Unknown);
    let mut facility = Facility::new(true);
    facility.record(at(0), at(0), celsius(20)).unwrap();
    assert!(matches!(room(&facility), Room::Known(_)));
}

#[test]
fn freezing_is_a_temperature() {
    // Fix list operator B24.
    for degrees in [0, -5, -40] {
        let facility = facility(&[(0, celsius(degrees))]);
        assert_eq!(known(&facility, 1, None), Some((Celsius::from_int(degrees), true)));
    }
}

#[test]
fn what_no_sensor_says_is_refused_and_changes_nothing() {
    // Fix list operator B26.
    let mut facility = facility(&[
        (0, celsius(25)),
        (0, Observation::ItPower(Watts::from_int(1_000))),
        (0, Observation::CoolingPower(Watts::from_int(1))),
    ]);
    let before = facility.clone();
    let mut refused = |observation| facility.record(at(5), at(5), observation).unwrap_err();
    assert_eq!(refused(celsius(-61)), Impossible::Temperature);
    assert_eq!(refused(celsius(101)), Impossible::Temperature);
    assert_eq!(refused(Observation::ZoneAmbient("a", Celsius::from_int(i32::MAX))), Impossible::Temperature);
    assert_eq!(refused(Observation::ItPower(Watts::ZERO)), Impossible::Power);
    assert_eq!(refused(Observation::ItPower(Watts::MIN)), Impossible::Power);
    assert_eq!(refused(Observation::CoolingPower(Watts::ZERO)), Impossible::Power);
    assert_eq!(refused(Observation::CoolingPower(Watts::from_int(-1))), Impossible::Power);
    assert_eq!(refused(Observation::RackPower("r", Watts::ZERO)), Impossible::Power);
    assert_eq!(facility, before);
}

#[test]
fn a_zone_has_its_own_climate_and_an_unknown_zone_has_the_buildings() {
    // Fix list operator B23.
    let facility = facility(&[(0, celsius(22)), (0, zone("hot", 38))]);
    let degrees = |zone| known(&facility, 10, zone).map(|(degrees, _)| degrees);
    assert_eq!(degrees(Some("hot")), Some(Celsius::from_int(38)));
    assert_eq!(degrees(Some("cold")), Some(Celsius::from_int(22)));
    assert_eq!(degrees(None), Some(Celsius::from_int(22)));
}

fn zone(name: &str, degrees: i32) -> Observation<'_> {
    Observation::ZoneAmbient(name, Celsius::from_int(degrees))
}

#[test]
fn a_zone_that_fell_silent_gets_no_cooler_and_is_not_believed_to_be_measured() {
    let building = |degrees| facility(&[(0, zone("hot", 38)), (200, celsius(degrees))]);
    let hot = |facility: &Facility| known(facility, 400, Some("hot"));
    assert_eq!(hot(&building(22)), Some((Celsius::from_int(38), false)));
    assert_eq!(hot(&building(40)), Some((Celsius::from_int(40), false)));
    // It says something again, and is as cool as it says.
    let mut back = building(22);
    back.record(at(400), at(400), zone("hot", 25)).unwrap();
    assert_eq!(hot(&back), Some((Celsius::from_int(25), true)));
}

#[test]
fn the_real_pue_needs_both_powers_and_is_as_old_as_the_older() {
    let it = Observation::ItPower(Watts::from_int(1_000));
    let cooling = Observation::CoolingPower(Watts::from_int(400));
    assert_eq!(facility(&[(0, it)]).at(at(1), HOLD).pue(), None);
    assert_eq!(facility(&[(0, cooling)]).at(at(1), HOLD).pue(), None);
    let both = facility(&[(0, it), (60, cooling)]);
    let pue = both.at(at(90), HOLD).pue().unwrap();
    assert_eq!(pue.value.to_string().get(..3), Some("1.4"));
    assert_eq!(pue.age, Micros::new(90_000_000));
    assert!(pue.fresh);
    // The last one stands, and says how old it is.
    let old = both.at(at(301), HOLD).pue().unwrap();
    assert_eq!((old.value, old.fresh), (pue.value, false));
}

#[test]
fn late_values_do_not_replace_younger_ones_and_a_clock_set_back_does_not_freeze_them() {
    let mut facility =
        facility(&[(100, celsius(30)), (100, Observation::RackPower("r", Watts::from_int(9)))]);
    facility.record(at(110), at(50), celsius(10)).unwrap();
    facility.record(at(110), at(50), Observation::RackPower("r", Watts::from_int(1))).unwrap();
    let degrees = |facility: &Facility, now| known(facility, now, None).map(|(degrees, _)| degrees);
    assert_eq!(degrees(&facility, 110), Some(Celsius::from_int(30)));
    assert_eq!(facility.at(at(110), HOLD).rack_power("r").map(|aged| aged.value), Some(Watts::from_int(9)));
    facility.record(at(20), at(20), celsius(12)).unwrap();
    assert_eq!(degrees(&facility, 20), Some(Celsius::from_int(12)));
    // A source whose clock is ahead does not keep its value fresh forever.
    facility.record(at(30), at(9_999), celsius(14)).unwrap();
    assert_eq!(known(&facility, 331, None), Some((Celsius::from_int(14), false)));
}

#[test]
fn of_two_values_for_one_moment_the_larger_stands_whichever_came_first() {
    let rack = |watts| Observation::RackPower("r", Watts::from_int(watts));
    for order in [[3, 9], [9, 3]] {
        let both: Vec<_> = order.iter().flat_map(|&v| [(100, celsius(v)), (100, rack(v))]).collect();
        let facility = facility(&both);
        assert_eq!(known(&facility, 100, None), Some((Celsius::from_int(9), true)));
        let view = facility.at(at(100), HOLD);
        assert_eq!(view.rack_power("r").map(|aged| aged.value), Some(Watts::from_int(9)));
    }
}

#[test]
fn racks_and_zones_that_are_gone_are_forgotten() {
    let mut facility = facility(&[
        (0, Observation::RackPower("old", Watts::from_int(9))),
        (0, zone("old", 9)),
        (200, Observation::RackPower("new", Watts::from_int(9))),
    ]);
    facility.expire(at(86_401));
    assert_eq!((facility.racks.len(), facility.zones.len()), (1, 0));
}
