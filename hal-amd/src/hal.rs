//! The port over a backend.

use crate::{AmdError, Backend, watts};
use power_hal::{
    Clock, Control, Domain, Domains, Error, ErrorKind, ErrorType, Failure, Generation, Handle, Key, Measured,
    Original, Originals, PowerHal, Refusal, Released, Sample, Setting,
};
use power_units::MicroWatts;

/// One word: the cap that was in force, in µW.
const LAYOUT: u8 = 0;

/// The devices of a backend.
#[derive(Debug)]
pub struct Amd<B, C, O> {
    backend: B,
    clock: C,
    originals: O,
    generation: Generation,
    domains: Vec<Domain>,
    complaints: Vec<AmdError>,
}

impl<B: Backend, C: Clock, O: Originals> Amd<B, C, O> {
    /// Opens the devices that the backend finds; where there are none, it has no domain, and that is no error.
    ///
    /// # Errors
    /// When the hardware is there and cannot be listed.
    pub fn open(mut backend: B, clock: C, originals: O) -> Result<Self, AmdError> {
        let mut complaints = Vec::new();
        let domains = backend.look(&mut complaints)?;
        Ok(Self { backend, clock, originals, generation: Generation::FIRST, domains, complaints })
    }

    /// What the last enumeration could not make sense of: devices that are left out or described without a limit, and
    /// facts that are missing.
    #[must_use]
    pub fn complaints(&self) -> &[AmdError] {
        &self.complaints
    }

    fn described(&self, domain: Handle) -> Result<(usize, Domain), AmdError> {
        let described = self.domains().get(domain).copied().ok_or(AmdError::Gone)?;
        Ok((domain.index(), described))
    }

    fn limited(&self, domain: Handle, control: Control) -> Result<(usize, Key), AmdError> {
        let (at, described) = self.described(domain)?;
        if control == Control::Power { Ok((at, *described.key())) } else { Err(AmdError::Lacking) }
    }
}

impl<B, C, O> ErrorType for Amd<B, C, O> {
    type Error = AmdError;
}

/// What a sample says of a value that the domain has: "not supported" is for what it does not have.
fn failing(error: &AmdError) -> ErrorKind {
    let kind = error.kind();
    if kind == ErrorKind::NotSupported { ErrorKind::Io } else { kind }
}

impl<B: Backend, C: Clock, O: Originals> PowerHal for Amd<B, C, O> {
    type Originals = O;

    fn domains(&self) -> Domains<'_> {
        Domains::new(self.generation, &self.domains)
    }

    fn enumerate(&mut self) -> Result<(), AmdError> {
        let mut complaints = Vec::new();
        let domains = self.backend.look(&mut complaints)?;
        self.complaints = complaints;
        if domains != self.domains {
            self.generation = self.generation.next();
            self.domains = domains;
        }
        Ok(())
    }

    fn read(&mut self, domain: Handle) -> Result<Sample, AmdError> {
        let (at, described) = self.described(domain)?;
        self.backend.awake(at)?;
        let mut sample = Sample::at(self.clock.now());
        let (mut answered, mut failure) = (false, None);
        if described.meter().is_some() {
            let power = self.backend.power(at);
            sample.meter = power.as_ref().map(|power| Measured::Power(*power)).map_err(failing);
            answered |= power.is_ok();
            failure = power.err();
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

    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, AmdError> {
        let (at, _) = self.limited(domain, control)?;
        let cap = self.backend.cap(at)?;
        Original::new(LAYOUT, &[cap.get()]).ok_or(AmdError::Lacking)
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, AmdError> {
        let (at, _) = self.limited(domain, setting.control())?;
        let Setting::Power(cap) = setting else { return Err(AmdError::Lacking) };
        self.backend.set_cap(at, cap)?;
        self.backend.cap(at).map(Setting::Power)
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), AmdError> {
        let (at, key) = self.limited(domain, control)?;
        let cap = match (original.layout(), original.words()) {
            (LAYOUT, &[cap]) => watts::in_force(MicroWatts::new(cap)),
            _ => None,
        };
        self.backend.set_cap(at, cap.ok_or(AmdError::Unfit(key))?)
    }

    fn originals(&mut self) -> &mut O {
        &mut self.originals
    }

    /// As the port has it, but for what is in force being the strictest of several caps. The original is always
    /// written, as a cap that reads like it may be another one's, below which ours would stay behind; and a cap that
    /// reads lower afterwards is restored, as the rest is not ours.
    fn release(&mut self, domain: Handle) -> Result<Released, Failure<AmdError>> {
        let key = *self.domains().get(domain).ok_or(Refusal::Stale)?.key();
        let Some(original) = self.originals.kept(&key, Control::Power) else {
            return Ok(Released::Untouched);
        };
        self.restore(domain, Control::Power, &original).map_err(Failure::Hal)?;
        let found = self.save(domain, Control::Power).map_err(Failure::Hal)?;
        if found.words() > original.words() {
            return Err(Refusal::NotRestored.into());
        }
        self.originals.forget(&key, Control::Power).map_err(Refusal::NotForgotten)?;
        Ok(Released::Restored)
    }
}
