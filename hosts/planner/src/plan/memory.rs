//! The state that is kept between passes.
//!
//! A memory belongs to one term of leadership: a process that loses the lease drops it, and a new leader starts from
//! the labels and objects.

use super::{NodeDecision, Release};
use crate::budget;
use crate::guard::TransitionState;
use power_units::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The memory: the timers of the guard and the budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanMemory {
    nodes: BTreeMap<Arc<str>, NodeMemory>,
    pub(crate) budget: budget::BudgetMemory,
    /// The same for what is only computed for a report.
    pub(crate) trial: budget::BudgetMemory,
}

/// The memory of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeMemory {
    /// It was planned.
    Planned(Planned),
    /// It is being released.
    Releasing {
        /// Since when.
        since: Stamp,
    },
}

/// The memory of a planned node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its state between its profiles.
    pub(super) state: TransitionState,
    /// Since when it has been a performance node, or was first known as one.
    pub(super) performance_since: Option<Stamp>,
    /// Since when performance pods have kept it from becoming an eco node, or were first known to.
    pub(super) draining_since: Option<Stamp>,
}

impl NodeMemory {
    pub(super) const fn as_planned(&self) -> Option<&Planned> {
        match self {
            Self::Planned(planned) => Some(planned),
            Self::Releasing { .. } => None,
        }
    }
}

impl PlanMemory {
    /// Stores a planned node's memory after all its differences were written.
    pub fn commit(&mut self, node: &NodeDecision) {
        if let Some(remember) = &node.remember {
            self.nodes.insert(node.node.clone(), remember.clone());
        }
    }

    /// Stores or removes a node's memory after its release was carried out, in full or in part.
    pub fn commit_release(&mut self, release: &Release) {
        match &release.remember {
            Some(remember) => self.nodes.insert(release.node.clone(), remember.clone()),
            None => self.nodes.remove(&*release.node),
        };
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (&str, &NodeMemory)> {
        self.nodes.iter().map(|(node, memory)| (&**node, memory))
    }
}
