//! One frequency policy: what it may rise to, what was ordered, and what became of it.

use crate::unit::Place;
use crate::worker::{Order, Outcome, Worker, setting_of};
use crate::{BackendKind, Journal};
use joulie_core::node::ticket::Ticket;
use power_hal::{Control, ErrorKind, Key, Setting};
use power_units::{KiloHertz, Stamp};

/// One policy.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) key: Key,
    pub(super) backend: BackendKind,
    pub(super) place: Place,
    pub(crate) floor: KiloHertz,
    /// What it may rise to: what was in force before the first write; none while nobody knows.
    pub(super) ceiling: Option<KiloHertz>,
    pub(crate) most: KiloHertz,
    pub(super) step: KiloHertz,
    /// What was last ordered and not released since.
    pub(crate) asked: Option<KiloHertz>,
    /// That of its last order.
    pub(super) ticket: Ticket,
    /// What became of its order.
    pub(super) due: Due,
    /// When it was learned that what was asked is in force; a reading from before says nothing of it.
    pub(super) learned: Option<Stamp>,
}

/// Whether an order is on its way, and what came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Waiting,
    Done(Result<Option<KiloHertz>, ErrorKind>),
}

impl Policy {
    pub(super) fn reading<'w>(&self, workers: &'w [Worker]) -> Option<&'w power_hal::Sample> {
        workers[self.place.worker].view.readings[self.place.domain].as_ref().ok()
    }

    /// The limit that is in force, whoever set it.
    pub(crate) fn in_force(&self, workers: &[Worker]) -> Option<KiloHertz> {
        let reading = &workers[self.place.worker].view.readings[self.place.domain];
        setting_of(reading, Control::Frequency).and_then(frequency_of)
    }

    /// Its limit, or the frequency at which it runs where the limit cannot be read.
    pub(super) fn stands_at(&self, workers: &[Worker]) -> Option<KiloHertz> {
        self.in_force(workers).or_else(|| self.running(workers))
    }

    /// The frequency at which it runs.
    pub(crate) fn running(&self, workers: &[Worker]) -> Option<KiloHertz> {
        self.reading(workers)?.frequency.ok()
    }

    /// Whether its ceiling is known, and cannot be another one since.
    pub(super) fn is_settled(&self) -> bool {
        let refused = match self.due {
            Due::Done(Err(_)) => true,
            Due::Done(Ok(_)) | Due::Nothing | Due::Waiting => false,
        };
        self.ceiling.is_some() && !refused
    }

    /// What was in force before the first write, as the journal knows it.
    pub(super) fn original(&self, journal: &Journal) -> Option<KiloHertz> {
        journal.was(self.backend, &self.key, Control::Frequency).and_then(frequency_of)
    }

    pub(super) fn is_touched(&self, journal: &Journal) -> bool {
        journal.holds(self.backend, &self.key, Control::Frequency)
    }

    /// Whether it answers and is not at its lowest frequency. A reading from before the order was learned says nothing.
    pub(super) fn slips(&self, workers: &[Worker]) -> bool {
        let Some(reading) = self.reading(workers) else { return false };
        let after = self.learned.is_none_or(|learned| reading.at.since(learned).is_some());
        after && self.in_force(workers).is_some_and(|now| now > self.floor + self.step)
    }

    pub(super) fn was_raised(&self, workers: &[Worker]) -> bool {
        let (Some(asked), Some(learned), Some(reading)) = (self.asked, self.learned, self.reading(workers))
        else {
            return false;
        };
        // A table's entry may lie a step above what was asked on kernels that round up.
        let raised = self.in_force(workers).is_some_and(|now| now > asked + self.step);
        raised && reading.at.since(learned).is_some()
    }

    pub(super) fn limit(&mut self, to: KiloHertz, workers: &[Worker]) {
        self.asked = Some(to);
        self.learned = None;
        self.order(Order::Set(Setting::Frequency(to)), workers);
    }

    fn order(&mut self, order: Order, workers: &[Worker]) {
        self.ticket = self.ticket.next();
        let passed = workers[self.place.worker].order(self.place.domain, self.ticket, order);
        self.due = if passed { Due::Waiting } else { Due::Done(Err(ErrorKind::Gone)) };
    }

    /// Puts its original back, if it was ever touched.
    pub(super) fn free(&mut self, workers: &[Worker], journal: &Journal) {
        if self.asked.is_none() && !self.is_touched(journal) {
            self.due = Due::Nothing;
            return;
        }
        self.asked = None;
        self.order(Order::Release, workers);
    }

    pub(super) fn learn(&mut self, workers: &mut [Worker], now: Stamp) {
        if self.due != Due::Waiting {
            return;
        }
        match workers[self.place.worker].view.outcomes[self.place.domain].take() {
            Some(Outcome::Released { ticket, outcome }) if ticket == self.ticket => {
                self.due = Due::Done(outcome.map(|()| None));
            }
            Some(Outcome::Set { ticket, read_back }) if ticket == self.ticket => {
                self.learned = read_back.is_ok().then_some(now);
                self.due = Due::Done(read_back.map(frequency_of));
            }
            // Of an order that another one has taken the place of since.
            Some(Outcome::Released { .. } | Outcome::Set { .. }) | None => {}
        }
    }
}

fn frequency_of(setting: Setting) -> Option<KiloHertz> {
    match setting {
        Setting::Frequency(frequency) => Some(frequency),
        Setting::Power(_) | Setting::Throttle(_) => None,
    }
}
