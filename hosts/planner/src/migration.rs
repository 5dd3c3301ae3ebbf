//! Recommendations to reschedule: which pods should leave a node, and why.
//!
//! "Scheduling decisions are made once at pod creation. As cluster conditions change, an initially good placement can
//! become suboptimal." A pod is recommended only with the annotation `joulie.io/reschedulable: "true"`, and only from
//! a node whose cooling or PSU stress exceeds the threshold, or that is draining. It is never recommended when it is
//! of class performance (by its annotation or because its constraints exclude eco), or when it names an unknown
//! class. A stress that is only the worst case is no reason, because it was not observed. A recommendation moves no
//! pod; [`eviction`] decides which pods may be moved, and [`Destinations`] names the nodes that can accept them.
//!
//! A node that is *marked* with a stress keeps the mark until the stress is known to have eased. So a stress near the
//! threshold does not change the recommendations in every pass, and a node does not become attractive because its
//! meter is silent.

mod destinations;
pub mod eviction;

pub use self::destinations::{Destinations, RELIEF, Site, WantedPlace};

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

/// How far a stress must fall below the threshold to be no reason any more.
pub const EASED: Percent = Percent::from_int(5);

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

    /// The threshold.
    #[must_use]
    pub const fn threshold(&self) -> Percent {
        self.threshold
    }

    /// Why pods should leave a node. The larger of two stresses is named, or cooling if they are equal.
    #[must_use]
    pub fn reason(&self, node: &NodeConditions<'_>) -> Option<MigrationReason> {
        self.reason_of_marked(node, None)
    }

    /// Why pods should leave a node that may be marked with a stress: until its stress is below the threshold by
    /// [`EASED`], it is still a reason. The marked stress is named unless the other one is larger by more than that.
    #[must_use]
    pub fn reason_of_marked(
        &self,
        node: &NodeConditions<'_>,
        mark: Option<StressKind>,
    ) -> Option<MigrationReason> {
        let exceeds = |stress: Option<Stress>| {
            let stress = stress.filter(|stress| stress.grounds != Grounds::WorstCase)?;
            let over = match mark {
                None => stress.percent > self.threshold,
                Some(_) => stress.percent >= self.threshold - EASED,
            };
            over.then_some(stress.percent)
        };
        match (exceeds(node.cooling), exceeds(node.psu)) {
            (Some(cooling), Some(psu)) => {
                let is_psu = match mark {
                    None => psu > cooling,
                    Some(StressKind::Cooling) => psu > cooling + EASED,
                    Some(StressKind::Psu) => cooling <= psu + EASED,
                };
                let reason = if is_psu { StressKind::Psu.at(psu) } else { StressKind::Cooling.at(cooling) };
                Some(reason)
            }
            (Some(cooling), None) => Some(MigrationReason::CoolingStress(cooling)),
            (None, Some(psu)) => Some(MigrationReason::PsuStress(psu)),
            (None, None) => (node.class == SchedulableClass::Draining).then_some(MigrationReason::Draining),
        }
    }

    /// The mark of a node after this moment. A node gets one with its first recommendation for a stress, which is
    /// what `recommends` says. A marked stress that nobody observes any more is not known to have eased.
    #[must_use]
    pub fn mark(
        &self,
        node: &NodeConditions<'_>,
        mark: Option<StressKind>,
        recommends: bool,
    ) -> Option<StressKind> {
        let stays = mark.is_some() || recommends;
        if let Some(kind) = self.reason_of_marked(node, mark).and_then(MigrationReason::stress) {
            return Some(kind).filter(|_| stays);
        }
        let kind = mark?;
        let stress = match kind {
            StressKind::Cooling => node.cooling,
            StressKind::Psu => node.psu,
        };
        stress.is_none_or(|stress| stress.grounds == Grounds::WorstCase).then_some(kind)
    }

    /// Whether a node accepts pods and is better off than the one that they leave for `reason`: its stress must be
    /// below the threshold by `relief`.
    #[must_use]
    pub fn is_destination(&self, site: &Site<'_>, reason: MigrationReason, relief: Percent) -> bool {
        let most = self.threshold - relief;
        let low = |stress: Option<Stress>| stress.map(|stress| stress.percent <= most);
        // The stress that the pod leaves must be known to be lower there; the other stress must at least not be known
        // to be too high.
        let (cooling, psu) = (low(site.node.cooling), low(site.node.psu));
        let (fled, other) = match reason {
            MigrationReason::CoolingStress(_) | MigrationReason::Draining => (cooling, psu),
            MigrationReason::PsuStress(_) => (psu, cooling),
        };
        let takes_pods = site.open && site.node.class != SchedulableClass::Draining;
        takes_pods && fled == Some(true) && other != Some(false)
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
    /// A node of which nothing is known.
    #[must_use]
    pub const fn unknown(name: &'a str) -> Self {
        Self { name, class: SchedulableClass::Unknown, cooling: None, psu: None }
    }

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

    /// Whether it may be moved off a node whose drain is overdue, also if it is of class performance.
    ///
    /// # Errors
    /// The reason if not.
    pub const fn may_end_drain(&self) -> Result<(), Stays> {
        match (self.hints.class.recognised, self.hints.reschedulable) {
            (false, _) => Err(Stays::UnclearClass),
            (true, false) => Err(Stays::NotReschedulable),
            (true, true) => Ok(()),
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

/// The two kinds of stress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StressKind {
    /// That of the cooling.
    Cooling,
    /// That of the rack's power supply.
    Psu,
}

impl StressKind {
    /// The reason that this stress is.
    #[must_use]
    pub const fn at(self, percent: Percent) -> MigrationReason {
        match self {
            Self::Cooling => MigrationReason::CoolingStress(percent),
            Self::Psu => MigrationReason::PsuStress(percent),
        }
    }
}

impl MigrationReason {
    /// The stress that it is, if it is one.
    #[must_use]
    pub const fn stress(self) -> Option<StressKind> {
        match self {
            Self::CoolingStress(_) => Some(StressKind::Cooling),
            Self::PsuStress(_) => Some(StressKind::Psu),
            Self::Draining => None,
        }
    }

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
