//! One device's files, kept open.

use super::clock::ClockFiles;
use super::find::{Driver, Place};
use super::state::StateFiles;
use crate::AmdError;
use crate::watts::{self, Told};
use hal_files::hwmon::{self, Settable};
use hal_files::{Attribute, FileError, FileOperation};
use power_hal::{Domain, ErrorKind, Key, MemoryUse, Original, Sample};
use power_units::MicroWatts;

/// amdgpu's unit is whole watts.
const WATT: MicroWatts = MicroWatts::new(1_000_000);
/// The unit of the socket's firmware is milliwatts.
const MILLIWATT: MicroWatts = MicroWatts::new(1_000);

/// An open device.
#[derive(Debug)]
pub(crate) struct Device {
    key: Key,
    driver: Driver,
    cap: Option<Settable>,
    bounds: Bounds,
    told: Told,
    /// `power1_average` and `power1_input`; kernels and devices have one, the other, or both.
    meters: [Option<Attribute>; 2],
    /// What it reports beside its power; nothing for a socket.
    state: StateFiles,
    /// The number of a socket whose firmware says what limits its frequency.
    pub(super) reasons: Option<u16>,
    runtime_status: Option<Attribute>,
    /// Its clock, if that can be limited.
    clock: Option<ClockFiles>,
}

#[derive(Debug)]
struct Bounds {
    min: Option<Attribute>,
    max: Option<Attribute>,
    default: Option<Attribute>,
}

impl Device {
    /// Opens the files of a folder. A file that cannot be opened or parsed counts as missing, and is a complaint.
    /// `before` is the same device in the last list, `kept` what its clock was before the first write.
    pub(crate) fn open(
        place: &Place,
        before: Option<&Self>,
        kept: Option<&Original>,
        complaints: &mut Vec<AmdError>,
    ) -> Self {
        let key = *place.bare.key();
        let mut complain = |error| complaints.push(AmdError::File(Some(key), error));
        let mut file = |name: &str| hwmon::open(&place.folder.join(name), &mut complain);
        let bounds = Bounds {
            min: file("power1_cap_min"),
            max: file("power1_cap_max"),
            default: file("power1_cap_default"),
        };
        let meters = [file("power1_average"), file("power1_input")];
        let runtime_status = hwmon::open(&place.device.join("power/runtime_status"), &mut complain);
        let cap = Settable::open(&place.folder.join("power1_cap"), &mut complain);
        let told = Told::default();
        let state = StateFiles::default();
        let driver = place.driver;
        let (reasons, clock) = (None, None);
        let mut device =
            Self { key, driver, cap, bounds, told, meters, state, reasons, runtime_status, clock };
        if place.driver == Driver::Amdgpu {
            let known = (before.and_then(|before| before.clock.as_ref()), device.sleeps());
            device.clock = ClockFiles::open(&place.folder, &place.device, known, kept);
            let known = (before.map(|before| &before.state), device.sleeps());
            let mut complain = |error| complaints.push(AmdError::File(Some(key), error));
            device.state = StateFiles::open(&place.folder, &place.device, known, &mut complain);
        }
        device.learn(before, complaints);
        device
    }

    /// Reads the range and checks which meters answer, without waking a device for which both are known.
    fn learn(&mut self, before: Option<&Self>, complaints: &mut Vec<AmdError>) {
        if let Some(before) = before.filter(|_| self.sleeps()) {
            self.told = before.told;
            for (meter, before) in self.meters.iter_mut().zip(&before.meters) {
                *meter = meter.take().filter(|_| before.is_some());
            }
            return;
        }
        let known = before.map(|before| before.told).unwrap_or_default();
        let mut bound = |file: &Option<Attribute>, known: Option<MicroWatts>| match microwatts(file.as_ref()?)
        {
            Ok(bound) => Some(bound),
            Err(error) => {
                complaints.push(AmdError::File(Some(self.key), error));
                known
            }
        };
        self.told = Told {
            min: bound(&self.bounds.min, known.min),
            max: bound(&self.bounds.max, known.max),
            default: bound(&self.bounds.default, known.default),
        };
        for meter in &mut self.meters {
            // Some devices have the file but no sensor behind it.
            *meter = meter.take().filter(|file| {
                microwatts(file).err().is_none_or(|error| error.kind != ErrorKind::NotSupported)
            });
        }
    }

