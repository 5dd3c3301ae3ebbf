//! What is scripted to go wrong: errors that a file answers with for a while, and files that are slow to answer.

use crate::machine::Attribute;
use crate::number::Errno;
use std::time::Duration;

/// Whether an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// What one fault does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The operation fails.
    Fails(Errno),
    /// The operation takes so long before it is carried out.
    Takes(Duration),
    /// A read answers these bytes.
    Answers(Vec<u8>),
}

/// A fault: which file, which direction, what happens, and how many times more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub on: Attribute,
    /// Reads or writes of it.
    pub direction: Direction,
    /// What happens.
    pub effect: Effect,
    /// How many operations it will hit.
    pub times: u32,
}

/// All faults that are still to happen.
#[derive(Clone, Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Adds one.
    pub fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Ends all of them.
    pub fn heal(&mut self) {
        self.0.clear();
    }

    /// What happens to an operation now; each call uses a fault up once.
    pub(crate) fn strike(&mut self, on: &Attribute, direction: Direction) -> Option<Effect> {
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
            on: Attribute::Energy(0),
            direction: Direction::Read,
            effect: effect.clone(),
            times: 2,
        });
        assert_eq!(faults.strike(&Attribute::Energy(1), Direction::Read), None);
        assert_eq!(faults.strike(&Attribute::Energy(0), Direction::Write), None);
        assert_eq!(faults.strike(&Attribute::Energy(0), Direction::Read), Some(effect.clone()));
        assert_eq!(faults.strike(&Attribute::Energy(0), Direction::Read), Some(effect));
        assert_eq!(faults.strike(&Attribute::Energy(0), Direction::Read), None);
    }
}
