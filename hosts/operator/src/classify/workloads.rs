//! Pods as workloads: which pods run for which controller, and what their annotations say.

use super::signals;
use super::stats::Signal;
use crate::rows::{NodeSeen, PodSeen};
use host_kit::prometheus::Answer;
use host_kit::reflect::{CachedRow, ObjectKey};
use joulie_core::placement::class::{Classified, WorkloadClass};
use planner::classify::Hints;
use planner::classify::metrics::{Energy, GpuShare, Signals, WorkloadMetrics};
use power_units::{MicroJoules, Micros, NonZeroMicros, Percent, Ratio, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A workload: the outermost controller of pods, or a pod without one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WorkloadKey {
    pub(super) namespace: String,
    pub(super) kind: String,
    pub(super) name: String,
}

impl WorkloadKey {
    fn of(key: &ObjectKey, pod: &PodSeen) -> Self {
        let [namespace, kind, name] = pod.workload(key).map(str::to_owned);
        Self { namespace, kind, name }
    }
}

/// A pod that runs.
#[derive(Clone, Debug)]
pub(super) struct RunningPod {
    key: ObjectKey,
    node: Box<str>,
    row: Arc<PodSeen>,
}

/// The running pods and their workloads at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Workloads {
    /// In the order of namespace and name.
    pods: Vec<RunningPod>,
    /// The places of their pods.
    running: BTreeMap<WorkloadKey, Vec<usize>>,
    /// The workloads that have a pod which has not ended, running or not.
    live: BTreeSet<WorkloadKey>,
}

/// What the pods of a workload say, and where they are.
#[derive(Clone, Debug)]
pub(super) struct Seen<'a> {
    pub(super) key: &'a WorkloadKey,
    pub(super) hints: Hints,
    /// The node, if all of them are on one.
    pub(super) node: Option<&'a str>,
    places: &'a [usize],
}

impl Workloads {
    /// Groups pods. Those in the `ignored` namespaces are left out.
    pub(super) fn of(rows: &BTreeMap<ObjectKey, CachedRow<PodSeen>>, ignored: impl Fn(&str) -> bool) -> Self {
        let mut all = Self::default();
        for (key, cached) in rows.iter().filter(|(key, _)| !ignored(&key.namespace)) {
            let row = &cached.row;
            if row.is_over() {
                continue;
            }
            let workload = WorkloadKey::of(key, row);
            if let Some(node) = row.runs_on() {
                all.running.entry(workload.clone()).or_default().push(all.pods.len());
                all.pods.push(RunningPod { key: key.clone(), node: node.into(), row: row.clone() });
            }
            all.live.insert(workload);
        }
        all
    }

    /// Whether a workload has a pod that has not ended.
    pub(super) fn is_live(&self, key: &WorkloadKey) -> bool {
        self.live.contains(key)
    }

    /// The workloads that have a pod which has not ended.
    pub(super) const fn live(&self) -> &BTreeSet<WorkloadKey> {
        &self.live
    }

    /// The keys of the workloads that run, in order.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &WorkloadKey> {
        self.running.keys()
    }

    /// The workloads that run, in the order of their keys.
    pub(super) fn running(&self) -> impl ExactSizeIterator<Item = Seen<'_>> {
        self.running.iter().map(|(key, places)| {
            let pods = || places.iter().filter_map(|&at| self.pods.get(at));
            let first = pods().next().map(|pod| &*pod.node);
            let node = first.filter(|first| pods().all(|pod| &*pod.node == *first));
            Seen { key, hints: hints(pods().map(|pod| &*pod.row)), node, places }
        })
    }

    /// What simulated pods of a workload say that they do; `None` if none of them is simulated.
    pub(super) fn simulated(&self, seen: &Seen<'_>) -> Option<WorkloadMetrics> {
        let pods = seen.places.iter().filter_map(|&at| self.pods.get(at));
        let said: Vec<WorkloadMetrics> =
            pods.filter_map(|pod| pod.row.simulated.as_deref().copied()).collect();
        (!said.is_empty()).then(|| WorkloadMetrics::mean(&said))
    }

    /// The place of a running pod.
    pub(super) fn place(&self, namespace: &str, name: &str) -> Option<usize> {
        let of =
            |pod: &RunningPod| (pod.key.namespace.as_str(), pod.key.name.as_str()).cmp(&(namespace, name));
        self.pods.binary_search_by(of).ok()
    }

    /// How many pods run.
    pub(super) const fn pods(&self) -> usize {
        self.pods.len()
    }

    /// The mean over the pods of a workload.
    pub(super) fn metrics(
        &self,
        seen: &Seen<'_>,
        measured: &Measured,
        nodes: &BTreeMap<ObjectKey, CachedRow<NodeSeen>>,
    ) -> WorkloadMetrics {
        let one = |&at: &usize| {
            let pod = self.pods.get(at)?;
            let node = nodes.get(&ObjectKey::cluster(&pod.node)).map(|cached| &*cached.row);
            Some(measured.of(at, &pod.row, node).to_metrics())
        };
        let all: Vec<WorkloadMetrics> = seen.places.iter().filter_map(one).collect();
        WorkloadMetrics::mean(&all)
    }
}

