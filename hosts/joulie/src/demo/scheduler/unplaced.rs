//! The status of a pod without a node: its condition `PodScheduled`, as kube-scheduler sets it. No I/O.

use serde_json::{Value, json};
use std::fmt;

/// Why a pod was not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unplaced {
    /// No node can take it now.
    Unschedulable(String),
    /// An error prevented the decision or the binding.
    Failed(String),
}

impl Unplaced {
    const fn reason(&self) -> &'static str {
        match self {
            Self::Unschedulable(_) => "Unschedulable",
            Self::Failed(_) => "SchedulerError",
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::Unschedulable(why) | Self::Failed(why) => why,
        }
    }

    /// The patch of the pod's status, only for this version of `pod`; `None` if the status has this condition
    /// already.
    pub(crate) fn patch(&self, pod: &Value, now: &str) -> Option<Value> {
        let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_about = |one: &&Value| one["type"] == "PodScheduled";
        let before = conditions.iter().find(is_about).filter(|one| one["status"] == "False");
        let says = |one: &Value| one["message"] == self.message() && one["reason"] == self.reason();
        if before.is_some_and(says) {
            return None;
        }
        let since = before.and_then(|one| one["lastTransitionTime"].as_str()).unwrap_or(now);
        let others = conditions.iter().filter(|one| !is_about(one)).cloned();
        let all: Vec<Value> = others
            .chain([json!({
                "type": "PodScheduled", "status": "False", "reason": self.reason(), "message": self.message(),
                "lastProbeTime": null, "lastTransitionTime": since,
            })])
            .collect();
        let version = &pod["metadata"]["resourceVersion"];
        Some(json!({"metadata": {"resourceVersion": version}, "status": {"conditions": all}}))
    }
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(conditions: Value) -> Value {
        json!({"metadata": {"resourceVersion": "7"}, "status": {"conditions": conditions}})
    }

    #[test]
    fn a_pod_that_finds_no_node_is_told_once_and_since_when() {
        let no_room = Unplaced::Unschedulable("no node has room".to_owned());
        let other = json!({"type": "Other", "status": "True"});
        let patch = no_room.patch(&pod(json!([other])), "10:00").unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let conditions = &patch["status"]["conditions"];
        assert_eq!((&conditions[0], conditions[1]["status"].as_str()), (&other, Some("False")));
        assert_eq!(conditions[1]["reason"], "Unschedulable");
        assert_eq!(conditions[1]["message"], "no node has room");
        assert_eq!(no_room.patch(&pod(conditions.clone()), "10:05"), None);
        let silent = Unplaced::Failed("the extender does not answer".to_owned());
        let patch = silent.patch(&pod(conditions.clone()), "10:05").unwrap();
        let told = &patch["status"]["conditions"][1];
        assert_eq!(
            (told["reason"].as_str(), told["lastTransitionTime"].as_str()),
            (Some("SchedulerError"), Some("10:00"))
        );
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 2);
        assert!(silent.patch(&json!({}), "10:00").is_some());
    }
}
