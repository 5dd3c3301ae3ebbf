//! Controls the machine that the agent runs on: node-kit's control loop in a thread of its own.
//!
//! ```text
//!  start ──▶ Waiting (another process is the writer, or the journal cannot be used; tried again)
//!              │ the lock is free
//!              ▼
//!            Running ──stop──▶ Ended (caps stay, or with ON_EXIT=restore the originals come back)
//! ```
//!
//! The loop runs at its own period, independent of the API and of all asynchronous code. It receives the desired state
//! through node-kit's handle, and publishes what it knows as the latest [`View`]. If the thread ends without having
//! been asked to, the channel of views closes and the program ends, so that it is started again.

mod identity;
pub(crate) mod restore;
mod view;

use crate::energy::SharedMeters;
use crate::gpus::{self, CardTap};
use crate::machine::View;
use crate::plug::Plug;
use crate::settings::{LeaseExpiry, LeaseSettings, MachineSettings, Settings};
use host_kit::clock::{HostClock, micros};
use host_kit::health::{CheckResult, Heartbeat};
use joulie_core::node::lease::{LeaseJitter, LeaseLaw, OnExpiry};
use joulie_core::placement::freshness::UnixTime;
use node_kit::{
    Boot, Config, ConfigError, Desire, HardwareSources, LeaseTerms, LockError, NodeAccess, NodeHandle,
    NodeParts, OpenError, OpenNode, Time,
};
use std::hash::{DefaultHasher, Hasher};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The front's handle to the thread. Clones share it.
#[derive(Clone)]
pub(crate) struct Host {
    shared: Arc<Mutex<Shared>>,
    ends: Sender<Ending>,
}

/// What both sides share.
struct Shared {
    handle: Option<NodeHandle>,
    desire: Desire,
    standing: Standing,
    /// How the loop is to end, once it was asked to.
    ending: Option<Ending>,
}

/// The state of the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It cannot open the machine yet, for this reason.
    Waiting(String),
    /// It controls the machine.
    Running,
    /// It has ended.
    Ended,
}

/// How the loop is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The caps stay.
    Keep,
    /// The originals are restored first.
    Restore,
}

/// What else is told what the thread reads.
#[derive(Clone, Default)]
pub(crate) struct Taps {
    /// The meters of the energy ledger.
    pub(crate) meters: Option<SharedMeters>,
    /// The cards of GPU objects.
    pub(crate) cards: Option<CardTap>,
    /// The node's own meter.
    pub(crate) plug: Option<Plug>,
}

/// The thread's side.
struct Runner {
    shared: Arc<Mutex<Shared>>,
    asked: Receiver<Ending>,
    config: Config,
    found: identity::Identity,
    views: watch::Sender<Option<View>>,
    beat: Heartbeat,
    clock: Arc<dyn HostClock>,
    taps: Taps,
}

/// How long to wait between two attempts to open the machine: the previous process may take a while to end.
const OPEN_AGAIN: Duration = Duration::from_millis(200);
/// A library may have to be loaded, or a driver may have to wake a GPU.
const BACKENDS_OPEN_WITHIN: Duration = Duration::from_secs(10);
/// How long to retry at the end if hardware refuses.
const RESTORE_WITHIN: Duration = Duration::from_secs(10);

/// What the front receives when a machine is started.
pub(crate) struct Started {
    pub(crate) host: Host,
    pub(crate) views: watch::Receiver<Option<View>>,
}

/// Starts the thread.
pub(crate) fn start(
    settings: &Settings,
    node: &str,
    machine: &MachineSettings,
    clock: Arc<dyn HostClock>,
    (beat, taps): (Heartbeat, Taps),
) -> Result<Started, StartError> {
    let config = config(settings, node, machine).map_err(StartError::Config)?;
    if let Some(missing) = machine.root.as_deref().and_then(identity::missing) {
        tracing::warn!("{missing}");
    }
    let (views, seen) = watch::channel(None);
    let (ends, asked) = std::sync::mpsc::channel();
    let shared = Arc::new(Mutex::new(Shared {
        handle: None,
        desire: Desire::UNKNOWN,
        standing: Standing::Waiting("the machine is being opened".to_owned()),
        ending: None,
    }));
    let runner = Runner {
        shared: shared.clone(),
        asked,
        found: identity::Identity::read(machine.root.as_deref()),
        config,
        views,
        beat,
        clock,
        taps,
    };
    let thread = std::thread::Builder::new().name("control".to_owned());
    thread.spawn(move || runner.run()).map_err(StartError::Thread)?;
    Ok(Started { host: Host { shared, ends }, views: seen })
}

