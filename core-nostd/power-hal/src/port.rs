//! The port itself.

use crate::{
    Applied, Control, Domain, Domains, Error, ErrorKind, ErrorType, Handle, Key, Original, Originals,
    PortError, Reading, Refusal, Released, Sample, Setting,
};

/// Power hardware: four verbs over domains.
///
/// A HAL implements the lower half of this trait, each method one access to the hardware, and gets the verbs. A
/// control that a domain does not have never reaches the HAL, so no HAL needs stubs. A HAL may implement a verb itself
/// if its device has a faster way (all domains in one call), and must then keep to the whole contract.
///
/// A complete HAL, of one socket whose firmware takes milliwatts and clips them itself:
///
/// ```
/// use power_hal::{Control, Domain, Domains, ErrorKind, ErrorType, Generation, Handle, Limit, Original};
/// use power_hal::{ApplyOutcome, OriginalsInMemory, PowerHal, Sample, Setting, Span};
/// use power_units::{MicroWatts, Micros, Stamp};
///
/// struct Socket { domain: [Domain; 1], firmware_mw: u64, journal: OriginalsInMemory<1> }
///
/// impl ErrorType for Socket { type Error = ErrorKind; }
///
/// impl PowerHal for Socket {
///     type Originals = OriginalsInMemory<1>;
///     fn domains(&self) -> Domains<'_> { Domains::new(Generation::FIRST, &self.domain) }
///     fn enumerate(&mut self) -> Result<(), ErrorKind> { Ok(()) }
///     fn read(&mut self, _: Handle) -> Result<Sample, ErrorKind> {
///         let at = Stamp::new(Micros::ZERO); // from the clock that the HAL was opened with
///         Ok(Sample { power_limit: Ok(MicroWatts::new(self.firmware_mw * 1_000)), ..Sample::at(at) })
///     }
///     fn save(&mut self, _: Handle, _: Control) -> Result<Original, ErrorKind> {
///         Original::new(0, &[self.firmware_mw]).ok_or(ErrorKind::BadData)
///     }
///     fn write(&mut self, at: Handle, setting: Setting) -> Result<Setting, ErrorKind> {
///         let Setting::Power(limit) = setting else { return Err(ErrorKind::NotSupported) };
///         self.firmware_mw = (limit.get() / 1_000).min(225_000);
///         self.read(at)?.power_limit.map(Setting::Power)
///     }
///     fn restore(&mut self, _: Handle, _: Control, original: &Original) -> Result<(), ErrorKind> {
///         self.firmware_mw = *original.words().first().ok_or(ErrorKind::BadData)?;
///         Ok(())
///     }
///     fn originals(&mut self) -> &mut OriginalsInMemory<1> { &mut self.journal }
/// }
///
/// let w = |watts: u64| MicroWatts::new(watts * 1_000_000);
/// let limit = Limit::new(Span { floor: w(1), ceiling: w(4_294) }, MicroWatts::new(1_000))?;
/// let domain = [Domain::socket(0).with_power(limit.known(None, Some(w(240)))?)];
/// let mut hal = Socket { domain, firmware_mw: 240_000, journal: OriginalsInMemory::new() };
/// let socket = hal.describe()?.iter().next().unwrap().0;
/// let (requested, effective) = (Setting::Power(w(300)), Setting::Power(w(225)));
/// assert_eq!(hal.apply(socket, requested)?.outcome(), ApplyOutcome::Clamped { requested, effective });
/// assert!(hal.apply(socket, Setting::Power(w(0))).is_err());
/// hal.release(socket)?;
/// assert_eq!(hal.firmware_mw, 240_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Contract
///
/// [`contract::check`](crate::contract::check) executes the checkable part of it.
///
/// 1. **Clamp before writing, write, read back, report what is in force.** The kernel does not clamp: 4096 W becomes
///    0. `apply` returns the read-back, never the wish. A limit of zero or below is refused. A wish outside the range
///    is clamped to its end and reported as clamped. If a domain has several limits (long-term, short-term), they are
///    written in such an order that no instant is above both the old and the new ones
///    ([`lower_first`](crate::lower_first)). No other domain changes.
/// 2. **Save the original on first touch**, before the first write; when it cannot be saved, nothing is written.
///    `release` restores exactly the original. Never write `enabled=0` (it switches off the vendor's short-term
///    limit), and never assume `cpuinfo_max`: an administrator may have set less.
/// 3. **Resolve every path from a configurable root; keep descriptors open**; read into a buffer on the stack;
///    enumerate again when the kernel reports that a device is not there (ENODEV, ENOENT). No allocation and no
///    subprocess in `sample` and `apply`.
/// 4. **One domain for one piece of hardware.** Package zones are identified by their `name`, constraints by
///    `constraint_N_name`. A zone that is reached by two paths is one zone. psys, mmio twins and sub-zones are never
///    summed with packages. A counter's wrap is handled, and a sample with an unknown number of wraps is dropped
///    ([`Counter::between`](crate::Counter::between)).
/// 5. **Somebody else may change the limit.** `sample` returns the limit that is in force, not the one that was
///    written. The host counts the difference, restores the limit with backoff, reports it, and stops after a number
///    of attempts.
/// 6. **A missing library or device is absent, not an error.** The HAL then describes no domain, so that everything
///    builds, runs and is tested without a GPU.
///
/// 7. **What a device reports beside its power is read in the same batch.** Its domain lists it; what it lacks is not
///    supported, what cannot be read is an error, and neither is ever a zero. Memory in use alone may be of an earlier batch,
///    as [`LastMemory`](crate::LastMemory) has it. The energy of a package's memory is in no
///    other meter. [`Throttled`](crate::Throttled) is advanced by the power limit alone, never by heat.
///
/// 8. **What a device takes and does not tell is said to be so** ([`Domain::with_untold_frequency`]). Its read-back is what
///    this HAL has written and the driver has accepted, and its sample shows that, until something contradicts it. Nobody
///    else can see it, and its original is always that nothing is set.
///
/// In addition: the failure of one domain never fails a batch; a handle of an older enumeration is [`ErrorKind::Gone`]
/// and changes nothing; every call may be repeated.
pub trait PowerHal: ErrorType {
    /// Where originals are saved.
    type Originals: Originals;

