//! Drawing from a seed.

use plant::Random;

/// A stream of draws.
#[derive(Clone, Debug)]
pub(crate) struct Draw(Random);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::stream(seed, 0x0ca3_9a16))
    }

    /// A whole number below `end`; zero if `end` is zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let bits = usize::try_from(self.0.bits() >> 33).unwrap_or(0);
        bits.checked_rem(end).unwrap_or(0)
    }

    /// A whole number from `low` to `high`, both included.
    pub(crate) fn within(&mut self, low: u32, high: u32) -> u32 {
        let span = usize::try_from(high.saturating_sub(low)).unwrap_or(0) + 1;
        low + u32::try_from(self.below(span)).unwrap_or(0)
    }

    /// True with this probability in percent.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
