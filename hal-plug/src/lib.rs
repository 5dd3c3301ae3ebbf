//! The power that a whole node draws at its plug, with fans and the losses of its power supplies, as the meters of its
//! board say it. It only reads: there is no cap here, and nothing that could set one.
//!
//! - [`AcpiMeter`]: the hwmon device `power_meter`, a file of the kernel's ACPI driver.
//! - [`DcmiMeter`]: the command Get Power Reading of IPMI DCMI, to the management controller (BMC) behind [`Bmc`];
//!   [`DevIpmi`] is the one behind `/dev/ipmi0`.
//!
//! Such a meter is none of the port's domains: a node has at most one, it has no limit here, and what it says contains
//! what packages, memory and GPUs draw. It is never added to them.
//!
//! A BMC may take seconds to answer, and so may the file of an ACPI meter, whose firmware asks the BMC: read either in a
//! thread that nothing waits for.
#![deny(unsafe_code)]

mod acpi;
mod dcmi;
mod error;
#[allow(unsafe_code, reason = "the FFI boundary")]
mod ffi;

pub use acpi::AcpiMeter;
pub use dcmi::{ANSWER_MAX, Bmc, BmcError, CompletionCode, DcmiMeter, DevIpmi, IpmiRequest, power_reading};
pub use error::PlugError;
pub use hal_files::Root;

use power_units::{MicroWatts, Micros};

/// What a meter says of the whole node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlugReading {
    /// The power, at least a watt.
    pub power: MicroWatts,
    /// The time over which the meter averages, if it says so.
    pub over: Option<Micros>,
}

/// No node draws less while this code runs on it, nor more: another number is a wrong answer.
const POSSIBLE_MIN: MicroWatts = MicroWatts::new(1_000_000);
const POSSIBLE_MAX: MicroWatts = MicroWatts::new(100_000_000_000);
/// No meter averages over more than a day.
const OVER_MAX: Micros = Micros::new(86_400_000_000);

impl PlugReading {
    /// The reading, if it is possible.
    ///
    /// # Errors
    /// If no node draws this.
    pub fn new(power: MicroWatts, over: Option<Micros>) -> Result<Self, PlugError> {
        if power < POSSIBLE_MIN || power > POSSIBLE_MAX {
            return Err(PlugError::Impossible(power));
        }
        let over = over.filter(|over| *over > Micros::ZERO && *over <= OVER_MAX);
        Ok(Self { power, over })
    }
}
