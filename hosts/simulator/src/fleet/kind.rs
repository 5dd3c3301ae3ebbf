//! One kind of node, described by the models of its hardware.

use super::{FleetError, refuse};
use std::collections::BTreeMap;

/// The built-in kinds, which need no file.
pub(super) const BUILT_IN: [&str; 4] = ["xeon", "epyc", "gpu", "amd-gpu"];

/// A kind of node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKind {
    /// Its name, which is a part of the names of its nodes.
    pub name: String,
    /// The processor model in the catalogue.
    pub cpu_model: String,
    /// Packages, 1 to 8.
    pub sockets: u32,
    /// Cores of a package; `None` for the number in the catalogue.
    pub cores_per_socket: Option<u32>,
    /// Logical processors of a core, 1 to 8.
    pub threads_per_core: u32,
    /// Memory.
    pub memory_gib: u32,
    /// Graphics processors, if any.
    pub gpus: Option<GpuKind>,
    /// Labels in addition to those of every simulated node.
    pub labels: BTreeMap<String, String>,
}

/// The graphics processors of a kind of node, which are all of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuKind {
    /// The model in the catalogue.
    pub model: String,
    /// How many, 1 to 16.
    pub count: u32,
}

impl NodeKind {
    /// A built-in kind by its name.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        let (cpu_model, memory_gib, gpus) = match name {
            "xeon" => ("INTEL_XEON_GOLD_6530", 256, None),
            "epyc" => ("AMD_EPYC_9654", 768, None),
            "gpu" => ("AMD_EPYC_9534", 1024, Some(("NVIDIA_H100_SXM", 8))),
            "amd-gpu" => ("AMD_EPYC_9534", 1024, Some(("AMD_INSTINCT_MI300X", 8))),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            cpu_model: cpu_model.to_owned(),
            sockets: 2,
            cores_per_socket: None,
            threads_per_core: 2,
            memory_gib,
            gpus: gpus.map(|(model, count)| GpuKind { model: model.to_owned(), count }),
            labels: BTreeMap::new(),
        })
    }

    pub(super) fn check(&self) -> Result<(), FleetError> {
        let bytes = self.name.bytes();
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.name.is_empty() || self.name.len() > 40 || !bytes.clone().all(plain) {
            return refuse(format!(
                "a kind called {:?}; accepted: up to 40 small letters, digits and '-'",
                self.name
            ));
        }
        let within = |what: &str, value: u32, most: u32| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            refuse(format!("kind {}: {what} is {value}; accepted: 1 to {most}", self.name))
        };
        within("sockets", self.sockets, 8)?;
        within("threadsPerCore", self.threads_per_core, 8)?;
        within("memoryGiB", self.memory_gib, 65_536)?;
        within("coresPerSocket", self.cores_per_socket.unwrap_or(1), 1_024)?;
        within("gpus.count", self.gpus.as_ref().map_or(1, |gpus| gpus.count), 16)
    }
}
