//! Power caps of Intel's discrete GPUs behind the power port, through the hwmon files of the drivers i915 and xe.
//!
//! By the kernel's ABI documents (`sysfs-driver-intel-i915-hwmon`, `sysfs-driver-intel-xe-hwmon`) and the drivers
//! themselves:
//!
//! | file | what it is |
//! |---|---|
//! | `powerN_max` | the sustained limit (PL1) in µW, of the card (N = 1) or of the package on it (N = 2); 0 says that it is switched off |
//! | `powerN_rated_max` | the default limit (TDP), which is the most that may be written |
//! | `powerN_max_interval` | the window of the limit in ms, up to 256 s; it is left as it is |
//! | `powerN_crit`, `powerN_cap` | limits of peaks, left as they are |
//! | `energyN_input` | the energy drawn in µJ, of the card or of the package |
//!
//! # Which limit and which meter
//!
//! The limit of the card where the driver has one, else that of the package (xe on Ponte Vecchio and Arctic Sound). The
//! meter of the card, else that of the package where the limit is the package's too: a meter never shows less than what
//! is limited. Tiles (`i915_gtN`) have a meter and no limit, and are no domains; integrated GPUs have no hwmon.
//!
//! # What is written, and what is read back
//!
//! - Whole watts, rounded down: the drivers round to the nearest step of their register (1/8 W), which may be upwards.
//! - The drivers take any number, and show it clamped to what the card does where the card says so. Nobody tells the
//!   lowest limit, so what is read back may be above the wish, and the port says it.
//! - `powerN_rated_max` of a card with limits behind its firmware's mailbox (xe on Battlemage) is the limit that is in
//!   force now. So the largest limit is the largest that was ever told since this was opened, or what the journal
//!   holds of before: a cap is never taken for the maximum.
//! - A limit that is switched off reads as [`OFF`], more than any card draws. i915 switches it off again, if the card can
//!   (`ENODEV` where not). xe is never told to: before Linux 6.16 it then sets a limit of 0 W and shows that as off. Where
//!   a limit cannot be switched off again its largest is written, and [`IntelError::StaysOn`] says so; the original stays
//!   in the journal.
//!
//! # What is measured
//!
//! The register of the energy has 32 bits, and the driver adds up what it sees of it whenever somebody reads. What is
//! shown here is that sum within [`COUNTER`], the smallest range that the register has, so that a law knows when a wrap
//! may have been missed. A reading of 0 is the driver's word for a failure.
//!
//! A GPU that sleeps would be woken by a read, so a sample of it is [`Busy`](power_hal::ErrorKind::Busy).
#![forbid(unsafe_code)]

mod device;
mod error;
mod find;
mod hwmon;

pub use device::{COUNTER, OFF};
pub use error::IntelError;
pub use hwmon::IntelHwmon;

/// Intel's GPUs.
pub type Intel<C, O> = hal_files::devices::CappedDevices<IntelHwmon, C, O>;
