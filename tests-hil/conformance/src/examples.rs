//! Reads the example objects of `hosts/joulie-api/examples`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use serde_json::Value;
use std::path::Path;

#[path = "../../../hosts/joulie-api/examples/objects.rs"]
mod objects;

pub(crate) use objects::{Bad, kind, normal};

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../hosts/joulie-api/examples"))
}

pub(crate) fn good() -> Vec<(String, Value)> {
    objects::read(folder(), "good")
}

pub(crate) fn bad() -> Vec<(String, Bad)> {
    objects::read(folder(), "bad")
}

/// Converts an object to the type that the hosts use, and back.
pub(crate) fn through_the_type(object: Value) -> Value {
    objects::through_the_type(object).unwrap()
}

/// The definition of an object's kind.
pub(crate) fn definition_of(kind: &str) -> CustomResourceDefinition {
    let all = joulie_api::crd::all();
    all.into_iter().find(|definition| definition.spec.names.kind == kind).unwrap()
}

/// The API for objects of a kind, in this namespace if the kind is namespaced.
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
