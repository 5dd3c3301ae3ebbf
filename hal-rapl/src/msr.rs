//! RAPL through model-specific registers, for a machine whose kernel has no powercap driver for its part.
//!
//! It refuses to open while powercap shows package zones, and on parts with limits behind TPMI: the kernel changes the
//! same registers without knowing of us. A write taints the kernel, so a host opens this only when it is configured to.
//!
//! The limits of a package are in one register of 64 bits, so a cap is one write without an intermediate state. Its
//! lock bit is checked before every write. The registers of a package are accessed through its first processor that is
//! online.

mod device;
#[cfg(feature = "msru")]
mod foreign;
mod hand_over;
mod packages;
mod part;
mod register;
mod status;

pub use device::{DeviceKind, MsrDevices};
#[cfg(feature = "msru")]
pub use foreign::Msru;
pub use hand_over::hand_over;
pub(crate) use status::StatusRegisters;

use crate::aim::{self, FLOOR_UW};
use crate::{RaplError, powercap, reading};
use hal_files::{Access, Root};
use packages::Package;
use power_hal::{
    Clock, Control, Counter, Domain, Domains, Error, ErrorKind, ErrorType, Generation, Handle, Limit,
    Original, Originals, PowerHal, Sample, Setting, Span, Throttled, ThrottledMeter,
};
use power_units::{MicroJoules, MicroWatts, Micros};
use register::{PackageInfo, PackageLimit};
use std::fmt;

/// Access to the registers of a processor.
pub trait MsrIo {
    /// Reads a register through a processor.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if this process is not permitted to; [`ErrorKind::Gone`] if the processor is
    /// offline or there is no driver; [`ErrorKind::Io`] if the register does not exist.
    fn read(&mut self, cpu: u16, register: u32) -> Result<u64, MsrFault>;

    /// Writes a register.
    ///
    /// # Errors
    /// As for `read`; also [`ErrorKind::PermissionDenied`] under lockdown or `msr.allow_writes=off`.
    fn write(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), MsrFault>;
}

impl<T: MsrIo + ?Sized> MsrIo for Box<T> {
    fn read(&mut self, cpu: u16, register: u32) -> Result<u64, MsrFault> {
        (**self).read(cpu, register)
    }

    fn write(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), MsrFault> {
        (**self).write(cpu, register, value)
    }
}

impl<T: MsrIo + ?Sized> MsrIo for &mut T {
    fn read(&mut self, cpu: u16, register: u32) -> Result<u64, MsrFault> {
        (**self).read(cpu, register)
    }

    fn write(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), MsrFault> {
        (**self).write(cpu, register, value)
    }
}

/// A failed register access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsrFault {
    /// The processor.
    pub cpu: u16,
    /// The register.
    pub register: u32,
    /// Whether it was a read or a write.
    pub access: Access,
    /// What to branch on.
    pub kind: ErrorKind,
    /// The kernel's error number, if there is one.
    pub errno: Option<i32>,
}

