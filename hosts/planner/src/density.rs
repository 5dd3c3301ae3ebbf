//! Normalized compute density, which decides the order in which nodes get full power (highest first), and the hardware
//! family; each family keeps some performance supply.
//!
//! There are two separate figures. The *components* are exported by the metric `joulie_operator_node_compute_density`,
//! on the catalogue's scale. They cannot order a cluster: the catalogue's CPU figure is already that of a whole node,
//! so that multiplying it by cores makes it quadratic, and eight of the densest boards add 4 % to it. The *order*
//! counts devices instead: a package of the densest embedded CPU counts 1, a board of the densest GPU counts 1, and any
//! other counts in proportion. It depends on the node alone, so it does not change when another node is added or
//! removed.

use crate::catalog::{self, CpuModel, GpuModel};
use crate::hardware::{Cpu, ResolvedHardware};
use crate::inventory::Resolved;
use power_units::{KiloHertz, Ratio, Role};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A node's compute density.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Density {
    /// The CPU component of the metric.
    pub cpu: Ratio,
    /// The GPU component of the metric.
    pub gpu: Ratio,
    /// The normalised density that nodes are ordered by.
    pub order: Ratio,
}

/// The catalogue's figure for AMD_EPYC_9965. Catalogue figures are for two packages, here and in the figures that are
/// divided by it, so one package of this model counts 1.
const DENSEST_CPU: Ratio = Ratio::from_int(1776);
/// The catalogue's figure for a board of AMD_INSTINCT_MI300X.
const DENSEST_GPU: Ratio = Ratio::from_int(750);

impl Density {
    /// The density of a node. Hardware that the catalogue does not know adds nothing, except that an unknown GPU counts
    /// by the highest power limit that it reports.
    #[must_use]
    pub fn of(resolved: &Resolved) -> Self {
        let ResolvedHardware { cpu, gpu } = &resolved.hardware;
        let cpu_figure = resolved.cpu.as_deref().map_or(Ratio::ZERO, cpu_figure);
        let gpus = gpu.as_ref().map_or(Ratio::ZERO, |gpus| {
            let by_power = || gpus.max.map_or(Ratio::ZERO, |max| Ratio::from_bits(max.or_zero().to_bits()));
            gpu_component(resolved.gpu.as_deref().map_or_else(by_power, gpu_figure), gpus.count)
        });
        let packages = packages(cpu, resolved.cpu.as_ref().and_then(|model| model.cores));
        Self {
            cpu: cpu_component(cpu_figure, cpu.total_cores, cpu.sockets),
            gpu: gpus,
            order: order(cpu_figure.scale(packages, Role::Nearest), gpus),
        }
    }
}

fn cpu_figure(model: &CpuModel) -> Ratio {
    model.density.unwrap_or_else(|| {
        let gigahertz = model.boost.ratio_to(KiloHertz::from_int(1_000_000), Role::Nearest);
        Ratio::from_bits(model.tdp.scale(gigahertz.unwrap_or(Ratio::ZERO), Role::Nearest).to_bits())
    })
}

fn gpu_figure(model: &GpuModel) -> Ratio {
    model.density.unwrap_or_else(|| Ratio::from_bits(model.max.to_bits()))
}

/// The metric's CPU component: by cores if known, else by packages, else as one.
fn cpu_component(figure: Ratio, cores: Option<u32>, sockets: Option<u32>) -> Ratio {
    figure.times(cores.or(sockets).unwrap_or(1).max(1))
}

/// The metric's GPU component.
fn gpu_component(figure: Ratio, count: u32) -> Ratio {
    figure.times(count.max(1))
}

/// How many whole packages the node's processors equal. The reported cores may be logical processors, twice the real
/// cores, so the package count is an upper bound; a virtual machine has fewer cores than its package, so the cores are
/// an upper bound too. Unknown counts as one package.
fn packages(cpu: &Cpu, cores_of_package: Option<u32>) -> Ratio {
    let whole = |count: u32| Ratio::ONE.times(count);
    let by_cores = cpu
        .total_cores
        .zip(cores_of_package)
        .and_then(|(total, of_package)| whole(total).ratio_to(whole(of_package), Role::Nearest));
    match (cpu.sockets.map(whole), by_cores) {
        (Some(sockets), Some(by_cores)) => sockets.min(by_cores),
        (Some(packages), None) | (None, Some(packages)) => packages,
        (None, None) => Ratio::ONE,
    }
}

/// How many devices of the densest kind the node equals, from its CPU figure times packages and its GPU figure times
/// boards.
fn order(cpu: Ratio, gpu: Ratio) -> Ratio {
    let part = |of: Ratio, whole| of.ratio_to(whole, Role::Nearest).unwrap_or(Ratio::ZERO);
    part(cpu, DENSEST_CPU) + part(gpu, DENSEST_GPU)
}

/// The key by which nodes are interchangeable: the GPU model of a GPU node, the CPU model of a CPU-only node. Two
/// spellings of one name are the same family.
#[derive(Clone, Debug)]
pub struct Family {
    device: Device,
    model: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Device {
    Cpu,
    Gpu,
}

impl Family {
    /// The family of a node.
    #[must_use]
    pub fn of(hardware: &ResolvedHardware) -> Self {
        let named = |model: &Option<Arc<str>>, unknown: &str| model.clone().unwrap_or_else(|| unknown.into());
        match &hardware.gpu {
            Some(gpus) => Self { device: Device::Gpu, model: named(&gpus.model, "unknown-gpu") },
            None => Self { device: Device::Cpu, model: named(&hardware.cpu.model, "unknown-cpu") },
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = match self.device {
            Device::Cpu => "cpu",
            Device::Gpu => "gpu",
        };
        write!(f, "{device}:{}", self.model)
    }
}

impl Ord for Family {
    fn cmp(&self, other: &Self) -> Ordering {
        self.device.cmp(&other.device).then_with(|| catalog::compare(&self.model, &other.model))
    }
}

impl PartialOrd for Family {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Family {}

#[cfg(test)]
mod tests;
