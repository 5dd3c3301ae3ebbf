//! A fleet from a JSON file, which is read once at the start. An unknown field is an error, because it is a typo.

use super::{Fleet, FleetError, GpuKind, NodeKind};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    kinds: Vec<FileKind>,
    #[serde(default = "racks")]
    racks: u32,
    #[serde(default = "zones")]
    zones: u32,
    #[serde(default = "prefix")]
    prefix: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileKind {
    name: String,
    count: u32,
    cpu_model: String,
    #[serde(default = "two")]
    sockets: u32,
    cores_per_socket: Option<u32>,
    #[serde(default = "two")]
    threads_per_core: u32,
    #[serde(rename = "memoryGiB", default = "memory")]
    memory_gib: u32,
    gpus: Option<FileGpus>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileGpus {
    model: String,
    count: u32,
}

const fn racks() -> u32 {
    3
}

const fn zones() -> u32 {
    1
}

const fn two() -> u32 {
    2
}

const fn memory() -> u32 {
    256
}

fn prefix() -> String {
    "sim".to_owned()
}

impl Fleet {
    /// Reads a fleet from a file's text:
    ///
    /// ```json
    /// {"racks": 3, "kinds": [{"name": "gpu", "count": 2, "cpuModel": "AMD_EPYC_9534", "sockets": 2,
    ///  "memoryGiB": 1024, "gpus": {"model": "NVIDIA_H100_SXM", "count": 8}}]}
    /// ```
    ///
    /// # Errors
    /// If the text is not such a file, or the fleet is invalid.
    pub fn from_json(text: &str) -> Result<Self, FleetError> {
        let file: File = serde_json::from_str(text).map_err(|error| FleetError(error.to_string()))?;
        let kinds = file.kinds.into_iter().map(|kind| (kind.count, kind)).map(|(count, kind)| {
            let gpus = kind.gpus.map(|FileGpus { model, count }| GpuKind { model, count });
            let kind = NodeKind {
                name: kind.name,
                cpu_model: kind.cpu_model,
                sockets: kind.sockets,
                cores_per_socket: kind.cores_per_socket,
                threads_per_core: kind.threads_per_core,
                memory_gib: kind.memory_gib,
                gpus,
                labels: kind.labels,
            };
            (kind, count)
        });
        let fleet =
            Self { kinds: kinds.collect(), racks: file.racks, zones: file.zones, prefix: file.prefix };
        fleet.members()?;
        Ok(fleet)
    }
}
