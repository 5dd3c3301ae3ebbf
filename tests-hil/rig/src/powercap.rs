//! RAPL as the powercap driver shows it: registers with fields, units that truncate, locks, and errors that the
//! generic layer replaces. Nothing is clamped here, because the kernel does not clamp.

use crate::number::{Errno, kstrtou64, strtobool};
use libc::{ENODATA, ENOSYS};

/// The units of a part's registers.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    /// One step of a power field, in microwatts.
    pub power_uw: u64,
    /// One step of the energy counter, in nanojoules, truncated as the driver does.
    pub energy_nj: u64,
    /// One step of time, in microseconds, truncated as the driver does.
    pub time_us: u64,
    /// The width of a power field in bits.
    pub power_bits: u32,
}

impl Units {
    /// A Xeon: 1/8 W, 2⁻¹⁴ J, 976.56 µs.
    pub const XEON: Self = Self { power_uw: 125_000, energy_nj: 61_035, time_us: 976, power_bits: 15 };
    /// An EPYC: energy only, 2⁻¹⁶ J.
    pub const EPYC: Self = Self { power_uw: 125_000, energy_nj: 15_258, time_us: 976, power_bits: 15 };
    /// A Xeon whose limits are behind TPMI.
    pub const TPMI: Self = Self { power_uw: 125_000, energy_nj: 61_035, time_us: 976, power_bits: 18 };

    /// The value of `max_energy_range_uj`: 2³² − 1 steps.
    #[must_use]
    pub fn energy_range_uj(self) -> u64 {
        u64::from(u32::MAX) * self.energy_nj / 1000
    }

    /// The counter value for an energy of the plant: 32 bits of steps.
    #[must_use]
    pub fn energy_uj(self, drawn_uj: u64) -> u64 {
        let steps = u128::from(drawn_uj) * 1000 / u128::from(self.energy_nj);
        let counter = u64::try_from(steps & u128::from(u32::MAX)).unwrap_or(0);
        counter * self.energy_nj / 1000
    }

    const fn power_raw(self, uw: u64) -> u64 {
        (uw / self.power_uw) & ((1 << self.power_bits) - 1)
    }
}

/// `f·2^y` in steps of time: five bits of y, two of f.
fn window_raw(time_us: u64, unit: u64) -> u64 {
    let steps = (time_us / unit).max(1);
    let y = u64::from(steps.ilog2());
    let f = 4 * (steps - (1 << y)) / (1 << y);
    (y & 0x1f) | ((f & 3) << 5)
}

fn window_us(raw: u64, unit: u64) -> u64 {
    (1 << (raw & 0x1f)) * (4 + ((raw >> 5) & 3)) * unit / 4
}

/// One of a zone's limits.
#[derive(Clone, Debug)]
pub struct Constraint {
    /// `long_term`, `short_term` or `peak_power`.
    pub name: &'static str,
    /// The power field.
    pub power_raw: u64,
    /// The window field; peak power has none and reads 0.
    pub window_raw: u64,
    /// The value of `max_power_uw`; it is informative, often wrong, and sometimes 0.
    pub max_uw: u64,
    /// Whether the register's enable bit is set.
    pub enabled: bool,
    /// Whether the register's clamp bit is set: to keep the limit, the hardware may go below the requested clock.
    pub clamps: bool,
}

/// How a kernel treats a register that the BIOS has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterLock {
    /// It is not locked.
    Open,
    /// Linux 6.1: a window is accepted and ignored.
    WindowIgnored,
    /// Linux 6.5 and later: a window is also refused.
    WindowRefused,
    /// The register was locked after the driver was loaded, and writing gives no error (Linux 6.1 does not report a
    /// fault either): every write succeeds without an effect.
    LateIgnored,
    /// As above on Linux 6.12, if the write faults: every write is refused, and `enabled` still reads correctly.
    LateRefused,
}

/// A powercap zone.
#[derive(Clone, Debug)]
pub struct Zone {
    /// The folder's name, `intel-rapl:0`.
    pub id: String,
    /// Its name, `package-0`.
    pub name: String,
    /// The units of its part.
    pub units: Units,
    /// Its limits in register order; empty on AMD.
    pub constraints: Vec<Constraint>,
    /// Whether the BIOS has locked its limits.
    pub lock: RegisterLock,
    /// Whether the driver registers `enabled` without a limit behind it (AMD): a write succeeds without an effect.
    pub enabled_is_hollow: bool,
}

impl Zone {
    /// Reads a limit.
    #[must_use]
    pub fn power_limit_uw(&self, constraint: usize) -> u64 {
        self.constraints[constraint].power_raw * self.units.power_uw
    }

