//! The thread of a backend: it opens the device, executes orders, and enumerates the hardware again.

use super::{BackendState, CONTROLS, Mailbox, Opener, Order, Outcome, Wakeup, lock, setting_of};
use crate::cards::Cards;
use crate::driver::{Device, DriverError};
use crate::time::Deadline;
use crate::{BackendKind, Time};
use joulie_core::node::backoff::Backoff;
use joulie_core::node::ticket::Ticket;
use power_hal::{Clock, Control, Domain, ErrorKind, Handle, Key, Reading, Setting};
use power_units::{Micros, Stamp};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The interval of enumerations without a reason.
const LOOK_EVERY: Micros = Micros::new(60_000_000);
/// The interval while a frequency policy is missing: its processors were offline, and nothing reports when they are
/// back. An enumeration of 128 policies takes some ten milliseconds.
const LOOK_FOR_POLICIES: Micros = Micros::new(10_000_000);
/// The shortest time between two enumerations that have a reason.
const LOOK_AGAIN: Micros = Micros::new(1_000_000);

/// The stack size of a thread. A vendor's library is opened with a table of some hundred functions, which a build
/// without optimisation copies several times on the stack; untouched pages cost address space but no memory.
pub(super) const STACK: usize = 2 << 20;

/// The thread's side of the backend.
pub(super) struct Thread {
    pub(super) kind: BackendKind,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) wakeup: Arc<Wakeup>,
    pub(super) time: Time,
    pub(super) retry: Backoff,
    pub(super) opener: Opener,
}

/// The thread's buffers, so that a batch allocates nothing.
struct Bench {
    device: Box<dyn Device>,
    batch: Vec<Reading>,
    /// As in the mailbox: those of all power limits, then those of all frequency limits.
    orders: Vec<Option<(Ticket, Order)>>,
    touched: Vec<(Handle, Control, Option<Setting>)>,
    /// The last failure of each control, until it succeeds again.
    troubled: Vec<Option<ErrorKind>>,
    looked: Stamp,
    /// Every domain that was ever enumerated.
    known: Vec<Key>,
    /// Whether the last enumeration had to leave something out.
    incomplete: bool,
}

impl Bench {
    /// For a device that was just opened, before any of its domains are published.
    fn new(device: Box<dyn Device>, now: Stamp) -> Self {
        Self {
            incomplete: !device.complaints().is_empty(),
            device,
            batch: Vec::new(),
            orders: Vec::new(),
            touched: Vec::new(),
            troubled: Vec::new(),
            looked: now,
            known: Vec::new(),
        }
    }

    /// How long after an enumeration the next one is due. Missing domains are searched for, because nothing reports
    /// when they are back.
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
    pub(super) fn run(mut self) {
        if let Some(bench) = self.open() {
            self.serve(bench);
        }
        let (mailbox, wakeup) = (self.mailbox.clone(), self.wakeup.clone());
        // Dropping it also drops its hold on the node's lock.
        drop(self);
        lock(&mailbox.letters).ended = true;
        wakeup.notify();
    }

    fn serve(&self, mut bench: Bench) {
        self.publish(&mut bench);
        while let Some(ticket) = self.next(&mut bench) {
            self.carry_out(&mut bench);
            if let Some(ticket) = ticket {
                self.answer(&mut bench, ticket);
            }
            lock(&self.mailbox.letters).inside = None;
            self.wakeup.notify();
        }
    }

    /// `None` if it was stopped before.
    fn open(&mut self) -> Option<Bench> {
        let mut failures = 0;
        loop {
            self.enter();
            let opened = (self.opener)();
            let now = self.time.now();
            match opened {
                Ok(device) => return Some(Bench::new(device, now)),
                Err(trouble) => {
                    log::warn!("cannot open backend {}: {trouble}", self.kind.label());
                    let mut letters = lock(&self.mailbox.letters);
                    letters.standing = BackendState::Failed(trouble);
                    letters.inside = None;
                }
            }
            self.wakeup.notify();
            failures += 1;
            if !self.pause(self.retry.after(failures)) {
                return None;
            }
        }
    }

