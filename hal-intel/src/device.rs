//! One GPU's files, kept open.

use crate::IntelError;
use crate::clock::{ClockFiles, PartLimits};
use crate::find::{Driver, Place};
use crate::gt::Gt;
use crate::slow::SlowFiles;
use hal_files::devices::{in_force, possible};
use hal_files::hwmon::{self, Settable};
use hal_files::{Attribute, FileError, FileOperation};
use power_hal::{
    Counter, Domain, ErrorKind, Key, Limit, Measured, Original, Sample, Slowdown, Span, StateReading,
    Throttled, ThrottledMeter,
};
use power_units::{KiloHertz, MicroJoules, MicroWatts};
use std::path::Path;

/// The reading of a limit that is switched off: the largest value of 15 bits of 1/8 W.
pub const OFF: MicroWatts = MicroWatts::new(4_095_875_000);

/// The range of the energy register with the smallest known step, 2⁻¹⁴ J.
pub const COUNTER: MicroJoules = MicroJoules::new((1 << 32 >> 14) * 1_000_000);

/// The step of written values: whole watts are multiples of every register's step, so that nothing is rounded up.
const WATT: MicroWatts = MicroWatts::new(1_000_000);

/// Nothing runs below a watt, and 0 switches the limit off.
const FLOOR: MicroWatts = WATT;

/// The last whole watt below [`OFF`].
const CEILING: MicroWatts = MicroWatts::new(4_095_000_000);

/// A channel of the driver: 1 is the card, 2 the package on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Card,
    Package,
}

impl Channel {
    const ALL: [Self; 2] = [Self::Card, Self::Package];

    const fn number(self) -> u8 {
        match self {
            Self::Card => 1,
            Self::Package => 2,
        }
    }
}

/// An open GPU.
#[derive(Debug)]
pub(crate) struct Device {
    key: Key,
    driver: Driver,
    limit: Option<Settable>,
    rated: Option<Attribute>,
    /// The largest limit ever read, since the rated limit of some cards follows the limit in force.
    largest: Option<MicroWatts>,
    energy: Option<Attribute>,
    temperature: Option<Attribute>,
    slow: SlowFiles,
    /// Its clock, if that can be limited.
    clock: Option<ClockFiles>,
    runtime_status: Option<Attribute>,
}

impl Device {
    /// Opens the files of a folder. A file that cannot be opened or parsed counts as missing, and is a complaint.
    /// `before` is the same GPU in the previous list, `kept` its limit before the first write.
    pub(crate) fn open(
        place: &Place,
        before: Option<&Self>,
        kept: Option<MicroWatts>,
        complaints: &mut Vec<IntelError>,
    ) -> Self {
        let key = *place.bare.key();
        let mut complain = |error| complaints.push(IntelError::File(Some(key), error));
        let path = |kind: &str, channel: Channel, what: &str| {
            place.folder.join(format!("{kind}{}_{what}", channel.number()))
        };
        let limit = Channel::ALL.into_iter().find_map(|channel| {
            Some((channel, Settable::open(&path("power", channel, "max"), &mut complain)?))
        });
        let (limited, limit) = limit.unzip();
        let of_rated = limited.unwrap_or(Channel::Card);
        let rated = hwmon::open(&path("power", of_rated, "rated_max"), &mut complain);
        let mut energy = hwmon::open(&path("energy", Channel::Card, "input"), &mut complain);
        if energy.is_none() {
            energy = hwmon::open(&path("energy", Channel::Package, "input"), &mut complain);
            if energy.is_some() && limited == Some(Channel::Card) {
                energy = None;
                complaints.push(IntelError::Narrow(key));
            }
        }
        let mut complain = |error| complaints.push(IntelError::File(Some(key), error));
        // The channel of the package: i915 numbers it 1, and xe 2.
        let sensor = if place.driver == Driver::I915 { "temp1_input" } else { "temp2_input" };
        let temperature = hwmon::open(&place.folder.join(sensor), &mut complain);
        let parts = Gt::all(&place.device);
        let slow = SlowFiles::open(&parts, &mut complain);
        let runtime_status = status(&place.device, key, complaints);
        let largest = before.and_then(|before| before.largest).max(kept.filter(|kept| *kept < OFF));
        let driver = place.driver;
        let mut device = Self {
            key,
            driver,
            limit,
            rated,
            largest,
            energy,
            temperature,
            slow,
            clock: None,
            runtime_status,
        };
        let known = (before.and_then(|before| before.clock.as_ref()), device.sleeps());
        device.clock = ClockFiles::open(&parts, known);
        if !device.sleeps() || before.is_none() {
            device.learn(complaints);
        }
        device
    }

