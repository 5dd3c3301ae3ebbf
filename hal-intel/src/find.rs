//! Which folders of hwmon are those of Intel's GPUs.

use crate::IntelError;
use hal_files::{FileError, Root, hwmon};
use power_hal::{Domain, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

/// Which driver registered a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    I915,
    Xe,
}

/// A folder that is a GPU's.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) driver: Driver,
    /// The GPU without anything that it has.
    pub(crate) bare: Domain,
    pub(crate) folder: PathBuf,
    /// Where the GPU itself stands, all links followed.
    pub(crate) device: PathBuf,
}

/// The folders of GPUs. One of a tile is named otherwise, and is not one.
pub(crate) fn places(root: &Root, complaints: &mut Vec<IntelError>) -> Result<Vec<Place>, IntelError> {
    let mut places = Vec::new();
    for folder in hwmon::folders(root).map_err(unknown)? {
        match place(folder) {
            Ok(place) => places.extend(place),
            // It went away between the listing and the look.
            Err(IntelError::File(_, error)) if error.kind == ErrorKind::Gone => {}
            Err(error) => complaints.push(error),
        }
    }
    Ok(places)
}

/// Of a GPU that is not known yet.
const fn unknown(error: FileError) -> IntelError {
    IntelError::File(None, error)
}

fn place(folder: PathBuf) -> Result<Option<Place>, IntelError> {
    let driver = match hwmon::name(&folder).map_err(unknown)?.as_str() {
        "i915" => Driver::I915,
        "xe" => Driver::Xe,
        _ => return Ok(None),
    };
    let device = hwmon::device(&folder).map_err(unknown)?;
    let address = device.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match Domain::gpu(address) {
        Ok(bare) => Ok(Some(Place { driver, bare, folder, device })),
        Err(_) => Err(IntelError::Unidentified(Arc::from(folder))),
    }
}
