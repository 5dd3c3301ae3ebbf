//! The port on frequency policies.

use crate::policy::{khz, possible};
use crate::slot::Slot;
use crate::survey::Survey;
use crate::topology::Topology;
use crate::{CpufreqError, CpufreqFault, CpufreqPolicy, LimitStatus};
use hal_files::{Access, Attribute, FileError, Root};
use power_hal::{
    Clock, Control, Domain, Domains, ErrorKind, ErrorType, Generation, Handle, Original, Originals,
    PortError, PowerHal, Refusal, Released, Sample, Setting,
};
use power_units::{KiloHertz, Role};

/// The limit that was in force and the driver's highest frequency, in kHz. A limit equal to the highest frequency was
/// no limit: under another driver it becomes that driver's highest frequency.
const LAYOUT: u8 = 1;
/// The layout of earlier versions: the limit alone.
const LIMIT_ALONE: u8 = 0;

/// The limit of an original for a policy with this range. The kernel would misread a number above 32 bits, so a corrupt
/// journal entry must be refused.
fn limit_of(original: &Original, range: Option<(u32, u32)>) -> Option<u32> {
    match (original.layout(), original.words()) {
        (LIMIT_ALONE, &[limit]) => possible(limit),
        (LAYOUT, &[limit, highest]) => {
            let (limit, highest) = (possible(limit)?, possible(highest)?);
            Some(range.map(|(_, now)| now).filter(|_| limit >= highest).unwrap_or(limit))
        }
        _ => None,
    }
}

/// The limit in an original, as it was in force when the original was saved. `None` if it cannot be read.
#[must_use]
pub fn limit_in(original: &Original) -> Option<KiloHertz> {
    limit_of(original, None).map(khz)
}

/// The frequency policies of a machine.
#[derive(Debug)]
pub struct Cpufreq<C, O> {
    root: Root,
    clock: C,
    originals: O,
    generation: Generation,
    topology: Topology,
    domains: Vec<Domain>,
    slots: Vec<Slot>,
    complaints: Vec<CpufreqError>,
}

impl<C: Clock, O: Originals> Cpufreq<C, O> {
    /// Opens the policies below a root. Without cpufreq in the kernel there are none, and that is no error.
    ///
    /// # Errors
    /// When the folder of the policies exists but cannot be listed.
    pub fn open(root: Root, clock: C, originals: O) -> Result<Self, CpufreqError> {
        let mut hal = Self {
            root,
            clock,
            originals,
            generation: Generation::FIRST,
            topology: Topology::default(),
            domains: Vec::new(),
            slots: Vec::new(),
            complaints: Vec::new(),
        };
        hal.look()?;
        Ok(hal)
    }

    /// The facts about a policy that are not part of the port's description.
    #[must_use]
    pub fn policy(&self, domain: Handle) -> Option<&CpufreqPolicy> {
        self.domains().get(domain).and_then(|_| self.slots.get(domain.index())).map(|slot| &slot.policy)
    }

    /// The status of the last limit that was written to a policy, by its last reading. `None` for a handle of an older
    /// enumeration.
    #[must_use]
    pub fn standing(&self, domain: Handle) -> Option<LimitStatus> {
        self.domains().get(domain).and_then(|_| self.slots.get(domain.index())).map(Slot::standing)
    }

    /// The problems of the last enumeration: policies that are left out, or described without a limit, and missing
    /// facts.
    #[must_use]
    pub fn complaints(&self) -> &[CpufreqError] {
        &self.complaints
    }

