//! A machine behind a lock: its files are read and written by several threads at once.

use super::{RigMachine, VirtualAttribute};
use crate::faults::{Direction, Effect};
use crate::hsmp;
use crate::msr;
use crate::number::Errno;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A machine that several threads use.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<RigMachine>>);

impl Shared {
    /// Shares a machine.
    #[must_use]
    pub fn new(machine: RigMachine) -> Self {
        Self(Arc::new(Mutex::new(machine)))
    }

    /// Locks the machine and advances it to the present.
    pub fn lock(&self) -> MutexGuard<'_, RigMachine> {
        let mut machine = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        machine.catch_up();
        machine
    }

    /// Applies a fault. A slow file does not lock the machine meanwhile, so that other files stay fast.
    #[expect(clippy::disallowed_methods, reason = "slowness is what is scripted here")]
    fn strike(&self, attribute: &VirtualAttribute, direction: Direction) -> Result<Option<Vec<u8>>, Errno> {
        let effect = self.lock().faults.strike(attribute, direction);
        match effect {
            None => Ok(None),
            Some(Effect::Fails(errno)) => Err(errno),
            Some(Effect::Answers(bytes)) => Ok(Some(bytes)),
            Some(Effect::Takes(time)) => {
                std::thread::sleep(time);
                Ok(None)
            }
            Some(Effect::Hangs(gate)) => {
                gate.pass();
                Ok(None)
            }
        }
    }

    /// Reads a file, as the driver does.
    ///
    /// # Errors
    /// The driver's error.
    pub fn read(&self, attribute: &VirtualAttribute, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let scripted = self.strike(attribute, Direction::Read)?;
        let mut machine = self.lock();
        machine.wake(attribute);
        if let VirtualAttribute::Msr(cpu) = *attribute {
            let slot = &machine.zones[machine.package_zone(cpu)?];
            let counters =
                msr::PackageCounters { energy_uj: machine.energy_uj(slot), held: machine.package_held(slot) };
            return msr::read(&slot.zone, counters, offset, size);
        }
        let current = || {
            if let VirtualAttribute::GpuMetrics(at) = *attribute {
                return machine.gpu_metrics(at);
            }
            machine.text(attribute).map(String::into_bytes)
        };
        let text = scripted.map_or_else(current, Ok)?;
        if let VirtualAttribute::MaxFreq(at) = *attribute
            && let Some(policy) = machine.policies.get_mut(at).filter(|policy| policy.coming.is_some())
        {
            policy.pass_read();
            machine.drive();
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let end = start.saturating_add(size).min(text.len());
        Ok(text[start..end].to_vec())
    }

    /// Writes a file, and updates the plant.
    ///
    /// # Errors
    /// The driver's error.
    pub fn write(&self, attribute: &VirtualAttribute, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.strike(attribute, Direction::Write)?;
        let mut machine = self.lock();
        machine.wake(attribute);
        machine.store(attribute, offset, data)?;
        machine.drive();
        let RigMachine { watcher, zones, .. } = &mut *machine;
        if let Some(watcher) = watcher {
            watcher(attribute, data, zones);
        }
        Ok(())
    }

    /// Executes a message of `/dev/hsmp`, writes the answer into it, and updates the plant.
    ///
    /// # Errors
    /// The driver's error.
    pub fn message(&self, message: &mut hsmp::HsmpRequest, access: hsmp::HsmpOpenMode) -> Result<(), Errno> {
        let socket = hsmp::admit(&self.lock(), message, access)?;
        let direction = if message.id == hsmp::SET_LIMIT { Direction::Write } else { Direction::Read };
        self.strike(&VirtualAttribute::HsmpMessage(socket, message.id), direction)?;
        let mut machine = self.lock();
        hsmp::carry_out(&mut machine, socket, message)?;
        machine.drive();
        Ok(())
    }
}
