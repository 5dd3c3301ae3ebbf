//! The location of CPUs, and which of them are threads of one core. An offline CPU has no topology; its last known
//! topology stays valid, since a CPU does not move to another core.

use hal_files::{Access, Attribute, FileError, Root};
use power_hal::CpuSet;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The location of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) package: u16,
    pub(crate) die: Option<u16>,
    /// The threads of its core that were online when this was read, including itself.
    siblings: CpuSet,
}

/// All CPUs that were ever seen online.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    places: BTreeMap<u16, Place>,
}

impl Topology {
    /// The current location of a CPU; the last known one when it is offline.
    ///
    /// # Errors
    /// When the CPU has a topology that cannot be read.
    pub(crate) fn look(&mut self, root: &Root, cpu: u16) -> Result<Option<Place>, FileError> {
        let folder = root.join(&format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        let Some(place) = read(&folder)? else { return Ok(self.known(cpu)) };
        self.places.insert(cpu, place);
        Ok(Some(place))
    }

    /// The location of a CPU when it was last seen online.
    pub(crate) fn known(&self, cpu: u16) -> Option<Place> {
        self.places.get(&cpu).copied()
    }

    /// The threads of each core. A CPU that went offline is no longer in the lists of other CPUs, but still in its
    /// own.
    pub(crate) fn cores(&self) -> impl Iterator<Item = CpuSet> + '_ {
        self.places.values().map(|place| place.siblings)
    }
}

/// `None` where the CPU has no topology: it is offline.
fn read(folder: &Path) -> Result<Option<Place>, FileError> {
    let Some(package) = number(&folder.join("physical_package_id"))? else { return Ok(None) };
    let die = number(&folder.join("die_id"))?;
    let path = folder.join("thread_siblings_list");
    let siblings = match Attribute::device(path.clone(), Access::Read).and_then(|file| file.read_list()) {
        Ok(text) => CpuSet::parse(&text).map_err(|_| FileError::bad_data(&Arc::from(path)))?,
        Err(error) if absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(Place { package, die, siblings }))
}

fn number(path: &Path) -> Result<Option<u16>, FileError> {
    let whole = Attribute::device(path.to_owned(), Access::Read).and_then(|file| file.read_whole());
    match whole {
        Ok(whole) => u16::try_from(whole).map(Some).map_err(|_| FileError::bad_data(&Arc::from(path))),
        Err(error) if absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the file does not exist, or no longer exists.
pub(crate) fn absent(error: &FileError) -> bool {
    error.kind == power_hal::ErrorKind::Gone
}
