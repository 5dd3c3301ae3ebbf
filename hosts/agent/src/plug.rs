//! The node's own meter: what it draws at its plug, with fans and the losses of its supplies (docs/adr/0031).
//!
//! ```text
//!  acpi ──thread──┐
//!  dcmi ──thread──┼─ follow: the first of NODE_METER that answers ──▶ Plug ──PlugView──▶ View ──▶ metrics, NodeHardware
//!  redfish ─HTTP──┘                                                    ▲
//!                                    control loop: what packages and GPUs draw
//! ```
//!
//! A meter takes seconds, or hangs: the control loop only reads the last sample, and a meter that does not come back costs
//! its own thread. A sample carries its source and its age. One that is too old is none, and none is never 0 W. What
//! devices draw is contained in it and is never added to it.

pub mod document;
mod metrics;
mod redfish;
mod rest;
mod worker;

pub(crate) use metrics::describe as describe_metrics;
pub(crate) use rest::Differences;

use crate::metrics::PowerDetail;
use hal_plug::{AcpiMeter, DcmiMeter, DevIpmi, PlugError, PlugReading, Root};
use host_kit::clock::{HostClock, Mono};
use host_kit::closed_label;
use host_kit::config::{UrlTemplate, Wrong};
use host_kit::http_client::TrustError;
use host_kit::login::Login;
use host_kit::metrics::MetricsRegistry;
use host_kit::shutdown::{Stop, Tasks};
use metrics::PlugMetrics;
use power_hal::ErrorKind;
use power_units::{Role, Watts};
use redfish::Redfish;
use rest::DeviceLog;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use worker::Worker;

closed_label! {
    /// A meter of the whole node.
    pub enum PlugSource {
        /// The ACPI power meter.
        Acpi = "acpi",
        /// The management controller, by IPMI DCMI.
        Dcmi = "dcmi",
        /// The management controller, by Redfish.
        Redfish = "redfish",
    }
}

closed_label! {
    /// The outcome of asking a meter of the whole node.
    pub(crate) enum PlugLook {
        /// It answered.
        Read = "read",
        /// The node has no such meter, or it does not know the question.
        Absent = "absent",
        /// It is busy, or the last question is still open.
        Busy = "busy",
        /// It did not answer in time.
        Late = "late",
        /// It does not permit it.
        Denied = "denied",
        /// Its answer is none, or says what no node can draw.
        Malformed = "malformed",
        /// It says less than packages and GPUs draw, so it is not believed.
        Below = "below-devices",
        /// It could not be reached.
        Failed = "failed",
    }
}

/// The settings of the node's own meter.
#[derive(Clone, Debug, PartialEq)]
pub struct PlugSettings {
    /// The meters, the first that answers counts; empty for none.
    pub order: Vec<PlugSource>,
    /// How often they are asked.
    pub every: Duration,
    /// Where Redfish is, if it is in the order.
    pub redfish: Option<RedfishSettings>,
}

/// How Redfish is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct RedfishSettings {
    /// The service, or the document that has the power.
    pub url: UrlTemplate,
    /// The certificate authorities; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// Who asks.
    pub login: Login,
}

/// Why a meter says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trouble {
    kind: ErrorKind,
    text: String,
}

