//! The mock with one fault, and the run that must detect it.

#![expect(clippy::wildcard_enum_match_arm, reason = "a fault touches the few verbs that it names")]

mod fault;

use super::layouts::{counter, khz, package, policy, reporting, w};
use crate::contract::{
    ContractBreach, ContractMode, ContractReport, ContractWorld, DomainFault, Instants, RefusableOriginals,
    check,
};
use crate::mock::{Mock, MockDevice, MockError, MockMachine};
use crate::{
    Applied, Control, Domain, Domains, Error, ErrorKind, ErrorType, Generation, Handle, Key, PortError,
};
use crate::{
    Measured, Original, Originals, OriginalsInMemory, PowerHal, Reading, Refusal, Released, Sample, Setting,
    Throttled, ThrottledMeter,
};
use fault::Fault;
use power_units::{Celsius, KiloHertz, MicroJoules, MicroWatts, Micros, Percent, Stamp};
use std::vec::Vec;

type Inner<'g> = Mock<'g, RefusableOriginals<OriginalsInMemory<16>>, 4>;

/// The mock with a fault.
struct Mutant<'g> {
    hal: Inner<'g>,
    fault: Fault,
    /// The list as the fault shows it.
    list: Vec<Domain>,
    generation: Generation,
    reads: u64,
    writes: u64,
    touched: bool,
    restored: bool,
    last_written: Option<Setting>,
    machine: &'g MockMachine<4>,
}

/// Two packages, a policy, and a package that only has meters and reports its state. The long-term limit of the first can rise while
/// its short-term limit is high, so that the order of writing is visible.
fn machine() -> MockMachine<4> {
    MockMachine::new([
        MockDevice::new(package(0)).limited(w(100), w(250)),
        MockDevice::new(package(1)).limited(w(180), w(200)),
        policy(0).limited_to(khz(2_400_000)),
        MockDevice::new(
            reporting(Domain::package(2, None).with_counter(counter()).with_dram(counter()))
                .with_throttled(ThrottledMeter::Time { modulus: None }),
        )
        .held_back(),
    ])
}

impl<'g> Mutant<'g> {
    fn open(
        machine: &'g MockMachine<4>,
        journal: RefusableOriginals<OriginalsInMemory<16>>,
        fault: Fault,
    ) -> Self {
        let hal = Mock::open(machine, journal);
        let mut mutant = Self {
            hal,
            fault,
            list: Vec::new(),
            generation: Generation::FIRST,
            reads: 0,
            writes: 0,
            touched: false,
            restored: false,
            last_written: None,
            machine,
        };
        mutant.show();
        if fault == Fault::ClearsLimitsAtStart {
            for number in [0, 1] {
                machine.cause(DomainFault::Moved(Key::package(number, None), Setting::Power(w(270))));
            }
        }
        mutant
    }

    /// Copies the list as the fault shows it.
    fn show(&mut self) {
        let mut list: Vec<Domain> = self.hal.domains().as_slice().to_vec();
        self.generation = self.hal.domains().generation();
        match self.fault {
            Fault::TwoWithOneKey => list[1] = list[0],
            Fault::KeysByPosition => {
                // Packages are numbered in the order in which they are found.
                for (number, domain) in (0..).zip(list.iter_mut().filter(|d| d.power().is_some())) {
                    *domain = package(number);
                }
            }
            Fault::ListsWhatIsGone if !self.list.is_empty() => list = self.list.clone(),
            _ => {}
        }
        self.list = list;
    }

    /// The mock's handle for a handle of the mutant.
    fn inner(&self, handle: Handle) -> Handle {
        if self.fault != Fault::HandlesNeverAge {
            return handle;
        }
        self.hal.domains().iter().nth(handle.index()).map_or(handle, |(inner, _)| inner)
    }

    fn key(&self, handle: Handle) -> Option<Key> {
        self.domains().get(handle).map(|domain| *domain.key())
    }

    fn error(&self, kind: ErrorKind) -> MockError {
        MockError { domain: None, kind }
    }