    /// Reads the range, which wakes the GPU. The range includes the limit in force, whatever the rated limit is.
    fn learn(&mut self, complaints: &mut Vec<IntelError>) {
        let limit = self.limit.as_ref().map(Settable::file);
        for told in limit.into_iter().chain(&self.rated).map(microwatts) {
            match told {
                Ok(watts) => self.largest = self.largest.max(in_force(watts).filter(|watts| *watts < OFF)),
                Err(error) => complaints.push(IntelError::File(Some(self.key), error)),
            }
        }
    }

    pub(crate) const fn key(&self) -> Key {
        self.key
    }

    /// The GPU and its controls; `None` if it can neither be measured nor capped.
    pub(crate) fn describe(&self, bare: Domain, complaints: &mut Vec<IntelError>) -> Option<Domain> {
        let bare =
            if self.temperature.is_some() { bare.with_reading(StateReading::Temperature) } else { bare };
        let bare = if self.slow.is_empty() {
            bare
        } else {
            bare.with_reading(StateReading::Slowdown).with_throttled(ThrottledMeter::Instant)
        };
        let bare = match &self.clock {
            Some(clock) => bare.with_frequency(*clock.range()),
            None => bare,
        };
        let metered = match &self.energy {
            Some(_) => bare.with_counter(Counter::new(COUNTER)),
            None => bare,
        };
        let limit = Limit::new(Span { floor: FLOOR, ceiling: CEILING }, WATT);
        let limit = limit.and_then(|limit| limit.known(None, self.largest));
        match (&self.limit, limit) {
            (Some(_), Ok(limit)) => Some(metered.with_power(limit.with_default(self.largest))),
            (Some(_), Err(bad)) => {
                complaints.push(IntelError::Range(self.key, bad));
                self.energy.is_some().then_some(metered)
            }
            (None, _) => self.energy.is_some().then_some(metered),
        }
    }

    pub(crate) fn sleeps(&self) -> bool {
        hwmon::sleeps(self.runtime_status.as_ref())
    }

    pub(crate) fn measured(&self) -> Result<Measured, IntelError> {
        let file = self.energy.as_ref().ok_or(IntelError::Lacking)?;
        match file.read_whole().map_err(|error| self.failed(error))? {
            0 => Err(self.failed(FileError::bad_data(file.path()))),
            sum => Ok(Measured::Energy(MicroJoules::new(sum % COUNTER.get()))),
        }
    }

    /// Fills in what it reports beside its power. Neither driver shows its utilisation or its memory in files.
    pub(crate) fn state(&self, sample: &mut Sample) {
        if let Some(file) = &self.temperature {
            sample.temperature = hwmon::temperature(file).map_err(|error| error.kind);
        }
        if !self.slow.is_empty() {
            let slowdowns = self.slow.read().map_err(|error| error.kind);
            sample.slowdowns = slowdowns;
            sample.throttled = slowdowns.map(|causes| Throttled::Instant(causes.has(Slowdown::PowerLimit)));
        }
    }

    /// The limit in force; [`OFF`] where it is switched off.
    pub(crate) fn cap(&self) -> Result<MicroWatts, IntelError> {
        let file = self.limit.as_ref().ok_or(IntelError::Lacking)?.file();
        let cap = microwatts(file).map_err(|error| self.failed(error))?;
        Ok(in_force(cap).unwrap_or(OFF))
    }

