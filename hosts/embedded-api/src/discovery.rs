//! Discovery of groups, versions and kinds, in the legacy and the aggregated form.

use crate::kind::{Kind, Registry};
use serde_json::{Value, json};

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}

pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

pub(crate) fn groups(registry: &Registry) -> Value {
    let mut names: Vec<_> = registry.group_versions().into_iter().map(|(group, _)| group).collect();
    names.dedup();
    let groups: Vec<_> =
        names.iter().filter(|name| !name.is_empty()).filter_map(|name| one_group(registry, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

pub(crate) fn group(registry: &Registry, group: &str) -> Option<Value> {
    let mut found = one_group(registry, group)?;
    found["kind"] = json!("APIGroup");
    found["apiVersion"] = json!("v1");
    Some(found)
}

fn one_group(registry: &Registry, group: &str) -> Option<Value> {
    let versions = registry.group_versions().into_iter().filter(|(of, _)| of == group);
    let versions: Vec<_> = versions
        .map(|(group, version)| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": group, "versions": versions, "preferredVersion": preferred}))
}

/// The kinds of a group and version, in the legacy form.
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<_> =
        registry.all().filter(|kind| kind.group == group && kind.version == version).collect();
    let api_version = kinds.first()?.api_version();
    let mut resources = Vec::new();
    for kind in kinds {
        let mut resource = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": VERBS,
        });
        if !kind.short_names.is_empty() {
            resource["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            resource["categories"] = json!(kind.categories);
        }
        resources.push(resource);
        for (name, of, verbs) in subresources(kind) {
            let mut resource = json!({
                "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": of.2, "verbs": verbs,
            });
            if (of.0, of.1) != (kind.group.as_str(), kind.version.as_str()) {
                resource["group"] = json!(of.0);
                resource["version"] = json!(of.1);
            }
            resources.push(resource);
        }
    }
    Some(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}),
    )
}

type Subresource<'a> = (&'static str, (&'a str, &'a str, &'a str), &'static [&'static str]);

/// The subresources with the group, version and kind of their bodies.
fn subresources(kind: &Kind) -> Vec<Subresource<'_>> {
    let mut found: Vec<Subresource<'_>> = Vec::new();
    for name in kind.subresources() {
        match *name {
            "binding" => found.push((name, ("", "v1", "Binding"), &["create"])),
            "eviction" => found.push((name, ("policy", "v1", "Eviction"), &["create"])),
            _ => {}
        }
    }
    if kind.status {
        found.push(("status", (&kind.group, &kind.version, &kind.kind), &["get", "patch", "update"]));
    }
    found
}

/// Aggregated discovery: the core, or all other groups.
pub(crate) fn aggregated(registry: &Registry, core: bool) -> Value {
    let mut items: Vec<Value> = Vec::new();
    for (group, version) in registry.group_versions() {
        if group.is_empty() != core {
            continue;
        }
        let kinds = registry.all().filter(|kind| kind.group == group && kind.version == version);
        let resources: Vec<_> = kinds.map(|kind| aggregated_resource(kind)).collect();
        let version = json!({"version": version, "resources": resources, "freshness": "Current"});
        match items.last_mut().filter(|item| item["metadata"]["name"] == group) {
            Some(item) => item["versions"].as_array_mut().into_iter().for_each(|of| of.push(version.clone())),
            None => items.push(json!({
                "metadata": {"name": group, "creationTimestamp": null}, "versions": [version],
            })),
        }
    }
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_resource(kind: &Kind) -> Value {
    let of =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let subresources = subresources(kind).into_iter().map(|(name, (group, version, kind), verbs)| {
        json!({"subresource": name, "responseKind": of(group, version, kind), "verbs": verbs})
    });
    json!({
        "resource": kind.plural,
        "responseKind": of(&kind.group, &kind.version, &kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": VERBS,
        "shortNames": kind.short_names,
        "categories": kind.categories,
        "subresources": subresources.collect::<Vec<_>>(),
    })
}
