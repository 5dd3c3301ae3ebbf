//! The measured power against what a person says can be cooled at each temperature.

use super::{CoolingFacts, CoolingModel, CoolingStress, MILD, of_power};
use power_units::{Celsius, Percent, Ratio, Role};
use std::fmt;

/// The most points of a table.
pub const POINTS_MOST: usize = 8;

/// The share of the rating that can be cooled at a temperature: on the straight line between two points, and beyond the outer
/// ones as at the nearest. Without a thermometer it is that at 20 °C, and the score counts as modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityTable {
    /// The last one is repeated to the end.
    points: [(Celsius, Percent); POINTS_MOST],
}

/// What is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTable {
    /// It has no point, or too many.
    Count,
    /// A share is not above 0 and at most 100 percent.
    Share,
    /// A temperature is not above the one before, or more can be cooled at it.
    Order,
}

impl fmt::Display for BadTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => write!(f, "a table of the cooling has 1 to {POINTS_MOST} points"),
            Self::Share => f.write_str("what can be cooled is above 0 % and at most 100 %"),
            Self::Order => {
                f.write_str("the temperatures rise from point to point, and what can be cooled does not")
            }
        }
    }
}

impl std::error::Error for BadTable {}

impl CapacityTable {
    /// A table of these points.
    ///
    /// # Errors
    /// When it is none.
    pub fn new(said: &[(Celsius, Percent)]) -> Result<Self, BadTable> {
        let last = said.last().filter(|_| said.len() <= POINTS_MOST).ok_or(BadTable::Count)?;
        if !said.iter().all(|(_, share)| *share > Percent::ZERO && *share <= Percent::HUNDRED) {
            return Err(BadTable::Share);
        }
        let falls = |pair: &[(Celsius, Percent)]| match pair {
            [(cold, more), (warm, less)] => warm > cold && less <= more,
            _ => false,
        };
        if !said.windows(2).all(falls) {
            return Err(BadTable::Order);
        }
        let mut points = [*last; POINTS_MOST];
        points.iter_mut().zip(said).for_each(|(point, said)| *point = *said);
        Ok(Self { points })
    }

    /// What can be cooled at a temperature.
    fn at(&self, ambient: Celsius) -> Percent {
        let [first, ..] = self.points;
        let mut below = first;
        for point in self.points {
            if ambient <= point.0 {
                let part = (ambient - below.0).ratio_to(point.0 - below.0, Role::Demand);
                // Two points of one temperature are the first and itself.
                let part = part.unwrap_or(Ratio::ONE).max(Ratio::ZERO);
                return below.1 - (below.1 - point.1).scale(part, Role::Demand);
            }
            below = point;
        }
        below.1
    }
}

impl CoolingModel for CapacityTable {
    fn stress(&self, facts: &CoolingFacts) -> Option<CoolingStress> {
        of_power(facts, |ambient| self.at(ambient.unwrap_or(MILD)).to_ratio(Role::Limit))
    }
}
