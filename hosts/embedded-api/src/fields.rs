//! Sets of fields as server-side apply owns them, and the operations on them: find them in an object, write them as
//! `fieldsV1`, compare, merge and remove.

use crate::schema::{Merge, Schema};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

/// One step of a path into an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Field(Arc<str>),
    /// An item of a keyed list, by the JSON of its keys.
    Key(Arc<str>),
    /// An item of a set, by its JSON.
    Item(Arc<str>),
}

pub(crate) type Path = Vec<Step>;

/// The fields that one manager owns.
pub(crate) type FieldSet = BTreeSet<Path>;

impl Step {
    fn encoded(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{keys}"),
            Self::Item(value) => format!("v:{value}"),
        }
    }

    fn decoded(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        Some(match kind {
            "f" => Self::Field(rest.into()),
            "k" => Self::Key(rest.into()),
            "v" => Self::Item(rest.into()),
            _ => return None,
        })
    }
}

/// A path as conflict messages show it: `.status.conditions[type="Ready"].status`.
pub(crate) fn show(path: &Path) -> String {
    let mut text = String::new();
    for step in path {
        let _ = match step {
            Step::Field(name) => write!(text, ".{name}"),
            Step::Item(value) => write!(text, "[={value}]"),
            Step::Key(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(text, "[{}]", keys.join(","))
            }
        };
    }
    text
}

/// Reads `fieldsV1`.
pub(crate) fn from_json(fields: &Value) -> FieldSet {
    fn read(fields: &Value, path: &mut Path, found: &mut FieldSet) {
        for (name, below) in fields.as_object().into_iter().flatten() {
            if name == "." {
                found.insert(path.clone());
                continue;
            }
            let Some(step) = Step::decoded(name) else { continue };
            path.push(step);
            if below.as_object().is_none_or(Map::is_empty) {
                found.insert(path.clone());
            } else {
                read(below, path, found);
            }
            path.pop();
        }
    }
    let mut found = FieldSet::new();
    read(fields, &mut Path::new(), &mut found);
    found
}

/// Writes `fieldsV1`.
pub(crate) fn to_json(fields: &FieldSet) -> Value {
    fn leaves_bare(value: &mut Map<String, Value>) {
        if value.len() == 1 {
            value.remove(".");
        }
        for (name, below) in value.iter_mut() {
            if name != "."
                && let Some(below) = below.as_object_mut()
            {
                leaves_bare(below);
            }
        }
    }
    fn add(at: &mut Map<String, Value>, path: &[Step]) {
        let Some((step, rest)) = path.split_first() else {
            at.insert(".".to_owned(), json!({}));
            return;
        };
        if let Value::Object(below) = at.entry(step.encoded()).or_insert_with(|| json!({})) {
            add(below, rest);
        }
    }
    let mut root = Map::new();
    fields.iter().for_each(|path| add(&mut root, path));
    leaves_bare(&mut root);
    Value::Object(root)
}

/// Every field of a value that can be owned, with its value; an item of a keyed list has no value of its own.
pub(crate) fn leaves<'a>(value: &'a Value, schema: &Schema) -> BTreeMap<Path, Option<&'a Value>> {
    let mut found = BTreeMap::new();
    walk(value, Some(schema), &mut Path::new(), &mut found);
    found
}

fn walk<'a>(
    value: &'a Value,
    schema: Option<&Schema>,
    path: &mut Path,
    found: &mut BTreeMap<Path, Option<&'a Value>>,
) {
    match (value, schema.map(|schema| &schema.merge)) {
        (Value::Object(fields), Some(Merge::Granular) | None) => {
            for (name, value) in fields {
                walk_field((name, value), schema, path, found);
            }
        }
        (Value::Array(items), Some(Merge::Set)) => {
            for item in items {
                path.push(Step::Item(item.to_string().into()));
                found.insert(path.clone(), Some(item));
                path.pop();
            }
        }
        (Value::Array(items), Some(Merge::Keyed(keys))) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            for item in items {
                path.push(Step::Key(key_of(item, keys, schema).into()));
                found.insert(path.clone(), None);
                walk(item, schema, path, found);
                path.pop();
            }
        }
        _ => {
            if !path.is_empty() {
                found.insert(path.clone(), Some(value));
            }
        }
    }
}

