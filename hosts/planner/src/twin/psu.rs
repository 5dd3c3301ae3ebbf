//! PSU stress: "predicted fraction of rack power capacity in use".
//!
//! The power of a rack is measured by the facility. Without that it is the sum over its nodes and its unmanaged
//! machines; a node without a meter counts with its estimate. While the facility's meter is silent, the larger of the sum
//! and its last value counts. For a rack with an unknown part, and for a node without
//! a rack, the power of the whole cluster is compared with the default limit. If that is unknown too, the rack's
//! stress is unknown, and a node without a rack has none.

use super::SiteFacts;
use crate::facility::Aged;
use crate::names::is_same;
use crate::power::{Grounds, NodeDraw};
use crate::share::percent_of;
use power_units::{Percent, Role, Watts};
use std::collections::BTreeMap;
use std::fmt;

/// The default limit of a rack is 50 kW.
pub const RACK_LIMIT: Watts = Watts::from_int(50_000);

/// The power limits of the racks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PsuLimits {
    default: Watts,
    racks: BTreeMap<String, Watts>,
}

/// A limit that is not positive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLimit {
    /// The rack; `None` for the default.
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
    /// The same limit for every rack.
    pub const STANDARD: Self = Self { default: RACK_LIMIT, racks: BTreeMap::new() };

    /// A default limit, and the limits of particular racks.
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

/// Whose power was compared with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsuScope {
    /// The node's rack.
    Rack,
    /// The whole cluster, because the rack's is unknown.
    Cluster,
    /// Nothing: the node has no known rack.
    Nothing,
}

/// The used percentage of the power capacity, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsuStress {
    /// The percentage.
    pub percent: Percent,
    /// Whose power it is.
    pub scope: PsuScope,
    /// Its grounds.
    pub grounds: Grounds,
}

const NO_RACK: PsuStress =
    PsuStress { percent: Percent::ZERO, scope: PsuScope::Nothing, grounds: Grounds::Modelled };

/// The stress of every rack, and the rack of each node.
#[derive(Clone, Debug)]
pub(super) struct Racks {
    of_node: Vec<Option<usize>>,
    stress: Vec<Option<PsuStress>>,
    cluster: Option<PsuStress>,
}

#[derive(Clone, Copy, Debug)]
struct RackLoad {
    watts: Watts,
    grounds: Grounds,
}

impl RackLoad {
    /// What the facility has measured.
    fn measured(drawn: Aged<Watts>) -> Self {
        let grounds = if drawn.fresh { Grounds::Measured } else { Grounds::WorstCase };
        Self { watts: drawn.value, grounds }
    }

    fn stress(self, limit: Watts, scope: PsuScope) -> Option<PsuStress> {
        let percent = percent_of(self.watts, limit, Role::Demand)?.within(Percent::ZERO, Percent::HUNDRED);
        Some(PsuStress { percent, scope, grounds: self.grounds })
    }
}

impl Racks {
    pub(super) fn new<'a>(
        limits: &PsuLimits,
        nodes: impl ExactSizeIterator<Item = (Option<&'a str>, NodeDraw)>,
        site: &SiteFacts<'a>,
    ) -> Self {
        let (mut places, mut racks) = (BTreeMap::new(), Vec::new());
        let mut of_node = Vec::with_capacity(nodes.len());
        let mut last: Option<(&str, usize)> = None;
        for (rack, draw) in nodes {
            // Nodes of one rack are mostly adjacent.
            last = rack.map(|rack| match last {
                Some((same, at)) if is_same(same, rack) => (rack, at),
                Some(_) | None => {
                    let at = *places.entry(rack).or_insert_with(|| {
                        racks.push((rack, base_of(rack, site)));
                        racks.len() - 1
                    });
                    (rack, at)
                }
            });
            if let Some((_, sum)) = last.and_then(|(_, at)| racks.get_mut(at)) {
                *sum = sum.and_then(|sum| add(sum, draw));
            }
            of_node.push(last.map(|(_, at)| at));
        }
        let stress = racks.into_iter().map(|(rack, sum)| {
            let load = match site.facility.rack_power(rack) {
                Some(measured) if measured.fresh => Some(RackLoad::measured(measured)),
                Some(silent) => {
                    let watts = sum.map_or(silent.value, |sum| sum.watts.max(silent.value));
                    Some(RackLoad { watts, grounds: Grounds::WorstCase })
                }
                None => sum,
            };
            load.filter(|load| load.watts > Watts::ZERO)?.stress(limits.of(rack), PsuScope::Rack)
        });
        let cluster = site
            .facility
            .it_power()
            .and_then(|drawn| RackLoad::measured(drawn).stress(limits.default, PsuScope::Cluster));
        Self { of_node, stress: stress.collect(), cluster }
    }

    /// The stress of the node at this index: of its rack, else of the cluster.
    pub(super) fn stress(&self, node: usize) -> Option<PsuStress> {
        let rack = self.of_node.get(node).copied().flatten();
        let of_rack = rack.and_then(|rack| self.stress.get(rack).copied().flatten());
        let without = || rack.is_none().then_some(NO_RACK);
        of_rack.or(self.cluster).or_else(without)
    }
}

/// The power of a rack's unmanaged machines: zero if none are configured, unknown if the number is missing or
/// negative.
fn base_of(rack: &str, site: &SiteFacts<'_>) -> Option<RackLoad> {
    let watts = match site.unmanaged.get(rack).or_else(|| site.unmanaged.get("*")) {
        None => Watts::ZERO,
        Some(base) => base.filter(|&watts| watts >= Watts::ZERO)?,
    };
    Some(RackLoad { watts, grounds: Grounds::Measured })
}

/// A sum has the weakest grounds of its parts, and is `None` when a part is unknown or the sum overflows.
fn add(sum: RackLoad, draw: NodeDraw) -> Option<RackLoad> {
    let (watts, grounds) = draw.watts().zip(draw.grounds())?;
    Some(RackLoad { watts: sum.watts.checked_add(watts)?, grounds: sum.grounds.max(grounds) })
}
