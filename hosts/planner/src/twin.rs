//! The digital twin of a node: the scheduler's view of its power, its cooling and its rack.
//!
//! "A lightweight parametric model, continuously updated from telemetry, and consumed by the scheduler in real time":
//! every score is O(1) from the node's hardware, caps, measured power and environment. The terms are those of the
//! status: power *headroom* (at most 100, negative above the cap), *cooling stress*, *PSU stress*, *PUE*, *hardware
//! density*. An unknown value is `None`, and never becomes the best value of its scale.

pub mod cooling;
mod density;
mod headroom;
pub mod psu;
pub mod ratings;

use self::cooling::{CoolingFacts, CoolingModel, CoolingStress};
use self::psu::{PsuLimits, PsuStress, Racks};
use self::ratings::{CapValue, CappedRating, Ratings};
use crate::facility::View;
use crate::hardware::ResolvedHardware;
use crate::power::estimate::{NodeLoad, Rated, UtilizationModel};
use crate::power::{NodeDraw, NodeReading};
use joulie_core::placement::class::SchedulableClass;
use power_units::{Percent, Ratio, Watts, WattsPerMinute};
use std::collections::BTreeMap;

/// The settings of the twins.
#[derive(Clone, Debug)]
pub struct TwinLaw<M> {
    /// The model of the cooling.
    pub cooling: M,
    /// The power limits of the racks.
    pub psu: PsuLimits,
    /// The power model of unmeasured nodes.
    pub utilization: UtilizationModel,
}

impl TwinLaw<cooling::Cooling> {
    /// The default settings.
    pub const STANDARD: Self = Self {
        cooling: cooling::Cooling::Measured(cooling::MeasuredPower),
        psu: PsuLimits::STANDARD,
        utilization: UtilizationModel::STANDARD,
    };
}

/// The facts about one node.
#[derive(Clone, Copy, Debug)]
pub struct TwinFacts<'a> {
    /// Its hardware, as [`crate::inventory::resolve`] merges it.
    pub hardware: &'a ResolvedHardware,
    /// The class that it offers to pods, by the guard: not the class that it will offer once its caps are confirmed.
    pub class: SchedulableClass,
    /// The cap of its processors.
    pub cpu_cap: CapValue,
    /// The cap of its graphics processors.
    pub gpu_cap: CapValue,
    /// The caps of both under its entitlement, where power follows demand; `cpu_cap` and `gpu_cap` are then those of the most
    /// that it could be granted.
    pub entitled: Option<(CapValue, CapValue)>,
    /// Its meter reading.
    pub reading: NodeReading,
    /// The trend of its power.
    pub trend: Option<WattsPerMinute>,
    /// What of its reading is drawn beside packages and GPUs: no cap is on it.
    pub rest: Option<Watts>,
    /// Its load, used without a meter.
    pub load: Option<NodeLoad>,
    /// Its rack, from its label.
    pub rack: Option<&'a str>,
    /// Its cooling zone, from its label.
    pub zone: Option<&'a str>,
}

/// The environment of the nodes.
#[derive(Clone, Copy, Debug)]
pub struct SiteFacts<'a> {
    /// The building.
    pub facility: View<'a>,
    /// The power of unmanaged machines by rack, and by `*` of every rack that is not named. Without either a rack has none;
    /// for one that is named without a number, or with less than 0 W, the power is unknown.
    pub unmanaged: &'a BTreeMap<String, Option<Watts>>,
}

/// The caps as percentages of the ratings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapState {
    /// Of the processors.
    pub cpu: Option<Percent>,
    /// Of the graphics processors.
    pub gpu: Option<Percent>,
}

/// `status.powerMeasurement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePower {
    /// The node's power and its source.
    pub draw: NodeDraw,
    /// The trend of the power.
    pub trend: Option<WattsPerMinute>,
    /// The rating of the processors, uncapped and capped.
    pub cpu: Option<CappedRating>,
    /// The rating of the graphics processors (zero if there are none), uncapped and capped.
    pub gpu: Option<CappedRating>,
    /// The sum of both, and what a meter of the whole node shows beside them: what caps leave is compared with what is measured.
    pub node: Option<CappedRating>,
    /// What the node gets when everybody wants everything, as `node` has it; `None` where power does not follow demand.
    pub entitled: Option<Watts>,
    /// The measured power is many times the rating, as when a counter of joules is read as watts.
    pub suspect: bool,
}

