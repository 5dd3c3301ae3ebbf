//! Power caps of Intel's discrete GPUs behind the power port, through the hwmon files of the drivers i915 and xe.
//!
//! Based on the kernel's ABI documents (`sysfs-driver-intel-i915-hwmon`, `sysfs-driver-intel-xe-hwmon`) and the drivers
//! themselves:
//!
//! | file | what it is |
//! |---|---|
//! | `powerN_max` | the sustained limit (PL1) in µW, of the card (N = 1) or of the package on it (N = 2); 0 means that it is switched off |
//! | `powerN_rated_max` | the default limit (TDP), which is the most that may be written |
//! | `powerN_max_interval` | the window of the limit in ms, up to 256 s; it is left as it is |
//! | `powerN_crit`, `powerN_cap` | limits of peaks, left as they are |
//! | `energyN_input` | the energy drawn in µJ, of the card or of the package |
//!
//! # Which limit and which meter
//!
//! The limit of the card if the driver has one, else that of the package (xe on Ponte Vecchio and Arctic Sound). The
//! meter of the card, else that of the package if the limit is also the package's: a meter never shows less than the
//! limited power. Tiles (`i915_gtN`) have a meter and no limit, and are no domains; integrated GPUs have no hwmon.
//!
//! # What is written, and what is read back
//!
//! - Whole watts, rounded down: the drivers round to the nearest step of their register (1/8 W), which may be upwards.
//! - The drivers accept any number, and show it clamped to the range of the card if the card reports one. The lowest
//!   limit is not reported, so the read-back may be above the wish, and the port reports that.
//! - On a card with limits behind its firmware's mailbox (xe on Battlemage), `powerN_rated_max` is the limit that is in
//!   force now. So the largest limit is the largest one that was read since this was opened, or that the journal holds
//!   from before: a cap is never taken as the maximum.
//! - A limit that is switched off reads as [`OFF`], more than any card draws. i915 can switch it off again, if the card
//!   supports it (`ENODEV` otherwise). xe is never ordered to: before Linux 6.16 it then sets a limit of 0 W and shows
//!   it as off. Where a limit cannot be switched off again its largest value is written, and [`IntelError::StaysOn`] is
//!   returned; the original stays in the journal.
//!
//! # The clock
//!
//! The highest clock of each part (GT) can be limited, in MHz: `rps_max_freq_mhz` of i915 in `drm/cardN/gt/gtN`, `max_freq` of
//! xe in `tileN/gtN/freq0`, within the clocks RPn and RP0 of the part. A part whose lowest clock is above the limit is
//! lowered too: i915 refuses the limit otherwise, and xe then runs at the lowest clock. i915 lets a waiting program run at
//! the boost clock (`rps_boost_freq_mhz`), which may be above the limit, so that is lowered as well. All parts get the same
//! limit, each within its own clocks, and the highest of what is read back counts. All three values of each part are
//! restored.
//!
//! # What is measured
//!
//! The energy register has 32 bits, and the driver accumulates its changes whenever it is read. This HAL shows that sum
//! within [`COUNTER`], the smallest range of the register, so that a law knows when a wrap may have been missed. The
//! driver uses a reading of 0 to report a failure.
//!
//! Beside power: the temperature of the package (`temp1_input` of i915, `temp2_input` of xe), and what slows the GPU at
//! the instant of the reading (`throttle_reason_…` of i915, the folder `throttle` of xe). The drivers count no time for
//! which a limit held it back, and show no utilisation and no memory in files.
//!
//! A read would wake a GPU that is asleep, so a sample of it is [`Busy`](power_hal::ErrorKind::Busy).
#![forbid(unsafe_code)]

mod clock;
mod device;
mod error;
mod find;
mod gt;
mod hwmon;
mod slow;

pub use clock::clock_in;
pub use device::{COUNTER, OFF};
pub use error::IntelError;
pub use hwmon::IntelHwmon;

/// Intel's GPUs.
pub type Intel<C, O> = hal_files::devices::CappedDevices<IntelHwmon, C, O>;
