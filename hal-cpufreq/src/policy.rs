//! What a policy's files say of it that does not change while it is used.

use crate::topology::absent;
use crate::{CpufreqFault, Driver, FrequencyTable};
use hal_files::{Access, Attribute, FileError};
use power_hal::{BadLimit, CpuSet, Limit, Span};
use power_units::KiloHertz;
use std::path::Path;
use std::sync::Arc;

/// What is known of a policy beyond what the port describes, as of the last enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpufreqPolicy {
    pub(crate) driver: Driver,
    pub(crate) table: FrequencyTable,
    pub(crate) range: Option<(u32, u32)>,
    pub(crate) base: Option<u32>,
    pub(crate) bios_limit: Option<u32>,
    pub(crate) related: CpuSet,
    pub(crate) online: CpuSet,
    pub(crate) die: Option<u16>,
}

impl CpufreqPolicy {
    /// The driver behind it.
    #[must_use]
    pub const fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The frequencies that exist, where the driver has a table: what a law dithers between.
    #[must_use]
    pub const fn table(&self) -> &FrequencyTable {
        &self.table
    }

    /// The frequency that it holds without turbo (`base_frequency`), where the driver says.
    #[must_use]
    pub fn base(&self) -> Option<KiloHertz> {
        self.base.map(khz)
    }

    /// What the platform allows at the moment (`bios_limit`), where the driver says.
    #[must_use]
    pub fn bios_limit(&self) -> Option<KiloHertz> {
        self.bios_limit.map(khz)
    }

    /// Those of its CPUs that were online at the last enumeration; `sample` says whether there still are any.
    #[must_use]
    pub const fn online(&self) -> &CpuSet {
        &self.online
    }

    /// The die of the package that it sits in, where the kernel says.
    #[must_use]
    pub const fn die(&self) -> Option<u16> {
        self.die
    }

    /// Reads a policy's folder. What is not needed to limit it and cannot be understood becomes a complaint.
    pub(crate) fn read(folder: &Path, complain: &mut impl FnMut(CpufreqFault)) -> Result<Self, CpufreqFault> {
        let path = folder.join("related_cpus");
        let related = cpus(&path)?;
        if related == CpuSet::EMPTY {
            return Err(FileError::bad_data(&Arc::from(path)).into());
        }
        let online = cpus(&folder.join("affected_cpus"))?;
        let range = match (
            frequency(&folder.join("cpuinfo_min_freq")),
            frequency(&folder.join("cpuinfo_max_freq")),
        ) {
            (Ok(min), Ok(max)) => Some((min, max)),
            (Err(error), _) | (_, Err(error)) => {
                complain(error.into());
                None
            }
        };
        let mut optional = |name: &str| {
            frequency(&folder.join(name))
                .map_err(|error| {
                    if !absent(&error) {
                        complain(error.into())
                    }
                })
                .ok()
        };
        let (base, bios_limit) = (optional("base_frequency"), optional("bios_limit"));
        let driver = attribute(&folder.join("scaling_driver")).and_then(|file| file.read_line());
        let driver = driver.unwrap_or_else(|error| {
            complain(error.into());
            String::new()
        });
        let table = table(folder).unwrap_or_else(|error| {
            complain(error.into());
            FrequencyTable::default()
        });
        Ok(Self {
            driver: Driver::named(&driver),
            table,
            range,
            base,
            bios_limit,
            related,
            online,
            die: None,
        })
    }

    /// The limit that it has, by its range and its table.
    pub(crate) fn limit(&self) -> Option<Result<Limit<KiloHertz>, BadLimit>> {
        let (min, max) = self.range?;
        let span = Span { floor: khz(min), ceiling: khz(max) };
        // A step that does not fit above zero says nothing that the table does not.
        let step = khz(self.table.step().min(min));
        Some(Limit::new(span, step).and_then(|limit| limit.known(Some(khz(min)), Some(khz(max)))))
    }
}

fn attribute(path: &Path) -> Result<Attribute, FileError> {
    Attribute::device(path.to_owned(), Access::Read)
}

fn cpus(path: &Path) -> Result<CpuSet, FileError> {
    let text = attribute(path)?.read_list()?;
    CpuSet::parse(&text).map_err(|_| FileError::bad_data(&Arc::from(path)))
}

fn frequency(path: &Path) -> Result<u32, FileError> {
    attribute(path)?
        .read_whole()
        .and_then(|whole| possible(whole).ok_or_else(|| FileError::bad_data(&Arc::from(path))))
}

/// The table and the boost frequencies above it, which the kernel lists apart.
fn table(folder: &Path) -> Result<FrequencyTable, FileError> {
    let mut khz = Vec::new();
    for name in ["scaling_available_frequencies", "scaling_boost_frequencies"] {
        let path = folder.join(name);
        match attribute(&path).and_then(|file| file.read_list()) {
            Ok(text) => {
                let part =
                    FrequencyTable::parse(&text).ok_or_else(|| FileError::bad_data(&Arc::from(path)))?;
                khz.extend_from_slice(part.khz());
            }
            Err(error) if absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(FrequencyTable::new(khz))
}

/// A frequency that a driver can mean: above zero, and within the 31 bits that the kernel keeps of it.
pub(crate) fn possible(whole: u64) -> Option<u32> {
    i32::try_from(whole).ok().filter(|khz| *khz > 0).map(i32::unsigned_abs)
}

pub(crate) fn khz(khz: u32) -> KiloHertz {
    KiloHertz::from_int(i32::try_from(khz).unwrap_or(i32::MAX))
}
