//! The energy ledger: whom the joules of this node are charged to (docs/adr/0028). It decides nothing, and nothing depends on it.
//!
//! ```text
//!  control thread ──reports──▶ meter ──what was drawn──┐
//!  cgroups of pods ───────────▶ cgroup ──CPU time──────┼──▶ ledger ──▶ metrics
//!  kubelet ───────────────────▶ pod_resources ─GPUs────┤
//!  pods of the API ───────────▶ pods ──whose they are──┘
//! ```
//!
//! Each second what was drawn since the last second is charged. Whatever is not known is charged to `unknown`: a source that does not
//! answer never makes energy disappear.

mod cgroup;
mod floor;
mod ledger;
mod meter;
mod metrics;
mod pod_resources;
mod pods;
mod share;

pub(crate) use meter::Meters;
pub use metrics::EnergyPrices;
pub use pod_resources::held_devices;
pub(crate) use pod_resources::{Held as HeldCards, Kubelet, LastAnswer, TIMEOUT as KUBELET_TIMEOUT};
pub(crate) use pods::PodOwner;

use crate::metrics::PowerDetail;
use crate::settings::Settings;
use cgroup::{CgroupError, CpuMeter, CpuTotals, CpuUsed};
use floor::IdleFloor;
use host_kit::clock::{HostClock, Mono, micros};
use host_kit::metrics::MetricsRegistry;
use host_kit::reflect::Rows;
use host_kit::shutdown::{Stop, Tasks};
use ledger::{Bounds, Holders, Interval, Ledger, Used};
use meter::{Drawn, Totals};
use metrics::{Looks, Scrape, SharedBooks};
use pod_resources::{Held, Look};
use pods::Pods;
use power_hal::Key;
use power_units::Micros;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The settings of the ledger.
#[derive(Clone, Debug)]
pub struct EnergySettings {
    /// The kubelet's socket.
    pub socket: PathBuf,
    /// What a kilowatt-hour costs.
    pub prices: EnergyPrices,
}

/// How often energy is charged.
const EVERY: Duration = Duration::from_secs(1);
/// How often the kubelet is asked who holds GPUs, on a node that has some.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// The meters of the control thread, which writes them; the ledger reads.
pub(crate) type SharedMeters = Arc<Mutex<Meters>>;

/// What the ledger of a node needs.
pub(crate) struct NodeLedger {
    pub(crate) node: String,
    pub(crate) settings: EnergySettings,
    pub(crate) detail: PowerDetail,
    /// The root of the host's files.
    pub(crate) root: PathBuf,
    pub(crate) meters: SharedMeters,
    pub(crate) pods: Rows<PodOwner>,
    pub(crate) clock: Arc<dyn HostClock>,
}

/// Describes the metrics of the ledger, for the reference.
pub(crate) fn describe_metrics(registry: &mut MetricsRegistry) {
    metrics::describe(registry);
    drop(Looks::register(registry));
}

impl NodeLedger {
    /// Starts the tasks of the ledger.
    pub(crate) fn start(self, registry: &mut MetricsRegistry, tasks: &mut Tasks, stop: &Stop) {
        let books = SharedBooks::new(Ledger::new(Bounds::STANDARD));
        let scrape = Scrape {
            node: self.node,
            books: books.clone(),
            prices: self.settings.prices,
            detail: self.detail,
            clock: self.clock.clone(),
        };
        scrape.register(registry);
        let looks = Looks::register(registry);
        let kubelet = Kubelet::at(self.settings.socket, pod_resources::TIMEOUT);
        tasks.spawn("kubelet", ask(kubelet, books.clone(), looks, self.clock.clone(), stop.clone()));
        let keeper = Keeper {
            cgroups: self.root.join("sys/fs/cgroup"),
            processors: cgroup::processors(&self.root),
            state: State::default(),
            books,
        };
        tasks.spawn("energy", keep(keeper, self.meters, self.pods, self.clock, stop.clone()));
    }
}

/// Asks the kubelet again and again, while the node has GPUs.
async fn ask(kubelet: Kubelet, books: SharedBooks, looks: Looks, clock: Arc<dyn HostClock>, stop: Stop) {
    let mut failing = false;
    while !stop.requested_within(ASK_EVERY).await {
        if !books.open().gpus {
            continue;
        }
        let asked = tokio::select! {
            asked = kubelet.ask() => asked,
            () = stop.requested() => return,
        };
        match asked {
            Ok(held) => {
                looks.count(Look::Answered);
                if failing {
                    tracing::info!("the kubelet says again who holds GPUs");
                }
                failing = false;
                books.open().answer.set(clock.mono(), held);
            }
            Err(none) => {
                looks.count(none.look);
                if !failing {
                    tracing::warn!(
                        "the kubelet does not say who holds GPUs; without an answer for 60 s what they draw is unknown's: {none}"
                    );
                }
                failing = true;
            }
        }
    }
}