    /// Writes without the port's checks, and compares as the port does.
    fn write_bare(&mut self, handle: Handle, wish: Setting) -> Result<Applied, PortError<MockError>> {
        let domain = *self.domains().get(handle).ok_or(Refusal::Stale)?;
        let effective = self.hal.write(handle, wish).map_err(PortError::Hal)?;
        Ok(Applied::new(&domain, wish, effective))
    }

    fn keep_now(&mut self, handle: Handle, control: Control) -> Result<(), PortError<MockError>> {
        let original = self.hal.save(handle, control).map_err(PortError::Hal)?;
        let key = self.key(handle).ok_or(Refusal::Stale)?;
        Ok(self.hal.originals().keep(&key, control, &original).map_err(Refusal::NotKept)?)
    }
}

fn lowered(setting: Setting, by: u64) -> Setting {
    match setting {
        Setting::Power(limit) => Setting::Power(limit - w(by)),
        Setting::Frequency(limit) => Setting::Frequency(limit - khz(by as i32)),
        Setting::Throttle(throttle) => Setting::Throttle(throttle),
    }
}

fn is_zero(setting: Setting) -> bool {
    matches!(setting, Setting::Power(MicroWatts::ZERO))
        || matches!(setting, Setting::Frequency(f) if f <= KiloHertz::ZERO)
}

impl ErrorType for Mutant<'_> {
    type Error = MockError;
}

/// The verbs of the port, on the mutant's lower half.
struct Plain<'a, 'g>(&'a mut Mutant<'g>);

impl ErrorType for Plain<'_, '_> {
    type Error = MockError;
}

impl PowerHal for Plain<'_, '_> {
    type Originals = RefusableOriginals<OriginalsInMemory<16>>;

    fn domains(&self) -> Domains<'_> {
        (*self.0).domains()
    }
    fn enumerate(&mut self) -> Result<(), MockError> {
        (*self.0).enumerate()
    }
    fn read(&mut self, domain: Handle) -> Result<Sample, MockError> {
        (*self.0).read(domain)
    }
    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, MockError> {
        (*self.0).save(domain, control)
    }
    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, MockError> {
        (*self.0).write(domain, setting)
    }
    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), MockError> {
        (*self.0).restore(domain, control, original)
    }
    fn originals(&mut self) -> &mut Self::Originals {
        self.0.hal.originals()
    }
}

