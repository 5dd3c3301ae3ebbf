//! The digital twin of a node: what the scheduler may know of its power, its cooling and its rack.
//!
//! "A lightweight parametric model, continuously updated from telemetry, and consumed by the scheduler in real time":
//! every score is O(1) from the node's hardware, caps, measured power and surroundings. The words are those of the
//! status: power *headroom* (at most 100, negative above the cap), *cooling stress*, *PSU stress*, *PUE*, *hardware
//! density*. What is not known is `None`; no unknown ever turns into the best value of its scale.

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

/// What the twins are computed by.
#[derive(Clone, Debug)]
pub struct TwinLaw<M> {
    /// The model of the cooling.
    pub cooling: M,
    /// What the racks can carry.
    pub psu: PsuLimits,
    /// What a node draws that nobody measures.
    pub utilization: UtilizationModel,
}

impl TwinLaw<cooling::MeasuredPower> {
    /// What holds where nobody says otherwise.
    pub const STANDARD: Self = Self {
        cooling: cooling::MeasuredPower,
        psu: PsuLimits::STANDARD,
        utilization: UtilizationModel::STANDARD,
    };
}

/// What is known of one node.
#[derive(Clone, Copy, Debug)]
pub struct TwinFacts<'a> {
    /// Its hardware, as [`crate::inventory::resolve`] merges it.
    pub hardware: &'a ResolvedHardware,
    /// What it offers to pods, as the guard says: not what it is to offer once its caps are confirmed.
    pub class: SchedulableClass,
    /// The cap of its processors.
    pub cpu_cap: CapValue,
    /// The cap of its graphics processors.
    pub gpu_cap: CapValue,
    /// What its meter says.
    pub reading: NodeReading,
    /// Where its power is going.
    pub trend: Option<WattsPerMinute>,
    /// How busy it is, for want of a meter.
    pub load: Option<NodeLoad>,
    /// Its rack, as its label says.
    pub rack: Option<&'a str>,
    /// Its cooling zone, as its label says.
    pub zone: Option<&'a str>,
}

/// What surrounds the nodes.
#[derive(Clone, Copy, Debug)]
pub struct SiteFacts<'a> {
    /// The building.
    pub facility: View<'a>,
    /// What machines that nobody manages draw, by rack. A rack that is not named has none, as far as anybody said; of
    /// one that is named without a number, or with less than 0 W, nobody knows what its machines draw.
    pub unmanaged: &'a BTreeMap<String, Option<Watts>>,
}

/// The caps as parts of the ratings.
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
    /// What the node draws, and who says so.
    pub draw: NodeDraw,
    /// Where that is going.
    pub trend: Option<WattsPerMinute>,
    /// What the processors are rated at, and what their cap leaves.
    pub cpu: Option<CappedRating>,
    /// What the graphics processors are rated at (nothing where there are none), and what their cap leaves.
    pub gpu: Option<CappedRating>,
    /// Both.
    pub node: Option<CappedRating>,
    /// The measured power is many times the rating: a counter of joules that is read as watts looks like this.
    pub suspect: bool,
}

/// The twin of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    /// What the node offers to pods.
    pub class: SchedulableClass,
    /// The caps in effect.
    pub caps: CapState,
    /// Its power.
    pub power: NodePower,
    /// How much of the capped power is left; negative above it.
    pub headroom: Option<Percent>,
    /// How much of the cooling is in use.
    pub cooling: Option<CoolingStress>,
    /// How much of the rack's power is in use.
    pub psu: Option<PsuStress>,
    /// What the building draws for a watt of its machines, as the facility measures it. Nothing is guessed here: who reads
    /// none takes 1.0.
    pub pue: Option<Ratio>,
    /// How dense the node is, of 100.
    pub density: Option<Percent>,
}

/// The twins of all nodes, in the order of the nodes. A twin depends on the others of its rack, never on the order.
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
    // A slope belongs to the meter that showed it, and says nothing of an estimate.
    let trend = match draw {
        NodeDraw::Measured { .. } | NodeDraw::Held { .. } => node.trend,
        NodeDraw::Estimated { .. } | NodeDraw::Unknown { .. } => None,
    };
    NodePower { draw, trend, cpu, gpu, node: sum, suspect }
}

/// A node's memory, fans and losses at most double what its processors draw, and a rating that was guessed from the
/// number of cores may be a third of the real one; beyond ten times the number is of something else.
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
        let ambient = site.facility.ambient(node.zone).map(|aged| aged.value);
        law.cooling.stress(&CoolingFacts {
            draw: power.draw,
            rating: budget.rating,
            capped: budget.capped,
            ambient,
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
