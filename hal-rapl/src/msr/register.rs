//! The registers of RAPL and the meaning of their fields. Pure: nothing here accesses a register.

use super::{MsrFault, MsrIo};
use crate::aim::WINDOW_MAX_US;
use power_hal::ErrorKind;

/// Intel's registers.
pub(super) const RAPL_POWER_UNIT: u32 = 0x606;
pub(super) const PKG_POWER_LIMIT: u32 = 0x610;
pub(super) const PKG_ENERGY_STATUS: u32 = 0x611;
pub(super) const PKG_PERF_STATUS: u32 = 0x613;
pub(super) const PKG_POWER_INFO: u32 = 0x614;
/// AMD's registers: a counter, and no limits.
pub(super) const AMD_POWER_UNIT: u32 = 0xC001_0299;
pub(super) const AMD_PKG_ENERGY: u32 = 0xC001_029B;

/// The largest value of a power field.
pub(super) const POWER_MAX: u16 = 0x7fff;

/// The registers of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) energy: u32,
    pub(super) limit: Option<u32>,
    /// The counter of the time for which the limit held the package back. Not every part has it.
    pub(super) status: Option<u32>,
}

/// The units and registers of a processor's part, by which of them can be read; `None` if none can, or if a hypervisor
/// returns zero for all registers.
pub(super) fn find(io: &mut impl MsrIo, cpu: u16) -> Result<Option<(Units, Set)>, MsrFault> {
    let parts = [
        (RAPL_POWER_UNIT, Set { energy: PKG_ENERGY_STATUS, limit: Some(PKG_POWER_LIMIT), status: None }),
        (AMD_POWER_UNIT, Set { energy: AMD_PKG_ENERGY, limit: None, status: None }),
    ];
    for (unit, set) in parts {
        match io.read(cpu, unit) {
            Ok(0) => {}
            Ok(bits) => return Ok(Some((Units::from_bits(bits), set))),
            Err(fault) if fault.kind == ErrorKind::Io => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(None)
}

/// Units of power, energy and time, each as a power of one half: W, J and s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Units {
    power: u8,
    energy: u8,
    time: u8,
}

impl Units {
    pub(super) fn from_bits(bits: u64) -> Self {
        let field = |at: u32, mask: u64| u8::try_from((bits >> at) & mask).unwrap_or(0);
        Self { power: field(0, 0xf), energy: field(8, 0x1f), time: field(16, 0xf) }
    }

    /// One step of a power field, rounded up to whole microwatts.
    pub(super) fn step_uw(self) -> u64 {
        1_000_000_u64.div_ceil(1 << self.power)
    }

    /// A power field in microwatts, rounded down.
    pub(super) fn power_uw(self, raw: u16) -> u64 {
        (u64::from(raw) * 1_000_000) >> self.power
    }

    /// The power field for a limit: rounded down, and the largest field value for a larger limit. The hardware would
    /// keep only the lower bits, which for 4096 W are zero.
    pub(super) fn power_raw(self, uw: u64) -> u16 {
        let steps = (u128::from(uw) << self.power) / 1_000_000;
        u16::try_from(steps).map_or(POWER_MAX, |steps| steps.min(POWER_MAX))
    }

    /// A counter of 32 bits in microjoules, rounded down.
    pub(super) fn energy_uj(self, raw: u64) -> u64 {
        ((raw & u64::from(u32::MAX)) * 1_000_000) >> self.energy
    }

    /// The modulus of the counter in microjoules.
    pub(super) fn energy_modulus_uj(self) -> u64 {
        ((1 << 32) * 1_000_000) >> self.energy
    }

    /// A counter of 32 bits of time in microseconds, rounded down.
    pub(super) fn time_us(self, raw: u64) -> u64 {
        ((raw & u64::from(u32::MAX)) * 1_000_000) >> self.time
    }

    /// The modulus of such a counter in microseconds.
    pub(super) fn time_modulus_us(self) -> u64 {
        ((1 << 32) * 1_000_000) >> self.time
    }

    /// A window field in microseconds, rounded down: 2^y · (1 + f/4) units, y the lower five bits and f the upper two.
    pub(super) fn window_us(self, field: u8) -> u64 {
        let (y, f) = (field & 0x1f, u128::from(field >> 5));
        let quarters = (4 + f) << y;
        let us = ((quarters * 1_000_000) >> self.time) / 4;
        u64::try_from(us).unwrap_or(u64::MAX)
    }

    /// A window field as the kernel's driver shows it: its unit is first truncated to whole microseconds.
    pub(super) fn window_by_the_kernel_us(self, field: u8) -> u64 {
        let (y, f) = (field & 0x1f, u64::from(field >> 5));
        ((4 + f) << y) * (1_000_000 >> self.time) / 4
    }

    /// The largest window field of at most `us` microseconds; the smallest field if none is.
    pub(super) fn window_field(self, us: u64) -> u8 {
        let fits = (0..0x80).filter(|&field| self.window_us(field) <= us);
        fits.max_by_key(|&field| self.window_us(field)).unwrap_or(0)
    }
}

/// Half of the limit register: power 14:0, enabled 15, clamping 16, window 23:17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PowerLimit(u32);

const ENABLED: u32 = 1 << 15;
const CLAMPING: u32 = 1 << 16;

impl PowerLimit {
    pub(super) fn power(self) -> u16 {
        u16::try_from(self.0 & u32::from(POWER_MAX)).unwrap_or(POWER_MAX)
    }

    pub(super) const fn enabled(self) -> bool {
        self.0 & ENABLED != 0
    }

    pub(super) fn window(self) -> u8 {
        u8::try_from((self.0 >> 17) & 0x7f).unwrap_or(0)
    }

    /// With another power; the other bits stay.
    pub(super) fn with_power(self, power: u16) -> Self {
        Self(self.0 & !u32::from(POWER_MAX) | u32::from(power & POWER_MAX))
    }

    /// In force with this power: enabled, and permitted to go below the frequency that the operating system requests.
    pub(super) fn limited_to(self, power: u16) -> Self {
        Self(self.with_power(power).0 | ENABLED | CLAMPING)
    }

    /// With the longest window of a cap; a shorter window stays.
    pub(super) fn within_the_longest_window(self, units: Units) -> Self {
        if units.window_us(self.window()) <= WINDOW_MAX_US {
            return self;
        }
        Self(self.0 & !(0x7f << 17) | u32::from(units.window_field(WINDOW_MAX_US)) << 17)
    }
}

/// PKG_POWER_LIMIT: the long-term limit in the lower half, the short-term one in the upper, and the lock bit 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackageLimit(u64);

const LOCK: u64 = 1 << 63;
const HALF: u64 = 0x00ff_ffff;

impl PackageLimit {
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn to_bits(self) -> u64 {
        self.0
    }

    pub(super) const fn locked(self) -> bool {
        self.0 & LOCK != 0
    }

    pub(super) fn long(self) -> PowerLimit {
        PowerLimit(u32::try_from(self.0 & HALF).unwrap_or(0))
    }

    pub(super) fn short(self) -> PowerLimit {
        PowerLimit(u32::try_from(self.0 >> 32 & HALF).unwrap_or(0))
    }

    pub(super) fn with_long(self, long: PowerLimit) -> Self {
        Self(self.0 & !HALF | u64::from(long.0))
    }

    pub(super) fn with_short(self, short: PowerLimit) -> Self {
        Self(self.0 & !(HALF << 32) | u64::from(short.0) << 32)
    }

    /// The long-term limit if it is enabled, else the largest possible one.
    pub(super) fn in_force_uw(self, units: Units) -> u64 {
        units.power_uw(if self.long().enabled() { self.long().power() } else { POWER_MAX })
    }
}

/// PKG_POWER_INFO: thermal design power 14:0, minimum 30:16. Zero if the part does not report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackageInfo(u64);

impl PackageInfo {
    pub(super) const UNKNOWN: Self = Self(0);

    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn thermal(self) -> u16 {
        u16::try_from(self.0 & u64::from(POWER_MAX)).unwrap_or(0)
    }

    pub(super) fn min(self) -> u16 {
        u16::try_from(self.0 >> 16 & u64::from(POWER_MAX)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
