//! The physical quantities of Joulie and the laws between them.
//!
//! One type for each dimension, in fixed point, so that a decision is the same on every machine. At the hardware
//! edge there are integer types, named after the unit of the device. A type has only the operators that physics
//! allows:
//!
//! ```
//! use power_units::{Micros, MicroJoules, Watts};
//! let drawn = MicroJoules::new(30_000_000);
//! assert_eq!(drawn.over(Micros::new(100_000).non_zero().unwrap()), Watts::from_int(300));
//! ```
//!
//! and no others:
//!
//! ```compile_fail
//! use power_units::Watts;
//! let nonsense = Watts::from_int(3) * Watts::from_int(4);
//! ```
//!
//! Nothing here panics, allocates or uses a float. Operators saturate; where a saturated value would be wrong (a sum
//! over a cluster) there is a `checked_` form. Wherever a value must be rounded the caller names its [`Role`].
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
#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "tests compare with plain arithmetic"))]

#[cfg(test)]
extern crate std;

mod decimal;
mod edge;
mod frequency;
mod power;
mod quantity;
mod ratio;
mod temperature;

pub use decimal::{DecimalError, Role};
pub use edge::{MicroJoules, MicroWatts, Micros, MilliWatts, Millis, NonZeroMicros, Stamp};
pub use frequency::KiloHertz;
pub use power::{Watts, WattsPerMinute};
pub use quantity::Amount;
pub use ratio::{Percent, Ratio};
pub use temperature::{Celsius, Kelvins};
