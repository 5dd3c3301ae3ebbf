//! A frequency policy as cpufreq shows it: values are rounded down to a table, clamped silently at both ends, and
//! combined with the requests of others.

use crate::number::{Errno, scan_u32};
use libc::EBUSY;
use std::ops::RangeInclusive;

/// A cpufreq policy.
#[derive(Clone, Debug)]
pub struct VirtualPolicy {
    /// Its processors, including hot-unplugged ones.
    pub cpus: Vec<usize>,
    /// `scaling_driver`.
    pub driver: &'static str,
    /// The available frequencies, ascending, in kHz; empty if the driver accepts any value in the range.
    pub table: Vec<u32>,
    /// `cpuinfo_min_freq` and `cpuinfo_max_freq`.
    pub hardware: RangeInclusive<u32>,
    /// The maximum that the user requested.
    pub user_max: u32,
    /// The minimum that the user requested; it is kept while the maximum is below it.
    pub user_min: u32,
    /// The lowest maximum that others request (thermal cooling, the platform).
    pub others_max: u32,
    /// Whether all its processors are offline.
    pub inactive: bool,
    /// False while its driver is not loaded: its folder is missing.
    pub present: bool,
    /// `base_frequency`, where the driver shows it.
    pub base: Option<u32>,
    /// Turbo is switched off, so that no clock above the base is granted.
    pub turbo_off: bool,
    /// Whether the kernel has `cpuinfo_avg_freq`.
    pub averages: bool,
    /// How many reads after a write still return the old limit: a kernel worker applies the limit after the write has
    /// returned.
    pub late_reads: u32,
    /// A written maximum that is not in force yet, and how many reads will still return the old one.
    pub coming: Option<(u32, u32)>,
}

impl VirtualPolicy {
    /// What `scaling_max_freq` reads: the aggregate of all requests, resolved.
    ///
    /// # Errors
    /// `EBUSY` while all its processors are offline.
    pub fn max_freq(&self) -> Result<u32, Errno> {
        self.active()?;
        Ok(self.effective_max())
    }

    /// Counts a read of the limit. A written limit comes into force after the kernel's number of delayed reads.
    pub fn pass_read(&mut self) {
        self.coming = match self.coming {
            Some((wanted, 0 | 1)) => {
                self.user_max = wanted;
                None
            }
            Some((wanted, left)) => Some((wanted, left - 1)),
            None => None,
        };
    }

    /// The value of `scaling_min_freq`: the user's request, but never above the maximum.
    ///
    /// # Errors
    /// `EBUSY` while all its processors are offline.
    pub fn min_freq(&self) -> Result<u32, Errno> {
        self.active()?;
        Ok(self.user_min.clamp(*self.hardware.start(), *self.hardware.end()).min(self.effective_max()))
    }

    /// Writes `scaling_max_freq`.
    ///
    /// # Errors
    /// `EINVAL` if the text does not begin with a digit; `EBUSY` while all its processors are offline.
    pub fn write_max_freq(&mut self, text: &[u8]) -> Result<(), Errno> {
        self.active()?;
        let wanted = scan_u32(text)?;
        if self.late_reads == 0 {
            self.user_max = wanted;
        } else {
            self.coming = Some((wanted, self.late_reads));
        }
        Ok(())
    }

    /// Writes `scaling_min_freq`.
    ///
    /// # Errors
    /// As for [`Self::write_max_freq`].
    pub fn write_min_freq(&mut self, text: &[u8]) -> Result<(), Errno> {
        self.active()?;
        self.user_min = scan_u32(text)?;
        Ok(())
    }

    /// The maximum that the hardware applies.
    #[must_use]
    pub fn effective_max(&self) -> u32 {
        let turbo = self.base.filter(|_| self.turbo_off).unwrap_or(u32::MAX);
        let lowest = self.user_max.min(self.others_max).min(turbo);
        // intel_pstate rounds down to a step of the processor's ratio, whatever reads back.
        let ratio = if self.driver.starts_with("intel_") { lowest - lowest % 100_000 } else { lowest };
        let wanted = ratio.clamp(*self.hardware.start(), *self.hardware.end());
        self.table.iter().copied().rev().find(|&step| step <= wanted).unwrap_or(wanted)
    }

