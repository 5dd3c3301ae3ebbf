//! The port on the GPUs.

use crate::error::{NvidiaError, NvmlFault, NvmlOperation};
use crate::facts::NvidiaFacts;
use crate::ffi::Session;
use crate::gauge::{Gauge, LimitScope, Source, micro_watts};
use crate::library::{Absent, Library, Unopened};
use crate::lock::{Lock, Locks, kilohertz, rounded};
use crate::processes::{NvidiaUse, UseCursor, UseSample};
use crate::state;
use crate::survey::{ReadBack, Slot, Survey};
use power_hal::{
    Clock, Control, Domain, Domains, Error, ErrorKind, ErrorType, Generation, Handle, Key, LastMemory,
    Original, Originals, PowerHal, Sample, Setting,
};
use power_units::{KiloHertz, MicroWatts, Stamp};
use std::collections::BTreeMap;

/// The NVIDIA GPUs of a machine.
#[derive(Debug)]
pub struct Nvidia<C, O> {
    library: Library,
    scope: LimitScope,
    clock: C,
    originals: O,
    /// `None` while the library or the driver is absent.
    session: Option<Session>,
    absent: Option<Absent>,
    /// An answer indicated a state that may end only with another session.
    suspect: bool,
    generation: Generation,
    domains: Vec<Domain>,
    slots: Vec<Slot>,
    /// The clocks to which each card can be locked, MHz, ascending.
    tables: Vec<Vec<u32>>,
    locks: Locks,
    /// What each card has answered last, by its place.
    memories: Vec<LastMemory>,
    complaints: Vec<NvidiaError>,
    /// How far the samples of each card's processes were read.
    used: BTreeMap<Key, UseCursor>,
}

/// The draw of a GPU, for display; a law uses the meter of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuDraw {
    /// The instantaneous power.
    pub instant: Result<MicroWatts, ErrorKind>,
    /// The mean over the last second; not on GA100 and before Ampere.
    pub average: Result<MicroWatts, ErrorKind>,
    /// The value of `nvidia-smi`: the mean if there is one, else the instantaneous value.
    pub usage: Result<MicroWatts, ErrorKind>,
}

impl<C: Clock, O: Originals> Nvidia<C, O> {
    /// Opens the GPUs of a library. Where the library, the driver or the hardware is absent there is none, and that is
    /// no error: [`Nvidia::absent`] returns the reason.
    ///
    /// # Errors
    /// When there is a driver but it refuses, or its GPUs cannot be listed.
    pub fn open(library: Library, scope: LimitScope, clock: C, originals: O) -> Result<Self, NvidiaError> {
        let mut hal = Self {
            library,
            scope,
            clock,
            originals,
            session: None,
            absent: None,
            suspect: false,
            generation: Generation::FIRST,
            domains: Vec::new(),
            slots: Vec::new(),
            tables: Vec::new(),
            locks: Locks::default(),
            memories: Vec::new(),
            complaints: Vec::new(),
            used: BTreeMap::new(),
        };
        hal.look()?;
        Ok(hal)
    }

    /// Why there is no GPU; `None` if there is one.
    #[must_use]
    pub const fn absent(&self) -> Option<&Absent> {
        self.absent.as_ref()
    }

    /// The problems of the last enumeration: GPUs that are left out, or described without a limit.
    #[must_use]
    pub fn complaints(&self) -> &[NvidiaError] {
        &self.complaints
    }

    /// The facts about the GPUs other than power.
    #[must_use]
    pub fn facts(&self) -> NvidiaFacts {
        self.session
            .as_ref()
            .map_or_else(NvidiaFacts::default, |session| NvidiaFacts::of(session, &self.slots))
    }

    /// Which processes used each GPU since the last call. A GPU of which the driver does not say it is not in it, as at the first
    /// call.
    pub fn processes(&mut self) -> Vec<NvidiaUse> {
        let Some(session) = &self.session else { return Vec::new() };
        let mut uses = Vec::new();
        let mut read = Vec::new();
        for slot in &self.slots {
            let cursor = self.used.entry(slot.key).or_default();
            let mut asked = session.process_samples(slot.card, cursor.after(), &mut read);
            if asked.is_ok() && read.is_empty() && cursor.after() > 0 {
                // Nothing is later: nobody used it, or the driver's clock was set back.
                asked = session.process_samples(slot.card, 0, &mut read);
            }
            if asked.is_err() {
                continue;
            }
            let samples: Vec<UseSample> = read
                .iter()
                .map(|sample| UseSample {
                    at: sample.timeStamp,
                    pid: sample.pid,
                    percents: [sample.smUtil, sample.encUtil, sample.decUtil],
                })
                .collect();
            uses.extend(cursor.take(&samples).map(|processes| NvidiaUse { key: slot.key, processes }));
        }
        uses
    }

