//! One thread per backend, and the mailbox between it and the control loop.
//!
//! The mailbox is bounded and holds the latest values: for each domain one reading, and for each of its controls one order
//! (a newer one replaces one that was not begun) and one outcome. So a driver call that never returns affects its own domains and nothing else:
//! the loop continues with readings that age, and an order without an outcome times out by its law. A second thread is
//! never started for the same device.
//!
//! ```text
//! Opening ──opened──▶ Ready ──list changed──▶ Ready, with the next epoch
//!    ▲                  (enumerates every minute; every second while a domain is gone,
//!    │                   every ten while a policy is left out)
//!    └──not opened: tried again, with growing waits
//! ```
//!
//! An *epoch* is one list of domains. An order for another epoch than the current one is refused as gone.

mod thread;
mod wakeup;

pub(crate) use wakeup::Wakeup;

use self::thread::{STACK, Thread};
use crate::cards::Cards;
use crate::driver::{Device, DriverError};
use crate::uses::GpuGroupUse;
use crate::{BackendKind, Time};
use joulie_core::node::backoff::Backoff;
use joulie_core::node::ticket::Ticket;
use power_hal::{Control, Domain, ErrorKind, Sample, Setting};
use power_units::Stamp;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The order for a control of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Bring this setting into force.
    Set(Setting),
    /// Restore the original of this control.
    Release(Control),
}

impl Order {
    const fn control(self) -> Control {
        match self {
            Self::Set(setting) => setting.control(),
            Self::Release(control) => control,
        }
    }
}

/// The number of controls that have a place of their own for an order. A throttle has that of the power limit: no domain
/// has both.
const CONTROLS: usize = 2;

/// Where the orders and outcomes of a control are in the lists of a backend with so many domains: first those of the power
/// limits of all domains, then those of their frequency limits.
const fn slot(domains: usize, domain: usize, control: Control) -> usize {
    match control {
        Control::Power | Control::Throttle => domain,
        Control::Frequency => domains + domain,
    }
}

/// The outcome of the order with this ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Set { ticket: Ticket, read_back: Result<Setting, ErrorKind> },
    Released { ticket: Ticket, outcome: Result<(), ErrorKind> },
}

/// The state of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendState {
    /// It is being opened for the first time.
    Opening,
    /// It answers.
    Ready,
    /// It could not be opened; it is tried again.
    Failed(DriverError),
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shared state of the two threads.
#[derive(Debug)]
struct Letters {
    stop: bool,
    /// The thread has closed its device.
    ended: bool,
    /// The last requested batch of readings, and the last answered one.
    asked: u64,
    answered: u64,
    /// An order for each [`slot`].
    orders: Vec<Option<(Ticket, Order)>>,
    some_order: bool,
    standing: BackendState,
    /// Since when the thread is inside a driver call.
    inside: Option<Stamp>,
    epoch: u64,
    domains: Arc<[Domain]>,
    tables: Arc<[Box<[u32]>]>,
    readings: Vec<Result<Sample, ErrorKind>>,
    outcomes: Vec<Option<Outcome>>,
    complaints: Arc<[String]>,
    cards: Option<Arc<Cards>>,
    uses: Option<Arc<[GpuGroupUse]>>,
    troubles: u64,
    last_trouble: Option<DriverError>,
}

#[derive(Debug)]
struct Mailbox {
    letters: Mutex<Letters>,
    wake: Condvar,
}

/// The control loop's side of a backend.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) kind: BackendKind,
    mailbox: Arc<Mailbox>,
    /// The last collected state; the loop reads nothing else between two collections.
    pub(crate) view: View,
}

/// A copy of a backend's last state.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) standing: BackendState,
    pub(crate) inside: Option<Stamp>,
    pub(crate) answered: u64,
    pub(crate) epoch: u64,
    pub(crate) domains: Arc<[Domain]>,
    /// The frequencies that each domain can be limited to, kHz, if its driver has a table of them.
    pub(crate) tables: Arc<[Box<[u32]>]>,
    pub(crate) readings: Vec<Result<Sample, ErrorKind>>,
    outcomes: Vec<Option<Outcome>>,
    pub(crate) complaints: Arc<[String]>,
    /// What its GPUs are apart from their power, if it has any by its kind.
    pub(crate) cards: Option<Arc<Cards>>,
    /// Which control groups used its GPUs in the last period of which it tells, if that is asked for.
    pub(crate) uses: Option<Arc<[GpuGroupUse]>>,
    pub(crate) troubles: u64,
    pub(crate) last_trouble: Option<DriverError>,
}

/// Opens a backend; it is called again until it succeeds.
pub(crate) type Opener = Box<dyn FnMut() -> Result<Box<dyn Device>, DriverError> + Send>;