    /// Reloads the driver: limits are lost.
    pub fn reload(&mut self) {
        self.coming = None;
        self.user_max = *self.hardware.end();
        self.user_min = *self.hardware.start();
    }

    /// Checks that its files can be used: none can while all its processors are offline.
    ///
    /// # Errors
    /// `EBUSY` then.
    pub fn active(&self) -> Result<(), Errno> {
        if self.inactive { Err(EBUSY) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::EINVAL;

    fn policy() -> VirtualPolicy {
        VirtualPolicy {
            cpus: vec![0, 4],
            driver: "acpi-cpufreq",
            table: vec![1_200_000, 1_600_000, 2_000_000, 2_400_000, 2_800_000, 3_200_000],
            hardware: 1_200_000..=3_200_000,
            user_max: 3_200_000,
            user_min: 1_200_000,
            others_max: u32::MAX,
            inactive: false,
            present: true,
            base: Some(2_400_000),
            turbo_off: false,
            averages: false,
            late_reads: 0,
            coming: None,
        }
    }

    #[test]
    fn a_maximum_is_resolved_down_and_clamped_without_a_word() {
        // facts/hardware.md 3.2, written → read back.
        for (written, read) in [
            ("2000000", 2_000_000),
            ("2100000", 2_000_000),
            ("1900000", 1_600_000),
            ("100", 1_200_000),
            ("0", 1_200_000),
            ("999999999", 3_200_000),
            ("2400000xyz", 2_400_000),
            ("0x1", 1_200_000),
            ("4294967296", 1_200_000),
        ] {
            let mut policy = policy();
            assert_eq!(policy.write_max_freq(written.as_bytes()), Ok(()), "{written}");
            assert_eq!(policy.max_freq(), Ok(read), "{written}");
        }
        for refused in ["-1", "abc"] {
            assert_eq!(policy().write_max_freq(refused.as_bytes()), Err(EINVAL));
        }
    }

    #[test]
    fn the_minimum_shows_lowered_and_comes_back() {
        let mut policy = policy();
        policy.write_min_freq(b"2400000").unwrap();
        policy.write_max_freq(b"1600000").unwrap();
        assert_eq!((policy.min_freq(), policy.max_freq()), (Ok(1_600_000), Ok(1_600_000)));
        policy.write_max_freq(b"3200000").unwrap();
        assert_eq!(policy.min_freq(), Ok(2_400_000));
    }

    #[test]
    fn an_inactive_policy_is_busy_and_keeps_its_limit() {
        let mut policy = policy();
        policy.write_max_freq(b"2000000").unwrap();
        policy.inactive = true;
        assert_eq!(policy.max_freq(), Err(EBUSY));
        assert_eq!(policy.write_max_freq(b"1600000"), Err(EBUSY));
        policy.inactive = false;
        assert_eq!(policy.max_freq(), Ok(2_000_000));
    }

    #[test]
    fn without_turbo_the_maximum_reads_as_the_base_and_comes_back() {
        let mut policy = policy();
        policy.turbo_off = true;
        assert_eq!(policy.max_freq(), Ok(2_400_000));
        policy.write_max_freq(b"2800000").unwrap();
        assert_eq!(policy.max_freq(), Ok(2_400_000));
        policy.turbo_off = false;
        assert_eq!(policy.max_freq(), Ok(2_800_000));
    }

    #[test]
    fn the_read_back_is_the_aggregate_and_a_reload_loses_the_limit() {
        let mut policy = policy();
        policy.others_max = 1_700_000;
        policy.write_max_freq(b"2400000").unwrap();
        assert_eq!(policy.max_freq(), Ok(1_600_000));
        policy.others_max = u32::MAX;
        policy.reload();
        assert_eq!(policy.max_freq(), Ok(3_200_000));
    }

    #[test]
    fn a_write_returns_before_it_is_in_force() {
        let mut policy = VirtualPolicy { late_reads: 2, ..policy() };
        policy.write_max_freq(b"2000000").unwrap();
        for expected in [3_200_000, 3_200_000, 2_000_000, 2_000_000] {
            assert_eq!(policy.max_freq(), Ok(expected));
            policy.pass_read();
        }
        policy.write_max_freq(b"1600000").unwrap();
        policy.reload();
        policy.pass_read();
        assert_eq!(policy.max_freq(), Ok(3_200_000), "a driver that is gone brings nothing into force");
    }
}
