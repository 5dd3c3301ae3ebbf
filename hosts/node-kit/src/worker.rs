//! One thread per backend, and the mailbox between it and the control loop.
//!
//! The mailbox is bounded and holds the latest of everything: one order for each domain (a newer one takes the place
//! of one that was not begun), one reading and one outcome for each domain. So a driver call that never returns blinds
//! its own domains and nothing else: the loop goes on with readings that age, and an order without an outcome times
//! out by the law that gave it. Nobody ever starts a second thread on the same device.
//!
//! ```text
//! Opening ──opened──▶ Ready ──list changed──▶ Ready, with the next epoch
//!    ▲                  (a look every minute; every second while a domain is gone,
//!    │                   every ten while a policy is left out)
//!    └──not opened: tried again, with growing waits
//! ```
//!
//! An *epoch* is a list of domains. An order for another epoch than the present one is refused as gone.

use crate::driver::{Device, Trouble};
use crate::time::Deadline;
use crate::{BackendKind, Time};
use joulie_core::node::backoff::Backoff;
use power_hal::{Clock, Control, Domain, ErrorKind, Handle, Key, Reading, Sample, Setting};
use power_units::{Micros, Stamp};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often the hardware is listed anew without a reason.
const LOOK_EVERY: Micros = Micros::new(60_000_000);
/// How often while a frequency policy is left out: its processors were offline, and nothing says that they are back. A look
/// at 128 policies takes some ten milliseconds.
const LOOK_FOR_POLICIES: Micros = Micros::new(10_000_000);
/// The shortest time between two looks that have a reason.
const LOOK_AGAIN: Micros = Micros::new(1_000_000);

/// The stack of a thread. A library of a vendor is opened by a table of some hundred functions, which a build without
/// optimisation has on the stack several times over; what is not touched costs address space and no memory.
const STACK: usize = 2 << 20;

/// What is to be done with a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Bring this into force.
    Set(Setting),
    /// Put the original back.
    Release,
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Set { asked: Setting, read_back: Result<Setting, ErrorKind> },
    Released(Result<(), ErrorKind>),
}

/// How a backend stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is being opened for the first time.
    Opening,
    /// It answers.
    Ready,
    /// It could not be opened; it is tried again.
    Failed(Trouble),
}

