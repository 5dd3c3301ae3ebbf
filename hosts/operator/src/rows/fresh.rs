//! What is kept of a pod that does not run yet: what it will draw, since when it is bound, and which limit lacks watts for
//! it.

use joulie_api::extender::LacksWatts;
use joulie_api::extender::pod::{self, ExtenderPod};
use joulie_core::placement::assumed::PodUid;
use joulie_core::placement::demand::PodDemand;
use joulie_core::placement::freshness::UnixTime;
use power_units::Watts;
use serde::Deserialize;
use serde_json::Value;

/// A pod that waits for a node or for its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FreshSeen {
    /// Its identity: another pod may get its name.
    pub(crate) uid: PodUid,
    /// What it requests while it runs.
    pub(crate) demand: PodDemand,
    /// When it was bound, if the object says so.
    pub(crate) bound: Option<UnixTime>,
    /// The PowerBudget that lacks watts for it, and how many, where kube-scheduler says so.
    pub(crate) lacks: Option<(Box<str>, Watts)>,
}

impl FreshSeen {
    /// `None` for a pod that runs, has ended, is being deleted, or cannot be read.
    pub(super) fn read(object: &Value) -> Option<Self> {
        let is_pending = matches!(object["status"]["phase"].as_str(), None | Some("Pending"));
        if !is_pending || !object["metadata"]["deletionTimestamp"].is_null() {
            return None;
        }
        let read = ExtenderPod::deserialize(object).ok()?;
        let uid = pod::uid(object["metadata"]["uid"].as_str()?);
        let conditions = object["status"]["conditions"].as_array();
        let scheduled = conditions.into_iter().flatten().find(|one| one["type"] == "PodScheduled");
        let is = |status: &str| scheduled.filter(|one| one["status"] == status);
        let said = is("False").and_then(|one| LacksWatts::least_in(one["message"].as_str()?));
        let bound = is("True").and_then(|one| one["lastTransitionTime"].as_str()?.parse().ok());
        Some(Self {
            uid,
            demand: read.demand().ok()?,
            bound: bound.map(|at: jiff::Timestamp| UnixTime::from_micros(at.as_microsecond())),
            lacks: said.map(|lacks| (lacks.budget.into(), lacks.watts)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(status: Value) -> Option<FreshSeen> {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "4"}}});
        let pod = json!({"metadata": {"name": "p", "uid": "9d1d44c0-0000-4000-8000-000000000001"},
            "spec": {"containers": [container]}, "status": status});
        FreshSeen::read(&pod)
    }

    #[test]
    fn a_pod_that_waits_says_what_it_lacks_and_one_that_is_bound_since_when() {
        let why = "0/2 nodes are available: 2 joulie: PowerBudget rack-1 lacks 312 W for the pod.";
        let scheduled = |status: &str| {
            json!([{"type": "PodScheduled", "status": status, "message": why,
                "lastTransitionTime": "2026-11-25T10:00:00Z"}])
        };
        let waits = read(json!({"phase": "Pending", "conditions": scheduled("False")})).unwrap();
        assert_eq!(waits.lacks, Some(("rack-1".into(), Watts::from_int(312))));
        assert_eq!((waits.bound, waits.demand.cpu.get()), (None, 4000));
        let bound = read(json!({"conditions": scheduled("True")})).unwrap();
        let at = UnixTime::from_micros(1_795_600_800_000_000);
        assert_eq!((bound.bound, bound.lacks), (Some(at), None));
    }

    #[test]
    fn a_pod_that_runs_or_ended_is_not_fresh() {
        for phase in ["Running", "Succeeded", "Failed", "Unknown"] {
            assert_eq!(read(json!({"phase": phase})), None);
        }
    }
}