impl PowerHal for Mutant<'_> {
    type Originals = RefusableOriginals<OriginalsInMemory<16>>;

    fn domains(&self) -> Domains<'_> {
        let generation =
            if self.fault == Fault::HandlesNeverAge { Generation::FIRST } else { self.generation };
        Domains::new(generation, &self.list)
    }

    fn enumerate(&mut self) -> Result<(), MockError> {
        if self.fault == Fault::ListingFails {
            return Err(self.error(ErrorKind::PermissionDenied));
        }
        let before = self.hal.domains().generation();
        self.hal.enumerate()?;
        if self.fault == Fault::ListsWhatIsGone && before != self.hal.domains().generation() {
            self.generation = self.hal.domains().generation();
            return Ok(());
        }
        let next = self.generation.next();
        self.show();
        if self.fault == Fault::NewListEachTime {
            self.generation = next;
        }
        Ok(())
    }

    fn read(&mut self, domain: Handle) -> Result<Sample, MockError> {
        self.reads += 1;
        let mut sample = self.hal.read(self.inner(domain)).map_err(|error| match self.fault {
            Fault::GoneIsIo if error.kind == ErrorKind::Gone => self.error(ErrorKind::Io),
            _ => error,
        })?;
        let Some(described) = self.domains().get(domain).copied() else { return Ok(sample) };
        match self.fault {
            Fault::CallsWhatItLacksZero if described.power().is_none() => {
                sample.power_limit = Ok(MicroWatts::ZERO);
            }
            Fault::LeavesOutItsMeter => sample.meter = Err(ErrorKind::NotSupported),
            Fault::SaysPowerForEnergy if described.meter().is_some() => {
                sample.meter = Ok(Measured::Power(w(100)));
            }
            Fault::ForgetsTheTime => sample.at = Stamp::new(Micros::ZERO),
            Fault::TimeGoesBack => sample.at = Stamp::new(Micros::new(u64::MAX - self.reads)),
            Fault::CounterJumpsBack if described.meter().is_some() && self.reads.is_multiple_of(3) => {
                // As after a driver reload.
                sample.meter = Ok(Measured::Energy(MicroJoules::new(1)));
            }
            Fault::CounterBeyondItsModulus if described.meter().is_some() => {
                sample.meter = Ok(Measured::Energy(MicroJoules::new(1 << 40)));
            }
            Fault::CallsAnUnknownTemperatureZero if described.dram().is_none() => {
                sample.temperature = Ok(Celsius::from_int(0));
            }
            Fault::LeavesOutItsDram => sample.dram = Err(ErrorKind::NotSupported),
            Fault::DramJumpsBack if described.dram().is_some() && self.reads.is_multiple_of(3) => {
                sample.dram = Ok(MicroJoules::new(1));
            }
            Fault::LeavesOutWhetherItIsThrottled => sample.throttled = Err(ErrorKind::NotSupported),
            Fault::ThrottledTimeRunsBack if described.throttled().is_some() => {
                sample.throttled = Ok(Throttled::Time(Micros::new(1_000_000 - self.reads.min(1_000_000))));
            }
            Fault::CountsInstantsAsTime if described.throttled().is_some() => {
                sample.throttled = Ok(Throttled::Instant(true));
            }
            Fault::SaysAllOnesForATemperature if described.dram().is_some() => {
                sample.temperature = Ok(Celsius::from_int(65_535));
            }
            Fault::IsBusierThanTheWhole if described.dram().is_some() => {
                sample.utilisation = Ok(Percent::from_int(65_535));
            }
            Fault::SaysWhatItWroteLast => {
                if let Some(Setting::Power(limit)) = self.last_written.filter(|_| described.power().is_some())
                {
                    sample.power_limit = Ok(limit);
                }
            }
            _ => {}
        }
        Ok(sample)
    }

    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, MockError> {
        self.hal.save(self.inner(domain), control)
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, MockError> {
        self.writes += 1;
        let handle = self.inner(domain);
        let wish = match self.fault {
            Fault::LowersALittleMoreEachTime => lowered(setting, self.writes % 8),
            _ => setting,
        };
        if let (Fault::RaisesFirst, Setting::Power(_), Some(key)) = (self.fault, wish, self.key(domain)) {
            self.machine.cause(DomainFault::Moved(key, wish));
        }
        let written = self.hal.write(handle, wish);
        self.last_written = written.ok();
        match (self.fault, written) {
            (Fault::AnswersTheWish, Ok(_)) => Ok(setting),
            (Fault::LockedIsSuccess, Err(error)) if error.kind == ErrorKind::Locked => Ok(setting),
            (Fault::LockedIsIo, Err(error)) if error.kind == ErrorKind::Locked => {
                Err(self.error(ErrorKind::Io))
            }
            (Fault::TouchesTheNextDomain, Ok(effective)) => {
                let next =
                    self.hal.domains().iter().find(|(other, has)| *other != domain && has.power().is_some());
                if let Some((next, _)) = next.filter(|_| setting.control() == Control::Power) {
                    let _ = self.hal.write(next, setting);
                }
                Ok(effective)
            }
            (Fault::LockedLosesSight, Err(error)) if error.kind == ErrorKind::Locked => {
                self.machine.cause(DomainFault::Unreadable(self.key(domain).unwrap()));
                Err(error)
            }
            (_, written) => written,
        }
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), MockError> {
        match (self.fault, control, original.words()) {
            (Fault::RestoresTheMaximum, Control::Power, _) => {
                self.hal.write(domain, Setting::Power(w(270))).map(|_| ())
            }
            (Fault::RestoresOneOfTwoLimits, Control::Power, &[long, _]) => {
                self.machine.cause(DomainFault::Moved(
                    self.key(domain).unwrap(),
                    Setting::Power(MicroWatts::new(long)),
                ));
                Ok(())
            }
            (Fault::RestoresRaisingFirst, Control::Power, &[long, short]) => {
                // The short-term limit rises to its old value before the long-term one falls.
                let (top, key) =
                    (Original::new(0, &[270_000_000, short]).unwrap(), self.key(domain).unwrap());
                self.hal.restore(domain, control, &top)?;
                self.machine.cause(DomainFault::Moved(key, Setting::Power(MicroWatts::new(long))));
                Ok(())
            }
            _ => self.hal.restore(self.inner(domain), control, original),
        }
    }

    fn originals(&mut self) -> &mut Self::Originals {
        self.hal.originals()
    }

    fn sample(&mut self, readings: &mut [Reading]) {
        Plain(self).sample(readings);
        let failure = readings.iter().find_map(|reading| reading.outcome.err());
        if let (Fault::FailsTheWholeBatch, Some(kind)) = (self.fault, failure) {
            readings.iter_mut().for_each(|reading| reading.outcome = Err(kind));
        }
    }

    fn apply(&mut self, domain: Handle, wish: Setting) -> Result<Applied, PortError<MockError>> {
        let control = wish.control();
        let described = *self.domains().get(domain).ok_or(Refusal::Stale)?;
        let key = *described.key();
        let admitted = described.admit(wish);
        self.touched = true;
        self.restored = false;
        let fault = self.fault;
        match fault {
            Fault::GrantsWhatItLacks if admitted == Err(Refusal::Lacking) => {
                Ok(Applied::new(&described, wish, wish))
            }
            Fault::LackingIsAnIoError if admitted == Err(Refusal::Lacking) => {
                Err(PortError::Hal(self.error(ErrorKind::Io)))
            }
            Fault::AcceptsZero if is_zero(wish) => {
                self.keep_now(domain, control)?;
                self.write_bare(domain, wish)
            }
            Fault::ZeroIsTheMinimum if is_zero(wish) => match control {
                Control::Power => Plain(self).apply(domain, Setting::Power(w(75))),
                Control::Frequency | Control::Throttle => Plain(self).apply(domain, wish),
            },
            Fault::RefusesGoodWishes if admitted == Ok(wish) => {
                Err(PortError::Hal(self.error(ErrorKind::OutOfRange)))
            }
            Fault::DoesNotClamp if admitted.is_ok() => {
                if self.originals().kept(&key, control).is_none() {
                    self.keep_now(domain, control)?;
                }
                self.write_bare(domain, wish)
            }
            Fault::ClampsToHalf if admitted.is_ok_and(|admitted| admitted != wish) => {
                // Inside the range, but not its end, and a different value for every wish above it.
                let Ok(Setting::Power(end)) = admitted else { return Plain(self).apply(domain, wish) };
                let half = Setting::Power(MicroWatts::new(end.get() / 2 + w(40).get()));
                let effective = Plain(self).apply(domain, half)?.effective();
                Ok(Applied::new(&described, wish, effective))
            }
            Fault::AnswersAnotherWish => {
                let admitted = admitted?;
                Plain(self)
                    .apply(domain, lowered(admitted, 1))
                    .map(|applied| Applied::new(&described, lowered(admitted, 1), applied.effective()))
            }
            Fault::NeverSaves if admitted.is_ok() => self.write_bare(domain, admitted?),
            Fault::SavesTooLate if admitted.is_ok() => {
                let original = self.hal.save(domain, control).map_err(PortError::Hal)?;
                let applied = self.write_bare(domain, admitted?)?;
                self.originals().keep(&key, control, &original).map_err(Refusal::NotKept)?;
                Ok(Applied::new(&described, wish, applied.effective()))
            }
            Fault::SavesTooLateAndTakesItBack if admitted.is_ok() => {
                let original = self.hal.save(domain, control).map_err(PortError::Hal)?;
                let applied = self.write_bare(domain, admitted?)?;
                if let Err(kind) = self.originals().keep(&key, control, &original) {
                    self.hal.restore(domain, control, &original).map_err(PortError::Hal)?;
                    return Err(Refusal::NotKept(kind).into());
                }
                Ok(Applied::new(&described, wish, applied.effective()))
            }
            Fault::SavesTheCap if admitted.is_ok() && self.originals().kept(&key, control).is_none() => {
                self.keep_now(domain, control)?;
                let applied = Plain(self).apply(domain, wish)?;
                let _ = self.originals().forget(&key, control);
                self.keep_now(domain, control)?;
                Ok(applied)
            }
            Fault::SavesAtEveryTouch if admitted.is_ok() => {
                self.originals().forget(&key, control).map_err(Refusal::NotForgotten)?;
                Plain(self).apply(domain, wish)
            }
            Fault::SavesAgainAfterARestart if admitted.is_ok() && self.writes == 0 => {
                let _ = self.originals().forget(&key, control);
                Plain(self).apply(domain, wish)
            }
            _ => Plain(self).apply(domain, wish),
        }
    }

    fn release(&mut self, domain: Handle) -> Result<Released, PortError<MockError>> {
        let key = self.key(domain).ok_or(Refusal::Stale)?;
        let holds = Control::ALL.into_iter().any(|control| self.originals().kept(&key, control).is_some());
        let fault = self.fault;
        match fault {
            Fault::ReleaseWritesTheDefault if !holds => {
                let _ = self.hal.write(domain, Setting::Power(w(270)));
                Ok(Released::Untouched)
            }
            Fault::ForgetsToRestore if holds => {
                for control in Control::ALL {
                    let _ = self.originals().forget(&key, control);
                }
                Ok(Released::Restored)
            }
            Fault::KeepsWhatIsRestored if holds => {
                let original = self.originals().kept(&key, Control::Power);
                let released = Plain(self).release(domain);
                if let Some(original) = original {
                    let _ = self.originals().keep(&key, Control::Power, &original);
                }
                released
            }
            Fault::SecondReleaseFails if self.restored => Err(PortError::Hal(self.error(ErrorKind::Io))),
            Fault::SecondReleaseWrites if self.restored => {
                let _ = self.hal.write(domain, Setting::Power(w(270)));
                Ok(Released::Untouched)
            }
            Fault::OnlyRemembersItsOwnTouch if !self.touched => Ok(Released::Untouched),
            Fault::DropsTheOriginalOfWhatIsGone => {
                let released = Plain(self).release(domain);
                if released.is_err_and(|error| error.kind() == ErrorKind::Gone) {
                    let _ = self.originals().forget(&key, Control::Power);
                }
                released
            }
            _ => {
                let released = Plain(self).release(domain);
                self.restored = released == Ok(Released::Restored);
                released
            }
        }
    }
}

