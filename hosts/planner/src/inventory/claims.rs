//! Checks a node's own figures against the known facts of its models.
//!
//! A node writes its NodeHardware with its own token, and the budget is divided by those figures: a floor of 20 kW a
//! package would take the watts of all others, a maximum of 50 W would let a package of 400 W draw uncounted power. So
//! each figure is accepted only within bounds: those of the catalogue if it knows the model, else those that [`Peers`]
//! of the model report together, else the physical bounds. A figure that is not accepted is replaced by one that is
//! safe for the site, and reported.
//!
//! | figure | accepted | otherwise |
//! |---|---|---|
//! | a maximum | from three quarters to five quarters of the model's | the model's if the figure is lower, five quarters of it if the figure is higher |
//! | a minimum | up to five quarters of the model's least, and not above the maximum | the model's least |
//! | a count | up to its bound | missing: the next source is used, and for packages finally the kubelet's processors |

use super::bounds::{GPU_MAX, GPUS_MAX, PACKAGE_MAX, PROCESSORS_MAX, SOCKETS_MAX, bounded};
use super::peers::Peers;
use super::{HardwareFacts, Reported};
use crate::catalog::Catalog;
use crate::hardware::PowerRange;
use power_units::{Ratio, Role, Watts};
use std::fmt;
use std::sync::Arc;

/// A figure that a node reports of itself and that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Implausible {
    /// The field, as named in the object.
    pub field: &'static str,
    /// The reported figure.
    pub said: String,
    /// The highest or lowest accepted figure.
    pub bound: String,
}

impl fmt::Display for Implausible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, and {} is believed", self.field, self.said, self.bound)
    }
}

/// How far a board's figure may differ from its model's: vendors and firmware vary by less than a quarter.
const LESS: Ratio = Ratio::from_bits(3 << 30);
const MORE: Ratio = Ratio::from_bits(5 << 30);

/// A node that reports more GPUs than any single machine on sale has must also offer or be labelled with as many.
const GPUS_OF_ONE_MACHINE: u32 = 16;

/// Keeps the facts that can be accepted, and returns the rejected figures beside them.
#[must_use]
pub fn believed(facts: HardwareFacts, catalog: &Catalog, peers: &Peers) -> (HardwareFacts, Vec<Implausible>) {
    let HardwareFacts { reported, mut labels, capacity_cpus, allocatable_gpus } = facts;
    let mut told = Vec::new();
    let capacity_cpus = count("status.capacity.cpu", capacity_cpus, PROCESSORS_MAX, &mut told);
    labels.sockets = count("the label of the sockets", labels.sockets, SOCKETS_MAX, &mut told);
    labels.gpu_count = count("the label of the GPU count", labels.gpu_count, GPUS_MAX, &mut told);
    let allocatable = Some(allocatable_gpus).filter(|&gpus| gpus > 0);
    let allocatable_gpus =
        count("the allocatable number of GPUs", allocatable, GPUS_MAX, &mut told).unwrap_or(0);
    let witness = allocatable_gpus.max(labels.gpu_count.unwrap_or(0));
    let reported = reported.map(|said| {
        let cpu = [&said.cpu_raw_model, &said.cpu_model, &labels.cpu_model];
        let cpu = cpu.into_iter().flatten().find_map(|name| catalog.cpu(name));
        let cores = cpu.and_then(|cpu| cpu.cores);
        let of_cpu = cpu.map(|cpu| PowerRange { min: cpu.least(), max: cpu.most() });
        let gpu = [&said.gpu_raw_model, &said.gpu_model, &labels.gpu_model];
        let of_gpu = gpu.into_iter().flatten().find_map(|name| catalog.gpu(name));
        let of_gpu = of_gpu.map(|gpu| PowerRange { min: gpu.min, max: gpu.max });
        let (cpu_min, cpu_max) = range(
            CPU_FIELDS,
            (said.cpu_min, said.cpu_max),
            of_cpu.or_else(|| peers.packages(&said)),
            PACKAGE_MAX,
            &mut told,
        );
        let (gpu_min, gpu_max) = range(
            GPU_FIELDS,
            (said.gpu_min, said.gpu_max),
            of_gpu.or_else(|| peers.gpus(&said)),
            GPU_MAX,
            &mut told,
        );
        let sockets_max = sockets_max(capacity_cpus, cores);
        let sockets = count("cpu.sockets", said.sockets, sockets_max, &mut told);
        // If no other source gives their number, a node counts with all the packages that its processors fill.
        let filled = said
            .sockets
            .filter(|&sockets| sockets > 0)
            .and(capacity_cpus)
            .filter(|_| labels.sockets.is_none());
        let sockets = sockets.or(filled.map(|_| sockets_max));
        let gpus = if witness > GPUS_OF_ONE_MACHINE { witness } else { GPUS_OF_ONE_MACHINE };
        Reported {
            sockets,
            total_cores: count("cpu.totalCores", said.total_cores, PROCESSORS_MAX, &mut told),
            gpu_count: count("gpu.count", said.gpu_count, gpus, &mut told),
            cpu_min,
            cpu_max,
            gpu_min,
            gpu_max,
            ..said
        }
    });
    (HardwareFacts { reported, labels, capacity_cpus, allocatable_gpus }, told)
}

