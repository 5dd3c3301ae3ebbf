//! The example objects: those that the API server must accept, and those that it must refuse, with the message.

use joulie_api::crd;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[path = "../../examples/objects.rs"]
mod objects;

pub(crate) use objects::{Bad, kind};
use objects::{normal, read, through_the_type};

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples"))
}

pub(crate) fn good() -> Vec<(String, Value)> {
    read(folder(), "good")
}

pub(crate) fn bad() -> Vec<(String, Bad)> {
    read(folder(), "bad")
}

/// The schemas of all kinds, by kind.
pub(crate) fn schemas() -> BTreeMap<String, Value> {
    let schema = |crd: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
        let tree = serde_json::to_value(crd).unwrap();
        let schema = tree["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        (crd.spec.names.kind.clone(), schema)
    };
    crd::all().iter().map(schema).collect()
}

#[test]
fn every_generation_is_read_without_losing_a_field() {
    // Fix list operator B38: the types and the definitions are one thing.
    for (name, object) in good() {
        let read = through_the_type(object.clone()).unwrap_or_else(|bad| panic!("{name}: {bad}"));
        assert_eq!(normal(&read), normal(&object), "{name}");
    }
}

/// The violations of a schema by a value: pruned fields, types, words, bounds.
fn complaints(path: &str, value: &Value, schema: &Value, found: &mut Vec<String>) {
    let bound = |key: &str| schema[key].as_f64();
    match value {
        Value::Null => {}
        Value::Object(object) => {
            if schema["x-kubernetes-preserve-unknown-fields"] == true {
                return;
            }
            for (key, value) in object {
                match schema["properties"].get(key) {
                    Some(schema) => complaints(&format!("{path}.{key}"), value, schema, found),
                    None if schema["additionalProperties"].is_object() => {
                        complaints(&format!("{path}.{key}"), value, &schema["additionalProperties"], found);
                    }
                    None => found.push(format!("{path}.{key}: not in the schema")),
                }
            }
            for key in schema["required"].as_array().into_iter().flatten() {
                if object.get(key.as_str().unwrap()).is_none() {
                    found.push(format!("{path}.{}: required", key.as_str().unwrap()));
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                complaints(&format!("{path}[{at}]"), item, &schema["items"], found);
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            let above = match schema["exclusiveMinimum"] == true {
                true => bound("minimum").is_none_or(|min| number > min),
                false => bound("minimum").is_none_or(|min| number >= min),
            };
            if !above || bound("maximum").is_some_and(|max| number > max) {
                found.push(format!("{path}: {number} is out of range"));
            }
        }
        Value::Bool(_) => {}
        Value::String(text) => {
            let words = schema["enum"].as_array();
            if words.is_some_and(|words| !words.iter().any(|word| word == text)) {
                found.push(format!("{path}: {text} is not in the list"));
            }
            let length = u64::try_from(text.chars().count()).unwrap();
            if schema["minLength"].as_u64().is_some_and(|min| length < min)
                || schema["maxLength"].as_u64().is_some_and(|max| length > max)
            {
                found.push(format!("{path}: {length} characters"));
            }
        }
    }
    let expected = match value {
        Value::Null => return,
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::Number(number) if number.as_f64().unwrap().fract() == 0.0 && schema["type"] == "integer" => {
            "integer"
        }
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
    };
    if schema["type"] != expected {
        found.push(format!("{path}: a {expected}, and not a {}", schema["type"]));
    }
}

/// Checks spec and status; the API server checks the rest of an object.
fn judge(object: &Value, schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for part in ["spec", "status"] {
        if let Some(value) = object.get(part) {
            complaints(part, value, &schema["properties"][part], &mut found);
        }
    }
    found
}

#[test]
fn every_generation_fits_the_schemas() {
    let schemas = schemas();
    for (name, object) in good() {
        assert_eq!(judge(&object, &schemas[kind(&object)]), [""; 0], "{name}");
    }
}

#[test]
fn the_schemas_refuse_words_and_numbers_outside_their_lists_and_bounds() {
    let schemas = schemas();
    let twin = |spec: &str| serde_json::from_str::<Value>(&format!(r#"{{"spec":{spec}}}"#)).unwrap();
    for (spec, complaint) in [
        (r#"{"nodeName":"a","profile":"turbo"}"#, "spec.profile: turbo is not in the list"),
        (r#"{"nodeName":"","profile":"eco"}"#, "spec.nodeName: 0 characters"),
        (r#"{"profile":"eco"}"#, "spec.nodeName: required"),
        (
            r#"{"nodeName":"a","profile":"eco","cpu":{"packagePowerCapWatts":0.5}}"#,
            "spec.cpu.packagePowerCapWatts: 0.5 is out of range",
        ),
        (
            r#"{"nodeName":"a","profile":"eco","cpu":{"packagePowerCapPctOfMax":0}}"#,
            "spec.cpu.packagePowerCapPctOfMax: 0 is out of range",
        ),
        (
            r#"{"nodeName":"a","profile":"eco","gpu":{"powerCap":{"capPctOfMax":100.5}}}"#,
            "spec.gpu.powerCap.capPctOfMax: 100.5 is out of range",
        ),
        (
            r#"{"nodeName":"a","profile":"eco","gpu":{"powerCap":{"scope":"node"}}}"#,
            "spec.gpu.powerCap.scope: node is not in the list",
        ),
    ] {
        assert_eq!(judge(&twin(spec), &schemas["NodeTwin"]), [complaint]);
        assert_eq!(judge(&twin(spec), &schemas["NodePowerProfile"]), [complaint]);
    }
}

/// All fields of a schema, as paths.
fn fields(path: &str, schema: &Value, found: &mut BTreeSet<String>) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        fields(&path, schema, found);
        found.insert(path);
    }
    if schema["items"].is_object() {
        fields(path, &schema["items"], found);
    }
}

fn fields_of(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        fields_of(&path, value, found);
        found.insert(path);
    }
    for item in value.as_array().into_iter().flatten() {
        fields_of(path, item, found);
    }
}

#[test]
fn every_field_stands_in_an_example() {
    let (mut schema_fields, mut example_fields) = (BTreeSet::new(), BTreeSet::new());
    for (kind, schema) in schemas() {
        fields(&kind, &schema, &mut schema_fields);
    }
    for (_, object) in good() {
        for part in ["spec", "status"] {
            let path = format!("{}.{part}", kind(&object));
            fields_of(&path, &object[part], &mut example_fields);
            example_fields.insert(path);
        }
    }
    // One example of a condition and of a source is enough for all of them.
    let alike = |field: &&String| {
        [
            "conditions.",
            ".gpu.http",
            ".gpu.prometheus",
            ".thermal.",
            ".cpu.prometheus",
            ".context.http",
            "apiVersion",
            "kind",
            "metadata",
        ]
        .iter()
        .any(|part| field.contains(part))
    };
    let missing: Vec<&String> =
        schema_fields.difference(&example_fields).filter(|field| !alike(field)).collect();
    assert_eq!(missing, [""; 0]);
}

/// The messages of a schema's rules.
fn messages(schema: &Value, found: &mut BTreeSet<String>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        found.insert(rule["message"].as_str().expect("a rule says what is wrong").to_owned());
    }
    for schema in schema["properties"].as_object().into_iter().flatten().map(|(_, schema)| schema) {
        messages(schema, found);
    }
    if schema["items"].is_object() {
        messages(&schema["items"], found);
    }
}

#[test]
fn every_rule_has_an_object_that_it_refuses() {
    let mut rules = BTreeSet::new();
    for (kind, schema) in schemas() {
        let mut found = BTreeSet::new();
        messages(&schema, &mut found);
        rules.extend(found.into_iter().map(|message| (kind.clone(), message)));
    }
    let refused: BTreeSet<(String, String)> =
        bad().into_iter().map(|(_, bad)| (kind(&bad.object).to_owned(), bad.message)).collect();
    assert_eq!(refused, rules);
    assert_eq!(rules.len(), 23);
}
