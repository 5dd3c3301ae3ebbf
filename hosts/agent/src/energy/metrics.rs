//! The metrics of the ledger, computed from its accounts when they are read: an account that has left has no series any more.

use super::kepler::KeplerPage;
use super::ledger::{Energy, Ledger};
use super::pod_resources::{LastAnswer, Look};
use super::source::EnergySource;
use crate::metrics::PowerDetail;
use host_kit::clock::HostClock;
use host_kit::metrics::{LabelSet, MetricDescription, MetricsRegistry};
use host_kit::{closed_label, label_set};
use power_units::Watts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

closed_label! {
    /// Whom energy is charged to.
    pub(super) enum AccountLabel {
        /// A workload of pods.
        Workload = "workload",
        /// Whatever runs on the node and is no pod.
        System = "system",
        /// Nobody: the idle floors of packages and of shared GPUs, and GPUs that nobody uses.
        Idle = "idle",
        /// It is not known whom: gaps of meters, pods that came and went unseen, sources that do not answer.
        Unknown = "unknown",
        /// Pods beyond the bounds of the ledger.
        Other = "other",
    }
}

closed_label! {
    /// What has drawn it.
    pub(super) enum PartLabel {
        /// Packages.
        Cpu = "cpu",
        /// GPUs.
        Gpu = "gpu",
    }
}

label_set! {
    struct ByAccount {
        node: String,
        account: AccountLabel,
        namespace: String,
        workload: String,
        part: PartLabel,
    }

    struct ByPod {
        node: String,
        namespace: String,
        workload: String,
        pod: String,
        uid: String,
        part: PartLabel,
    }

    struct ByPart {
        node: String,
        part: PartLabel,
    }

    struct BySource {
        node: String,
        part: PartLabel,
        source: EnergySource,
    }

    struct ByNode {
        node: String,
    }

    struct ByLook {
        outcome: Look,
    }
}

const JOULES: MetricDescription = MetricDescription::counter(
    "joulie_energy_joules",
    "Energy that is charged to an account; a workload's series goes ten minutes after its last pod",
)
.with(ByAccount::LABELS);
const COST: MetricDescription =
    MetricDescription::counter("joulie_energy_cost", "Its price, by ENERGY_PRICE_PER_KWH")
        .with(ByAccount::LABELS);
const CO2: MetricDescription =
    MetricDescription::counter("joulie_energy_co2_grams", "Its emissions, by ENERGY_CO2_GRAMS_PER_KWH")
        .with(ByAccount::LABELS);
const OF_PODS: MetricDescription = MetricDescription::counter(
    "joulie_energy_pod_joules",
    "Energy that is charged to a pod, which is in joulie_energy_joules of its workload too; its series goes ten minutes after it. Only with ENERGY_PODS",
)
.with(ByPod::LABELS);
const DRAWN: MetricDescription = MetricDescription::counter(
    "joulie_energy_drawn_joules",
    "Energy that the packages and GPUs have drawn: the sum of all accounts and of those that have left",
)
.with(ByPart::LABELS);
const DIVIDED: MetricDescription = MetricDescription::counter(
    "joulie_energy_divided_joules",
    "What was drawn, by what it was divided among accounts; all sources together are joulie_energy_drawn_joules",
)
.with(BySource::LABELS);
const LEFT: MetricDescription =
    MetricDescription::counter("joulie_energy_left_joules", "Energy of workloads whose series have gone")
        .with(ByPart::LABELS);
const GAPS: MetricDescription = MetricDescription::counter(
    "joulie_energy_gap_seconds",
    "For how long meters were silent or not credible; what was drawn then is unknown's",
)
.with(ByPart::LABELS);
const FLOOR: MetricDescription = MetricDescription::gauge(
    "joulie_energy_idle_floor_watts",
    "What the packages draw together when the node is idle; absent until it was",
)
.with(ByNode::LABELS);
const PODS: MetricDescription =
    MetricDescription::gauge("joulie_energy_pods", "Pods that have an account").with(ByNode::LABELS);
