//! The power port over devices that each have one limit of their whole power, and a meter: GPUs and sockets.
//!
//! A HAL brings a [`DeviceBackend`], which knows how to reach the numbers; [`CappedDevices`] does the rest in the same way for all of
//! them.

use power_hal::{
    Clock, Control, Domain, Domains, Error, ErrorKind, ErrorType, Generation, Handle, Key, Measured,
    Original, Originals, PortError, PowerHal, Refusal, Released, Sample, Setting,
};
use power_units::MicroWatts;

/// No device draws or takes as much; a larger number is a broken answer.
const POSSIBLE_MAX: MicroWatts = MicroWatts::new(20_000_000_000);

/// A power that a device may have said.
#[must_use]
pub fn possible(power: MicroWatts) -> Option<MicroWatts> {
    (power <= POSSIBLE_MAX).then_some(power)
}

/// A cap that may be in force: no device runs at nothing.
#[must_use]
pub fn in_force(cap: MicroWatts) -> Option<MicroWatts> {
    possible(cap).filter(|cap| *cap > MicroWatts::ZERO)
}

/// What a device fails with, where [`CappedDevices`] itself has to say it.
pub trait DeviceError: Error {
    /// The device is not there any more, or the handle is of an earlier list.
    fn gone() -> Self;

    /// The device has a power limit and nothing else to set.
    fn lacking() -> Self;

    /// What the journal holds is no cap.
    fn unfit(key: Key) -> Self;
}

/// A way to devices that tell what they draw and take a cap. A device is named by its place in the list of the last look;
/// a place beyond it is [`DeviceError::gone`].
pub trait DeviceBackend {
    /// What a device fails with.
    type Error: DeviceError;

    /// Looks at the hardware anew and lists its domains by their keys in order. What cannot be made sense of is left
    /// out, or described without what is missing, and is a complaint. Absent hardware is an empty list. `kept` tells the
    /// cap that a device had before the first write, where somebody wrote one.
    ///
    /// # Errors
    /// When the hardware cannot be listed; the places of the last look then stay, and those whose device cannot be
    /// reached any more are [`DeviceError::gone`].
    fn look(
        &mut self,
        kept: &dyn Fn(&Key) -> Option<MicroWatts>,
        complaints: &mut Vec<Self::Error>,
    ) -> Result<Vec<Domain>, Self::Error>;

    /// Whether reading the device now would leave it as it is.
    ///
    /// # Errors
    /// When reading would wake it from its sleep.
    fn awake(&self, at: usize) -> Result<(), Self::Error>;

    /// What its meter shows.
    ///
    /// # Errors
    /// When it does not say.
    fn measured(&self, at: usize) -> Result<Measured, Self::Error>;

    /// The cap that is in force, above zero.
    ///
    /// # Errors
    /// When it does not say.
    fn cap(&self, at: usize) -> Result<MicroWatts, Self::Error>;

    /// Writes a cap that lies in the range.
    ///
    /// # Errors
    /// When it is not taken.
    fn set_cap(&self, at: usize, cap: MicroWatts) -> Result<(), Self::Error>;

    /// Writes the cap that [`cap`](Self::cap) told before the first write; it may lie outside the range.
    ///
    /// # Errors
    /// When it is not taken.
    fn put_back(&self, at: usize, cap: MicroWatts) -> Result<(), Self::Error> {
        self.set_cap(at, cap)
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
    complaints: Vec<B::Error>,
}

impl<B: DeviceBackend, C: Clock, O: Originals> CappedDevices<B, C, O> {
    /// Opens the devices that the backend finds; where there are none, it has no domain, and that is no error.
    ///
    /// # Errors
    /// When the hardware is there and cannot be listed.
    pub fn open(mut backend: B, clock: C, originals: O) -> Result<Self, B::Error> {
        let mut complaints = Vec::new();
        let domains = backend.look(&|key| kept(&originals, key), &mut complaints)?;
        Ok(Self { backend, clock, originals, generation: Generation::FIRST, domains, complaints })
    }

    /// What the last enumeration could not make sense of: devices that are left out or described without a limit, and
    /// facts that are missing.
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
        if control == Control::Power { Ok((at, *described.key())) } else { Err(B::Error::lacking()) }
    }
}

/// The cap that the journal holds of a device; what is no cap is none.
fn kept(originals: &impl Originals, key: &Key) -> Option<MicroWatts> {
    originals.kept(key, Control::Power).as_ref().and_then(word)
}

fn word(original: &Original) -> Option<MicroWatts> {
    match (original.layout(), original.words()) {
        (LAYOUT, &[cap]) => in_force(MicroWatts::new(cap)),
        _ => None,
    }
}

impl<B: DeviceBackend, C, O> ErrorType for CappedDevices<B, C, O> {
    type Error = B::Error;
}

/// What a sample says of a value that the domain has: "not supported" is for what it does not have.
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
        let domains = self.backend.look(&|key| kept(originals, key), &mut complaints)?;
        self.complaints = complaints;
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
        // A device of which nothing at all is known is not a sample.
        match failure {
            Some(error) if !answered => Err(error),
            _ => Ok(sample),
        }
    }

    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, B::Error> {
        let (at, _) = self.limited(domain, control)?;
        let cap = self.backend.cap(at)?;
        Original::new(LAYOUT, &[cap.get()]).ok_or_else(B::Error::lacking)
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, B::Error> {
        let (at, _) = self.limited(domain, setting.control())?;
        let Setting::Power(cap) = setting else { return Err(B::Error::lacking()) };
        self.backend.set_cap(at, cap)?;
        self.backend.cap(at).map(Setting::Power)
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), B::Error> {
        let (at, key) = self.limited(domain, control)?;
        self.backend.put_back(at, word(original).ok_or_else(|| B::Error::unfit(key))?)
    }

    fn originals(&mut self) -> &mut O {
        &mut self.originals
    }

    /// As the port has it, but for what is in force being the strictest of several caps. The original is always
    /// written, as a cap that reads like it may be another one's, below which ours would stay behind; and a cap that
    /// reads lower afterwards is restored, as the rest is not ours.
    fn release(&mut self, domain: Handle) -> Result<Released, PortError<B::Error>> {
        let key = *self.domains().get(domain).ok_or(Refusal::Stale)?.key();
        let Some(original) = self.originals.kept(&key, Control::Power) else {
            return Ok(Released::Untouched);
        };
        self.restore(domain, Control::Power, &original).map_err(PortError::Hal)?;
        let found = self.save(domain, Control::Power).map_err(PortError::Hal)?;
        if found.words() > original.words() {
            return Err(Refusal::NotRestored.into());
        }
        self.originals.forget(&key, Control::Power).map_err(Refusal::NotForgotten)?;
        Ok(Released::Restored)
    }
}
