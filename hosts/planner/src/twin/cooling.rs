//! Cooling stress: "predicted fraction of cooling capacity in use", from an exchangeable model.
//!
//! [`MeasuredPower`] is the default: the power divided by the uncapped rating, with the capacity derated by the
//! room's temperature; [`CapacityTable`] does the same with a derating of the site's own. [`Linear`] needs no meter: it
//! divides the power that the caps allow by a reference.

mod table;

pub use table::{BadTable, CapacityTable, POINTS_MOST};

use crate::facility::{Aged, Room};
use crate::power::{Grounds, NodeDraw};
use crate::share::percent_of;
use power_units::{Celsius, Kelvins, Percent, Ratio, Role, Watts};
use std::fmt;

/// The input of a cooling model for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoolingFacts {
    /// Its power.
    pub draw: NodeDraw,
    /// Its uncapped rating; positive.
    pub rating: Watts,
    /// Its capped rating.
    pub capped: Watts,
    /// The temperature around it.
    pub room: Room,
}

impl CoolingFacts {
    /// The temperature, if there is a thermometer, and how far a decision may rely on that: without a thermometer it is
    /// assumed to be mild, and one that fell silent is good for keeping work away alone. `None` where there is one that
    /// has not said anything.
    fn ambient(&self) -> Option<(Option<Celsius>, Grounds)> {
        match self.room {
            Room::Unknown => None,
            Room::Unmetered => Some((None, Grounds::Modelled)),
            Room::Known(Aged { value, fresh: true, .. }) => Some((Some(value), Grounds::Measured)),
            Room::Known(Aged { value, fresh: false, .. }) => Some((Some(value), Grounds::WorstCase)),
        }
    }
}

/// The used percentage of the cooling, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoolingStress {
    /// The percentage.
    pub percent: Percent,
    /// Its grounds.
    pub grounds: Grounds,
}

/// A model of the cooling.
///
/// # Contract
/// The stress lies between 0 and 100, does not fall when the power, the capped power or the temperature rises, and is
/// `None` when an input of the model is missing.
pub trait CoolingModel {
    /// The stress of a node.
    fn stress(&self, facts: &CoolingFacts) -> Option<CoolingStress>;
}

/// measured / rating · m · 100 with m = 1 / max(0.5, 1 − 0.02 · (T − 20 °C)), and m = 1 without a thermometer: then the
/// score counts as modelled, even if the power was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredPower;

impl CoolingModel for MeasuredPower {
    fn stress(&self, facts: &CoolingFacts) -> Option<CoolingStress> {
        of_power(facts, |ambient| ambient.map_or(Ratio::ONE, capacity_at))
    }
}

/// The power as a part of what can be cooled; `share` is how much of the rating that is, with the temperature if there is a
/// thermometer.
fn of_power(facts: &CoolingFacts, share: impl Fn(Option<Celsius>) -> Ratio) -> Option<CoolingStress> {
    let (drawn, of_draw) = facts.draw.watts().zip(facts.draw.grounds())?;
    let (ambient, of_room) = facts.ambient()?;
    let grounds = of_draw.max(of_room);
    let capacity = facts.rating.scale(share(ambient), Role::Limit);
    let percent = percent_of(drawn, capacity, Role::Demand)?;
    Some(CoolingStress { percent: percent.within(Percent::ZERO, Percent::HUNDRED), grounds })
}

const MILD: Celsius = Celsius::from_int(20);

/// The share of the rating that can be cooled: all of it at 20 °C, 2 % less for each degree above, at least half.
fn capacity_at(ambient: Celsius) -> Ratio {
    let lost = (ambient - MILD).ratio_to(Kelvins::from_int(50), Role::Demand).unwrap_or(Ratio::MAX);
    (Ratio::ONE - lost).max(HALF)
}

const HALF: Ratio = Ratio::from_bits(1 << 31);

/// capped / reference · 80 + max(0, T − 20 °C) · 0.5: linear in the power that the caps allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    reference: Watts,
}

/// The power that uses 80 % of the cooling, in the linear model.
pub const REFERENCE: Watts = Watts::from_int(4_000);

/// A reference that is not positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoReference;

impl fmt::Display for NoReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reference power of the linear cooling model must be above 0 W")
    }
}

impl std::error::Error for NoReference {}

impl Linear {
    /// Compares with `reference`.
    ///
    /// # Errors
    /// When the reference is not positive.
    pub fn new(reference: Watts) -> Result<Self, NoReference> {
        if reference > Watts::ZERO { Ok(Self { reference }) } else { Err(NoReference) }
    }
}