/// The twin of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    /// The class that the node offers to pods.
    pub class: SchedulableClass,
    /// The caps in effect.
    pub caps: CapState,
    /// Its power.
    pub power: NodePower,
    /// The unused percentage of the capped power; negative above it.
    pub headroom: Option<Percent>,
    /// The used percentage of the cooling.
    pub cooling: Option<CoolingStress>,
    /// The used percentage of the rack's power.
    pub psu: Option<PsuStress>,
    /// The building's power per watt of its machines, as measured by the facility. It is not estimated; readers take
    /// 1.0 for a missing value.
    pub pue: Option<Ratio>,
    /// The node's hardware density, at most 100.
    pub density: Option<Percent>,
}

/// The twins of all nodes, in the order of the nodes. A twin depends on the other nodes of its rack, never on the
/// order.
pub fn twins<M: CoolingModel>(law: &TwinLaw<M>, nodes: &[TwinFacts<'_>], site: &SiteFacts<'_>) -> Vec<Twin> {
    let ratings = nodes.iter().map(|node| Ratings::of(node.hardware));
    let powers: Vec<_> =
        nodes.iter().zip(ratings).map(|(node, of)| (of, power_of(&law.utilization, node, of))).collect();
    let draws = nodes.iter().zip(&powers).map(|(node, (_, power))| (node.rack, power.draw));
    let racks = Racks::new(&law.psu, draws, site);
    let twins = nodes.iter().zip(powers).enumerate();
    twins
        .map(|(at, (node, (ratings, power)))| twin_of(law, node, ratings, power, site, racks.stress(at)))
        .collect()
}

fn power_of(utilization: &UtilizationModel, node: &TwinFacts<'_>, ratings: Ratings) -> NodePower {
    let cpu = ratings.cpu.map(|device| device.under(node.cpu_cap));
    let gpu = ratings.gpu.map(|device| device.under(node.gpu_cap));
    let sum = cpu.zip(gpu).and_then(|(cpu, gpu)| cpu.checked_add(gpu));
    let rated = sum.zip(cpu.zip(gpu)).map(|(node, (cpu, gpu))| Rated {
        cpu: cpu.rating,
        gpu: gpu.rating,
        capped: node.capped,
    });
    let draw = node.reading.or_estimate(rated.map(|rated| utilization.estimate(rated, node.load)));
    let suspect = match (draw, sum) {
        (NodeDraw::Measured { watts, .. } | NodeDraw::Held { watts, .. }, Some(sum)) => {
            watts > sum.rating.times(SUSPECT_TIMES)
        }
        (
            NodeDraw::Measured { .. }
            | NodeDraw::Held { .. }
            | NodeDraw::Estimated { .. }
            | NodeDraw::Unknown { .. },
            _,
        ) => false,
    };
    let with_rest = |sum: CappedRating| match draw {
        NodeDraw::Measured { .. } | NodeDraw::Held { .. } => sum.with_rest(node.rest),
        NodeDraw::Estimated { .. } | NodeDraw::Unknown { .. } => sum,
    };
    let entitled = node.entitled.and_then(|(cpu, gpu)| {
        let sum = ratings.cpu?.under(cpu).checked_add(ratings.gpu?.under(gpu))?;
        Some(with_rest(sum).capped)
    });
    // A trend belongs to the meter that showed it, and does not apply to an estimate.
    let trend = match draw {
        NodeDraw::Measured { .. } | NodeDraw::Held { .. } => node.trend,
        NodeDraw::Estimated { .. } | NodeDraw::Unknown { .. } => None,
    };
    NodePower { draw, trend, cpu, gpu, node: sum.map(with_rest), entitled, suspect }
}

/// A node's memory, fans and losses at most double the power of its processors, and a rating that was estimated from
/// the number of cores may be a third of the real one; above ten times the number must be something else.
const SUSPECT_TIMES: u32 = 10;

fn twin_of<M: CoolingModel>(
    law: &TwinLaw<M>,
    node: &TwinFacts<'_>,
    ratings: Ratings,
    power: NodePower,
    site: &SiteFacts<'_>,
    psu: Option<PsuStress>,
) -> Twin {
    let cooling = power.node.and_then(|budget| {
        law.cooling.stress(&CoolingFacts {
            draw: power.draw,
            rating: budget.rating,
            capped: budget.capped,
            room: site.facility.ambient(node.zone),
        })
    });
    Twin {
        class: node.class,
        caps: CapState { cpu: node.cpu_cap.percent(ratings.cpu), gpu: node.gpu_cap.percent(ratings.gpu) },
        headroom: power
            .node
            .zip(power.draw.watts())
            .map(|(budget, drawn)| headroom::of(budget.capped, drawn)),
        cooling,
        psu,
        pue: site.facility.pue().map(|aged| aged.value),
        density: density::of(node.hardware),
        power,
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
