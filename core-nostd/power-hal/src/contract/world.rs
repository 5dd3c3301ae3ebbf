//! The world behind a HAL in a run of the contract: hardware that can be observed without the HAL, and in which
//! faults can be caused. Every ability is optional. A rule that needs a missing ability is not checked, and the
//! report says so.

use crate::{Control, ErrorKind, Key, Original, Originals, PowerHal, Reading, Sample, Setting};
use power_units::{MicroWatts, Micros};

/// The world behind a HAL of type `H`.
pub trait ContractWorld<H> {
    /// The setting in force, seen by another way than the HAL under test. If this is `None`, the HAL's own sample is
    /// used.
    fn in_force(&mut self, _domain: &Key, _control: Control) -> Option<Setting> {
        None
    }

    /// The power limits of a domain at every instant since the last call, beginning with those at the last call.
    fn instants(&mut self, _domain: &Key) -> Option<Instants> {
        None
    }

    /// Lets time pass, in which the devices draw power.
    fn advance(&mut self, _span: Micros) -> bool {
        false
    }

    /// Causes a fault.
    fn cause(&mut self, _trouble: DomainFault) -> bool {
        false
    }

    /// Ends a fault that was caused.
    fn heal(&mut self, _trouble: DomainFault) {}

    /// Ends the HAL as a crash would, and opens another one on the same hardware with the same journal.
    fn restart(&mut self, _hal: &mut H) -> bool {
        false
    }
}

/// The faults of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainFault {
    /// The firmware locks its limits: a write fails, or is accepted without effect. A HAL reports `Locked` in both
    /// cases.
    Locked(Key),
    /// It cannot be read.
    Unreadable(Key),
    /// It is removed; its limits stay in force meanwhile.
    Vanished(Key),
    /// Somebody else sets it.
    Moved(Key, Setting),
    /// The kernel renumbers all devices.
    Renumbered,
}

/// A world without any ability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opaque;

impl<H> ContractWorld<H> for Opaque {}

/// Real hardware, seen through a second HAL of the same kind, and a way to wait.
#[derive(Debug)]
pub struct SecondHal<T, F> {
    hal: T,
    wait: F,
}

impl<T: PowerHal, F: FnMut(Micros)> SecondHal<T, F> {
    /// A second HAL on the same hardware, and a function that waits for a span.
    pub const fn new(hal: T, wait: F) -> Self {
        Self { hal, wait }
    }
}

impl<H, T: PowerHal, F: FnMut(Micros)> ContractWorld<H> for SecondHal<T, F> {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        let handle = self.hal.domains().find(domain)?;
        // What the device does not tell, only the HAL knows that has set it.
        let untold = self.hal.domains().get(handle).is_some_and(|domain| !domain.tells_frequency());
        if control == Control::Frequency && untold {
            return None;
        }
        let mut reading = [Reading::new(handle)];
        self.hal.sample(&mut reading);
        let [reading] = reading;
        setting_of(&reading.outcome.ok()?, control)
    }

    fn advance(&mut self, span: Micros) -> bool {
        (self.wait)(span);
        true
    }
}

/// The setting of a control in a sample.
pub(super) fn setting_of(sample: &Sample, control: Control) -> Option<Setting> {
    match control {
        Control::Power => sample.power_limit.ok().map(Setting::Power),
        Control::Frequency => sample.frequency_limit.ok().map(Setting::Frequency),
        Control::Throttle => sample.throttle.ok().map(Setting::Throttle),
    }
}

/// The power limits of one domain at one instant, each at a fixed index: long-term, short-term, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainLimits {
    /// A limit that the domain does not have is always zero.
    pub each: [MicroWatts; 4],
}

impl DomainLimits {
    /// Whether none of them is above its counterpart.
    #[must_use]
    pub fn below(&self, other: &Self) -> bool {
        self.each.iter().zip(&other.each).all(|(this, other)| this <= other)
    }
}

/// The instants of one domain, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instants {
    first: DomainLimits,
    later: [Option<DomainLimits>; 16],
}

impl Instants {
    /// Beginning with these limits.
    #[must_use]
    pub const fn new(first: DomainLimits) -> Self {
        Self { first, later: [None; 16] }
    }

    /// Adds an instant; returns false if there is no space, and then the record is not complete.
    pub fn push(&mut self, limits: DomainLimits) -> bool {
        let free = self.later.iter_mut().find(|slot| slot.is_none());
        free.map(|slot| *slot = Some(limits)).is_some()
    }

    /// The last of them.
    #[must_use]
    pub fn last(&self) -> DomainLimits {
        self.later.iter().flatten().last().copied().unwrap_or(self.first)
    }

    /// Whether the limits never changed.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.later.iter().flatten().all(|now| *now == self.first)
    }

    /// Whether no instant is above both the first and the last limits.
    #[must_use]
    pub fn ordered(&self) -> bool {
        let last = self.last();
        self.later.iter().flatten().all(|now| now.below(&self.first) || now.below(&last))
    }
}

/// A journal that wraps another journal; the contract can make it refuse.
#[derive(Clone, Debug)]
pub struct RefusableOriginals<J> {
    inner: J,
    refusing: bool,
}

impl<J: Originals> RefusableOriginals<J> {
    /// Wraps this journal, which stores the originals.
    #[must_use]
    pub const fn new(inner: J) -> Self {
        Self { inner, refusing: false }
    }

    /// The journal inside.
    #[must_use]
    pub const fn inner(&self) -> &J {
        &self.inner
    }

    pub(super) const fn refuse(&mut self, refusing: bool) {
        self.refusing = refusing;
    }
}

impl<J: Originals> Originals for RefusableOriginals<J> {
    fn keep(&mut self, domain: &Key, control: Control, original: &Original) -> Result<(), ErrorKind> {
        if self.refusing { Err(ErrorKind::Io) } else { self.inner.keep(domain, control, original) }
    }

    fn kept(&self, domain: &Key, control: Control) -> Option<Original> {
        self.inner.kept(domain, control)
    }

    fn forget(&mut self, domain: &Key, control: Control) -> Result<(), ErrorKind> {
        if self.refusing { Err(ErrorKind::Io) } else { self.inner.forget(domain, control) }
    }
}