impl Trouble {
    fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    const fn look(&self) -> PlugLook {
        match self.kind {
            ErrorKind::NotSupported => PlugLook::Absent,
            ErrorKind::Busy => PlugLook::Busy,
            ErrorKind::Timeout => PlugLook::Late,
            ErrorKind::PermissionDenied | ErrorKind::Locked => PlugLook::Denied,
            ErrorKind::BadData | ErrorKind::OutOfRange => PlugLook::Malformed,
            ErrorKind::Gone | ErrorKind::Io => PlugLook::Failed,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<PlugError> for Trouble {
    fn from(error: PlugError) -> Self {
        Self::new(power_hal::Error::kind(&error), error.to_string())
    }
}

/// A sample of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlugSample {
    source: PlugSource,
    watts: Watts,
    at: Mono,
}

/// What is known of the plug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlugView {
    /// The meter that last answered.
    pub(crate) source: PlugSource,
    /// What the node draws; `None` while the last sample is too old, or is not believed.
    pub(crate) watts: Option<Watts>,
    /// When the meter was read.
    pub(crate) at: Mono,
    /// What the node draws beside packages and GPUs: the middle of the last few samples.
    pub(crate) rest: Option<Watts>,
}

/// The last sample of the node's own meter. Clones share it; no holder of its lock waits for anything.
#[derive(Clone, Debug)]
pub(crate) struct Plug(Arc<Mutex<PlugState>>);

#[derive(Debug)]
struct PlugState {
    last: Option<PlugSample>,
    devices: DeviceLog,
    /// A sample that is older is none.
    fresh_for: Duration,
}

impl Plug {
    fn new(every: Duration) -> Self {
        // Two samples may be missed.
        let fresh_for = every.saturating_mul(3).saturating_add(ANSWER_WITHIN);
        Self(Arc::new(Mutex::new(PlugState { last: None, devices: DeviceLog::new(every), fresh_for })))
    }

    fn lock(&self) -> MutexGuard<'_, PlugState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what packages and GPUs draw together, and returns what is known of the plug; `None` before any meter has
    /// answered.
    pub(crate) fn look(&self, devices: Option<Watts>, now: Mono) -> Option<PlugView> {
        let mut state = self.lock();
        state.devices.take(now, devices);
        state.view(now)
    }

    fn record(&self, sample: PlugSample, over: Option<Duration>) {
        let mut state = self.lock();
        state.devices.compare(sample.at, over, sample.watts);
        state.last = Some(sample);
    }

    fn view(&self, now: Mono) -> Option<PlugView> {
        self.lock().view(now)
    }
}

impl PlugState {
    fn view(&self, now: Mono) -> Option<PlugView> {
        let PlugSample { source, watts, at } = self.last?;
        let is_fresh = now.since(at) <= self.fresh_for;
        let is_believed = !self.devices.is_below();
        let watts = Some(watts).filter(|_| is_fresh && is_believed);
        let rest = self.devices.rest().filter(|_| watts.is_some());
        Some(PlugView { source, watts, at, rest })
    }
}

/// A BMC may take seconds; one that takes longer is asked again at the next time.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long the kernel's IPMI driver is waited for, below that.
const BMC_PATIENCE: Duration = Duration::from_secs(8);
/// A meter that is not there, or does not know the question, is looked for this often.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

enum Meter {
    /// One that blocks.
    Apart(Worker),
    Redfish(Box<Redfish>),
}

impl Meter {
    async fn read(&mut self) -> Result<PlugReading, Trouble> {
        match self {
            Self::Apart(worker) => worker.read(ANSWER_WITHIN).await,
            Self::Redfish(redfish) => redfish.read().await,
        }
    }
}

/// One meter of the order.
struct Asked {
    source: PlugSource,
    meter: Meter,
    /// It is not asked before this.
    not_before: Mono,
    /// Its last failure, so that each is logged once.
    failing: Option<Trouble>,
}

/// What is needed to follow the meters of a node.
pub(crate) struct PlugParts<'a> {
    pub(crate) settings: &'a PlugSettings,
    pub(crate) node: &'a str,
    /// The root of the host's files; `None`: this machine.
    pub(crate) root: Option<&'a Path>,
    pub(crate) detail: PowerDetail,
    pub(crate) clock: Arc<dyn HostClock>,
    pub(crate) stop: Stop,
}

/// Why the meters cannot be followed.
#[derive(Debug)]
pub enum PlugStartError {
    /// The authorities of Redfish cannot be used.
    Trust(TrustError),
    /// The name of the node gives no URL.
    Url(Wrong),
    /// The system cannot start a thread.
    Thread(std::io::Error),
}

impl fmt::Display for PlugStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(wrong) => write!(f, "NODE_METER_REDFISH_URL: {wrong}"),
            Self::Trust(error) => write!(f, "NODE_METER_REDFISH_CA_FILE: {error}"),
            Self::Thread(error) => write!(f, "cannot start the thread of a meter: {error}"),
        }
    }
}