const BEYOND: MetricDescription = MetricDescription::counter(
    "joulie_energy_charges_beyond_bounds",
    "Charges to account other, for want of a place for the pod, its workload or its namespace",
)
.with(ByNode::LABELS);
const CGROUPS: MetricDescription = MetricDescription::gauge(
    "joulie_energy_cgroups_read",
    "1 where the processor time of pods is read; 0: what packages draw above the floor is unknown's, unless Kepler counts",
)
.with(ByNode::LABELS);
const AGE: MetricDescription = MetricDescription::gauge(
    "joulie_pod_resources_age_seconds",
    "Since the kubelet last said who holds GPUs; after 60 s only the processes on a GPU say who uses it",
)
.with(ByNode::LABELS);

const KEPLER: MetricDescription = MetricDescription::gauge(
    "joulie_energy_kepler_live",
    "1 while packages are divided by what Kepler says; 0: by processor time. Only with ENERGY_KEPLER_URL",
)
.with(ByNode::LABELS);
const RATIO: MetricDescription = MetricDescription::gauge(
    "joulie_energy_kepler_ratio",
    "What Kepler says that the packages have drawn over what their meter says, of the last whole minute",
)
.with(ByNode::LABELS);

/// All that are computed.
const ALL: [MetricDescription; 15] = [
    JOULES, COST, CO2, OF_PODS, DRAWN, DIVIDED, LEFT, GAPS, FLOOR, PODS, BEYOND, CGROUPS, AGE, KEPLER, RATIO,
];

const KWH_JOULES: f64 = 3_600_000.0;

/// What is shown of the ledger.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) ledger: Ledger,
    pub(super) floor: Option<Watts>,
    /// Whether the last reading of the cgroups succeeded.
    pub(super) cgroups: bool,
    /// Whether the node has GPUs.
    pub(super) gpus: bool,
    pub(super) answer: LastAnswer,
    /// Kepler's last page, until it is taken.
    pub(super) page: Option<KeplerPage>,
    /// Whether packages are divided by what Kepler says, if it is asked.
    pub(super) kepler: Option<bool>,
    /// What it says over what the meter says, in thousandths.
    pub(super) ratio: Option<u64>,
}

/// The books, shared by those who write them and by the scrapes.
#[derive(Clone, Debug)]
pub(super) struct SharedBooks(Arc<Mutex<Books>>);

impl SharedBooks {
    pub(super) fn new(ledger: Ledger) -> Self {
        Self(Arc::new(Mutex::new(Books {
            ledger,
            floor: None,
            cgroups: false,
            gpus: false,
            answer: LastAnswer::default(),
            page: None,
            kepler: None,
            ratio: None,
        })))
    }

