//! Virtual power hardware: what the Linux drivers show of it, oddities and error numbers included, with a plant behind.
#![forbid(unsafe_code)]

pub mod cpufreq;
pub mod faults;
pub mod fuse;
#[cfg(test)]
mod golden;
pub mod hsmp;
pub mod hwmon;
mod layout;
pub mod library;
pub mod machine;
pub mod msr;
pub mod number;
pub mod nvidia;
pub mod powercap;
pub mod profile;
pub mod rocm;
pub mod test_machine;
pub mod tree;