    /// The draw of a GPU, or of its module.
    ///
    /// # Errors
    /// When the handle is of an older enumeration, or the session has ended.
    pub fn draw(&mut self, domain: Handle) -> Result<GpuDraw, NvidiaError> {
        let slot = self.slot(domain)?;
        let drawn = self.gauge(&slot, self.scope, NvmlOperation::Meter).map(|gauge| {
            let power = |source| gauge.power(source).map(micro_watts).map_err(|fault| kind(&slot, fault));
            GpuDraw {
                instant: power(Source::Instant),
                average: power(Source::Average),
                usage: power(Source::Usage),
            }
        });
        self.noted(drawn)
    }

    /// Enumerates the GPUs; returns true if the list has changed.
    fn look(&mut self) -> Result<bool, NvidiaError> {
        let anew = self.suspect || self.session.is_none();
        if anew {
            self.reopen()?;
        }
        let survey = match self.survey() {
            Err(error) if error.fault.ends_session() && !anew => {
                self.reopen()?;
                self.survey()
            }
            survey => survey,
        };
        let Survey { domains, slots, tables, complaints } = survey?;
        if self.session.is_some() {
            let nothing = domains.is_empty() && complaints.is_empty();
            self.absent = nothing.then_some(Absent::Gpu);
        }
        // A lost card stays lost in this session, even when it is back.
        self.suspect |= complaints.iter().any(|complaint| complaint.fault.ends_session());
        let changed = domains != self.domains;
        self.memories = (0..domains.len()).map(LastMemory::of).collect();
        (self.domains, self.slots, self.tables, self.complaints) = (domains, slots, tables, complaints);
        Ok(changed)
    }

    fn survey(&self) -> Result<Survey, NvidiaError> {
        match &self.session {
            Some(session) => Survey::of(session, self.scope, (&self.domains, &self.tables)),
            None => Ok(Survey::default()),
        }
    }

    /// Ends the session, and begins another one with the driver that is loaded now. The first must end before: NVML
    /// counts its initialisations, and ignores the second.
    fn reopen(&mut self) -> Result<(), NvidiaError> {
        self.session = None;
        self.locks.doubt();
        match self.library.open() {
            Ok(session) => {
                (self.session, self.absent, self.suspect) = (Some(session), None, false);
                Ok(())
            }
            Err(Unopened::Absent(absent)) => {
                (self.absent, self.suspect) = (Some(absent), false);
                Ok(())
            }
            Err(Unopened::Failed(error)) => Err(error),
        }
    }

    fn slot(&self, domain: Handle) -> Result<Slot, NvidiaError> {
        let listed = Self::domains(self).get(domain).and_then(|_| self.slots.get(domain.index()));
        listed.copied().ok_or(NvidiaError::all(NvmlOperation::Find, NvmlFault::Stale))
    }

