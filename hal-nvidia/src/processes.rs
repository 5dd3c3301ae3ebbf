//! Which processes used a card since it was last asked. It is for accounts of energy; no decision depends on it.
//!
//! The driver keeps a sample of each process that computed in its last sampling period, and tells those that are later
//! than a time. What it told before the first question is not of the time since: who used the card until then is unknown.
//! Its clock is that of the day, which may be set back. So a card that has nothing later is asked from the beginning: a
//! newest sample that is older than the last one that was read says that the clock was set back, and who used the card
//! meanwhile is unknown. Only an answer without such a sample says that nobody did.
//!
//! A divided card (MIG) and a virtual one say nothing of it.

use power_hal::Key;
use std::collections::BTreeMap;

/// More samples than a card has; more are not read.
pub(crate) const SAMPLES_MOST: usize = 4_096;
/// The year 5138: a later time of a sample is none.
const TIME_MOST: u64 = 100_000_000_000_000_000;

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
}

impl UseCursor {
    /// Samples after this time are new.
    #[must_use]
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// What an answer says; `None` if it does not say who used the card. A sample of no process, of no time or of more than
    /// 100 percent is none.
    pub fn take(&mut self, samples: &[UseSample]) -> Option<Vec<NvidiaProcess>> {
        let is_possible = |sample: &&UseSample| {
            let is_dated = sample.at > 0 && sample.at <= TIME_MOST;
            is_dated && sample.pid != 0 && sample.percents.iter().all(|percent| *percent <= 100)
        };
        let possible = samples.iter().take(SAMPLES_MOST).filter(is_possible);
        let newest = possible.clone().map(|sample| sample.at).max();
        let before = self.after;
        let was_set_back = newest.is_some_and(|newest| newest < before);
        self.after = newest.unwrap_or(before);
        if !std::mem::replace(&mut self.begun, true) || was_set_back {
            return None;
        }
        let mut by_pid: BTreeMap<u32, u64> = BTreeMap::new();
        for sample in possible.filter(|sample| sample.at > before) {
            let percent = sample.percents.into_iter().max().unwrap_or(0);
            if percent > 0 {
                let sum = by_pid.entry(sample.pid).or_default();
                *sum = sum.saturating_add(percent.into());
            }
        }
        Some(by_pid.into_iter().map(|(pid, percent)| NvidiaProcess { pid, percent }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, pid: u32, percents: [u32; 3]) -> UseSample {
        UseSample { at, pid, percents }
    }

    fn told(cursor: &mut UseCursor, samples: &[UseSample]) -> Option<Vec<(u32, u64)>> {
        let told = cursor.take(samples)?;
        Some(told.into_iter().map(|process| (process.pid, process.percent)).collect())
    }

    #[test]
    fn each_sample_counts_once_and_before_the_first_question_it_is_unknown_who_used_the_card() {
        let mut cursor = UseCursor::default();
        assert_eq!(told(&mut cursor, &[sample(1_000, 7, [90, 0, 0])]), None);
        assert_eq!(cursor.after(), 1_000);
        // 40 and 35 percent of two periods; the busiest part of the card counts.
        let samples =
            [sample(1_000, 7, [90, 0, 0]), sample(2_000, 7, [40, 0, 0]), sample(2_500, 7, [10, 35, 0])];
        assert_eq!(told(&mut cursor, &samples), Some(vec![(7, 75)]));
        assert_eq!(told(&mut cursor, &samples), Some(vec![]), "they are known");
        let more = [sample(3_000, 8, [0, 0, 1]), sample(3_000, 9, [0, 0, 0])];
        assert_eq!(told(&mut cursor, &more), Some(vec![(8, 1)]));
        // The driver has forgotten the old samples, and nobody has made new ones.
        assert_eq!(told(&mut cursor, &[]), Some(vec![]));
        let mut idle = UseCursor::default();
        assert_eq!((told(&mut idle, &[]), told(&mut idle, &[])), (None, Some(vec![])));
        assert_eq!(told(&mut idle, &[sample(1_000, 7, [5, 0, 0])]), Some(vec![(7, 5)]));
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
        assert_eq!(told(&mut cursor, &wrong), Some(vec![]));
        assert_eq!(cursor.after(), 0, "and its time is none");
    }

    #[test]
    fn after_a_clock_was_set_back_it_is_unknown_who_used_the_card_until_then() {
        let mut cursor = UseCursor { after: 9_000, begun: true };
        assert_eq!(told(&mut cursor, &[sample(100, 7, [50, 0, 0])]), None);
        assert_eq!(cursor.after(), 100);
        assert_eq!(told(&mut cursor, &[sample(100, 7, [50, 0, 0])]), Some(vec![]));
        let samples = [sample(100, 7, [50, 0, 0]), sample(300, 7, [20, 0, 0])];
        assert_eq!(told(&mut cursor, &samples), Some(vec![(7, 20)]));
    }
}
