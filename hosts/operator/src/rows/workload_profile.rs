//! A WorkloadProfile: which workload it is about, what it says, and which of its fields somebody else owns.

use super::owners::FORMER;
use super::{Stamp, text};
use host_kit::reflect::Row;
use joulie_api::labels::{manager, object};
use joulie_api::workload_profile::WorkloadProfileStatus;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What is kept of a WorkloadProfile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkloadProfileSeen {
    /// The object, and its version.
    pub(crate) stamp: Stamp,
    /// The generation of its spec.
    pub(crate) generation: i64,
    /// The labels of it that the classifier writes.
    pub(crate) labels: BTreeMap<&'static str, String>,
    /// The kind and the name of its workload; `None` if it names none, or one of another namespace.
    pub(crate) workload: Option<(String, String)>,
    /// The node that it names.
    pub(crate) node: Option<String>,
    /// What it says.
    pub(crate) status: WorkloadProfileStatus,
    /// The fields that somebody else owns.
    pub(crate) theirs: BTreeSet<Leaf>,
    /// The owner of those; the first one by name.
    pub(crate) who: Option<String>,
    /// Whether an operator of another generation wrote to it.
    pub(crate) former: bool,
}

/// A field that the classifier writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leaf {
    /// `spec.nodeName`
    NodeName,
    /// `status.criticality.class`
    Class,
    /// `status.migratability.reschedulable`
    Reschedulable,
    /// `status.cpu.intensity`
    CpuIntensity,
    /// `status.cpu.bound`
    CpuBound,
    /// `status.cpu.avgUtilizationPct`
    CpuUtilization,
    /// `status.cpu.capSensitivity`
    CpuSensitivity,
    /// `status.gpu.intensity`
    GpuIntensity,
    /// `status.gpu.bound`
    GpuBound,
    /// `status.gpu.avgUtilizationPct`
    GpuUtilization,
    /// `status.gpu.capSensitivity`
    GpuSensitivity,
    /// `status.confidence`
    Confidence,
    /// `status.classificationReason`
    Reason,
    /// `status.lastUpdated`
    LastUpdated,
    /// `status.observedGeneration`
    ObservedGeneration,
}

impl Leaf {
    /// All of them.
    pub(crate) const ALL: [Self; 15] = [
        Self::NodeName,
        Self::Class,
        Self::Reschedulable,
        Self::CpuIntensity,
        Self::CpuBound,
        Self::CpuUtilization,
        Self::CpuSensitivity,
        Self::GpuIntensity,
        Self::GpuBound,
        Self::GpuUtilization,
        Self::GpuSensitivity,
        Self::Confidence,
        Self::Reason,
        Self::LastUpdated,
        Self::ObservedGeneration,
    ];

    /// The names from the object to the field.
    pub(crate) const fn path(self) -> &'static [&'static str] {
        match self {
            Self::NodeName => &["spec", "nodeName"],
            Self::Class => &["status", "criticality", "class"],
            Self::Reschedulable => &["status", "migratability", "reschedulable"],
            Self::CpuIntensity => &["status", "cpu", "intensity"],
            Self::CpuBound => &["status", "cpu", "bound"],
            Self::CpuUtilization => &["status", "cpu", "avgUtilizationPct"],
            Self::CpuSensitivity => &["status", "cpu", "capSensitivity"],
            Self::GpuIntensity => &["status", "gpu", "intensity"],
            Self::GpuBound => &["status", "gpu", "bound"],
            Self::GpuUtilization => &["status", "gpu", "avgUtilizationPct"],
            Self::GpuSensitivity => &["status", "gpu", "capSensitivity"],
            Self::Confidence => &["status", "confidence"],
            Self::Reason => &["status", "classificationReason"],
            Self::LastUpdated => &["status", "lastUpdated"],
            Self::ObservedGeneration => &["status", "observedGeneration"],
        }
    }

    fn is_in(self, fields: &Value) -> bool {
        let found = self.path().iter().try_fold(fields, |fields, name| fields.get(format!("f:{name}")));
        found.is_some()
    }
}

/// The labels that the classifier writes.
const LABELS: [&str; 3] = [object::MANAGED_BY, object::POD_NAME, object::NODE_NAME];

impl WorkloadProfileSeen {
    /// Whether the classifier made it, so that it may delete it.
    pub(crate) fn is_ours(&self) -> bool {
        self.labels.get(object::MANAGED_BY).is_some_and(|by| by == object::BY_OPERATOR)
    }
}

impl Row for WorkloadProfileSeen {
    const KIND: &'static str = "WorkloadProfile";
    const OWNERS: bool = true;

