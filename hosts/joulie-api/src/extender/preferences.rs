//! What in a pod's own text makes kube-scheduler's other scores depend on which nodes are compared (docs/adr/0034). It
//! is read from the text without building anything.

use super::members::{Members, elements, text};
use super::summary::{Slot, list, pick};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// What a pod asks for that a score of kube-scheduler depends on, besides the nodes themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPreference {
    /// The text is unusual, so it is not known.
    Unreadable,
    /// Preferred terms of an affinity to nodes or to pods.
    Affinity,
    /// A soft topology spread: its own, or the one that pods of a ReplicaSet, a StatefulSet or a
    /// ReplicationController have by default.
    Spread,
    /// A volume that a later plugin looks at, or an image as a volume.
    Volume,
    /// Claims of devices.
    Claim,
    /// It is scheduled together with other pods.
    Group,
}

/// A pod without such a preference of its own.
#[derive(Clone, Debug)]
pub struct IndifferentPod<'a> {
    namespace: Cow<'a, str>,
    labels: &'a str,
    init: &'a str,
    main: &'a str,
    spreads_by_default: bool,
}

impl<'a> IndifferentPod<'a> {
    /// Reads a pod.
    ///
    /// # Errors
    /// If it has a preference; one of them is told.
    pub fn read(pod: &'a RawValue) -> Result<Self, PodPreference> {
        read(pod.get()).unwrap_or(Err(PodPreference::Unreadable))
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether kube-scheduler spreads it by default where a Service selects it.
    #[must_use]
    pub fn spreads_by_default(&self) -> bool {
        self.spreads_by_default
    }

    /// Whether it has this label.
    #[must_use]
    pub fn has_label(&self, key: &str, value: &str) -> bool {
        let found = Members::of(self.labels).and_then(|mut labels| labels.find(|(name, _)| name == key));
        found.and_then(|(_, found)| text(found)).is_some_and(|found| found == value)
    }

    /// The image of each container, init containers included; `None` for one that has none.
    pub fn images(&self) -> impl Iterator<Item = Option<Cow<'a, str>>> {
        elements(self.init).chain(elements(self.main)).map(|container| {
            let [image] = pick(container, ["image"])?;
            text(image?)
        })
    }
}

/// `None` if the text is unusual.
fn read(json: &str) -> Option<Result<IndifferentPod<'_>, PodPreference>> {
    let [metadata, spec] = pick(json, ["metadata", "spec"])?;
    let [namespace, labels, owners] = pick(metadata?, ["namespace", "labels", "ownerReferences"])?;
    let names = [
        "affinity",
        "topologySpreadConstraints",
        "volumes",
        "resourceClaims",
        "schedulingGroup",
        "initContainers",
        "containers",
    ];
    let [affinity, spread, volumes, claims, group, init, main] = pick(spec?, names)?;
    let has_own_spread = elements(list(spread)?).next().is_some();
    let found = [
        (group.is_some(), PodPreference::Group),
        (elements(list(claims)?).next().is_some(), PodPreference::Claim),
        (prefers(affinity)?, PodPreference::Affinity),
        (is_soft(list(spread)?)?, PodPreference::Spread),
        (!has_own_spread && is_spread_by_owner(list(owners)?)?, PodPreference::Spread),
        (has_volume(list(volumes)?)?, PodPreference::Volume),
    ];
    if let Some((_, preference)) = found.into_iter().find(|(is, _)| *is) {
        return Some(Err(preference));
    }
    let labels = labels.unwrap_or("{}");
    Members::of(labels)?;
    Some(Ok(IndifferentPod {
        namespace: text(namespace?)?,
        labels,
        init: list(init)?,
        main: list(main)?,
        spreads_by_default: !has_own_spread,
    }))
}

fn prefers(affinity: Slot<'_>) -> Option<bool> {
    let Some(affinity) = affinity else { return Some(false) };
    for part in pick(affinity, ["nodeAffinity", "podAffinity", "podAntiAffinity"])?.into_iter().flatten() {
        let [terms] = pick(part, ["preferredDuringSchedulingIgnoredDuringExecution"])?;
        if elements(list(terms)?).next().is_some() {
            return Some(true);
        }
    }
    Some(false)
}

/// Whether one of these constraints is not a hard one.
fn is_soft(constraints: &str) -> Option<bool> {
    for constraint in elements(constraints) {
        let [action] = pick(constraint, ["whenUnsatisfiable"])?;
        if text(action?)? != "DoNotSchedule" {
            return Some(true);
        }
    }
    Some(false)
}

/// Whether one of these owners is a controller whose pods kube-scheduler spreads by default.
fn is_spread_by_owner(owners: &str) -> Option<bool> {
    for owner in elements(owners) {
        let [kind, controller] = pick(owner, ["kind", "controller"])?;
        let spread = ["ReplicaSet", "StatefulSet", "ReplicationController"];
        if controller == Some("true") && spread.contains(&&*text(kind?)?) {
            return Some(true);
        }
    }
    Some(false)
}

