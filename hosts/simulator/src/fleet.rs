//! The simulated nodes: their kinds, how many of each kind, and the name and hardware of every node.
//!
//! A kind names models of the hardware catalogue, which provides frequencies and power. A fleet is either a list of
//! built-in kinds (`xeon:6,epyc:4,gpu:2`) or a file with more detail ([`Fleet::from_json`]).

mod file;
mod kind;

pub use kind::{GpuKind, NodeKind};

use crate::hardware::{self, SimulatedHardware};
use crate::workload::WorkloadGpus;
use joulie_api::labels::{TRUE, node};
use planner::catalog::Catalog;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The most nodes of one fleet: the size of upstream's largest experiment.
pub const NODES_MAX: u32 = 5_000;
/// The label of every simulated node.
pub const SIMULATED: &str = "joulie.io/simulated";
/// The label that names the kind of a simulated node.
pub const KIND: &str = "joulie.io/hw.kind";
/// The label with the number of cores of a node, in addition to the labels that Joulie itself reads.
const CPU_CORES: &str = "joulie.io/hw.cpu-cores";
/// The label with the vendor of the processor, as node-feature-discovery sets it.
const CPU_VENDOR: &str = "feature.node.kubernetes.io/cpu-model.vendor_id";
/// The most pods of one node: the kubelet's default.
const PODS: &str = "110";

/// Kinds of nodes, and how many of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// The kinds and how many nodes of each.
    pub kinds: Vec<(NodeKind, u32)>,
    /// The number of racks over which the nodes are spread in turn.
    pub racks: u32,
    /// The number of cooling zones over which the racks are spread in turn.
    pub zones: u32,
    /// The prefix of the node names.
    pub prefix: String,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The name of the node.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its capacity. All of it is allocatable.
    pub capacity: BTreeMap<String, String>,
    /// Its hardware.
    pub hardware: SimulatedHardware,
}

/// Why a fleet is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetError(pub(crate) String);

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FleetError {}

pub(crate) fn refuse<T>(why: impl Into<String>) -> Result<T, FleetError> {
    Err(FleetError(why.into()))
}

impl Fleet {
    /// Reads a list of built-in kinds and their numbers, such as `xeon:6,epyc:4,gpu:2`.
    ///
    /// # Errors
    /// If a kind is not built in, a number is invalid, or there are no nodes or too many.
    pub fn parse(text: &str) -> Result<Self, FleetError> {
        let mut kinds = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((name, count)) = part.split_once(':') else {
                return refuse(format!("{part:?} is not KIND:COUNT"));
            };
            let Some(kind) = NodeKind::built_in(name.trim()) else {
                let known = kind::BUILT_IN.join(", ");
                return refuse(format!("there is no kind {name:?} built in; accepted: {known}"));
            };
            let Ok(count) = count.trim().parse::<u32>() else {
                return refuse(format!("{count:?} is no number of nodes"));
            };
            kinds.push((kind, count));
        }
        let fleet = Self { kinds, racks: 3, zones: 1, prefix: "sim".to_owned() };
        fleet.members()?;
        Ok(fleet)
    }

    /// The GPUs that a workload on this fleet may request: of the vendor of the first kind with GPUs, as many as one node
    /// has.
    #[must_use]
    pub fn gpus(&self) -> Option<WorkloadGpus> {
        let members = self.members().ok()?;
        let all = || members.iter().filter_map(|member| member.hardware.gpus.as_ref());
        let vendor = all().next()?.vendor;
        let most = all().filter(|gpus| gpus.vendor == vendor).map(|gpus| gpus.count).max()?;
        Some(WorkloadGpus { vendor, most })
    }

    /// Every node, in the order of the kinds.
    ///
    /// # Errors
    /// If a kind is invalid, two nodes have the same name, or there are no nodes or too many.
    pub fn members(&self) -> Result<Vec<Member>, FleetError> {
        let count = self.kinds.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
        if count == 0 || count > NODES_MAX {
            return refuse(format!("a fleet of {count} nodes; accepted: 1 to {NODES_MAX}"));
        }
        if self.racks == 0 {
            return refuse("a fleet in 0 racks; accepted: at least 1");
        }
        if self.zones == 0 {
            return refuse("a fleet in 0 cooling zones; accepted: at least 1");
        }
        let catalog = Catalog::embedded().map_err(|error| FleetError(error.to_string()))?;
        let mut members = Vec::new();
        let mut names = BTreeSet::new();
        let mut place = 0;
        for (kind, count) in &self.kinds {
            kind.check()?;
            let hardware = hardware::of(kind, &catalog)?;
            for number in 0..*count {
                let name = format!("{}-{}-{number}", self.prefix, kind.name);
                if !names.insert(name.clone()) {
                    return refuse(format!(
                        "two nodes would be called {name}; kinds need names of their own"
                    ));
                }
                let rack = place % self.racks;
                let site = (rack, rack % self.zones);
                members.push(member(name, site, kind, hardware.clone()));
                place += 1;
            }
        }
        Ok(members)
    }
}

/// A node in this rack and cooling zone.
fn member(name: String, site: (u32, u32), kind: &NodeKind, hardware: SimulatedHardware) -> Member {
    let labels = labels(&name, site, kind, &hardware);
    let mut capacity: BTreeMap<String, String> = [
        ("cpu", hardware.cpus().to_string()),
        ("memory", format!("{}Gi", kind.memory_gib)),
        ("ephemeral-storage", "200Gi".to_owned()),
        ("pods", PODS.to_owned()),
    ]
    .into_iter()
    .map(|(what, much)| (what.to_owned(), much))
    .collect();
    if let Some(gpus) = &hardware.gpus {
        capacity.insert(gpus.vendor.resource().to_owned(), gpus.count.to_string());
    }
    Member { name, labels, capacity, hardware }
}

fn labels(
    name: &str,
    (rack, zone): (u32, u32),
    kind: &NodeKind,
    hardware: &SimulatedHardware,
) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = [
        ("kubernetes.io/hostname", name.to_owned()),
        ("kubernetes.io/os", "linux".to_owned()),
        ("kubernetes.io/arch", "amd64".to_owned()),
        (SIMULATED, TRUE.to_owned()),
        (KIND, kind.name.clone()),
        (node::MANAGED, TRUE.to_owned()),
        (node::RACK, format!("rack-{rack}")),
        (node::COOLING_ZONE, format!("zone-{zone}")),
        (node::CPU_MODEL, hardware.cpu_model.clone()),
        (node::CPU_SOCKETS, hardware.sockets.to_string()),
        (CPU_CORES, hardware.cores().to_string()),
        (CPU_VENDOR, hardware.cpu_vendor().to_owned()),
    ]
    .into_iter()
    .map(|(label, value)| (label.to_owned(), value))
    .collect();
    if let Some(gpus) = &hardware.gpus {
        labels.insert(node::GPU_MODEL.to_owned(), gpus.model.clone());
        labels.insert(node::GPU_COUNT.to_owned(), gpus.count.to_string());
        labels.insert(node::GPU_PRODUCTS[0].to_owned(), gpus.model.clone());
        labels.insert(gpus.vendor.pci_label().to_owned(), TRUE.to_owned());
    }
    labels.extend(kind.labels.clone());
    labels
}

#[cfg(test)]
mod tests;
