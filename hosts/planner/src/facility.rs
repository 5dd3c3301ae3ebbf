//! The building: ambient temperature, the power of the machines, the power of their cooling, and the real power
//! usage effectiveness.
//!
//! A failed query keeps the last good value, with its age, until it is too old; it never becomes zero. 0 °C is a valid
//! temperature. Every value has the time stamp of its own source, and its age is checked at each query.

use power_units::{Celsius, Micros, Ratio, Role, Stamp, Watts};
use std::collections::BTreeMap;
use std::fmt;

/// One value from the facility's sensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation<'a> {
    /// The ambient temperature of the building.
    Ambient(Celsius),
    /// The ambient temperature of one cooling zone.
    ZoneAmbient(&'a str, Celsius),
    /// The power of all machines.
    ItPower(Watts),
    /// The power of the cooling.
    CoolingPower(Watts),
    /// The power of one rack, unmanaged machines included.
    RackPower(&'a str, Watts),
}

/// A value that no working sensor gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// A temperature outside −60…100 °C.
    Temperature,
    /// Zero or negative power of machines, a rack or cooling. Cooling of 0 W would give the best possible
    /// effectiveness, and is what a failed meter reports.
    Power,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Temperature => f.write_str("an ambient temperature must lie between -60 and 100 °C"),
            Self::Power => f.write_str("machines, racks and cooling draw more than 0 W"),
        }
    }
}

impl std::error::Error for Impossible {}

/// A value and its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aged<T> {
    /// The value.
    pub value: T,
    /// How long ago it was measured.
    pub age: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dated<T> {
    value: T,
    at: Stamp,
}

impl<T: Copy> Dated<T> {
    /// The value if it is at most `hold` old, and not dated after `now` because a clock was set back.
    fn at(self, now: Stamp, hold: Micros) -> Option<Aged<T>> {
        let age = now.since(self.at)?;
        (age <= hold).then_some(Aged { value: self.value, age })
    }
}

/// Replaces the stored value by a newer one, or by any one after a clock was set back. Of two with the same time stamp
/// the larger is kept, so that the order of arrival does not matter.
fn renew<T: Copy + Ord>(standing: &mut Option<Dated<T>>, new: Dated<T>, now: Stamp) {
    let keep = standing.is_some_and(|old| (old.at, old.value) > (new.at, new.value) && old.at <= now);
    if !keep {
        *standing = Some(new);
    }
}

/// The last good values of a facility.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facility {
    ambient: Option<Dated<Celsius>>,
    it_power: Option<Dated<Watts>>,
    cooling_power: Option<Dated<Watts>>,
    zones: BTreeMap<String, Dated<Celsius>>,
    racks: BTreeMap<String, Dated<Watts>>,
}

const COLDEST: Celsius = Celsius::from_int(-60);
const HOTTEST: Celsius = Celsius::from_int(100);

impl Facility {
    /// Records a sensor's value of the time `at`; a time in the future counts as `now`.
    ///
    /// # Errors
    /// When no working sensor gives this value. The stored value is kept.
    pub fn record(&mut self, now: Stamp, at: Stamp, observation: Observation<'_>) -> Result<(), Impossible> {
        let at = at.min(now);
        match observation {
            Observation::Ambient(value) => renew(&mut self.ambient, Dated { value: sane(value)?, at }, now),
            Observation::ZoneAmbient(zone, value) => {
                renew_in(&mut self.zones, zone, Dated { value: sane(value)?, at }, now);
            }
            Observation::ItPower(value) => {
                renew(&mut self.it_power, Dated { value: drawing(value)?, at }, now);
            }
            Observation::CoolingPower(value) => {
                renew(&mut self.cooling_power, Dated { value: drawing(value)?, at }, now);
            }
            Observation::RackPower(rack, value) => {
                renew_in(&mut self.racks, rack, Dated { value: drawing(value)?, at }, now);
            }
        }
        Ok(())
    }

    /// Removes zones and racks without a value for `hold`.
    pub fn expire(&mut self, now: Stamp, hold: Micros) {
        self.zones.retain(|_, dated| dated.at(now, hold).is_some());
        self.racks.retain(|_, dated| dated.at(now, hold).is_some());
    }

    /// The values at `now` that are at most `hold` old.
    #[must_use]
    pub const fn at(&self, now: Stamp, hold: Micros) -> View<'_> {
        View { facility: self, now, hold }
    }
}

fn sane(value: Celsius) -> Result<Celsius, Impossible> {
    if (COLDEST..=HOTTEST).contains(&value) { Ok(value) } else { Err(Impossible::Temperature) }
}

fn drawing(value: Watts) -> Result<Watts, Impossible> {
    if value > Watts::ZERO { Ok(value) } else { Err(Impossible::Power) }
}

fn renew_in<T: Copy + Ord>(all: &mut BTreeMap<String, Dated<T>>, name: &str, new: Dated<T>, now: Stamp) {
    match all.get_mut(name) {
        Some(standing) => {
            let mut slot = Some(*standing);
            renew(&mut slot, new, now);
            *standing = slot.unwrap_or(new);
        }
        None => {
            all.insert(name.to_owned(), new);
        }
    }
}

/// A facility at one moment.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    facility: &'a Facility,
    now: Stamp,
    hold: Micros,
}

