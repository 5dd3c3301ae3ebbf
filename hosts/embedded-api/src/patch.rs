//! Patches: RFC 6902, RFC 7386, and the strategic merge that kubectl uses on built-in kinds.
//!
//! The strategic merge supports what kubectl writes for these kinds: lists with a key merge by that key, `$patch:
//! delete` and `replace`, and a null deletes. `$setElementOrder`, which only affects the order, and `$retainKeys` are
//! ignored.

use crate::failure::{Cause, Failure, Reason};
use crate::kind::{Flavour, Kind};
use crate::schema::{Merge, Schema};
use crate::write::{parsed, unsupported};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The value with the patch applied.
pub(crate) fn patched(
    kind: &Kind,
    content_type: &str,
    mut value: Value,
    body: &[u8],
) -> Result<Value, Failure> {
    match content_type {
        "application/json-patch+json" => {
            let operations: json_patch::Patch = serde_json::from_slice(body)
                .map_err(|error| Failure::bad_request(format!("the body is not a JSON patch: {error}")))?;
            json_patch::patch(&mut value, &operations).map_err(|error| {
                let name = value["metadata"]["name"].as_str().unwrap_or("");
                let message =
                    format!("the server rejected our request due to an error in our request: {error}");
                let cause = Cause { reason: "FieldValueInvalid", field: "patch".to_owned(), message };
                Failure::invalid(kind, name, &[cause])
            })?;
        }
        "application/merge-patch+json" => json_patch::merge(&mut value, &parsed(body)?),
        "application/strategic-merge-patch+json" if kind.flavour == Flavour::Custom => {
            return Err(unsupported(
                content_type,
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml \
                 (custom resources have no strategic merge: use --type merge)",
            ));
        }
        "application/strategic-merge-patch+json" => {
            let Value::Object(patch) = parsed(body)? else { return Err(no_object()) };
            strategic(&mut value, &patch, Some(&kind.schema));
        }
        other => {
            return Err(unsupported(
                other,
                "application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json, application/apply-patch+yaml",
            ));
        }
    }
    if value.is_object() { Ok(value) } else { Err(no_object()) }
}

fn no_object() -> Failure {
    Failure::new(Reason::BadRequest, "the patch leaves no object")
}

fn strategic(value: &mut Value, patch: &Map<String, Value>, schema: Option<&Arc<Schema>>) {
    if patch.get("$patch").is_some_and(|directive| directive == "replace") {
        *value = Value::Object(without_directives(patch));
        return;
    }
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(fields) = value else { return };
    for (name, patch) in patch {
        let schema = schema.and_then(|schema| schema.field(name));
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = patch.as_array().map_or(&[][..], Vec::as_slice);
            if let Some(Value::Array(items)) = fields.get_mut(list) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        match patch {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(patch) if patch.get("$patch").is_some_and(|directive| directive == "delete") => {
                fields.remove(name);
            }
            Value::Object(patch) => strategic(fields.entry(name).or_insert(Value::Null), patch, schema),
            Value::Array(patch) => list(fields.entry(name).or_insert(Value::Null), patch, schema),
            scalar @ (Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                fields.insert(name.clone(), scalar.clone());
            }
        }
    }
}

fn list(value: &mut Value, patch: &[Value], schema: Option<&Arc<Schema>>) {
    let items = value.as_array_mut();
    match (schema.map(|schema| &schema.merge), items) {
        (Some(Merge::Set), Some(items)) => {
            for item in patch {
                if !items.contains(item) {
                    items.push(item.clone());
                }
            }
        }
        (Some(Merge::Keyed(keys)), Some(items)) => {
            let of = schema.and_then(|schema| schema.items.as_ref());
            // The strategic merge identifies ports by their number alone, which is the first key.
            let key = keys.first().map_or("", String::as_str);
            for item in patch {
                let Value::Object(patch) = item else { continue };
                let same = items.iter().position(|item| item.get(key) == patch.get(key));
                let gone = patch.get("$patch").is_some_and(|directive| directive == "delete");
                match (same.and_then(|at| items.get_mut(at).map(|item| (at, item))), gone) {
                    (Some((at, _)), true) => drop(items.remove(at)),
                    (Some((_, item)), false) => strategic(item, patch, of),
                    (None, true) => {}
                    (None, false) => items.push(Value::Object(without_directives(patch))),
                }
            }
        }
        _ => *value = Value::Array(patch.to_vec()),
    }
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    let kept = patch.iter().filter(|(name, _)| !name.starts_with('$'));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}
