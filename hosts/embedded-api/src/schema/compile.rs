//! Compiles a schema from OpenAPI and resolves its references.

use super::check::Rules;
use super::{Merge, Schema, Type};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The schemas that others refer to by name. Each is compiled once.
pub(crate) struct Definitions {
    /// The schemas before compilation.
    pub(crate) raw: BTreeMap<String, Value>,
    /// `None` while a definition is being compiled: a recursive schema ends there, and allows anything below.
    done: BTreeMap<String, Option<Arc<Schema>>>,
    /// Whether they belong to built-in types.
    built_in: bool,
    /// The errors in schemas that cannot be compiled.
    pub(crate) wrong: Vec<String>,
}

impl Definitions {
    pub(crate) fn new(raw: BTreeMap<String, Value>, built_in: bool) -> Self {
        Self { raw, done: BTreeMap::new(), built_in, wrong: Vec::new() }
    }

    /// Adds a compiled definition.
    pub(crate) fn know(&mut self, name: &str, schema: Arc<Schema>) {
        self.done.insert(name.to_owned(), Some(schema));
    }

    /// The compiled definition of that name. An unknown name allows anything.
    pub(crate) fn named(&mut self, name: &str) -> Arc<Schema> {
        if let Some(done) = self.done.get(name) {
            return done.clone().unwrap_or_default();
        }
        self.done.insert(name.to_owned(), None);
        let Some(raw) = self.raw.get(name).cloned() else { return Arc::default() };
        let compiled = compile(&raw, self);
        self.done.insert(name.to_owned(), Some(compiled.clone()));
        compiled
    }
}

/// Compiles one schema.
pub(crate) fn compile(raw: &Value, definitions: &mut Definitions) -> Arc<Schema> {
    if let Some(reference) = raw["$ref"].as_str() {
        return definitions.named(reference.rsplit('/').next().unwrap_or(reference));
    }
    // OpenAPI writes a reference with siblings as an `allOf` with one element.
    if let Some([Value::Object(only)]) = raw["allOf"].as_array().map(Vec::as_slice)
        && only.contains_key("$ref")
    {
        let referred = compile(&Value::Object(only.clone()), definitions);
        if raw.get("default").is_none() {
            return referred;
        }
    }
    let (of, null_in_type) = type_of(raw);
    let additional = match &raw["additionalProperties"] {
        Value::Bool(true) => Some(Arc::default()),
        schema @ Value::Object(_) => Some(compile(schema, definitions)),
        Value::Null | Value::Bool(false) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    };
    let properties = raw["properties"].as_object().into_iter().flatten();
    let properties = properties.map(|(name, schema)| (name.clone(), compile(schema, definitions))).collect();
    let items = raw.get("items").map(|items| compile(items, definitions));
    Arc::new(Schema {
        of,
        nullable: null_in_type || raw["nullable"] == true,
        keeps_unknown: raw["x-kubernetes-preserve-unknown-fields"] == true,
        built_in: definitions.built_in,
        merge: merge_of(raw, of),
        properties,
        additional,
        items,
        default: raw.get("default").cloned(),
        rules: Rules::compile(raw, definitions),
    })
}

fn type_of(raw: &Value) -> (Type, bool) {
    if raw["x-kubernetes-int-or-string"] == true {
        return (Type::IntOrString, false);
    }
    let named = |name: &str| match name {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => Type::Any,
    };
    match &raw["type"] {
        Value::String(name) => (named(name), false),
        Value::Array(names) => {
            let of = names.iter().filter_map(Value::as_str).find(|name| *name != "null");
            (of.map_or(Type::Any, named), names.iter().any(|name| name == "null"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => (Type::Any, false),
    }
}

fn merge_of(raw: &Value, of: Type) -> Merge {
    match raw["x-kubernetes-list-type"].as_str() {
        Some("set") => return Merge::Set,
        Some("map") => {
            let keys = raw["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            return Merge::Keyed(keys.filter_map(Value::as_str).map(str::to_owned).collect());
        }
        _ => {}
    }
    if of == Type::Array || raw["x-kubernetes-map-type"] == "atomic" {
        Merge::Atomic
    } else {
        Merge::Granular
    }
}
