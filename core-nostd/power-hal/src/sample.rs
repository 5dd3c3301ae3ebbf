//! What a domain says when it is read: every value with the time at which it was read, and every value that could not
//! be read with the reason. A value that is missing is never a zero.

use crate::{ErrorKind, Handle, Measured};
use power_units::{KiloHertz, MicroWatts, Percent, Stamp};

/// Where a HAL takes the time from: whoever opens it hands a clock in.
pub trait Clock {
    /// The time now, on one monotonic clock for all domains.
    fn now(&self) -> Stamp;
}

impl<F: Fn() -> Stamp> Clock for F {
    fn now(&self) -> Stamp {
        self()
    }
}

/// One domain's place in a batch: which domain, and what came of reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Which domain.
    pub domain: Handle,
    /// What it said, or why nothing is known of it.
    pub outcome: Result<Sample, ErrorKind>,
}

impl Reading {
    /// A place for a domain that was not read yet: no answer has come.
    #[must_use]
    pub const fn new(domain: Handle) -> Self {
        Self { domain, outcome: Err(ErrorKind::Timeout) }
    }
}

/// What one domain said. What it does not have is [`ErrorKind::NotSupported`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was read.
    pub at: Stamp,
    /// Its meter.
    pub meter: Result<Measured, ErrorKind>,
    /// The power limit that is in force, whoever set it.
    pub power_limit: Result<MicroWatts, ErrorKind>,
    /// The frequency limit that is in force, whoever set it.
    pub frequency_limit: Result<KiloHertz, ErrorKind>,
    /// The frequency at which it runs, where it says; a frequency limit does not promise that.
    pub frequency: Result<KiloHertz, ErrorKind>,
    /// The throttle that is in force, whoever set it.
    pub throttle: Result<Percent, ErrorKind>,
}

impl Sample {
    /// A sample of a domain that has nothing, for a HAL to fill in.
    #[must_use]
    pub const fn at(at: Stamp) -> Self {
        Self {
            at,
            meter: Err(ErrorKind::NotSupported),
            power_limit: Err(ErrorKind::NotSupported),
            frequency_limit: Err(ErrorKind::NotSupported),
            frequency: Err(ErrorKind::NotSupported),
            throttle: Err(ErrorKind::NotSupported),
        }
    }
}