    fn gauge(&self, slot: &Slot, scope: LimitScope, deed: NvmlOperation) -> Result<Gauge<'_>, NvidiaError> {
        let session = self.session.as_ref().ok_or(NvmlFault::UNINITIALIZED);
        let gauge = session.and_then(|session| Gauge::new(session, slot.card, scope));
        gauge.map_err(|fault| NvidiaError::at(slot.key, deed, fault))
    }

    /// Passes an answer on. If it ends the session, the next enumeration begins another one.
    fn noted<T>(&mut self, answer: Result<T, NvidiaError>) -> Result<T, NvidiaError> {
        if let Err(error) = &answer {
            self.suspect |= error.fault.ends_session();
        }
        answer
    }

    fn read_slot(
        &self,
        slot: &Slot,
        described: &Domain,
        memory: &mut LastMemory,
        at: Stamp,
    ) -> Result<Sample, NvidiaError> {
        let gauge = self.gauge(slot, self.scope, NvmlOperation::Meter)?;
        let mut sample = Sample::at(at);
        let meter = slot.source.map(|source| gauge.measured(source));
        if let Some(Err(fault)) = meter
            && fault.ends_session()
        {
            return Err(NvidiaError::at(slot.key, NvmlOperation::Meter, fault));
        }
        let limit = slot.read_back.map(|by| in_force(&gauge, by));
        match (meter, limit) {
            (_, Some(Err(fault))) if fault.ends_session() => {
                Err(NvidiaError::at(slot.key, NvmlOperation::Enforced, fault))
            }
            // Nothing of it can be read.
            (Some(Err(fault)), None | Some(Err(_))) => {
                Err(NvidiaError::at(slot.key, NvmlOperation::Meter, fault))
            }
            (None, Some(Err(fault))) => Err(NvidiaError::at(slot.key, NvmlOperation::Enforced, fault)),
            (meter, limit) => {
                if let Some(meter) = meter {
                    sample.meter = meter.map_err(|fault| kind(slot, fault));
                }
                if let Some(limit) = limit {
                    sample.power_limit = limit.map(micro_watts).map_err(|fault| kind(slot, fault));
                }
                if let Some(range) = described.frequency() {
                    sample.frequency = gauge.clock().map_err(|fault| kind(slot, fault));
                    let (clock, most) = (sample.frequency.ok(), range.upper());
                    sample.frequency_limit = Ok(self.lock(&slot.key).allows(clock, most, range.step(), at));
                }
                state::fill(&gauge, described, memory, |fault| kind(slot, fault), &mut sample);
                Ok(sample.of_state(described))
            }
        }
    }

    fn set(
        &self,
        slot: &Slot,
        scope: LimitScope,
        limit_mw: u32,
        deed: NvmlOperation,
    ) -> Result<(), NvidiaError> {
        let mut gauge = self.gauge(slot, scope, deed)?;
        gauge.set(limit_mw).map_err(|fault| NvidiaError::at(slot.key, deed, fault))
    }

    fn write_slot(&self, slot: &Slot, limit: MicroWatts) -> Result<Setting, NvidiaError> {
        let whole_mw = limit.get() / 1_000;
        let limit_mw = u32::try_from(whole_mw).unwrap_or(u32::MAX);
        let deed = NvmlOperation::Set(limit_mw);
        let failed = |deed: NvmlOperation, fault: NvmlFault| NvidiaError::at(slot.key, deed, fault);
        let by = slot.read_back.ok_or(failed(deed, NvmlFault::Lacking))?;
        let kept = self.originals.kept(&slot.key, Control::Power);
        if kept.is_some_and(|original| original.layout() != layout(self.scope)) {
            return Err(failed(deed, NvmlFault::OtherScope));
        }
        self.set(slot, self.scope, limit_mw, deed)?;
        let gauge = self.gauge(slot, self.scope, NvmlOperation::Enforced)?;
        let found = in_force(&gauge, by).map_err(|fault| failed(NvmlOperation::Enforced, fault))?;
        Ok(Setting::Power(micro_watts(found)))
    }

    /// What is known of the lock of a card.
    fn lock(&self, key: &Key) -> Lock {
        self.locks.of(key, self.originals.kept(key, Control::Frequency).is_some())
    }

    /// Locks the clock of a card to the next lower one of its table. What the driver has accepted counts as in force.
    fn lock_clock(&mut self, domain: Handle, slot: &Slot, wish: KiloHertz) -> Result<Setting, NvidiaError> {
        let table = self.tables.get(domain.index()).map(Vec::as_slice).unwrap_or_default();
        let lacking = NvidiaError::at(slot.key, NvmlOperation::Lock(0), NvmlFault::Lacking);
        let (min, mhz) = table.first().copied().zip(rounded(table, wish)).ok_or(lacking)?;
        let deed = NvmlOperation::Lock(mhz);
        let locked = self.gauge(slot, self.scope, deed)?.lock(min, mhz);
        self.note_lock(slot, locked, deed, Lock::At { mhz, since: self.clock.now() })?;
        Ok(Setting::Frequency(kilohertz(mhz)))
    }

    fn unlock_clock(&mut self, slot: &Slot, original: &Original) -> Result<(), NvidiaError> {
        let deed = NvmlOperation::Unlock;
        if !Lock::is_original(original) {
            return Err(NvidiaError::at(slot.key, deed, NvmlFault::Unfit(original.layout())));
        }
        let unlocked = self.gauge(slot, self.scope, deed)?.unlock();
        self.note_lock(slot, unlocked, deed, Lock::Free)
    }

    fn note_lock(
        &mut self,
        slot: &Slot,
        outcome: Result<(), NvmlFault>,
        deed: NvmlOperation,
        lock: Lock,
    ) -> Result<(), NvidiaError> {
        match outcome {
            Ok(()) => self.locks.note(&slot.key, lock),
            Err(fault) if fault.is_refusal() => {}
            Err(_) => self.locks.note(&slot.key, Lock::Unknown),
        }
        outcome.map_err(|fault| NvidiaError::at(slot.key, deed, fault))
    }

    /// Reads the limit that was requested of the card, in the scope of the kept original, since it is compared with
    /// that.
    fn save_slot(&self, slot: &Slot) -> Result<Original, NvidiaError> {
        let failed = |fault: NvmlFault| NvidiaError::at(slot.key, NvmlOperation::Requested, fault);
        let scope = match self.originals.kept(&slot.key, Control::Power) {
            Some(original) => scope_of(&original).ok_or(failed(NvmlFault::Unfit(original.layout())))?,
            None => self.scope,
        };
        let requested = self.gauge(slot, scope, NvmlOperation::Requested)?.requested().map_err(failed)?;
        Original::new(layout(scope), &[requested.into()]).ok_or(failed(NvmlFault::Lacking))
    }

    fn restore_slot(&self, slot: &Slot, original: &Original) -> Result<(), NvidiaError> {
        let limit = match original.words() {
            &[limit] => u32::try_from(limit).ok().filter(|&limit| limit > 0),
            _ => None,
        };
        let unfit = NvidiaError::at(slot.key, NvmlOperation::Restore, NvmlFault::Unfit(original.layout()));
        let (scope, limit_mw) = scope_of(original).zip(limit).ok_or(unfit)?;
        self.set(slot, scope, limit_mw, NvmlOperation::Restore)
    }
}

