//! A custom kind from its `CustomResourceDefinition`.

use super::{Cell, Column, Flavour, Kind, Registry};
use crate::jsonpath::JsonPath;
use crate::schema::{Definitions, compile};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The kind of the definition's storage version. The error says why the definition is invalid.
pub(crate) fn custom(definition: &CustomResourceDefinition, registry: &mut Registry) -> Result<Kind, String> {
    let spec = &definition.spec;
    let name = definition.metadata.name.as_deref().unwrap_or_default();
    if name != format!("{}.{}", spec.names.plural, spec.group) {
        return Err(format!("metadata.name: {name:?} must be spec.names.plural+\".\"+spec.group"));
    }
    let version = spec.versions.iter().find(|version| version.storage && version.served);
    let version = version.ok_or("spec.versions: one must be both stored and served")?;
    let raw = openapi(version, spec)?;
    let mut definitions = Definitions::new(BTreeMap::new(), false);
    let meta = registry.definitions.named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    definitions.know("meta", meta);
    let schema = compile(&raw, &mut definitions);
    if let Some(wrong) = definitions.wrong.first() {
        return Err(format!("spec.versions[*].schema.openAPIV3Schema: {wrong}"));
    }
    let reversed: Vec<_> = spec.group.split('.').rev().collect();
    let columns = version.additional_printer_columns.as_deref().map(columns).transpose()?;
    let names = &spec.names;
    Ok(Kind {
        resource: name.into(),
        group: spec.group.clone(),
        version: version.name.clone(),
        plural: names.plural.clone(),
        singular: names.singular.clone().unwrap_or_else(|| names.kind.to_lowercase()),
        kind: names.kind.clone(),
        short_names: names.short_names.clone().unwrap_or_default(),
        categories: names.categories.clone().unwrap_or_default(),
        namespaced: spec.scope == "Namespaced",
        status: version.subresources.as_ref().is_some_and(|sub| sub.status.is_some()),
        flavour: Flavour::Custom,
        schema,
        openapi: (format!("{}.{}.{}", reversed.join("."), version.name, names.kind), Some(raw)),
        columns: columns.unwrap_or_else(|| vec![super::builtin::age()]),
        selectable: selectable(version)?,
    })
}

/// The schema with the fields that every object has.
fn openapi(
    version: &CustomResourceDefinitionVersion,
    spec: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec,
) -> Result<Value, String> {
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    let schema = schema.ok_or("spec.versions[*].schema.openAPIV3Schema: Required value")?;
    let mut raw = serde_json::to_value(schema).map_err(|error| error.to_string())?;
    if raw["type"] != "object" {
        return Err("spec.versions[*].schema.openAPIV3Schema.type: must be \"object\"".to_owned());
    }
    for field in ["apiVersion", "kind"] {
        raw["properties"][field] = json!({"type": "string"});
    }
    raw["properties"]["metadata"] = json!({"$ref": "#/definitions/meta"});
    raw["x-kubernetes-group-version-kind"] =
        json!([{"group": spec.group, "version": version.name, "kind": spec.names.kind}]);
    Ok(raw)
}

fn columns(given: &[CustomResourceColumnDefinition]) -> Result<Vec<Column>, String> {
    let own = given.iter().map(|column| {
        let path = JsonPath::parse(&column.json_path);
        let path =
            path.ok_or_else(|| format!("additionalPrinterColumns: cannot read {:?}", column.json_path))?;
        Ok(Column {
            name: column.name.clone(),
            of: column.type_.clone(),
            format: column.format.clone().unwrap_or_default(),
            description: column.description.clone().unwrap_or_default(),
            priority: column.priority.unwrap_or(0),
            cell: Cell::Path(path),
        })
    });
    own.collect()
}

fn selectable(version: &CustomResourceDefinitionVersion) -> Result<Vec<(String, JsonPath)>, String> {
    let fields = version.selectable_fields.iter().flatten();
    let parsed = fields.map(|field| {
        let path = JsonPath::parse(&field.json_path);
        let path = path.ok_or_else(|| format!("selectableFields: cannot read {:?}", field.json_path))?;
        Ok((field.json_path.trim_start_matches('.').to_owned(), path))
    });
    parsed.collect()
}
