//! The external form of a stored object: as it is, as an event of `events.k8s.io`, or its metadata only.

use crate::kind::{Flavour, Kind};
use crate::request::Form;
use crate::store::Object;
use bytes::Bytes;
use serde_json::{Map, Value, json};

/// The fields of an event that are renamed in `events.k8s.io`: the name there, and the name in the core.
const RENAMED: [(&str, &str); 8] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("reportingInstance", "reportingInstance"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// The bytes to send.
pub(crate) fn bytes(kind: &Kind, object: &Object, form: Form) -> Bytes {
    match form {
        Form::Metadata => json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.parse()["metadata"],
        })
        .to_string()
        .into(),
        Form::Whole | Form::Table if kind.flavour == Flavour::EventView => value(kind, object.parse()).to_string().into(),
        Form::Whole | Form::Table => object.bytes.clone(),
    }
}

/// Converts a stored value to the form of its kind.
pub(crate) fn value(kind: &Kind, mut stored: Value) -> Value {
    if kind.flavour == Flavour::EventView {
        rename(&mut stored, |(new, old)| (old, new));
        stored["apiVersion"] = json!("events.k8s.io/v1");
        stored["metadata"].as_object_mut().and_then(|meta| meta.remove("managedFields"));
    }
    stored
}

/// Converts a value in the form of its kind to the stored form.
pub(crate) fn stored(kind: &Kind, mut shown: Value) -> Value {
    if kind.flavour == Flavour::EventView {
        rename(&mut shown, |pair| pair);
        shown["apiVersion"] = json!("v1");
    }
    shown
}

fn rename(
    event: &mut Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(fields) = event.as_object_mut() else { return };
    let mut renamed = Map::new();
    for (from, to) in RENAMED.map(direction) {
        if let Some(value) = fields.remove(from) {
            renamed.insert(to.to_owned(), value);
        }
    }
    fields.extend(renamed);
}