    /// Whether the machine may run above its base frequency, by the driver's switch (`intel_pstate/no_turbo`,
    /// `cpufreq/boost`); `None` without a switch. With turbo off, limits above the base read as the base.
    ///
    /// # Errors
    /// When there is a switch but it cannot be read.
    pub fn turbo(&self) -> Result<Option<bool>, FileError> {
        for (file, off) in [("intel_pstate/no_turbo", 1), ("cpufreq/boost", 0)] {
            let path = self.root.join(&format!("sys/devices/system/cpu/{file}"));
            match Attribute::device(path, Access::Read).and_then(|switch| switch.read_whole()) {
                Ok(value) => return Ok(Some(value != off)),
                Err(error) if error.kind == ErrorKind::Gone => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Enumerates the policies; returns true if the list has changed.
    fn look(&mut self) -> Result<bool, CpufreqError> {
        let survey = Survey::of(&self.root, &mut self.topology, &self.slots)
            .map_err(|error| CpufreqError { policy: None, folder: None, fault: error.into() })?;
        let Survey { domains, mut slots, complaints } = survey;
        for slot in &mut slots {
            if let Some(before) = self.slots.iter().find(|before| before.key == slot.key) {
                slot.goes_on(before);
            }
        }
        let grids = self.slots.iter().map(|slot| &slot.grid);
        let changed = domains != self.domains || grids.ne(slots.iter().map(|slot| &slot.grid));
        (self.domains, self.slots, self.complaints) = (domains, slots, complaints);
        Ok(changed)
    }

    fn slot(&mut self, domain: Handle) -> Result<&mut Slot, CpufreqError> {
        if self.domains().get(domain).is_none() {
            return Err(CpufreqError::stale());
        }
        self.slots.get_mut(domain.index()).ok_or_else(CpufreqError::stale)
    }
}

impl<C, O> ErrorType for Cpufreq<C, O> {
    type Error = CpufreqError;
}

impl<C: Clock, O: Originals> PowerHal for Cpufreq<C, O> {
    type Originals = O;

    fn domains(&self) -> Domains<'_> {
        Domains::new(self.generation, &self.domains)
    }

    fn frequency_table(&self, domain: Handle) -> &[u32] {
        let listed = self.domains().get(domain).and_then(|_| self.slots.get(domain.index()));
        listed.map_or(&[], |slot| slot.grid.khz())
    }

    fn enumerate(&mut self) -> Result<(), CpufreqError> {
        if self.look()? {
            self.generation = self.generation.next();
        }
        Ok(())
    }

    fn read(&mut self, domain: Handle) -> Result<Sample, CpufreqError> {
        let mut sample = Sample::at(self.clock.now());
        let limited = self.domains().get(domain).is_some_and(|domain| domain.has(Control::Frequency));
        let slot = self.slot(domain)?;
        let limit = slot.read_limit();
        let frequency = slot.read_frequency();
        match (&limit, &frequency) {
            // Nothing answers: all its CPUs are offline, or it is removed or broken.
            (Err(error), None | Some(Err(_))) => Err(CpufreqError::at(slot.key, error.clone().into())),
            (Ok(_), _) | (Err(_), Some(Ok(_))) => {
                if limited {
                    sample.frequency_limit = limit.map(khz).map_err(|error| error.kind);
                }
                if let Some(frequency) = frequency {
                    sample.frequency = frequency.map(khz).map_err(|error| error.kind);
                }
                Ok(sample)
            }
        }
    }

    fn save(&mut self, domain: Handle, control: Control) -> Result<Original, CpufreqError> {
        let slot = self.slot(domain)?;
        let key = slot.key;
        if control != Control::Frequency {
            return Err(CpufreqError::at(key, CpufreqFault::Lacking));
        }
        let limit = slot.read_limit().map_err(|error| CpufreqError::at(key, error.into()))?;
        let highest = slot.policy.range.map_or(limit, |(_, highest)| highest);
        Original::new(LAYOUT, &[limit.into(), highest.into()])
            .ok_or_else(|| CpufreqError::at(key, CpufreqFault::Lacking))
    }

    fn write(&mut self, domain: Handle, setting: Setting) -> Result<Setting, CpufreqError> {
        let slot = self.slot(domain)?;
        let Setting::Frequency(wish) = setting else {
            return Err(CpufreqError::at(slot.key, CpufreqFault::Lacking));
        };
        let found = slot.write(wish.to_whole(Role::Limit));
        found
            .map(|found| Setting::Frequency(khz(found)))
            .map_err(|error| CpufreqError::at(slot.key, error.into()))
    }

    fn restore(&mut self, domain: Handle, control: Control, original: &Original) -> Result<(), CpufreqError> {
        let slot = self.slot(domain)?;
        if control != Control::Frequency {
            return Err(CpufreqError::at(slot.key, CpufreqFault::Lacking));
        }
        let unfit =
            || CpufreqFault::Unfit { layout: original.layout(), word: original.words().first().copied() };
        let limit = limit_of(original, slot.policy.range);
        let limit = limit.ok_or_else(|| CpufreqError::at(slot.key, unfit()))?;
        slot.put(limit).map(drop).map_err(|error| CpufreqError::at(slot.key, error.into()))
    }

    fn originals(&mut self) -> &mut O {
        &mut self.originals
    }

    /// Like the port's, but the limit in force is the lowest of several requests. The original is always
    /// written: if it is equal to the limit in force, that limit may be another writer's request, and ours would remain
    /// behind it. A limit that reads lower afterwards counts as restored, since the rest is another writer's.
    fn release_control(
        &mut self,
        domain: Handle,
        control: Control,
    ) -> Result<Released, PortError<CpufreqError>> {
        let key = *self.domains().get(domain).ok_or(Refusal::Stale)?.key();
        let original = self.originals.kept(&key, control).filter(|_| control == Control::Frequency);
        let Some(original) = original else { return Ok(Released::Untouched) };
        self.restore(domain, control, &original).map_err(PortError::Hal)?;
        let slot = self.slot(domain).map_err(PortError::Hal)?;
        let found = slot.read_limit().map_err(|error| PortError::Hal(CpufreqError::at(key, error.into())))?;
        if limit_of(&original, slot.policy.range).is_none_or(|limit| found > limit) {
            return Err(Refusal::NotRestored.into());
        }
        self.originals.forget(&key, Control::Frequency).map_err(Refusal::NotForgotten)?;
        Ok(Released::Restored)
    }
}
