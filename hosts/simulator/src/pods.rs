//! A pod as its kubelet sees it, and its next step. The step depends only on the object and on the progress that the
//! machine reports; nothing here writes.
//!
//! ```text
//! Pending ──► Running ──► Succeeded | Failed        deleted, in any of them ──► gone
//!    └──► Failed: there is no room for it, or an annotation says nothing
//! ```

mod asks;
mod status;

pub(crate) use asks::quantities;
pub use asks::{Lack, PodRequests};
pub use status::{failed, finished, progress, running};

use crate::machine::PodId;
use crate::work::{PREFIX, Work};
use host_kit::reflect::Row;
use joulie_api::labels::pod::WORKLOAD_CLASS;
use serde_json::Value;
use std::collections::BTreeMap;

/// The condition that records the progress of a pod, so that a restarted simulator continues from there.
pub const PROGRESS: &str = "sim.joulie.io/Progress";

/// A bound pod.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundPod {
    /// Its identity.
    pub id: PodId,
    /// The node that it is bound to.
    pub node: String,
    /// When it was created, RFC 3339: older ones are admitted first.
    pub created: String,
    /// Its phase.
    pub phase: BoundPodPhase,
    /// If its deletion was requested: the remaining grace period in seconds.
    pub deleting: Option<u64>,
    /// Its work, or why its annotations cannot be read.
    pub work: Result<Work, String>,
    /// The resources that it takes from its node.
    pub asks: PodRequests,
    /// Name and image of each container.
    pub containers: Vec<(String, String)>,
    /// Name and image of each init container.
    pub initial: Vec<(String, String)>,
    /// When it began, RFC 3339.
    pub started: Option<String>,
    /// The part of its work that was done when its status was last written.
    pub done: f64,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundPodPhase {
    /// Not begun.
    Pending,
    /// Running.
    Running,
    /// Finished, or another phase that somebody else has written and that is not changed here.
    Final,
}

/// The next write for a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing.
    Wait,
    /// It is not admitted: a reason in one word, and a message.
    Reject(String, String),
    /// Its containers start.
    Run,
    /// Its containers have ended with this code.
    Finish(u8),
    /// Its progress is recorded.
    Checkpoint(f64),
    /// Its containers have stopped, so its object is deleted.
    Remove,
}

impl Next {
    /// A number for the variant, without its data, to detect a repeated step.
    #[must_use]
    pub const fn step(&self) -> u8 {
        match self {
            Self::Wait => 0,
            Self::Reject(..) => 1,
            Self::Run => 2,
            Self::Finish(_) => 3,
            Self::Checkpoint(_) => 4,
            Self::Remove => 5,
        }
    }
}

impl BoundPod {
    /// Whether it takes resources of its node: from its admission until it has finished.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.phase == BoundPodPhase::Running
    }

    /// Whether it makes progress. A pod that is being deleted has stopped.
    #[must_use]
    pub fn works(&self) -> bool {
        self.phase == BoundPodPhase::Running && self.deleting.is_none()
    }

    /// The next step of a pod that runs or has finished. `finished` is reported by the machine; `checkpoint` is the
    /// progress to record, if it is due.
    #[must_use]
    pub fn next(&self, finished: bool, checkpoint: Option<f64>) -> Next {
        match (self.deleting, self.phase) {
            // Without a grace period it is deleted already, unless finalizers remain that others remove.
            (Some(0), _) | (None, BoundPodPhase::Pending | BoundPodPhase::Final) => Next::Wait,
            (Some(_), _) => Next::Remove,
            (None, BoundPodPhase::Running) if finished => {
                Next::Finish(self.work.as_ref().map_or(0, |work| work.exit_code))
            }
            (None, BoundPodPhase::Running) => checkpoint.map_or(Next::Wait, Next::Checkpoint),
        }
    }

    /// The next step of a pod that was not started, given the capacity and the usage of its node.
    #[must_use]
    pub fn admit(&self, room: &BTreeMap<String, i128>, used: &BTreeMap<String, i128>) -> Next {
        if let Err(why) = &self.work {
            return Next::Reject("UnreadableWork".to_owned(), why.clone());
        }
        match self.asks.fits(room, used) {
            Ok(()) => Next::Run,
            Err(lack) => Next::Reject(lack.reason(), lack.to_string()),
        }
    }
}

impl Row for BoundPod {
    const KIND: &'static str = "pods";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let id = text(&meta["uid"]).filter(|uid| !uid.is_empty()).ok_or("it has no metadata.uid")?;
        let node = text(&spec["nodeName"]).filter(|node| !node.is_empty()).ok_or("it is bound nowhere")?;
        let deleting = meta["deletionTimestamp"]
            .as_str()
            .map(|_| meta["deletionGracePeriodSeconds"].as_u64().unwrap_or(30));
        let asks = PodRequests::of(spec)?;
        let (annotations, performance) = notes(&meta["annotations"]);
        let work = Work::read(&annotations, asks.cpus(), asks.gpus(), performance);
        Ok(Self {
            id: PodId(id),
            node,
            created: text(&meta["creationTimestamp"]).unwrap_or_default(),
            phase: phase(&status["phase"]),
            deleting,
            work: work.map_err(|bad| bad.to_string()),
            asks,
            containers: containers(&spec["containers"]),
            initial: containers(&spec["initContainers"]),
            started: text(&status["startTime"]),
            done: done(&status["conditions"]),
        })
    }
}

fn phase(phase: &Value) -> BoundPodPhase {
    match phase.as_str() {
        None | Some("" | "Pending") => BoundPodPhase::Pending,
        Some("Running") => BoundPodPhase::Running,
        Some(_) => BoundPodPhase::Final,
    }
}

/// The simulator's annotations, and whether it is a performance pod.
fn notes(annotations: &Value) -> (BTreeMap<String, String>, bool) {
    let all = annotations.as_object();
    let ours = all.into_iter().flatten().filter(|(name, _)| name.starts_with(PREFIX));
    let ours = ours.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
    (ours, annotations[WORKLOAD_CLASS].as_str().is_some_and(|class| class.trim() == "performance"))
}

fn containers(list: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = list.as_array().into_iter().flatten();
    all.map(|container| (text(&container["name"]), text(&container["image"]))).collect()
}

/// Unreadable progress counts as none: the pod then repeats its work.
fn done(conditions: &Value) -> f64 {
    let ours = conditions.as_array().into_iter().flatten().find(|condition| condition["type"] == PROGRESS);
    let said = ours.and_then(|condition| condition["message"].as_str());
    let part = said.and_then(|said| said.split(' ').next()).and_then(|part| part.parse::<f64>().ok());
    part.filter(|part| (0.0..=1.0).contains(part)).unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