    pub(crate) fn set_cap(&self, cap: MicroWatts) -> Result<(), IntelError> {
        // The drivers would round it to the nearest step.
        self.write_cap(MicroWatts::new(cap.get() / WATT.get() * WATT.get()))
    }

    fn write_cap(&self, cap: MicroWatts) -> Result<(), IntelError> {
        self.write(cap.get()).map_err(|error| self.refused(error))
    }

    /// The error of a write to a file that this process could open for writing, unless it says that it could not.
    fn refused(&self, error: FileError) -> IntelError {
        let opened = error.deed != FileOperation::Open;
        if opened && error.kind == ErrorKind::PermissionDenied {
            IntelError::Refused(self.key, error)
        } else {
            self.failed(error)
        }
    }

    /// Writes the limit that was in force before the first write; it may be switched off.
    pub(crate) fn put_back(&self, cap: MicroWatts) -> Result<(), IntelError> {
        if cap < OFF { self.write_cap(cap) } else { self.switch_off() }
    }

    /// Switches the limit off, if it is on. Where that is not possible the card is not left at a low limit: it gets
    /// its largest one. 0 is never written to xe: before Linux 6.16 xe then holds the card at 0 W, and shows the
    /// limit as off.
    fn switch_off(&self) -> Result<(), IntelError> {
        if self.cap()? >= OFF {
            return Ok(());
        }
        if self.driver == Driver::I915 {
            match self.write(0) {
                Ok(()) => return Ok(()),
                Err(error) if error.errno == Some(libc::ENODEV) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        if let Some(largest) = self.largest {
            self.write_cap(largest)?;
        }
        Err(IntelError::StaysOn(self.key))
    }

    fn write(&self, value: u64) -> Result<(), FileError> {
        match &self.limit {
            Some(limit) => limit.write_whole(value),
            None => Ok(()),
        }
    }

    pub(crate) fn clock_limit(&self) -> Result<KiloHertz, IntelError> {
        self.clock()?.limit().map_err(|error| self.failed(error))
    }

    pub(crate) fn running(&self) -> Result<KiloHertz, IntelError> {
        // Parts that sleep have no clock, also while the GPU as a whole does not.
        let running = self.clock()?.running().map_err(|error| self.failed(error))?;
        running.ok_or(IntelError::Asleep(self.key))
    }

    pub(crate) fn set_clock(&self, limit: KiloHertz) -> Result<(), IntelError> {
        self.clock()?.set(limit).map_err(|error| self.refused(error))
    }

    pub(crate) fn save_clock(&self) -> Result<Original, IntelError> {
        let saved = self.clock()?.save().map_err(|error| self.failed(error))?;
        saved.ok_or(IntelError::Unfit(self.key))
    }

    pub(crate) fn put_clock_back(&self, original: &Original) -> Result<(), IntelError> {
        let all = PartLimits::in_original(original).ok_or(IntelError::Unfit(self.key))?;
        for limits in all {
            let limits = limits.ok_or(IntelError::Unfit(self.key))?;
            self.clock()?.put_back(limits).map_err(|error| self.refused(error))?;
        }
        Ok(())
    }

    fn clock(&self) -> Result<&ClockFiles, IntelError> {
        self.clock.as_ref().ok_or(IntelError::Lacking)
    }

    const fn failed(&self, error: FileError) -> IntelError {
        IntelError::File(Some(self.key), error)
    }
}

fn status(device: &Path, key: Key, complaints: &mut Vec<IntelError>) -> Option<Attribute> {
    let mut complain = |error| complaints.push(IntelError::File(Some(key), error));
    hwmon::open(&device.join("power/runtime_status"), &mut complain)
}

fn microwatts(file: &Attribute) -> Result<MicroWatts, FileError> {
    let whole = file.read_whole()?;
    possible(MicroWatts::new(whole)).ok_or_else(|| FileError::bad_data(file.path()))
}