    pub(super) fn open(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts what the kubelet answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks(Family<ByLook, Counter>);

impl Looks {
    pub(super) fn register(registry: &mut MetricsRegistry) -> Self {
        let looks = Self::default();
        registry.register(
            "joulie_pod_resources_looks",
            "What asking the kubelet who holds GPUs gave",
            looks.0.clone(),
        );
        looks
    }

    pub(super) fn count(&self, outcome: Look) {
        self.0.get_or_create(&ByLook { outcome }).inc();
    }
}

/// Prices, if they are configured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EnergyPrices {
    /// Of a kilowatt-hour, in whatever currency.
    pub cost: Option<f64>,
    /// Grams of CO2 for a kilowatt-hour.
    pub co2_grams: Option<f64>,
}

/// Computes the series.
pub(super) struct Scrape {
    pub(super) node: String,
    pub(super) books: SharedBooks,
    pub(super) prices: EnergyPrices,
    /// Whether each pod has series of its own.
    pub(super) pods: bool,
    pub(super) detail: PowerDetail,
    pub(super) clock: Arc<dyn HostClock>,
}

/// Describes what a [`Scrape`] shows.
pub(super) fn describe(registry: &mut MetricsRegistry) {
    registry.describe(&ALL);
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let books = self.books.open();
        let ledger = &books.ledger;
        self.accounts(&JOULES, |joules| joules, ledger, &mut encoder)?;
        if let Some(price) = self.prices.cost {
            self.accounts(&COST, |joules| joules / KWH_JOULES * price, ledger, &mut encoder)?;
        }
        if let Some(grams) = self.prices.co2_grams {
            self.accounts(&CO2, |joules| joules / KWH_JOULES * grams, ledger, &mut encoder)?;
        }
        if self.pods {
            self.of_pods(ledger, &mut encoder)?;
        }
        for (about, energy) in [(&DRAWN, ledger.drawn), (&LEFT, ledger.left), (&GAPS, ledger.gap_micros)] {
            let mut family = about.begin(&mut encoder)?;
            for (part, count) in parts(energy) {
                let labels = ByPart { node: self.node.clone(), part };
                ConstCounter::new(self.shown(count)).encode(family.encode_family(&labels)?)?;
            }
        }
        self.divided(ledger, &mut encoder)?;
        self.one(&PODS, whole(u64::try_from(ledger.pods().len()).unwrap_or(u64::MAX)), &mut encoder)?;
        self.one(&CGROUPS, if books.cgroups { 1.0 } else { 0.0 }, &mut encoder)?;
        if let Some(floor) = books.floor {
            self.one(&FLOOR, joulie_api::number::Number::tenths(floor).get(), &mut encoder)?;
        }
        if let Some(age) = books.answer.age(self.clock.mono()) {
            self.one(&AGE, age.as_secs_f64(), &mut encoder)?;
        }
        if let Some(is_live) = books.kepler {
            self.one(&KEPLER, if is_live { 1.0 } else { 0.0 }, &mut encoder)?;
        }
        if let Some(ratio) = books.ratio {
            self.one(&RATIO, whole(ratio) / 1e3, &mut encoder)?;
        }
        let mut family = BEYOND.begin(&mut encoder)?;
        let labels = ByNode { node: self.node.clone() };
        ConstCounter::new(ledger.beyond).encode(family.encode_family(&labels)?)
    }
}

impl Scrape {
    pub(super) fn register(self, registry: &mut MetricsRegistry) {
        registry.register_collector(Box::new(self), &ALL);
    }

