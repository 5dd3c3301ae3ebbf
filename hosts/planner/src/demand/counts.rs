//! How many pods of which class there are, by the nodes that they are bound to: all that a plan asks of tens of thousands
//! of pods. A pod is counted and taken back alone, so that whoever keeps the counts need not look at the others.

use super::{Class, PodRow};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The demand of the active pods in managed scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// P, the queue pressure: pods that need performance supply, running or waiting for it.
    pub performance_only: u32,
    /// Pods that need eco supply.
    pub eco_only: u32,
    /// All others.
    pub general: u32,
    /// Pods whose annotation is no class; each is also counted in its class.
    pub unrecognised: u32,
}

impl Demand {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            performance_only: self.performance_only.saturating_add(other.performance_only),
            eco_only: self.eco_only.saturating_add(other.eco_only),
            general: self.general.saturating_add(other.general),
            unrecognised: self.unrecognised.saturating_add(other.unrecognised),
        }
    }

    /// This without a part of it.
    const fn less(self, part: Self) -> Self {
        Self {
            performance_only: self.performance_only.saturating_sub(part.performance_only),
            eco_only: self.eco_only.saturating_sub(part.eco_only),
            general: self.general.saturating_sub(part.general),
            unrecognised: self.unrecognised.saturating_sub(part.unrecognised),
        }
    }
}

/// As what a pod counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<'a> {
    /// The node that it is bound to, if it is.
    pub node: Option<&'a str>,
    /// Its class.
    pub class: Class,
    /// Its annotation is a text that is no class.
    pub unrecognised: bool,
}

impl Counted<'_> {
    fn demand(&self) -> Demand {
        let of = |class| u32::from(self.class == class);
        Demand {
            performance_only: of(Class::PerformanceOnly),
            eco_only: of(Class::EcoOnly),
            general: of(Class::General),
            unrecognised: u32::from(self.unrecognised),
        }
    }
}

/// The pods that count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    waiting: Demand,
    bound: BTreeMap<Arc<str>, Demand>,
}

impl PodCounts {
    /// Of these pods, those in the ignored namespaces left out.
    #[must_use]
    pub fn of<'a>(pods: impl IntoIterator<Item = &'a PodRow>, ignored: &BTreeSet<String>) -> Self {
        let mut counts = Self::default();
        pods.into_iter().filter_map(|pod| pod.counted(ignored)).for_each(|pod| counts.count(&pod));
        counts
    }

    /// Counts a pod.
    pub fn count(&mut self, pod: &Counted<'_>) {
        let Some(node) = pod.node else {
            self.waiting = self.waiting.plus(pod.demand());
            return;
        };
        match self.bound.get_mut(node) {
            Some(demand) => *demand = demand.plus(pod.demand()),
            None => drop(self.bound.insert(node.into(), pod.demand())),
        }
    }

    /// Takes back a pod that was counted.
    pub fn take_back(&mut self, pod: &Counted<'_>) {
        let Some(node) = pod.node else {
            self.waiting = self.waiting.less(pod.demand());
            return;
        };
        if let Some(demand) = self.bound.get_mut(node) {
            *demand = demand.less(pod.demand());
            if *demand == Demand::default() {
                self.bound.remove(node);
            }
        }
    }

    /// The demand of the pods that no node has yet.
    #[must_use]
    pub const fn waiting(&self) -> Demand {
        self.waiting
    }

    /// The demand of the pods on each node that has any, by the nodes' names.
    pub fn bound(&self) -> impl Iterator<Item = (&str, Demand)> {
        self.bound.iter().map(|(node, &demand)| (&**node, demand))
    }
}
