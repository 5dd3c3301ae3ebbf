//! A structural schema, compiled once from OpenAPI: the type of a field, its allowed values, its default, and how a
//! list is merged. Pruning and defaulting are implemented here, validation in `check`.

mod check;
mod compile;

pub(crate) use check::check;
pub(crate) use compile::{Definitions, compile};

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The type of a value, as far as the schema states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Type {
    /// Not stated: any type.
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
    /// As one value; the default for lists.
    #[default]
    Atomic,
    /// Field by field; the default for objects.
    Granular,
    /// A list whose items are identified by their whole value.
    Set,
    /// A list whose items are identified by these fields.
    Keyed(Vec<String>),
}

/// One node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) of: Type,
    pub(crate) nullable: bool,
    /// Unknown fields below are kept (`x-kubernetes-preserve-unknown-fields`).
    pub(crate) keeps_unknown: bool,
    /// Whether this belongs to a built-in type.
    pub(crate) built_in: bool,
    pub(crate) merge: Merge,
    pub(crate) properties: BTreeMap<String, Arc<Schema>>,
    pub(crate) additional: Option<Arc<Schema>>,
    pub(crate) items: Option<Arc<Schema>>,
    pub(crate) default: Option<Value>,
    pub(crate) rules: check::Rules,
}

impl Schema {
    /// The schema of a field, if there is one.
    pub(crate) fn field(&self, name: &str) -> Option<&Arc<Schema>> {
        self.properties.get(name).or(self.additional.as_ref())
    }

    /// Whether unknown fields are removed.
    fn prunes(&self) -> bool {
        // A built-in `type: object` without fields (a raw extension) may contain anything; a custom one may contain
        // nothing.
        let says = !self.built_in || !self.properties.is_empty() || self.additional.is_some();
        self.of == Type::Object && !self.keeps_unknown && says
    }
}

/// Removes unknown fields, and appends the path of each.
pub(crate) fn prune(value: &mut Value, schema: &Schema, path: &Place<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => prune_object(fields, schema, path, unknown),
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, schema, &path.item(index), unknown);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn prune_object(
    fields: &mut Map<String, Value>,
    schema: &Schema,
    path: &Place<'_>,
    unknown: &mut Vec<String>,
) {
    let prunes = schema.prunes();
    fields.retain(|name, value| {
        let known = schema.field(name);
        if known.is_none() && prunes {
            unknown.push(path.field(name).to_string());
        }
        match known {
            None => !prunes,
            // A null where null is not allowed is treated as absent, in custom and in built-in objects.
            Some(field) => !value.is_null() || field.nullable,
        }
    });
    for (name, value) in fields {
        if let Some(schema) = schema.field(name) {
            prune(value, schema, &path.field(name), unknown);
        }
    }
}

/// Sets absent fields to their defaults.
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

/// The place of a value in an object. It becomes text only where something is wrong: `spec.cpu`, `spec.gpus[1]`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// The object itself.
    Root,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl<'a> Place<'a> {
    fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    fn item(&'a self, index: usize) -> Self {
        Self::Item(self, index)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Place::Root, name) => f.write_str(name),
            Self::Field(above, name) => write!(f, "{above}.{name}"),
            Self::Item(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}
