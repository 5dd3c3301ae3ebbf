//! `power1_cap` as amdgpu and the HSMP driver show it.

use crate::gpu_clock::HwmonClock;
use crate::number::{Errno, kstrtou32, kstrtou64};
use libc::{EINVAL, EPERM};

/// The largest value of the register for an Intel GPU's limit, in microwatts. It means that the limit is off.
pub const OFF_UW: u64 = 4_095_875_000;
/// One step of that register.
const STEP_UW: u64 = 125_000;

/// The kind of device behind `power1_cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HwmonChip {
    /// A GPU's firmware: whole watts in its range.
    Amdgpu {
        /// Whether the kernel refuses values below the minimum (6.7 and later); earlier kernels report 0 and ignore
        /// them.
        checks_min: bool,
    },
    /// A GPU in a virtual machine: it accepts no cap.
    VirtualFunction,
    /// An EPYC socket: values above the maximum are clipped.
    Hsmp,
    /// A GPU of Intel's drivers: `powerN_max`.
    Intel(IntelGpu),
}

/// The behaviour of an Intel GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntelGpu {
    /// The channel of its limit: 1 for the card, 2 for the package.
    pub limit: u8,
    /// The channel of its energy counter.
    pub energy: u8,
    /// Whether the limits are behind the firmware's mailbox: then the rated limit is the one in force, and no limit
    /// can be above the one at boot.
    pub mailbox: bool,
    /// The effect of switching the limit off.
    pub switch: Switch,
    /// Whether the register is locked: writes are accepted and ignored.
    pub locked: bool,
}

/// The effect of writing 0 to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The limit is off.
    Off,
    /// The hardware does not support it, and the driver returns this error.
    Refused(Errno),
    /// The driver switches the limit on again at 0 W, which reads like a limit that is off (xe before 6.16).
    Nothing,
}

/// One hwmon device.
#[derive(Clone, Debug)]
pub struct HwmonDevice {
    /// The kind of device.
    pub device: HwmonChip,
    /// The cap in force, in microwatts.
    pub cap_uw: u64,
    /// `power1_cap_min`; an HSMP socket has none.
    pub min_uw: u64,
    /// `power1_cap_max`; 0 on the secondary die of a module, which accepts no cap.
    pub max_uw: u64,
    /// `power1_cap_default`.
    pub default_uw: u64,
    /// A limit that a management controller has set. The lowest limit applies.
    pub out_of_band_uw: Option<u64>,
    /// The device is being reset or is suspended.
    pub in_reset: bool,
    /// The firmware does not answer: files read as an empty line.
    pub silent: bool,
    /// The device is suspended (runtime power management) until one of its numbers is read or written.
    pub asleep: bool,
    /// Its clock, if that can be limited.
    pub clock: Option<HwmonClock>,
}

impl HwmonDevice {
    /// The content of the limit's file.
    #[must_use]
    pub fn cap(&self) -> String {
        // A limit that is off reads as 0.
        self.number(if self.is_off() { 0 } else { self.cap_in_force_uw() })
    }

    /// The content of `powerN_rated_max`.
    #[must_use]
    pub fn rated(&self) -> String {
        let follows =
            matches!(self.device, HwmonChip::Intel(IntelGpu { mailbox: true, .. })) && !self.is_off();
        self.number(if follows { self.cap_uw } else { self.default_uw })
    }

    fn is_off(&self) -> bool {
        matches!(self.device, HwmonChip::Intel(_)) && self.cap_uw == OFF_UW
    }

    /// The lowest of the limits that were set.
    #[must_use]
    pub fn cap_in_force_uw(&self) -> u64 {
        // For an Intel GPU that reports both ends of its range, the driver shows the limit that the card applies,
        // whatever is in the register.
        let says = self.min_uw > 0 && self.max_uw > 0;
        let clamps = matches!(self.device, HwmonChip::Intel(_)) && says && !self.is_off();
        let cap_uw = if clamps { self.cap_uw.clamp(self.min_uw, self.max_uw) } else { self.cap_uw };
        self.out_of_band_uw.map_or(cap_uw, |other| other.min(cap_uw))
    }

    /// The content of a file with a number; an empty line if the device does not answer.
    #[must_use]
    pub fn number(&self, value: u64) -> String {
        if self.silent { "\n".to_owned() } else { format!("{value}\n") }
    }

    /// Writes to the limit's file.
    ///
    /// # Errors
    /// `EINVAL` out of range or on a virtual function, `ERANGE` beyond 32 bits, `EPERM` while in reset.
    pub fn write_cap(&mut self, text: &[u8]) -> Result<(), Errno> {
        if self.in_reset {
            return Err(EPERM);
        }
        if let HwmonChip::Intel(intel) = self.device {
            return self.write_intel(intel, kstrtou64(text)?);
        }
        let value = u64::from(kstrtou32(text)?);
        match self.device {
            HwmonChip::Intel(_) => Err(EINVAL),
            HwmonChip::VirtualFunction => Err(EINVAL),
            HwmonChip::Hsmp => {
                self.cap_uw = (value / 1000 * 1000).min(self.max_uw);
                Ok(())
            }
            HwmonChip::Amdgpu { checks_min } => self.write_gpu(value / 1_000_000 * 1_000_000, checks_min),
        }
    }

