//! The power port for devices with one limit of their whole power and a meter, and perhaps a highest clock: GPUs and
//! sockets.
//!
//! A HAL provides a [`DeviceBackend`], which accesses the numbers; [`CappedDevices`] implements the rest in the same
//! way for all of them.

use power_hal::{
    Clock, Control, Domain, Domains, Error, ErrorKind, ErrorType, Generation, Handle, Key, LastMemory,
    Measured, MemoryUse, Original, Originals, PortError, PowerHal, Refusal, Released, Sample, Setting,
    StateReading, put_back,
};
use power_units::{KiloHertz, MicroWatts};

/// No device draws or accepts this much; a larger number is a wrong answer.
const POSSIBLE_MAX: MicroWatts = MicroWatts::new(20_000_000_000);

/// The power, if it is plausible.
#[must_use]
pub fn possible(power: MicroWatts) -> Option<MicroWatts> {
    (power <= POSSIBLE_MAX).then_some(power)
}

/// The cap, if it can be in force: no device runs at 0 W.
#[must_use]
pub fn in_force(cap: MicroWatts) -> Option<MicroWatts> {
    possible(cap).filter(|cap| *cap > MicroWatts::ZERO)
}

/// The errors of a device that [`CappedDevices`] itself creates.
pub trait DeviceError: Error {
    /// The device is not present any more, or the handle is from an earlier list.
    fn gone() -> Self;

    /// The device has no such control.
    fn lacking() -> Self;

    /// The journal's entry is not what a device can have had.
    fn unfit(key: Key) -> Self;
}

/// Access to devices that report their draw and accept a cap. A device is named by its index in the list of the last
/// enumeration; an index beyond it is [`DeviceError::gone`].
pub trait DeviceBackend {
    /// The error of a device.
    type Error: DeviceError;

    /// Enumerates the hardware again and lists its domains in the order of their keys. A device that cannot be
    /// interpreted is left out, or described without the missing part, and is a complaint. Absent hardware gives an
    /// empty list. `kept` returns what a control of a device was before the first write, if one was written.
    ///
    /// # Errors
    /// When the hardware cannot be listed. The indices of the last enumeration then stay valid, and those whose
    /// device is no longer accessible are [`DeviceError::gone`].
    fn look(
        &mut self,
        kept: &dyn Fn(&Key, Control) -> Option<Original>,
        complaints: &mut Vec<Self::Error>,
    ) -> Result<Vec<Domain>, Self::Error>;

    /// Checks that a read does not change the state of the device.
    ///
    /// # Errors
    /// When a read would wake it.
    fn awake(&self, at: usize) -> Result<(), Self::Error>;

    /// The value of its meter.
    ///
    /// # Errors
    /// When it cannot be read.
    fn measured(&self, at: usize) -> Result<Measured, Self::Error>;

    /// Fills in what it reports of its state beside its power, as far as its domain lists it, except memory in use.
    fn state(&self, _at: usize, _sample: &mut Sample) {}

    /// How much of its memory is in use. It is not asked for at every reading ([`LastMemory`]).
    ///
    /// # Errors
    /// When it cannot be read.
    fn memory(&self, _at: usize) -> Result<MemoryUse, ErrorKind> {
        Err(ErrorKind::NotSupported)
    }

    /// The cap in force, above zero.
    ///
    /// # Errors
    /// When it cannot be read.
    fn cap(&self, at: usize) -> Result<MicroWatts, Self::Error>;

    /// Writes a cap that is in the range.
    ///
    /// # Errors
    /// When it is not accepted.
    fn set_cap(&self, at: usize, cap: MicroWatts) -> Result<(), Self::Error>;

    /// Writes the cap that [`cap`](Self::cap) returned before the first write; it may be outside the range.
    ///
    /// # Errors
    /// When it is not accepted.
    fn put_back(&self, at: usize, cap: MicroWatts) -> Result<(), Self::Error> {
        self.set_cap(at, cap)
    }

