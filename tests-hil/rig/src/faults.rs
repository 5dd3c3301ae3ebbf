//! Scripted faults: errors that a file returns for a while, and files that are slow.

use crate::machine::VirtualAttribute;
use crate::number::Errno;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Longer than any test lets an operation hang; a forgotten gate must not block a process forever.
const HANG_MAX: Duration = Duration::from_secs(120);

/// A gate that blocks operations until it is opened. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn closed() -> Self {
        Self::default()
    }

    /// Opens the gate permanently.
    pub fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    pub(crate) fn pass(&self) {
        let open = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = self.0.1.wait_timeout_while(open, HANG_MAX, |open| !*open);
        drop(opened.unwrap_or_else(PoisonError::into_inner));
    }
}

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Gate {}

/// Whether an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// The effect of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The operation fails.
    Fails(Errno),
    /// The operation is delayed by this time.
    Takes(Duration),
    /// The operation hangs until the gate opens, and is then executed.
    Hangs(Gate),
    /// A read returns these bytes.
    Answers(Vec<u8>),
}

/// A fault: the file, the direction, the effect, and how many times it occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub on: VirtualAttribute,
    /// Whether it affects reads or writes of the file.
    pub direction: Direction,
    /// The effect.
    pub effect: Effect,
    /// How many operations it will affect.
    pub times: u32,
}

/// All faults that are still pending.
#[derive(Clone, Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a fault.
    pub fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Removes all faults.
    pub fn heal(&mut self) {
        self.0.clear();
    }

    /// The effect of the faults on an operation. Each call uses up one occurrence of a fault.
    pub(crate) fn strike(&mut self, on: &VirtualAttribute, direction: Direction) -> Option<Effect> {
        let fault = self
            .0
            .iter_mut()
            .find(|fault| fault.times > 0 && fault.on == *on && fault.direction == direction)?;
        fault.times -= 1;
        let effect = fault.effect.clone();
        self.0.retain(|fault| fault.times > 0);
        Some(effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_its_file_and_direction_as_often_as_it_says() {
        let mut faults = Faults::default();
        let effect = Effect::Fails(libc::EIO);
        faults.add(Fault {
            on: VirtualAttribute::Energy(0),
            direction: Direction::Read,
            effect: effect.clone(),
            times: 2,
        });
        assert_eq!(faults.strike(&VirtualAttribute::Energy(1), Direction::Read), None);
        assert_eq!(faults.strike(&VirtualAttribute::Energy(0), Direction::Write), None);
        assert_eq!(faults.strike(&VirtualAttribute::Energy(0), Direction::Read), Some(effect.clone()));
        assert_eq!(faults.strike(&VirtualAttribute::Energy(0), Direction::Read), Some(effect));
        assert_eq!(faults.strike(&VirtualAttribute::Energy(0), Direction::Read), None);
    }
}
