//! Finds the hwmon folders of Intel GPUs.

use crate::IntelError;
use hal_files::{FileError, Root, hwmon};
use power_hal::{Domain, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

/// The driver that registered a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    I915,
    Xe,
}

/// The folder of a GPU.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) driver: Driver,
    /// The GPU without its controls.
    pub(crate) bare: Domain,
    pub(crate) folder: PathBuf,
    /// The path of the GPU itself, with all links resolved.
    pub(crate) device: PathBuf,
}

/// The folders of GPUs. The folder of a tile has another name, and is not included.
pub(crate) fn places(root: &Root, complaints: &mut Vec<IntelError>) -> Result<Vec<Place>, IntelError> {
    let mut places = Vec::new();
    for folder in hwmon::folders(root).map_err(unknown)? {
        match place(folder) {
            Ok(place) => places.extend(place),
            // It was removed between the listing and the access.
            Err(IntelError::File(_, error)) if error.kind == ErrorKind::Gone => {}
            Err(error) => complaints.push(error),
        }
    }
    Ok(places)
}

/// An error of a GPU that is not identified yet.
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
