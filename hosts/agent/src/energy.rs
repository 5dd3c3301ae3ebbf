//! The energy ledger: whom the joules of this node are charged to (docs/adr/0028). It decides nothing, and nothing depends on it.
//!
//! ```text
//!  control thread ──reports──▶ meter ──what was drawn──┐
//!                  └─────────▶ users ──who used GPUs───┤
//!  cgroups of pods ───────────▶ cgroup ──CPU time──────┼──▶ spans ──▶ ledger ──▶ metrics
//!  Kepler, if it is named ────▶ kepler ──of pods───────┤
//!  kubelet ───────────────────▶ pod_resources ─GPUs────┤
//!  pods of the API ───────────▶ pods ──whose they are──┘
//! ```
//!
//! Each second what was drawn since the last second is charged. Whatever is not known is charged to `unknown`: a source that does not
//! answer never makes energy disappear.

mod cgroup;
mod floor;
mod kepler;
mod ledger;
mod meter;
mod metrics;
mod pod_resources;
mod pods;
mod share;
mod source;
mod spans;
mod users;

pub use cgroup::pod_of_group;
pub use kepler::kepler_sums;
pub(crate) use meter::Meters;
pub use metrics::EnergyPrices;
pub use pod_resources::held_devices;
pub(crate) use pod_resources::{Held as HeldCards, Kubelet, LastAnswer, TIMEOUT as KUBELET_TIMEOUT};
pub(crate) use pods::PodOwner;

use crate::metrics::PowerDetail;
use crate::settings::Settings;
use cgroup::{CgroupError, CpuTotals};
use host_kit::clock::{HostClock, Mono, micros};
use host_kit::config::{Url, UrlTemplate};
use host_kit::metrics::MetricsRegistry;
use host_kit::reflect::Rows;
use host_kit::shutdown::{Stop, Tasks};
use kepler::{KeplerLooks, KeplerSource};
use ledger::{Bounds, Ledger};
use meter::Totals;
use metrics::{Looks, Scrape, SharedBooks};
use pod_resources::Look;
use pods::Pods;
use spans::{Seen, State};
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
    /// Whether each pod has series of its own beside its workload's.
    pub pods: bool,
    /// Where the Kepler of a node shows its metrics, if it is to say what pods use.
    pub kepler: Option<UrlTemplate>,
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
    drop(KeplerLooks::register(registry));
}

impl NodeLedger {
    /// Starts the tasks of the ledger.
    pub(crate) fn start(self, registry: &mut MetricsRegistry, tasks: &mut Tasks, stop: &Stop) {
        let books = SharedBooks::new(Ledger::new(Bounds::STANDARD));
        let kepler = self.settings.kepler.as_ref().and_then(|url| kepler_source(url, &self.node, registry));
        let scrape = Scrape {
            node: self.node,
            books: books.clone(),
            prices: self.settings.prices,
            pods: self.settings.pods,
            detail: self.detail,
            clock: self.clock.clone(),
        };
        scrape.register(registry);
        let looks = Looks::register(registry);
        if let Some(source) = kepler {
            books.open().kepler = Some(false);
            let pages = books.clone();
            tasks.spawn("kepler", source.follow(move |page| pages.open().page = Some(page), stop.clone()));
        }
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

fn kepler_source(url: &UrlTemplate, node: &str, registry: &mut MetricsRegistry) -> Option<KeplerSource> {
    let looks = KeplerLooks::register(registry);
    let url = url.for_node(node).map_err(|wrong| wrong.to_string());
    let source = |url: Url| KeplerSource::new(url, node, looks).map_err(|error| error.to_string());
    let source = url.and_then(source);
    source.inspect_err(|why| tracing::error!("ENERGY_KEPLER_URL: Kepler cannot be asked: {why}")).ok()
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
        let kepler = books.page.take();
        let held = books.answer.held(now);
        let seen = Seen { totals, cpu, processors: self.processors, kepler };
        let interval = self.state.interval(now, seen, pods, held);
        books.floor = self.state.floor.watts();
        books.kepler = books.kepler.map(|_| self.state.kepler.is_live());
        books.ratio = self.state.kepler.ratio();
        if let Some(interval) = interval {
            books.ledger.take(&interval);
        }
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