/// The layout of an original: one word, the limit that was requested of the card or of its module, in milliwatts.
const fn layout(scope: LimitScope) -> u8 {
    match scope {
        LimitScope::Gpu => 0,
        LimitScope::Module => 1,
    }
}

fn scope_of(original: &Original) -> Option<LimitScope> {
    [LimitScope::Gpu, LimitScope::Module].into_iter().find(|&scope| layout(scope) == original.layout())
}

fn in_force(gauge: &Gauge<'_>, by: ReadBack) -> Result<u32, NvmlFault> {
    match by {
        ReadBack::Enforced => gauge.enforced(),
        ReadBack::Requested => gauge.requested(),
    }
}

fn kind(slot: &Slot, fault: NvmlFault) -> ErrorKind {
    NvidiaError::at(slot.key, NvmlOperation::Meter, fault).kind()
}

impl<C, O> ErrorType for Nvidia<C, O> {
    type Error = NvidiaError;
}

impl<C: Clock, O: Originals> PowerHal for Nvidia<C, O> {
    type Originals = O;

    fn domains(&self) -> Domains<'_> {
        Domains::new(self.generation, &self.domains)
    }

    fn enumerate(&mut self) -> Result<(), NvidiaError> {
        if self.look()? {
            self.generation = self.generation.next();
        }
        Ok(())
    }

    fn read(&mut self, domain: Handle) -> Result<Sample, NvidiaError> {
        let slot = self.slot(domain)?;
        let described = Self::domains(self).get(domain).copied();
        let described = described.ok_or(NvidiaError::all(NvmlOperation::Find, NvmlFault::Stale))?;
        let mut memory = self.memories.get(domain.index()).copied().unwrap_or(LastMemory::of(0));
        let sample = self.read_slot(&slot, &described, &mut memory, self.clock.now());
        if let Some(last) = self.memories.get_mut(domain.index()) {
            *last = memory;
        }
        self.noted(sample)
    }

    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, NvidiaError> {
        let slot = self.slot(domain)?;
        let lacking = NvidiaError::at(slot.key, NvmlOperation::Requested, NvmlFault::Lacking);
        match control {
            Control::Power => {
                let saved = self.save_slot(&slot);
                self.noted(saved)
            }
            Control::Frequency => {
                let lock = self.lock(&slot.key);
                // From now on the journal may have an original: what was free before that is known to be free until a call.
                if lock == Lock::Free {
                    self.locks.note(&slot.key, lock);
                }
                lock.saved().ok_or(lacking)
            }
            Control::Throttle => Err(lacking),
        }
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, NvidiaError> {
        let slot = self.slot(domain)?;
        let found = match setting {
            Setting::Power(limit) => self.write_slot(&slot, limit),
            Setting::Frequency(wish) => self.lock_clock(domain, &slot, wish),
            Setting::Throttle(_) => Err(NvidiaError::at(slot.key, NvmlOperation::Set(0), NvmlFault::Lacking)),
        };
        self.noted(found)
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), NvidiaError> {
        let slot = self.slot(domain)?;
        let restored = match control {
            Control::Power => self.restore_slot(&slot, original),
            Control::Frequency => self.unlock_clock(&slot, original),
            Control::Throttle => Err(NvidiaError::at(slot.key, NvmlOperation::Restore, NvmlFault::Lacking)),
        };
        self.noted(restored)
    }

    fn originals(&mut self) -> &mut O {
        &mut self.originals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_hal::OriginalsInMemory;

    /// A host runs each backend on its own thread.
    #[test]
    fn it_can_be_given_to_another_thread() {
        const fn goes<T: Send>() {}
        const { goes::<Nvidia<fn() -> Stamp, OriginalsInMemory<1>>>() };
    }
}
