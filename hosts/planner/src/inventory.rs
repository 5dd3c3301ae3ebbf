//! The hardware view of a node, field by field: from its NodeHardware, else from its labels and resources, else from
//! the catalogue's entry for the model.
//!
//! A field that one source lacks is taken from the next, so an incomplete object blocks nothing. Whether a node has
//! GPUs is one answer for everything that depends on it, and it is sticky: when a device plugin restarts and offers no
//! GPUs for a while, the node is still a GPU node.

mod bounds;
mod claims;
mod peers;

pub use bounds::{GPU_MAX, GPUS_MAX, PACKAGE_MAX, PROCESSORS_MAX, SOCKETS_MAX, bounded};
pub use claims::{Implausible, believed};
pub use peers::Peers;

use crate::catalog::{Catalog, CpuModel, GpuModel};
use crate::hardware::{Cpu, GpuInventory, PowerRange, ResolvedHardware};
use power_units::Watts;
use std::sync::Arc;

/// The facts about a node's hardware, by source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HardwareFacts {
    /// Its NodeHardware's status, if there is one.
    pub reported: Option<Reported>,
    /// Its labels.
    pub labels: LabelFacts,
    /// Logical processors in `status.capacity`.
    pub capacity_cpus: Option<u32>,
    /// GPUs in `status.allocatable`, see [`allocatable_gpus`].
    pub allocatable_gpus: u32,
}

/// The content of a NodeHardware. Blank texts and figures that are not above zero count as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reported {
    /// `cpu.rawModel`
    pub cpu_raw_model: Option<Arc<str>>,
    /// `cpu.model`
    pub cpu_model: Option<Arc<str>>,
    /// `cpu.sockets`
    pub sockets: Option<u32>,
    /// `cpu.totalCores`
    pub total_cores: Option<u32>,
    /// `cpu.capRange.minWattsPerSocket`
    pub cpu_min: Option<Watts>,
    /// `cpu.capRange.maxWattsPerSocket`
    pub cpu_max: Option<Watts>,
    /// `gpu.present`: false means no GPU, missing means unknown.
    pub gpu_present: Option<bool>,
    /// `gpu.rawModel`
    pub gpu_raw_model: Option<Arc<str>>,
    /// `gpu.model`
    pub gpu_model: Option<Arc<str>>,
    /// `gpu.count`
    pub gpu_count: Option<u32>,
    /// `gpu.capRangePerGpu.minWatts`
    pub gpu_min: Option<Watts>,
    /// `gpu.capRangePerGpu.maxWatts`
    pub gpu_max: Option<Watts>,
}

/// The hardware facts of a node's labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelFacts {
    /// The CPU model.
    pub cpu_model: Option<Arc<str>>,
    /// How many packages.
    pub sockets: Option<u32>,
    /// The GPU product.
    pub gpu_model: Option<Arc<str>>,
    /// How many GPUs.
    pub gpu_count: Option<u32>,
}

const CPU_MODEL_KEYS: [&str; 2] = ["joulie.io/hw.cpu-model", "feature.node.kubernetes.io/cpu-model.name"];
const CPU_SOCKETS_KEYS: [&str; 2] = ["joulie.io/hw.cpu-sockets", "feature.node.kubernetes.io/cpu-sockets"];
const GPU_MODEL_KEY: &str = "joulie.io/hw.gpu-model";
const GPU_COUNT_KEY: &str = "joulie.io/hw.gpu-count";

impl LabelFacts {
    /// Reads the labels that name hardware; the GPU product may be under any of `gpu_product_keys`, in their order.
    #[must_use]
    pub fn read<'a>(label: impl Fn(&str) -> Option<&'a str>, gpu_product_keys: &[String]) -> Self {
        let text = |key: &str| label(key).map(str::trim).filter(|text| !text.is_empty());
        let count = |key: &str| text(key).and_then(|text| text.parse().ok()).filter(|&count| count > 0);
        let product = || gpu_product_keys.iter().find_map(|key| text(key));
        Self {
            cpu_model: CPU_MODEL_KEYS.into_iter().find_map(text).map(Arc::from),
            sockets: CPU_SOCKETS_KEYS.into_iter().find_map(count),
            gpu_model: text(GPU_MODEL_KEY).or_else(product).map(Arc::from),
            gpu_count: count(GPU_COUNT_KEY),
        }
    }
}

/// The GPUs among a node's allocatable resources. Slices and shares of a GPU do not count.
#[must_use]
pub fn allocatable_gpus<'a>(resources: impl IntoIterator<Item = (&'a str, u64)>) -> u32 {
    let is_gpu = |name: &str| {
        let name = name.to_ascii_lowercase();
        name == "gpu.intel.com/i915" || name.ends_with("/gpu")
    };
    let total = resources
        .into_iter()
        .filter(|(name, _)| is_gpu(name))
        .fold(0_u64, |sum, (_, n)| sum.saturating_add(n));
    u32::try_from(total).unwrap_or(u32::MAX)
}