/// Rung by whoever has something for the control loop.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<u64>,
    heard: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        let mut rung = lock(&self.rung);
        *rung = rung.wrapping_add(1);
        self.heard.notify_all();
    }

    pub(crate) fn rung(&self) -> u64 {
        *lock(&self.rung)
    }

    /// Waits until it was rung since `before`, at most until `until`.
    pub(crate) fn wait(&self, before: u64, until: Deadline) {
        let mut rung = lock(&self.rung);
        while *rung == before {
            let left = until.left();
            if left == Duration::ZERO {
                return;
            }
            rung = self.heard.wait_timeout(rung, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What lies between the two threads.
#[derive(Debug)]
struct Letters {
    stop: bool,
    /// The thread has closed its device.
    ended: bool,
    /// The last batch of readings that was asked for, and the last that was answered.
    asked: u64,
    answered: u64,
    orders: Vec<Option<Order>>,
    some_order: bool,
    standing: Standing,
    /// Since when the thread is inside the driver.
    inside: Option<Stamp>,
    epoch: u64,
    domains: Arc<[Domain]>,
    readings: Vec<Result<Sample, ErrorKind>>,
    outcomes: Vec<Option<Outcome>>,
    complaints: Arc<[String]>,
    troubles: u64,
    last_trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Mailbox {
    letters: Mutex<Letters>,
    wake: Condvar,
}

/// The control loop's end of a backend.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) kind: BackendKind,
    mailbox: Arc<Mailbox>,
    /// What the loop last took in; it reads nothing else between two collections.
    pub(crate) view: View,
}

/// A copy of what a backend last said.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) standing: Standing,
    pub(crate) inside: Option<Stamp>,
    pub(crate) answered: u64,
    pub(crate) epoch: u64,
    pub(crate) domains: Arc<[Domain]>,
    pub(crate) readings: Vec<Result<Sample, ErrorKind>>,
    pub(crate) outcomes: Vec<Option<Outcome>>,
    pub(crate) complaints: Arc<[String]>,
    pub(crate) troubles: u64,
    pub(crate) last_trouble: Option<Trouble>,
}

/// How a backend is opened, again and again until it is.
pub(crate) type Opener = Box<dyn FnMut() -> Result<Box<dyn Device>, Trouble> + Send>;

impl Worker {
    /// Starts the thread of a backend.
    pub(crate) fn start(
        kind: BackendKind,
        opener: Opener,
        retry: Backoff,
        time: Time,
        bell: Arc<Bell>,
    ) -> std::io::Result<Self> {
        let none: Arc<[Domain]> = Arc::from([]);
        let letters = Letters {
            stop: false,
            ended: false,
            asked: 0,
            answered: 0,
            orders: Vec::new(),
            some_order: false,
            standing: Standing::Opening,
            inside: None,
            epoch: 0,
            domains: none.clone(),
            readings: Vec::new(),
            outcomes: Vec::new(),
            complaints: Arc::from([]),
            troubles: 0,
            last_trouble: None,
        };
        let view = View {
            standing: Standing::Opening,
            inside: None,
            answered: 0,
            epoch: 0,
            domains: none,
            readings: Vec::new(),
            outcomes: Vec::new(),
            complaints: Arc::from([]),
            troubles: 0,
            last_trouble: None,
        };
        let mailbox = Arc::new(Mailbox { letters: Mutex::new(letters), wake: Condvar::new() });
        let theirs = mailbox.clone();
        let thread = std::thread::Builder::new().name(format!("joulie-{}", kind.label())).stack_size(STACK);
        thread.spawn(move || Thread { kind, mailbox: theirs, bell, time, retry, opener }.run())?;
        Ok(Self { kind, mailbox, view })
    }

    /// Asks for a batch of readings.
    pub(crate) fn ask(&self, ticket: u64) {
        lock(&self.mailbox.letters).asked = ticket;
        self.mailbox.wake.notify_one();
    }

    /// Whether the batch was answered.
    pub(crate) fn has_answered(&self, ticket: u64) -> bool {
        lock(&self.mailbox.letters).answered >= ticket
    }

    /// Gives an order for a domain of the view's epoch; it takes the place of one that was not begun. False if there is
    /// another epoch by now, of which the loop learns in its next step.
    pub(crate) fn order(&self, domain: usize, order: Order) -> bool {
        let mut letters = lock(&self.mailbox.letters);
        if letters.epoch != self.view.epoch || domain >= letters.orders.len() {
            return false;
        }
        letters.orders[domain] = Some(order);
        letters.outcomes[domain] = None;
        letters.some_order = true;
        drop(letters);
        self.mailbox.wake.notify_one();
        true
    }

    /// Takes in what the backend said since the last time; each outcome is taken once.
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
            view.complaints = letters.complaints.clone();
            view.readings.resize(letters.readings.len(), Err(ErrorKind::Timeout));
            view.outcomes.resize(letters.outcomes.len(), None);
        }
        view.readings.copy_from_slice(&letters.readings);
        view.outcomes.copy_from_slice(&letters.outcomes);
        letters.outcomes.fill(None);
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.mailbox.letters).ended
    }

    /// Tells the thread to end when its driver lets it.
    pub(crate) fn stop(&self) {
        lock(&self.mailbox.letters).stop = true;
        self.mailbox.wake.notify_one();
    }
}

/// The backend's end.
struct Thread {
    kind: BackendKind,
    mailbox: Arc<Mailbox>,
    bell: Arc<Bell>,
    time: Time,
    retry: Backoff,
    opener: Opener,
}

/// What the thread has at hand, so that a batch allocates nothing.
struct Bench {
    device: Box<dyn Device>,
    batch: Vec<Reading>,
    orders: Vec<Option<Order>>,
    touched: Vec<(Handle, Control, Option<Setting>)>,
    /// What each domain last failed with, until it obeys again.
    troubled: Vec<Option<ErrorKind>>,
    looked: Stamp,
    /// Every domain that was ever listed.
    known: Vec<Key>,
    /// Whether the last look had to leave something out.
    incomplete: bool,
}

impl Bench {
    /// How long after a look the next one is due. What is not listed is looked for, since nothing says that it is back.
    fn look_every(&self, kind: BackendKind) -> Micros {
        if self.known.len() > self.batch.len() {
            LOOK_AGAIN
        } else if self.incomplete && kind == BackendKind::Cpufreq {
            LOOK_FOR_POLICIES
        } else {
            LOOK_EVERY
        }
    }
}

impl Thread {
    fn run(mut self) {
        if let Some(bench) = self.open() {
            self.serve(bench);
        }
        let (mailbox, bell) = (self.mailbox.clone(), self.bell.clone());
        // With it goes the hold on the node's lock.
        drop(self);
        lock(&mailbox.letters).ended = true;
        bell.ring();
    }

    fn serve(&self, mut bench: Bench) {
        self.publish(&mut bench);
        while let Some(ticket) = self.next(&mut bench) {
            self.carry_out(&mut bench);
            if let Some(ticket) = ticket {
                self.answer(&mut bench, ticket);
            }
            lock(&self.mailbox.letters).inside = None;
            self.bell.ring();
        }
    }