/// The number of packages that the kubelet's processors fill, at least two, because cores can be switched off.
fn sockets_max(processors: Option<u32>, cores: Option<u32>) -> u32 {
    let filled = processors.map(|all| all.div_ceil(cores.filter(|&cores| cores > 0).unwrap_or(1)).max(2));
    filled.map_or(SOCKETS_MAX, |filled| filled.min(SOCKETS_MAX))
}

fn count(field: &'static str, said: Option<u32>, max: u32, told: &mut Vec<Implausible>) -> Option<u32> {
    let taken = said.and_then(|said| bounded(said, max));
    if let (Some(said), None) = (said.filter(|&said| said > 0), taken) {
        told.push(Implausible { field, said: said.to_string(), bound: format!("at most {max}") });
    }
    taken
}

const CPU_FIELDS: [&str; 2] = ["cpu.capRange.minWattsPerSocket", "cpu.capRange.maxWattsPerSocket"];
const GPU_FIELDS: [&str; 2] = ["gpu.capRangePerGpu.minWatts", "gpu.capRangePerGpu.maxWatts"];

/// The ends of a range, each within its accepted bounds.
fn range(
    [of_min, of_max]: [&'static str; 2],
    (min, max): (Option<Watts>, Option<Watts>),
    model: Option<PowerRange>,
    physical: Watts,
    told: &mut Vec<Implausible>,
) -> (Option<Watts>, Option<Watts>) {
    let mut tell = |field, said: Watts, how: &str, bound: Watts| {
        told.push(Implausible { field, said: format!("{said} W"), bound: format!("{how} {bound} W") });
    };
    let scale = |watts: Watts, part| watts.scale(part, Role::Nearest).min(physical);
    let most = model.map_or(physical, |model| scale(model.max, MORE));
    let max = max.map(|said| match model {
        Some(model) if said > Watts::ZERO && said < scale(model.max, LESS) => {
            tell(of_max, said, "no less than", scale(model.max, LESS));
            model.max
        }
        Some(_) | None if said > most => {
            tell(of_max, said, "at most", most);
            most
        }
        Some(_) | None => said,
    });
    let least = model.and_then(|model| model.min);
    let top = least.map_or(most, |least| scale(least, MORE));
    let min = match min {
        Some(said) if said > top => {
            tell(of_min, said, "at most", top);
            least
        }
        said => said,
    };
    // A lowest limit is not above the highest, even if the owner does not allow a lower cap.
    (min.map(|min| max.filter(|&max| max > Watts::ZERO).map_or(min, |max| min.min(max))), max)
}

/// The name by which nodes of one model are grouped.
pub(super) fn model_of(names: [&Option<Arc<str>>; 2]) -> Option<Arc<str>> {
    names.into_iter().flatten().find(|name| !name.trim().is_empty()).cloned()
}

#[cfg(test)]
mod tests;
