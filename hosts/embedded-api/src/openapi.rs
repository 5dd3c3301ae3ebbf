//! OpenAPI version 3, as far as `kubectl explain`, `apply` and `diff` use it.

use crate::kind::{Kind, Registry};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The index of the documents.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, version) in registry.group_versions() {
        let path =
            if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// The document of a group and version.
pub(crate) fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<_> =
        registry.all().filter(|kind| kind.group == group && kind.version == version).collect();
    if kinds.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    let mut wanted = vec!["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta".to_owned()];
    let mut schemas = Map::new();
    for kind in kinds {
        add_paths(kind, &mut paths);
        match &kind.openapi {
            (name, Some(own)) => {
                let mut own = own.clone();
                let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
                own["properties"]["metadata"] =
                    json!({"allOf": [{"$ref": meta}], "description": "Standard metadata."});
                schemas.insert(name.clone(), own);
            }
            (name, None) => wanted.push(name.clone()),
        }
    }
    let mut seen = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let Some(mut schema) = registry.definitions.raw.get(&name).cloned() else { continue };
        refer(&mut schema, &mut wanted);
        schemas.insert(name, schema);
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.33.0"},
        "paths": paths, "components": {"schemas": schemas},
    }))
}

/// Rewrites references to the location of the schemas in this document, and collects their names.
fn refer(schema: &mut Value, wanted: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            let name = fields.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
            if let Some(name) = name.map(str::to_owned) {
                let path = format!("#/components/schemas/{name}");
                wanted.push(name);
                let described = fields.get("description").cloned();
                fields.remove("$ref");
                // A reference with a description beside it is written as `allOf`.
                match described {
                    Some(_) => fields.insert("allOf".to_owned(), json!([{"$ref": path}])),
                    None => fields.insert("$ref".to_owned(), json!(path)),
                };
                return;
            }
            fields.values_mut().for_each(|value| refer(value, wanted));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| refer(item, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn add_paths(kind: &Kind, paths: &mut Map<String, Value>) {
    let root = if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    };
    let middle = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let all = format!("{root}{middle}/{}", kind.plural);
    let of = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let content =
        json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{}", kind.openapi.0)}}});
    let operation = |action: &str, parameters: &[&str]| {
        let parameters: Vec<_> = parameters
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
            .collect();
        json!({
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": of, "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": content}},
        })
    };
    let writes = ["dryRun", "fieldManager", "fieldValidation"];
    let one = json!({
        "get": operation("get", &[]), "put": operation("put", &writes), "delete": operation("delete", &["dryRun"]),
        "patch": operation("patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
    });
    let many = json!({"get": operation("list", &[]), "post": operation("post", &writes)});
    if kind.status {
        paths.insert(format!("{all}/{{name}}/status"), one.clone());
    }
    paths.insert(format!("{all}/{{name}}"), one);
    paths.insert(all, many);
}