/// What the task that keeps the books owns.
struct Keeper {
    cgroups: PathBuf,
    processors: Option<u64>,
    state: State,
    books: SharedBooks,
}

/// Charges again and again.
async fn keep(
    mut keeper: Keeper,
    meters: SharedMeters,
    rows: Rows<PodOwner>,
    clock: Arc<dyn HostClock>,
    stop: Stop,
) {
    let mut pods = Pods::default();
    let mut failed: Option<CgroupError> = None;
    while !stop.requested_within(EVERY).await {
        let root = keeper.cgroups.clone();
        let read = tokio::task::spawn_blocking(move || cgroup::read(&root)).await;
        // The thread ends without an answer only while the program ends.
        let Ok(read) = read else { return };
        let totals = meters.lock().unwrap_or_else(PoisonError::into_inner).totals();
        let now = clock.mono();
        pods.take(&rows, now);
        if let Err(error) = &read
            && failed.as_ref() != Some(error)
        {
            tracing::warn!("processor time of pods cannot be read, so what they draw is unknown's: {error}");
        }
        if failed.is_some() && read.is_ok() {
            tracing::info!("processor time of pods is read again");
        }
        failed = read.as_ref().err().cloned();
        keeper.charge(now, totals, read.ok(), &pods);
    }
}

impl Keeper {
    fn charge(&mut self, now: Mono, totals: Totals, cpu: Option<CpuTotals>, pods: &Pods) {
        let mut books = self.books.open();
        (books.cgroups, books.gpus) = (cpu.is_some(), !totals.gpus.is_empty());
        let held = books.answer.held(now);
        let interval =
            self.state.interval(now, Seen { totals, cpu, processors: self.processors }, pods, held);
        books.floor = self.state.floor.watts();
        if let Some(interval) = interval {
            books.ledger.take(&interval);
        }
    }
}

/// What was read of the machine.
struct Seen {
    totals: Totals,
    cpu: Option<CpuTotals>,
    processors: Option<u64>,
}

/// What is remembered from one second to the next.
#[derive(Debug, Default)]
struct State {
    totals: Totals,
    cpu: CpuMeter,
    floor: IdleFloor,
}

impl State {
    /// What happened since the last call; `None` while the meters have not been read again.
    fn interval(
        &mut self,
        now: Mono,
        Seen { totals, cpu, processors }: Seen,
        pods: &Pods,
        held: Option<&Held>,
    ) -> Option<Interval> {
        let at = totals.at?;
        // Energy and processor time are of the same span only if both are taken at the same moments.
        if self.totals.at == Some(at) {
            return None;
        }
        let span = self.totals.at.and_then(|before| at.since(before)).unwrap_or(Micros::ZERO);
        let used = cpu.and_then(|cpu| self.cpu.take(cpu));
        let packages = totals.packages.since(self.totals.packages);
        let busy = used.as_ref().map(|used| used.machine).filter(|_| processors.is_some());
        self.floor.take(packages, span, busy, processors.unwrap_or(0));
        let before = std::mem::replace(&mut self.totals, totals);
        let gpu = |(key, total): (&Key, &Drawn)| {
            (total.since(before.gpus.get(key).copied().unwrap_or_default()), holders(key, held, pods))
        };
        Some(Interval {
            at: now,
            span,
            packages,
            used: used.map(|used| charged(used, pods)),
            floor: self.floor.watts(),
            gpus: self.totals.gpus.iter().map(gpu).collect(),
        })
    }
}

fn charged(used: CpuUsed, pods: &Pods) -> Used {
    let CpuUsed { machine: _, pods: of_pods, unseen, system } = used;
    Used { pods: of_pods.into_iter().map(|(uid, used)| (pods.of_uid(&uid), used)).collect(), unseen, system }
}

fn holders(key: &Key, held: Option<&Held>, pods: &Pods) -> Holders {
    let Some(held) = held else { return Holders::Unknown };
    let names = held.of.get(key).into_iter().flatten();
    // A pod that has ended holds nothing, though some kubelets still tell it.
    let holding: Vec<_> = names
        .filter(|name| !pods.has_ended(&name.namespace, &name.name))
        .map(|name| pods.of_name(&name.namespace, &name.name))
        .collect();
    match (holding.is_empty(), held.elsewhere) {
        (false, _) => Holders::Pods(holding),
        (true, 0) => Holders::Nobody,
        // Somebody holds a GPU, or a part of one, that cannot be told from this one.
        (true, _) => Holders::Unknown,
    }
}

/// The meters of the control thread, if there is to be a ledger.
pub(crate) fn meters(settings: &Settings) -> Option<SharedMeters> {
    settings.energy.is_some().then(|| Arc::new(Mutex::new(Meters::new(micros(settings.period)))))
}

/// The root of the host's files, as the machine's settings say it.
pub(crate) fn root(root: Option<&Path>) -> PathBuf {
    root.unwrap_or_else(|| Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests;
