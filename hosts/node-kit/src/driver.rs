//! A HAL as its thread sees it: the port's verbs without its types, so that one kind of thread serves every backend.

use crate::journal::Share;
use power_hal::{
    Applied, Control, Domains, Error, ErrorKind, Handle, Originals, PowerHal, Reading, Released, Setting,
};
use std::fmt::{self, Display};

/// What went wrong: a kind to branch on, and a sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// To branch on.
    pub kind: ErrorKind,
    /// For a person.
    pub text: String,
}

impl Trouble {
    pub(crate) fn of<E: Error + Display>(error: E) -> Self {
        Self { kind: error.kind(), text: error.to_string() }
    }
}

impl Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A backend that is open.
pub(crate) trait Device: Send {
    /// Lists the hardware anew.
    fn look(&mut self) -> Result<(), Trouble>;
    fn domains(&self) -> Domains<'_>;
    /// Reads a batch, without allocating.
    fn sample(&mut self, readings: &mut [Reading]);
    /// Saves the originals of controls that are about to be touched for the first time, with what was seen in force,
    /// in one write of the journal. What cannot be read or saved here is refused when it is set.
    fn keep(&mut self, touched: &[(Handle, Control, Option<Setting>)]);
    fn apply(&mut self, domain: Handle, setting: Setting) -> Result<Applied, Trouble>;
    fn release(&mut self, domain: Handle) -> Result<Released, Trouble>;
    /// Writes down which originals are back.
    fn tidy(&self);
    /// What the last look could not make sense of.
    fn complaints(&self) -> Vec<String>;
}

/// A HAL behind [`Device`].
pub(crate) struct Driver<H> {
    hal: H,
    share: Share,
    complaints: fn(&H) -> Vec<String>,
}

impl<H> Driver<H> {
    pub(crate) fn new(hal: H, share: Share, complaints: fn(&H) -> Vec<String>) -> Self {
        Self { hal, share, complaints }
    }
}

impl<H: PowerHal + Send> Device for Driver<H>
where
    H::Error: Display,
{
    fn look(&mut self) -> Result<(), Trouble> {
        self.hal.describe().map(|_| ()).map_err(Trouble::of)
    }

    fn domains(&self) -> Domains<'_> {
        self.hal.domains()
    }

    fn sample(&mut self, readings: &mut [Reading]) {
        self.hal.sample(readings);
    }

    fn keep(&mut self, touched: &[(Handle, Control, Option<Setting>)]) {
        let mut originals = Vec::new();
        for &(handle, control, was) in touched {
            let Some(key) = self.hal.domains().get(handle).map(|domain| *domain.key()) else { continue };
            if self.share.kept(&key, control).is_none()
                && let Ok(original) = self.hal.save(handle, control)
            {
                originals.push((key, control, original, was));
            }
        }
        // The port saves each one itself when it is set, and refuses to write where that fails.
        let _each_by_itself = self.share.keep_all(&originals);
    }

    fn apply(&mut self, domain: Handle, setting: Setting) -> Result<Applied, Trouble> {
        self.hal.apply(domain, setting).map_err(Trouble::of)
    }

    fn release(&mut self, domain: Handle) -> Result<Released, Trouble> {
        self.hal.release(domain).map_err(Trouble::of)
    }

    fn tidy(&self) {
        self.share.tidy();
    }

    fn complaints(&self) -> Vec<String> {
        (self.complaints)(&self.hal)
    }
}