    fn write_intel(&mut self, intel: IntelGpu, value: u64) -> Result<(), Errno> {
        let cap_uw = match (value, intel.switch) {
            (0, Switch::Refused(errno)) => return Err(errno),
            (0, Switch::Off) => OFF_UW,
            (0, Switch::Nothing) => 0,
            // Round to the nearest step of the register. The mailbox accepts no more than at boot.
            (_, _) => {
                let raw = value.saturating_add(STEP_UW / 2) / STEP_UW * STEP_UW;
                raw.min(if intel.mailbox { self.default_uw } else { OFF_UW - STEP_UW })
            }
        };
        if !intel.locked {
            self.cap_uw = cap_uw;
        }
        Ok(())
    }

    fn write_gpu(&mut self, value: u64, checks_min: bool) -> Result<(), Errno> {
        if value == 0 {
            return if self.min_uw == 0 { Ok(()) } else { Err(EINVAL) };
        }
        if value > self.max_uw || (checks_min && value < self.min_uw) {
            return Err(EINVAL);
        }
        self.cap_uw = value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::ERANGE;

    fn mi300x() -> HwmonDevice {
        HwmonDevice {
            device: HwmonChip::Amdgpu { checks_min: true },
            cap_uw: 750_000_000,
            min_uw: 350_000_000,
            max_uw: 750_000_000,
            default_uw: 750_000_000,
            out_of_band_uw: None,
            in_reset: false,
            silent: false,
            asleep: false,
            clock: None,
        }
    }

    #[test]
    fn a_gpu_truncates_to_watts_and_refuses_what_is_out_of_range() {
        let mut gpu = mi300x();
        assert_eq!(gpu.write_cap(b"400999999"), Ok(()));
        assert_eq!(gpu.cap(), "400000000\n");
        for refused in ["751000000", "349999999", "0", "abc"] {
            assert_eq!(gpu.write_cap(refused.as_bytes()), Err(EINVAL), "{refused}");
        }
        assert_eq!(gpu.write_cap(b"4294967296"), Err(ERANGE));
        assert_eq!(gpu.cap(), "400000000\n");
    }

    #[test]
    fn reset_virtual_silent_and_secondary_devices_each_answer_differently() {
        assert_eq!(HwmonDevice { in_reset: true, ..mi300x() }.write_cap(b"400000000"), Err(EPERM));
        assert_eq!(
            HwmonDevice { device: HwmonChip::VirtualFunction, ..mi300x() }.write_cap(b"400000000"),
            Err(EINVAL)
        );
        assert_eq!(HwmonDevice { silent: true, ..mi300x() }.cap(), "\n");
        assert_eq!(
            HwmonDevice { min_uw: 0, max_uw: 0, cap_uw: 0, ..mi300x() }.write_cap(b"400000000"),
            Err(EINVAL)
        );
    }

    #[test]
    fn a_gpu_of_intel_takes_any_number_shows_what_the_card_does_and_switches_off_as_its_driver_can() {
        let intel = IntelGpu { limit: 1, energy: 1, mailbox: false, switch: Switch::Off, locked: false };
        let of = |intel| HwmonDevice {
            device: HwmonChip::Intel(intel),
            cap_uw: 600_000_000,
            min_uw: 100_000_000,
            max_uw: 600_000_000,
            default_uw: 600_000_000,
            ..mi300x()
        };
        let after = |intel, text: &str| {
            let mut gpu = of(intel);
            gpu.write_cap(text.as_bytes()).map(|()| (gpu.cap(), gpu.rated()))
        };
        let shown = |cap: &str, rated: &str| Ok((format!("{cap}\n"), format!("{rated}\n")));
        assert_eq!(after(intel, "400062500"), shown("400125000", "600000000"), "to the nearest step");
        assert_eq!(after(intel, "50000000"), shown("100000000", "600000000"));
        assert_eq!(after(intel, "9000000000"), shown("600000000", "600000000"));
        assert_eq!(after(intel, "0"), shown("0", "600000000"));
        let mailbox = IntelGpu { mailbox: true, ..intel };
        assert_eq!(after(mailbox, "400000000"), shown("400000000", "400000000"));
        assert_eq!(
            after(IntelGpu { switch: Switch::Refused(libc::EOPNOTSUPP), ..intel }, "0"),
            Err(libc::EOPNOTSUPP)
        );
        let mut gpu = of(IntelGpu { switch: Switch::Nothing, ..intel });
        gpu.min_uw = 0;
        assert_eq!(gpu.write_cap(b"0"), Ok(()));
        assert_eq!((gpu.cap_in_force_uw(), gpu.cap().as_str()), (0, "0\n"), "a card that is held at nothing");
        assert_eq!(after(IntelGpu { locked: true, ..intel }, "400000000"), shown("600000000", "600000000"));
    }

    #[test]
    fn a_socket_clips_at_its_maximum_and_the_most_constraining_limit_wins() {
        let mut socket =
            HwmonDevice { device: HwmonChip::Hsmp, max_uw: 400_000_000, cap_uw: 400_000_000, ..mi300x() };
        assert_eq!(socket.write_cap(b"500000000"), Ok(()));
        assert_eq!(socket.cap(), "400000000\n");
        socket.out_of_band_uw = Some(300_000_000);
        assert_eq!(socket.write_cap(b"350000000"), Ok(()));
        assert_eq!(socket.cap(), "300000000\n");
    }
}
