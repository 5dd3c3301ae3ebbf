//! The controller of an evicted pod: where it is, and what it is told.

use super::{EvictionEnd, EvictionOrder};
use jiff::Timestamp;
use joulie_api::condition::rfc3339;
use joulie_api::labels::owner;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The kinds of controllers that are told about evictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerKind {
    /// Deployment.
    Deployment,
    /// ReplicaSet.
    ReplicaSet,
    /// StatefulSet.
    StatefulSet,
    /// Job.
    Job,
}

impl OwnerKind {
    /// Reads the kind of a controller.
    pub(crate) fn read(kind: &str) -> Option<Self> {
        Some(match kind {
            "Deployment" => Self::Deployment,
            "ReplicaSet" => Self::ReplicaSet,
            "StatefulSet" => Self::StatefulSet,
            "Job" => Self::Job,
            _ => return None,
        })
    }

    pub(super) fn path(self, namespace: &str, name: &str) -> String {
        let (group, kind) = match self {
            Self::Deployment => ("apps", "deployments"),
            Self::ReplicaSet => ("apps", "replicasets"),
            Self::StatefulSet => ("apps", "statefulsets"),
            Self::Job => ("batch", "jobs"),
        };
        format!("/apis/{group}/v1/namespaces/{namespace}/{kind}/{name}")
    }
}

const KEYS: [&str; 4] = [
    owner::LAST_EVICTION_FROM_CLASS,
    owner::LAST_EVICTION_REASON,
    owner::LAST_EVICTION_TIME,
    owner::LAST_EVICTION_FROM_NODE,
];

/// What a controller is told.
pub(super) fn annotations(order: &EvictionOrder, now: Timestamp) -> Value {
    let values = [order.from_class.as_str(), &order.reason, &rfc3339(now), &order.node];
    let pair = |(key, value): (&str, &str)| (key.to_owned(), json!(value));
    Value::Object(KEYS.into_iter().zip(values).map(pair).collect())
}

/// A controller as it is now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnerNow {
    /// Its version.
    pub(super) version: String,
    /// What its annotations say about the last eviction; null where they say nothing.
    pub(super) before: Value,
    /// When that was; an error if that cannot be read.
    last: Option<Result<Timestamp, String>>,
    /// Whether it is being deleted.
    leaves: bool,
}

impl OwnerNow {
    pub(super) fn read(object: &Value) -> Self {
        let meta = &object["metadata"];
        let before: Map<String, Value> =
            KEYS.into_iter().map(|key| (key.to_owned(), meta["annotations"][key].clone())).collect();
        let last = meta["annotations"][owner::LAST_EVICTION_TIME].as_str();
        Self {
            version: meta["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            before: Value::Object(before),
            last: last.map(|text| text.trim().parse().map_err(|_| text.chars().take(64).collect())),
            leaves: !meta["deletionTimestamp"].is_null(),
        }
    }

    /// Why none of its pods may be evicted now. A time in the future is as far away as one in the past, because the
    /// clocks of two leaders differ; a time that cannot be read is never over, until somebody removes it.
    pub(super) fn spared(&self, now: Timestamp, cooldown: Duration) -> Option<EvictionEnd> {
        if self.leaves {
            return Some(EvictionEnd::Failed("the controller is being deleted".to_owned()));
        }
        match self.last.as_ref()? {
            Ok(last) => {
                let is_recent = now.duration_since(*last).unsigned_abs() < cooldown;
                is_recent.then(|| EvictionEnd::CoolingDown(format!("a pod of it was evicted at {last}")))
            }
            Err(text) => {
                let key = owner::LAST_EVICTION_TIME;
                Some(EvictionEnd::CoolingDown(format!("its annotation {key} is no time: {text:?}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_rests_after_an_eviction_and_while_its_time_cannot_be_read() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let spared = |time: Value| {
            let object = json!({"metadata": {"resourceVersion": "7", "annotations": {"joulie.io/last-eviction-time": time}}});
            OwnerNow::read(&object).spared(now, Duration::from_secs(1800)).is_some()
        };
        assert!(spared(json!("2026-01-01T11:30:01Z")) && !spared(json!("2026-01-01T11:30:00Z")));
        assert!(spared(json!("2026-01-01T12:10:00Z")) && !spared(json!("2027-01-01T12:00:00Z")));
        assert!(spared(json!("yesterday")) && !spared(json!(null)));
        let leaves = json!({"metadata": {"deletionTimestamp": "2026-01-01T12:00:00Z"}});
        assert!(OwnerNow::read(&leaves).spared(now, Duration::ZERO).is_some());
    }

    #[test]
    fn what_it_said_before_is_known_to_the_last_word() {
        let object =
            json!({"metadata": {"annotations": {"joulie.io/last-eviction-reason": "hot", "other": "x"}}});
        let before = OwnerNow::read(&object).before;
        assert_eq!(before["joulie.io/last-eviction-reason"], "hot");
        assert!(before["joulie.io/last-eviction-time"].is_null() && before.get("other").is_none());
        assert_eq!(before.as_object().unwrap().len(), 4);
    }
}
