//! A HAL without hardware, for the tests of whatever speaks the port, and the first that passes the contract.
//!
//! The [`MockMachine`] is the hardware: it counts energy, rounds and wraps what it is told as a real driver does, can be
//! locked, broken and taken away, and can be looked at without the HAL. [`Mock`] is the HAL on it, and knows only what
//! it reads there. Time stands still until somebody calls [`MockMachine::advance`].

mod hal;
mod machine;

pub use hal::{Mock, MockError};
pub use machine::{MockDevice, MockMachine};
