//! What one pass tells the next.
//!
//! A memory belongs to one term of leadership: whoever loses the lease drops it, and whoever gains it starts from what
//! labels and objects say.

use super::{NodeDecision, Release};
use crate::budget;
use crate::guard::TransitionState;
use power_units::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is remembered: the guard's and the budget's timers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanMemory {
    nodes: BTreeMap<Arc<str>, NodeMemory>,
    pub(crate) budget: budget::BudgetMemory,
}

/// What is remembered of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeMemory {
    /// It was planned.
    Planned(Planned),
    /// It is being released.
    Releasing {
        /// From when on.
        since: Stamp,
    },
}

/// What is remembered of a planned node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Where it was between its profiles.
    pub(super) state: TransitionState,
    /// Since when it is a performance node, or was first seen as one.
    pub(super) performance_since: Option<Stamp>,
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
    /// Remembers a planned node of which all that differed was written.
    pub fn commit(&mut self, node: &NodeDecision) {
        if let Some(remember) = &node.remember {
            self.nodes.insert(node.node.clone(), remember.clone());
        }
    }

    /// Remembers, or forgets, a node whose release was carried out as far as it went.
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
