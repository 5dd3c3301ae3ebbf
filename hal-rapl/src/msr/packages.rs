//! Lists the packages, by the processors' topology, and implements the accesses to one.

use super::register::{self, PackageLimit, Set, Units};
use super::{MsrFault, MsrIo, part};
use crate::RaplError;
use hal_files::{Access, Attribute, FileError, Root, text};
use power_hal::{ErrorKind, Key};
use std::collections::BTreeMap;
use std::path::Path;

/// A package, or a die of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Package {
    pub(super) number: u16,
    pub(super) die: Option<u16>,
    /// Its first processor that is online.
    pub(super) cpu: u16,
    pub(super) units: Units,
    pub(super) set: Set,
    /// Set by an access that reports it.
    pub(super) gone: bool,
    /// Whether the part's thermal power was below a limit in use.
    pub(super) max_refuted: bool,
}

impl Package {
    pub(super) const fn is_same(&self, other: &Self) -> bool {
        let dies = match (self.die, other.die) {
            (Some(this), Some(other)) => this == other,
            (None, None) => true,
            _ => false,
        };
        self.number == other.number && dies
    }

    pub(super) fn key(&self) -> Key {
        Key::package(self.number, self.die)
    }

    /// The failure of a package without any register that answers.
    pub(super) const fn silent(&self) -> MsrFault {
        let (register, access) = (register::RAPL_POWER_UNIT, Access::Read);
        MsrFault { cpu: self.cpu, register, access, kind: ErrorKind::Io, errno: None }
    }

    pub(super) fn energy_uj(&self, io: &mut impl MsrIo) -> Result<u64, RaplError> {
        Ok(self.units.energy_uj(io.read(self.cpu, self.set.energy)?))
    }

    /// For how long its limit has held the package back, in microseconds.
    pub(super) fn throttled_us(&self, io: &mut impl MsrIo) -> Result<u64, RaplError> {
        let register = self.set.status.ok_or(RaplError::NotAPowerLimit)?;
        Ok(self.units.time_us(io.read(self.cpu, register)?))
    }

    pub(super) fn limit(&self, io: &mut impl MsrIo) -> Result<PackageLimit, RaplError> {
        let register = self.set.limit.ok_or(RaplError::NotAPowerLimit)?;
        Ok(PackageLimit::from_bits(io.read(self.cpu, register)?))
    }

    /// Writes the limit register, unless it already has that value or the lock bit is set.
    pub(super) fn set_limit(
        &self,
        io: &mut impl MsrIo,
        key: &Key,
        now: PackageLimit,
        wanted: PackageLimit,
    ) -> Result<(), RaplError> {
        let register = self.set.limit.ok_or(RaplError::NotAPowerLimit)?;
        if now.locked() {
            return Err(RaplError::LockBit(*key));
        }
        if now == wanted {
            return Ok(());
        }
        match io.write(self.cpu, register, wanted.to_bits()) {
            // The lock may have been set between the two accesses.
            Err(fault) if fault.kind == ErrorKind::Io && self.limit(io)?.locked() => {
                Err(RaplError::LockBit(*key))
            }
            wrote => Ok(wrote?),
        }
    }
}

const CPUS: &str = "sys/devices/system/cpu";

/// The packages with a processor online, in the order of their numbers.
pub(super) fn list(root: &Root) -> Result<Vec<Package>, RaplError> {
    let folder = root.join(CPUS);
    let mut leads: BTreeMap<(u16, u16), u16> = BTreeMap::new();
    for name in root.names(&folder)? {
        let Some(cpu) = name.strip_prefix("cpu").and_then(|number| number.parse().ok()) else { continue };
        let topology = folder.join(&name).join("topology");
        // A processor that is offline has no topology.
        let Some(package) = number(&topology, "physical_package_id")? else { continue };
        let die = number(&topology, "die_id")?.unwrap_or(0);
        let lead = leads.entry((package, die)).or_insert(cpu);
        *lead = cpu.min(*lead);
    }
    // Dies may be numbered over the whole machine (Linux 6.9 and later): only several in one package count.
    let several = leads.keys().zip(leads.keys().skip(1)).any(|((package, _), (next, _))| package == next);
    let dies = part::of(root).limits_dies() && several;
    if !dies {
        let mut packages = BTreeMap::new();
        for ((package, _), cpu) in leads {
            let lead = packages.entry((package, 0)).or_insert(cpu);
            *lead = cpu.min(*lead);
        }
        leads = packages;
    }
    let none = Set { energy: 0, limit: None, status: None };
    Ok(leads
        .into_iter()
        .map(|((number, die), cpu)| Package {
            number,
            die: dies.then_some(die),
            cpu,
            units: Units::from_bits(0),
            set: none,
            gone: false,
            max_refuted: false,
        })
        .collect())
}

fn number(topology: &Path, name: &str) -> Result<Option<u16>, FileError> {
    let file = match Attribute::device(topology.join(name), Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind == ErrorKind::Gone => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.read_line() {
        // Virtual machines report −1 for unknown numbers.
        Ok(text) if text == "-1" => Ok(None),
        Ok(text) => {
            let whole = text::whole(text.as_bytes()).and_then(|whole| u16::try_from(whole).ok());
            whole.map(Some).ok_or_else(|| FileError::bad_data(file.path()))
        }
        Err(error) if error.kind == ErrorKind::Gone => Ok(None),
        Err(error) => Err(error),
    }
}
