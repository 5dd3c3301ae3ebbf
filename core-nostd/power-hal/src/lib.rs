//! The port between control laws and power hardware.
//!
//! A HAL (RAPL, cpufreq, NVML, amdgpu) implements [`PowerHal`]; whoever decides about power speaks only its four verbs:
//!
//! - `describe` lists the domains and what each of them has;
//! - `sample` reads them in one batch, each with its own time and its own outcome;
//! - `apply` writes a setting and answers what was read back;
//! - `release` puts the original back.
//!
//! ```
//! use power_hal::mock::{Mock, MockDevice, MockMachine};
//! use power_hal::{ApplyOutcome, Domain, Limit, OriginalsInMemory, PowerHal, Reading, Released, Setting, Span};
//! use power_units::MicroWatts;
//!
//! // A package that takes 1 W to 4 kW by its register, 75 W to 270 W by what the hardware says, in steps of 1/8 W.
//! let w = |watts: u64| MicroWatts::new(watts * 1_000_000);
//! let limit = Limit::new(Span { floor: w(1), ceiling: w(4_000) }, MicroWatts::new(125_000))?
//!     .known(Some(w(75)), Some(w(270)))?;
//! let machine = MockMachine::new([MockDevice::new(Domain::package(0, None).with_power(limit))]);
//! let mut hal = Mock::open(&machine, OriginalsInMemory::<4>::new());
//!
//! let (package, domain) = hal.describe()?.iter().next().unwrap();
//! assert_eq!(domain.key().as_str(), "package-0");
//!
//! // What is asked is clamped before it is written, and the answer is what is there.
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
//! What every HAL keeps is written at [`PowerHal`] under *Contract*, and is executable: [`contract::check`] runs
//! unchanged on the [`mock`], on a plain tree of files, on virtual hardware and on real machines.
//!
//! Set-up is not in the port: how a HAL finds its files and libraries, and what it is told at start, is its own affair.
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
mod limit;
mod meter;
pub mod mock;
mod originals;
mod port;
mod sample;
mod setting;

pub use cpus::{BadCpus, Covers, CpuSet, couple};
pub use domain::{Domain, Domains, Generation, Handle};
pub use errno::Surface;
pub use error::{Error, ErrorKind, ErrorType, PortError, Refusal};
pub use key::{DomainKind, Key, KeyError};
pub use limit::{BadLimit, Limit, LimitQuantity, Span, Throttle, lower_first};
pub use meter::{Counter, Measured, Meter, Untold};
pub use originals::{Original, Originals, OriginalsInMemory};
pub use port::PowerHal;
pub use sample::{Clock, Reading, Sample};
pub use setting::{Applied, ApplyOutcome, Control, Released, Setting};
