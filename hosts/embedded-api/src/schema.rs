//! A structural schema, compiled once from OpenAPI: what a field is, what it may hold, what it holds when nobody says,
//! and how a list is merged. Pruning and defaulting walk it here; checking is in `check`.

mod check;
mod compile;

pub(crate) use check::check;
pub(crate) use compile::{Definitions, compile};

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a value is, as far as the schema says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Type {
    /// Not said: anything.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// How a list, or a map, is merged by server-side apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Merge {
    /// As one value: the default of lists.
    #[default]
    Atomic,
    /// Field by field: the default of objects.
    Granular,
    /// A list whose items are their own identity.
    Set,
    /// A list whose items are identified by these fields.
    Keyed(Vec<String>),
}

/// One node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) of: Type,
    pub(crate) nullable: bool,
    /// Unknown fields below stay (`x-kubernetes-preserve-unknown-fields`).
    pub(crate) keeps_unknown: bool,
    /// Of a type that is built in.
    pub(crate) built_in: bool,
    pub(crate) merge: Merge,
    pub(crate) properties: BTreeMap<String, Arc<Schema>>,
    pub(crate) additional: Option<Arc<Schema>>,
    pub(crate) items: Option<Arc<Schema>>,
    pub(crate) default: Option<Value>,
    pub(crate) rules: check::Rules,
}

impl Schema {
    /// The schema of a field, if the schema knows it.
    pub(crate) fn field(&self, name: &str) -> Option<&Arc<Schema>> {
        self.properties.get(name).or(self.additional.as_ref())
    }

    /// Whether fields that the schema does not know must go.
    fn prunes(&self) -> bool {
        // A built-in `type: object` without fields (a raw extension) holds anything; in a custom one it holds nothing.
        let says = !self.built_in || !self.properties.is_empty() || self.additional.is_some();
        self.of == Type::Object && !self.keeps_unknown && says
    }
}

/// Removes what the schema does not know and tells the path of each.
pub(crate) fn prune(value: &mut Value, schema: &Schema, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => prune_object(fields, schema, path, unknown),
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, schema, &format!("{path}[{index}]"), unknown);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn prune_object(fields: &mut Map<String, Value>, schema: &Schema, path: &str, unknown: &mut Vec<String>) {
    let prunes = schema.prunes();
    fields.retain(|name, value| {
        let known = schema.field(name);
        if known.is_none() && prunes {
            unknown.push(join(path, name));
        }
        match known {
            None => !prunes,
            // A null where none may be is as if nothing were said, in custom objects as in those that are built in.
            Some(field) => !value.is_null() || field.nullable,
        }
    });
    for (name, value) in fields {
        if let Some(schema) = schema.field(name) {
            prune(value, schema, &join(path, name), unknown);
        }
    }
}

/// Fills in the defaults of fields that are absent.
pub(crate) fn fill(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(fields) => {
            for (name, schema) in &schema.properties {
                if let Some(default) = &schema.default
                    && !fields.contains_key(name)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields {
                if let Some(schema) = schema.field(name) {
                    fill(value, schema);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            items.iter_mut().for_each(|item| fill(item, schema));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A path as the API server writes it: `spec.cpu`.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