impl PlugParts<'_> {
    /// Follows the meters, if there are any in the settings.
    pub(crate) fn start(
        self,
        registry: &mut MetricsRegistry,
        tasks: &mut Tasks,
    ) -> Result<Option<Plug>, PlugStartError> {
        let Self { settings, node, root, detail, clock, stop } = self;
        if settings.order.is_empty() {
            return Ok(None);
        }
        let root = || root.map_or_else(Root::machine, Root::at);
        let mut meters = Vec::new();
        for &source in &settings.order {
            let meter = match (source, &settings.redfish) {
                (PlugSource::Acpi, _) => {
                    let mut meter = AcpiMeter::new(root());
                    Worker::start("meter-acpi", move || meter.read()).map(Meter::Apart)
                }
                (PlugSource::Dcmi, _) => {
                    let mut meter = DcmiMeter::over(DevIpmi::new(root(), BMC_PATIENCE));
                    Worker::start("meter-dcmi", move || meter.read()).map(Meter::Apart)
                }
                (PlugSource::Redfish, Some(redfish)) => {
                    let url = redfish.url.for_node(node).map_err(PlugStartError::Url)?;
                    let redfish = Redfish::new(&url, redfish).map_err(PlugStartError::Trust)?;
                    Ok(Meter::Redfish(Box::new(redfish)))
                }
                // The settings refuse this.
                (PlugSource::Redfish, None) => continue,
            };
            let meter = meter.map_err(PlugStartError::Thread)?;
            meters.push(Asked { source, meter, not_before: Mono::START, failing: None });
        }
        let plug = Plug::new(settings.every);
        let metrics = PlugMetrics::register(registry, node, detail);
        let every = settings.every;
        let shared = plug.clone();
        tasks.spawn("meter", async move {
            let work = follow(meters, &shared, &metrics, (every, &*clock));
            tokio::select! { () = work => {}, () = stop.requested() => {} }
        });
        Ok(Some(plug))
    }
}

/// Asks the meters again and again.
async fn follow(
    mut meters: Vec<Asked>,
    plug: &Plug,
    metrics: &PlugMetrics,
    (every, clock): (Duration, &dyn HostClock),
) {
    let mut now_by: Option<PlugSource> = None;
    loop {
        let by = ask(&mut meters, plug, metrics, clock).await;
        if let Some(source) = by.filter(|by| now_by != Some(*by)) {
            tracing::info!("the power at the plug is read by {}", source.word());
            now_by = Some(source);
        }
        let now = clock.mono();
        let view = plug.view(now);
        if by.is_some() && view.is_some_and(|view| view.watts.is_none()) {
            // The sample is new, so it is not believed.
            metrics.looked(view.map_or(PlugSource::Acpi, |view| view.source), PlugLook::Below);
        }
        metrics.show(view, now);
        tokio::time::sleep(every).await;
    }
}

/// Asks the meters in their order until one answers, and returns that one.
async fn ask(
    meters: &mut [Asked],
    plug: &Plug,
    metrics: &PlugMetrics,
    clock: &dyn HostClock,
) -> Option<PlugSource> {
    for Asked { source, meter, not_before, failing } in meters {
        if clock.mono() < *not_before {
            continue;
        }
        match meter.read().await {
            Ok(PlugReading { power, over }) => {
                let over = over.map(|over| Duration::from_micros(over.get()));
                // What is measured rounds up.
                let watts = power.to_watts(Role::Demand);
                plug.record(PlugSample { source: *source, watts, at: clock.mono() }, over);
                metrics.looked(*source, PlugLook::Read);
                if failing.take().is_some_and(|trouble| trouble.look() != PlugLook::Absent) {
                    tracing::info!("the meter {} answers again", source.word());
                }
                return Some(*source);
            }
            Err(trouble) => {
                let look = trouble.look();
                metrics.looked(*source, look);
                let is_new = failing.as_ref().is_none_or(|last| last.look() != look);
                if look == PlugLook::Absent {
                    *not_before = clock.mono().plus(LOOK_AGAIN);
                    tracing::debug!("the meter {}: {trouble}", source.word());
                } else if is_new {
                    tracing::warn!("the meter {} says nothing: {trouble}", source.word());
                }
                *failing = Some(trouble);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
