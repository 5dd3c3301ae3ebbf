//! Model-specific registers as in /dev/cpu/N/msr: eight bytes at an offset that is the register's number.

use crate::number::Errno;
use crate::powercap::{RegisterLock, Zone};
use libc::{EINVAL, EIO, EPERM};
use power_units::Micros;

/// RAPL_POWER_UNIT, PKG_POWER_LIMIT, PKG_ENERGY_STATUS and PKG_POWER_INFO.
const POWER_UNIT: u64 = 0x606;
const PACKAGE_LIMIT: u64 = 0x610;
const PACKAGE_ENERGY: u64 = 0x611;
/// PKG_PERF_STATUS.
const PACKAGE_STATUS: u64 = 0x613;
const PACKAGE_INFO: u64 = 0x614;
const LOCK_BIT: u64 = 1 << 63;

/// Whether and how registers can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Writes reach the register; writing to a locked one faults.
    Pass,
    /// Writes reach the register; a locked one keeps its value without an error.
    PassLockSilent,
    /// `msr.allow_writes=off`, or lockdown.
    Refused,
}

/// The counters of a package.
#[derive(Clone, Copy, Debug)]
pub struct PackageCounters {
    /// Its energy, as powercap shows it.
    pub energy_uj: u64,
    /// For how long its power limit has held it back.
    pub held: Micros,
}

/// Reads registers, starting at `offset`.
///
/// # Errors
/// `EINVAL` if the size is not a multiple of eight; `EIO` for a register that does not exist.
pub fn read(zone: &Zone, counters: PackageCounters, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
    if size == 0 || !size.is_multiple_of(8) {
        return Err(EINVAL);
    }
    let value = match offset {
        // Power in 1/8 W, energy in 2⁻¹⁴ J, time in 976 µs.
        POWER_UNIT => 0xa_0e03,
        PACKAGE_LIMIT => limit_register(zone),
        PACKAGE_ENERGY => u64::from(u32::MAX) & (counters.energy_uj * 1000 / zone.units.energy_nj),
        // In units of 2⁻¹⁰ s.
        PACKAGE_STATUS => u64::from(u32::MAX) & (counters.held.get() * 1024 / 1_000_000),
        PACKAGE_INFO => {
            zone.constraints.first().map_or(0, |long| (long.max_uw / zone.units.power_uw) & 0x7fff)
        }
        _ => return Err(EIO),
    };
    Ok(value.to_le_bytes().to_vec())
}

/// Writes a register.
///
/// # Errors
/// `EINVAL` if it is not eight bytes; `EPERM` if writes are off; `EIO` if the register is locked or does not exist.
pub fn write(zone: &mut Zone, writes: Writes, offset: u64, data: &[u8]) -> Result<(), Errno> {
    let value = u64::from_le_bytes(data.try_into().map_err(|_| EINVAL)?);
    if writes == Writes::Refused {
        return Err(EPERM);
    }
    if offset != PACKAGE_LIMIT || zone.constraints.is_empty() {
        return Err(EIO);
    }
    match (zone.lock, writes) {
        (RegisterLock::Open, _) => {}
        (_, Writes::PassLockSilent) => return Ok(()),
        _ => return Err(EIO),
    }
    for (constraint, half) in
        zone.constraints.iter_mut().take(2).zip([value & 0xffff_ffff, value >> 32 & 0x7fff_ffff])
    {
        constraint.power_raw = half & 0x7fff;
        constraint.enabled = half & 1 << 15 != 0;
        constraint.clamps = half & 1 << 16 != 0;
        constraint.window_raw = half >> 17 & 0x7f;
    }
    if value & LOCK_BIT != 0 {
        // A powercap driver that is loaded already does not know of the new lock.
        zone.lock = if writes == Writes::PassLockSilent {
            RegisterLock::LateIgnored
        } else {
            RegisterLock::LateRefused
        };
    }
    Ok(())
}

