//! The port between control laws and power hardware.
//!
//! A HAL (RAPL, cpufreq, NVML, amdgpu) implements [`PowerHal`]; code that decides about power uses only its four verbs:
//!
//! - `describe` lists the domains and the controls of each;
//! - `sample` reads them in one batch, each with its own time and its own outcome;
//! - `apply` writes a setting and returns what was read back;
//! - `release` restores the original.
//!
//! ```
//! use power_hal::mock::{Mock, MockDevice, MockMachine};
//! use power_hal::{ApplyOutcome, Domain, Limit, OriginalsInMemory, PowerHal, Reading, Released, Setting, Span};
//! use power_units::MicroWatts;
//!
//! // A package that accepts 1 W to 4 kW in its register and 75 W to 270 W in its reported range, in steps of 1/8 W.
//! let w = |watts: u64| MicroWatts::new(watts * 1_000_000);
//! let limit = Limit::new(Span { floor: w(1), ceiling: w(4_000) }, MicroWatts::new(125_000))?
//!     .known(Some(w(75)), Some(w(270)))?;
//! let machine = MockMachine::new([MockDevice::new(Domain::package(0, None).with_power(limit))]);
//! let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
//!
//! let (package, domain) = hal.describe()?.iter().next().unwrap();
//! assert_eq!(domain.key().as_str(), "package-0");
//!
//! // The setting is clamped before it is written, and the answer is what was read back.
//! let applied = hal.apply(package, Setting::Power(w(5_000)))?;
//! assert_eq!(
//!     applied.outcome(),
//!     ApplyOutcome::Clamped { requested: Setting::Power(w(5_000)), effective: Setting::Power(w(270)) }
//! );
//! assert_eq!(hal.apply(package, Setting::Power(w(120)))?.outcome(), ApplyOutcome::Exact);
//!
//! let mut readings = [Reading::new(package)];
//! hal.sample(&mut readings);
//! assert_eq!(readings[0].outcome.unwrap().power_limit, Ok(w(120)));
//!
//! assert_eq!(hal.release(package)?, Released::Restored);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The rules for every HAL are documented at [`PowerHal`] under *Contract*, and they are executable:
//! [`contract::check`] runs unchanged on the [`mock`], on a plain tree of files, on virtual hardware and on real
//! machines.
//!
//! Set-up is not part of the port: each HAL defines how it finds its files and libraries, and what it needs at start.
//! Nothing here does I/O, reads a clock, allocates or panics.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::expect_used,
        clippy::float_arithmetic,
        clippy::indexing_slicing,
        clippy::panic
    )
)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "tests compare with plain arithmetic"
    )
)]

#[cfg(test)]
extern crate std;

pub mod contract;
mod cpus;
mod domain;
mod errno;
mod error;
mod key;
mod last_memory;
mod limit;
mod meter;
pub mod mock;
mod originals;
mod port;
mod sample;
mod setting;
mod state;

pub use cpus::{BadCpus, Covers, CpuSet, couple};
pub use domain::{Domain, Domains, Generation, Handle};
pub use errno::Surface;
pub use error::{Error, ErrorKind, ErrorType, PortError, Refusal};
pub use key::{DomainKind, Key, KeyError};
pub use last_memory::LastMemory;
pub use limit::{BadLimit, Limit, LimitQuantity, Span, Throttle, lower_first};
pub use meter::{Counter, Measured, Meter, Untold};
pub use originals::{Original, Originals, OriginalsInMemory};
pub use port::{PowerHal, put_back};
pub use sample::{Clock, Reading, Sample};
pub use setting::{Applied, ApplyOutcome, Control, Released, Setting};
pub use state::{
    MemoryUse, Slowdown, Slowdowns, StateReading, StateReadings, Throttled, ThrottledMeter,
    possible_temperature, possible_utilisation,
};
