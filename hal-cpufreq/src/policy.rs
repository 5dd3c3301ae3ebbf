//! The facts in a policy's files that do not change while it is used.

use crate::topology::absent;
use crate::{CpufreqFault, Driver, FrequencyTable};
use hal_files::{Access, Attribute, FileError};
use power_hal::{BadLimit, CpuSet, Limit, Span};
use power_units::KiloHertz;
use std::path::Path;
use std::sync::Arc;

/// The facts about a policy that are not part of the port's description, as of the last enumeration.
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

    /// The driver's frequencies, if it has a table: a law dithers between them.
    #[must_use]
    pub const fn table(&self) -> &FrequencyTable {
        &self.table
    }

    /// The frequency that it holds without turbo (`base_frequency`), if the driver reports it.
    #[must_use]
    pub fn base(&self) -> Option<KiloHertz> {
        self.base.map(khz)
    }

    /// The maximum that the platform allows at the moment (`bios_limit`), if the driver reports it.
    #[must_use]
    pub fn bios_limit(&self) -> Option<KiloHertz> {
        self.bios_limit.map(khz)
    }

    /// Its CPUs that were online at the last enumeration; `sample` tells whether any still is.
    #[must_use]
    pub const fn online(&self) -> &CpuSet {
        &self.online
    }

    /// The die of its package, if the kernel reports it.
    #[must_use]
    pub const fn die(&self) -> Option<u16> {
        self.die
    }

    /// Reads a policy's folder. A file that is not needed for the limit and cannot be parsed becomes a
    /// complaint.
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

    /// The frequencies that a limit has an effect at: the driver's table, or the steps to which it rounds limits down
    /// although they read back as they were written.
    pub(crate) fn grid(&self) -> FrequencyTable {
        match (self.driver.step(), self.range) {
            (Some(step), Some((min, max))) if self.table.khz().is_empty() => {
                let steps = (min.div_ceil(step.get())..=max / step.get()).map(|at| at * step.get());
                FrequencyTable::new([min].into_iter().chain(steps).chain([max]).collect())
            }
            (Some(_) | None, _) => self.table.clone(),
        }
    }

    /// The limit of the policy, from its range and its table.
    pub(crate) fn limit(&self) -> Option<Result<Limit<KiloHertz>, BadLimit>> {
        let (min, max) = self.range?;
        let span = Span { floor: khz(min), ceiling: khz(max) };
        // A step above the minimum adds nothing to the table.
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

/// The table and the boost frequencies above it, which the kernel lists separately.
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

/// A plausible frequency of a driver: above zero, and within the 31 bits that the kernel stores.
pub(crate) fn possible(whole: u64) -> Option<u32> {
    i32::try_from(whole).ok().filter(|khz| *khz > 0).map(i32::unsigned_abs)
}

pub(crate) fn khz(khz: u32) -> KiloHertz {
    KiloHertz::from_int(i32::try_from(khz).unwrap_or(i32::MAX))
}
