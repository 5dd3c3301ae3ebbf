//! The clocks of GPUs as amdgpu, i915 and xe let them be limited.
//!
//! - amdgpu on an Instinct GPU: the table `pp_od_clk_voltage`, which it takes in the performance levels `manual` and
//!   `perf_determinism` only. What is edited stays until it is committed, also over a change of the level; the level
//!   `auto` resets what is in force.
//! - i915: a highest clock below the lowest one is refused, and the other way round. A program that waits gets the boost
//!   clock, even above the highest one.
//! - xe: nothing of that is refused, and with the highest clock below the lowest one the GPU runs at the lowest one.

use crate::number::{Errno, kstrtou32};
use libc::{EINVAL, ENODEV};

/// A clock that can be limited.
#[derive(Clone, Debug)]
pub enum HwmonClock {
    /// By amdgpu.
    Amd(AmdClock),
    /// By i915 or xe, for each part of the GPU; the plant has the clock of the first.
    Intel(Vec<IntelGt>),
}

/// The clock of an Instinct GPU.
#[derive(Clone, Debug)]
pub struct AmdClock {
    /// The lowest and the highest clock of the hardware, MHz.
    pub range: (u32, u32),
    /// The performance level.
    pub level: &'static str,
    /// The lowest and the highest clock in force, MHz.
    pub in_force: (u32, u32),
    /// What was edited and not reset.
    pub edited: (Option<u32>, Option<u32>),
}

/// The clock of a part of an Intel GPU.
#[derive(Clone, Debug)]
pub struct IntelGt {
    /// RPn and RP0, MHz.
    pub range: (u32, u32),
    /// The lowest clock that was set, MHz.
    pub low: u32,
    /// The highest clock that was set, MHz.
    pub high: u32,
    /// The clock of a program that waits, of i915.
    pub boost: Option<u32>,
}

/// A file of a clock; of an Intel GPU with the number of the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockFile {
    /// `power_dpm_force_performance_level`.
    Level,
    /// `pp_od_clk_voltage`.
    Table,
    /// `freq1_input`.
    Running,
    /// The lowest clock.
    Low(usize),
    /// The highest clock.
    High(usize),
    /// The boost clock.
    Boost(usize),
    /// RPn.
    Least(usize),
    /// RP0.
    Most(usize),
    /// The clock at which the part runs.
    Actual(usize),
}

const LEVELS: [&str; 3] = ["auto", "manual", "perf_determinism"];

impl AmdClock {
    /// A clock of this range that nobody has limited.
    #[must_use]
    pub const fn free(range: (u32, u32)) -> Self {
        Self { range, level: LEVELS[0], in_force: range, edited: (None, None) }
    }

    /// What the next `c` puts in force.
    #[must_use]
    pub fn edited_table(&self) -> (u32, u32) {
        (self.edited.0.unwrap_or(self.in_force.0), self.edited.1.unwrap_or(self.in_force.1))
    }

    fn write_level(&mut self, data: &[u8]) -> Result<(), Errno> {
        let word = std::str::from_utf8(data).map_err(|_| EINVAL)?.trim_end();
        self.level = LEVELS.into_iter().find(|level| *level == word).ok_or(EINVAL)?;
        if self.level == LEVELS[0] {
            self.in_force = self.range;
        }
        Ok(())
    }

    fn write_table(&mut self, data: &[u8]) -> Result<(), Errno> {
        if self.level == LEVELS[0] {
            return Err(EINVAL);
        }
        let text = std::str::from_utf8(data).map_err(|_| EINVAL)?;
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["s", line, mhz] => {
                let mhz = kstrtou32(mhz.as_bytes())?;
                match line {
                    "0" if mhz >= self.range.0 => self.edited.0 = Some(mhz),
                    "1" if mhz <= self.range.1 => self.edited.1 = Some(mhz),
                    _ => return Err(EINVAL),
                }
            }
            ["c"] => {
                let (low, high) = self.edited_table();
                if low >= high {
                    return Err(EINVAL);
                }
                // The level of determinism takes the highest clock only.
                self.in_force = if self.level == LEVELS[2] { (self.range.0, high) } else { (low, high) };
            }
            _ => return Err(EINVAL),
        }
        Ok(())
    }
}