/// The machine behind a mutant. Without `losses` if a lost device would reveal a fault before its own rule is
/// checked.
struct Behind<'g> {
    machine: &'g MockMachine<4>,
    losses: bool,
}

impl<'g> ContractWorld<Mutant<'g>> for Behind<'g> {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        self.machine.in_force(domain, control)
    }

    fn instants(&mut self, domain: &Key) -> Option<Instants> {
        self.machine.instants(domain)
    }

    fn advance(&mut self, span: Micros) -> bool {
        self.machine.advance(span);
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        match trouble {
            DomainFault::Vanished(_) if !self.losses => false,
            _ => self.machine.cause(trouble),
        }
    }

    fn heal(&mut self, trouble: DomainFault) {
        self.machine.heal(trouble);
    }

    fn restart(&mut self, hal: &mut Mutant<'g>) -> bool {
        let journal = hal.hal.originals().clone();
        *hal = Mutant::open(self.machine, journal, hal.fault);
        true
    }
}

fn run(fault: Fault) -> Result<ContractReport, ContractBreach> {
    let machine = machine();
    let mut mutant = Mutant::open(&machine, RefusableOriginals::new(OriginalsInMemory::new()), fault);
    let mut behind = Behind { machine: &machine, losses: fault != Fault::KeysByPosition };
    check(&mut mutant, &mut behind, ContractMode::Full)
}
