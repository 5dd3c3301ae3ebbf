//! Virtual power hardware: the interface of the Linux drivers, including their peculiarities and error numbers, on a
//! simulated plant.
#![forbid(unsafe_code)]

pub mod bmc;
pub mod cpufreq;
pub mod faults;
pub mod fuse;
#[cfg(test)]
mod golden;
pub mod gpu_clock;
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
