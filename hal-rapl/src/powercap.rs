//! RAPL through the kernel's powercap files.
//!
//! Packages are identified by their zones' `name`, limits by their constraints' names, and a zone that is reached by
//! two paths counts once. The files stay open between enumerations. When one of them reports that its device is gone,
//! its package is gone until the next `describe`, which opens it again if it is back.
//!
//! For a cap the long-term limit is set to the cap, with a window of at most half a second. The short-term limit is
//! set to a fifth above it, but never above its original. `enabled` is set to 1 if it reads 0, as the last write. It
//! is set to 0 only by a release, as the first write, in a zone that was off before the first cap. On a machine with
//! a twin both zones get the cap, since the lower limit holds: a cap that one of them refuses is in force if the
//! other accepted it. A release needs each zone that was written.
//!
//! The counter of a package's memory is in the sub-zone `dram`. It is read with the package and never added to it: the
//! package's own counter does not contain it. powercap shows no time for which a limit held a package back; where registers may
//! be read, their time is shown with the package ([`Powercap::with_registers`]).
//!
//! `enabled` switches both limits and reads as the long-term one. So a short-term limit of 0 W that was off by itself
//! cannot be switched off again alone after somebody has switched off its zone: it is set to the largest value, which
//! limits nothing. And a short-term limit that is on by itself, in a zone that reads as off, cannot be distinguished
//! from one that is off.

mod find;
mod package;
mod saved;
mod zone;

use crate::msr::{MsrIo, StatusRegisters};
use crate::{RaplError, reading};
use hal_files::Root;
use package::Package;
use power_hal::{
    Clock, Control, Domain, Domains, Error, ErrorKind, ErrorType, Generation, Handle, Key, Original,
    Originals, PowerHal, Sample, Setting,
};
use power_units::{MicroJoules, MicroWatts};
use std::path::Path;
use std::sync::Arc;

/// The packages of a machine, through its powercap files.
#[derive(Debug)]
pub struct Powercap<C, O> {
    root: Root,
    clock: C,
    originals: O,
    generation: Generation,
    packages: Vec<Package>,
    domains: Vec<Domain>,
    problems: Vec<RaplError>,
    registers: Option<StatusRegisters>,
}

impl<C: Clock, O: Originals> Powercap<C, O> {
    /// Opens the packages below a root. A machine without powercap has none, which is not an error.
    ///
    /// # Errors
    /// When powercap exists but cannot be listed.
    pub fn open(root: Root, clock: C, originals: O) -> Result<Self, RaplError> {
        let mut hal = Self {
            root,
            clock,
            originals,
            generation: Generation::FIRST,
            packages: Vec::new(),
            domains: Vec::new(),
            problems: Vec::new(),
            registers: None,
        };
        hal.enumerate()?;
        Ok(hal)
    }

    /// With registers that may be read, and are never written: they count for how long a limit has held a package back.
    ///
    /// # Errors
    /// As for [`Powercap::open`].
    pub fn with_registers(mut self, io: Box<dyn MsrIo + Send>) -> Result<Self, RaplError> {
        self.registers = Some(StatusRegisters::over(io));
        self.enumerate()?;
        Ok(self)
    }

    /// The problems of the last enumeration, for people.
    #[must_use]
    pub fn problems(&self) -> &[RaplError] {
        &self.problems
    }

    /// The packages whose firmware refused a window of half a second: their caps hold over the earlier window.
    pub fn long_windows(&self) -> impl Iterator<Item = &Key> {
        self.packages.iter().filter(|package| package.window_refused).map(|package| package.domain.key())
    }

    fn package(&mut self, domain: Handle) -> Result<&mut Package, RaplError> {
        let current = self.domains().get(domain).is_some();
        let package = self.packages.get_mut(domain.index()).filter(|package| current && !package.gone);
        package.ok_or(RaplError::Gone)
    }