fn limit_register(zone: &Zone) -> u64 {
    let half = |at: usize| {
        zone.constraints.get(at).map_or(0, |c| {
            let (enabled, clamps) = (u64::from(c.enabled), u64::from(c.clamps));
            (c.power_raw & 0x7fff) | enabled << 15 | clamps << 16 | (c.window_raw & 0x7f) << 17
        })
    };
    let lock = if zone.lock == RegisterLock::Open { 0 } else { LOCK_BIT };
    half(0) | half(1) << 32 | lock
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powercap::{Constraint, Units};

    fn zone(lock: RegisterLock) -> Zone {
        let limit = |name, watts: u64| Constraint {
            name,
            power_raw: watts * 8,
            window_raw: 0x6e,
            max_uw: 250_000_000,
            enabled: true,
            clamps: true,
        };
        Zone {
            id: "intel-rapl:0".into(),
            name: "package-0".into(),
            units: Units::XEON,
            constraints: vec![limit("long_term", 250), limit("short_term", 300)],
            lock,
            enabled_is_hollow: false,
        }
    }

    const NONE: PackageCounters = PackageCounters { energy_uj: 0, held: Micros::ZERO };

    fn register(zone: &Zone, number: u64) -> Result<u64, Errno> {
        read(zone, NONE, number, 8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
    }

    #[test]
    fn the_limit_register_and_the_zone_are_one() {
        let mut zone = zone(RegisterLock::Open);
        assert_eq!(register(&zone, POWER_UNIT), Ok(0xa0e03));
        // 250 W is 0x7d0, 300 W is 0x960; enabled, clamped, 0x6e is 28 s.
        assert_eq!(register(&zone, PACKAGE_LIMIT), Ok(0x00dd_8960_00dd_87d0));
        assert_eq!(
            write(&mut zone, Writes::Pass, PACKAGE_LIMIT, &0x0000_8960_00dd_8320_u64.to_le_bytes()),
            Ok(())
        );
        assert_eq!(zone.power_limit_uw(0), 100_000_000);
    }

    /// The register of the ring's hardware without its clamp bits: 205 W over 28 s, 300 W.
    #[test]
    fn clamp_bits_are_bits_of_their_own_until_the_switch_is_used() {
        let mut zone = zone(RegisterLock::Open);
        let unclamped = 0x0042_8960_00dc_8668_u64;
        assert_eq!(write(&mut zone, Writes::Pass, PACKAGE_LIMIT, &unclamped.to_le_bytes()), Ok(()));
        assert_eq!(register(&zone, PACKAGE_LIMIT), Ok(unclamped));
        zone.write_enabled(b"1").unwrap();
        assert_eq!(register(&zone, PACKAGE_LIMIT), Ok(0x0043_8960_00dd_8668), "both limits clamp");
        zone.come_back();
        assert_eq!(register(&zone, PACKAGE_LIMIT), Ok(0x0042_0960_00dc_0668), "the values stay");
    }

    #[test]
    fn what_the_device_refuses() {
        let mut open = zone(RegisterLock::Open);
        assert_eq!(read(&open, NONE, POWER_UNIT, 4), Err(EINVAL));
        assert_eq!(register(&open, 0x123), Err(EIO));
        assert_eq!(write(&mut open, Writes::Pass, PACKAGE_LIMIT, &[0; 4]), Err(EINVAL));
        assert_eq!(write(&mut open, Writes::Refused, PACKAGE_LIMIT, &[0; 8]), Err(EPERM));
        let mut locked = zone(RegisterLock::WindowIgnored);
        assert_eq!(write(&mut locked, Writes::Pass, PACKAGE_LIMIT, &[0; 8]), Err(EIO));
        assert_eq!(write(&mut locked, Writes::PassLockSilent, PACKAGE_LIMIT, &[0; 8]), Ok(()));
        assert_eq!(locked.power_limit_uw(0), 250_000_000);
        assert_eq!(register(&locked, PACKAGE_LIMIT).unwrap() & LOCK_BIT, LOCK_BIT);
    }
}