/// Whether the field is `metadata.managedFields`, which is the largest part of many objects and which nobody owns.
fn is_of_managers(name: &str, path: &Path) -> bool {
    name == "managedFields" && matches!(path.as_slice(), [Step::Field(meta)] if **meta == *"metadata")
}

fn walk_field<'a>(
    (name, value): (&str, &'a Value),
    schema: Option<&Schema>,
    path: &mut Path,
    found: &mut BTreeMap<Path, Option<&'a Value>>,
) {
    if is_of_managers(name, path) {
        return;
    }
    path.push(Step::Field(name.into()));
    let declared = schema.is_some_and(|schema| schema.properties.contains_key(name));
    let schema = schema.and_then(|schema| schema.field(name));
    if is_bare(value) {
        found.insert(path.clone(), Some(value));
    } else {
        if !declared {
            found.insert(path.clone(), None);
        }
        walk(value, schema.map(|schema| &**schema), path, found);
    }
    path.pop();
}

/// Whether the value contains nothing that could be owned in its place.
fn is_bare(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

/// The JSON of an item's keys; a missing key has its default.
fn key_of(item: &Value, keys: &[String], schema: Option<&Schema>) -> String {
    let of = |key: &String| {
        let default = || schema.and_then(|schema| schema.field(key)).and_then(|field| field.default.clone());
        item.get(key).cloned().or_else(default).unwrap_or(Value::Null)
    };
    let keys: BTreeMap<_, _> = keys.iter().map(|key| (key.clone(), of(key))).collect();
    json!(keys).to_string()
}

/// The fields that the second value adds or changes, and the fields that only the first value has.
pub(crate) fn difference(old: &Value, new: &Value, schema: &Schema) -> (FieldSet, FieldSet) {
    let mut found = Difference::default();
    match (old, new, &schema.merge) {
        (Value::Object(old), Value::Object(new), Merge::Granular) => {
            found.of_objects(old, new, Some(schema), &mut Path::new());
        }
        _ => found.of_leaves(&leaves(old, schema), &leaves(new, schema)),
    }
    (found.changed, found.removed)
}

#[derive(Default)]
struct Difference {
    changed: FieldSet,
    removed: FieldSet,
}

impl Difference {
    /// Compares two objects field by field. Equal values, which are the largest part of every write, are not
    /// descended into.
    fn of_objects(
        &mut self,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        schema: Option<&Schema>,
        path: &mut Path,
    ) {
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        for name in gone.chain(new.keys()) {
            let (before, after) = (old.get(name), new.get(name));
            if before == after || is_of_managers(name, path) {
                continue;
            }
            let of = schema.and_then(|schema| schema.field(name)).map(|schema| &**schema);
            let is_granular = of.is_none_or(|schema| schema.merge == Merge::Granular);
            match (before, after) {
                (Some(Value::Object(before)), Some(Value::Object(after)))
                    if is_granular && !before.is_empty() && !after.is_empty() =>
                {
                    path.push(Step::Field(name.as_str().into()));
                    self.of_objects(before, after, of, path);
                    path.pop();
                }
                (before, after) => {
                    let [mut was, mut is] = [BTreeMap::new(), BTreeMap::new()];
                    for (value, found) in [(before, &mut was), (after, &mut is)] {
                        if let Some(value) = value {
                            walk_field((name, value), schema, path, found);
                        }
                    }
                    self.of_leaves(&was, &is);
                }
            }
        }
    }

    fn of_leaves(&mut self, old: &BTreeMap<Path, Option<&Value>>, new: &BTreeMap<Path, Option<&Value>>) {
        let changed = new.iter().filter(|(path, value)| old.get(*path) != Some(*value));
        self.changed.extend(changed.map(|(path, _)| path.clone()));
        self.removed.extend(old.keys().filter(|path| !new.contains_key(*path)).cloned());
    }
}

/// Merges an applied configuration into the live value.
pub(crate) fn merge(live: &mut Value, config: &Value, schema: Option<&Schema>) {
    match (live, config, schema.map(|schema| &schema.merge)) {
        (Value::Object(live), Value::Object(config), Some(Merge::Granular) | None) => {
            for (name, value) in config {
                let schema = schema.and_then(|schema| schema.field(name));
                match live.get_mut(name) {
                    Some(live) => merge(live, value, schema.map(|schema| &**schema)),
                    None => {
                        live.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(live), Value::Array(config), Some(Merge::Set)) => {
            for item in config {
                if !live.contains(item) {
                    live.push(item.clone());
                }
            }
        }
        (Value::Array(live), Value::Array(config), Some(Merge::Keyed(keys))) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            for item in config {
                let key = key_of(item, keys, schema);
                match live.iter_mut().find(|live| key_of(live, keys, schema) == key) {
                    Some(live) => merge(live, item, schema),
                    None => live.push(item.clone()),
                }
            }
        }
        (live, config, _) => *live = config.clone(),
    }
}

/// Removes a field. Maps and lists that become empty are removed too, unless `kept` contains them.
pub(crate) fn take_out(value: &mut Value, path: &[Step], schema: Option<&Schema>, kept: &FieldSet) {
    take_out_below(value, (path, 0), schema, kept);
}

/// The first `depth` steps of the path were followed already.
fn take_out_below(
    value: &mut Value,
    (path, depth): (&[Step], usize),
    schema: Option<&Schema>,
    kept: &FieldSet,
) {
    let Some(step) = path.get(depth) else { return };
    let (here, rest) = path.split_at(depth + 1);
    match (step, value) {
        (Step::Field(name), Value::Object(fields)) => {
            let Some(field) = fields.get_mut(&**name) else { return };
            let schema = schema.and_then(|schema| schema.field(name)).map(|schema| &**schema);
            take_out_below(field, (path, depth + 1), schema, kept);
            if rest.is_empty() || is_hollow(field) && !kept.contains(here) {
                fields.remove(&**name);
            }
        }
        (Step::Key(_) | Step::Item(_), Value::Array(items)) => {
            let keys = match schema.map(|schema| &schema.merge) {
                Some(Merge::Keyed(keys)) => keys.as_slice(),
                Some(Merge::Set | Merge::Atomic | Merge::Granular) | None => &[],
            };
            let schema = schema.and_then(|schema| schema.items.as_deref());
            let is = |item: &Value| match step {
                Step::Key(key) => key_of(item, keys, schema) == **key,
                Step::Item(json) => serde_json::from_str::<Value>(json).is_ok_and(|wanted| wanted == *item),
                Step::Field(_) => false,
            };
            if rest.is_empty() {
                items.retain(|item| !is(item));
            } else if !matches!(rest, [Step::Field(name)] if keys.iter().any(|key| **key == **name))
                && let Some(item) = items.iter_mut().find(|item| is(item))
            {
                // The key fields are kept as long as the item exists.
                take_out_below(item, (path, depth + 1), schema, kept);
            }
        }
        _ => {}
    }
}

fn is_hollow(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Definitions, compile};

    #[test]
    fn what_is_written_as_fields_v1_reads_back() {
        let encoded = json!({"f:metadata": {"f:labels": {".": {}, "f:joulie.io/rack": {}}}, "f:status": {"f:conditions": {
            "k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}, "f:type": {}}}}, "f:spec": {"f:tags": {"v:\"a:b\"": {}}}});
        let fields = from_json(&encoded);
        assert_eq!(fields.len(), 6);
        assert_eq!(to_json(&fields), encoded);
        let shown: Vec<_> = fields.iter().map(show).collect();
        assert!(shown.contains(&".status.conditions[type=\"Ready\"].status".to_owned()), "{shown:?}");
        for nonsense in [json!(null), json!(3), json!({"x": {}}), json!({"i:0": {}})] {
            assert!(from_json(&nonsense).is_empty(), "{nonsense}");
        }
    }

    #[test]
    fn a_difference_is_that_of_all_leaves() {
        let raw = json!({"type": "object", "properties": {"metadata": {"type": "object"}, "spec": {"type": "object", "properties": {
            "cpu": {"type": "object", "properties": {"cap": {"type": "integer"}}},
            "free": {"type": "object", "additionalProperties": {"type": "string"}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": {"type": "integer"}}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}}}}}});
        let schema = compile(&raw, &mut Definitions::new(BTreeMap::new(), false));
        let spec = |spec: Value, managers: i32| json!({"metadata": {"name": "a", "managedFields": [managers]}, "spec": spec});
        let all = [
            json!(null),
            spec(json!(null), 1),
            spec(json!({}), 1),
            spec(json!({"cpu": {}, "free": {"a": "1"}, "tags": ["x"]}), 1),
            spec(
                json!({"cpu": {"cap": 1}, "free": {"a": "2", "b": "1"}, "tags": ["x", "y"], "whole": {"x": 1}}),
                2,
            ),
            spec(json!({"cpu": {"cap": 1}, "free": {}, "whole": {"x": 2}, "list": [{"k": "a", "v": 1}]}), 3),
            spec(
                json!({"cpu": 3, "free": null, "list": [{"k": "a", "v": 2}, {"k": "b"}], "unknown": {"deep": {"er": 1}}}),
                3,
            ),
            spec(json!({"unknown": {"deep": {"er": 2, "est": []}}, "list": [], "tags": []}), 3),
        ];
        for (old, new) in all.iter().flat_map(|old| all.iter().map(move |new| (old, new))) {
            // By definition: compare each leaf of one value with the same leaf of the other.
            let (was, is) = (leaves(old, &schema), leaves(new, &schema));
            let changed: FieldSet = is
                .iter()
                .filter(|(path, value)| was.get(*path) != Some(*value))
                .map(|(path, _)| path.clone())
                .collect();
            let removed: FieldSet = was.keys().filter(|path| !is.contains_key(*path)).cloned().collect();
            assert_eq!(difference(old, new, &schema), (changed, removed), "{old} {new}");
        }
    }

    #[test]
    fn taking_the_last_field_out_takes_what_held_it() {
        let raw = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "cpu": {"type": "object", "properties": {"cap": {"type": "integer"}, "mode": {"type": "string"}}}}}}});
        let schema = compile(&raw, &mut Definitions::new(BTreeMap::new(), false));
        let path = ["spec", "cpu", "cap"].map(|name| Step::Field(name.into()));
        let mut two = json!({"spec": {"cpu": {"cap": 1, "mode": "m"}, "other": 1}});
        take_out(&mut two, &path, Some(&schema), &FieldSet::new());
        assert_eq!(two, json!({"spec": {"cpu": {"mode": "m"}, "other": 1}}));
        let mut one = json!({"spec": {"cpu": {"cap": 1}, "other": 1}});
        take_out(&mut one, &path, Some(&schema), &FieldSet::new());
        assert_eq!(one, json!({"spec": {"other": 1}}));
        let mut kept = json!({"spec": {"cpu": {"cap": 1}}});
        take_out(&mut kept, &path, Some(&schema), &FieldSet::from([path[..2].to_vec()]));
        assert_eq!(kept, json!({"spec": {"cpu": {}}}));
    }
}