    /// The highest clock at which a device may run whose clock can be limited, whoever has set it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn clock_limit(&self, _at: usize) -> Result<KiloHertz, Self::Error> {
        Err(Self::Error::lacking())
    }

    /// The clock at which it runs.
    ///
    /// # Errors
    /// When it cannot be read.
    fn clock(&self, _at: usize) -> Result<KiloHertz, Self::Error> {
        Err(Self::Error::lacking())
    }

    /// Limits its clock to one in the range, rounded down to what it takes.
    ///
    /// # Errors
    /// When it is not accepted.
    fn set_clock(&self, _at: usize, _limit: KiloHertz) -> Result<(), Self::Error> {
        Err(Self::Error::lacking())
    }

    /// Everything that must be written to limit its clock as it is limited now.
    ///
    /// # Errors
    /// When it cannot be read.
    fn save_clock(&self, _at: usize) -> Result<Original, Self::Error> {
        Err(Self::Error::lacking())
    }

    /// Whether [`save_clock`](Self::save_clock) shows all that a write may have left behind that was cut short. Where it does
    /// not, a release writes the original also where that is in force.
    fn shows_all_of_clocks(&self) -> bool {
        true
    }

    /// Writes what [`save_clock`](Self::save_clock) returned before the first write.
    ///
    /// # Errors
    /// When it is not accepted, or is nothing that a device can have had.
    fn put_clock_back(&self, _at: usize, _original: &Original) -> Result<(), Self::Error> {
        Err(Self::Error::lacking())
    }
}

/// One word: the cap that was in force, in µW.
const LAYOUT: u8 = 0;

/// The devices of a backend.
#[derive(Debug)]
pub struct CappedDevices<B: DeviceBackend, C, O> {
    backend: B,
    clock: C,
    originals: O,
    generation: Generation,
    domains: Vec<Domain>,
    /// What each device has answered last, by its place.
    memories: Vec<LastMemory>,
    complaints: Vec<B::Error>,
}

impl<B: DeviceBackend, C: Clock, O: Originals> CappedDevices<B, C, O> {
    /// Opens the devices that the backend finds; without devices there is no domain, and that is no error.
    ///
    /// # Errors
    /// When the hardware exists but cannot be listed.
    pub fn open(mut backend: B, clock: C, originals: O) -> Result<Self, B::Error> {
        let mut complaints = Vec::new();
        let domains = backend.look(&|key, control| originals.kept(key, control), &mut complaints)?;
        let (generation, memories) = (Generation::FIRST, untold(&domains));
        Ok(Self { backend, clock, originals, generation, domains, memories, complaints })
    }

    /// The problems of the last enumeration: devices that are left out or described without a limit, and missing
    /// facts.
    #[must_use]
    pub fn complaints(&self) -> &[B::Error] {
        &self.complaints
    }

    fn described(&self, domain: Handle) -> Result<(usize, Domain), B::Error> {
        let described = self.domains().get(domain).copied().ok_or_else(B::Error::gone)?;
        Ok((domain.index(), described))
    }

    fn limited(&self, domain: Handle, control: Control) -> Result<(usize, Key), B::Error> {
        let (at, described) = self.described(domain)?;
        let has_it = match control {
            Control::Power => true,
            Control::Frequency => described.frequency().is_some(),
            Control::Throttle => false,
        };
        if has_it { Ok((at, *described.key())) } else { Err(B::Error::lacking()) }
    }
}

/// The cap in an original of a power limit; `None` if it is not a valid cap.
#[must_use]
pub fn cap_in(original: &Original) -> Option<MicroWatts> {
    match (original.layout(), original.words()) {
        (LAYOUT, &[cap]) => in_force(MicroWatts::new(cap)),
        _ => None,
    }
}

impl<B: DeviceBackend, C, O> ErrorType for CappedDevices<B, C, O> {
    type Error = B::Error;
}

/// Nothing was asked of these devices.
fn untold(domains: &[Domain]) -> Vec<LastMemory> {
    (0..domains.len()).map(LastMemory::of).collect()
}

/// The error kind in a sample for a value that the domain has: "not supported" is reserved for values that it lacks.
fn failing(error: &impl Error) -> ErrorKind {
    let kind = error.kind();
    if kind == ErrorKind::NotSupported { ErrorKind::Io } else { kind }
}

impl<B: DeviceBackend, C: Clock, O: Originals> PowerHal for CappedDevices<B, C, O> {
    type Originals = O;

