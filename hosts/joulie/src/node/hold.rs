//! A node whose control loop runs in a thread of its own, while the command waits for time, signals and verdicts.

use super::words::standing;
use super::{Desk, Ending, Refusal};
use joulie_core::node::cap::DesiredCap;
use node_kit::{
    BackendState, Desire, Journal, JournalEntry, NodeAccess, NodeHandle, NodeReport, OpenNode, Time,
};
use power_hal::{Clock, DomainKind};
use power_units::{Micros, Stamp};
use std::thread::JoinHandle;
use std::time::Duration;

/// The interval of looking at the report.
pub(super) const TICK: Duration = Duration::from_millis(50);
/// How long putting back the originals may take: a driver that hangs may recover, and a refused write is repeated.
const RESTORED_WITHIN: Micros = Micros::new(10_000_000);

/// A running control loop.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) handle: NodeHandle,
    pub(super) journal: Journal,
    pub(super) time: Time,
    thread: JoinHandle<OpenNode>,
}

/// The devices whose limits are put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Which {
    pub(super) cpu: bool,
    pub(super) gpu: bool,
}

/// The result of putting back the originals.
#[derive(Debug)]
pub(super) struct Restored {
    /// The entries of the journal before.
    pub(super) before: Vec<JournalEntry>,
    /// The entries that are still in the journal.
    pub(super) left: Vec<JournalEntry>,
    /// The originals are back, but the journal could not be written.
    pub(super) behind: bool,
    /// A signal arrived meanwhile.
    pub(super) interrupted: bool,
}

impl Which {
    pub(super) const ALL: Self = Self { cpu: true, gpu: true };

    fn has(self, entry: &JournalEntry) -> bool {
        match entry.domain.kind() {
            DomainKind::Package | DomainKind::Socket | DomainKind::Policy => self.cpu,
            DomainKind::Gpu => self.gpu,
        }
    }

    fn of(self, journal: &Journal) -> Vec<JournalEntry> {
        journal.entries().into_iter().filter(|entry| self.has(entry)).collect()
    }

    fn gone(self) -> Desire {
        let part = |gone| if gone { DesiredCap::Gone } else { DesiredCap::Unknown };
        Desire { cpu: part(self.cpu), gpu: part(self.gpu), ..Desire::UNKNOWN }
    }
}

impl Hold {
    /// Opens the node as its writer or for reading, and starts its control loop.
    pub(super) fn begin(desk: &Desk, access: NodeAccess) -> Result<Self, Refusal> {
        let mut node = desk.site.open(access, &desk.interrupts)?;
        let (handle, journal) = (node.handle(), node.journal().clone());
        let run = move || {
            node.run();
            node
        };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(run);
        let failed =
            |error| Refusal::new(Ending::NotOpened, format!("cannot start the control loop: {error}"));
        Ok(Self { handle, journal, time: desk.site.time.clone(), thread: thread.map_err(failed)? })
    }

    /// Whether the loop ended without a request, which is always an error.
    pub(super) fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for a report of a period that began after this call, so that its read-back is current.
    pub(super) fn fresh_report(&self, desk: &Desk) -> NodeReport {
        let begun = self.handle.report().counts.periods;
        let until = self.time.now() + desk.site.period + desk.site.period + Micros::new(1_000_000);
        loop {
            let report = self.handle.report();
            if report.counts.periods >= begun + 2 || self.time.now() > until || self.has_failed() {
                return report;
            }
            if desk.interrupts.within(TICK) {
                return report;
            }
        }
    }

    /// Puts the originals back, and returns the result.
    pub(super) fn put_back(&self, desk: &Desk, which: Which) -> Restored {
        let before = which.of(&self.journal);
        let mut restored = Restored { before, left: Vec::new(), behind: false, interrupted: false };
        if restored.before.is_empty() {
            return restored;
        }
        self.handle.desire(which.gone());
        let until: Stamp = self.time.now() + RESTORED_WITHIN;
        loop {
            restored.left = which.of(&self.journal);
            restored.behind = self.journal.is_behind();
            let done = restored.left.is_empty() && !restored.behind;
            if done || self.time.now() > until || self.has_failed() {
                return restored;
            }
            if desk.interrupts.within(TICK) {
                restored.interrupted = true;
                return restored;
            }
        }
    }

    /// Ends the loop and leaves the limits as they are. `None` if the loop has failed.
    pub(super) fn end(self) -> Option<OpenNode> {
        self.handle.stop();
        self.thread.join().ok()
    }
}

impl Restored {
    pub(super) fn is_complete(&self) -> bool {
        self.left.is_empty() && !self.behind
    }

    /// The originals that are not back, with the reasons.
    pub(super) fn left_lines(&self, report: &NodeReport) -> Vec<String> {
        let mut lines: Vec<String> = self
            .left
            .iter()
            .map(|entry| {
                let backend = report.backends.iter().find(|backend| backend.kind == entry.backend);
                let why = match backend.map(|backend| (&backend.standing, &backend.last_trouble, backend)) {
                    None => "its backend is not in use; see --registers".to_owned(),
                    Some((BackendState::Ready, Some(trouble), _)) => trouble.to_string(),
                    Some((BackendState::Ready, None, _)) => "its hardware is missing".to_owned(),
                    Some((BackendState::Opening | BackendState::Failed(_), _, backend)) => standing(backend),
                };
                format!("  {} ({}): {why}", entry.domain, entry.backend.label())
            })
            .collect();
        if self.behind {
            lines.push(
                "  the journal could not be written: it still lists originals that are back".to_owned(),
            );
        }
        lines
    }
}
