//! What is kept of nodes, Services and pods for the shortlist.

use crate::index;
use host_kit::reflect::Row;
use serde_json::Value;

/// The label that names a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Smaller images are not kept: alone they are worth no point of kube-scheduler's, however many containers a pod has.
pub(super) const IMAGE_BYTES_MIN: u64 = 10 * 1024 * 1024;
/// More images of a node than this are not looked at. A kubelet reports 50 unless it is told otherwise.
const IMAGES_MAX: usize = 1024;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SiteRow {
    pub(super) zone: Option<String>,
    /// Whether it has a taint that pods avoid if they can.
    pub(super) is_tainted: bool,
    /// Its images under each of their names, by the names' fingerprints, with their sizes; sorted, each once.
    pub(super) images: Box<[(u64, u64)]>,
}

impl Row for SiteRow {
    const KIND: &'static str = "sites";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let taints = object["spec"]["taints"].as_array();
        let images = object["status"]["images"].as_array();
        let mut kept = Vec::new();
        for image in images.into_iter().flatten() {
            let size = image["sizeBytes"].as_u64().unwrap_or(0);
            if size < IMAGE_BYTES_MIN {
                continue;
            }
            let names = image["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
            kept.extend(names.map(|name| (index::fingerprint(name.as_bytes()), size)));
        }
        if kept.len() > IMAGES_MAX {
            return Err(format!("it has more than {IMAGES_MAX} images"));
        }
        kept.sort_unstable();
        kept.dedup_by_key(|(name, _)| *name);
        Ok(Self {
            zone: object["metadata"]["labels"][ZONE]
                .as_str()
                .filter(|zone| !zone.is_empty())
                .map(str::to_owned),
            is_tainted: taints.into_iter().flatten().any(|taint| taint["effect"] == "PreferNoSchedule"),
            images: kept.into(),
        })
    }
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceRow {
    /// The labels that it selects; empty if it selects no pod by labels. A selector that is empty adds nothing to the
    /// selector by which kube-scheduler spreads.
    pub(super) selector: Box<[(String, String)]>,
}

impl Row for ServiceRow {
    const KIND: &'static str = "services";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let mut selector = Vec::new();
        for (key, value) in object["spec"]["selector"].as_object().into_iter().flatten() {
            let value = value.as_str().ok_or_else(|| format!("spec.selector[{key}] is not a text"))?;
            selector.push((key.clone(), value.to_owned()));
        }
        Ok(Self { selector: selector.into() })
    }
}

/// For which pods' scores the affinity of a pod counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum AffinityReach {
    /// For none but its own.
    #[default]
    Nobody,
    /// For pods of these namespaces.
    Namespaces(Box<[String]>),
    /// For pods of namespaces that a selector chooses, or it cannot be read.
    Anybody,
}

impl AffinityReach {
    /// Reads a pod. Terms count for others if they are preferred, and those of a required affinity too
    /// (`hardPodAffinityWeight`).
    pub(crate) fn read(pod: &Value) -> Self {
        let affinity = &pod["spec"]["affinity"];
        let own = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let mut namespaces = Vec::new();
        for (part, list) in [
            ("podAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
            ("podAffinity", "preferredDuringSchedulingIgnoredDuringExecution"),
            ("podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution"),
        ] {
            for term in affinity[part][list].as_array().into_iter().flatten() {
                let term = if term["podAffinityTerm"].is_object() { &term["podAffinityTerm"] } else { term };
                let named = term["namespaces"].as_array().map(Vec::as_slice).unwrap_or_default();
                if !term["namespaceSelector"].is_null() || !named.iter().all(Value::is_string) {
                    return Self::Anybody;
                }
                namespaces.extend(named.iter().filter_map(Value::as_str).map(str::to_owned));
                if named.is_empty() {
                    namespaces.push(own.to_owned());
                }
            }
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        if namespaces.is_empty() { Self::Nobody } else { Self::Namespaces(namespaces.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_s_zone_taints_and_large_images_are_kept() {
        let row = SiteRow::read(&json!({
            "metadata": {"name": "n", "labels": {ZONE: "a"}},
            "spec": {"taints": [{"effect": "NoSchedule"}, {"effect": "PreferNoSchedule"}]},
            "status": {"images": [
                {"names": ["x:1", "x@sha256:0"], "sizeBytes": 500_000_000},
                {"names": ["small"], "sizeBytes": 1_000},
                {"names": null, "sizeBytes": 500_000_000}, {},
            ]},
        }))
        .unwrap();
        assert_eq!((row.zone.as_deref(), row.is_tainted, row.images.len()), (Some("a"), true, 2));
        let empty = SiteRow::read(&json!({"metadata": {"name": "n"}})).unwrap();
        assert_eq!(empty, SiteRow::default());
        let many: Vec<Value> =
            (0..5_000).map(|n| json!({"names": [format!("i{n}")], "sizeBytes": 50_000_000})).collect();
        assert!(SiteRow::read(&json!({"status": {"images": many}})).is_err());
    }

    #[test]
    fn a_service_is_its_selector() {
        let read = |spec: Value| ServiceRow::read(&json!({"spec": spec}));
        let one = read(json!({"selector": {"app": "x"}})).unwrap();
        assert_eq!(*one.selector, [("app".to_owned(), "x".to_owned())]);
        for none in [json!({}), json!({"selector": null}), json!({"selector": {}})] {
            assert!(read(none).unwrap().selector.is_empty());
        }
        assert!(read(json!({"selector": {"app": 3}})).is_err());
    }

    #[test]
    fn an_affinity_reaches_the_namespaces_of_its_terms() {
        let reach = |part: &str, list: &str, term: Value| {
            let affinity = json!({part: {list: [term]}});
            AffinityReach::read(&json!({"metadata": {"namespace": "own"}, "spec": {"affinity": affinity}}))
        };
        let names =
            |all: &[&str]| AffinityReach::Namespaces(all.iter().map(|&name| name.to_owned()).collect());
        let (hard, soft) = (
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        );
        assert_eq!(AffinityReach::read(&json!({"spec": {}})), AffinityReach::Nobody);
        // A required anti-affinity only filters.
        assert_eq!(reach("podAntiAffinity", hard, json!({})), AffinityReach::Nobody);
        assert_eq!(reach("podAffinity", hard, json!({"topologyKey": "z"})), names(&["own"]));
        let term = json!({"weight": 1, "podAffinityTerm": {"namespaces": ["b", "a"]}});
        assert_eq!(reach("podAntiAffinity", soft, term), names(&["a", "b"]));
        let term = json!({"weight": 1, "podAffinityTerm": {"namespaceSelector": {}}});
        assert_eq!(reach("podAffinity", soft, term), AffinityReach::Anybody);
    }
}