    /// Waits, and meanwhile answers requests without readings; false if it was stopped.
    fn pause(&self, wait: Micros) -> bool {
        let until = Deadline::after(self.time.lasting(wait));
        let mut letters = lock(&self.mailbox.letters);
        loop {
            if letters.stop {
                return false;
            }
            if letters.answered != letters.asked {
                letters.answered = letters.asked;
                self.wakeup.notify();
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

    /// Waits for work, and takes the orders. Returns the batch to answer, if any; the outer `None` means stop.
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

    /// Orders that lower a limit come before those that raise one, so that no sum exceeds both the old and the new.
    fn carry_out(&self, bench: &mut Bench) {
        if bench.orders.iter().all(Option::is_none) {
            return;
        }
        bench.keep_originals();
        for wanted in [Turn::Lowering, Turn::Raising, Turn::Releasing] {
            for at in 0..bench.orders.len() {
                let Some((ticket, order)) = bench.orders[at] else { continue };
                if lock(&self.mailbox.letters).stop {
                    return;
                }
                if bench.turn(at, order) == wanted {
                    let outcome = self.obey(bench, at, ticket, order);
                    if let Some(slot) = lock(&self.mailbox.letters).outcomes.get_mut(at) {
                        *slot = Some(outcome);
                    }
                }
            }
        }
        bench.device.tidy();
        // The limits in force have changed, and the shown readings must not be the old ones.
        bench.device.sample(&mut bench.batch);
        self.show(&bench.batch);
    }

    fn obey(&self, bench: &mut Bench, at: usize, ticket: Ticket, order: Order) -> Outcome {
        let handle = bench.reading(at).domain;
        let outcome = match order {
            Order::Set(asked) => {
                let applied = bench.device.apply(handle, asked).map(|applied| applied.effective());
                let read_back = applied.map_err(|trouble| self.note(bench, at, "set", trouble));
                Outcome::Set { ticket, read_back }
            }
            Order::Release(control) => {
                let released = bench.device.release(handle, control).map(|_| ());
                let outcome = released.map_err(|trouble| self.note(bench, at, "release", trouble));
                Outcome::Released { ticket, outcome }
            }
        };
        if matches!(
            outcome,
            Outcome::Set { read_back: Ok(_), .. } | Outcome::Released { outcome: Ok(()), .. }
        ) {
            bench.troubled[at] = None;
        }
        outcome
    }

    fn note(&self, bench: &mut Bench, at: usize, deed: &str, trouble: DriverError) -> ErrorKind {
        let kind = trouble.kind;
        // The same failure at every retry is logged once.
        if bench.troubled[at].replace(kind) != Some(kind) {
            let domain = bench.device.domains().get(bench.reading(at).domain).map(|domain| *domain.key());
            let name = domain.as_ref().map_or("a removed domain", |key| key.as_str());
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
        let uses = bench.device.uses();
        let mut letters = lock(&self.mailbox.letters);
        if let Some(uses) = uses {
            letters.uses = Some(Arc::from(uses));
        }
        letters.answered = ticket;
    }

    fn show(&self, batch: &[Reading]) {
        for (slot, reading) in lock(&self.mailbox.letters).readings.iter_mut().zip(batch) {
            *slot = reading.outcome;
        }
    }

    /// Enumerates the hardware again; true if the list has changed.
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
            // What there was is no longer all that there is.
            if let Some(cards) = letters.cards.take() {
                letters.cards =
                    Some(Arc::new(Cards { complete: false, answered: false, list: cards.list.clone() }));
            }
            return false;
        }
        bench.incomplete = !bench.device.complaints().is_empty();
        let changed = bench.device.domains().generation() != before;
        if changed {
            log::info!("{}: the list of hardware has changed", self.kind.label());
            self.publish(bench);
        } else {
            self.show_cards(bench);
        }
        changed
    }

    /// Shows what the GPUs are. A mode or a link may change while the list is the same.
    fn show_cards(&self, bench: &Bench) {
        let cards = bench.device.cards();
        let mut letters = lock(&self.mailbox.letters);
        if letters.cards.as_deref() != cards.as_ref() {
            letters.cards = cards.map(Arc::new);
        }
    }

    /// Starts an epoch with the device's present list.
    fn publish(&self, bench: &mut Bench) {
        let domains = bench.device.domains();
        bench.batch = domains.iter().map(|(handle, _)| Reading::new(handle)).collect();
        let list: Arc<[Domain]> = Arc::from(domains.as_slice());
        let tables = domains.iter().map(|(handle, _)| bench.device.frequency_table(handle).into()).collect();
        // The limits in force are known before the first order, which saves them.
        bench.device.sample(&mut bench.batch);
        for key in list.iter().map(Domain::key) {
            if !bench.known.contains(key) {
                bench.known.push(*key);
            }
        }
        let slots = list.len() * CONTROLS;
        bench.orders = vec![None; slots];
        bench.touched = Vec::with_capacity(slots);
        bench.troubled = vec![None; slots];
        let complaints: Arc<[String]> = Arc::from(bench.device.complaints());
        self.show_cards(bench);
        for complaint in complaints.iter() {
            log::info!("{}: {complaint}", self.kind.label());
        }
        let mut letters = lock(&self.mailbox.letters);
        letters.standing = BackendState::Ready;
        letters.inside = None;
        letters.epoch += 1;
        letters.orders = vec![None; slots];
        letters.some_order = false;
        letters.readings = bench.batch.iter().map(|reading| reading.outcome).collect();
        letters.outcomes = vec![None; slots];
        letters.domains = list;
        letters.tables = tables;
        letters.complaints = complaints;
        drop(letters);
        self.wakeup.notify();
    }
}

/// The phase in which an order is executed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Lowering,
    Raising,
    Releasing,
}

impl Bench {
    /// The reading of the domain of an order.
    fn reading(&self, slot: usize) -> &Reading {
        &self.batch[slot % self.batch.len()]
    }

    fn keep_originals(&mut self) {
        self.touched.clear();
        for (order, reading) in self.orders.iter().zip(self.batch.iter().cycle()) {
            if let Some((_, Order::Set(setting))) = order {
                let control = setting.control();
                self.touched.push((reading.domain, control, in_force(reading, control)));
            }
        }
        self.device.keep(&self.touched);
    }

    fn turn(&self, at: usize, order: Order) -> Turn {
        match order {
            Order::Release(_) => Turn::Releasing,
            Order::Set(setting) => {
                let now = in_force(self.reading(at), setting.control());
                let raises = now.and_then(|now| setting.permits_more_than(now)).unwrap_or(false);
                if raises { Turn::Raising } else { Turn::Lowering }
            }
        }
    }
}

/// The setting that a reading shows as in force.
fn in_force(reading: &Reading, control: Control) -> Option<Setting> {
    setting_of(&reading.outcome, control)
}

#[cfg(test)]
mod tests;