impl IntelGt {
    /// A part of this range that nobody has limited. On servers the lowest clock is the highest one.
    #[must_use]
    pub const fn free((least, most): (u32, u32), is_server: bool, boosts: bool) -> Self {
        let low = if is_server { most } else { least };
        Self { range: (least, most), low, high: most, boost: if boosts { Some(most) } else { None } }
    }

    fn is_of_i915(&self) -> bool {
        self.boost.is_some()
    }

    fn write(&mut self, file: ClockFile, data: &[u8]) -> Result<(), Errno> {
        let mhz = kstrtou32(data)?;
        let strict = self.is_of_i915();
        if !(self.range.0..=self.range.1).contains(&mhz) {
            return Err(EINVAL);
        }
        match file {
            ClockFile::Low(_) if strict && mhz > self.high => return Err(EINVAL),
            ClockFile::High(_) if strict && mhz < self.low => return Err(EINVAL),
            ClockFile::Low(_) => self.low = mhz,
            ClockFile::High(_) => self.high = mhz,
            ClockFile::Boost(_) => self.boost = Some(mhz),
            ClockFile::Level
            | ClockFile::Table
            | ClockFile::Running
            | ClockFile::Least(_)
            | ClockFile::Most(_)
            | ClockFile::Actual(_) => return Err(EINVAL),
        }
        Ok(())
    }

    /// The highest clock that a busy program gets.
    fn allowed(&self) -> u32 {
        self.high.max(self.low).max(self.boost.unwrap_or(0))
    }
}

impl HwmonClock {
    /// The highest clock that is allowed, as a fraction of the highest there is.
    #[must_use]
    pub fn allowed_part(&self) -> f64 {
        let (allowed, most) = match self {
            Self::Amd(clock) => (clock.in_force.1, clock.range.1),
            Self::Intel(parts) => parts.first().map_or((1, 1), |part| (part.allowed(), part.range.1)),
        };
        f64::from(allowed) / f64::from(most)
    }

    /// Everything that is in force, and what the next commit puts in force, for a comparison with a later state.
    #[must_use]
    pub fn registers(&self) -> String {
        match self {
            Self::Amd(clock) => format!("{} {:?} {:?}", clock.level, clock.in_force, clock.edited_table()),
            Self::Intel(parts) => format!("{parts:?}"),
        }
    }

    /// The highest clock in force, MHz, as its driver shows it.
    #[must_use]
    pub fn limit_mhz(&self) -> u32 {
        match self {
            Self::Amd(clock) => clock.in_force.1,
            Self::Intel(parts) => parts.iter().map(|part| part.high).max().unwrap_or(0),
        }
    }

    /// The content of a file, at a clock that is this fraction of the highest.
    pub(crate) fn text(&self, file: ClockFile, running: f64) -> Result<String, Errno> {
        let line = |value: f64| format!("{value:.0}\n");
        match (self, file) {
            (Self::Amd(clock), ClockFile::Level) => Ok(format!("{}\n", clock.level)),
            (Self::Amd(clock), ClockFile::Table) => {
                let (low, high) = clock.in_force;
                Ok(format!("OD_SCLK:\n0: {low}Mhz\n1: {high}Mhz\n"))
            }
            (Self::Amd(clock), ClockFile::Running) => Ok(line(running * f64::from(clock.range.1) * 1e6)),
            (Self::Intel(parts), _) => {
                let part = |at: usize| parts.get(at).ok_or(ENODEV);
                let mhz = match file {
                    ClockFile::Low(at) => part(at)?.low,
                    ClockFile::High(at) => part(at)?.high,
                    ClockFile::Boost(at) => part(at)?.boost.ok_or(ENODEV)?,
                    ClockFile::Least(at) => part(at)?.range.0,
                    ClockFile::Most(at) => part(at)?.range.1,
                    ClockFile::Actual(at) => return Ok(line(running * f64::from(part(at)?.range.1))),
                    ClockFile::Level | ClockFile::Table | ClockFile::Running => return Err(ENODEV),
                };
                Ok(format!("{mhz}\n"))
            }
            (Self::Amd(_), _) => Err(ENODEV),
        }
    }

