//! One zone: its folder, and its open files.

use crate::RaplError;
use crate::aim::CEILING_UW;
use hal_files::{Access, Attribute, FileError, FileOperation};
use power_hal::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The driver of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ControlType {
    /// `intel-rapl`: the package's registers, or TPMI.
    Package,
    /// `intel-rapl-mmio`: the twin in memory-mapped registers.
    Mmio,
}

impl ControlType {
    /// The driver of a folder at the top level: `intel-rapl:a`, and not `intel-rapl:a:0`.
    pub(super) fn of_folder(folder: &str) -> Option<Self> {
        let (driver, id) = folder.split_once(':')?;
        let is_hex = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        match driver {
            "intel-rapl" if is_hex => Some(Self::Package),
            "intel-rapl-mmio" if is_hex => Some(Self::Mmio),
            _ => None,
        }
    }

    pub(super) const fn driver(self) -> &'static str {
        match self {
            Self::Package => "intel-rapl",
            Self::Mmio => "intel-rapl-mmio",
        }
    }

    pub(super) const fn word(self) -> u64 {
        match self {
            Self::Package => 0,
            Self::Mmio => 1,
        }
    }

    pub(super) const fn from_word(word: u64) -> Option<Self> {
        match word {
            0 => Some(Self::Package),
            1 => Some(Self::Mmio),
            _ => None,
        }
    }
}

/// The package, and the die if there are several, of a zone's `name`; `None` for psys, core, uncore and dram.
pub(super) fn package_of_name(name: &str) -> Option<(u16, Option<u16>)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { text.parse().ok() } else { None }
    };
    let rest = name.strip_prefix("package-")?;
    match rest.split_once("-die-") {
        Some((package, die)) => Some((number(package)?, Some(number(die)?))),
        None => Some((number(rest)?, None)),
    }
}

/// A counter with a modulus of less than a thousand joules would wrap within seconds: no part has one. A driver that
/// reports such a range, or zero as with some firmware, does not know the range.
const RANGE_MIN_UJ: u64 = 1_000_000_000;

/// A zone of a package.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) folder: Arc<Path>,
    pub(super) control_type: ControlType,
    /// The counter, or why this process cannot read it.
    pub(super) energy: Option<Result<Attribute, FileError>>,
    /// The counter's largest value; zero if the driver does not know it.
    pub(super) energy_range_uj: u64,
    /// The counter of the memory behind the package, in a sub-zone of its own.
    pub(super) dram: Option<Dram>,
    pub(super) limits: Option<Limits>,
    /// Whether a write has shown that the firmware locks the limits. Such a zone reads as not enabled although its
    /// limits are in force; only a write reveals the difference.
    pub(super) held: bool,
}

/// The counter of a package's memory. The package's own counter does not contain it.
#[derive(Debug)]
pub(super) struct Dram {
    energy: Attribute,
    /// The counter's largest value; zero if the driver does not know it.
    pub(super) range_uj: u64,
}

impl Dram {
    /// Opens the sub-zone that is named `dram`, if the package has one. A part of it that cannot be opened is reported,
    /// and the memory is then not measured.
    fn open(folder: &Path, problems: &mut Vec<RaplError>) -> Option<Self> {
        let opened = Self::find(folder).and_then(|zone| {
            let Some(zone) = zone else { return Ok(None) };
            let energy = if_there(Attribute::powercap(zone.join("energy_uj"), Access::Read))?;
            Ok(energy.map(|energy| (zone, energy)))
        });
        match opened {
            Ok(None) => None,
            Ok(Some((zone, energy))) => {
                let range_uj = number_or_zero(&zone, "max_energy_range_uj", problems);
                Some(Self { energy, range_uj: if range_uj < RANGE_MIN_UJ { 0 } else { range_uj } })
            }
            // A process that may not read the package's counter is told so there.
            Err(error) if error.kind == ErrorKind::PermissionDenied => None,
            Err(error) => {
                problems.push(error.into());
                None
            }
        }
    }

