//! Tables: what `kubectl get` prints.

pub(crate) mod cells;

use crate::kind::{Cell, Kind};
use crate::request::Query;
use crate::shown;
use crate::store::Object;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The rows of objects, with the columns if they are requested.
pub(crate) fn table<'a>(
    kind: &Kind,
    objects: impl Iterator<Item = &'a Object>,
    query: &Query,
    now: Timestamp,
    tell_columns: bool,
) -> Value {
    let mut revision = String::new();
    let rows: Vec<_> = objects
        .map(|object| {
            let value = shown::value(kind, object.parse());
            revision = object.revision.to_string();
            let mut cells = vec![value["metadata"]["name"].clone()];
            cells.extend(kind.columns.iter().map(|column| cell(&column.cell, &column.of, &value, now)));
            let object = match query.get("includeObject") {
                Some("Object") => value,
                Some("None") => Value::Null,
                _ => json!({
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"],
                }),
            };
            json!({"cells": cells, "object": object})
        })
        .collect();
    let columns = if tell_columns { Value::Array(columns(kind)) } else { Value::Null };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision},
        "columnDefinitions": columns, "rows": rows,
    })
}

fn columns(kind: &Kind) -> Vec<Value> {
    let name = json!({"name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": "Name must be unique within a namespace."});
    let others = kind.columns.iter().map(|column| {
        // A date is shown as an age.
        let of = if column.of == "date" { "string" } else { &column.of };
        json!({"name": column.name, "type": of, "format": column.format, "description": column.description,
            "priority": column.priority})
    });
    std::iter::once(name).chain(others).collect()
}

fn cell(cell: &Cell, of: &str, value: &Value, now: Timestamp) -> Value {
    match cell {
        Cell::Of(of) => of(value, now),
        Cell::Path(path) => match (of, path.first(value)) {
            (_, None) => Value::Null,
            ("date", Some(found)) => cells::since(found, now),
            (_, Some(found @ (Value::Array(_) | Value::Object(_)))) => json!(found.to_string()),
            ("string", Some(found)) => json!(crate::jsonpath::as_text(found)),
            (_, Some(found)) => found.clone(),
        },
    }
}