impl fmt::Display for MsrFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deed = if self.access == Access::Read { "reading" } else { "writing" };
        write!(f, "{deed} register {:#x} of processor {}: {}", self.register, self.cpu, self.kind)?;
        match self.errno {
            Some(number) => write!(f, " (errno {number})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for MsrFault {}

/// The whole limit register with its original value.
const LAYOUT: u8 = 2;

/// The packages of a machine, through their registers.
#[derive(Debug)]
pub struct MsrRapl<I, C, O> {
    root: Root,
    io: I,
    clock: C,
    originals: O,
    generation: Generation,
    packages: Vec<Package>,
    domains: Vec<Domain>,
}

impl<I: MsrIo, C: Clock, O: Originals> MsrRapl<I, C, O> {
    /// Opens the packages of the machine below a root. A machine without the registers has none, which is not an error.
    ///
    /// # Errors
    /// [`RaplError::Owned`] if powercap or TPMI owns the limits; otherwise when the processors cannot be listed.
    pub fn open(root: Root, io: I, clock: C, originals: O) -> Result<Self, RaplError> {
        refuse_if_owned(&root)?;
        let mut hal = Self {
            root,
            io,
            clock,
            originals,
            generation: Generation::FIRST,
            packages: Vec::new(),
            domains: Vec::new(),
        };
        hal.enumerate()?;
        Ok(hal)
    }

    fn package(&self, domain: Handle) -> Result<&Package, RaplError> {
        let current = self.domains().get(domain).is_some();
        let package = self.packages.get(domain.index()).filter(|package| current && !package.gone);
        package.ok_or(RaplError::Gone)
    }

    fn access<T>(
        &mut self,
        domain: Handle,
        access: impl FnOnce(&mut I, &Package) -> Result<T, RaplError>,
    ) -> Result<T, RaplError> {
        let package = *self.package(domain)?;
        let answer = access(&mut self.io, &package);
        if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Gone)
            && let Some(package) = self.packages.get_mut(domain.index())
        {
            package.gone = true;
        }
        answer
    }
}

fn refuse_if_owned(root: &Root) -> Result<(), RaplError> {
    if let Some(zone) = powercap::package_zone(root)? {
        return Err(RaplError::Owned(zone));
    }
    match part::tpmi(root)? {
        Some(device) => Err(RaplError::Owned(device)),
        None => part::of(root).unsuitable().map_or(Ok(()), |why| Err(RaplError::NoRegisters(why))),
    }
}

/// The domain of a package, by its registers; `None` if it has no counter. `kept` is its original, if it is in use.
fn describe(
    io: &mut impl MsrIo,
    package: &mut Package,
    kept: Option<PackageLimit>,
) -> Result<Option<Domain>, MsrFault> {
    let Some((units, set)) = register::find(io, package.cpu)? else { return Ok(None) };
    package.units = units;
    package.set = set;
    let whole = Counter::new(MicroJoules::new(units.energy_modulus_uj()));
    let mut domain = Domain::package(package.number, package.die).with_counter(whole);
    let Some(limit) = set.limit else { return Ok(Some(domain)) };
    let register = match io.read(package.cpu, limit) {
        Ok(bits) => PackageLimit::from_bits(bits),
        // A part with a counter but without limits.
        Err(fault) if fault.kind == ErrorKind::Io => return Ok(Some(domain)),
        Err(fault) => return Err(fault),
    };
    let info =
        io.read(package.cpu, register::PKG_POWER_INFO).map_or(PackageInfo::UNKNOWN, PackageInfo::from_bits);
    // A part without this register faults, or a hypervisor answers for it; then nothing is known of it.
    if io.read(package.cpu, register::PKG_PERF_STATUS).is_ok() {
        package.set.status = Some(register::PKG_PERF_STATUS);
        let modulus = Micros::new(units.time_modulus_us()).non_zero();
        domain = domain.with_throttled(ThrottledMeter::Time { modulus });
    }
    // A maximum below a limit in use is not valid, and our own lower limit must not make it credible again.
    let in_use = kept.unwrap_or(register).long().power().max(register.long().power());
    package.max_refuted |= info.thermal() != 0 && in_use > info.thermal();
    let told = |raw: u16| Some(MicroWatts::new(units.power_uw(raw)));
    let max = if package.max_refuted { None } else { told(info.thermal()) };
    let span = Span {
        floor: MicroWatts::new(FLOOR_UW.max(units.step_uw())),
        ceiling: MicroWatts::new(units.power_uw(register::POWER_MAX)),
    };
    let Ok(field) = Limit::new(span, MicroWatts::new(units.step_uw())) else { return Ok(Some(domain)) };
    let limit = field.known(told(info.min()), max).unwrap_or(field);
    Ok(Some(domain.with_power(limit)))
}

impl<I, C, O> ErrorType for MsrRapl<I, C, O> {
    type Error = RaplError;
}

impl<I: MsrIo, C: Clock, O: Originals> PowerHal for MsrRapl<I, C, O> {
    type Originals = O;

    fn domains(&self) -> Domains<'_> {
        Domains::new(self.generation, &self.domains)
    }

    /// A driver that was loaded meanwhile takes over the limits: then there is no domain here any more.
    fn enumerate(&mut self) -> Result<(), RaplError> {
        let mut packages = Vec::new();
        let mut domains = Vec::new();
        if refuse_if_owned(&self.root).is_ok() {
            for mut package in packages::list(&self.root)? {
                let old = self.packages.iter().find(|old| old.is_same(&package) && !old.gone);
                package.max_refuted = old.is_some_and(|old| old.max_refuted);
                let kept = self.originals.kept(&package.key(), Control::Power);
                match describe(&mut self.io, &mut package, kept.as_ref().and_then(register_of)) {
                    Ok(Some(domain)) => {
                        packages.push(package);
                        domains.push(domain);
                    }
                    // A counter does not disappear: the access failed, and the last list stays valid.
                    Ok(None) if old.is_some() => return Err(RaplError::Register(package.silent())),
                    Ok(None) => {}
                    Err(fault) if fault.kind == ErrorKind::Gone => {}
                    Err(fault) => return Err(fault.into()),
                }
            }
        }
        let lost = self.packages.iter().any(|package| package.gone);
        if lost || domains != self.domains {
            self.generation = self.generation.next();
        }
        self.packages = packages;
        self.domains = domains;
        Ok(())
    }

    fn read(&mut self, domain: Handle) -> Result<Sample, RaplError> {
        let limited = self.domains().get(domain).is_some_and(|domain| domain.has(Control::Power));
        let energy = self.access(domain, |io, package| package.energy_uj(io));
        let at = self.clock.now();
        let in_force = |io: &mut I, package: &Package| Ok(package.limit(io)?.in_force_uw(package.units));
        let limit = limited.then(|| self.access(domain, in_force));
        let mut sample = reading::sample(at, Some(energy), limit)?;
        if self.domains().get(domain).is_some_and(|domain| domain.throttled().is_some()) {
            let time = self.access(domain, |io, package| package.throttled_us(io));
            let time = time.map(|us| Throttled::Time(Micros::new(us)));
            sample.throttled = time.map_err(|error| reading::why(error.kind()));
        }
        Ok(sample)
    }

    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, RaplError> {
        if control != Control::Power {
            return Err(RaplError::NotAPowerLimit);
        }
        let key = self.domains().get(domain).map(|domain| *domain.key()).ok_or(RaplError::Gone)?;
        let register = self.access(domain, |io, package| package.limit(io))?;
        Original::new(LAYOUT, &[register.to_bits()]).ok_or(RaplError::UnknownOriginal(key))
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, RaplError> {
        let Setting::Power(cap) = setting else { return Err(RaplError::NotAPowerLimit) };
        let key = self.domains().get(domain).map(|domain| *domain.key()).ok_or(RaplError::Gone)?;
        let kept = self.originals.kept(&key, Control::Power).and_then(|original| register_of(&original));
        let effective_uw = self.access(domain, |io, package| {
            let now = package.limit(io)?;
            let units = package.units;
            let original = kept.unwrap_or(now);
            let short_uw = aim::short_term(cap.get(), units.power_uw(original.short().power()));
            let long = now.long().limited_to(units.power_raw(cap.get())).within_the_longest_window(units);
            let short = now.short().with_power(units.power_raw(short_uw));
            let wanted = now.with_long(long).with_short(short);
            package.set_limit(io, &key, now, wanted)?;
            let after = package.limit(io)?;
            if after.long().power() == 0 && now.long().power() != 0 {
                package.set_limit(io, &key, after, now)?;
                return Err(RaplError::ReadBackZero(key));
            }
            Ok(after.in_force_uw(units))
        })?;
        Ok(Setting::Power(MicroWatts::new(effective_uw)))
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), RaplError> {
        if control != Control::Power {
            return Err(RaplError::NotAPowerLimit);
        }
        let key = self.domains().get(domain).map(|domain| *domain.key()).ok_or(RaplError::Gone)?;
        let register = register_of(original).ok_or(RaplError::UnknownOriginal(key))?;
        self.access(domain, |io, package| {
            let now = package.limit(io)?;
            package.set_limit(io, &key, now, register)
        })
    }

    fn originals(&mut self) -> &mut O {
        &mut self.originals
    }
}

fn register_of(original: &Original) -> Option<PackageLimit> {
    match original.words() {
        &[bits] if original.layout() == LAYOUT => Some(PackageLimit::from_bits(bits)),
        _ => None,
    }
}
