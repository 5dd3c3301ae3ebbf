//! The backend: Intel's GPUs below a root.

use crate::device::Device;
use crate::{IntelError, find};
use hal_files::Root;
use hal_files::devices::DeviceBackend;
use power_hal::{Domain, Key, Measured, Sample};
use power_units::MicroWatts;
use std::collections::BTreeSet;

/// Intel's GPUs in hwmon below a root.
#[derive(Debug)]
pub struct IntelHwmon {
    root: Root,
    found: Vec<Device>,
}

impl IntelHwmon {
    /// The GPUs of the machine below `root`. Nothing is opened yet.
    #[must_use]
    pub const fn new(root: Root) -> Self {
        Self { root, found: Vec::new() }
    }

    fn device(&self, at: usize) -> Result<&Device, IntelError> {
        self.found.get(at).ok_or(IntelError::Gone)
    }
}

impl DeviceBackend for IntelHwmon {
    type Error = IntelError;

    fn look(
        &mut self,
        kept: &dyn Fn(&Key) -> Option<MicroWatts>,
        complaints: &mut Vec<IntelError>,
    ) -> Result<Vec<Domain>, IntelError> {
        let mut list: Vec<(Domain, Device)> = Vec::new();
        let mut taken = BTreeSet::new();
        for place in find::places(&self.root, complaints)? {
            let key = *place.bare.key();
            if !taken.insert(key) {
                complaints.push(IntelError::Twice(key, place.folder.into()));
                continue;
            }
            let before = self.found.iter().find(|before| before.key() == key);
            let device = Device::open(&place, before, kept(&key), complaints);
            if let Some(domain) = device.describe(place.bare, complaints) {
                list.push((domain, device));
            }
        }
        list.sort_by_key(|(domain, _)| *domain.key());
        let (domains, found) = list.into_iter().unzip();
        self.found = found;
        Ok(domains)
    }

    fn awake(&self, at: usize) -> Result<(), IntelError> {
        let device = self.device(at)?;
        if device.sleeps() { Err(IntelError::Asleep(device.key())) } else { Ok(()) }
    }

    fn measured(&self, at: usize) -> Result<Measured, IntelError> {
        self.device(at)?.measured()
    }

    fn state(&self, at: usize, sample: &mut Sample) {
        if let Some(device) = self.found.get(at) {
            device.state(sample);
        }
    }

    fn cap(&self, at: usize) -> Result<MicroWatts, IntelError> {
        self.device(at)?.cap()
    }

    fn set_cap(&self, at: usize, cap: MicroWatts) -> Result<(), IntelError> {
        self.device(at)?.set_cap(cap)
    }

    fn put_back(&self, at: usize, cap: MicroWatts) -> Result<(), IntelError> {
        self.device(at)?.put_back(cap)
    }
}
