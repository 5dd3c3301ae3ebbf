//! Queries to Prometheus, counted by their purpose and what came of them. A purpose whose queries begin to fail, or work
//! again, is told once.

use host_kit::metrics::MetricsRegistry;
use host_kit::prometheus::{Answer, Prometheus, QueryError};
use host_kit::{closed_label, label_set};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

closed_label! {
    /// What a query is for.
    pub(crate) enum Purpose {
        /// OPERATOR_NODE_POWER_PROMETHEUS_QUERY.
        NodePower = "node-power",
        /// When what OPERATOR_NODE_POWER_PROMETHEUS_QUERY yields was sampled.
        NodePowerTime = "node-power-time",
        /// Kepler's counters of processors.
        KeplerPackage = "kepler-package",
        /// Kepler's counters of memory.
        KeplerDram = "kepler-dram",
        /// Kepler's counters of GPUs.
        KeplerGpu = "kepler-gpu",
        /// The temperature of the building.
        Ambient = "ambient",
        /// The temperature of the zones.
        ZoneAmbient = "zone-ambient",
        /// The power of all machines.
        ItPower = "it-power",
        /// The power of the cooling.
        CoolingPower = "cooling-power",
        /// The power of the racks.
        RackPower = "rack-power",
        /// The signal of a PowerBudget.
        BudgetSignal = "budget-signal",
        /// When the signal of a PowerBudget was measured.
        BudgetSignalTime = "budget-signal-time",
        /// The processor cores that pods use, by cAdvisor.
        PodCpu = "pod-cpu",
        /// The memory that pods use, by cAdvisor.
        PodMemory = "pod-memory",
        /// How busy the GPUs of pods are, by DCGM or AMD's exporter.
        PodGpu = "pod-gpu",
        /// The power of the packages that pods take, by Kepler.
        PodPackageEnergy = "pod-package-energy",
        /// The power of the memory that pods take, by Kepler.
        PodDramEnergy = "pod-dram-energy",
        /// The power of the GPUs that pods take, by Kepler.
        PodGpuEnergy = "pod-gpu-energy",
    }
}

impl Purpose {
    /// Whether a failure is told here. The classifier asks for what not every cluster has, and tells when it has nothing.
    const fn is_told(self) -> bool {
        match self {
            Self::NodePower
            | Self::KeplerPackage
            | Self::KeplerDram
            | Self::KeplerGpu
            | Self::Ambient
            | Self::ZoneAmbient
            | Self::ItPower
            | Self::CoolingPower
            | Self::RackPower
            | Self::BudgetSignal => true,
            // The query itself says that nothing comes, and a number without labels has no time.
            Self::NodePowerTime
            | Self::BudgetSignalTime
            | Self::PodCpu
            | Self::PodMemory
            | Self::PodGpu
            | Self::PodPackageEnergy
            | Self::PodDramEnergy
            | Self::PodGpuEnergy => false,
        }
    }
}

closed_label! {
    /// What came of it.
    pub(crate) enum Became {
        /// An answer with series.
        Answered = "answered",
        /// An answer without any.
        Empty = "empty",
        /// No answer, or the server refuses to give one.
        Failed = "failed",
        /// The server refuses the query.
        Refused = "refused",
        /// The server says that its answer is not whole.
        Partial = "partial",
        /// What came is no answer of Prometheus.
        Malformed = "malformed",
    }
}

label_set! {
    struct ByQuery {
        purpose: Purpose,
        result: Became,
    }

    struct ByPurpose {
        purpose: Purpose,
    }
}

/// The queries of the operator. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Queries {
    asked: Family<ByQuery, Counter>,
    unused: Family<ByPurpose, Counter>,
    /// Why the queries of a purpose fail, as it was last told.
    failing: Arc<Mutex<BTreeMap<Purpose, String>>>,
}

impl Queries {
    /// Registers the metrics.
    pub(crate) fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self { asked: Family::default(), unused: Family::default(), failing: Arc::default() };
        registry.register(
            "joulie_operator_prometheus_queries",
            "Queries to Prometheus by their purpose and what came of them",
            all.asked.clone(),
        );
        registry.register(
            "joulie_operator_prometheus_unused_series",
            "Series of answers that were not used: they name no known node, zone or rack, or one twice, or have no possible value",
            all.unused.clone(),
        );
        all
    }

    /// Evaluates a query at the present time.
    pub(crate) async fn ask(
        &self,
        server: &Prometheus,
        purpose: Purpose,
        query: &str,
    ) -> Result<Answer, QueryError> {
        self.ask_back(server, purpose, query, None).await
    }

    /// The same by samples that are no older than this.
    pub(crate) async fn ask_back(
        &self,
        server: &Prometheus,
        purpose: Purpose,
        query: &str,
        look_back: Option<Duration>,
    ) -> Result<Answer, QueryError> {
        let answer = server.instant(query, look_back).await;
        let result = match &answer {
            Ok(answer) if answer.series.is_empty() => Became::Empty,
            Ok(_) => Became::Answered,
            Err(QueryError::NoAnswer(_) | QueryError::Unsent(_)) => Became::Failed,
            Err(QueryError::Refused(_)) => Became::Refused,
            Err(QueryError::Partial(_)) => Became::Partial,
            Err(QueryError::Malformed(_)) => Became::Malformed,
        };
        self.asked.get_or_create(&ByQuery { purpose, result }).inc();
        if purpose.is_told() {
            self.tell(server, purpose, query, &answer);
        }
        answer
    }

    /// Counts series that were not used.
    pub(crate) fn unused(&self, purpose: Purpose, series: usize) {
        if let Ok(series) = u64::try_from(series)
            && series > 0
        {
            self.unused.get_or_create(&ByPurpose { purpose }).inc_by(series);
        }
    }

    fn tell(&self, server: &Prometheus, purpose: Purpose, query: &str, answer: &Result<Answer, QueryError>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let why = match answer {
            Ok(answer) if !answer.series.is_empty() => None,
            Ok(_) => Some("the answer has no series".to_owned()),
            Err(why) => Some(why.to_string()),
        };
        let (purpose_word, address) = (purpose.word(), server.address());
        match why {
            Some(why) if failing.get(&purpose) != Some(&why) => {
                tracing::warn!("Prometheus at {address}: {purpose_word}: {why}; the query is {query}");
                failing.insert(purpose, why);
            }
            Some(_) => {}
            None => {
                if failing.remove(&purpose).is_some() {
                    tracing::info!("Prometheus at {address}: {purpose_word}: there are values again");
                }
            }
        }
    }
}
