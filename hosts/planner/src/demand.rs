//! Classification input: which power profiles pods need, and how many pods need each.
//!
//! Demand is derived from the scheduling constraints on the power-profile label, by asking which of the two profiles
//! could satisfy them:
//!
//! - *performance-only*: the pod excludes eco in its required scheduling constraints, and performance satisfies them;
//! - *eco-only*: the pod can run only on eco;
//! - *general* (implicit unconstrained): no explicit power-profile constraint, or both profiles are allowed. So is a
//!   pod that neither profile satisfies, unless it explicitly excludes eco: no profile plan can help it.
//!
//! The annotation `joulie.io/workload-class` requires performance on its own, whatever the constraints are. It cannot
//! lift a constraint, because the scheduler would still apply it.

mod bound;
mod counts;

pub use bound::{DemandBound, PastBound};
pub use counts::{Asked, Counted, DeviceWork, Intensities, PodCounts, ProfileDemand};

use crate::profile::Profile;
use joulie_core::placement::class::{Classified, WorkloadClass};
use std::collections::BTreeSet;

/// The default label key of the power profile.
pub const POWER_PROFILE_LABEL: &str = "joulie.io/power-profile";

/// The facts that are kept of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRow<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// The node that it is bound to, if any.
    pub node: Option<&'a str>,
    /// Its phase.
    pub phase: PodPhase,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// Its constraints on the power profile.
    pub asks: PodConstraints,
    /// Its resource requests.
    pub asked: Asked,
}

/// A pod's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    /// Waiting for a node, or for its images on one.
    Pending,
    /// Running.
    Running,
    /// Done.
    Succeeded,
    /// Done, with an error.
    Failed,
    /// The phase is missing or not recognised: the pod may be running.
    Unknown,
}

impl PodPhase {
    /// Reads `status.phase`.
    #[must_use]
    pub fn read(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }
}

impl<'a> PodRow<'a> {
    /// It has neither ended nor is it being deleted.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        match self.phase {
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => !self.terminating,
            PodPhase::Succeeded | PodPhase::Failed => false,
        }
    }

    /// What the pod counts as; `None` for one that is not active. A pod in a namespace outside managed scope is no
    /// demand, but loads its node like any other.
    #[must_use]
    pub fn counted(&self, ignored: &BTreeSet<String>) -> Option<Counted<'a>> {
        let managed = ignored.is_empty() || !ignored.contains(self.namespace);
        let counts = self.is_active() && (managed || self.node.is_some());
        counts.then(|| {
            let annotation = managed.then(|| self.asks.annotation());
            Counted {
                node: self.node,
                class: annotation.map(|annotation| self.asks.class_with(annotation.class)),
                unrecognised: annotation.is_some_and(|annotation| !annotation.recognised),
                asked: self.asked,
                intensities: Intensities::default(),
            }
        })
    }
}

/// A pod's requirements: the annotation's text, and its required constraints on the power-profile label alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodConstraints {
    /// The text of the annotation `joulie.io/workload-class`.
    pub workload_class: Option<String>,
    /// The value that `nodeSelector` requires of the label.
    pub node_selector: Option<String>,
    /// The terms of the required node affinity, of which one must hold; `None` without required affinity.
    pub affinity: Option<Vec<AffinityTerm>>,
}

/// The expressions on the power-profile label in one term: all must hold. A term without expressions holds for both
/// profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AffinityTerm {
    /// The expressions.
    pub expressions: Vec<Expression>,
}

/// A required match expression on the power-profile label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expression {
    /// How the values are compared.
    pub operator: Operator,
    /// The values.
    pub values: Vec<String>,
}

/// The operators of node affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// A whole number above the value.
    Gt,
    /// A whole number below the value.
    Lt,
}

impl Operator {
    /// Reads the operator of a match expression.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        Some(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            _ => return None,
        })
    }
}

