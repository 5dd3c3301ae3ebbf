//! Finds the hwmon folders of AMD devices, and identifies the devices.

use crate::AmdError;
use hal_files::hwmon::{self, number};
use hal_files::{FileError, Root};
use power_hal::{Domain, ErrorKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The driver that registered a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Amdgpu,
    Hsmp,
}

/// The folder of a device.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) driver: Driver,
    /// The device without its controls.
    pub(crate) bare: Domain,
    /// The number of a socket.
    pub(crate) socket: Option<u16>,
    pub(crate) folder: PathBuf,
    /// The path of the device itself, with all links resolved.
    pub(crate) device: PathBuf,
}

/// The folders of GPUs and sockets. Partitions of a GPU are not included.
pub(crate) fn places(root: &Root, complaints: &mut Vec<AmdError>) -> Result<Vec<Place>, AmdError> {
    let mut places = Vec::new();
    let mut shared = BTreeMap::new();
    for folder in hwmon::folders(root).map_err(unknown)? {
        match place(&folder, &mut shared) {
            Ok(place) => places.extend(place),
            // It was removed between the listing and the access.
            Err(AmdError::File(_, error)) if error.kind == ErrorKind::Gone => {}
            Err(error) => complaints.push(error),
        }
    }
    Ok(places)
}

/// An error of a device that is not identified yet.
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
    let (bare, socket) = match driver {
        Driver::Amdgpu if name.starts_with("amdgpu_xcp") => return Ok(None),
        Driver::Amdgpu => (Domain::gpu(name).ok(), None),
        Driver::Hsmp => {
            let socket = socket(&device, name, shared);
            (socket.map(Domain::socket), socket)
        }
    };
    let bare = bare.ok_or_else(|| AmdError::Unidentified(Arc::from(folder)))?;
    Ok(Some(Place { driver, bare, socket, folder: folder.to_owned(), device }))
}

/// The socket's number. Behind ACPI each socket has its own device, with the number in the firmware's `uid`
/// (`ID01`). Without ACPI all share the device `amd_hsmp`, and the driver registers them in order, beginning with
/// the first socket.
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