    /// The folder of the sub-zone: it is in the folder of its package, whose id begins its own.
    fn find(folder: &Path) -> Result<Option<PathBuf>, FileError> {
        let Some(id) = folder.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
        let Ok(listing) = std::fs::read_dir(folder) else { return Ok(None) };
        let mut zones: Vec<PathBuf> = listing
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                let is_part = name.strip_prefix(id).is_some_and(|rest| rest.starts_with(':'));
                is_part.then(|| folder.join(name))
            })
            .collect();
        zones.sort_unstable();
        for zone in zones.into_iter().take(SUB_ZONES_MAX) {
            let name = if_there(Attribute::powercap(zone.join("name"), Access::Read))?;
            if let Some(name) = name
                && name.read_line()? == "dram"
            {
                return Ok(Some(zone));
            }
        }
        Ok(None)
    }

    /// Reads the counter.
    pub(super) fn read(&self) -> Result<u64, FileError> {
        let value = self.energy.read_whole()?;
        let possible = self.range_uj == 0 || value <= self.range_uj;
        if possible { Ok(value) } else { Err(FileError::bad_data(self.energy.path())) }
    }
}

/// More sub-zones than any package has.
const SUB_ZONES_MAX: usize = 16;

/// The files of a zone's limits.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) long: Setter,
    pub(super) window: Option<Setter>,
    pub(super) short: Option<Setter>,
    enabled: Option<Setter>,
    /// The driver's largest long-term limit; zero if it reports none.
    pub(super) max_uw: u64,
}

/// The current reading of a zone's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) long_uw: u64,
    pub(super) window_us: Option<u64>,
    pub(super) short_uw: Option<u64>,
    pub(super) enabled: bool,
}

/// A file that is open for writing, or only for reading and then with the reason.
#[derive(Debug)]
pub(super) struct Setter {
    file: Attribute,
    denied: Option<FileError>,
}