/// Why the thread cannot be started.
#[derive(Debug)]
pub enum StartError {
    /// Its configuration is refused.
    Config(ConfigError),
    /// The system cannot start the thread.
    Thread(std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(error @ ConfigError::Period) => write!(f, "RECONCILE_INTERVAL: {error}"),
            Self::Config(error @ ConfigError::Registers) => write!(f, "MSR, HOST_ROOT: {error}"),
            Self::Thread(error) => write!(f, "cannot start the thread of the control loop: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

pub(crate) fn sources(machine: &MachineSettings) -> HardwareSources {
    let mut sources = machine.root.as_deref().map_or_else(HardwareSources::machine, HardwareSources::below);
    sources.registers = machine.registers;
    sources.with_libraries(machine.nvml.clone(), machine.rocm.clone())
}

fn config(settings: &Settings, node: &str, machine: &MachineSettings) -> Result<Config, ConfigError> {
    let access = if settings.simulate_only { NodeAccess::Look } else { NodeAccess::Control };
    let mut config =
        Config::standard(sources(machine), machine.state.clone(), access, micros(settings.period))?;
    config.cpu.floor = settings.floors.cpu;
    config.gpu.floor = settings.floors.gpu;
    config.law = settings.dvfs.law;
    config.frequency_floor = settings.dvfs.floor;
    config.lease = lease(&settings.lease, node);
    config.grants = NodeParts { cpu: machine.cpu, gpu: machine.gpu };
    config.tells_uses = settings.energy.is_some();
    Ok(config)
}

/// The lease. It is tracked even where its end changes nothing, so that its end can be seen.
pub(crate) fn lease(lease: &LeaseSettings, node: &str) -> Option<LeaseTerms> {
    let term = micros(lease.term);
    let on_expiry = match lease.expiry {
        LeaseExpiry::Hold => OnExpiry::Hold,
        // The nodes of a rack relax at different times within one more term, so their power does not rise at one
        // instant.
        LeaseExpiry::Relax => OnExpiry::Relax { delay: LeaseJitter::of_identity(hash(node)).of(term) },
        LeaseExpiry::Safe => OnExpiry::Safe,
    };
    let law = LeaseLaw::new(term, on_expiry).ok()?;
    Some(LeaseTerms { law, safe_cpu: lease.safe_cpu, safe_gpu: lease.safe_gpu })
}

/// A hash that stays the same for a node when the program restarts.
fn hash(node: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(node.as_bytes());
    hasher.finish()
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Sets what is desired. Repeating it changes nothing.
    pub(crate) fn desire(&self, desire: Desire) {
        let mut shared = lock(&self.shared);
        shared.desire = desire;
        if let Some(handle) = &shared.handle {
            handle.desire(desire);
        }
    }

    /// Reports when the desired state was last confirmed to be current.
    pub(crate) fn renewed(&self, at: UnixTime) {
        if let Some(handle) = &lock(&self.shared).handle {
            handle.renewed(at);
        }
    }

    /// The state of the thread.
    pub(crate) fn standing(&self) -> Standing {
        lock(&self.shared).standing.clone()
    }

    /// For `/readyz`.
    pub(crate) fn check(&self) -> CheckResult {
        match self.standing() {
            Standing::Running => CheckResult::Pass,
            Standing::Waiting(why) => CheckResult::Fail(why),
            Standing::Ended => CheckResult::Fail("the control loop has ended".to_owned()),
        }
    }

    /// Asks the loop to end; only the first request counts.
    pub(crate) fn end(&self, ending: Ending) {
        let mut shared = lock(&self.shared);
        shared.ending.get_or_insert(ending);
        if let Some(handle) = &shared.handle {
            handle.stop();
        }
        // If the thread has already ended, nobody receives the request.
        let _asked = self.ends.send(ending);
    }
}

impl Runner {
    fn run(self) {
        let node = self.open();
        if let Some(mut node) = node {
            self.control(&mut node);
            self.end(&mut node);
        }
        lock(&self.shared).standing = Standing::Ended;
    }

    /// Opens the machine as soon as possible; returns `None` once the end was asked for.
    fn open(&self) -> Option<OpenNode> {
        let mut said: Option<String> = None;
        loop {
            self.beat.beat(self.clock.mono());
            match open_node(self.found.boot.as_deref(), &self.config) {
                Ok(node) => {
                    if let Some(why) = said {
                        tracing::info!("the machine is open now; the reason for the delay was: {why}");
                    }
                    return Some(node);
                }
                Err(error) => {
                    let why = waiting(&error);
                    lock(&self.shared).standing = Standing::Waiting(why.clone());
                    if said.as_ref() != Some(&why) {
                        tracing::warn!("{why}; this is retried until it succeeds");
                        said = Some(why);
                    }
                }
            }
            match self.asked.recv_timeout(OPEN_AGAIN) {
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn control(&self, node: &mut OpenNode) {
        node.wait_for_backends(BACKENDS_OPEN_WITHIN);
        {
            let mut shared = lock(&self.shared);
            let handle = node.handle();
            handle.desire(shared.desire);
            shared.handle = Some(handle);
            shared.standing = Standing::Running;
            if shared.ending.is_some() {
                return;
            }
        }
        let mut memory = view::Memory::default();
        node.run_telling(|report| {
            self.beat.beat(self.clock.mono());
            if let Some(cards) = &self.taps.cards {
                gpus::tell(cards, report);
            }
            if let Some(meters) = &self.taps.meters {
                meters.lock().unwrap_or_else(PoisonError::into_inner).take(report);
            }
            let plug = self.taps.plug.as_ref();
            let plug = plug.and_then(|plug| plug.look(view::devices(report), self.clock.mono()));
            let view = memory.view(report, &self.found, plug);
            self.views.send_if_modified(|last| {
                let changed = last.as_ref() != Some(&view);
                if changed {
                    *last = Some(view);
                }
                changed
            });
        });
    }

    fn end(&self, node: &mut OpenNode) {
        let (ending, grant) = {
            let shared = lock(&self.shared);
            (shared.ending.unwrap_or(Ending::Keep), shared.desire.grant)
        };
        let ending = match (ending, grant) {
            (Ending::Restore, Some(grant)) => {
                tracing::warn!("grant {} of {} W is in force, so the limits stay", grant.serial, grant.watts);
                Ending::Keep
            }
            (ending, _) => ending,
        };
        match ending {
            Ending::Keep => match node.journal().len() {
                0 => tracing::info!("the control loop has ended; Joulie has set no limit here"),
                count => tracing::info!("the control loop has ended; {count} limits set by Joulie stay"),
            },
            Ending::Restore => match node.restore(RESTORE_WITHIN) {
                Ok(()) => tracing::info!("the control loop has ended; the originals are restored"),
                Err(left) => {
                    for entry in &left.entries {
                        tracing::error!("not put back: {}", restore::describe(entry));
                    }
                }
            },
        }
    }
}

/// Opens the machine in the boot that its files name, if they name one.
fn open_node(boot: Option<&str>, config: &Config) -> Result<OpenNode, OpenError> {
    match boot.and_then(Boot::new) {
        Some(boot) => OpenNode::open_in(config.clone(), Time::real(), boot),
        None => OpenNode::open(config.clone(), Time::real()),
    }
}

fn waiting(error: &OpenError) -> String {
    match error {
        OpenError::Lock(LockError::Held { holder, .. }) => {
            format!("waiting: this node's limits are being written by {holder}")
        }
        OpenError::Lock(LockError::File { .. }) | OpenError::Journal(_) | OpenError::Thread(_) => {
            format!("the machine cannot be opened: {error}")
        }
    }
}
