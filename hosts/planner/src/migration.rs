//! Recommendations to reschedule: which pods should leave a node, and why.
//!
//! "Scheduling decisions are made once at pod creation. As cluster conditions change, an initially good placement can
//! become suboptimal." A pod is recommended only with the annotation `joulie.io/reschedulable: "true"`, and only from
//! a node whose cooling or PSU stress exceeds the threshold, or that is draining. It is never recommended when it is
//! of class performance (by its annotation or because its constraints exclude eco), or when it names an unknown
//! class. A stress that is only the worst case is no reason, because it was not observed. A recommendation moves no
//! pod; [`eviction`] decides which pods may be moved.

pub mod eviction;

use crate::classify::Hints;
use crate::demand::DemandClass;
use crate::power::Grounds;
use crate::twin::Twin;
use joulie_core::placement::class::{SchedulableClass, WorkloadClass};
use power_units::Percent;
use std::collections::BTreeMap;
use std::fmt;

/// The stress above which pods should leave a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationLaw {
    threshold: Percent,
}

/// The default threshold.
pub const THRESHOLD: Percent = Percent::from_int(70);

/// A threshold outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdOutOfRange;

impl fmt::Display for ThresholdOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stress threshold for rescheduling must lie between 0 and 100")
    }
}

impl std::error::Error for ThresholdOutOfRange {}

impl MigrationLaw {
    /// Recommends above `threshold`, but not at it.
    ///
    /// # Errors
    /// When the threshold is not between 0 and 100.
    pub fn new(threshold: Percent) -> Result<Self, ThresholdOutOfRange> {
        let in_range = (Percent::ZERO..=Percent::HUNDRED).contains(&threshold);
        if in_range { Ok(Self { threshold }) } else { Err(ThresholdOutOfRange) }
    }

    /// Why pods should leave a node. The larger of two stresses is named, or cooling if they are equal.
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

/// A stress score and its grounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stress {
    /// The stress, 0 to 100.
    pub percent: Percent,
    /// How it was determined.
    pub grounds: Grounds,
}

/// A node's conditions, from its twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConditions<'a> {
    /// Its name.
    pub name: &'a str,
    /// The class that it offers.
    pub class: SchedulableClass,
    /// The percentage of its cooling in use.
    pub cooling: Option<Stress>,
    /// The percentage of its rack's power in use.
    pub psu: Option<Stress>,
}

impl<'a> NodeConditions<'a> {
    /// The conditions that a node's twin shows.
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
    /// The node it runs on.
    pub node: &'a str,
    /// Its annotations.
    pub hints: Hints,
    /// Its demand on the power profiles, by its scheduling constraints and its annotation.
    pub demand: DemandClass,
}

/// Why a pod must not be moved, whatever the state of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// It has not opted in.
    NotReschedulable,
    /// Performance-class pods are never rescheduled; a pod that can run on performance nodes only is of that class.
    PerformanceClass,
    /// It names an unknown class, which may have meant performance.
    UnclearClass,
}

impl RunningPod<'_> {
    /// Whether it may be moved.
    ///
    /// # Errors
    /// The reason if not.
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
    /// The rack's power supply is stressed.
    PsuStress(Percent),
    /// The node is changing to eco.
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

/// The recommendations of every node, sorted by the pods' names. A node without any has an empty list, which must be
/// written: it clears the former recommendations.
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
