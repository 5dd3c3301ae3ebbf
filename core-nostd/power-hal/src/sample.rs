//! The values that are read from a domain: every value with the time at which it was read, and every value that could
//! not be read with the reason. A missing value is never a zero.

use crate::{ErrorKind, Handle, Measured};
use power_units::{KiloHertz, MicroWatts, Percent, Stamp};

/// The source of time of a HAL: the caller that opens the HAL passes a clock.
pub trait Clock {
    /// The time now, on one monotonic clock for all domains.
    fn now(&self) -> Stamp;
}

impl<F: Fn() -> Stamp> Clock for F {
    fn now(&self) -> Stamp {
        self()
    }
}

/// One domain's entry in a batch: the domain, and the outcome of reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The domain.
    pub domain: Handle,
    /// Its sample, or why nothing could be read.
    pub outcome: Result<Sample, ErrorKind>,
}

impl Reading {
    /// An entry for a domain that was not read yet: there is no answer.
    #[must_use]
    pub const fn new(domain: Handle) -> Self {
        Self { domain, outcome: Err(ErrorKind::Timeout) }
    }
}

/// The values of one domain. A value that it does not have is [`ErrorKind::NotSupported`].
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
    /// The frequency at which it runs, if it is reported; a frequency limit does not imply it.
    pub frequency: Result<KiloHertz, ErrorKind>,
    /// The throttle that is in force, whoever set it.
    pub throttle: Result<Percent, ErrorKind>,
}

impl Sample {
    /// A sample without any value, for a HAL to fill in.
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
