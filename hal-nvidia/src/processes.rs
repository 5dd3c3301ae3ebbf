//! Which processes used a card since it was last asked. It is for accounts of energy; no decision depends on it.
//!
//! The driver keeps a sample of each process that computed in its last sampling period, and tells those that are later
//! than a time. Its clock is that of the day, which may be set back: a card that says nothing for a while is asked from
//! the beginning. What it told before the first question is not of the time since, and does not count.
//!
//! A divided card (MIG) and a virtual one say nothing of it.

use power_hal::Key;
use std::collections::BTreeMap;

/// More samples than a card has; more are not read.
pub(crate) const SAMPLES_MOST: usize = 4_096;
/// The year 5138: a later time of a sample is none.
const TIME_MOST: u64 = 100_000_000_000_000_000;
/// After so many answers without a sample the driver's clock may have been set back.
const SILENT_MOST: u32 = 60;

/// A process that computed on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvidiaProcess {
    /// Its number, in the process namespace of the machine.
    pub pid: u32,
    /// In percent of a sampling period, summed over the samples.
    pub percent: u64,
}

/// The processes that used a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvidiaUse {
    /// The key of its domain.
    pub key: Key,
    /// Each of them; empty if nobody computed.
    pub processes: Vec<NvidiaProcess>,
}

/// A sample of a process as the driver tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UseSample {
    /// When, in microseconds.
    pub at: u64,
    /// The process.
    pub pid: u32,
    /// In percent of the sampling period: its kernels, the encoder, the decoder.
    pub percents: [u32; 3],
}

/// How far the samples of a card were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseCursor {
    after: u64,
    /// Whether an answer was taken since the beginning.
    begun: bool,
    silent: u32,
}

impl UseCursor {
    /// Samples after this time are new.
    #[must_use]
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// What an answer says. A sample of no process, of no time or of more than 100 percent is none.
    pub fn take(&mut self, samples: &[UseSample]) -> Vec<NvidiaProcess> {
        let mut by_pid: BTreeMap<u32, u64> = BTreeMap::new();
        let (after, begun) = (self.after, self.begun);
        self.begun = true;
        let valid = |sample: &&UseSample| {
            let is_new = sample.at > after && sample.at <= TIME_MOST;
            is_new && sample.pid != 0 && sample.percents.iter().all(|percent| *percent <= 100)
        };
        let mut any = false;
        for sample in samples.iter().take(SAMPLES_MOST).filter(valid) {
            any = true;
            self.after = self.after.max(sample.at);
            let percent = sample.percents.into_iter().max().unwrap_or(0);
            if percent > 0 {
                let sum = by_pid.entry(sample.pid).or_default();
                *sum = sum.saturating_add(percent.into());
            }
        }
        self.silent = if any { 0 } else { self.silent.saturating_add(1) };
        if self.silent >= SILENT_MOST {
            *self = Self::default();
        }
        if !begun {
            return Vec::new();
        }
        by_pid.into_iter().map(|(pid, percent)| NvidiaProcess { pid, percent }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, pid: u32, percents: [u32; 3]) -> UseSample {
        UseSample { at, pid, percents }
    }

    fn told(cursor: &mut UseCursor, samples: &[UseSample]) -> Vec<(u32, u64)> {
        cursor.take(samples).into_iter().map(|process| (process.pid, process.percent)).collect()
    }

    #[test]
    fn each_sample_counts_once_and_none_of_before_the_first_question() {
        let mut cursor = UseCursor::default();
        assert_eq!(told(&mut cursor, &[sample(1_000, 7, [90, 0, 0])]), []);
        assert_eq!(cursor.after(), 1_000);
        // 40 and 35 percent of two periods; the busiest part of the card counts.
        let samples =
            [sample(1_000, 7, [90, 0, 0]), sample(2_000, 7, [40, 0, 0]), sample(2_500, 7, [10, 35, 0])];
        assert_eq!(told(&mut cursor, &samples), [(7, 75)]);
        assert_eq!(told(&mut cursor, &samples), [], "they are known");
        let more = [sample(3_000, 8, [0, 0, 1]), sample(3_000, 9, [0, 0, 0])];
        assert_eq!(told(&mut cursor, &more), [(8, 1)]);
    }

    #[test]
    fn what_cannot_be_is_no_use() {
        let mut cursor = UseCursor { begun: true, ..UseCursor::default() };
        let wrong = [
            sample(5, 0, [50, 0, 0]),
            sample(0, 7, [50, 0, 0]),
            sample(u64::MAX, 7, [50, 0, 0]),
            sample(6, 7, [101, 0, 0]),
            sample(7, 7, [50, u32::MAX, 0]),
        ];
        assert_eq!(told(&mut cursor, &wrong), []);
        assert_eq!(cursor.after(), 0, "and its time is none");
    }

    #[test]
    fn a_clock_that_was_set_back_is_followed_after_a_minute() {
        let mut cursor = UseCursor { after: 9_000, begun: true, silent: 0 };
        for _ in 0..SILENT_MOST {
            assert_eq!(told(&mut cursor, &[sample(100, 7, [50, 0, 0])]), []);
        }
        assert_eq!(cursor.after(), 0);
        assert_eq!(told(&mut cursor, &[sample(200, 7, [50, 0, 0])]), [], "of an unknown time");
        assert_eq!(told(&mut cursor, &[sample(300, 7, [20, 0, 0])]), [(7, 20)]);
    }
}