impl CoolingModel for Linear {
    fn stress(&self, facts: &CoolingFacts) -> Option<CoolingStress> {
        let of_power = percent_of(facts.capped, self.reference, Role::Demand)?;
        let (ambient, of_ambient) = facts.ambient()?;
        let warmer = ambient.map_or(Kelvins::ZERO, |ambient| (ambient - MILD).or_zero());
        // Half a percent for each degree; both quantities have the same bit scale of 2⁻³².
        let of_room = Percent::from_bits(warmer.to_bits() / 2);
        let percent = of_power.scale(FOUR_FIFTHS, Role::Demand) + of_room;
        let grounds = of_ambient.max(Grounds::Modelled);
        Some(CoolingStress { percent: percent.within(Percent::ZERO, Percent::HUNDRED), grounds })
    }
}

/// 0.8, rounded up.
const FOUR_FIFTHS: Ratio = Ratio::from_bits(3_435_973_837);

/// The configured model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cooling {
    /// [`MeasuredPower`].
    Measured(MeasuredPower),
    /// [`Linear`].
    Linear(Linear),
    /// [`CapacityTable`].
    Table(CapacityTable),
}

impl CoolingModel for Cooling {
    fn stress(&self, facts: &CoolingFacts) -> Option<CoolingStress> {
        match self {
            Self::Measured(model) => model.stress(facts),
            Self::Linear(model) => model.stress(facts),
            Self::Table(model) => model.stress(facts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::estimate::{Basis, DrawEstimate};
    use crate::power::{NoMeasurement, NodeReading, PowerMeter};
    use power_units::Micros;
    use proptest::prelude::*;

    fn facts(drawn: Watts, rating: i32, capped: i32, ambient: Option<Celsius>) -> CoolingFacts {
        let draw = NodeDraw::Measured { meter: PowerMeter::Agent, watts: drawn, age: Micros::ZERO };
        let room = ambient.map_or(Room::Unmetered, |value| known(value, true));
        CoolingFacts { draw, rating: Watts::from_int(rating), capped: Watts::from_int(capped), room }
    }

    fn known(value: Celsius, fresh: bool) -> Room {
        Room::Known(Aged { value, age: Micros::ZERO, fresh })
    }

    #[test]
    fn a_thermometer_that_fell_silent_keeps_work_away_and_is_no_reason_to_move_any() {
        let hot = Celsius::from_int(40);
        for model in models() {
            let stress =
                |room| model.stress(&CoolingFacts { room, ..facts(Watts::from_int(350), 700, 700, None) });
            let (fresh, stale) = (stress(known(hot, true)).unwrap(), stress(known(hot, false)).unwrap());
            assert_eq!((fresh.percent, stale.grounds), (stale.percent, Grounds::WorstCase));
            assert!(fresh.grounds < Grounds::WorstCase);
            // One that never said anything does not count as mild.
            assert_eq!(stress(Room::Unknown), None);
        }
    }

    fn models() -> [Cooling; 3] {
        let linear = Linear::new(REFERENCE).unwrap();
        let table = table(&[(18, "100"), (27, "80"), (35, "40")]).unwrap();
        [Cooling::Measured(MeasuredPower), Cooling::Linear(linear), Cooling::Table(table)]
    }

    fn table(points: &[(i32, &str)]) -> Result<CapacityTable, BadTable> {
        let point = |&(degrees, share): &(i32, &str)| {
            (Celsius::from_int(degrees), Percent::parse(share, Role::Limit).unwrap())
        };
        CapacityTable::new(&points.iter().map(point).collect::<Vec<_>>())
    }

    #[test]
    fn a_table_says_what_can_be_cooled_at_each_temperature() {
        let [.., model] = models();
        let at = |ambient: Option<i32>| {
            let facts = facts(Watts::from_int(350), 700, 700, ambient.map(Celsius::from_int));
            model.stress(&facts).unwrap().percent
        };
        // 350 W of 700 W are 50 % where all can be cooled: 50/0.8, 50/0.6 half way from 80 to 40 %, and more than 100 %.
        assert!(close(at(Some(-10)), "50") && close(at(Some(18)), "50"));
        assert!(close(at(Some(27)), "62.5"));
        assert!(close(at(Some(31)), "83.333333"));
        assert!(close(at(Some(35)), "100") && close(at(Some(60)), "100"));
        // 20 °C: 100 − 20 · 2/9 = 95.5556 %.
        assert!(close(at(Some(20)), "52.325581") && close(at(None), "52.325581"));
        let alone = table(&[(25, "50")]).unwrap();
        let facts = |ambient| facts(Watts::from_int(350), 1_400, 700, Some(Celsius::from_int(ambient)));
        assert!(
            [-20, 25, 60].iter().all(|&ambient| close(alone.stress(&facts(ambient)).unwrap().percent, "50"))
        );
    }

    #[test]
    fn what_is_no_table_of_the_cooling_is_refused() {
        assert_eq!(table(&[]), Err(BadTable::Count));
        let many: Vec<(i32, &str)> = (0..9).map(|degrees| (degrees, "50")).collect();
        assert_eq!((table(&many), table(&many[1..]).is_ok()), (Err(BadTable::Count), true));
        assert_eq!(table(&[(20, "0")]), Err(BadTable::Share));
        assert_eq!(table(&[(20, "100.1")]), Err(BadTable::Share));
        assert_eq!(table(&[(20, "100"), (20, "80")]), Err(BadTable::Order));
        assert_eq!(table(&[(20, "80"), (30, "90")]), Err(BadTable::Order));
    }

    fn close(percent: Percent, expected: &str) -> bool {
        let off = (percent - Percent::parse(expected, Role::Nearest).unwrap()).abs();
        off < Percent::parse("0.0001", Role::Nearest).unwrap()
    }

    fn measured_at(ambient: Option<i32>) -> Percent {
        let facts = facts(Watts::from_int(350), 700, 700, ambient.map(Celsius::from_int));
        MeasuredPower.stress(&facts).unwrap().percent
    }

    #[test]
    fn there_is_no_jump_at_freezing() {
        // Fix list operator B24. m = 1/(1 − 0.02·(T − 20)): 1/1.4 at 0 °C, 1/1.5 at −5 °C; 350 W of 700 W are 50 % at
        // m = 1.
        assert!(close(measured_at(Some(0)), "35.7142857"));
        assert!(close(measured_at(Some(-5)), "33.3333333"));
        assert!(close(measured_at(Some(1)), "36.2318841"));
        assert!(close(measured_at(Some(20)), "50"));
        assert!(close(measured_at(Some(45)), "100"));
        assert!(close(measured_at(None), "50"));
    }

    #[test]
    fn a_score_is_no_better_known_than_the_room() {
        let grounds = |ambient| {
            let facts = facts(Watts::from_int(350), 700, 700, ambient);
            MeasuredPower.stress(&facts).unwrap().grounds
        };
        assert_eq!(grounds(Some(Celsius::from_int(20))), Grounds::Measured);
        assert_eq!(grounds(None), Grounds::Modelled);
        // A worst case stays a worst case at any temperature.
        let estimate = DrawEstimate { basis: Basis::Static, watts: Watts::from_int(350) };
        let blind = CoolingFacts {
            draw: NodeReading::Absent(NoMeasurement::HttpError).or_estimate(Some(estimate)),
            ..facts(Watts::ZERO, 700, 700, None)
        };
        assert_eq!(MeasuredPower.stress(&blind).unwrap().grounds, Grounds::WorstCase);
    }

    #[test]
    fn the_linear_model_takes_the_caps_and_the_room() {
        // Table C15, twin v0.1.0: 3920 W of caps and 2352 W of caps against 4000 W.
        let linear = Linear::new(REFERENCE).unwrap();
        let stress = |capped, ambient| {
            let facts = facts(Watts::ZERO, 3_920, capped, ambient);
            linear.stress(&facts).unwrap().percent
        };
        assert!(close(stress(2_352, None), "47.04"));
        assert!(close(stress(2_352, Some(Celsius::from_int(0))), "47.04"));
        assert!(close(stress(2_352, Some(Celsius::from_int(25))), "49.54"));
        assert!(close(stress(2_352, Some(Celsius::from_int(40))), "57.04"));
        assert!(close(stress(3_920, None), "78.4"));
        assert_eq!(Linear::new(Watts::ZERO), Err(NoReference));
        assert_eq!(Linear::new(Watts::from_int(-1)), Err(NoReference));
    }

    #[test]
    fn the_measured_model_knows_nothing_of_an_unknown_draw() {
        let blind = CoolingFacts {
            draw: NodeDraw::Unknown { failing: NoMeasurement::HttpError },
            ..facts(Watts::ZERO, 700, 700, None)
        };
        assert_eq!(MeasuredPower.stress(&blind), None);
    }

    proptest! {
        #[test]
        fn every_model_keeps_the_contract(
            (drawn, more) in (0_i64..i64::MAX / 2, 0_i64..i64::MAX / 2),
            rating in 1_i32..20_000,
            (cap, capped) in (0_i32..=100, 0_i32..=100),
            (degrees, warmer) in (-60_i32..100, 0_i32..60),
        ) {
            let capped_at = |percent: i32| i32::try_from(i64::from(rating) * i64::from(percent) / 100).unwrap();
            let (low, high) = (capped_at(cap.min(capped)), capped_at(cap.max(capped)));
            let room = |degrees| Some(Celsius::from_int(degrees));
            for model in models() {
                let stress = |drawn, capped, ambient| {
                    model.stress(&facts(Watts::from_bits(drawn), rating, capped, ambient)).unwrap().percent
                };
                let here = stress(drawn, low, room(degrees));
                prop_assert!(Percent::ZERO <= here && here <= Percent::HUNDRED);
                prop_assert!(stress(drawn + more, low, room(degrees)) >= here);
                prop_assert!(stress(drawn, high, room(degrees)) >= here);
                prop_assert!(stress(drawn, low, room(degrees + warmer)) >= here);
            }
        }
    }
}
