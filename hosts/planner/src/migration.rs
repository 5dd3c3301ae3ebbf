//! Recommendations to reschedule: which pods should leave a node, and why.
//!
//! "Scheduling decisions are made once at pod creation. As cluster conditions change, an initially good placement can
//! become suboptimal." A pod is recommended only with the annotation `joulie.io/reschedulable: "true"`, never when it
//! is of class performance, by its annotation or because its constraints exclude eco, or names a class that we do not
//! know, and only from a node whose cooling or PSU stress
//! exceeds the threshold, or that is draining. A stress that is only the worst that is possible is no reason: nobody
//! saw it. Recommending moves nothing; [`eviction`] decides what may be moved.

pub mod eviction;

use crate::classify::Hints;
use crate::demand::DemandClass;
use crate::power::Grounds;
use crate::twin::Twin;
use joulie_core::placement::class::{SchedulableClass, WorkloadClass};
use power_units::Percent;
use std::collections::BTreeMap;
use std::fmt;

/// From which stress on pods should leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationLaw {
    threshold: Percent,
}

/// The default threshold.
pub const THRESHOLD: Percent = Percent::from_int(70);

/// A threshold that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdOutOfRange;

impl fmt::Display for ThresholdOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stress threshold for rescheduling must lie between 0 and 100")
    }
}

impl std::error::Error for ThresholdOutOfRange {}

impl MigrationLaw {
    /// Recommends above `threshold`, and not at it.
    ///
    /// # Errors
    /// When the threshold is not between 0 and 100.
    pub fn new(threshold: Percent) -> Result<Self, ThresholdOutOfRange> {
        let in_range = (Percent::ZERO..=Percent::HUNDRED).contains(&threshold);
        if in_range { Ok(Self { threshold }) } else { Err(ThresholdOutOfRange) }
    }

    /// Why pods should leave a node. Of two stresses the larger is named, cooling where they are equal.
    #[must_use]
    pub fn reason(&self, node: &NodeConditions<'_>) -> Option<MigrationReason> {
        let exceeds = |stress: Option<Stress>| {
            let stress = stress.filter(|stress| stress.grounds != Grounds::WorstCase)?;
            (stress.percent > self.threshold).then_some(stress.percent)
        };
        match (exceeds(node.cooling), exceeds(node.psu)) {
            (Some(cooling), Some(psu)) if psu > cooling => Some(MigrationReason::PsuStress(psu)),
            (Some(cooling), _) => Some(MigrationReason::CoolingStress(cooling)),
            (None, Some(psu)) => Some(MigrationReason::PsuStress(psu)),
            (None, None) => (node.class == SchedulableClass::Draining).then_some(MigrationReason::Draining),
        }
    }
}

/// A stress score and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stress {
    /// How much, 0 to 100.
    pub percent: Percent,
    /// What that rests on.
    pub grounds: Grounds,
}

/// A node as its twin shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConditions<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it offers.
    pub class: SchedulableClass,
    /// How much of its cooling is in use.
    pub cooling: Option<Stress>,
    /// How much of its rack's power is in use.
    pub psu: Option<Stress>,
}

impl<'a> NodeConditions<'a> {
    /// The node that `twin` is the twin of.
    #[must_use]
    pub fn of(name: &'a str, twin: &Twin) -> Self {
        Self {
            name,
            class: twin.class,
            cooling: twin.cooling.map(|stress| Stress { percent: stress.percent, grounds: stress.grounds }),
            psu: twin.psu.map(|stress| Stress { percent: stress.percent, grounds: stress.grounds }),
        }
    }
}

/// A pod that runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningPod<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Where it runs.
    pub node: &'a str,
    /// What it says of itself.
    pub hints: Hints,
    /// What its scheduling constraints and its annotation ask of the power profiles.
    pub demand: DemandClass,
}

/// Why a pod may not be asked to leave, whatever the state of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// It has not opted in.
    NotReschedulable,
    /// Performance-class pods are never rescheduled; one that can run on performance nodes only is of that class.
    PerformanceClass,
    /// It names a class that is none; it may have meant performance.
    UnclearClass,
}

impl RunningPod<'_> {
    /// Whether it may be asked to leave.
    ///
    /// # Errors
    /// Why not.
    pub fn may_leave(&self) -> Result<(), Stays> {
        if self.demand == DemandClass::PerformanceOnly {
            return Err(Stays::PerformanceClass);
        }
        match self.hints.class.class {
            WorkloadClass::Performance => Err(Stays::PerformanceClass),
            WorkloadClass::Standard if !self.hints.class.recognised => Err(Stays::UnclearClass),
            WorkloadClass::Standard if !self.hints.reschedulable => Err(Stays::NotReschedulable),
            WorkloadClass::Standard => Ok(()),
        }
    }
}

/// Why a pod should leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationReason {
    /// The node's cooling is stressed.
    CoolingStress(Percent),
    /// The rack's power is.
    PsuStress(Percent),
    /// The node is to become eco.
    Draining,
}

impl MigrationReason {
    /// The word in objects and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CoolingStress(_) => "cooling_stress",
            Self::PsuStress(_) => "psu_stress",
            Self::Draining => "draining",
        }
    }
}

/// One entry of the twin's recommendations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recommendation {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Why it should leave.
    pub reason: MigrationReason,
}

/// The recommendations of every node, in the order of the pods' names. A node without any has an empty list, which is
/// to be written as such: it clears what was recommended before.
#[must_use]
pub fn recommend(
    law: &MigrationLaw,
    nodes: &[NodeConditions<'_>],
    pods: &[RunningPod<'_>],
) -> BTreeMap<String, Vec<Recommendation>> {
    let reasons: BTreeMap<_, _> = nodes.iter().map(|node| (node.name, law.reason(node))).collect();
    let mut all: BTreeMap<_, _> = nodes.iter().map(|node| (node.name.to_owned(), Vec::new())).collect();
    for pod in pods.iter().filter(|pod| pod.may_leave().is_ok()) {
        let reason = reasons.get(pod.node).copied().flatten();
        if let (Some(reason), Some(list)) = (reason, all.get_mut(pod.node)) {
            let (namespace, name) = (pod.namespace.to_owned(), pod.name.to_owned());
            list.push(Recommendation { namespace, name, reason });
        }
    }
    for list in all.values_mut() {
        list.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    }
    all
}

#[cfg(test)]
mod tests;
