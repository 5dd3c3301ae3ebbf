//! The version before, as far as fields go: what a grant and its status had not yet. An agent of that version neither reads nor writes
//! these fields, and an API server with the definitions of that version drops them from what anybody writes. The programs are today's.

use bytes::Bytes;
use embedded_api::ApiOptions;
use serde_json::Value;

/// Who is of the version before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OlderPart {
    /// Nobody.
    #[default]
    Nobody,
    /// The definitions.
    Definitions,
    /// The agents of every other node.
    Agents,
}

const KIND: &str = "NodePowerGrant";
/// What came later, by the part of the object.
const FIELDS: [(&str, &[&str]); 2] =
    [("spec", &["armed", "decision", "lends"]), ("status", &["armed", "demand", "yields"])];

/// What the story counts for each message of which an older program did not know something.
pub(crate) const DROPPED: &str = "messages with unknown fields";
/// What it counts for each write that reached older definitions and had something that they do not have.
pub(crate) const NOT_STORED: &str = "writes with fields that are not stored";

/// The API server, with the definitions of that version where they are the older part.
pub(crate) fn api_options(part: OlderPart) -> ApiOptions {
    let mut kinds = joulie_api::crd::all();
    if part == OlderPart::Definitions {
        let versions = kinds.iter_mut().filter(|kind| kind.spec.names.kind == KIND);
        let schemas = versions
            .flat_map(|kind| &mut kind.spec.versions)
            .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
        for schema in schemas {
            for (of, fields) in FIELDS {
                let of = schema.properties.as_mut().and_then(|all| all.get_mut(of)?.properties.as_mut());
                if let Some(properties) = of {
                    properties.retain(|field, _| !fields.contains(&field.as_str()));
                }
            }
        }
    }
    ApiOptions::with(kinds)
}

/// The lines of JSON without what that version does not know of grants; `None` where there is nothing of it.
pub(crate) fn without(bytes: &Bytes) -> Option<Bytes> {
    let text = std::str::from_utf8(bytes).ok()?;
    if !FIELDS.iter().flat_map(|(_, fields)| *fields).any(|field| text.contains(field)) {
        return None;
    }
    let mut dropped = false;
    let mut known = String::new();
    for line in text.split_inclusive('\n') {
        match serde_json::from_str::<Value>(line) {
            Ok(mut value) => {
                dropped |= forget(&mut value);
                known.push_str(&value.to_string());
                known.push_str(if line.ends_with('\n') { "\n" } else { "" });
            }
            Err(_) => known.push_str(line),
        }
    }
    dropped.then(|| Bytes::from(known))
}

/// Of a list, of an event of a watch, or of an object; whether there was something.
fn forget(value: &mut Value) -> bool {
    if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
        return items.iter_mut().fold(false, |dropped, item| forget(item) | dropped);
    }
    if let Some(object) = value.get_mut("object") {
        return forget(object);
    }
    // The items of a list do not name their kind.
    let is_grant = value["kind"] == KIND || value["spec"]["serial"].is_number();
    let mut dropped = false;
    for (part, fields) in FIELDS.iter().filter(|_| is_grant) {
        let Some(all) = value.get_mut(*part).and_then(Value::as_object_mut) else { continue };
        for field in *fields {
            dropped |= all.remove(*field).is_some();
        }
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is left of these lines.
    fn left(lines: &[Value]) -> Option<Vec<Value>> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let left = String::from_utf8(without(&Bytes::from(text))?.to_vec()).unwrap();
        Some(left.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[test]
    fn what_came_later_is_dropped_from_objects_lists_and_events_and_nothing_else() {
        let grant = json!({"kind": KIND, "spec": {"serial": 2, "watts": 300, "lends": true, "armed": []},
            "status": {"serial": 2, "yields": 200, "demand": {"biting": true}}});
        let known = json!({"kind": KIND, "spec": {"serial": 2, "watts": 300}, "status": {"serial": 2}});
        let event = |object: &Value| json!({"type": "MODIFIED", "object": object});
        let list = |object: &Value| json!({"kind": "NodePowerGrantList", "items": [object, object]});
        let all = [grant.clone(), event(&grant), list(&grant)];
        assert_eq!(left(&all), Some(vec![known.clone(), event(&known), list(&known)]));
        assert_eq!(left(&[known]), None);
        let other = json!({"kind": "PowerBudget", "spec": {"armed": {"events": []}}});
        assert_eq!(left(&[event(&other)]), None);
        assert_eq!(without(&Bytes::from_static(b"no json, though it says lends")), None);
    }

    #[test]
    fn the_older_definitions_lack_each_of_the_fields() {
        let count = |part: OlderPart| {
            let options = api_options(part);
            let mut grants = options.definitions.iter().filter(|kind| kind.spec.names.kind == KIND);
            let text = format!("{:?}", grants.next().unwrap());
            FIELDS
                .iter()
                .flat_map(|(_, fields)| *fields)
                .filter(|field| text.contains(&format!("\"{field}\"")))
                .count()
        };
        assert_eq!((count(OlderPart::Nobody), count(OlderPart::Definitions)), (6, 0));
    }
}
