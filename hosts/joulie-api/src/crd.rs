//! The definitions of all kinds, the same as in `hosts/deploy/chart-crds`.
//!
//! A field that may be missing is not a field that may be null. If a schema does not allow null, the API server drops
//! it; that is what is wanted for the nulls that some agents write. So everything that the derive says about nulls is
//! removed again.

use crate::gpu::Gpu;
use crate::node_hardware::NodeHardware;
use crate::node_power_grant::NodePowerGrant;
use crate::node_power_profile::NodePowerProfile;
use crate::node_twin::NodeTwin;
use crate::power_budget::PowerBudget;
use crate::power_event::PowerEvent;
use crate::telemetry_profile::TelemetryProfile;
use crate::workload_profile::WorkloadProfile;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

/// All definitions, in the order of their names.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        Gpu::crd(),
        NodeHardware::crd(),
        NodePowerGrant::crd(),
        NodePowerProfile::crd(),
        NodeTwin::crd(),
        PowerBudget::crd(),
        PowerEvent::crd(),
        TelemetryProfile::crd(),
        WorkloadProfile::crd(),
    ];
    for crd in &mut all {
        for version in &mut crd.spec.versions {
            if let Some(schema) =
                version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut())
            {
                refuse_nulls(schema);
            }
        }
    }
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

fn refuse_nulls(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.default = schema.default.take().filter(|default| !default.0.is_null());
    if let Some(words) = &mut schema.enum_ {
        words.retain(|word| !word.0.is_null());
    }
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        refuse_nulls(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => refuse_nulls(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(refuse_nulls),
        None => {}
    }
}

/// The schema of an object with any content.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
