//! Opens a node: first the lock, then the journal, then the backends, each in its own thread.

use super::{Inbox, OpenNode};
use crate::backend::Wanted;
use crate::report::{NodeCounters, NodeReport};
use crate::time::Deadline;
use crate::worker::{BackendState, Wakeup, Worker};
use crate::{
    BackendKind, Boot, Config, Desire, HardwareSources, Journal, JournalError, LockError, NodeAccess,
    NodeLock, RegisterAccess, Time,
};
use hal_rapl::msr::{DeviceKind, MsrDevices};
use joulie_core::node::backend::Route;
use joulie_core::node::energy::{Gap, MeterReading};
use joulie_core::node::engine::{Engine, MachineEngine, Wiring};
use power_hal::Clock;
use power_units::Stamp;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Why a node cannot be opened. The hardware was not written to.
#[derive(Debug)]
pub enum OpenError {
    /// Another process writes to it.
    Lock(LockError),
    /// Its journal cannot be used.
    Journal(JournalError),
    /// A thread could not be started, or has ended too early.
    Thread(std::io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Journal(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread of the node: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// The engine. It is some 330 KiB, which are made on a stack: a thread that ends gives them back, and the one that runs the engine would
/// keep them.
fn started(config: &Config, now: Stamp) -> Result<Box<MachineEngine>, OpenError> {
    let lease = config.lease;
    let start = move || Box::new(Engine::start(Route::Host, Wiring::EachItsOwn, lease, now));
    let thread = std::thread::Builder::new().name("engine".to_owned());
    let thread = thread.spawn(start).map_err(OpenError::Thread)?;
    thread.join().map_err(|_| OpenError::Thread(std::io::Error::other("it has ended without the engine")))
}

impl OpenNode {
    /// Opens the hardware of this node. Backends open in their own threads; [`wait_for_backends`] waits for them. Caps
    /// that the journal contains are adopted as they are found.
    ///
    /// [`wait_for_backends`]: Self::wait_for_backends
    ///
    /// # Errors
    /// When another process is this node's writer, or the journal cannot be used.
    pub fn open(config: Config, time: Time) -> Result<Self, OpenError> {
        let boot = Boot::of_the_kernel().map_err(OpenError::Journal)?;
        Self::open_in(config, time, boot)
    }

    /// Like [`open`](Self::open), with a given boot, since virtual hardware has its own.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_in(config: Config, time: Time, boot: Boot) -> Result<Self, OpenError> {
        let lock = match config.access {
            NodeAccess::Look => None,
            NodeAccess::Control => Some(NodeLock::take(&config.state).map_err(OpenError::Lock)?),
        };
        let journal = match (Journal::open(&config.state, boot.clone()), config.access) {
            (Ok(journal), _) => journal,
            (Err(error), NodeAccess::Control) => return Err(OpenError::Journal(error)),
            (Err(error), NodeAccess::Look) => {
                log::warn!("the journal cannot be read, so the owner of the limits is unknown: {error}");
                Journal::unread(&config.state, boot)
            }
        };
        if journal.void() > 0 {
            log::info!("{} originals of an earlier boot are void", journal.void());
        }
        if config.access == NodeAccess::Control {
            journal.tidy();
            hand_over(&config.sources, &journal);
        }
        let engine = started(&config, time.now())?;
        let wakeup = Arc::new(Wakeup::default());
        let mut workers = Vec::new();
        for kind in BackendKind::ALL {
            if !kind.is_wanted(&config.sources) {
                continue;
            }
            let Config { access, tells_uses, .. } = config;
            let wanted = Wanted { kind, sources: config.sources.clone(), access, tells_uses };
            let (clock, share) = (time.clone(), journal.of(kind));
            // A thread that hangs in its driver when the node is closed may still write, so it holds the lock until
            // its end.
            let hold = lock.as_ref().map(NodeLock::share).transpose().map_err(OpenError::Thread)?;
            let opener = Box::new(move || {
                let _held_with_this = &hold;
                wanted.open(&clock, share.clone())
            });
            match Worker::start(kind, opener, config.retry, time.clone(), wakeup.clone()) {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    // Otherwise the running threads would hold the lock for the life of the process.
                    workers.iter().for_each(Worker::stop);
                    return Err(OpenError::Thread(error));
                }
            }
        }
        Ok(Self {
            time,
            journal,
            _lock: lock,
            wakeup,
            inbox: Arc::new(Mutex::new(Inbox::new())),
            published: Arc::default(),
            workers,
            epochs: 0,
            laws: config.laws(),
            engine,
            packages: Vec::new(),
            gpus: Vec::new(),
            clocks: Vec::new(),
            causes: Vec::new(),
            policies: Vec::new(),
            journal_seen: 0,
            lease_event: None,
            desire: Desire::UNKNOWN,
            ticket: 0,
            power: MeterReading::Missing(Gap::NoMeter),
            counts: NodeCounters::default(),
            report: NodeReport::default(),
            orders: Vec::new(),
            config,
        })
    }

    /// Waits until every backend has opened or has failed to, for at most `wait`. Returns false if one has done
    /// neither.
    pub fn wait_for_backends(&mut self, wait: Duration) -> bool {
        let until = Deadline::after(wait);
        loop {
            let heard = self.wakeup.count();
            self.collect();
            let opening = self.workers.iter().any(|worker| worker.view.standing == BackendState::Opening);
            if !opening || until.is_over() {
                return !opening;
            }
            self.wakeup.wait(heard, until);
        }
    }
}

/// If powercap has become available for packages whose limits were set through registers, it gets their originals.
/// Otherwise it would take the caps for the owner's limits.
fn hand_over(sources: &HardwareSources, journal: &Journal) {
    if !journal.entries().iter().any(|entry| entry.backend == BackendKind::Msr) {
        return;
    }
    let kind = match sources.registers {
        RegisterAccess::MsrSafe => DeviceKind::MsrSafe,
        RegisterAccess::Msr | RegisterAccess::Msru | RegisterAccess::Off => DeviceKind::Msr,
    };
    let mut device = MsrDevices::new(sources.root.clone(), kind, hal_files::Access::Read);
    let (mut from, mut to) = (journal.of(BackendKind::Msr), journal.of(BackendKind::Powercap));
    match hal_rapl::msr::hand_over(&sources.root, &mut device, &mut from, &mut to) {
        Ok(0) => {}
        Ok(count) => {
            log::info!("{count} packages that were capped by registers are now handled by powercap");
            journal.tidy();
        }
        Err(error) => log::warn!(
            "limits that were set by registers cannot be put back by powercap: {error}; load the msr driver and start \
             again"
        ),
    }
}