    fn domains(&self) -> Domains<'_> {
        Domains::new(self.generation, &self.domains)
    }

    fn enumerate(&mut self) -> Result<(), B::Error> {
        let mut complaints = Vec::new();
        let originals = &self.originals;
        let domains = self.backend.look(&|key, control| originals.kept(key, control), &mut complaints)?;
        (self.complaints, self.memories) = (complaints, untold(&domains));
        if domains != self.domains {
            self.generation = self.generation.next();
            self.domains = domains;
        }
        Ok(())
    }

    fn read(&mut self, domain: Handle) -> Result<Sample, B::Error> {
        let (at, described) = self.described(domain)?;
        self.backend.awake(at)?;
        let mut sample = Sample::at(self.clock.now());
        let (mut answered, mut failure) = (false, None);
        if described.meter().is_some() {
            let measured = self.backend.measured(at);
            sample.meter = measured.as_ref().copied().map_err(failing);
            answered |= measured.is_ok();
            failure = measured.err();
        }
        if described.power().is_some() {
            let cap = self.backend.cap(at);
            sample.power_limit = cap.as_ref().copied().map_err(failing);
            answered |= cap.is_ok();
            failure = cap.err().or(failure);
        }
        // If nothing of a device can be read, the whole read fails.
        match failure {
            Some(error) if !answered => Err(error),
            _ => {
                if described.frequency().is_some() {
                    sample.frequency_limit = self.backend.clock_limit(at).map_err(|error| failing(&error));
                    sample.frequency = self.backend.clock(at).map_err(|error| failing(&error));
                }
                self.backend.state(at, &mut sample);
                if described.readings().has(StateReading::Memory)
                    && let Some(last) = self.memories.get_mut(at)
                {
                    sample.memory = last.read(sample.at, || self.backend.memory(at));
                }
                Ok(sample.of_state(&described))
            }
        }
    }

    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, B::Error> {
        let (at, _) = self.limited(domain, control)?;
        if control == Control::Frequency {
            return self.backend.save_clock(at);
        }
        let cap = self.backend.cap(at)?;
        Original::new(LAYOUT, &[cap.get()]).ok_or_else(B::Error::lacking)
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, B::Error> {
        let (at, _) = self.limited(domain, setting.control())?;
        match setting {
            Setting::Power(cap) => {
                self.backend.set_cap(at, cap)?;
                self.backend.cap(at).map(Setting::Power)
            }
            Setting::Frequency(limit) => {
                self.backend.set_clock(at, limit)?;
                self.backend.clock_limit(at).map(Setting::Frequency)
            }
            Setting::Throttle(_) => Err(B::Error::lacking()),
        }
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), B::Error> {
        let (at, key) = self.limited(domain, control)?;
        if control == Control::Frequency {
            return self.backend.put_clock_back(at, original);
        }
        self.backend.put_back(at, cap_in(original).ok_or_else(|| B::Error::unfit(key))?)
    }

    fn originals(&mut self) -> &mut O {
        &mut self.originals
    }

    /// Of a clock as the port does it, except that its original is always written where a device does not show all that was
    /// written to it. Of a cap not, because the one in force is the strictest of several. Its original is always written: if
    /// it is equal to the cap in force, that cap may be another writer's, and ours would remain below it. A cap that reads
    /// lower afterwards counts as restored, since the rest is not ours.
    fn release_control(&mut self, domain: Handle, control: Control) -> Result<Released, PortError<B::Error>> {
        let key = *self.domains().get(domain).ok_or(Refusal::Stale)?.key();
        let Some(original) = self.originals.kept(&key, control) else { return Ok(Released::Untouched) };
        if control != Control::Power {
            if control == Control::Frequency && !self.backend.shows_all_of_clocks() {
                self.restore(domain, control, &original).map_err(PortError::Hal)?;
            }
            return put_back(self, domain, &key, control);
        }
        self.restore(domain, control, &original).map_err(PortError::Hal)?;
        let found = self.save(domain, Control::Power).map_err(PortError::Hal)?;
        if found.words() > original.words() {
            return Err(Refusal::NotRestored.into());
        }
        self.originals.forget(&key, Control::Power).map_err(Refusal::NotForgotten)?;
        Ok(Released::Restored)
    }
}
