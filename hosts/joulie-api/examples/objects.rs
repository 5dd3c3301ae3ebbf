//! Reads the example objects, for the tests of this crate and for the conformance suite: both include this file.

use joulie_api::gpu::Gpu;
use joulie_api::node_hardware::NodeHardware;
use joulie_api::node_power_grant::NodePowerGrant;
use joulie_api::node_power_profile::NodePowerProfile;
use joulie_api::node_twin::NodeTwin;
use joulie_api::object::{BadObject, parse};
use joulie_api::power_budget::PowerBudget;
use joulie_api::power_event::PowerEvent;
use joulie_api::telemetry_profile::TelemetryProfile;
use joulie_api::workload_profile::WorkloadProfile;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// An object that a validation rule refuses.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bad {
    pub(crate) message: String,
    pub(crate) field: String,
    pub(crate) old: Option<Value>,
    pub(crate) object: Value,
}

/// The objects in the folder `good` or `bad` of the examples, by the names of their files.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(examples: &Path, folder: &str) -> Vec<(String, T)> {
    let mut files: Vec<_> =
        std::fs::read_dir(examples.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 13, "{folder} has {} files", files.len());
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    files.into_iter().map(read).collect()
}

pub(crate) fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

/// Converts an object to the type with which the hosts read it, and back.
pub(crate) fn through_the_type(object: Value) -> Result<Value, BadObject> {
    let written = match kind(&object) {
        "GPU" => serde_json::to_value(parse::<Gpu>(&object)?),
        "NodeHardware" => serde_json::to_value(parse::<NodeHardware>(&object)?),
        "NodePowerGrant" => serde_json::to_value(parse::<NodePowerGrant>(&object)?),
        "NodePowerProfile" => serde_json::to_value(parse::<NodePowerProfile>(&object)?),
        "NodeTwin" => serde_json::to_value(parse::<NodeTwin>(&object)?),
        "PowerBudget" => serde_json::to_value(parse::<PowerBudget>(&object)?),
        "PowerEvent" => serde_json::to_value(parse::<PowerEvent>(&object)?),
        "TelemetryProfile" => serde_json::to_value(parse::<TelemetryProfile>(&object)?),
        "WorkloadProfile" => serde_json::to_value(parse::<WorkloadProfile>(&object)?),
        other => panic!("no such kind: {other}"),
    };
    Ok(written.unwrap())
}

/// Removes nulls, which the API server drops, and writes every number as a float.
pub(crate) fn normal(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let said = object.iter().filter(|(_, value)| !value.is_null());
            Value::Object(said.map(|(key, value)| (key.clone(), normal(value))).collect())
        }
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::Number(number) => number.as_f64().unwrap().into(),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}