    fn read(object: &Value) -> Result<Self, String> {
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let label = |key: &'static str| Some((key, meta["labels"][key].as_str()?.to_owned()));
        let (theirs, who, former) = owners(meta);
        Ok(Self {
            stamp: Stamp::of(object),
            generation: meta["generation"].as_i64().unwrap_or_default(),
            labels: LABELS.into_iter().filter_map(label).collect(),
            workload: workload(meta, &spec["workloadRef"])?,
            node: text(&spec["nodeName"]),
            // What cannot be read there is written anew.
            status: WorkloadProfileStatus::deserialize(&object["status"]).unwrap_or_default(),
            theirs,
            who,
            former,
        })
    }
}

/// A profile speaks only for a workload of its own namespace: whoever may write here says nothing about others.
fn workload(meta: &Value, workload: &Value) -> Result<Option<(String, String)>, String> {
    if workload.is_null() {
        return Ok(None);
    }
    let field =
        |name: &str| text(&workload[name]).ok_or_else(|| format!("spec.workloadRef.{name}: expected a text"));
    let both = (field("kind")?, field("name")?);
    let elsewhere = text(&workload["namespace"]).is_some_and(|said| meta["namespace"] != said.as_str());
    Ok((!elsewhere).then_some(both))
}

/// The fields that others own, the first of the owners, and whether an earlier operator has written.
fn owners(meta: &Value) -> (BTreeSet<Leaf>, Option<String>, bool) {
    let (mut theirs, mut first, mut former): (_, Option<&str>, _) = (BTreeSet::new(), None, false);
    for entry in meta["managedFields"].as_array().into_iter().flatten() {
        let who = entry["manager"].as_str().unwrap_or_default();
        let fields = &entry["fieldsV1"];
        let owned: Vec<Leaf> = Leaf::ALL.into_iter().filter(|leaf| leaf.is_in(fields)).collect();
        if who == manager::CLASSIFIER || owned.is_empty() {
            continue;
        }
        if FORMER.contains(&who) {
            former = true;
            continue;
        }
        theirs.extend(owned);
        first = Some(first.map_or(who, |first| first.min(who)));
    }
    (theirs, first.map(str::to_owned), former)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(object: Value) -> Result<WorkloadProfileSeen, String> {
        WorkloadProfileSeen::read(&object)
    }

    #[test]
    fn what_a_person_owns_is_known_field_by_field() {
        let entry = |manager: &str, subresource: &str, fields: Value| json!({"manager": manager, "operation": "Update", "subresource": subresource, "fieldsV1": fields});
        let meta = json!({"name": "p", "namespace": "x", "labels": {"joulie.io/managed-by": "operator", "a": "b"},
        "managedFields": [
            entry("joulie-classifier", "status", json!({"f:status": {"f:cpu": {"f:bound": {}}}})),
            entry("kubectl-edit", "status", json!({"f:status": {"f:cpu": {"f:capSensitivity": {}}, "f:other": {}}})),
            entry("kubectl", "", json!({"f:spec": {"f:nodeName": {}}, "f:metadata": {}})),
            entry("joulie-operator", "status", json!({"f:status": {"f:rescheduleReason": {}}})),
        ]});
        let seen = read(json!({"metadata": meta})).unwrap();
        assert_eq!(seen.theirs, BTreeSet::from([Leaf::NodeName, Leaf::CpuSensitivity]));
        assert_eq!((seen.who.as_deref(), seen.former, seen.is_ours()), (Some("kubectl"), false, true));
        let old = entry("operator", "", json!({"f:status": {"f:confidence": {}}}));
        let former = read(json!({"metadata": {"managedFields": [old]}})).unwrap();
        assert!(former.former && former.theirs.is_empty() && !former.is_ours());
    }

    #[test]
    fn a_profile_speaks_for_its_own_namespace_alone() {
        let of = |workload: Value| {
            read(json!({"metadata": {"namespace": "x"}, "spec": {"workloadRef": workload}}))
                .map(|seen| seen.workload)
        };
        let web = Some(("Deployment".to_owned(), "web".to_owned()));
        assert_eq!(of(json!({"kind": "Deployment", "name": "web"})), Ok(web.clone()));
        assert_eq!(of(json!({"kind": "Deployment", "name": "web", "namespace": "x"})), Ok(web));
        assert_eq!(of(json!({"kind": "Deployment", "name": "web", "namespace": "y"})), Ok(None));
        assert_eq!(of(json!(null)), Ok(None));
        assert_eq!(
            of(json!({"kind": "Deployment"})),
            Err("spec.workloadRef.name: expected a text".to_owned())
        );
        assert!(of(json!("web")).is_err());
    }

    #[test]
    fn a_status_that_cannot_be_read_says_nothing() {
        let seen = read(json!({"metadata": {}, "status": {"cpu": "much", "confidence": 0.7}})).unwrap();
        assert_eq!(seen.status, WorkloadProfileStatus::default());
    }
}
