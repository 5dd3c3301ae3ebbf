//! The workload of a pod: its outermost controller, or the pod itself. It is read from the pod's text without building
//! anything.

use super::members::{Members, elements, text};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The kind of a pod without a controller.
pub const POD: &str = "Pod";

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodWorkload<'a> {
    namespace: Cow<'a, str>,
    kind: Cow<'a, str>,
    name: Cow<'a, str>,
    /// The value of the label `pod-template-hash`.
    hash: Option<Cow<'a, str>>,
}

/// The name of the Deployment that made a ReplicaSet, which it names after itself and the hash that the pods carry.
#[must_use]
pub fn deployment<'a>(kind: &str, name: &'a str, hash: Option<&str>) -> Option<&'a str> {
    let hash = hash.filter(|hash| kind == "ReplicaSet" && !hash.is_empty())?;
    let deployment = name.strip_suffix(hash)?.strip_suffix('-')?;
    (!deployment.is_empty()).then_some(deployment)
}

impl<'a> PodWorkload<'a> {
    /// The workload of a pod; `None` if the text says it in an unusual way, or names no namespace.
    #[must_use]
    pub fn read(pod: &'a RawValue) -> Option<Self> {
        let metadata = Members::of(pod.get())?.find_value(|key| key == "metadata")?;
        let (mut name, mut namespace, mut owners, mut labels) = (None, None, None, None);
        for (key, value) in Members::of(metadata)? {
            match &*key {
                "name" => name = text(value),
                "namespace" => namespace = text(value),
                "ownerReferences" => owners = value.starts_with('[').then_some(value),
                "labels" => labels = value.starts_with('{').then_some(value),
                _ => {}
            }
        }
        let controller = owners.and_then(|all| elements(all).find_map(controller));
        let (kind, name) = match controller {
            Some(controller) => controller,
            None => (POD.into(), name?),
        };
        let hash = labels.and_then(|all| Members::of(all)?.find(|(key, _)| key == "pod-template-hash"));
        let hash = hash.and_then(|(_, value)| text(value));
        Some(Self { namespace: namespace?, kind, name, hash })
    }

    /// Its namespace, kind and name.
    #[must_use]
    pub fn names(&self) -> [&str; 3] {
        match deployment(&self.kind, &self.name, self.hash.as_deref()) {
            Some(deployment) => [&self.namespace, "Deployment", deployment],
            None => [&self.namespace, &self.kind, &self.name],
        }
    }
}

/// The kind and the name of an owner, if it is the controller.
fn controller(owner: &str) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let (mut kind, mut name, mut controls) = (None, None, false);
    for (key, value) in Members::of(owner)? {
        match &*key {
            "kind" => kind = text(value),
            "name" => name = text(value),
            "controller" => controls = value == "true",
            _ => {}
        }
    }
    kind.zip(name).filter(|_| controls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(metadata: &Value) -> Option<String> {
        let text = json!({"spec": {}, "metadata": metadata}).to_string();
        let raw: &RawValue = serde_json::from_str(&text).unwrap();
        PodWorkload::read(raw).map(|workload| workload.names().join("/"))
    }

    fn owned(kind: &str, name: &str, controller: bool, hash: &Value) -> Value {
        json!({"name": "p", "namespace": "n", "labels": {"pod-template-hash": hash}, "ownerReferences": [
            {"kind": "Other", "name": "first"}, {"kind": kind, "name": name, "controller": controller}]})
    }

    #[test]
    fn the_workload_of_a_pod_is_its_outermost_controller() {
        // As the operator reads it: `the_controller_of_a_pod_is_the_deployment_behind_its_replica_set`.
        let is = |kind, name, hash: Value, expected: &str| {
            assert_eq!(
                of(&owned(kind, name, true, &hash)).as_deref(),
                Some(expected),
                "{kind} {name} {hash}"
            );
        };
        is("ReplicaSet", "web-5d4f", json!("5d4f"), "n/Deployment/web");
        for hash in [json!(null), json!(""), json!("9c"), json!("web-5d4f"), json!(7)] {
            is("ReplicaSet", "web-5d4f", hash, "n/ReplicaSet/web-5d4f");
        }
        is("StatefulSet", "db-5d4f", json!("5d4f"), "n/StatefulSet/db-5d4f");
        assert_eq!(of(&owned("ReplicaSet", "web", false, &json!(null))).as_deref(), Some("n/Pod/p"));
        assert_eq!(of(&json!({"name": "p", "namespace": "n"})).as_deref(), Some("n/Pod/p"));
        for odd in [json!({}), json!({"name": "p"}), json!({"namespace": "n"}), json!(null), json!([1])] {
            assert_eq!(of(&odd), None, "{odd}");
        }
    }

    #[test]
    fn a_usual_pod_is_read_without_an_allocation() {
        let text = json!({"metadata": owned("ReplicaSet", "web-5d4f", true, &json!("5d4f"))}).to_string();
        let raw: &RawValue = serde_json::from_str(&text).unwrap();
        let counted = allocation_counter::measure(|| {
            let workload = PodWorkload::read(raw).unwrap();
            assert_eq!(workload.names(), ["n", "Deployment", "web"]);
        });
        assert_eq!(counted.count_total, 0);
    }
}