/// A node's hardware, and the sources of its power limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The merged view; a figure that the node lacks is the catalogue's.
    pub hardware: ResolvedHardware,
    /// The catalogue's entry of the CPU model.
    pub cpu: Option<Arc<CpuModel>>,
    /// The catalogue's entry of the GPU model.
    pub gpu: Option<Arc<GpuModel>>,
    /// The range of one package that the node itself reports.
    pub discovered_cpu: Option<PowerRange>,
    /// The range of one GPU that the node itself reports.
    pub discovered_gpu: Option<PowerRange>,
}

/// Merges the facts about a node. `remembered` are the GPUs that it had before; `gpu_cap` says that its published
/// desired state caps a GPU, which is never written for a node without one.
#[must_use]
pub fn resolve(
    facts: &HardwareFacts,
    remembered: Option<&GpuInventory>,
    gpu_cap: bool,
    catalog: &Catalog,
) -> Resolved {
    let nothing = Reported::default();
    let reported = facts.reported.as_ref().unwrap_or(&nothing);
    let names = [&reported.cpu_raw_model, &reported.cpu_model, &facts.labels.cpu_model];
    let (cpu_model, cpu) = recognise(names, |name| catalog.cpu(name), |cpu| &cpu.key);
    let names = [&reported.gpu_raw_model, &reported.gpu_model, &facts.labels.gpu_model];
    let (gpu_model, gpu) = recognise(names, |name| catalog.gpu(name), |gpu| &gpu.key);

    let discovered_cpu = PowerRange::discovered(reported.cpu_min, reported.cpu_max);
    let discovered_gpu = PowerRange::discovered(reported.gpu_min, reported.gpu_max);
    let count = count_gpus(facts, reported, discovered_gpu.is_some(), remembered, gpu_cap);
    // If no source names a model now, the former model is used; the catalogue still has it.
    let gpu_model = gpu_model.or_else(|| remembered.and_then(|gpus| gpus.model.clone()));
    let gpu =
        gpu.or_else(|| gpu_model.as_deref().and_then(|model| catalog.gpu(model))).filter(|_| count.is_some());
    let cpu_range = discovered_cpu.or_else(|| cpu.map(|cpu| design_range(cpu)));
    let gpu_range = discovered_gpu.or_else(|| gpu.map(|gpu| PowerRange { min: gpu.min, max: gpu.max }));
    let hardware = ResolvedHardware {
        cpu: Cpu {
            model: cpu_model,
            sockets: within(reported.sockets, SOCKETS_MAX).or(within(facts.labels.sockets, SOCKETS_MAX)),
            total_cores: within(reported.total_cores, PROCESSORS_MAX)
                .or(within(facts.capacity_cpus, PROCESSORS_MAX)),
            min_per_socket: cpu_range.and_then(|range| range.min),
            max_per_socket: cpu_range.map(|range| range.max),
        },
        gpu: count.map(|count| GpuInventory {
            model: gpu_model,
            count,
            min: gpu_range.and_then(|range| range.min),
            max: gpu_range.map(|range| range.max),
        }),
    };
    Resolved { hardware, cpu: cpu.cloned(), gpu: gpu.cloned(), discovered_cpu, discovered_gpu }
}

/// The design power of a package, in place of a limit that the node does not report.
fn design_range(cpu: &CpuModel) -> PowerRange {
    PowerRange { min: cpu.least(), max: cpu.most() }
}

/// The first name that the catalogue knows, as its key there; else the first name that is not blank.
fn recognise<'c, Model>(
    names: [&Option<Arc<str>>; 3],
    find: impl Fn(&str) -> Option<&'c Arc<Model>>,
    key: impl Fn(&Model) -> &String,
) -> (Option<Arc<str>>, Option<&'c Arc<Model>>) {
    let mut raw = None;
    for name in names.into_iter().flatten() {
        let text = name.trim();
        match find(text) {
            Some(model) => return (Some(key(model).as_str().into()), Some(model)),
            None if text.is_empty() => {}
            None => {
                raw = raw.or_else(|| Some(if text.len() == name.len() { name.clone() } else { text.into() }))
            }
        }
    }
    (raw, None)
}

/// The number of the node's GPUs; `None` when it has none.
fn count_gpus(
    facts: &HardwareFacts,
    reported: &Reported,
    has_range: bool,
    remembered: Option<&GpuInventory>,
    gpu_cap: bool,
) -> Option<u32> {
    let counted = within(reported.gpu_count, GPUS_MAX)
        .or(within(facts.labels.gpu_count, GPUS_MAX))
        .or(bounded(facts.allocatable_gpus, GPUS_MAX));
    if counted.is_some() {
        return counted;
    }
    let remembered = remembered.map(|gpus| gpus.count);
    match (reported.gpu_present, has_range) {
        // Present but not counted: as many as before, and at least one.
        (Some(true), _) | (None, true) | (Some(false), true) => remembered.or(Some(1)),
        (Some(false), false) => None,
        (None, false) => remembered.or(gpu_cap.then_some(1)),
    }
}

fn within(count: Option<u32>, max: u32) -> Option<u32> {
    count.and_then(|count| bounded(count, max))
}

#[cfg(test)]
mod tests;
