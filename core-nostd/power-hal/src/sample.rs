//! The values that are read from a domain: every value with the time at which it was read, and every value that could
//! not be read with the reason. A missing value is never a zero.

use crate::{Domain, ErrorKind, Handle, Measured, MemoryUse, Slowdowns, StateReading, Throttled};
use power_units::{Celsius, KiloHertz, MicroJoules, MicroWatts, Percent, Stamp};

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
    /// The state of the counter of its memory's energy.
    pub dram: Result<MicroJoules, ErrorKind>,
    /// Its temperature; of several sensors, the warmest one of the device itself.
    pub temperature: Result<Celsius, ErrorKind>,
    /// For which part of the time it computes, over a span that the device chooses.
    pub utilisation: Result<Percent, ErrorKind>,
    /// How much of its memory is in use; it may have been read up to ten seconds before.
    pub memory: Result<MemoryUse, ErrorKind>,
    /// What holds its clocks down at this instant.
    pub slowdowns: Result<Slowdowns, ErrorKind>,
    /// For how long, or whether, its power limit holds it back.
    pub throttled: Result<Throttled, ErrorKind>,
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
            dram: Err(ErrorKind::NotSupported),
            temperature: Err(ErrorKind::NotSupported),
            utilisation: Err(ErrorKind::NotSupported),
            memory: Err(ErrorKind::NotSupported),
            slowdowns: Err(ErrorKind::NotSupported),
            throttled: Err(ErrorKind::NotSupported),
        }
    }

    /// The sample, for a HAL that fills in whatever its device says: a reading of the state that the domain lacks is not
    /// supported, and one that it has is never, whatever the driver calls its failure.
    #[must_use]
    pub fn of_state(self, domain: &Domain) -> Self {
        let has = |kind| domain.readings().has(kind);
        Self {
            dram: confined(domain.dram().is_some(), self.dram),
            temperature: confined(has(StateReading::Temperature), self.temperature),
            utilisation: confined(has(StateReading::Utilisation), self.utilisation),
            memory: confined(has(StateReading::Memory), self.memory),
            slowdowns: confined(has(StateReading::Slowdown), self.slowdowns),
            throttled: confined(domain.throttled().is_some(), self.throttled),
            ..self
        }
    }
}

fn confined<T>(has: bool, value: Result<T, ErrorKind>) -> Result<T, ErrorKind> {
    match value {
        _ if !has => Err(ErrorKind::NotSupported),
        Err(ErrorKind::NotSupported) => Err(ErrorKind::Io),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::Micros;

    #[test]
    fn a_sample_answers_for_what_its_domain_has_and_for_nothing_else() {
        let warm = Celsius::from_int(50);
        let full = Sample {
            temperature: Ok(warm),
            dram: Ok(MicroJoules::new(1)),
            ..Sample::at(Stamp::new(Micros::ZERO))
        };
        let domain = Domain::package(0, None)
            .with_reading(StateReading::Temperature)
            .with_reading(StateReading::Memory);
        let confined = full.of_state(&domain);
        assert_eq!(confined.temperature, Ok(warm));
        assert_eq!(confined.memory, Err(ErrorKind::Io), "it has it, and could not read it");
        assert_eq!(confined.dram, Err(ErrorKind::NotSupported), "it has none");
        assert_eq!(confined.throttled, Err(ErrorKind::NotSupported));
    }
}
