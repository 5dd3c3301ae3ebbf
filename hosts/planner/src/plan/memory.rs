//! What one pass tells the next.
//!
//! A memory belongs to one term of leadership: whoever loses the lease drops it, and whoever gains it starts from what
//! labels and objects say.

use super::{NodePlan, Release};
use crate::guard::State;
use crate::hardware::Gpus;
use power_units::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is remembered of every node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory(BTreeMap<Arc<str>, NodeMemory>);

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
    pub(super) state: State,
    /// Since when it is a performance node, or was first seen as one.
    pub(super) performance_since: Option<Stamp>,
    /// The GPUs that it had.
    pub(super) gpus: Option<Gpus>,
}

impl NodeMemory {
    pub(super) const fn as_planned(&self) -> Option<&Planned> {
        match self {
            Self::Planned(planned) => Some(planned),
            Self::Releasing { .. } => None,
        }
    }
}

impl Memory {
    /// A memory of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Remembers a planned node whose actions were all carried out.
    pub fn commit(&mut self, node: &NodePlan) {
        if let Some(remember) = &node.remember {
            self.0.insert(node.node.clone(), remember.clone());
        }
    }

    /// Remembers, or forgets, a node whose release was carried out as far as it went.
    pub fn commit_release(&mut self, release: &Release) {
        match &release.remember {
            Some(remember) => self.0.insert(release.node.clone(), remember.clone()),
            None => self.0.remove(&*release.node),
        };
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &NodeMemory)> {
        self.0.iter().map(|(node, memory)| (&**node, memory))
    }
}