impl View<'_> {
    /// The ambient temperature of a zone, or of the building if the zone's is unknown.
    #[must_use]
    pub fn ambient(&self, zone: Option<&str>) -> Option<Aged<Celsius>> {
        let of_zone = zone.and_then(|zone| self.facility.zones.get(zone)).copied();
        self.of(of_zone).or_else(|| self.of(self.facility.ambient))
    }

    /// The power of all machines.
    #[must_use]
    pub fn it_power(&self) -> Option<Aged<Watts>> {
        self.of(self.facility.it_power)
    }

    /// The power of the cooling.
    #[must_use]
    pub fn cooling_power(&self) -> Option<Aged<Watts>> {
        self.of(self.facility.cooling_power)
    }

    /// The power of a rack, as measured by the facility.
    #[must_use]
    pub fn rack_power(&self, rack: &str) -> Option<Aged<Watts>> {
        self.of(self.facility.racks.get(rack).copied())
    }

    /// The real power usage effectiveness, (IT + cooling) / IT; its age is that of the older of the two.
    #[must_use]
    pub fn pue(&self) -> Option<Aged<Ratio>> {
        let (it, cooling) = (self.it_power()?, self.cooling_power()?);
        let value = Ratio::ONE + cooling.value.ratio_to(it.value, Role::Demand)?;
        Some(Aged { value, age: it.age.max(cooling.age) })
    }

    fn of<T: Copy>(&self, dated: Option<Dated<T>>) -> Option<Aged<T>> {
        dated.and_then(|dated| dated.at(self.now, self.hold))
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_failed_query_leaves_the_last_good_value_until_it_is_too_old() {
        // Fix list operator B24.
        let facility = facility(&[(0, celsius(31))]);
        let ambient = |now| facility.at(at(now), HOLD).ambient(None);
        let aged = |age: u64| Some(Aged { value: Celsius::from_int(31), age: Micros::new(age * 1_000_000) });
        assert_eq!(ambient(0), aged(0));
        assert_eq!(ambient(300), aged(300));
        assert_eq!(ambient(301), None);
    }

    #[test]
    fn freezing_is_a_temperature() {
        // Fix list operator B24.
        for degrees in [0, -5, -40] {
            let facility = facility(&[(0, celsius(degrees))]);
            let ambient = facility.at(at(1), HOLD).ambient(None).unwrap();
            assert_eq!(ambient.value, Celsius::from_int(degrees));
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
        assert_eq!(
            refused(Observation::ZoneAmbient("a", Celsius::from_int(i32::MAX))),
            Impossible::Temperature
        );
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
        let facility =
            facility(&[(0, celsius(22)), (0, Observation::ZoneAmbient("hot", Celsius::from_int(38)))]);
        let view = facility.at(at(10), HOLD);
        let degrees = |zone| view.ambient(zone).map(|aged| aged.value);
        assert_eq!(degrees(Some("hot")), Some(Celsius::from_int(38)));
        assert_eq!(degrees(Some("cold")), Some(Celsius::from_int(22)));
        assert_eq!(degrees(None), Some(Celsius::from_int(22)));
    }

    #[test]
    fn a_zone_that_fell_silent_has_the_buildings_climate_again() {
        let facility =
            facility(&[(0, Observation::ZoneAmbient("hot", Celsius::from_int(38))), (200, celsius(22))]);
        let view = facility.at(at(400), HOLD);
        assert_eq!(view.ambient(Some("hot")).map(|aged| aged.value), Some(Celsius::from_int(22)));
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
        assert_eq!(both.at(at(301), HOLD).pue(), None);
    }

    #[test]
    fn late_values_do_not_replace_younger_ones_and_a_clock_set_back_does_not_freeze_them() {
        let mut facility =
            facility(&[(100, celsius(30)), (100, Observation::RackPower("r", Watts::from_int(9)))]);
        facility.record(at(110), at(50), celsius(10)).unwrap();
        facility.record(at(110), at(50), Observation::RackPower("r", Watts::from_int(1))).unwrap();
        let degrees =
            |facility: &Facility, now| facility.at(at(now), HOLD).ambient(None).map(|aged| aged.value);
        assert_eq!(degrees(&facility, 110), Some(Celsius::from_int(30)));
        assert_eq!(
            facility.at(at(110), HOLD).rack_power("r").map(|aged| aged.value),
            Some(Watts::from_int(9))
        );
        facility.record(at(20), at(20), celsius(12)).unwrap();
        assert_eq!(degrees(&facility, 20), Some(Celsius::from_int(12)));
        // A source whose clock is ahead does not keep its value valid forever.
        facility.record(at(30), at(9_999), celsius(14)).unwrap();
        assert_eq!(degrees(&facility, 331), None);
    }

    #[test]
    fn of_two_values_for_one_moment_the_larger_stands_whichever_came_first() {
        let rack = |watts| Observation::RackPower("r", Watts::from_int(watts));
        for order in [[3, 9], [9, 3]] {
            let both: Vec<_> = order.iter().flat_map(|&v| [(100, celsius(v)), (100, rack(v))]).collect();
            let facility = facility(&both);
            let view = facility.at(at(100), HOLD);
            assert_eq!(view.ambient(None).map(|aged| aged.value), Some(Celsius::from_int(9)));
            assert_eq!(view.rack_power("r").map(|aged| aged.value), Some(Watts::from_int(9)));
        }
    }

    #[test]
    fn racks_and_zones_that_are_gone_are_forgotten() {
        let mut facility = facility(&[
            (0, Observation::RackPower("old", Watts::from_int(9))),
            (0, Observation::ZoneAmbient("old", Celsius::from_int(9))),
            (200, Observation::RackPower("new", Watts::from_int(9))),
        ]);
        facility.expire(at(400), HOLD);
        assert_eq!((facility.racks.len(), facility.zones.len()), (1, 0));
    }
}
