//! A HAL as its thread uses it: the port's verbs without its types, so that one kind of thread serves every backend.

use crate::cards::Cards;
use crate::journal::JournalShare;
use crate::uses::{ControlGroups, GpuGroupUse, GpuUseFiles, ProcessUses};
use power_hal::{
    Applied, Control, Domains, Error, ErrorKind, Handle, Originals, PowerHal, Reading, Released, Setting,
};
use std::fmt::{self, Display};

/// The cause: a kind to branch on, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The kind to branch on.
    pub kind: ErrorKind,
    /// The sentence for people.
    pub text: String,
}

impl DriverError {
    pub(crate) fn of<E: Error + Display>(error: E) -> Self {
        Self { kind: error.kind(), text: error.to_string() }
    }
}

impl Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An open backend.
pub(crate) trait Device: Send {
    /// Enumerates the hardware again.
    fn look(&mut self) -> Result<(), DriverError>;
    fn domains(&self) -> Domains<'_>;
    /// The frequencies that this domain can be limited to, if its driver has a table of them.
    fn frequency_table(&self, domain: Handle) -> &[u32];
    /// Reads a batch, without allocating.
    fn sample(&mut self, readings: &mut [Reading]);
    /// Saves the originals of controls that will be written for the first time, with the settings seen in force, in
    /// one write of the journal. A control that cannot be read or saved here is refused when it is set.
    fn keep(&mut self, touched: &[(Handle, Control, Option<Setting>)]);
    fn apply(&mut self, domain: Handle, setting: Setting) -> Result<Applied, DriverError>;
    fn release(&mut self, domain: Handle, control: Control) -> Result<Released, DriverError>;
    /// Writes to the file which originals are restored.
    fn tidy(&self);
    /// The problems of the last enumeration.
    fn complaints(&self) -> Vec<String>;
    /// What its GPUs are apart from their power; `None` if it has none by its kind.
    fn cards(&self) -> Option<Cards>;
    /// Which control groups used its GPUs since the last call; `None` if that is not asked for.
    fn uses(&mut self) -> Option<Vec<GpuGroupUse>>;
}

/// A HAL as a [`Device`].
pub(crate) struct Driver<H> {
    hal: H,
    share: JournalShare,
    asks: Asks<H>,
    groups: Option<ControlGroups>,
    /// The controls whose originals were kept before their first write.
    fresh: Vec<(Handle, Control)>,
}

/// How a HAL is asked for what the port does not tell: its complaints, its cards, and who used them.
pub(crate) struct Asks<H> {
    pub(crate) complaints: fn(&H) -> Vec<String>,
    pub(crate) cards: fn(&H) -> Option<Cards>,
    pub(crate) processes: fn(&mut H, &mut GpuUseFiles) -> Vec<ProcessUses>,
}

impl<H> Driver<H> {
    pub(crate) const fn new(
        hal: H,
        share: JournalShare,
        asks: Asks<H>,
        groups: Option<ControlGroups>,
    ) -> Self {
        Self { hal, share, asks, groups, fresh: Vec::new() }
    }
}

impl<H: PowerHal> Driver<H> {
    /// After a first write that failed: if the control is unchanged, it counts as untouched and its original is
    /// forgotten. The port does the same for originals that it kept itself.
    fn take_back(&mut self, domain: Handle, control: Control) {
        if !self.fresh.contains(&(domain, control)) {
            return;
        }
        let Some(key) = self.hal.domains().get(domain).map(|domain| *domain.key()) else { return };
        let kept = self.share.kept(&key, control);
        if kept.is_some() && self.hal.save(domain, control).ok() == kept {
            // Forgetting cannot fail in memory, and `tidy` writes the file.
            let _let_go = self.share.forget(&key, control);
        }
    }
}

impl<H: PowerHal + Send> Device for Driver<H>
where
    H::Error: Display,
{
    fn look(&mut self) -> Result<(), DriverError> {
        self.hal.describe().map(|_| ()).map_err(DriverError::of)
    }

    fn domains(&self) -> Domains<'_> {
        self.hal.domains()
    }

    fn frequency_table(&self, domain: Handle) -> &[u32] {
        self.hal.frequency_table(domain)
    }

    fn sample(&mut self, readings: &mut [Reading]) {
        self.hal.sample(readings);
    }

    fn keep(&mut self, touched: &[(Handle, Control, Option<Setting>)]) {
        let mut originals = Vec::new();
        self.fresh.clear();
        for &(handle, control, was) in touched {
            let Some(key) = self.hal.domains().get(handle).map(|domain| *domain.key()) else { continue };
            if self.share.kept(&key, control).is_none()
                && let Ok(original) = self.hal.save(handle, control)
            {
                originals.push((key, control, original, was));
                self.fresh.push((handle, control));
            }
        }
        // The port saves each one itself when it is set, and refuses to write if that fails.
        let _each_by_itself = self.share.keep_all(&originals);
    }

    fn apply(&mut self, domain: Handle, setting: Setting) -> Result<Applied, DriverError> {
        let control = setting.control();
        self.hal.apply(domain, setting).map_err(|error| {
            self.take_back(domain, control);
            DriverError::of(error)
        })
    }

    fn release(&mut self, domain: Handle, control: Control) -> Result<Released, DriverError> {
        self.hal.release_control(domain, control).map_err(DriverError::of)
    }

    fn tidy(&self) {
        self.share.tidy();
    }

    fn complaints(&self) -> Vec<String> {
        (self.asks.complaints)(&self.hal)
    }

    fn cards(&self) -> Option<Cards> {
        (self.asks.cards)(&self.hal)
    }

    fn uses(&mut self) -> Option<Vec<GpuGroupUse>> {
        let groups = self.groups.as_mut()?;
        let uses = (self.asks.processes)(&mut self.hal, groups.files());
        Some(groups.of(uses))
    }
}
