//! The clock of a GPU, limited by the files of i915 and xe. The rules of both drivers are in the documentation of this crate.

use crate::gt::Gt;
use hal_files::hwmon::{self, Settable};
use hal_files::{Attribute, FileError};
use power_hal::{Limit, Original, Span};
use power_units::{KiloHertz, Role};

/// The distance between two limits, MHz: three units of the hardware, so that nothing is rounded.
const STEP_MHZ: u32 = 50;

/// More than any GPU runs at, MHz.
const POSSIBLE_MHZ: u32 = 10_000;

/// The layout of an original: a word for each part, with the highest, the lowest and the boost clock in MHz and the number of
/// the part, 16 bits each from the lowest. A cap has layout 0.
const LAYOUT: u8 = 1;

/// The open files of one part.
#[derive(Debug)]
struct Part {
    number: u8,
    low: Settable,
    high: Settable,
    /// Only of i915.
    boost: Option<Settable>,
    running: Option<Attribute>,
    /// RPn and RP0, MHz.
    least: u32,
    most: u32,
}

/// The clocks of one part, MHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartLimits {
    number: u8,
    low: u32,
    high: u32,
    boost: Option<u32>,
}

/// The open files of a clock that can be limited.
#[derive(Debug)]
pub(crate) struct ClockFiles {
    parts: Vec<Part>,
    range: Limit<KiloHertz>,
    least: u32,
    most: u32,
}

impl ClockFiles {
    /// Opens the files of the parts that are there; `None` if no clock can be limited here. `known` is the same GPU in the
    /// previous list, and whether it sleeps: then nothing is read.
    pub(crate) fn open(parts: &[Gt], (before, sleeps): (Option<&Self>, bool)) -> Option<Self> {
        let known = |part: &Gt| {
            let mut parts = before.into_iter().flat_map(|before| &before.parts);
            parts.find(|known| known.number == part.number).map(|known| (known.least, known.most))
        };
        let open = |part: &Gt| {
            let known = known(part);
            Part::open(part, known, sleeps && before.is_some())
        };
        let parts: Vec<Part> = parts.iter().filter_map(open).collect();
        let least = parts.iter().map(|part| part.least).max()?;
        let most = parts.iter().map(|part| part.most).max()?;
        let (floor, ceiling) = (kilohertz(least), kilohertz(most));
        let step = kilohertz(STEP_MHZ.min(least));
        let limit = Limit::new(Span { floor, ceiling }, step).ok()?;
        let range = limit.known(Some(floor), Some(ceiling)).ok()?;
        Some(Self { parts, range, least, most })
    }

    /// The range of its limit.
    pub(crate) const fn range(&self) -> &Limit<KiloHertz> {
        &self.range
    }

    /// The highest clock that any part may have.
    pub(crate) fn limit(&self) -> Result<KiloHertz, FileError> {
        let mut highest = 0;
        for part in &self.parts {
            highest = read(part.high.file())?.max(highest);
        }
        Ok(kilohertz(highest))
    }

    /// The highest clock at which any part runs; `None` while all of them sleep.
    pub(crate) fn running(&self) -> Result<Option<KiloHertz>, FileError> {
        let mut highest = 0;
        for file in self.parts.iter().filter_map(|part| part.running.as_ref()) {
            let mhz = u32::try_from(file.read_whole()?).ok().filter(|mhz| *mhz <= POSSIBLE_MHZ);
            highest = mhz.ok_or_else(|| FileError::bad_data(file.path()))?.max(highest);
        }
        Ok((highest > 0).then(|| kilohertz(highest)))
    }

    /// Limits each part to the next lower multiple of the step, within its own clocks.
    pub(crate) fn set(&self, limit: KiloHertz) -> Result<(), FileError> {
        let whole = limit.to_whole(Role::Limit) / 1_000;
        let rounded = (whole / STEP_MHZ * STEP_MHZ).max(self.least);
        let mhz = if whole >= self.most { self.most } else { rounded };
        for part in &self.parts {
            let high = mhz.min(part.most).max(part.least);
            let now = part.now()?;
            let (low, boost) = (now.low.min(high), now.boost.map(|boost| boost.min(high)));
            part.write(now, PartLimits { low, high, boost, ..now })?;
        }
        Ok(())
    }

    /// What `set` would have to undo; `None` if there are more parts than an original holds.
    pub(crate) fn save(&self) -> Result<Option<Original>, FileError> {
        let mut words = [0; Original::CAPACITY];
        for (word, part) in words.iter_mut().zip(&self.parts) {
            *word = part.now()?.word();
        }
        Ok(words.get(..self.parts.len()).and_then(|words| Original::new(LAYOUT, words)))
    }

    /// Restores one part. One that is gone is not in force any more.
    pub(crate) fn put_back(&self, limits: PartLimits) -> Result<(), FileError> {
        match self.parts.iter().find(|part| part.number == limits.number) {
            Some(part) => part.write(part.now()?, limits),
            None => Ok(()),
        }
    }
}

