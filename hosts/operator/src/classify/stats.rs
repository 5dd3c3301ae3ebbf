//! The classifier's metrics.

use crate::queries::Purpose;
use crate::stats::Became;
use host_kit::metrics::MetricsRegistry;
use host_kit::{closed_label, label_set};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

closed_label! {
    /// A signal that is asked for.
    pub(super) enum Signal {
        /// The processor cores that a pod uses, by cAdvisor.
        Cpu = "cpu",
        /// The memory that a pod uses, by cAdvisor.
        Memory = "memory",
        /// How busy the GPUs of a pod are, by DCGM or AMD's exporter.
        Gpu = "gpu",
        /// The power of the packages that a pod takes, by Kepler.
        PackageEnergy = "package_energy",
        /// The power of the memory that a pod takes, by Kepler.
        DramEnergy = "dram_energy",
        /// The power of the GPUs that a pod takes, by Kepler.
        GpuEnergy = "gpu_energy",
    }
}

impl Signal {
    /// What a query for it is for.
    pub(super) const fn purpose(self) -> Purpose {
        match self {
            Self::Cpu => Purpose::PodCpu,
            Self::Memory => Purpose::PodMemory,
            Self::Gpu => Purpose::PodGpu,
            Self::PackageEnergy => Purpose::PodPackageEnergy,
            Self::DramEnergy => Purpose::PodDramEnergy,
            Self::GpuEnergy => Purpose::PodGpuEnergy,
        }
    }

    /// Whether Kepler measures it.
    pub(super) const fn is_of_kepler(self) -> bool {
        match self {
            Self::PackageEnergy | Self::DramEnergy | Self::GpuEnergy => true,
            Self::Cpu | Self::Memory | Self::Gpu => false,
        }
    }
}

closed_label! {
    /// What became of a series.
    pub(super) enum Fate {
        /// It is the value of a pod.
        Taken = "taken",
        /// It is about no pod that is known.
        OfNobody = "of-nobody",
        /// There was one for the pod already, so that the pod has no value.
        Twice = "twice",
        /// Its value is no number that a meter can say.
        NoNumber = "no-number",
    }
}

closed_label! {
    /// What a classification rests on.
    pub(super) enum Basis {
        /// Metrics of this moment.
        Measured = "measured",
        /// Metrics of before; there are none now.
        Kept = "kept",
        /// The annotations alone.
        Hints = "hints",
        /// The annotations of a simulated pod.
        Simulated = "simulated",
    }
}

closed_label! {
    /// How a workload stands.
    pub(super) enum Known {
        /// Its profile has the confidence that readers ask for.
        Trusted = "trusted",
        /// Its profile has less.
        Doubtful = "doubtful",
        /// It has no profile yet: its first metrics are waited for.
        Awaited = "awaited",
    }
}

closed_label! {
    /// What a write is to.
    pub(super) enum Part {
        /// The object: its labels and its spec.
        Object = "object",
        /// Its status.
        Status = "status",
        /// The deletion of the object.
        Deletion = "deletion",
    }
}

label_set! {
    struct ByFate {
        signal: Signal,
        fate: Fate,
    }

    struct ByBasis {
        basis: Basis,
    }

    struct ByKnown {
        standing: Known,
    }

    struct ByPart {
        part: Part,
        result: Became,
    }
}

/// The classifier's metrics. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ClassifyStats {
    series: Family<ByFate, Counter>,
    classifications: Family<ByBasis, Counter>,
    workloads: Family<ByKnown, Gauge>,
    writes: Family<ByPart, Counter>,
    seconds: Histogram,
}

impl ClassifyStats {
    /// Registers them.
    pub(crate) fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self {
            series: Family::default(),
            classifications: Family::default(),
            workloads: Family::default(),
            writes: Family::default(),
            seconds: Histogram::new([0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0]),
        };
        registry.register(
            "joulie_operator_classifier_series",
            "Series of their answers, by what became of them",
            all.series.clone(),
        );
        registry.register(
            "joulie_operator_classifications",
            "Classifications of workloads, by what they rest on",
            all.classifications.clone(),
        );
        registry.register(
            "joulie_operator_workloads",
            "Workloads that run, by how their profile stands",
            all.workloads.clone(),
        );
        registry.register(
            "joulie_operator_workload_profile_writes",
            "Writes to WorkloadProfiles, by what became of them",
            all.writes.clone(),
        );
        registry.register(
            "joulie_operator_classifier_round_seconds",
            "How long it takes to join the answers and classify all workloads, without queries and writes",
            all.seconds.clone(),
        );
        all
    }

    pub(super) fn joined(&self, signal: Signal, fates: impl Iterator<Item = (Fate, u64)>) {
        for (fate, count) in fates.filter(|(_, count)| *count > 0) {
            self.series.get_or_create(&ByFate { signal, fate }).inc_by(count);
        }
    }

    pub(super) fn classified(&self, basis: Basis, count: u64) {
        self.classifications.get_or_create(&ByBasis { basis }).inc_by(count);
    }

    /// Shows how many workloads stand how; zero of each while this process does not lead.
    pub(super) fn standing(&self, standing: Known, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.workloads.get_or_create(&ByKnown { standing }).set(count);
    }

    pub(super) fn wrote(&self, part: Part, result: Became) {
        self.writes.get_or_create(&ByPart { part, result }).inc();
    }

    pub(super) fn took(&self, time: std::time::Duration) {
        self.seconds.observe(time.as_secs_f64());
    }
}