/// The pods of a workload have one template, except while it changes. Then the stricter one counts: one performance pod
/// makes it a performance workload, and one pod that must not move keeps all.
fn hints<'a>(pods: impl Iterator<Item = &'a PodSeen>) -> Hints {
    let standard = Classified { class: WorkloadClass::Standard, recognised: true };
    let mut all = Hints { class: standard, explicit: false, reschedulable: true };
    let mut any = false;
    for pod in pods {
        let one = Hints::read(pod.class(), None);
        let performs = [all.class.class, one.class.class].contains(&WorkloadClass::Performance);
        all = Hints {
            class: Classified {
                class: if performs { WorkloadClass::Performance } else { WorkloadClass::Standard },
                recognised: all.class.recognised && one.class.recognised,
            },
            explicit: all.explicit || one.explicit,
            reschedulable: all.reschedulable && pod.reschedulable,
        };
        any = true;
    }
    Hints { reschedulable: all.reschedulable && any, ..all }
}

/// The values of each signal by pod, as the queries gave them. The values of a signal that was not answered are missing,
/// which is something else than that its meter knows nothing of a pod.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    cores: Option<Vec<Option<Ratio>>>,
    memory: Option<Vec<Option<u64>>>,
    gpu: Option<Vec<Option<Percent>>>,
    package: Option<Vec<Option<Watts>>>,
    dram: Option<Vec<Option<Watts>>>,
    gpu_power: Option<Vec<Option<Watts>>>,
    window: Micros,
}

impl Measured {
    /// Nothing has been answered yet; rates are over `window`.
    pub(super) fn over(window: Micros) -> Self {
        Self { cores: None, memory: None, gpu: None, package: None, dram: None, gpu_power: None, window }
    }

    /// Takes in the values of a signal.
    pub(super) fn take(&mut self, values: Values) {
        match values {
            Values::Cores(cores) => self.cores = Some(cores),
            Values::Memory(memory) => self.memory = Some(memory),
            Values::Gpu(gpu) => self.gpu = Some(gpu),
            Values::Package(package) => self.package = Some(package),
            Values::Dram(dram) => self.dram = Some(dram),
            Values::GpuPower(gpu_power) => self.gpu_power = Some(gpu_power),
        }
    }

    /// The signals of the pod at a place.
    fn of(&self, at: usize, pod: &PodSeen, node: Option<&NodeSeen>) -> Signals {
        let bounds = pod.bounds;
        let gpus = u32::try_from(pod.gpus()).ok().filter(|&count| count > 0);
        Signals {
            cores_used: value(&self.cores, at),
            cores_requested: bounds.cpu_requested_milli.map(cores),
            cores_limit: bounds.cpu_limit_milli.map(cores),
            cores_of_node: node.and_then(|node| i32::try_from(node.capacity_cpus?).ok()).map(Ratio::from_int),
            memory_used: value(&self.memory, at),
            memory_limit: bounds.memory_limit,
            memory_of_node: node.and_then(|node| node.capacity_memory),
            gpu_utilization: value(&self.gpu, at),
            gpus: gpus.map(|count| GpuShare { count, each: None }),
            energy: self.energy(at),
            window: self.window.non_zero().unwrap_or(NonZeroMicros::MIN),
        }
    }

    /// The energy of a pod. Its parts are compared with each other, so that all of them must have been answered; a
    /// machine without a meter for its memory, or without GPUs, has no series for them.
    fn energy(&self, at: usize) -> Option<Energy> {
        let (package, dram) = (self.package.as_ref()?, self.dram.as_ref()?);
        let gpu = self.gpu_power.as_ref()?;
        let at = |values: &[Option<Watts>]| values.get(at).copied().flatten();
        let (package, dram, gpu) = (at(package), at(dram), at(gpu));
        if package.is_none() && gpu.is_none() {
            return None;
        }
        let during =
            |watts: Option<Watts>| watts.map_or(MicroJoules::ZERO, |watts| watts.during(self.window));
        let dram = dram.filter(|_| package.is_some());
        Some(Energy { package: during(package), dram: during(dram), gpu: during(gpu) })
    }
}

/// The values of one signal by the place of a pod.
#[derive(Clone, Debug)]
pub(super) enum Values {
    Cores(Vec<Option<Ratio>>),
    Memory(Vec<Option<u64>>),
    Gpu(Vec<Option<Percent>>),
    Package(Vec<Option<Watts>>),
    Dram(Vec<Option<Watts>>),
    GpuPower(Vec<Option<Watts>>),
}

impl Values {
    /// Joins the answer to the query for a signal to the pods.
    pub(super) fn read(signal: Signal, answer: &Answer, pods: &Workloads) -> (Self, signals::Fates) {
        let place = |namespace: &str, name: &str| pods.place(namespace, name);
        macro_rules! read {
            ($of:ident, $number:path) => {{
                let (values, fates) = signals::by_pod(answer, pods.pods(), place, $number);
                (Self::$of(values), fates)
            }};
        }
        match signal {
            Signal::Cpu => read!(Cores, signals::cores),
            Signal::Memory => read!(Memory, signals::bytes),
            Signal::Gpu => read!(Gpu, signals::utilization),
            Signal::PackageEnergy => read!(Package, signals::watts),
            Signal::DramEnergy => read!(Dram, signals::watts),
            Signal::GpuEnergy => read!(GpuPower, signals::watts),
        }
    }
}

fn value<T: Copy>(values: &Option<Vec<Option<T>>>, at: usize) -> Option<T> {
    values.as_ref()?.get(at).copied().flatten()
}

/// Thousandths of a core.
fn cores(milli: u32) -> Ratio {
    let bits = (u64::from(milli) << 32) / 1000;
    Ratio::from_bits(i64::try_from(bits).unwrap_or(i64::MAX))
}