    /// Writes a limit: rounds down to a step and keeps only the bits of the field, so that 4096 W becomes 0.
    ///
    /// # Errors
    /// `EINVAL` for an invalid number; `ENODATA` if locked.
    pub fn write_power_limit(&mut self, constraint: usize, text: &[u8]) -> Result<(), Errno> {
        let value = kstrtou64(text)?;
        match self.lock {
            RegisterLock::Open => {
                self.constraints[constraint].power_raw = self.units.power_raw(value);
                Ok(())
            }
            RegisterLock::LateIgnored => Ok(()),
            RegisterLock::WindowIgnored | RegisterLock::WindowRefused | RegisterLock::LateRefused => {
                Err(ENODATA)
            }
        }
    }

    /// Reads a window.
    #[must_use]
    pub fn time_window_us(&self, constraint: usize) -> u64 {
        match &self.constraints[constraint] {
            Constraint { name: "peak_power", .. } => 0,
            constraint => window_us(constraint.window_raw, self.units.time_us),
        }
    }

    /// Writes a window, rounded down to a value that the field can hold.
    ///
    /// # Errors
    /// `EINVAL` for an invalid number; if locked, an error that depends on the kernel's version.
    pub fn write_time_window(&mut self, constraint: usize, text: &[u8]) -> Result<(), Errno> {
        let value = kstrtou64(text)?;
        match self.lock {
            RegisterLock::Open => {
                self.constraints[constraint].window_raw = window_raw(value, self.units.time_us);
                Ok(())
            }
            RegisterLock::WindowIgnored | RegisterLock::LateIgnored => Ok(()),
            RegisterLock::WindowRefused | RegisterLock::LateRefused => Err(ENODATA),
        }
    }

    /// Reads `enabled`. If the driver found the lock when it was loaded, the zone reads 0 although its limit is
    /// active.
    #[must_use]
    pub fn enabled(&self) -> bool {
        let known_as_locked = matches!(self.lock, RegisterLock::WindowIgnored | RegisterLock::WindowRefused);
        !known_as_locked && self.constraints.first().is_some_and(|long_term| long_term.enabled)
    }

    /// Writes `enabled`: one switch for PL1 and PL2 and their clamp bits, in both directions.
    ///
    /// # Errors
    /// `EINVAL` for an invalid switch value; `ENOSYS` if locked.
    pub fn write_enabled(&mut self, text: &[u8]) -> Result<(), Errno> {
        let on = strtobool(text)?;
        if self.enabled_is_hollow {
            return Ok(());
        }
        match self.lock {
            RegisterLock::Open => self.switch(on),
            RegisterLock::LateIgnored => {}
            RegisterLock::WindowIgnored | RegisterLock::WindowRefused | RegisterLock::LateRefused => {
                return Err(ENOSYS);
            }
        }
        Ok(())
    }

    fn switch(&mut self, on: bool) {
        for constraint in self.constraints.iter_mut().filter(|c| c.name != "peak_power") {
            (constraint.enabled, constraint.clamps) = (on, on);
        }
    }

    /// The limit of that name that the hardware applies, in microwatts, and its window in microseconds.
    #[must_use]
    pub fn in_force(&self, name: &str) -> Option<(u64, u64)> {
        let at = self.constraints.iter().position(|c| c.name == name && c.enabled)?;
        Some((self.power_limit_uw(at), self.time_window_us(at).max(1)))
    }

    /// The last processor of the package goes offline, or the driver is unloaded. It switches both limits and their
    /// clamp bits off, unless the register is locked. The values stay.
    pub fn leave(&mut self) {
        if self.lock == RegisterLock::Open {
            self.switch(false);
        }
    }

    /// The driver is loaded or the zone appears: the driver finds the lock.
    pub fn arrive(&mut self) {
        self.lock = match self.lock {
            RegisterLock::LateIgnored => RegisterLock::WindowIgnored,
            RegisterLock::LateRefused => RegisterLock::WindowRefused,
            known @ (RegisterLock::Open | RegisterLock::WindowIgnored | RegisterLock::WindowRefused) => known,
        };
    }

