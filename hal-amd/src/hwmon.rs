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
//! The driver of sockets has no file for what limits the frequency. Where `/dev/hsmp` of the same driver can be opened, the
//! firmware is asked there; it is asked nothing else, and nothing is set there.
//!
//! The clock of an Instinct GPU can be limited ([`clock`]); it is the only GPU of amdgpu whose table says what it may be.
//!
//! While amdgpu resets or suspends a GPU it answers EPERM. This is not a question of privilege here, since a missing
//! privilege is detected when the file is opened. It is `Busy`, too.

mod clock;
mod device;
mod find;
pub(crate) mod metrics;
mod state;

use crate::hsmp::held;
use crate::{AmdError, DevHsmp, DeviceBackend, Mailbox};
use clock::ClockLimits;
use device::Device;
use hal_files::{FileError, Root};
use power_hal::{
    Control, Domain, Error, ErrorKind, Key, Measured, MemoryUse, Original, Sample, Throttled, ThrottledMeter,
};
use power_units::{KiloHertz, MicroWatts};
use std::collections::BTreeSet;
use std::path::Path;

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

/// The devices of hwmon below a root, and the mailbox of the sockets' firmware.
#[derive(Debug)]
pub struct Hwmon<M = DevHsmp> {
    root: Root,
    devices: DeviceSelection,
    found: Vec<Device>,
    mailbox: Option<M>,
    /// How to open the mailbox again at each enumeration; `None` for one that the caller provided.
    open: Option<Open<M>>,
}

type Open<M> = fn(&Path) -> Result<M, FileError>;

impl Hwmon<DevHsmp> {
    /// The selected devices of the machine below `root`. Nothing is opened yet.
    #[must_use]
    pub const fn new(root: Root, devices: DeviceSelection) -> Self {
        Self { root, devices, found: Vec::new(), mailbox: None, open: Some(DevHsmp::open) }
    }
}

impl<M: Mailbox> Hwmon<M> {
    /// The selected devices of the machine below `root`, with a mailbox that the caller provides.
    #[must_use]
    pub const fn over(root: Root, devices: DeviceSelection, mailbox: M) -> Self {
        Self { root, devices, found: Vec::new(), mailbox: Some(mailbox), open: None }
    }

    /// Opens the mailbox again, since a reloaded driver replaces it. Without one a socket says less, and that is all.
    fn reach(&mut self) {
        if let Some(open) = self.open {
            self.mailbox = open(&self.root.join("dev/hsmp")).ok();
        }
    }

    /// Whether the firmware of a socket says what limits its frequency.
    fn says_reasons(&self, socket: u16, key: Key) -> bool {
        let Some(mailbox) = &self.mailbox else { return false };
        match held(mailbox, socket, key) {
            Ok(_) => true,
            // It has not answered, which says nothing of what it knows.
            Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Busy) => {
                self.found.iter().any(|before| before.key() == key && before.reasons.is_some())
            }
            Err(_) => false,
        }
    }

    fn device(&self, at: usize) -> Result<&Device, AmdError> {
        self.found.get(at).ok_or(AmdError::Gone)
    }
}

/// The highest clock in an original of a GPU's clock.
#[must_use]
pub fn clock_in(original: &Original) -> Option<KiloHertz> {
    ClockLimits::in_original(original).map(|limits| clock::kilohertz(limits.high))
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

impl<M: Mailbox> DeviceBackend for Hwmon<M> {
    type Error = AmdError;

    fn look(
        &mut self,
        kept: &dyn Fn(&Key, Control) -> Option<Original>,
        complaints: &mut Vec<AmdError>,
    ) -> Result<Vec<Domain>, AmdError> {
        let mut list: Vec<(Domain, Device)> = Vec::new();
        let mut taken = BTreeSet::new();
        let mut places = find::places(&self.root, complaints)?;
        places.retain(|place| self.devices.has(place.driver));
        if places.iter().any(|place| place.socket.is_some()) {
            self.reach();
        }
        for place in places {
            let key = *place.bare.key();
            if !taken.insert(key) {
                complaints.push(AmdError::Twice(key, place.folder.into()));
                continue;
            }
            let before = self.found.iter().find(|before| before.key() == key);
            let original = kept(&key, Control::Frequency);
            let mut device = Device::open(&place, before, original.as_ref(), complaints);
            if let Some(mut domain) = device.describe(place.bare, complaints) {
                device.reasons = place.socket.filter(|socket| self.says_reasons(*socket, key));
                if device.reasons.is_some() {
                    domain = domain.with_throttled(ThrottledMeter::Instant);
                }
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
        let Some(device) = self.found.get(at) else { return };
        device.state(sample);
        if let Some((mailbox, socket)) = self.mailbox.as_ref().zip(device.reasons) {
            let held = held(mailbox, socket, device.key());
            sample.throttled = held.map(Throttled::Instant).map_err(|error| error.kind());
        }
    }

    fn memory(&self, at: usize) -> Result<MemoryUse, ErrorKind> {
        self.device(at).map_err(|error| error.kind())?.memory()
    }

    fn cap(&self, at: usize) -> Result<MicroWatts, AmdError> {
        self.device(at)?.cap()
    }

    fn set_cap(&self, at: usize, cap: MicroWatts) -> Result<(), AmdError> {
        self.device(at)?.set_cap(cap)
    }

    fn clock_limit(&self, at: usize) -> Result<KiloHertz, AmdError> {
        let device = self.device(at)?;
        device.on_clock(|clock| clock.limit())
    }

    fn clock(&self, at: usize) -> Result<KiloHertz, AmdError> {
        let device = self.device(at)?;
        device.on_clock(|clock| clock.running())
    }

    fn set_clock(&self, at: usize, limit: KiloHertz) -> Result<(), AmdError> {
        let device = self.device(at)?;
        device.on_clock(|clock| clock.set(limit))
    }

    fn save_clock(&self, at: usize) -> Result<Original, AmdError> {
        let device = self.device(at)?;
        device.on_clock(|clock| clock.save())?.ok_or(AmdError::Unfit(device.key()))
    }

    fn shows_all_of_clocks(&self) -> bool {
        false
    }

    fn put_clock_back(&self, at: usize, original: &Original) -> Result<(), AmdError> {
        let device = self.device(at)?;
        let limits = ClockLimits::in_original(original).ok_or(AmdError::Unfit(device.key()))?;
        device.on_clock(|clock| clock.put_back(limits))
    }
}
