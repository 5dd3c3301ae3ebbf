//! A policy's files, kept open.

use crate::policy::possible;
use crate::standing::Wrote;
use crate::{CpufreqPolicy, FrequencyTable, LimitStatus};
use hal_files::{Access, Attribute, FileError};
use power_hal::{ErrorKind, Key};
use std::path::Path;
use std::time::Duration;

/// The first pause of a wait for a limit to come into force; each pause is twice as long as the one
/// before.
const PAUSE: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// The longest such wait. On Linux 6.12 with all processors busy, the kernel's worker took 58 ms in one
/// of a hundred cases.
const IN_FORCE_WITHIN: Duration = Duration::from_millis(200);
/// A value that is neither the old nor the written one may still change to the written one.
const SETTLED_WITHIN: Duration = Duration::from_millis(2);

/// An open policy.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    /// The folder's name. The kernel assigns it, and it only tells which folder belonged to which policy
    /// the last time.
    pub(crate) name: Box<str>,
    pub(crate) policy: CpufreqPolicy,
    pub(crate) grid: FrequencyTable,
    limit: Attribute,
    /// Why the limit cannot be written, if the file was opened read-only.
    refused: Option<FileError>,
    average: Option<Attribute>,
    current: Option<Attribute>,
    wrote: Option<Wrote>,
    seen: Option<u32>,
    /// The limit that remained after a wait for a higher one: another request holds it, and it is not
    /// waited for again.
    held: Option<u32>,
}

impl Slot {
    pub(crate) fn open(
        folder: &Path,
        name: &str,
        key: Key,
        policy: CpufreqPolicy,
    ) -> Result<Self, FileError> {
        let path = folder.join("scaling_max_freq");
        let (limit, refused) = match Attribute::device(path.clone(), Access::ReadWrite) {
            Ok(limit) => (limit, None),
            Err(error) if error.kind == ErrorKind::PermissionDenied => {
                (Attribute::device(path, Access::Read)?, Some(error))
            }
            Err(error) => return Err(error),
        };
        let readable = |name| Attribute::device(folder.join(name), Access::Read).ok();
        Ok(Self {
            key,
            name: name.into(),
            grid: policy.grid(),
            policy,
            limit,
            refused,
            average: readable("cpuinfo_avg_freq"),
            current: readable("scaling_cur_freq"),
            wrote: None,
            seen: None,
            held: None,
        })
    }

    /// Takes over the state of the same policy from an earlier enumeration.
    pub(crate) fn goes_on(&mut self, before: &Self) {
        (self.wrote, self.seen, self.held) = (before.wrote, before.seen, before.held);
    }

    pub(crate) fn standing(&self) -> LimitStatus {
        LimitStatus::judge(self.wrote, self.seen)
    }

    /// The limit in force.
    pub(crate) fn read_limit(&mut self) -> Result<u32, FileError> {
        let limit = read(&self.limit)?;
        self.seen = Some(limit);
        Ok(limit)
    }

    /// The frequency at which it runs; `None` where no file reports it.
    pub(crate) fn read_frequency(&self) -> Option<Result<u32, FileError>> {
        // The average has no value for an idle CPU.
        let average = self.average.as_ref().and_then(|average| read(average).ok());
        average.map(Ok).or_else(|| self.current.as_ref().map(read))
    }

    /// Brings a frequency of the driver into force, and returns what was read back then.
    pub(crate) fn write(&mut self, wish: u32) -> Result<u32, FileError> {
        let told = self.policy.table.at_or_below(wish);
        if let Some(wrote) = self.wrote.filter(|wrote| wrote.told == told)
            && self.read_limit()? == wrote.found
        {
            return Ok(wrote.found);
        }
        let found = self.put(told)?;
        self.wrote = Some(Wrote { told, found });
        Ok(found)
    }

    /// Writes exactly this value, without keeping it as our limit, and returns what is then in force.
    pub(crate) fn put(&mut self, khz: u32) -> Result<u32, FileError> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        let before = self.seen;
        self.limit.write_whole(khz.into())?;
        // From here on the value may be in force, whatever the read-back shows.
        self.wrote = None;
        self.come_into_force(before, khz)
    }

    /// The write returns before a worker of the kernel has brought it into force, so an unchanged value
    /// does not show the final one. Waits, for a bounded time, until the file reads as written, or has
    /// changed and stays so.
    fn come_into_force(&mut self, before: Option<u32>, told: u32) -> Result<u32, FileError> {
        let mut found = self.read_limit()?;
        // A lower request of another writer keeps the limit where it is, and that was already waited for.
        let known = |found: u32| told > found && self.held == Some(found);
        if found == told || known(found) {
            return Ok(found);
        }
        let (mut waited, mut end, mut pause) = (Duration::ZERO, IN_FORCE_WITHIN, PAUSE);
        while waited < end && found != told {
            rest(pause);
            waited += pause;
            pause = (pause * 2).min(PAUSE_MAX);
            let now = self.read_limit()?;
            if now != found && Some(now) != before {
                end = waited + SETTLED_WITHIN;
            }
            found = now;
        }
        self.held = (found < told).then_some(found);
        Ok(found)
    }
}

#[expect(clippy::disallowed_methods, reason = "no file tells when the kernel's worker has run")]
fn rest(pause: Duration) {
    std::thread::sleep(pause);
}

fn read(attribute: &Attribute) -> Result<u32, FileError> {
    possible(attribute.read_whole()?).ok_or_else(|| FileError::bad_data(attribute.path()))
}
