//! PSU stress: "predicted fraction of rack power capacity in use".
//!
//! What a rack draws is what the facility measures there. Without that it is the sum over its nodes, a node without
//! a meter counting with its estimate, and what unmanaged machines draw besides. A rack of which a part is unknown,
//! and a node without a rack, fall back to the power of the whole cluster against the default limit.

use super::SiteFacts;
use crate::power::{Draw, Grounds};
use crate::share::percent_of;
use power_units::{Percent, Role, Watts};
use std::collections::BTreeMap;
use std::fmt;

/// A rack carries 50 kW where nobody says otherwise.
pub const RACK_LIMIT: Watts = Watts::from_int(50_000);

/// What racks can carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PsuLimits {
    default: Watts,
    racks: BTreeMap<String, Watts>,
}

/// A limit that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLimit {
    /// Of which rack; nothing for the default.
    pub rack: Option<String>,
}

impl fmt::Display for NoLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rack {
            Some(rack) => write!(f, "the power limit of rack {rack:?} must be above 0 W"),
            None => f.write_str("the default power limit of a rack must be above 0 W"),
        }
    }
}

impl std::error::Error for NoLimit {}

impl PsuLimits {
    /// A limit for every rack, and those of particular racks.
    ///
    /// # Errors
    /// When a limit is not positive.
    pub fn new(default: Watts, racks: BTreeMap<String, Watts>) -> Result<Self, NoLimit> {
        if default <= Watts::ZERO {
            return Err(NoLimit { rack: None });
        }
        match racks.iter().find(|&(_, &limit)| limit <= Watts::ZERO) {
            Some((rack, _)) => Err(NoLimit { rack: Some(rack.clone()) }),
            None => Ok(Self { default, racks }),
        }
    }

    fn of(&self, rack: &str) -> Watts {
        self.racks.get(rack).copied().unwrap_or(self.default)
    }
}

/// Whose power was compared with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The node's rack.
    Rack,
    /// The whole cluster, for want of the rack's.
    Cluster,
}

/// How much of the power capacity is in use, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsuStress {
    /// How much.
    pub percent: Percent,
    /// Of what.
    pub scope: Scope,
    /// What that rests on.
    pub grounds: Grounds,
}

/// What the racks draw.
#[derive(Clone, Debug)]
pub(super) struct RackLoads<'a>(BTreeMap<&'a str, Option<RackLoad>>);

#[derive(Clone, Copy, Debug)]
struct RackLoad {
    watts: Watts,
    grounds: Grounds,
}

impl<'a> RackLoads<'a> {
    pub(super) fn new(nodes: impl Iterator<Item = (Option<&'a str>, Draw)>, site: &SiteFacts<'a>) -> Self {
        let mut racks = BTreeMap::new();
        for (rack, draw) in nodes.filter_map(|(rack, draw)| rack.map(|rack| (rack, draw))) {
            let sum = racks.entry(rack).or_insert_with(|| base_of(rack, site));
            *sum = sum.and_then(|sum| add(sum, draw));
        }
        for (&rack, load) in &mut racks {
            if let Some(measured) = site.facility.rack_power(rack) {
                *load = Some(RackLoad { watts: measured.value, grounds: Grounds::Measured });
            }
        }
        Self(racks)
    }

    pub(super) fn stress(
        &self,
        limits: &PsuLimits,
        rack: Option<&str>,
        site: &SiteFacts<'_>,
    ) -> Option<PsuStress> {
        let of_rack = rack.and_then(|rack| {
            let load = self.0.get(rack).copied().flatten().filter(|load| load.watts > Watts::ZERO)?;
            Some((load, limits.of(rack), Scope::Rack))
        });
        let (load, limit, scope) = of_rack.or_else(|| {
            let watts = site.facility.it_power()?.value;
            Some((RackLoad { watts, grounds: Grounds::Measured }, limits.default, Scope::Cluster))
        })?;
        let percent = percent_of(load.watts, limit, Role::Demand)?;
        let percent = percent.within(Percent::ZERO, Percent::HUNDRED);
        Some(PsuStress { percent, scope, grounds: load.grounds })
    }
}

/// What the machines of a rack draw that nobody manages: nothing where nobody said that there are any, and nobody
/// knows what where the number is missing or is none.
fn base_of(rack: &str, site: &SiteFacts<'_>) -> Option<RackLoad> {
    let watts = match site.unmanaged.get(rack) {
        None => Watts::ZERO,
        Some(base) => base.filter(|&watts| watts >= Watts::ZERO)?,
    };
    Some(RackLoad { watts, grounds: Grounds::Measured })
}

/// A sum is worth no more than the weakest of its parts, and nothing when a part is unknown or the sum does not fit.
fn add(sum: RackLoad, draw: Draw) -> Option<RackLoad> {
    let (watts, grounds) = draw.watts().zip(draw.grounds())?;
    Some(RackLoad { watts: sum.watts.checked_add(watts)?, grounds: sum.grounds.max(grounds) })
}
