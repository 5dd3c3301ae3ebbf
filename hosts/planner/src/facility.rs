//! The building: ambient temperature, the power of the machines, the power of their cooling, and the real power
//! usage effectiveness.
//!
//! A failed query keeps the last good value, with its age; it never becomes zero. 0 °C is a valid temperature. Every value
//! has the time stamp of its own source, and its age is checked at each query. A value that is older than the *hold* is
//! stale: it may still make a node look worse, and never better, so that no node becomes attractive because a sensor fell
//! silent. After a day it is forgotten.

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
    /// Whether that is no longer ago than values hold.
    pub fresh: bool,
}

impl<T> Aged<T> {
    fn map<U>(self, with: impl FnOnce(T) -> U) -> Aged<U> {
        Aged { value: with(self.value), age: self.age, fresh: self.fresh }
    }
}

/// What is known of the temperature around a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is no thermometer.
    Unmetered,
    /// There is one, and it has said nothing within a day.
    Unknown,
    /// The temperature.
    Known(Aged<Celsius>),
}

/// A value is forgotten after a day.
const KEPT: Micros = Micros::new(86_400_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dated<T> {
    value: T,
    at: Stamp,
}

impl<T: Copy> Dated<T> {
    /// The value if it is not forgotten, and not dated after `now` because a clock was set back.
    fn at(self, now: Stamp, hold: Micros) -> Option<Aged<T>> {
        let age = now.since(self.at)?;
        (age <= KEPT).then_some(Aged { value: self.value, age, fresh: age <= hold })
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
    has_thermometer: bool,
    ambient: Option<Dated<Celsius>>,
    it_power: Option<Dated<Watts>>,
    cooling_power: Option<Dated<Watts>>,
    zones: BTreeMap<String, Dated<Celsius>>,
    racks: BTreeMap<String, Dated<Watts>>,
}

const COLDEST: Celsius = Celsius::from_int(-60);
const HOTTEST: Celsius = Celsius::from_int(100);

impl Facility {
    /// Without any values; `has_thermometer` says whether a temperature is to be expected.
    #[must_use]
    pub fn new(has_thermometer: bool) -> Self {
        Self { has_thermometer, ..Self::default() }
    }

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

    /// Removes the zones and racks that are forgotten.
    pub fn expire(&mut self, now: Stamp) {
        self.zones.retain(|_, dated| dated.at(now, KEPT).is_some());
        self.racks.retain(|_, dated| dated.at(now, KEPT).is_some());
    }

    /// The values at `now`; those that are at most `hold` old are fresh.
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
    /// The ambient temperature of a zone, or of the building if the zone's is unknown. While a zone's thermometer is
    /// silent, the warmer of the two counts.
    #[must_use]
    pub fn ambient(&self, zone: Option<&str>) -> Room {
        let of_zone = self.of(zone.and_then(|zone| self.facility.zones.get(zone)).copied());
        let of_building = self.of(self.facility.ambient);
        let known = match (of_zone, of_building) {
            (Some(zone), Some(building)) if !zone.fresh => {
                Some(Aged { value: zone.value.max(building.value), ..zone })
            }
            (Some(zone), _) => Some(zone),
            (None, building) => building,
        };
        match known {
            Some(known) => Room::Known(known),
            None if self.facility.has_thermometer => Room::Unknown,
            None => Room::Unmetered,
        }
    }

    /// Every value that is not forgotten.
    pub fn values(&self) -> impl Iterator<Item = Aged<Observation<'_>>> {
        let Facility { has_thermometer: _, ambient, it_power, cooling_power, zones, racks } = self.facility;
        let of_building = [
            self.of(*ambient).map(|it| it.map(Observation::Ambient)),
            self.of(*it_power).map(|it| it.map(Observation::ItPower)),
            self.of(*cooling_power).map(|it| it.map(Observation::CoolingPower)),
        ];
        let zones = zones.iter().filter_map(|(zone, dated)| {
            Some(self.of(Some(*dated))?.map(|degrees| Observation::ZoneAmbient(zone, degrees)))
        });
        let racks = racks.iter().filter_map(|(rack, dated)| {
            Some(self.of(Some(*dated))?.map(|watts| Observation::RackPower(rack, watts)))
        });
        of_building.into_iter().flatten().chain(zones).chain(racks)
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
        Some(Aged { value, age: it.age.max(cooling.age), fresh: it.fresh && cooling.fresh })
    }

    fn of<T: Copy>(&self, dated: Option<Dated<T>>) -> Option<Aged<T>> {
        dated.and_then(|dated| dated.at(self.now, self.hold))
    }
}

#[cfg(test)]
mod tests;