impl Setter {
    fn open(folder: &Path, name: &str) -> Result<Self, FileError> {
        let path = folder.join(name);
        match Attribute::powercap(path.clone(), Access::ReadWrite) {
            Ok(file) => Ok(Self { file, denied: None }),
            Err(denied) if denied.kind == ErrorKind::PermissionDenied => {
                let file = Attribute::powercap(path, Access::Read)?;
                Ok(Self { file, denied: Some(denied) })
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn read(&self) -> Result<u64, FileError> {
        self.file.read_whole()
    }

    /// The shortest window is one unit. A window of zero would be taken for one that is never written, and be lost.
    fn read_window(&self) -> Result<u64, FileError> {
        let window = self.read()?;
        if window == 0 { Err(FileError::bad_data(self.file.path())) } else { Ok(window) }
    }

    pub(super) fn write(&self, value: u64) -> Result<(), FileError> {
        match &self.denied {
            Some(denied) => Err(denied.clone()),
            None => self.file.write_whole(value),
        }
    }
}

/// `None` if there is no such file.
fn if_there<T>(opened: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind == ErrorKind::Gone => Ok(None),
        Err(error) => Err(error),
    }
}

/// An optional number: zero if it is missing or cannot be read; the latter is reported.
fn number_or_zero(folder: &Path, name: &str, problems: &mut Vec<RaplError>) -> u64 {
    let file = if_there(Attribute::powercap(folder.join(name), Access::Read));
    let number = file.and_then(|file| file.map_or(Ok(0), |file| file.read_whole()));
    number.unwrap_or_else(|error| {
        problems.push(error.into());
        0
    })
}

impl Zone {
    /// Opens its files. A problem with an optional file is reported, and the zone is opened without it.
    pub(super) fn open(
        folder: Arc<Path>,
        control_type: ControlType,
        problems: &mut Vec<RaplError>,
    ) -> Result<Self, RaplError> {
        let energy = match Attribute::powercap(folder.join("energy_uj"), Access::Read) {
            Err(error) if error.kind == ErrorKind::Gone => None,
            Err(error) => {
                problems.push(error.clone().into());
                Some(Err(error))
            }
            Ok(file) => Some(Ok(file)),
        };
        // A missing or invalid range makes wraps unknown, and has no other effect.
        let range_uj = number_or_zero(&folder, "max_energy_range_uj", problems);
        let energy_range_uj = if range_uj < RANGE_MIN_UJ { 0 } else { range_uj };
        let dram = Dram::open(&folder, problems);
        let limits = Limits::open(&folder, problems)?;
        Ok(Self { folder, control_type, energy, energy_range_uj, dram, limits, held: false })
    }

    /// Reads the limits.
    pub(super) fn state(&mut self) -> Result<Option<State>, FileError> {
        let Some(limits) = &self.limits else { return Ok(None) };
        let state = limits.state()?;
        self.held &= !state.enabled;
        Ok(Some(state))
    }

    /// The long-term limit in force in this zone.
    pub(super) const fn in_force(&self, state: &State) -> u64 {
        if state.enabled || self.held { state.long_uw } else { CEILING_UW }
    }
}

impl Limits {
    /// Constraints are identified by their names: on a part without one of them the next gets its number.
    fn open(folder: &Path, problems: &mut Vec<RaplError>) -> Result<Option<Self>, FileError> {
        let (Some(long), short) = (find(folder, "long_term")?, find(folder, "short_term")?) else {
            return Ok(None);
        };
        let file = |constraint: usize, what: &str| format!("constraint_{constraint}_{what}");
        let limit = |at| Setter::open(folder, &file(at, "power_limit_uw"));
        Ok(Some(Self {
            long: limit(long)?,
            window: if_there(Setter::open(folder, &file(long, "time_window_us")))?,
            short: short.map(limit).transpose()?,
            enabled: if_there(Setter::open(folder, "enabled"))?,
            max_uw: number_or_zero(folder, &file(long, "max_power_uw"), problems),
        }))
    }

    fn state(&self) -> Result<State, FileError> {
        let enabled = match &self.enabled {
            Some(enabled) => match enabled.read()? {
                0 => false,
                1 => true,
                _ => return Err(FileError::bad_data(enabled.file.path())),
            },
            None => true,
        };
        Ok(State {
            long_uw: self.long.read()?,
            window_us: self.window.as_ref().map(Setter::read_window).transpose()?,
            short_uw: self.short.as_ref().map(Setter::read).transpose()?,
            enabled,
        })
    }

    /// Switches the limits on.
    pub(super) fn enable(&self) -> Result<(), FileError> {
        self.enabled.as_ref().map_or(Ok(()), |enabled| enabled.write(1))
    }

    /// Switches the limits off, and checks it: the next written value may be 0 W.
    pub(super) fn disable(&self) -> Result<(), FileError> {
        let failed =
            |path: Arc<Path>, kind| FileError { path, deed: FileOperation::Write, kind, errno: None };
        let Some(enabled) = &self.enabled else {
            let path = Arc::from(self.long.file.path().with_file_name("enabled"));
            return Err(failed(path, ErrorKind::Gone));
        };
        enabled.write(0)?;
        match enabled.read()? {
            0 => Ok(()),
            _ => Err(failed(Arc::clone(enabled.file.path()), ErrorKind::Locked)),
        }
    }
}

/// More constraints than any driver has.
const CONSTRAINTS_MAX: usize = 8;

/// The number of the constraint with this name.
fn find(folder: &Path, name: &str) -> Result<Option<usize>, FileError> {
    for at in 0..CONSTRAINTS_MAX {
        let path = folder.join(format!("constraint_{at}_name"));
        if let Some(file) = if_there(Attribute::powercap(path, Access::Read))?
            && file.read_line()? == name
        {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_zones_are_known_by_their_names() {
        assert_eq!(package_of_name("package-0"), Some((0, None)));
        assert_eq!(package_of_name("package-10"), Some((10, None)));
        assert_eq!(package_of_name("package-1-die-0"), Some((1, Some(0))));
        for other in [
            "psys",
            "psys-1",
            "core",
            "uncore",
            "dram",
            "package",
            "package-",
            "package-x",
            "package--1",
            "package-0-die-",
            "package-0-die-x",
            "package-0 ",
            "package-70000",
            "xpackage-0",
            "package-+1",
            "",
        ] {
            assert_eq!(package_of_name(other), None, "{other:?}");
        }
    }

    #[test]
    fn zones_at_the_top_level_are_known_by_their_folders() {
        assert_eq!(ControlType::of_folder("intel-rapl:0"), Some(ControlType::Package));
        assert_eq!(ControlType::of_folder("intel-rapl:a"), Some(ControlType::Package), "ids are hexadecimal");
        assert_eq!(ControlType::of_folder("intel-rapl-mmio:0"), Some(ControlType::Mmio));
        for other in
            ["intel-rapl", "intel-rapl:", "intel-rapl:0:0", "intel-rapl:x", "dtpm:0", "intel-rapl-mmio"]
        {
            assert_eq!(ControlType::of_folder(other), None, "{other:?}");
        }
    }
}
