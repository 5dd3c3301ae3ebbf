//! Reads objects that may be malformed: a malformed object is named and skipped, and the watch continues.
//!
//! A typed watch ends at the first object that does not fit the type, and ends there again after every restart. So
//! hosts watch dynamic objects and read each one here.

use kube::Resource;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadObject {
    /// Its kind.
    pub kind: String,
    /// Its namespace, if it is in one.
    pub namespace: Option<String>,
    /// Its name; empty if it has none.
    pub name: String,
    /// The field that does not fit, such as `spec.cpu.packagePowerCapWatts`; empty for the object as a whole.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for BadObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        let name = if self.name.is_empty() { "(without a name)" } else { &self.name };
        let field = if self.field.is_empty() { "the object" } else { &self.field };
        write!(f, "{name}: {field}: {}", self.why)
    }
}

impl std::error::Error for BadObject {}

/// Reads an object.
///
/// # Errors
/// If it is not of this kind, or a field does not fit; with the field and the reason.
pub fn parse<T>(value: &Value) -> Result<T, BadObject>
where
    T: Resource<DynamicType = ()> + DeserializeOwned,
{
    let bad = |field: &str, why: String| {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        BadObject {
            kind: T::kind(&()).into_owned(),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name").unwrap_or_default(),
            field: field.to_owned(),
            why,
        }
    };
    if !value.is_object() {
        return Err(bad("", "expected an object".to_owned()));
    }
    for (field, expected) in [("kind", T::kind(&())), ("apiVersion", T::api_version(&()))] {
        match value.get(field) {
            Some(found) if found.as_str() != Some(&*expected) => {
                return Err(bad(field, format!("expected {expected}, found {found}")));
            }
            Some(_) | None => {}
        }
    }
    // Tracking the path makes reading slower, and almost every object is valid: only an invalid one is read with it.
    T::deserialize(value).or_else(|_| {
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            bad(if path == "." { "" } else { &path }, error.inner().to_string())
        })
    })
}

/// Reads an object of a dynamic watch.
///
/// # Errors
/// As [`parse`].
pub fn parse_dynamic<T>(object: &DynamicObject) -> Result<T, BadObject>
where
    T: Resource<DynamicType = ()> + DeserializeOwned,
{
    match serde_json::to_value(object) {
        Ok(value) => parse(&value),
        Err(error) => Err(BadObject {
            kind: T::kind(&()).into_owned(),
            namespace: object.metadata.namespace.clone(),
            name: object.metadata.name.clone().unwrap_or_default(),
            field: String::new(),
            why: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_hardware::NodeHardware;
    use crate::node_twin::NodeTwin;
    use crate::workload_profile::WorkloadProfile;
    use serde_json::json;

    fn twin(spec: Value, status: Value) -> Value {
        json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin", "metadata": {"name": "a"},
               "spec": spec, "status": status})
    }

    fn why(value: Value) -> String {
        parse::<NodeTwin>(&value).unwrap_err().to_string()
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        let spec = json!({"nodeName": "a", "profile": "eco"});
        for (value, message) in [
            (
                twin(
                    json!({"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapWatts": "120"}}),
                    json!({}),
                ),
                "NodeTwin a: spec.cpu.packagePowerCapWatts: invalid type: string \"120\", expected f64",
            ),
            (
                twin(spec.clone(), json!({"powerMeasurement": "none"})),
                "NodeTwin a: status.powerMeasurement: invalid type: string \"none\", expected struct PowerMeasurement",
            ),
            (
                twin(spec.clone(), json!({"conditions": [{"type": "Overridden"}]})),
                "NodeTwin a: status.conditions[0]: missing field `status`",
            ),
            (twin(json!({"profile": "eco"}), json!({})), "NodeTwin a: spec: missing field `nodeName`"),
            (
                json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwinState", "metadata": {"name": "a"}, "spec": spec}),
                "NodeTwin a: kind: expected NodeTwin, found \"NodeTwinState\"",
            ),
            (
                json!({"metadata": {}, "spec": 3}),
                "NodeTwin (without a name): spec: invalid type: integer `3`, expected struct NodeTwinSpec",
            ),
            (json!([]), "NodeTwin (without a name): the object: expected an object"),
        ] {
            assert_eq!(why(value), message);
        }
        let profile = json!({"metadata": {"name": "p", "namespace": "batch"}, "spec": {"workloadRef": 1}});
        let bad = parse::<WorkloadProfile>(&profile).unwrap_err();
        assert!(bad.to_string().starts_with("WorkloadProfile batch/p: spec.workloadRef: "), "{bad}");
    }

    #[test]
    fn what_other_generations_write_is_no_error() {
        let value = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "a", "future": {"x": 1}},
            "status": {"cpu": {"warnings": null, "sockets": 2.0, "capMaxWatts": 360, "novel": []}, "gpu": null}});
        let hardware: NodeHardware = parse(&value).unwrap();
        let cpu = hardware.status.unwrap().cpu.unwrap();
        assert_eq!((cpu.warnings, cpu.sockets.unwrap().get()), (None, 2));
    }

    #[test]
    fn a_dynamic_object_is_read_alike() {
        let dynamic: DynamicObject =
            serde_json::from_value(twin(json!({"nodeName": "a", "profile": "eco"}), json!({}))).unwrap();
        assert_eq!(parse_dynamic::<NodeTwin>(&dynamic).unwrap().spec.node_name, "a");
        let bad = parse_dynamic::<NodeHardware>(&dynamic).unwrap_err();
        assert_eq!((bad.field.as_str(), bad.name.as_str()), ("kind", "a"));
    }
}
