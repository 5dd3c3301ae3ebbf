//! The memory in use of a device, which a HAL asks for less often than for what follows its power: it changes slowly, no
//! cap follows it, and its question costs as much as that for power.

use crate::MemoryUse;
use power_units::{Micros, Stamp};

/// How many readings after it an answer serves. One more than this is a power of two, by which devices are spread.
const SERVES: usize = 7;

/// The age beyond which no reading shows an answer: eight readings of a node that reads once a second, and two that are late.
const OLDEST: Micros = Micros::new(10_000_000);

/// What a device has answered last.
///
/// ```
/// use power_hal::{LastMemory, MemoryUse};
/// use power_units::{Micros, Stamp};
/// let at = |second: u64| Stamp::new(Micros::new(second * 1_000_000));
/// let used = |bytes| MemoryUse::new(bytes, 100).ok_or("impossible");
/// let mut last = LastMemory::of(1);
/// // The first reading asks. Of the second device in its list one more shows that answer, and then seven do.
/// assert_eq!(last.read(at(0), || used(30)), used(30));
/// assert_eq!(last.read(at(1), || used(40)), used(30));
/// assert_eq!(last.read(at(2), || used(50)), used(50));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LastMemory {
    told: Option<(Stamp, MemoryUse)>,
    /// How many more readings that answer serves.
    left: usize,
    /// How many the next one serves.
    next: usize,
}

impl LastMemory {
    /// Of a device that was not asked yet, at this place of its list: the devices of a list are not asked again at the same
    /// reading.
    #[must_use]
    pub const fn of(place: usize) -> Self {
        Self { told: None, left: 0, next: place & SERVES }
    }

    /// The last answer, or a new one where that has served or is too old. A failure is never shown again: the next reading
    /// asks.
    ///
    /// # Errors
    /// What `ask` returns.
    pub fn read<E>(&mut self, at: Stamp, ask: impl FnOnce() -> Result<MemoryUse, E>) -> Result<MemoryUse, E> {
        if let Some((asked, memory)) = self.told
            && let Some(left) = self.left.checked_sub(1)
            && at.since(asked).is_some_and(|age| age <= OLDEST)
        {
            self.left = left;
            return Ok(memory);
        }
        self.told = None;
        let memory = ask()?;
        self.told = Some((at, memory));
        self.left = core::mem::replace(&mut self.next, SERVES);
        Ok(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const SECOND: u64 = 1_000_000;

    fn at(us: u64) -> Stamp {
        Stamp::new(Micros::new(us))
    }

    fn used(bytes: u64) -> MemoryUse {
        MemoryUse::new(bytes, u64::MAX).unwrap()
    }

    /// The readings at which a device is asked that answers with their number, and what they show.
    fn readings(place: usize, period: u64) -> (Vec<u64>, Vec<u64>) {
        let mut last = LastMemory::of(place);
        let mut asked = Vec::new();
        let shown = (0..26).map(|number| {
            let answer = last.read(at(number * period), || {
                asked.push(number);
                Ok::<_, ()>(used(number))
            });
            answer.unwrap().used_bytes()
        });
        let shown = shown.collect();
        (asked, shown)
    }

    #[test]
    fn every_eighth_reading_asks_and_the_devices_of_a_list_are_asked_one_after_the_other() {
        let (asked, shown) = readings(0, SECOND);
        assert_eq!(asked, [0, 1, 9, 17, 25]);
        assert_eq!(shown[..11], [0, 1, 1, 1, 1, 1, 1, 1, 1, 9, 9]);
        assert_eq!(readings(3, SECOND).0, [0, 4, 12, 20]);
        assert_eq!(readings(7, SECOND).0, [0, 8, 16, 24]);
        assert_eq!(readings(8, SECOND).0, readings(0, SECOND).0, "the ninth device goes with the first");
        assert_eq!(readings(usize::MAX, SECOND).0, readings(7, SECOND).0);
    }

    #[test]
    fn no_reading_shows_an_answer_that_is_too_old_or_of_later() {
        // At 4 s the third reading after an answer would be 12 s behind it.
        assert_eq!(readings(7, 4 * SECOND).0[..4], [0, 3, 6, 9]);
        assert_eq!(readings(7, 11 * SECOND).0, Vec::from_iter(0..26));
        let mut last = LastMemory::of(7);
        assert_eq!(last.read(at(5), || Ok::<_, ()>(used(1))), Ok(used(1)));
        assert_eq!(last.read(at(5), || Ok::<_, ()>(used(2))), Ok(used(1)), "the same instant");
        assert_eq!(last.read(at(4), || Ok::<_, ()>(used(3))), Ok(used(3)), "a clock that was set back");
    }

    #[test]
    fn a_failure_is_asked_again_and_hides_what_was_known() {
        let mut last = LastMemory::of(0);
        let mut read = |answer: Result<u64, &'static str>| last.read(at(0), || answer.map(used));
        assert_eq!(read(Ok(1)), Ok(used(1)));
        assert_eq!(read(Err("lost")), Err("lost"));
        assert_eq!(read(Err("lost still")), Err("lost still"));
        assert_eq!(read(Ok(2)), Ok(used(2)));
        assert_eq!(read(Ok(3)), Ok(used(2)), "and then it serves");
    }
}
