//! Which folders of hwmon are AMD's, and whose they are.

use crate::AmdError;
use hal_files::hwmon::{self, number};
use hal_files::{FileError, Root};
use power_hal::{Domain, ErrorKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which driver registered a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Amdgpu,
    Hsmp,
}

/// A folder that is a device's.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) driver: Driver,
    /// The device without anything that it has.
    pub(crate) bare: Domain,
    pub(crate) folder: PathBuf,
    /// Where the device itself stands, all links followed.
    pub(crate) device: PathBuf,
}

/// The folders of GPUs and sockets. A partition of a GPU is not one.
pub(crate) fn places(root: &Root, complaints: &mut Vec<AmdError>) -> Result<Vec<Place>, AmdError> {
    let mut places = Vec::new();
    let mut shared = BTreeMap::new();
    for folder in hwmon::folders(root).map_err(unknown)? {
        match place(&folder, &mut shared) {
            Ok(place) => places.extend(place),
            // It went away between the listing and the look.
            Err(AmdError::File(_, error)) if error.kind == ErrorKind::Gone => {}
            Err(error) => complaints.push(error),
        }
    }
    Ok(places)
}

/// Of a device that is not known yet.
const fn unknown(error: FileError) -> AmdError {
    AmdError::File(None, error)
}

fn place(folder: &Path, shared: &mut BTreeMap<PathBuf, u16>) -> Result<Option<Place>, AmdError> {
    let driver = match hwmon::name(folder).map_err(unknown)?.as_str() {
        "amdgpu" => Driver::Amdgpu,
        "amd_hsmp_hwmon" => Driver::Hsmp,
        _ => return Ok(None),
    };
    let device = hwmon::device(folder).map_err(unknown)?;
    let name = device.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let bare = match driver {
        Driver::Amdgpu if name.starts_with("amdgpu_xcp") => return Ok(None),
        Driver::Amdgpu => Domain::gpu(name).ok(),
        Driver::Hsmp => socket(&device, name, shared).map(Domain::socket),
    };
    let bare = bare.ok_or_else(|| AmdError::Unidentified(Arc::from(folder)))?;
    Ok(Some(Place { driver, bare, folder: folder.to_owned(), device }))
}

/// Which socket. Behind ACPI each has a device of its own, with its number in the firmware's `uid` (`ID01`). Without
/// ACPI they share the device `amd_hsmp`, and the driver registers them at one go, from the first socket on.
fn socket(device: &Path, name: &str, shared: &mut BTreeMap<PathBuf, u16>) -> Option<u16> {
    if let Ok(uid) = hwmon::line(&device.join("firmware_node/uid")) {
        return number(&uid, "ID");
    }
    if name == "amd_hsmp" {
        let next = shared.entry(device.to_owned()).or_insert(0);
        let socket = *next;
        *next = next.saturating_add(1);
        return Some(socket);
    }
    let instance = name.strip_prefix("AMDI0097:").filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    instance.and_then(|hex| u16::from_str_radix(hex, 16).ok()).or_else(|| number(name, "amd_hsmp."))
}
