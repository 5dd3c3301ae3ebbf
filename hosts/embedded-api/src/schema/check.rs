//! Validates a value against its schema, with the API server's error texts.

use super::compile::{Definitions, compile};
use super::{Merge, Place, Schema, Type};
use crate::failure::Cause;
use regex::Regex;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The constraints on a value besides its type.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    required: Vec<String>,
    one_of_values: Vec<Value>,
    minimum: Option<(f64, bool)>,
    maximum: Option<(f64, bool)>,
    length: (Option<u64>, Option<u64>),
    items: (Option<u64>, Option<u64>),
    properties: (Option<u64>, Option<u64>),
    unique: bool,
    pattern: Option<Regex>,
    format: Option<String>,
    all_of: Vec<Arc<Schema>>,
    any_of: Vec<Arc<Schema>>,
    one_of: Vec<Arc<Schema>>,
    not: Option<Arc<Schema>>,
}

impl Rules {
    pub(super) fn compile(raw: &Value, definitions: &mut Definitions) -> Self {
        let mut many = |name: &str| -> Vec<Arc<Schema>> {
            raw[name].as_array().into_iter().flatten().map(|schema| compile(schema, definitions)).collect()
        };
        let (all_of, any_of, one_of) = (many("allOf"), many("anyOf"), many("oneOf"));
        let bound =
            |limit: &str, exclusive: &str| raw[limit].as_f64().map(|bound| (bound, raw[exclusive] == true));
        let pattern = raw["pattern"].as_str().and_then(|pattern| {
            let compiled = Regex::new(pattern);
            compiled.map_err(|error| definitions.wrong.push(format!("pattern {pattern:?}: {error}"))).ok()
        });
        let required = raw["required"].as_array().into_iter().flatten();
        Self {
            required: required.filter_map(Value::as_str).map(str::to_owned).collect(),
            one_of_values: raw["enum"].as_array().cloned().unwrap_or_default(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            length: (raw["minLength"].as_u64(), raw["maxLength"].as_u64()),
            items: (raw["minItems"].as_u64(), raw["maxItems"].as_u64()),
            properties: (raw["minProperties"].as_u64(), raw["maxProperties"].as_u64()),
            unique: raw["uniqueItems"] == true,
            pattern,
            format: raw["format"].as_str().map(str::to_owned),
            all_of,
            any_of,
            one_of,
            not: raw.get("not").map(|schema| compile(schema, definitions)),
        }
    }
}

/// Appends the errors in `value`, which is at `path`.
pub(crate) fn check(value: &Value, schema: &Schema, path: &Place<'_>, causes: &mut Vec<Cause>) {
    if value.is_null() && (schema.nullable || schema.built_in) {
        return;
    }
    if let Some(name) = mistyped(value, schema.of) {
        causes.push(Cause {
            reason: "FieldValueTypeInvalid",
            field: path.to_string(),
            message: format!(
                "Invalid value: \"{}\": {path} in body must be of type {name}: \"{}\"",
                type_name(value),
                type_name(value)
            ),
        });
        return;
    }
    let rules = &schema.rules;
    if !rules.one_of_values.is_empty() && !rules.one_of_values.contains(value) {
        let known: Vec<_> = rules.one_of_values.iter().map(Value::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", known.join(", "));
        causes.push(Cause { reason: "FieldValueNotSupported", field: path.to_string(), message });
    }
    match value {
        Value::Object(fields) => object(fields, schema, path, causes),
        Value::Array(items) => array(items, schema, path, causes),
        Value::String(text) => string(text, rules, path, causes),
        Value::Number(_) => number(value, rules, path, causes),
        Value::Bool(_) | Value::Null => {}
    }
    combined(value, rules, path, causes);
}

/// The expected type, if the value has another one.
fn mistyped(value: &Value, of: Type) -> Option<&'static str> {
    // A float counts as an integer only in the range where floats represent every integer.
    let whole = |number: f64| number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
    let whole = || value.is_i64() || value.is_u64() || value.as_f64().is_some_and(whole);
    let (fits, name) = match of {
        Type::Any => (true, ""),
        Type::Object => (value.is_object(), "object"),
        Type::Array => (value.is_array(), "array"),
        Type::String => (value.is_string(), "string"),
        Type::Integer => (value.is_number() && whole(), "integer"),
        Type::Number => (value.is_number(), "number"),
        Type::Boolean => (value.is_boolean(), "boolean"),
        // A quantity that is written as a number may have a fraction.
        Type::IntOrString => (value.is_string() || value.is_number(), "integer,string"),
    };
    (!fits).then_some(name)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn object(fields: &Map<String, Value>, schema: &Schema, path: &Place<'_>, causes: &mut Vec<Cause>) {
    for name in &schema.rules.required {
        if !fields.contains_key(name) {
            causes.push(Cause::required(&path.field(name).to_string(), ""));
        }
    }
    size(fields.len(), schema.rules.properties, ("properties", path), causes);
    for (name, value) in fields {
        if let Some(schema) = schema.field(name) {
            check(value, schema, &path.field(name), causes);
        }
    }
}

fn array(items: &[Value], schema: &Schema, path: &Place<'_>, causes: &mut Vec<Cause>) {
    size(items.len(), schema.rules.items, ("items", path), causes);
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let path = &path.item(index);
        if let Some(schema) = &schema.items {
            check(item, schema, path, causes);
        }
        let identity = match &schema.merge {
            Merge::Keyed(keys) => {
                Some(Value::from_iter(keys.iter().map(|key| (key.clone(), item[key].clone()))))
            }
            Merge::Set => Some(item.clone()),
            Merge::Atomic | Merge::Granular => schema.rules.unique.then(|| item.clone()),
        };
        if let Some(identity) = identity
            && !seen.insert(identity.to_string())
        {
            let message = format!("Duplicate value: {identity}");
            causes.push(Cause { reason: "FieldValueDuplicate", field: path.to_string(), message });
        }
    }
}

fn size(
    count: usize,
    (least, most): (Option<u64>, Option<u64>),
    (what, path): (&str, &Place<'_>),
    causes: &mut Vec<Cause>,
) {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    if let Some(most) = most
        && count > most
    {
        let message = match what {
            "chars" => format!("Too long: may not be more than {most} bytes"),
            _ => format!("Too many: {count}: must have at most {most} items"),
        };
        let reason = if what == "chars" { "FieldValueTooLong" } else { "FieldValueTooMany" };
        causes.push(Cause { reason, field: path.to_string(), message });
    }
    if let Some(least) = least
        && count < least
    {
        let why = match what {
            "chars" => format!("{path} in body should be at least {least} chars long"),
            _ => format!("{path} in body should have at least {least} {what}"),
        };
        causes.push(Cause::invalid(&path.to_string(), &Value::from(count), &why));
    }
}

fn string(text: &str, rules: &Rules, path: &Place<'_>, causes: &mut Vec<Cause>) {
    size(text.chars().count(), rules.length, ("chars", path), causes);
    if let Some(pattern) = &rules.pattern
        && !pattern.is_match(text)
    {
        let why = format!("{path} in body should match '{}'", pattern.as_str());
        causes.push(Cause::invalid(&path.to_string(), &Value::from(text), &why));
    }
    if rules.format.as_deref() == Some("date-time") && text.parse::<jiff::Timestamp>().is_err() {
        causes.push(Cause::invalid(
            &path.to_string(),
            &Value::from(text),
            &format!("{path} in body must be of type date-time: {}", Value::from(text)),
        ));
    }
}

fn number(value: &Value, rules: &Rules, path: &Place<'_>, causes: &mut Vec<Cause>) {
    let Some(number) = value.as_f64() else { return };
    if let Some((least, exclusive)) = rules.minimum
        && (number < least || exclusive && number <= least)
    {
        let relation = if exclusive { "greater than" } else { "greater than or equal to" };
        causes.push(Cause::invalid(
            &path.to_string(),
            value,
            &format!("{path} in body should be {relation} {least}"),
        ));
    }
    if let Some((most, exclusive)) = rules.maximum
        && (number > most || exclusive && number >= most)
    {
        let relation = if exclusive { "less than" } else { "less than or equal to" };
        causes.push(Cause::invalid(
            &path.to_string(),
            value,
            &format!("{path} in body should be {relation} {most}"),
        ));
    }
}

fn combined(value: &Value, rules: &Rules, path: &Place<'_>, causes: &mut Vec<Cause>) {
    let holds = |schema: &Arc<Schema>| {
        let mut wrong = Vec::new();
        check(value, schema, path, &mut wrong);
        wrong.is_empty()
    };
    rules.all_of.iter().for_each(|schema| check(value, schema, path, causes));
    if !rules.any_of.is_empty() && !rules.any_of.iter().any(holds) {
        causes.push(Cause::invalid(
            &path.to_string(),
            value,
            &format!("{path} in body must validate at least one schema (anyOf)"),
        ));
    }
    if !rules.one_of.is_empty() && rules.one_of.iter().filter(|schema| holds(schema)).count() != 1 {
        causes.push(Cause::invalid(
            &path.to_string(),
            value,
            &format!("{path} in body must validate one and only one schema (oneOf)"),
        ));
    }
    if rules.not.as_ref().is_some_and(holds) {
        causes.push(Cause::invalid(
            &path.to_string(),
            value,
            &format!("{path} in body must not validate the schema (not)"),
        ));
    }
}
