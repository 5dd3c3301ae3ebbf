//! RAPL, Intel's running average power limit, behind the power port.
//!
//! - [`Powercap`] uses the kernel's powercap files. It is the preferred one: the kernel knows the units of every part,
//!   and offers limits behind TPMI in the same way.
//! - [`MsrRapl`] uses model-specific registers, for a machine whose kernel has no powercap driver. It is opt-in, taints
//!   the kernel when it writes, and refuses to open while powercap or TPMI owns the packages: two writers that read,
//!   change and write back the same register lose each other's changes.
//!
//! Words: a *zone* is a folder of powercap, a *package zone* one with the name `package-N` or `package-N-die-M`. The
//! *long-term* limit is PL1, the *short-term* limit PL2, each with a *window* over which it holds. A *twin* is the
//! second set of limits that client machines have in memory-mapped registers. A domain here is a package (or a die of
//! one), never psys, core, uncore or dram: those are parts of a package or contain it.
//!
//! The limit in force is the long-term limit, the lower one of a package and its twin. A limit that is not enabled
//! limits nothing, so the register's largest value is then reported as in force.
#![forbid(unsafe_code)]

mod aim;
mod error;
pub mod msr;
mod powercap;
mod reading;

pub use error::RaplError;
pub use msr::MsrRapl;
pub use powercap::Powercap;
