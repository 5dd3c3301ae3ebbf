//! The physics of a node: its power, speed and temperature under the limits set on it.
//!
//! One model for the laws' closed-loop tests, the virtual hardware and the simulator. It must not depend on a law, a
//! file or a clock: limits and loads are set, time is passed in, and the true state can be read. [`PowerSensor`] and
//! [`EnergyCounter`] give the values that software would read.
//!
//! ```
//! use plant::{Load, Plant, preset};
//! use power_units::Micros;
//!
//! let mut node = Plant::new(&preset::xeon_2s(), 1).unwrap();
//! node.set_load(Load::busy(1.0)).unwrap();
//! node.advance(Micros::new(1_000_000));
//! assert_eq!(node.node_watts(), 500.0);
//! node.set_all_frequencies(1_600_000);
//! node.advance(Micros::new(1_000_000));
//! assert!((node.node_watts() - 187.175).abs() < 0.001); // 120 + 380·0.5^2.5
//! ```
//!
//! Every run is the same to the last bit on every x86-64 machine: only additions, multiplications, divisions and square
//! roots are used, which IEEE 754 defines exactly, and never the platform's `powf` or `exp`. Lags are implicit Euler
//! steps, which need no exponential and are stable at any step. Energy and work are counted in whole numbers, so that
//! the calls to `advance` may divide the time in any way.
//!
//! A law that was tuned on one model proves nothing about another. The families differ in the properties that make laws
//! fail: the exponent ([`Curve::Power`]), voltage that stops falling ([`Curve::VoltageFloor`]), a limit that does not
//! bind ([`TurboSpec`]), hardware that sets the clock itself ([`Governor::Hardware`]), vector code under a lower
//! licence ([`LicenceSpec`]), and in any of them slow actuators, noise, heat and leakage.
#![forbid(unsafe_code)]

mod curve;
mod gpu;
mod limiter;
mod load;
mod meter;
mod model;
mod package;
mod plant;
mod policy;
pub mod preset;
mod random;
mod sensor;
mod spec;
mod steady;
mod thermal;
mod units;
mod work;

pub use curve::{Curve, Exponent, speed};
pub use limiter::PowerLimit;
pub use load::{Load, LoadJitter, LoadProfile};
pub use package::ThrottleReasons;
pub use plant::{InputError, Plant, PlantDomain, PowerLimitTerm};
pub use random::Random;
pub use sensor::{EnergyCounter, Noise, PowerSensor, SensorError, wrapped};
pub use spec::{
    ActuatorSpec, Governor, LicenceSpec, NodeSpec, PackageSpec, PlantGpuSpec, PolicyLayout, SpecError,
    TurboSpec,
};
pub use steady::{BestUniform, PackageSetpoint, Steady, SteadyNode};
pub use thermal::ThermalSpec;
pub use units::{from_watts, to_watts};