/// A term of required node affinity before it is reduced to the label.
#[derive(Clone, Debug, Default)]
pub struct RawTerm<'a> {
    /// Key, operator and values of every match expression.
    pub expressions: Vec<(&'a str, Operator, Vec<String>)>,
    /// The term also has match fields.
    pub has_fields: bool,
}

impl PodConstraints {
    /// Keeps the parts that concern the label `key`: the annotation, the selector's value and the expressions on that
    /// key. A term with neither expressions nor fields matches no node and is dropped, as Kubernetes defines.
    #[must_use]
    pub fn trim<'a>(
        key: &str,
        workload_class: Option<&str>,
        node_selector: impl IntoIterator<Item = (&'a str, &'a str)>,
        affinity: Option<Vec<RawTerm<'a>>>,
    ) -> Self {
        let node_selector = node_selector.into_iter().find(|&(of, _)| of == key);
        let matches_something = |term: &RawTerm<'_>| term.has_fields || !term.expressions.is_empty();
        let on_key = |term: RawTerm<'_>| AffinityTerm {
            expressions: term
                .expressions
                .into_iter()
                .filter(|(of, ..)| *of == key)
                .map(|(_, operator, values)| Expression { operator, values })
                .collect(),
        };
        Self {
            workload_class: workload_class.map(str::to_owned),
            node_selector: node_selector.map(|(_, value)| value.to_owned()),
            affinity: affinity.map(|terms| terms.into_iter().filter(matches_something).map(on_key).collect()),
        }
    }

    /// The pod's class.
    #[must_use]
    pub fn class(&self) -> DemandClass {
        self.class_with(self.annotation().class)
    }

    /// What its annotation says.
    fn annotation(&self) -> Classified {
        WorkloadClass::read(self.workload_class.as_deref())
    }

    /// The class of a pod whose annotation says this.
    fn class_with(&self, annotation: WorkloadClass) -> DemandClass {
        if annotation == WorkloadClass::Performance {
            return DemandClass::PerformanceOnly;
        }
        if self.node_selector.is_none() && self.affinity.is_none() {
            return DemandClass::General;
        }
        let selector = self.node_selector.as_deref().map(str::trim);
        match (self.allows(Profile::Performance, selector), self.allows(Profile::Eco, selector)) {
            (true, true) => DemandClass::General,
            (true, false) => DemandClass::PerformanceOnly,
            (false, true) => DemandClass::EcoOnly,
            // The constraints contradict each other. A pod that explicitly names performance or excludes eco is still
            // performance-only.
            (false, false)
                if selector == Some(Profile::Performance.as_str()) || self.names_eco_as_excluded() =>
            {
                DemandClass::PerformanceOnly
            }
            (false, false) => DemandClass::General,
        }
    }

    /// Whether its annotation is not a known class.
    #[must_use]
    pub fn is_unrecognised(&self) -> bool {
        !self.annotation().recognised
    }

    fn names_eco_as_excluded(&self) -> bool {
        let mut expressions = self.affinity.iter().flatten().flat_map(|term| &term.expressions);
        expressions
            .any(|expression| expression.operator == Operator::NotIn && !expression.holds(Profile::Eco))
    }

    fn allows(&self, profile: Profile, selector: Option<&str>) -> bool {
        selector.is_none_or(|value| value == profile.as_str())
            && self.affinity.as_ref().is_none_or(|terms| {
                terms.iter().any(|term| term.expressions.iter().all(|expression| expression.holds(profile)))
            })
    }
}

impl Expression {
    /// Whether it holds on a node that carries this profile as its label.
    fn holds(&self, profile: Profile) -> bool {
        let listed = || self.values.iter().any(|value| value.trim() == profile.as_str());
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => true,
            // The label exists, and neither profile's text is a whole number.
            Operator::DoesNotExist | Operator::Gt | Operator::Lt => false,
        }
    }
}

/// A pod's demand on the power profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DemandClass {
    /// It can run on performance nodes only.
    PerformanceOnly,
    /// It can run on eco nodes only.
    EcoOnly,
    /// It can run on both, or no profile plan can help it.
    General,
}

#[cfg(test)]
mod tests;