/// The kinds of volumes that are the same on every node.
const EVERYWHERE: [&str; 7] =
    ["name", "configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"];

fn has_volume(volumes: &str) -> Option<bool> {
    for volume in elements(volumes) {
        if Members::of(volume)?.any(|(key, value)| value != "null" && !EVERYWHERE.contains(&&*key)) {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn preference(metadata: &Value, spec: &Value) -> Option<PodPreference> {
        let mut metadata = metadata.clone();
        metadata["namespace"] = json!("n");
        let text = json!({"metadata": metadata, "spec": spec}).to_string();
        IndifferentPod::read(serde_json::from_str(&text).unwrap()).err()
    }

    #[test]
    fn each_preference_of_its_own_is_found() {
        let owned = |kind: &str, controller: bool| json!({"ownerReferences": [{"kind": kind, "name": "o", "controller": controller}]});
        let spread = |action: &str| json!({"topologySpreadConstraints": [{"whenUnsatisfiable": action}]});
        let term = json!([{"weight": 1}]);
        let prefers = |part: &str| json!({"affinity": {part: {"preferredDuringSchedulingIgnoredDuringExecution": term}}});
        let none = json!({});
        for (metadata, spec, found) in [
            (none.clone(), json!({"containers": []}), None),
            (owned("Job", true), json!({}), None),
            (owned("ReplicaSet", false), json!({}), None),
            (owned("ReplicaSet", true), json!({}), Some(PodPreference::Spread)),
            (owned("StatefulSet", true), json!({}), Some(PodPreference::Spread)),
            (owned("ReplicationController", true), json!({}), Some(PodPreference::Spread)),
            // A constraint of its own takes the place of the default ones.
            (owned("ReplicaSet", true), spread("DoNotSchedule"), None),
            (none.clone(), spread("ScheduleAnyway"), Some(PodPreference::Spread)),
            (none.clone(), spread("Whatever"), Some(PodPreference::Spread)),
            (none.clone(), prefers("nodeAffinity"), Some(PodPreference::Affinity)),
            (none.clone(), prefers("podAffinity"), Some(PodPreference::Affinity)),
            (none.clone(), prefers("podAntiAffinity"), Some(PodPreference::Affinity)),
            (
                none.clone(),
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}, "podAffinity": null}}),
                None,
            ),
            (none.clone(), json!({"volumes": [{"name": "v", "emptyDir": {}}, {"projected": {}}]}), None),
            (none.clone(), json!({"volumes": [{"persistentVolumeClaim": {}}]}), Some(PodPreference::Volume)),
            (none.clone(), json!({"volumes": [{"image": {}}]}), Some(PodPreference::Volume)),
            (none.clone(), json!({"resourceClaims": [{"name": "c"}]}), Some(PodPreference::Claim)),
            (none.clone(), json!({"schedulingGroup": {}}), Some(PodPreference::Group)),
            (none.clone(), json!({"affinity": []}), Some(PodPreference::Unreadable)),
            (none.clone(), json!({"volumes": 3}), Some(PodPreference::Unreadable)),
            (json!({"ownerReferences": [3]}), json!({}), Some(PodPreference::Unreadable)),
            (none.clone(), json!({"topologySpreadConstraints": [{}]}), Some(PodPreference::Unreadable)),
        ] {
            assert_eq!(preference(&metadata, &spec), found, "{metadata} {spec}");
        }
    }

    #[test]
    fn what_is_no_pod_is_unreadable() {
        for text in ["{}", "null", "3", r#"{"metadata":{"namespace":"n"}}"#, r#"{"metadata":{},"spec":{}}"#] {
            let raw: &RawValue = serde_json::from_str(text).unwrap();
            assert_eq!(IndifferentPod::read(raw).err(), Some(PodPreference::Unreadable), "{text}");
        }
        let twice = r#"{"metadata":{"namespace":"n"},"spec":{"affinity":null,"affinity":{}}}"#;
        let raw: &RawValue = serde_json::from_str(twice).unwrap();
        assert_eq!(IndifferentPod::read(raw).err(), Some(PodPreference::Unreadable));
    }

    #[test]
    fn its_labels_and_images_are_read() {
        let text = json!({"metadata": {"namespace": "n", "labels": {"a": "b", "c": "d\"e"}},
            "spec": {"initContainers": [{"image": "i:1"}], "containers": [{"image": "x"}, {"name": "none"}]}})
        .to_string();
        let pod = IndifferentPod::read(serde_json::from_str(&text).unwrap()).unwrap();
        assert!(pod.has_label("a", "b") && pod.has_label("c", "d\"e"));
        assert!(!pod.has_label("a", "c") && !pod.has_label("b", "b"));
        let images: Vec<Option<String>> = pod.images().map(|image| image.map(Cow::into_owned)).collect();
        assert_eq!(images, [Some("i:1".to_owned()), Some("x".to_owned()), None]);
        assert_eq!((pod.namespace(), pod.spreads_by_default()), ("n", true));
    }
}