impl Part {
    /// `None` if the part is not there, or does not say its clocks.
    fn open(part: &Gt, known: Option<(u32, u32)>, sleeps: bool) -> Option<Self> {
        let name = |xe: &'static str, i915: &'static str| part.file(if part.is_of_xe() { xe } else { i915 });
        // A part that is not there is no trouble.
        let mut silent = |_: FileError| {};
        let high = Settable::open(&name("freq0/max_freq", "rps_max_freq_mhz"), &mut silent)?;
        let low = Settable::open(&name("freq0/min_freq", "rps_min_freq_mhz"), &mut silent)?;
        let boost = Settable::open(&name("freq0/boost_freq", "rps_boost_freq_mhz"), &mut silent);
        let running = hwmon::open(&name("freq0/act_freq", "rps_act_freq_mhz"), &mut silent);
        let mut end = |xe, i915, known: Option<u32>| {
            let file = hwmon::open(&name(xe, i915), &mut silent)?;
            if sleeps { known } else { read(&file).ok().or(known) }
        };
        let least = end("freq0/rpn_freq", "rps_RPn_freq_mhz", known.map(|(least, _)| least))?;
        let most = end("freq0/rp0_freq", "rps_RP0_freq_mhz", known.map(|(_, most)| most))?;
        (least <= most).then_some(Self { number: part.number, low, high, boost, running, least, most })
    }

    fn now(&self) -> Result<PartLimits, FileError> {
        let boost = self.boost.as_ref().map(|boost| read(boost.file())).transpose()?;
        let (low, high) = (read(self.low.file())?, read(self.high.file())?);
        Ok(PartLimits { number: self.number, low, high, boost })
    }

    /// Writes what differs, in an order in which the lowest clock is never above the highest.
    fn write(&self, now: PartLimits, to: PartLimits) -> Result<(), FileError> {
        if to.low < now.low {
            self.low.write_whole(to.low.into())?;
        }
        if to.high != now.high {
            self.high.write_whole(to.high.into())?;
        }
        if to.low > now.low {
            self.low.write_whole(to.low.into())?;
        }
        match (&self.boost, to.boost) {
            (Some(file), Some(boost)) if to.boost != now.boost => file.write_whole(boost.into()),
            (_, _) => Ok(()),
        }
    }
}

impl PartLimits {
    fn word(self) -> u64 {
        let boost = u64::from(self.boost.unwrap_or(0));
        let (number, low) = (u64::from(self.number), u64::from(self.low));
        (number << 48) | (boost << 32) | (low << 16) | u64::from(self.high)
    }

    fn of_word(word: u64) -> Option<Self> {
        let field = |shift: u32| u32::try_from((word >> shift) & 0xffff).unwrap_or(0);
        let (high, low, boost) = (field(0), field(16), field(32));
        let number = u8::try_from(word >> 48).ok()?;
        let possible =
            [high, low].iter().all(|mhz| (1..=POSSIBLE_MHZ).contains(mhz)) && boost <= POSSIBLE_MHZ;
        possible.then_some(Self { number, low, high, boost: Some(boost).filter(|boost| *boost > 0) })
    }

    /// The parts in an original, each `None` if a GPU cannot have had it; `None` if it is no original of a clock.
    pub(crate) fn in_original(original: &Original) -> Option<impl Iterator<Item = Option<Self>>> {
        let words = original.words();
        let is_one = original.layout() == LAYOUT && !words.is_empty();
        is_one.then(|| words.iter().map(|word| Self::of_word(*word)))
    }
}

/// The highest clock in an original of a GPU's clock.
#[must_use]
pub fn clock_in(original: &Original) -> Option<KiloHertz> {
    let mut highest = None;
    for limits in PartLimits::in_original(original)? {
        highest = highest.max(Some(limits?.high));
    }
    highest.map(kilohertz)
}

/// A clock that a part can have.
fn read(file: &Attribute) -> Result<u32, FileError> {
    let mhz = u32::try_from(file.read_whole()?).ok().filter(|mhz| (1..=POSSIBLE_MHZ).contains(mhz));
    mhz.ok_or_else(|| FileError::bad_data(file.path()))
}

fn kilohertz(mhz: u32) -> KiloHertz {
    KiloHertz::from_int(i32::try_from(mhz.saturating_mul(1_000)).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_original_is_what_the_parts_had_and_nothing_else_is_one() {
        let part = |number, low, high, boost| PartLimits { number, low, high, boost };
        for limits in [part(0, 300, 2_400, Some(2_400)), part(13, 1, 10_000, None)] {
            assert_eq!(PartLimits::of_word(limits.word()), Some(limits));
        }
        let two = [part(0, 300, 1_500, None), part(1, 400, 1_600, None)].map(PartLimits::word);
        assert_eq!(clock_in(&Original::new(1, &two).unwrap()), Some(kilohertz(1_600)));
        // A cap of layout 0 is a word too.
        for (layout, words) in [(1, &[][..]), (0, &two[..]), (1, &[0]), (1, &[u64::MAX]), (1, &[two[0], 0])] {
            assert_eq!(clock_in(&Original::new(layout, words).unwrap()), None, "{words:?}");
        }
    }
}
