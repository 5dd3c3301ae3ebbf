//! The example objects of `hosts/joulie-api/examples`, and how they are read.

use joulie_api::gpu::Gpu;
use joulie_api::node_hardware::NodeHardware;
use joulie_api::node_power_profile::NodePowerProfile;
use joulie_api::node_twin::NodeTwin;
use joulie_api::object::parse;
use joulie_api::telemetry_profile::TelemetryProfile;
use joulie_api::workload_profile::WorkloadProfile;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// An object that a rule refuses.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bad {
    pub(crate) message: String,
    pub(crate) field: String,
    pub(crate) old: Option<Value>,
    pub(crate) object: Value,
}

pub(crate) fn good() -> Vec<(String, Value)> {
    read("good")
}

pub(crate) fn bad() -> Vec<(String, Bad)> {
    read("bad")
}

fn read<T: for<'de> Deserialize<'de>>(folder: &str) -> Vec<(String, T)> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hosts/joulie-api/examples");
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

/// The definition of an object's kind.
pub(crate) fn definition_of(kind: &str) -> CustomResourceDefinition {
    let all = joulie_api::crd::all();
    all.into_iter().find(|definition| definition.spec.names.kind == kind).unwrap()
}

/// Where objects of a kind are kept; in this namespace, if they are in one.
pub(crate) fn api_of(client: &Client, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let spec = definition_of(kind).spec;
    let version = spec.versions[0].name.clone();
    let resource = ApiResource {
        api_version: format!("{}/{version}", spec.group),
        group: spec.group,
        version,
        kind: spec.names.kind,
        plural: spec.names.plural,
    };
    if spec.scope == "Namespaced" {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

/// Through the type that the hosts read it with, and back.
pub(crate) fn through_the_type(object: Value) -> Value {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let read = match kind.as_str() {
        "GPU" => serde_json::to_value(parse::<Gpu>(object).unwrap()),
        "NodeHardware" => serde_json::to_value(parse::<NodeHardware>(object).unwrap()),
        "NodePowerProfile" => serde_json::to_value(parse::<NodePowerProfile>(object).unwrap()),
        "NodeTwin" => serde_json::to_value(parse::<NodeTwin>(object).unwrap()),
        "TelemetryProfile" => serde_json::to_value(parse::<TelemetryProfile>(object).unwrap()),
        "WorkloadProfile" => serde_json::to_value(parse::<WorkloadProfile>(object).unwrap()),
        other => panic!("no such kind: {other}"),
    };
    read.unwrap()
}
