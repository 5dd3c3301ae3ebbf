//! A HAL without hardware, for tests of code that uses the port. It passes the contract.
//!
//! The [`MockMachine`] is the hardware: it counts energy, rounds and wraps written values as a real driver does, can
//! be locked, broken and removed, and can be observed without the HAL. [`Mock`] is the HAL on it, and knows only what
//! it reads there. Time advances only by [`MockMachine::advance`].

mod hal;
mod machine;

pub use hal::{Mock, MockError};
pub use machine::{MockDevice, MockMachine};