    /// Runs an access, and records if it found that the package is gone.
    fn access<T>(
        &mut self,
        domain: Handle,
        access: impl FnOnce(&mut Package) -> Result<T, RaplError>,
    ) -> Result<T, RaplError> {
        let package = self.package(domain)?;
        let answer = access(package);
        if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Gone) {
            package.gone = true;
        }
        answer
    }
}

/// The folder of any package zone, of any driver.
pub(crate) fn package_zone(root: &Root) -> Result<Option<Arc<Path>>, RaplError> {
    find::any(root)
}

/// The limits of a package as its register contains them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) long_uw: u64,
    pub(crate) window_us: u64,
    pub(crate) short_uw: u64,
    pub(crate) enabled: bool,
}

/// The original of a package with these limits; `None` if they cannot have been in force.
pub(crate) fn original(said: Said) -> Option<Original> {
    let Said { long_uw, window_us, short_uw, enabled } = said;
    let state = zone::State { long_uw, window_us: Some(window_us), short_uw: Some(short_uw), enabled };
    let saved = saved::Saved::of(zone::ControlType::Package, &state);
    if saved.is_possible() { saved::pack(&[Some(saved), None]) } else { None }
}

impl<C, O> ErrorType for Powercap<C, O> {
    type Error = RaplError;
}

impl<C: Clock, O: Originals> PowerHal for Powercap<C, O> {
    type Originals = O;

    fn domains(&self) -> Domains<'_> {
        Domains::new(self.generation, &self.domains)
    }

    fn enumerate(&mut self) -> Result<(), RaplError> {
        let mut found = find::packages(&self.root, &self.packages, &self.originals)?;
        if let Some(registers) = &mut self.registers {
            registers.look(&self.root);
            for package in &mut found.packages {
                if let Some(meter) = registers.meter(package.domain.key()) {
                    package.domain = package.domain.with_throttled(meter);
                }
            }
        }
        let same = self.packages.len() == found.packages.len()
            && self.packages.iter().zip(&found.packages).all(|(old, new)| old.is_still(new));
        if !same {
            self.generation = self.generation.next();
        }
        self.domains = found.packages.iter().map(|package| package.domain).collect();
        self.packages = found.packages;
        self.problems = found.problems;
        Ok(())
    }

    fn read(&mut self, domain: Handle) -> Result<Sample, RaplError> {
        let energy = self.package(domain)?.energy();
        // Power is the difference of two counts over the time between them, so the time is that of the counter.
        let at = self.clock.now();
        let dram = self.package(domain)?.dram();
        let mut sample = self.access(domain, |package| reading::sample(at, energy, package.limit()))?;
        if let Some(read) = dram {
            sample.dram = read.map(MicroJoules::new).map_err(|error| reading::why(error.kind));
        }
        let described = self.package(domain)?.domain;
        if let Some(registers) = self.registers.as_mut().filter(|_| described.throttled().is_some()) {
            sample.throttled = registers.read(described.key());
        }
        Ok(sample)
    }

    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, RaplError> {
        match control {
            Control::Power => {
                let key = *self.package(domain)?.domain.key();
                let kept = self.originals.kept(&key, Control::Power);
                self.access(domain, |package| package.save(kept.as_ref()))
            }
            Control::Frequency | Control::Throttle => Err(RaplError::NotAPowerLimit),
        }
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, RaplError> {
        let Setting::Power(cap) = setting else { return Err(RaplError::NotAPowerLimit) };
        let key = *self.package(domain)?.domain.key();
        let original = self.originals.kept(&key, Control::Power);
        let effective_uw = self.access(domain, |package| package.write(cap.get(), original.as_ref()))?;
        Ok(Setting::Power(MicroWatts::new(effective_uw)))
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), RaplError> {
        match control {
            Control::Power => self.access(domain, |package| package.restore(original)),
            Control::Frequency | Control::Throttle => Err(RaplError::NotAPowerLimit),
        }
    }

    fn originals(&mut self) -> &mut O {
        &mut self.originals
    }
}
