//! How many pods of which class there are, by the nodes that they are bound to: all that a plan asks of tens of thousands
//! of pods. A pod is counted and taken back alone, so that whoever keeps the counts need not look at the others.

use super::{DemandClass, PodRow};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The demand of the active pods in managed scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileDemand {
    /// P, the queue pressure: pods that need performance supply, running or waiting for it.
    pub performance_only: u32,
    /// Pods that need eco supply.
    pub eco_only: u32,
    /// All others.
    pub general: u32,
    /// Pods whose annotation is no class; each is also counted in its class.
    pub unrecognised: u32,
}

impl ProfileDemand {
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

/// What pods ask of their node while they run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// Thousandths of a processor.
    pub cpu_milli: u64,
    /// Whole graphics processors.
    pub gpus: u64,
}

impl Asked {
    const fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            gpus: self.gpus.saturating_add(other.gpus),
        }
    }

    const fn less(self, part: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(part.cpu_milli),
            gpus: self.gpus.saturating_sub(part.gpus),
        }
    }
}

/// As what a pod counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<'a> {
    /// The node that it is bound to, if it is.
    pub node: Option<&'a str>,
    /// Its class; nothing outside managed scope.
    pub class: Option<DemandClass>,
    /// Its annotation is a text that is no class.
    pub unrecognised: bool,
    /// What it asks of its node.
    pub asked: Asked,
}

impl Counted<'_> {
    fn demand(&self) -> ProfileDemand {
        let of = |class| u32::from(self.class == Some(class));
        ProfileDemand {
            performance_only: of(DemandClass::PerformanceOnly),
            eco_only: of(DemandClass::EcoOnly),
            general: of(DemandClass::General),
            unrecognised: u32::from(self.unrecognised),
        }
    }
}

/// The pods that count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    waiting: ProfileDemand,
    bound: BTreeMap<Arc<str>, Bound>,
}

/// The pods of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bound {
    demand: ProfileDemand,
    asked: Asked,
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
        let counts = |bound: Bound| Bound {
            demand: bound.demand.plus(pod.demand()),
            asked: bound.asked.plus(pod.asked),
        };
        match self.bound.get_mut(node) {
            Some(bound) => *bound = counts(*bound),
            None => drop(self.bound.insert(node.into(), counts(Bound::default()))),
        }
    }

    /// Takes back a pod that was counted.
    pub fn take_back(&mut self, pod: &Counted<'_>) {
        let Some(node) = pod.node else {
            self.waiting = self.waiting.less(pod.demand());
            return;
        };
        if let Some(Bound { demand, asked }) = self.bound.get_mut(node) {
            *demand = demand.less(pod.demand());
            *asked = asked.less(pod.asked);
            if (*demand, *asked) == (ProfileDemand::default(), Asked::default()) {
                self.bound.remove(node);
            }
        }
    }

    /// The demand of the pods that no node has yet.
    #[must_use]
    pub const fn waiting(&self) -> ProfileDemand {
        self.waiting
    }

    /// The demand of the pods on each node that has any, by the nodes' names.
    pub fn bound(&self) -> impl Iterator<Item = (&str, ProfileDemand)> {
        self.bound.iter().map(|(node, bound)| (&**node, bound.demand))
    }

    /// What the pods on each node ask of it, those outside managed scope too, by the nodes' names.
    pub fn asked(&self) -> impl Iterator<Item = (&str, Asked)> {
        self.bound.iter().map(|(node, bound)| (&**node, bound.asked))
    }
}
