//! The backend: Intel's GPUs below a root.

use crate::device::Device;
use crate::{IntelError, find};
use hal_files::Root;
use hal_files::devices::{DeviceBackend, cap_in};
use power_hal::{Control, Domain, Key, Measured, Original, Sample};
use power_units::{KiloHertz, MicroWatts};
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
        kept: &dyn Fn(&Key, Control) -> Option<Original>,
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
            let kept = kept(&key, Control::Power).as_ref().and_then(cap_in);
            let device = Device::open(&place, before, kept, complaints);
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

    fn clock_limit(&self, at: usize) -> Result<KiloHertz, IntelError> {
        self.device(at)?.clock_limit()
    }

    fn clock(&self, at: usize) -> Result<KiloHertz, IntelError> {
        self.device(at)?.running()
    }

    fn set_clock(&self, at: usize, limit: KiloHertz) -> Result<(), IntelError> {
        self.device(at)?.set_clock(limit)
    }

    fn save_clock(&self, at: usize) -> Result<Original, IntelError> {
        self.device(at)?.save_clock()
    }

    fn put_clock_back(&self, at: usize, original: &Original) -> Result<(), IntelError> {
        self.device(at)?.put_clock_back(original)
    }
}
