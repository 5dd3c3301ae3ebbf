//! How many pods of each class there are, by the nodes they are bound to: a plan needs no more of tens of
//! thousands of pods. Each pod is counted and removed alone, so that a change does not require a pass over the
//! others.

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
    /// Pods whose annotation is not a known class; each is also counted in its class.
    pub unrecognised: u32,
}

impl ProfileDemand {
    /// The sum of the two.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            performance_only: self.performance_only.saturating_add(other.performance_only),
            eco_only: self.eco_only.saturating_add(other.eco_only),
            general: self.general.saturating_add(other.general),
            unrecognised: self.unrecognised.saturating_add(other.unrecognised),
        }
    }

    /// The difference of the two.
    const fn less(self, part: Self) -> Self {
        Self {
            performance_only: self.performance_only.saturating_sub(part.performance_only),
            eco_only: self.eco_only.saturating_sub(part.eco_only),
            general: self.general.saturating_sub(part.general),
            unrecognised: self.unrecognised.saturating_sub(part.unrecognised),
        }
    }
}

/// The resource requests of pods on their node while they run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// Thousandths of a processor.
    pub cpu_milli: u64,
    /// Whole graphics processors.
    pub gpus: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The pods themselves.
    pub pods: u64,
}

impl Asked {
    const fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            gpus: self.gpus.saturating_add(other.gpus),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            pods: self.pods.saturating_add(other.pods),
        }
    }

    const fn less(self, part: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(part.cpu_milli),
            gpus: self.gpus.saturating_sub(part.gpus),
            memory_bytes: self.memory_bytes.saturating_sub(part.memory_bytes),
            pods: self.pods.saturating_sub(part.pods),
        }
    }
}

/// What a pod counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<'a> {
    /// The node that it is bound to, if any.
    pub node: Option<&'a str>,
    /// Its class; `None` outside managed scope.
    pub class: Option<DemandClass>,
    /// Its annotation is not a known class.
    pub unrecognised: bool,
    /// Its resource requests.
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

/// The counts of the pods.
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
    /// The counts of these pods, without those in the ignored namespaces.
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

    /// Removes a pod that was counted.
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

    /// The demand of the pods that are not bound to a node.
    #[must_use]
    pub const fn waiting(&self) -> ProfileDemand {
        self.waiting
    }

    /// The demand of the pods on each node that has any, by node name.
    pub fn bound(&self) -> impl Iterator<Item = (&str, ProfileDemand)> {
        self.bound.iter().map(|(node, bound)| (&**node, bound.demand))
    }

    /// The resource requests of the pods on each node, those outside managed scope too, by node name.
    pub fn asked(&self) -> impl Iterator<Item = (&str, Asked)> {
        self.bound.iter().map(|(node, bound)| (&**node, bound.asked))
    }
}
