//! A policy's files, kept open.

use crate::policy::possible;
use crate::standing::Wrote;
use crate::{Policy, Standing};
use hal_files::{Access, Attribute, FileError};
use power_hal::{ErrorKind, Key};
use std::path::Path;

/// An open policy.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    /// The folder's name. It is the kernel's, and only says which folder was which policy the last time.
    pub(crate) name: Box<str>,
    pub(crate) policy: Policy,
    limit: Attribute,
    /// Why the limit cannot be written, if it was opened to be read only.
    refused: Option<FileError>,
    average: Option<Attribute>,
    current: Option<Attribute>,
    wrote: Option<Wrote>,
    seen: Option<u32>,
}

impl Slot {
    pub(crate) fn open(folder: &Path, name: &str, key: Key, policy: Policy) -> Result<Self, FileError> {
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
            policy,
            limit,
            refused,
            average: readable("cpuinfo_avg_freq"),
            current: readable("scaling_cur_freq"),
            wrote: None,
            seen: None,
        })
    }

    /// Goes on from where an earlier enumeration was with the same policy.
    pub(crate) fn goes_on(&mut self, before: &Self) {
        (self.wrote, self.seen) = (before.wrote, before.seen);
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing::judge(self.wrote, self.seen)
    }

    /// The limit in force.
    pub(crate) fn read_limit(&mut self) -> Result<u32, FileError> {
        let limit = read(&self.limit)?;
        self.seen = Some(limit);
        Ok(limit)
    }

    /// The frequency at which it runs; nothing where no file says.
    pub(crate) fn read_frequency(&self) -> Option<Result<u32, FileError>> {
        // The average has no answer for a CPU that idles.
        let average = self.average.as_ref().and_then(|average| read(average).ok());
        average.map(Ok).or_else(|| self.current.as_ref().map(read))
    }

    /// Brings a frequency of the driver into force, and answers what was read back.
    pub(crate) fn write(&mut self, wish: u32) -> Result<u32, FileError> {
        let told = self.policy.table.at_or_below(wish);
        if let Some(wrote) = self.wrote.filter(|wrote| wrote.told == told)
            && self.read_limit()? == wrote.found
        {
            return Ok(wrote.found);
        }
        self.put(told)?;
        self.wrote = Some(Wrote { told, found: told });
        let found = self.read_limit()?;
        self.wrote = Some(Wrote { told, found });
        Ok(found)
    }

    /// Writes exactly this, as nothing that has to be kept up.
    pub(crate) fn put(&mut self, khz: u32) -> Result<(), FileError> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        self.limit.write_whole(khz.into())?;
        self.wrote = None;
        Ok(())
    }
}

fn read(attribute: &Attribute) -> Result<u32, FileError> {
    possible(attribute.read_whole()?).ok_or_else(|| FileError::bad_data(attribute.path()))
}
