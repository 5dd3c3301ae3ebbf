//! The frequencies of the last steps, so that a power can be paired with the frequency of the same time.

use power_units::{KiloHertz, Micros, Role};

/// The number of stored steps: with a period of 0.5 s they cover a sensor that averages over 2 s.
const STEPS: usize = 4;

/// One step: how long it was, and the mean frequency in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    micros: u32,
    khz: u32,
}

impl Step {
    const NONE: Self = Self { micros: 0, khz: 0 };
}

/// The last steps, the newest first; an unused entry has no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Past {
    steps: [Step; STEPS],
}

impl Past {
    pub(super) const START: Self = Self { steps: [Step::NONE; STEPS] };

    /// A constant frequency for any span in the past.
    pub(super) fn of(frequency: KiloHertz) -> Self {
        let mut past = Self::START;
        past.push(frequency, Micros::MAX);
        past
    }

    pub(super) fn push(&mut self, frequency: KiloHertz, passed: Micros) {
        let micros = u32::try_from(passed.get()).unwrap_or(u32::MAX);
        let [first, second, third, _] = self.steps;
        self.steps = [Step { micros, khz: frequency.to_whole(Role::Nearest) }, first, second, third];
    }

    /// The mean frequency over the last `span`, as far back as it is known.
    pub(super) fn mean_over(&self, span: Micros) -> Option<KiloHertz> {
        let [newest, ..] = self.steps;
        let span = u32::try_from(span.get()).unwrap_or(u32::MAX);
        if newest.micros >= span && newest.micros > 0 {
            return Some(kilohertz(newest.khz));
        }
        let (mut left, mut weight, mut sum) = (span, 0_u64, 0_u64);
        for step in &self.steps {
            let micros = step.micros.min(left);
            left = left.saturating_sub(micros);
            weight = weight.saturating_add(u64::from(micros));
            sum = sum.saturating_add(u64::from(micros).saturating_mul(u64::from(step.khz)));
        }
        let mean = sum.checked_div(weight)?;
        Some(kilohertz(u32::try_from(mean).unwrap_or(u32::MAX)))
    }

    /// Whether the last step was faster than the one before it, by more than 1/128.
    pub(super) fn is_rising(&self) -> bool {
        let [newest, before, ..] = self.steps;
        before.micros > 0 && newest.khz > before.khz.saturating_add(before.khz >> 7)
    }
}

pub(super) fn kilohertz(khz: u32) -> KiloHertz {
    KiloHertz::from_int(i32::try_from(khz).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Micros {
        Micros::new(ms * 1_000)
    }

    #[test]
    fn a_mean_weighs_each_step_by_the_part_of_it_that_the_span_covers() {
        let mut past = Past::START;
        assert_eq!(past.mean_over(ms(500)), None);
        past.push(KiloHertz::from_int(3_000_000), ms(1_000));
        past.push(KiloHertz::from_int(2_000_000), ms(500));
        for (span, mean) in [(0, 2_000_000), (500, 2_000_000), (1_000, 2_500_000), (1_500, 2_666_666)] {
            assert_eq!(past.mean_over(ms(span)), Some(KiloHertz::from_int(mean)), "{span} ms");
        }
        // No earlier frequency is known.
        assert_eq!(past.mean_over(ms(60_000)), Some(KiloHertz::from_int(2_666_666)));
        assert!(!past.is_rising());
        past.push(KiloHertz::from_int(2_100_000), ms(500));
        assert!(past.is_rising());
    }

    #[test]
    fn a_first_frequency_stands_for_all_that_was() {
        let past = Past::of(KiloHertz::from_int(1_000_000));
        assert_eq!(past.mean_over(Micros::MAX), Some(KiloHertz::from_int(1_000_000)));
        let mut long = past;
        long.push(KiloHertz::MAX, Micros::MAX);
        assert!(long.mean_over(Micros::MAX).is_some());
    }
}
