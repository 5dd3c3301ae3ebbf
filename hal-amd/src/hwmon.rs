//! `power1_cap` of hwmon: a GPU by amdgpu, an EPYC socket by `amd_hsmp_hwmon`.
//!
//! `hwmonN` is numbered in the order of probing, so a GPU is identified by the PCI address of its device, and a socket
//! by its own number. The file `name` contains the driver. Numbers are in µW. amdgpu truncates a cap to whole watts,
//! refuses a cap outside its range, and takes 0 as a request to apply the current cap again; the socket's firmware
//! clips at its maximum.
//!
//! A GPU that is asleep (`power/runtime_status`) is woken by any read of its attributes. So a sample of it is
//! [`Busy`](power_hal::ErrorKind::Busy) instead, and the last known range stays valid. It is woken once to learn its
//! range, and whenever its cap is set or released; the cap then holds when the GPU wakes by itself.
//!
//! While amdgpu resets or suspends a GPU it answers EPERM. This is not a question of privilege here, since a missing
//! privilege is detected when the file is opened. It is `Busy`, too.

mod device;
mod find;
mod metrics;
mod state;

use crate::{AmdError, DeviceBackend};
use device::Device;
use hal_files::Root;
use power_hal::{Domain, Key, Measured, Sample};
use power_units::MicroWatts;
use std::collections::BTreeSet;

/// The devices of a HAL. A GPU whose firmware hangs blocks the thread that reads it, so a host may want separate HALs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceSelection {
    /// GPUs of amdgpu.
    Gpus,
    /// EPYC sockets of `amd_hsmp_hwmon`.
    Sockets,
    /// Both.
    All,
}

impl DeviceSelection {
    const fn has(self, driver: find::Driver) -> bool {
        matches!(
            (self, driver),
            (Self::All, _) | (Self::Gpus, find::Driver::Amdgpu) | (Self::Sockets, find::Driver::Hsmp)
        )
    }
}

/// The devices of hwmon below a root.
#[derive(Debug)]
pub struct Hwmon {
    root: Root,
    devices: DeviceSelection,
    found: Vec<Device>,
}

impl Hwmon {
    /// The selected devices of the machine below `root`. Nothing is opened yet.
    #[must_use]
    pub const fn new(root: Root, devices: DeviceSelection) -> Self {
        Self { root, devices, found: Vec::new() }
    }

    fn device(&self, at: usize) -> Result<&Device, AmdError> {
        self.found.get(at).ok_or(AmdError::Gone)
    }
}

/// Whether hwmon has a socket.
pub(crate) fn has_sockets(root: &Root) -> Result<bool, AmdError> {
    has(root, find::Driver::Hsmp)
}

/// Whether hwmon has a GPU.
pub(crate) fn has_gpus(root: &Root) -> Result<bool, AmdError> {
    has(root, find::Driver::Amdgpu)
}

fn has(root: &Root, driver: find::Driver) -> Result<bool, AmdError> {
    Ok(find::places(root, &mut Vec::new())?.iter().any(|place| place.driver == driver))
}

impl DeviceBackend for Hwmon {
    type Error = AmdError;

    fn look(
        &mut self,
        _: &dyn Fn(&Key) -> Option<MicroWatts>,
        complaints: &mut Vec<AmdError>,
    ) -> Result<Vec<Domain>, AmdError> {
        let mut list: Vec<(Domain, Device)> = Vec::new();
        let mut taken = BTreeSet::new();
        for place in find::places(&self.root, complaints)? {
            if !self.devices.has(place.driver) {
                continue;
            }
            let key = *place.bare.key();
            if !taken.insert(key) {
                complaints.push(AmdError::Twice(key, place.folder.into()));
                continue;
            }
            let before = self.found.iter().find(|before| before.key() == key);
            let device = Device::open(&place, before, complaints);
            if let Some(domain) = device.describe(place.bare, complaints) {
                list.push((domain, device));
            }
        }
        list.sort_by_key(|(domain, _)| *domain.key());
        let (domains, found) = list.into_iter().unzip();
        self.found = found;
        Ok(domains)
    }

    fn awake(&self, at: usize) -> Result<(), AmdError> {
        let device = self.device(at)?;
        if device.sleeps() { Err(AmdError::Asleep(device.key())) } else { Ok(()) }
    }

    fn measured(&self, at: usize) -> Result<Measured, AmdError> {
        self.device(at)?.power().map(Measured::Power)
    }

    fn state(&self, at: usize, sample: &mut Sample) {
        if let Some(device) = self.found.get(at) {
            device.state(sample);
        }
    }

    fn cap(&self, at: usize) -> Result<MicroWatts, AmdError> {
        self.device(at)?.cap()
    }

    fn set_cap(&self, at: usize, cap: MicroWatts) -> Result<(), AmdError> {
        self.device(at)?.set_cap(cap)
    }
}
