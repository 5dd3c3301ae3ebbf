//! RAPL, Intel's running average power limit, behind the power port.
//!
//! - [`Powercap`] stands on the kernel's powercap files. It is the one to use: the kernel knows every part's units and
//!   serves limits behind TPMI the same way.
//! - [`MsrRapl`] stands on model-specific registers, for a machine whose kernel has no powercap driver. It is opt-in,
//!   taints the kernel when it writes, and refuses to open while powercap or TPMI owns the packages: two writers that
//!   read, change and write back the same register lose each other's changes.
//!
//! Words: a *zone* is a folder of powercap, a *package zone* one that is named `package-N` or `package-N-die-M`; the
//! *long-term* limit is PL1, the *short-term* one PL2, each with a *window* over which it holds; a *twin* is the second
//! set of limits that client machines have in memory-mapped registers. A domain here is a package (or a die of one),
//! never psys, core, uncore or dram: those are parts of it or contain it.
//!
//! What is in force is the long-term limit, the lower one of a package and its twin. A limit that is not enabled limits
//! nothing, so then the register's largest value is what is said to be in force.
#![forbid(unsafe_code)]

mod aim;
mod error;
pub mod msr;
mod powercap;
mod reading;

pub use error::RaplError;
pub use msr::MsrRapl;
pub use powercap::Powercap;