    /// Writes to a file.
    pub(crate) fn write(&mut self, file: ClockFile, data: &[u8]) -> Result<(), Errno> {
        match (self, file) {
            (Self::Amd(clock), ClockFile::Level) => clock.write_level(data),
            (Self::Amd(clock), ClockFile::Table) => clock.write_table(data),
            (Self::Intel(parts), ClockFile::Low(at) | ClockFile::High(at) | ClockFile::Boost(at)) => {
                parts.get_mut(at).ok_or(ENODEV)?.write(file, data)
            }
            (Self::Amd(_) | Self::Intel(_), _) => Err(libc::EACCES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the driver of Linux 6.16, `smu_v13_0_6_usr_edit_dpm_table` and `smu_v13_0_6_set_performance_level`.
    #[test]
    fn amdgpu_takes_its_table_in_two_levels_and_resets_it_in_auto() {
        let mut clock = HwmonClock::Amd(AmdClock::free((132, 2_100)));
        let mut write = |file, text: &str| clock.write(file, text.as_bytes());
        assert_eq!(write(ClockFile::Table, "s 1 1200\n"), Err(EINVAL), "in auto");
        assert_eq!(write(ClockFile::Level, "fast"), Err(EINVAL));
        assert_eq!(write(ClockFile::Level, "manual\n"), Ok(()));
        for refused in ["s 1 2101", "s 0 131", "s 2 500", "s 1", "x", "s 1 -5"] {
            assert_eq!(write(ClockFile::Table, refused), Err(EINVAL), "{refused}");
        }
        assert_eq!(write(ClockFile::Table, "s 1 1200\n"), Ok(()));
        assert_eq!(clock.limit_mhz(), 2_100, "not committed");
        let mut write = |file, text: &str| clock.write(file, text.as_bytes());
        assert_eq!(write(ClockFile::Table, "c\n"), Ok(()));
        assert_eq!(write(ClockFile::Table, "s 1 132"), Ok(()));
        assert_eq!(write(ClockFile::Table, "c"), Err(EINVAL), "the lowest is not below the highest");
        assert_eq!(clock.text(ClockFile::Table, 1.0), Ok("OD_SCLK:\n0: 132Mhz\n1: 1200Mhz\n".to_owned()));
        assert_eq!(clock.write(ClockFile::Level, b"auto"), Ok(()));
        assert_eq!(clock.limit_mhz(), 2_100);
    }

    /// By `intel_guc_slpc_set_max_freq` of i915, and `pc_set_max_freq` of xe.
    #[test]
    fn i915_refuses_crossed_clocks_and_boosts_and_xe_runs_at_the_lowest_one() {
        let mut card = HwmonClock::Intel(vec![IntelGt::free((300, 1_600), true, true)]);
        assert_eq!(card.write(ClockFile::High(0), b"800"), Err(EINVAL), "below the lowest clock");
        for (file, text) in [(ClockFile::Low(0), "800"), (ClockFile::High(0), "800")] {
            assert_eq!(card.write(file, text.as_bytes()), Ok(()));
        }
        assert_eq!(card.allowed_part(), 1.0, "the boost clock");
        assert_eq!(card.write(ClockFile::Boost(0), b"800"), Ok(()));
        assert_eq!(card.allowed_part(), 0.5);
        let mut card = HwmonClock::Intel(vec![IntelGt::free((300, 1_600), true, false)]);
        assert_eq!(card.write(ClockFile::High(0), b"800"), Ok(()));
        assert_eq!(card.allowed_part(), 1.0, "the lowest clock");
        assert_eq!(card.write(ClockFile::Low(0), b"800"), Ok(()));
        assert_eq!(card.allowed_part(), 0.5);
        assert_eq!(card.write(ClockFile::High(0), b"1601"), Err(EINVAL));
        assert_eq!(card.write(ClockFile::High(1), b"800"), Err(ENODEV));
    }
}