    pub(crate) const fn key(&self) -> Key {
        self.key
    }

    /// The device and its controls; `None` if it can neither be measured nor capped, or reports zero as its largest
    /// cap, as a secondary die does.
    pub(crate) fn describe(&self, bare: Domain, complaints: &mut Vec<AmdError>) -> Option<Domain> {
        if self.driver == Driver::Amdgpu && self.told.max == Some(MicroWatts::ZERO) {
            return None;
        }
        let has_meter = self.meters.iter().any(Option::is_some);
        let bare = self.state.describe(bare);
        let bare = match &self.clock {
            Some(clock) => bare.with_frequency(*clock.range()),
            None => bare,
        };
        let domain = if has_meter { bare.with_power_meter() } else { bare };
        let step = if self.driver == Driver::Amdgpu { WATT } else { MILLIWATT };
        match (&self.cap, self.told.limit(step)) {
            (Some(_), Ok(limit)) => Some(domain.with_power(limit)),
            (Some(_), Err(bad)) => {
                complaints.push(AmdError::Range(self.key, bad));
                has_meter.then_some(domain)
            }
            (None, _) => has_meter.then_some(domain),
        }
    }

    pub(crate) fn sleeps(&self) -> bool {
        hwmon::sleeps(self.runtime_status.as_ref())
    }

    pub(crate) fn power(&self) -> Result<MicroWatts, AmdError> {
        let mut failure = None;
        for meter in self.meters.iter().flatten() {
            match microwatts(meter) {
                Ok(power) => return Ok(power),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.map_or(AmdError::Lacking, |error| self.fault(error)))
    }

    /// Fills in what it reports beside its power.
    pub(crate) fn state(&self, sample: &mut Sample) {
        self.state.fill(sample);
    }

    /// How much of its memory is in use.
    pub(crate) fn memory(&self) -> Result<MemoryUse, ErrorKind> {
        self.state.memory()
    }

    pub(crate) fn cap(&self) -> Result<MicroWatts, AmdError> {
        let file = self.cap.as_ref().ok_or(AmdError::Lacking)?.file();
        let cap = microwatts(file).map_err(|error| self.fault(error))?;
        watts::in_force(cap).ok_or_else(|| AmdError::File(Some(self.key), FileError::bad_data(file.path())))
    }

    pub(crate) fn set_cap(&self, cap: MicroWatts) -> Result<(), AmdError> {
        let file = self.cap.as_ref().ok_or(AmdError::Lacking)?;
        file.write_whole(cap.get()).map_err(|error| {
            if error.errno == Some(libc::EINVAL) && self.range_now().holds(cap) {
                AmdError::TakesNoCap(self.key, error)
            } else {
                self.fault(error)
            }
        })
    }

    /// Does something with its clock.
    pub(crate) fn on_clock<T>(
        &self,
        deed: impl FnOnce(&ClockFiles) -> Result<T, FileError>,
    ) -> Result<T, AmdError> {
        deed(self.clock.as_ref().ok_or(AmdError::Lacking)?).map_err(|error| self.fault(error))
    }

    /// The current range, which may differ from the listed one.
    fn range_now(&self) -> Told {
        let now = |file: &Option<Attribute>| file.as_ref().and_then(|file| microwatts(file).ok());
        Told { min: now(&self.bounds.min), max: now(&self.bounds.max), default: None }
    }

    fn fault(&self, error: FileError) -> AmdError {
        let in_reset = self.driver == Driver::Amdgpu
            && error.errno == Some(libc::EPERM)
            && error.deed != FileOperation::Open;
        if in_reset { AmdError::InReset(self.key, error) } else { AmdError::File(Some(self.key), error) }
    }
}

fn microwatts(file: &Attribute) -> Result<MicroWatts, FileError> {
    let whole = file.read_whole()?;
    watts::possible(MicroWatts::new(whole)).ok_or_else(|| FileError::bad_data(file.path()))
}