impl Worker {
    /// Starts the thread of a backend.
    pub(crate) fn start(
        kind: BackendKind,
        opener: Opener,
        retry: Backoff,
        time: Time,
        wakeup: Arc<Wakeup>,
    ) -> std::io::Result<Self> {
        let none: Arc<[Domain]> = Arc::from([]);
        let letters = Letters {
            stop: false,
            ended: false,
            asked: 0,
            answered: 0,
            orders: Vec::new(),
            some_order: false,
            standing: BackendState::Opening,
            inside: None,
            epoch: 0,
            domains: none.clone(),
            tables: Arc::from([]),
            readings: Vec::new(),
            outcomes: Vec::new(),
            complaints: Arc::from([]),
            cards: None,
            uses: None,
            troubles: 0,
            last_trouble: None,
        };
        let view = View {
            standing: BackendState::Opening,
            inside: None,
            answered: 0,
            epoch: 0,
            domains: none,
            tables: Arc::from([]),
            readings: Vec::new(),
            outcomes: Vec::new(),
            complaints: Arc::from([]),
            cards: None,
            uses: None,
            troubles: 0,
            last_trouble: None,
        };
        let mailbox = Arc::new(Mailbox { letters: Mutex::new(letters), wake: Condvar::new() });
        let theirs = mailbox.clone();
        let thread = std::thread::Builder::new().name(format!("joulie-{}", kind.label())).stack_size(STACK);
        thread.spawn(move || Thread { kind, mailbox: theirs, wakeup, time, retry, opener }.run())?;
        Ok(Self { kind, mailbox, view })
    }

    /// Requests a batch of readings.
    pub(crate) fn ask(&self, ticket: u64) {
        lock(&self.mailbox.letters).asked = ticket;
        self.mailbox.wake.notify_one();
    }

    /// Whether the batch was answered.
    pub(crate) fn has_answered(&self, ticket: u64) -> bool {
        lock(&self.mailbox.letters).answered >= ticket
    }

    /// Gives an order for a domain of the view's epoch; it replaces one that was not begun. Returns false if the epoch
    /// has changed, which the loop learns in its next step.
    pub(crate) fn order(&self, domain: usize, ticket: Ticket, order: Order) -> bool {
        let mut letters = lock(&self.mailbox.letters);
        let domains = letters.domains.len();
        if letters.epoch != self.view.epoch || domain >= domains {
            return false;
        }
        let slot = slot(domains, domain, order.control());
        letters.orders[slot] = Some((ticket, order));
        letters.outcomes[slot] = None;
        letters.some_order = true;
        drop(letters);
        self.mailbox.wake.notify_one();
        true
    }

    /// Copies the backend's state since the last call; each outcome is taken once.
    pub(crate) fn collect(&mut self) {
        let mut letters = lock(&self.mailbox.letters);
        let view = &mut self.view;
        view.inside = letters.inside;
        view.answered = letters.answered;
        if view.standing != letters.standing {
            view.standing = letters.standing.clone();
        }
        if view.troubles != letters.troubles {
            view.troubles = letters.troubles;
            view.last_trouble.clone_from(&letters.last_trouble);
        }
        if view.epoch != letters.epoch {
            view.epoch = letters.epoch;
            view.domains = letters.domains.clone();
            view.tables = letters.tables.clone();
            view.complaints = letters.complaints.clone();
            view.readings.resize(letters.readings.len(), Err(ErrorKind::Timeout));
            view.outcomes.resize(letters.outcomes.len(), None);
        }
        view.cards.clone_from(&letters.cards);
        view.uses.clone_from(&letters.uses);
        view.readings.copy_from_slice(&letters.readings);
        view.outcomes.copy_from_slice(&letters.outcomes);
        letters.outcomes.fill(None);
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.mailbox.letters).ended
    }

    /// Orders the thread to end as soon as its driver returns.
    pub(crate) fn stop(&self) {
        lock(&self.mailbox.letters).stop = true;
        self.mailbox.wake.notify_one();
    }
}

impl View {
    /// The outcome of the last order for a control of a domain, once.
    pub(crate) fn take_outcome(&mut self, domain: usize, control: Control) -> Option<Outcome> {
        self.outcomes.get_mut(slot(self.domains.len(), domain, control))?.take()
    }
}

/// The setting in force according to a sample.
pub(crate) fn setting_of(outcome: &Result<Sample, ErrorKind>, control: Control) -> Option<Setting> {
    let sample = outcome.as_ref().ok()?;
    match control {
        Control::Power => sample.power_limit.ok().map(Setting::Power),
        Control::Frequency => sample.frequency_limit.ok().map(Setting::Frequency),
        Control::Throttle => sample.throttle.ok().map(Setting::Throttle),
    }
}
