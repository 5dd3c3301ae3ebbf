//! Random numbers from a seed. Every user has a separate stream, so that an additional draw of one does not affect
//! the others.

use plant::Random;
use std::time::Duration;

/// A stream of draws.
#[derive(Clone, Debug)]
pub(crate) struct Draw(Random);

impl Draw {
    /// The stream with this name.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        Self(Random::stream(seed, fnv(0xcbf2_9ce4_8422_2325, name.as_bytes())))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// A whole number below `end`; zero if `end` is zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.bits() >> 11).checked_rem(end).unwrap_or(0)
    }

    /// An index into a list of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap_or(0))).unwrap_or(0)
    }

    /// True with this probability in thousandths.
    pub(crate) fn permille(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// A number of milliseconds in this range, including both ends.
    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high.saturating_sub(low) + 1))
    }

    /// A number from 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.unit()
    }
}

/// FNV-1a with 64 bits, continued from a hash.
pub(crate) fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