    /// The domains of the last enumeration, without an access to the hardware. Their order and content do not change
    /// as long as the generation does not.
    fn domains(&self) -> Domains<'_>;

    /// The frequencies, kHz, ascending, at which a limit of this domain has an effect, if its driver has a table of them or
    /// rounds to steps that a read-back does not show; else empty: then every multiple of its step has one. Without an
    /// access to the hardware, as `domains`.
    fn frequency_table(&self, _domain: Handle) -> &[u32] {
        &[]
    }

    /// Enumerates the hardware again. If the list differs from the last one in anything, it gets a new generation.
    ///
    /// # Errors
    /// When the hardware cannot be listed; the last list then stays valid. Absent hardware gives an empty list.
    fn enumerate(&mut self) -> Result<(), Self::Error>;

    /// Reads one domain, with the time of the reading.
    ///
    /// # Errors
    /// When nothing of it can be read. A single value that cannot be read is an error inside the sample.
    fn read(&mut self, domain: Handle) -> Result<Sample, Self::Error>;

    /// Everything that must be written to set this control as it is now, and nothing that changes by itself: the port
    /// compares two of these to determine whether a control has changed.
    ///
    /// # Errors
    /// When it cannot be read.
    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, Self::Error>;

    /// Writes a setting that the domain has and that is in its range, and reads back what is in force.
    ///
    /// # Errors
    /// When it could not be written or not be read back.
    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, Self::Error>;

    /// Writes what `save` returned, in the same order as `write`.
    ///
    /// # Errors
    /// When it could not be written, or has a layout that this HAL does not know.
    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), Self::Error>;

    /// The hook that saves originals.
    fn originals(&mut self) -> &mut Self::Originals;

    /// Enumerates the hardware, and lists the domains and their controls. Handles of an earlier list stay valid if
    /// nothing has changed, and are [`ErrorKind::Gone`] otherwise. Not for the hot path.
    ///
    /// # Errors
    /// When the hardware cannot be listed. Absent hardware is an empty list.
    fn describe(&mut self) -> Result<Domains<'_>, Self::Error> {
        self.enumerate()?;
        Ok(Self::domains(self))
    }

    /// Reads each of the domains. It cannot fail: every reading has its own outcome, and no old value remains in one,
    /// except for memory in use ([`LastMemory`](crate::LastMemory)).
    fn sample(&mut self, readings: &mut [Reading]) {
        for reading in readings {
            reading.outcome = if Self::domains(self).get(reading.domain).is_some() {
                self.read(reading.domain).map_err(|error| error.kind())
            } else {
                Err(ErrorKind::Gone)
            };
        }
    }

    /// Brings a setting into force, clamped to the domain's range, and returns what was read back. The original is
    /// saved before the first write.
    ///
    /// # Errors
    /// When the port refuses (the hardware is then unchanged), or the hardware does.
    fn apply(&mut self, domain: Handle, setting: Setting) -> Result<Applied, PortError<Self::Error>> {
        let described = *Self::domains(self).get(domain).ok_or(Refusal::Stale)?;
        let admitted = described.admit(setting)?;
        let touch = first_touch(self, domain, &described, setting.control())?;
        match self.write(domain, admitted) {
            Ok(effective) if effective.control() == setting.control() => {
                Ok(Applied::new(&described, setting, effective))
            }
            Ok(_) => Err(Refusal::Mismatched.into()),
            Err(error) => {
                take_back(self, domain, described.key(), touch);
                Err(PortError::Hal(error))
            }
        }
    }

    /// Restores what was in force before the first `apply`, in this process or an earlier one. It may be called twice,
    /// or for a domain that was never changed.
    ///
    /// # Errors
    /// When an original could not be restored; it is still saved, so that the call can be repeated. All other controls
    /// have been restored.
    fn release(&mut self, domain: Handle) -> Result<Released, PortError<Self::Error>> {
        Self::domains(self).get(domain).ok_or(Refusal::Stale)?;
        let mut released = Released::Untouched;
        let mut failure = None;
        for control in Control::ALL {
            match self.release_control(domain, control) {
                Ok(Released::Untouched) => {}
                Ok(Released::Restored) => released = Released::Restored,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(released), Err)
    }

    /// Restores one control as [`release`](Self::release) restores all of them: a device may have two that are set and
    /// released apart from each other. A HAL whose read-back is not only its own writes may implement this itself.
    ///
    /// # Errors
    /// As for `release`.
    fn release_control(
        &mut self,
        domain: Handle,
        control: Control,
    ) -> Result<Released, PortError<Self::Error>> {
        let key = *Self::domains(self).get(domain).ok_or(Refusal::Stale)?.key();
        put_back(self, domain, &key, control)
    }
}