    /// The zone disappears and appears again.
    pub fn come_back(&mut self) {
        self.leave();
        self.arrive();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::EINVAL;

    fn package() -> Zone {
        let limit = |name, watts: u64, max: u64| Constraint {
            name,
            power_raw: watts * 8,
            window_raw: 0x6e,
            max_uw: max * 1_000_000,
            enabled: true,
            clamps: true,
        };
        Zone {
            id: "intel-rapl:0".into(),
            name: "package-0".into(),
            units: Units::XEON,
            constraints: vec![limit("long_term", 250, 250), limit("short_term", 300, 500)],
            lock: RegisterLock::Open,
            enabled_is_hollow: false,
        }
    }

    #[test]
    fn a_limit_is_floored_to_an_eighth_of_a_watt_and_wraps_at_15_bits() {
        // facts/hardware.md 1.4, written → read back.
        for (written, read) in [
            ("100123456", 100_000_000),
            ("99999999", 99_875_000),
            ("124999", 0),
            ("1", 0),
            ("0", 0),
            ("4095875000", 4_095_875_000),
            ("4096000000", 0),
            ("5000000000", 904_000_000),
            ("18446744073709551615", 1_517_500_000),
            ("100000000\n", 100_000_000),
        ] {
            let mut zone = package();
            assert_eq!(zone.write_power_limit(0, written.as_bytes()), Ok(()), "{written}");
            assert_eq!(zone.power_limit_uw(0), read, "{written}");
        }
        let mut zone = package();
        for refused in ["-1", "abc", "0x10", "100.5", "100000000 "] {
            assert_eq!(zone.write_power_limit(0, refused.as_bytes()), Err(EINVAL), "{refused}");
            assert_eq!(zone.power_limit_uw(0), 250_000_000);
        }
    }

    #[test]
    fn a_window_is_floored_to_what_the_field_can_say() {
        for (written, read) in [
            (1_000_000, 999_424),
            (28_000_000, 27_983_872),
            (10_000_000, 9_994_240),
            (2_440, 1_952),
            (40_000_000, 39_976_960),
            (900, 976),
            (0, 976),
        ] {
            let mut zone = package();
            assert_eq!(zone.write_time_window(0, u64::to_string(&written).as_bytes()), Ok(()));
            assert_eq!(zone.time_window_us(0), read, "{written}");
        }
    }

    #[test]
    fn a_locked_zone_refuses_each_file_in_its_own_way() {
        let mut zone = Zone { lock: RegisterLock::WindowIgnored, ..package() };
        assert_eq!(zone.write_power_limit(0, b"100000000"), Err(ENODATA));
        assert_eq!(zone.write_enabled(b"1"), Err(ENOSYS));
        assert_eq!(zone.write_time_window(0, b"1000000"), Ok(()));
        assert_eq!(zone.time_window_us(0), window_us(0x6e, 976));
        assert!(!zone.enabled());
        assert_eq!(zone.power_limit_uw(0), 250_000_000);
        zone.lock = RegisterLock::WindowRefused;
        assert_eq!(zone.write_time_window(0, b"1000000"), Err(ENODATA));
    }

    #[test]
    fn the_switch_is_one_for_both_limits() {
        let mut zone = package();
        assert_eq!(zone.write_enabled(b"0"), Ok(()));
        assert!(zone.constraints.iter().all(|c| !c.enabled));
        assert_eq!(zone.write_enabled(b"1"), Ok(()));
        assert!(zone.constraints.iter().all(|c| c.enabled));
        zone.come_back();
        assert!(zone.constraints.iter().all(|c| !c.enabled), "the short-term limit goes with the other");
        assert_eq!(zone.power_limit_uw(0), 250_000_000);
    }

    #[test]
    fn a_locked_register_keeps_its_limit_when_the_driver_leaves_and_the_next_one_finds_the_lock() {
        for (lock, found) in [
            (RegisterLock::WindowIgnored, RegisterLock::WindowIgnored),
            (RegisterLock::WindowRefused, RegisterLock::WindowRefused),
            (RegisterLock::LateIgnored, RegisterLock::WindowIgnored),
            (RegisterLock::LateRefused, RegisterLock::WindowRefused),
        ] {
            let mut zone = Zone { lock, ..package() };
            zone.come_back();
            assert_eq!((zone.lock, zone.enabled()), (found, false), "{lock:?}");
            assert_eq!(zone.in_force("long_term").map(|(uw, _)| uw), Some(250_000_000), "{lock:?}");
            assert_eq!(zone.in_force("short_term").map(|(uw, _)| uw), Some(300_000_000), "{lock:?}");
        }
    }

    #[test]
    fn an_amd_zone_takes_the_switch_and_does_nothing() {
        let mut zone = Zone { constraints: vec![], enabled_is_hollow: true, units: Units::EPYC, ..package() };
        assert_eq!(zone.write_enabled(b"1"), Ok(()));
        assert!(!zone.enabled());
    }

    #[test]
    fn counters_wrap_where_the_driver_says() {
        assert_eq!(Units::XEON.energy_range_uj(), 262_143_328_850);
        assert_eq!(Units::EPYC.energy_range_uj(), 65_532_610_987);
        let steps = |n: u64| n * Units::XEON.energy_nj / 1000 + 1;
        assert_eq!(Units::XEON.energy_uj(steps(1 << 32)), 0);
    }
}
