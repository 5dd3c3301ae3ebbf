//! For how long the limit of a package has held it back, by its register, where powercap has the limits and shows no such
//! time. The register is only read, which taints nothing; a part whose registers mean something else is left alone.

use super::packages::{self, Package};
use super::{MsrIo, part, register};
use crate::{RaplError, reading};
use hal_files::Root;
use power_hal::{Error, ErrorKind, Key, Throttled, ThrottledMeter};
use power_units::Micros;
use std::fmt;

/// The registers of the packages that have them.
pub(crate) struct StatusRegisters {
    io: Box<dyn MsrIo + Send>,
    packages: Vec<Package>,
}

impl fmt::Debug for StatusRegisters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusRegisters").field("packages", &self.packages).finish_non_exhaustive()
    }
}

impl StatusRegisters {
    pub(crate) const fn over(io: Box<dyn MsrIo + Send>) -> Self {
        Self { io, packages: Vec::new() }
    }

    /// Looks again which packages have the register. One that cannot be read now is as one that is not there.
    pub(crate) fn look(&mut self, root: &Root) {
        self.packages.clear();
        let is_ours = part::of(root).unsuitable().is_none() && matches!(part::tpmi(root), Ok(None));
        let found = if is_ours { packages::list(root).unwrap_or_default() } else { Vec::new() };
        for mut package in found {
            let Ok(Some((units, set))) = register::find(&mut self.io, package.cpu) else { continue };
            // Parts without limits have no time for which one held them back.
            if set.limit.is_some() && self.io.read(package.cpu, register::PKG_PERF_STATUS).is_ok() {
                package.units = units;
                package.set = register::Set { status: Some(register::PKG_PERF_STATUS), ..set };
                self.packages.push(package);
            }
        }
    }

    /// How the package measures it; `None` if it does not.
    pub(crate) fn meter(&self, key: &Key) -> Option<ThrottledMeter> {
        let package = self.packages.iter().find(|package| package.key() == *key)?;
        Some(ThrottledMeter::Time { modulus: Micros::new(package.units.time_modulus_us()).non_zero() })
    }

    /// The time so far.
    pub(crate) fn read(&mut self, key: &Key) -> Result<Throttled, ErrorKind> {
        let package = self.packages.iter().find(|package| package.key() == *key).copied();
        let time = package.ok_or(RaplError::Gone).and_then(|package| package.throttled_us(&mut self.io));
        time.map(|us| Throttled::Time(Micros::new(us))).map_err(|error| reading::why(error.kind()))
    }
}