    /// Nothing if it was told to stop before.
    fn open(&mut self) -> Option<Bench> {
        let mut failures = 0;
        loop {
            self.enter();
            let opened = (self.opener)();
            let now = self.time.now();
            match opened {
                Ok(device) => {
                    let (batch, orders) = (Vec::new(), Vec::new());
                    let (touched, troubled) = (Vec::new(), Vec::new());
                    let known = Vec::new();
                    let incomplete = !device.complaints().is_empty();
                    let looked = now;
                    return Some(Bench {
                        device,
                        batch,
                        orders,
                        touched,
                        troubled,
                        looked,
                        known,
                        incomplete,
                    });
                }
                Err(trouble) => {
                    log::warn!("cannot open backend {}: {trouble}", self.kind.label());
                    let mut letters = lock(&self.mailbox.letters);
                    letters.standing = Standing::Failed(trouble);
                    letters.inside = None;
                }
            }
            self.bell.ring();
            failures += 1;
            if !self.pause(self.retry.after(failures)) {
                return None;
            }
        }
    }

    /// Waits, and answers meanwhile that there is nothing; false if it was told to stop.
    fn pause(&self, wait: Micros) -> bool {
        let until = Deadline::after(self.time.lasting(wait));
        let mut letters = lock(&self.mailbox.letters);
        loop {
            if letters.stop {
                return false;
            }
            if letters.answered != letters.asked {
                letters.answered = letters.asked;
                self.bell.ring();
            }
            let left = until.left();
            if left == Duration::ZERO {
                return true;
            }
            letters = self.mailbox.wake.wait_timeout(letters, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn enter(&self) {
        lock(&self.mailbox.letters).inside = Some(self.time.now());
    }

    /// Waits for something to do, and takes the orders. The batch to answer is inside; nothing when it is to stop.
    fn next(&self, bench: &mut Bench) -> Option<Option<u64>> {
        let mut letters = lock(&self.mailbox.letters);
        while !letters.stop && !letters.some_order && letters.answered == letters.asked {
            letters = self.mailbox.wake.wait(letters).unwrap_or_else(PoisonError::into_inner);
        }
        if letters.stop {
            return None;
        }
        if letters.some_order {
            letters.some_order = false;
            std::mem::swap(&mut letters.orders, &mut bench.orders);
            letters.orders.fill(None);
        } else {
            bench.orders.fill(None);
        }
        letters.inside = Some(self.time.now());
        Some((letters.answered != letters.asked).then_some(letters.asked))
    }

    /// What lowers a limit goes before what raises one, so that no sum is above both the old and the new.
    fn carry_out(&self, bench: &mut Bench) {
        if bench.orders.iter().all(Option::is_none) {
            return;
        }
        bench.keep_originals();
        for wanted in [Turn::Lowering, Turn::Raising, Turn::Releasing] {
            for at in 0..bench.orders.len() {
                let Some(order) = bench.orders[at] else { continue };
                if lock(&self.mailbox.letters).stop {
                    return;
                }
                if bench.turn(at, order) == wanted {
                    let outcome = self.obey(bench, at, order);
                    if let Some(slot) = lock(&self.mailbox.letters).outcomes.get_mut(at) {
                        *slot = Some(outcome);
                    }
                }
            }
        }
        bench.device.tidy();
        // What is in force is another thing now, and whoever looks at the node must not see the old one.
        bench.device.sample(&mut bench.batch);
        self.show(&bench.batch);
    }

    fn obey(&self, bench: &mut Bench, at: usize, order: Order) -> Outcome {
        let handle = bench.batch[at].domain;
        let outcome = match order {
            Order::Set(asked) => {
                let applied = bench.device.apply(handle, asked).map(|applied| applied.effective());
                let read_back = applied.map_err(|trouble| self.note(bench, at, "set", trouble));
                Outcome::Set { asked, read_back }
            }
            Order::Release => {
                let released = bench.device.release(handle).map(|_| ());
                Outcome::Released(released.map_err(|trouble| self.note(bench, at, "release", trouble)))
            }
        };
        if matches!(outcome, Outcome::Set { read_back: Ok(_), .. } | Outcome::Released(Ok(()))) {
            bench.troubled[at] = None;
        }
        outcome
    }

    fn note(&self, bench: &mut Bench, at: usize, deed: &str, trouble: Trouble) -> ErrorKind {
        let kind = trouble.kind;
        // The same trouble at every retry is one line, not a thousand.
        if bench.troubled[at].replace(kind) != Some(kind) {
            let domain = bench.device.domains().get(bench.batch[at].domain).map(|domain| *domain.key());
            let name = domain.as_ref().map_or("a domain that is gone", |key| key.as_str());
            log::warn!("{}: cannot {deed} {name}: {trouble}", self.kind.label());
        }
        let mut letters = lock(&self.mailbox.letters);
        letters.troubles += 1;
        letters.last_trouble = Some(trouble);
        kind
    }

    fn answer(&self, bench: &mut Bench, ticket: u64) {
        let since = self.time.now().since(bench.looked);
        let every = bench.look_every(self.kind);
        if since.is_none_or(|since| since > every) {
            self.look(bench);
        }
        bench.device.sample(&mut bench.batch);
        let gone = bench.batch.iter().any(|reading| reading.outcome == Err(ErrorKind::Gone));
        if gone && since.is_none_or(|since| since > LOOK_AGAIN) && self.look(bench) {
            bench.device.sample(&mut bench.batch);
        }
        self.show(&bench.batch);
        lock(&self.mailbox.letters).answered = ticket;
    }

    fn show(&self, batch: &[Reading]) {
        for (slot, reading) in lock(&self.mailbox.letters).readings.iter_mut().zip(batch) {
            *slot = reading.outcome;
        }
    }

    /// Lists the hardware anew; true if it is another list.
    fn look(&self, bench: &mut Bench) -> bool {
        bench.looked = self.time.now();
        let before = bench.device.domains().generation();
        if let Err(trouble) = bench.device.look() {
            let mut letters = lock(&self.mailbox.letters);
            letters.troubles += 1;
            if letters.last_trouble.as_ref() != Some(&trouble) {
                log::warn!("{}: cannot list the hardware: {trouble}", self.kind.label());
            }
            letters.last_trouble = Some(trouble);
            return false;
        }
        bench.incomplete = !bench.device.complaints().is_empty();
        let changed = bench.device.domains().generation() != before;
        if changed {
            log::info!("{}: the hardware is another list now", self.kind.label());
            self.publish(bench);
        }
        changed
    }

    /// Begins an epoch with the device's present list.
    fn publish(&self, bench: &mut Bench) {
        let domains = bench.device.domains();
        bench.batch = domains.iter().map(|(handle, _)| Reading::new(handle)).collect();
        let list: Arc<[Domain]> = Arc::from(domains.as_slice());
        // What is in force is known before the first order, which saves it.
        bench.device.sample(&mut bench.batch);
        for key in list.iter().map(Domain::key) {
            if !bench.known.contains(key) {
                bench.known.push(*key);
            }
        }
        bench.orders = vec![None; list.len()];
        bench.touched = Vec::with_capacity(list.len());
        bench.troubled = vec![None; list.len()];
        let complaints: Arc<[String]> = Arc::from(bench.device.complaints());
        for complaint in complaints.iter() {
            log::info!("{}: {complaint}", self.kind.label());
        }
        let mut letters = lock(&self.mailbox.letters);
        letters.standing = Standing::Ready;
        letters.inside = None;
        letters.epoch += 1;
        letters.orders = vec![None; list.len()];
        letters.some_order = false;
        letters.readings = bench.batch.iter().map(|reading| reading.outcome).collect();
        letters.outcomes = vec![None; list.len()];
        letters.domains = list;
        letters.complaints = complaints;
        drop(letters);
        self.bell.ring();
    }
}

/// When an order's turn is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Lowering,
    Raising,
    Releasing,
}

impl Bench {
    fn keep_originals(&mut self) {
        self.touched.clear();
        for (order, reading) in self.orders.iter().zip(&self.batch) {
            if let Some(Order::Set(setting)) = order {
                let control = setting.control();
                self.touched.push((reading.domain, control, in_force(reading, control)));
            }
        }
        self.device.keep(&self.touched);
    }

    fn turn(&self, at: usize, order: Order) -> Turn {
        match order {
            Order::Release => Turn::Releasing,
            Order::Set(setting) => {
                let now = self.batch.get(at).and_then(|reading| in_force(reading, setting.control()));
                let raises = now.and_then(|now| setting.permits_more_than(now)).unwrap_or(false);
                if raises { Turn::Raising } else { Turn::Lowering }
            }
        }
    }
}

/// What a reading says is in force.
pub(crate) fn in_force(reading: &Reading, control: Control) -> Option<Setting> {
    setting_of(&reading.outcome, control)
}

/// What a sample says is in force.
pub(crate) fn setting_of(outcome: &Result<Sample, ErrorKind>, control: Control) -> Option<Setting> {
    let sample = outcome.as_ref().ok()?;
    match control {
        Control::Power => sample.power_limit.ok().map(Setting::Power),
        Control::Frequency => sample.frequency_limit.ok().map(Setting::Frequency),
        Control::Throttle => sample.throttle.ok().map(Setting::Throttle),
    }
}

#[cfg(test)]
mod tests;
