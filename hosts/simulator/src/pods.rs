//! A pod as its kubelet sees it, and what comes next for it. Decided from the object alone, and from what the machine
//! says of its progress; nothing here writes.
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

/// The condition that holds how much of a pod's work is done, so that a restart of the simulator goes on from there.
pub const PROGRESS: &str = "sim.joulie.io/Progress";

/// A pod that is bound.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundPod {
    /// Which.
    pub id: PodId,
    /// Where it is bound to.
    pub node: String,
    /// When it was created, RFC 3339: older ones are admitted first.
    pub created: String,
    /// Where it stands.
    pub phase: BoundPodPhase,
    /// Its deletion was asked for, with so many seconds of grace left.
    pub deleting: Option<u64>,
    /// What it does, or why that cannot be said.
    pub work: Result<Work, String>,
    /// What it takes of its node.
    pub asks: PodRequests,
    /// Name and image of each container.
    pub containers: Vec<(String, String)>,
    /// Name and image of each container that runs before those.
    pub initial: Vec<(String, String)>,
    /// When it began, RFC 3339.
    pub started: Option<String>,
    /// The part of its work that was done when its status was last written.
    pub done: f64,
}

/// Where a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundPodPhase {
    /// Not begun.
    Pending,
    /// Running.
    Running,
    /// Over, one way or the other; or the word of somebody else, which is not ours to change.
    Final,
}

/// What is to be written about a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing.
    Wait,
    /// It is turned away: a reason in one word, and a message.
    Reject(String, String),
    /// Its containers start.
    Run,
    /// Its containers have ended with this code.
    Finish(u8),
    /// How much is done is written down.
    Checkpoint(f64),
    /// Its containers have stopped, so the object may go.
    Remove,
}

impl Next {
    /// Which of them, without what it carries: to tell whether it is the same again.
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
    /// Whether it takes a part of its node: from its admission until it is over.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.phase == BoundPodPhase::Running
    }

    /// Whether it does work: one that is being deleted has stopped.
    #[must_use]
    pub fn works(&self) -> bool {
        self.phase == BoundPodPhase::Running && self.deleting.is_none()
    }

    /// What comes next for a pod that runs or is over; `finished` is what the machine says, `checkpoint` how much is
    /// done where that is to be written down now.
    #[must_use]
    pub fn next(&self, finished: bool, checkpoint: Option<f64>) -> Next {
        match (self.deleting, self.phase) {
            // Without grace it is gone, but for finalizers that somebody else takes off.
            (Some(0), _) | (None, BoundPodPhase::Pending | BoundPodPhase::Final) => Next::Wait,
            (Some(_), _) => Next::Remove,
            (None, BoundPodPhase::Running) if finished => {
                Next::Finish(self.work.as_ref().map_or(0, |work| work.exit_code))
            }
            (None, BoundPodPhase::Running) => checkpoint.map_or(Next::Wait, Next::Checkpoint),
        }
    }

    /// What comes next for a pod that has not begun, where its node has this much room.
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

/// The annotations that say what it does, and whether it is a performance pod.
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

/// A part that cannot be read is nothing: the pod then does its work again.
fn done(conditions: &Value) -> f64 {
    let ours = conditions.as_array().into_iter().flatten().find(|condition| condition["type"] == PROGRESS);
    let said = ours.and_then(|condition| condition["message"].as_str());
    let part = said.and_then(|said| said.split(' ').next()).and_then(|part| part.parse::<f64>().ok());
    part.filter(|part| (0.0..=1.0).contains(part)).unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