/// What the first touch of a control saved; `None` if the control was changed before.
struct Touch {
    control: Control,
    saved: Option<Original>,
}

fn first_touch<H: PowerHal + ?Sized>(
    hal: &mut H,
    domain: Handle,
    described: &Domain,
    control: Control,
) -> Result<Touch, PortError<H::Error>> {
    if hal.originals().kept(described.key(), control).is_some() {
        return Ok(Touch { control, saved: None });
    }
    let original = hal.save(domain, control).map_err(PortError::Hal)?;
    hal.originals().keep(described.key(), control, &original).map_err(Refusal::NotKept)?;
    Ok(Touch { control, saved: Some(original) })
}

/// After a first write that failed: an unchanged control counts as untouched. In any other state, such as a partly
/// written or an unreadable limit, its original is kept.
fn take_back<H: PowerHal + ?Sized>(hal: &mut H, domain: Handle, key: &Key, touch: Touch) {
    let Some(original) = touch.saved else { return };
    let unchanged = hal.save(domain, touch.control).is_ok_and(|now| now == original);
    if unchanged {
        // A journal that cannot remove the entry keeps an original that is in force; the next release detects that.
        let _still_held = hal.originals().forget(key, touch.control);
    }
}

/// What [`PowerHal::release_control`] does where a HAL does not implement it: if the control is not as its original says, it
/// is restored and read again, and then the original is forgotten. For a HAL that does something else for one of its controls.
///
/// # Errors
/// As for `release_control`.
pub fn put_back<H: PowerHal + ?Sized>(
    hal: &mut H,
    domain: Handle,
    key: &Key,
    control: Control,
) -> Result<Released, PortError<H::Error>> {
    let Some(original) = hal.originals().kept(key, control) else { return Ok(Released::Untouched) };
    if hal.save(domain, control).map_err(PortError::Hal)? != original {
        hal.restore(domain, control, &original).map_err(PortError::Hal)?;
        if hal.save(domain, control).map_err(PortError::Hal)? != original {
            return Err(Refusal::NotRestored.into());
        }
    }
    hal.originals().forget(key, control).map_err(Refusal::NotForgotten)?;
    Ok(Released::Restored)
}

impl<T: PowerHal + ?Sized> PowerHal for &mut T {
    type Originals = T::Originals;

    fn domains(&self) -> Domains<'_> {
        (**self).domains()
    }

    fn frequency_table(&self, domain: Handle) -> &[u32] {
        (**self).frequency_table(domain)
    }

    fn enumerate(&mut self) -> Result<(), Self::Error> {
        (**self).enumerate()
    }

    fn read(&mut self, domain: Handle) -> Result<Sample, Self::Error> {
        (**self).read(domain)
    }

    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, Self::Error> {
        (**self).save(domain, control)
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, Self::Error> {
        (**self).write(domain, setting)
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), Self::Error> {
        (**self).restore(domain, control, original)
    }

    fn originals(&mut self) -> &mut Self::Originals {
        (**self).originals()
    }

    fn describe(&mut self) -> Result<Domains<'_>, Self::Error> {
        (**self).describe()
    }

    fn sample(&mut self, readings: &mut [Reading]) {
        (**self).sample(readings);
    }

    fn apply(&mut self, domain: Handle, setting: Setting) -> Result<Applied, PortError<Self::Error>> {
        (**self).apply(domain, setting)
    }

    fn release(&mut self, domain: Handle) -> Result<Released, PortError<Self::Error>> {
        (**self).release(domain)
    }

    fn release_control(
        &mut self,
        domain: Handle,
        control: Control,
    ) -> Result<Released, PortError<Self::Error>> {
        (**self).release_control(domain, control)
    }
}

#[cfg(test)]
mod tests;