    fn one(
        &self,
        about: &MetricDescription,
        value: f64,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> Result<(), fmt::Error> {
        let labels = ByNode { node: self.node.clone() };
        ConstGauge::new(value).encode(about.begin(encoder)?.encode_family(&labels)?)
    }

    fn divided(&self, ledger: &Ledger, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = DIVIDED.begin(encoder)?;
        for (source, energy) in &ledger.divided {
            for (part, count) in parts(*energy).into_iter().filter(|(_, count)| *count > 0) {
                let labels = BySource { node: self.node.clone(), part, source: *source };
                ConstCounter::new(self.shown(count)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// A pod's name may come again with another UID, so a series has both.
    fn of_pods(&self, ledger: &Ledger, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = OF_PODS.begin(encoder)?;
        for (pod, energy) in ledger.pods() {
            for (part, count) in parts(energy).into_iter().filter(|(_, count)| *count > 0) {
                let (namespace, workload) =
                    (pod.workload.namespace.to_string(), pod.workload.name.to_string());
                let (node, name, uid) = (self.node.clone(), pod.name.to_string(), pod.uid.clone());
                let labels = ByPod { node, namespace, workload, pod: name, uid, part };
                ConstCounter::new(self.shown(count)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn accounts(
        &self,
        about: &MetricDescription,
        value: impl Fn(f64) -> f64,
        ledger: &Ledger,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> Result<(), fmt::Error> {
        let mut family = about.begin(encoder)?;
        let mut show = |account, namespace: &str, workload: &str, energy| -> Result<(), fmt::Error> {
            for (part, count) in parts(energy) {
                // A workload that never held a GPU has no series that says so.
                if account == AccountLabel::Workload && count == 0 {
                    continue;
                }
                let (node, namespace, workload) =
                    (self.node.clone(), namespace.to_owned(), workload.to_owned());
                let labels = ByAccount { node, account, namespace, workload, part };
                encode(&mut family, &labels, value(self.shown(count)))?;
            }
            Ok(())
        };
        show(AccountLabel::System, "", "", ledger.system)?;
        show(AccountLabel::Idle, "", "", ledger.idle)?;
        show(AccountLabel::Unknown, "", "", ledger.unknown)?;
        show(AccountLabel::Other, "", "", ledger.other)?;
        for (workload, energy) in ledger.workloads() {
            show(AccountLabel::Workload, &workload.namespace, &workload.name, energy)?;
        }
        Ok(())
    }

    /// Joules, or seconds of gaps. Whole ones, unless exact power is to be shown: see `POWER_METRICS`.
    fn shown(&self, micro: u64) -> f64 {
        match self.detail {
            PowerDetail::Averaged => whole(micro / 1_000_000),
            PowerDetail::Exact => whole(micro) / 1e6,
        }
    }
}

fn encode(family: &mut MetricEncoder<'_>, labels: &ByAccount, value: f64) -> Result<(), fmt::Error> {
    ConstCounter::new(value).encode(family.encode_family(labels)?)
}

const fn parts(energy: Energy) -> [(PartLabel, u64); 2] {
    [(PartLabel::Cpu, energy.cpu), (PartLabel::Gpu, energy.gpu)]
}

/// Exact below 2^53 µJ, which is 9 GJ.
#[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
fn whole(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::energy::ledger::{Bounds, Interval, PackageSpan, Used};
    use crate::energy::meter::Drawn;
    use crate::energy::pods::{Pod, Workload};
    use host_kit::clock::{Mono, SystemClock};
    use power_units::Micros;
    use std::time::Duration;

    /// 9 J, of which two pods of one name used two thirds and one third of the processor time.
    fn page(pods: bool, pods_most: usize) -> String {
        let pod = |uid: &str| {
            let workload = Workload { namespace: "shop".into(), name: "StatefulSet/db".into() };
            Pod { uid: uid.to_owned(), name: "db-0".into(), workload }
        };
        let used = Used { pods: vec![(Some(pod("u1")), 2), (Some(pod("u2")), 1)], unseen: 0, system: 0 };
        let drawn = Drawn { metered: 9_000_000, ..Drawn::default() };
        let span = PackageSpan { span: Micros::new(1_000_000), drawn, used: Some(used), floor: None };
        let mut ledger = Ledger::new(Bounds { pods: pods_most, ..Bounds::STANDARD });
        let at = Mono::at(Duration::from_secs(1));
        ledger.take(&Interval { at, packages: vec![span], kepler: None, gpus: Vec::new() });
        let mut registry = MetricsRegistry::default();
        let scrape = Scrape {
            node: "n1".to_owned(),
            books: SharedBooks::new(ledger),
            prices: EnergyPrices::default(),
            pods,
            detail: PowerDetail::Exact,
            clock: Arc::new(SystemClock::new()),
        };
        scrape.register(&mut registry);
        registry.render().unwrap()
    }

    fn series<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
        page.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect()
    }

    #[test]
    fn pods_have_series_where_that_is_asked_for_which_sum_to_their_workloads_and_are_bounded() {
        let labels = |uid: &str| {
            format!(
                "joulie_energy_pod_joules_total{{node=\"n1\",namespace=\"shop\",workload=\"StatefulSet/db\",\
                 pod=\"db-0\",uid=\"{uid}\",part=\"cpu\"}}"
            )
        };
        let all = page(true, 2);
        let pods = series(&all, "joulie_energy_pod_joules_total");
        assert_eq!(pods, [format!("{} 6.0", labels("u1")), format!("{} 3.0", labels("u2"))]);
        let is_of_it = |line: &&&str| line.contains("StatefulSet/db");
        let workloads = series(&all, "joulie_energy_joules_total");
        assert!(workloads.iter().find(is_of_it).unwrap().ends_with(" 9.0"), "{all}");
        assert_eq!(series(&page(true, 1), "joulie_energy_pod_joules_total").len(), 1);
        assert_eq!(series(&page(false, 2), "joulie_energy_pod_joules_total"), [""; 0]);
    }
}
