//! How many pods of each class there are, by the nodes they are bound to: a plan needs no more of tens of
//! thousands of pods. Each pod is counted and removed alone, so that a change does not require a pass over the
//! others.

use super::DemandClass;
use crate::classify::{CPU_GRADES, GPU_GRADES, Intensity};
use crate::power::estimate::upper_end;
use crate::slicing::GpuIntensities;
use std::collections::BTreeMap;
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
    /// Performance pods that are known to work their devices hard; each is also counted in its class.
    pub hard: u32,
}

impl ProfileDemand {
    /// The pressure on performance supply. A pod that is known to work hard counts twice, and no pod counts less than
    /// once: a profile that is not trusted changes nothing, and none takes supply from a performance pod.
    #[must_use]
    pub const fn pressure(self) -> u32 {
        self.performance_only.saturating_add(self.hard)
    }

    /// The sum of the two.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            performance_only: self.performance_only.saturating_add(other.performance_only),
            eco_only: self.eco_only.saturating_add(other.eco_only),
            general: self.general.saturating_add(other.general),
            unrecognised: self.unrecognised.saturating_add(other.unrecognised),
            hard: self.hard.saturating_add(other.hard),
        }
    }

    /// The difference of the two.
    const fn less(self, part: Self) -> Self {
        Self {
            performance_only: self.performance_only.saturating_sub(part.performance_only),
            eco_only: self.eco_only.saturating_sub(part.eco_only),
            general: self.general.saturating_sub(part.general),
            unrecognised: self.unrecognised.saturating_sub(part.unrecognised),
            hard: self.hard.saturating_sub(part.hard),
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

/// How much pods are known to work the processors and the graphics processors that they request. What is not known
/// counts in full, so that it never makes a node look emptier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceWork {
    /// Thousandths of a processor.
    pub cpu_milli: u64,
    /// Thousandths of a graphics processor.
    pub gpu_milli: u64,
}

impl DeviceWork {
    /// Of a pod with these requests, whose workload has these intensities.
    #[must_use]
    pub fn of(asked: Asked, by: Intensities) -> Self {
        // A division of 128 bits is slow, and no request of a real pod needs it.
        let part = |of: u64, percent: u32| match of.checked_mul(u64::from(percent)) {
            Some(product) => product.div_ceil(100),
            None => {
                let wide = (u128::from(of) * u128::from(percent)).div_ceil(100);
                u64::try_from(wide).unwrap_or(u64::MAX)
            }
        };
        Self {
            cpu_milli: part(asked.cpu_milli, upper_end(by.cpu, &CPU_GRADES)),
            gpu_milli: part(asked.gpus.saturating_mul(1000), upper_end(by.gpu, &GPU_GRADES)),
        }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            gpu_milli: self.gpu_milli.saturating_add(other.gpu_milli),
        }
    }

    const fn less(self, part: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(part.cpu_milli),
            gpu_milli: self.gpu_milli.saturating_sub(part.gpu_milli),
        }
    }
}

/// How hard a workload works its devices, as far as its trusted profile says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Intensities {
    /// Processors.
    pub cpu: Option<Intensity>,
    /// Graphics processors.
    pub gpu: Option<Intensity>,
}

impl Intensities {
    fn is_hard(self) -> bool {
        [self.cpu, self.gpu].contains(&Some(Intensity::High))
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
    /// How hard it works.
    pub intensities: Intensities,
}

impl Counted<'_> {
    /// The same pod, whose workload works like this.
    #[must_use]
    pub fn working(self, intensities: Intensities) -> Self {
        Self { intensities, ..self }
    }

    /// The same pod, which counts as a standard one where it asks for performance.
    #[must_use]
    pub fn past_bound(self) -> Self {
        let class = match self.class {
            Some(DemandClass::PerformanceOnly) => Some(DemandClass::General),
            other => other,
        };
        Self { class, ..self }
    }

    fn gpus(&self) -> GpuIntensities {
        match self.asked.gpus {
            0 => GpuIntensities::default(),
            1.. => GpuIntensities::one(self.intensities.gpu),
        }
    }

    fn work(&self) -> DeviceWork {
        DeviceWork::of(self.asked, self.intensities)
    }

    fn demand(&self) -> ProfileDemand {
        let of = |class| u32::from(self.class == Some(class));
        ProfileDemand {
            performance_only: of(DemandClass::PerformanceOnly),
            eco_only: of(DemandClass::EcoOnly),
            general: of(DemandClass::General),
            unrecognised: u32::from(self.unrecognised),
            hard: u32::from(self.class == Some(DemandClass::PerformanceOnly) && self.intensities.is_hard()),
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
    work: DeviceWork,
    gpus: GpuIntensities,
}

impl Bound {
    fn count(&mut self, pod: &Counted<'_>) {
        self.demand = self.demand.plus(pod.demand());
        self.asked = self.asked.plus(pod.asked);
        self.work = self.work.plus(pod.work());
        self.gpus = self.gpus.plus(pod.gpus());
    }
}

/// The first bytes of a name as a number. Names that differ in them are in the order of these numbers.
fn beginning(name: &str) -> u128 {
    let mut first = [0; 16];
    match name.as_bytes().first_chunk() {
        Some(whole) => first = *whole,
        None => first.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from),
    }
    u128::from_be_bytes(first)
}

impl PodCounts {
    /// The counts of these pods.
    #[must_use]
    pub fn of<'a>(pods: impl IntoIterator<Item = Counted<'a>>) -> Self {
        let mut waiting = ProfileDemand::default();
        // Most nodes are told apart by the beginnings of their names, and numbers are compared faster than texts.
        let mut bound = BTreeMap::<(u128, &str), Bound>::new();
        for pod in pods {
            match pod.node {
                Some(node) => bound.entry((beginning(node), node)).or_default().count(&pod),
                None => waiting = waiting.plus(pod.demand()),
            }
        }
        Self { waiting, bound: bound.into_iter().map(|((_, node), pods)| (node.into(), pods)).collect() }
    }

    /// Counts a pod.
    pub fn count(&mut self, pod: &Counted<'_>) {
        let Some(node) = pod.node else {
            self.waiting = self.waiting.plus(pod.demand());
            return;
        };
        let bound = match self.bound.get_mut(node) {
            Some(bound) => bound,
            None => self.bound.entry(node.into()).or_default(),
        };
        bound.count(pod);
    }

    /// Removes a pod that was counted.
    pub fn take_back(&mut self, pod: &Counted<'_>) {
        let Some(node) = pod.node else {
            self.waiting = self.waiting.less(pod.demand());
            return;
        };
        if let Some(bound) = self.bound.get_mut(node) {
            bound.demand = bound.demand.less(pod.demand());
            bound.asked = bound.asked.less(pod.asked);
            bound.work = bound.work.less(pod.work());
            bound.gpus = bound.gpus.less(pod.gpus());
            if *bound == Bound::default() {
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

    /// The pods with graphics processors on each node, by node name.
    pub fn gpus(&self) -> impl Iterator<Item = (&str, GpuIntensities)> {
        self.bound.iter().map(|(node, bound)| (&**node, bound.gpus))
    }

    /// How hard the pods on each node work, those outside managed scope too, by node name.
    pub fn work(&self) -> impl Iterator<Item = (&str, DeviceWork)> {
        self.bound.iter().map(|(node, bound)| (&**node, bound.work))
    }
}
