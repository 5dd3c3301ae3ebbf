//! `power1_cap` as amdgpu and the HSMP driver show it.

use crate::number::{Errno, kstrtou32};
use libc::{EINVAL, EPERM};

/// What answers behind `power1_cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A GPU's firmware: whole watts within its range.
    Amdgpu {
        /// Whether the kernel refuses what is below the minimum (6.7 and later); before, it reports 0 and looks away.
        checks_min: bool,
    },
    /// A GPU of a virtual machine: no cap is taken.
    VirtualFunction,
    /// An EPYC socket: what is above the maximum is clipped.
    Hsmp,
}

/// One hwmon device.
#[derive(Clone, Debug)]
pub struct Hwmon {
    /// What answers.
    pub device: Device,
    /// The cap in force, in microwatts.
    pub cap_uw: u64,
    /// `power1_cap_min`; an HSMP socket shows none.
    pub min_uw: u64,
    /// `power1_cap_max`; 0 on the secondary die of a module, which takes no cap.
    pub max_uw: u64,
    /// `power1_cap_default`.
    pub default_uw: u64,
    /// A limit that a management controller set: the most constraining one wins.
    pub out_of_band_uw: Option<u64>,
    /// The device is being reset or is suspended.
    pub in_reset: bool,
    /// The firmware does not answer: files read as an empty line.
    pub silent: bool,
    /// The device sleeps (runtime power management), until somebody reads or writes one of its numbers.
    pub asleep: bool,
}

impl Hwmon {
    /// What `power1_cap` reads.
    #[must_use]
    pub fn cap(&self) -> String {
        self.number(self.cap_in_force_uw())
    }

    /// The most constraining of the limits that were set.
    #[must_use]
    pub fn cap_in_force_uw(&self) -> u64 {
        self.out_of_band_uw.map_or(self.cap_uw, |other| other.min(self.cap_uw))
    }

    /// A file with a number, or the empty line of a device that does not answer.
    #[must_use]
    pub fn number(&self, value: u64) -> String {
        if self.silent { "\n".to_owned() } else { format!("{value}\n") }
    }

    /// Writes `power1_cap`.
    ///
    /// # Errors
    /// `EINVAL` out of range or on a virtual function, `ERANGE` beyond 32 bits, `EPERM` while in reset.
    pub fn write_cap(&mut self, text: &[u8]) -> Result<(), Errno> {
        if self.in_reset {
            return Err(EPERM);
        }
        let value = u64::from(kstrtou32(text)?);
        match self.device {
            Device::VirtualFunction => Err(EINVAL),
            Device::Hsmp => {
                self.cap_uw = (value / 1000 * 1000).min(self.max_uw);
                Ok(())
            }
            Device::Amdgpu { checks_min } => self.write_gpu(value / 1_000_000 * 1_000_000, checks_min),
        }
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

    fn mi300x() -> Hwmon {
        Hwmon {
            device: Device::Amdgpu { checks_min: true },
            cap_uw: 750_000_000,
            min_uw: 350_000_000,
            max_uw: 750_000_000,
            default_uw: 750_000_000,
            out_of_band_uw: None,
            in_reset: false,
            silent: false,
            asleep: false,
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
        assert_eq!(Hwmon { in_reset: true, ..mi300x() }.write_cap(b"400000000"), Err(EPERM));
        assert_eq!(
            Hwmon { device: Device::VirtualFunction, ..mi300x() }.write_cap(b"400000000"),
            Err(EINVAL)
        );
        assert_eq!(Hwmon { silent: true, ..mi300x() }.cap(), "\n");
        assert_eq!(
            Hwmon { min_uw: 0, max_uw: 0, cap_uw: 0, ..mi300x() }.write_cap(b"400000000"),
            Err(EINVAL)
        );
    }

    #[test]
    fn a_socket_clips_at_its_maximum_and_the_most_constraining_limit_wins() {
        let mut socket = Hwmon { device: Device::Hsmp, max_uw: 400_000_000, cap_uw: 400_000_000, ..mi300x() };
        assert_eq!(socket.write_cap(b"500000000"), Ok(()));
        assert_eq!(socket.cap(), "400000000\n");
        socket.out_of_band_uw = Some(300_000_000);
        assert_eq!(socket.write_cap(b"350000000"), Ok(()));
        assert_eq!(socket.cap(), "300000000\n");
    }
}
