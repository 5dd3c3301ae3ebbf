//! How long to wait before trying again: twice as long each time, up to a bound.

use core::fmt;
use power_units::{Micros, Stamp};

/// A wait that doubles from `first` to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Micros,
    most: Micros,
}

/// The first wait is zero, or longer than the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffError;

impl fmt::Display for BackoffError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected 0 < first wait <= longest wait")
    }
}

impl core::error::Error for BackoffError {}

impl Backoff {
    /// A wait from `first` to `most`.
    ///
    /// # Errors
    /// When the first is zero or longer than the longest.
    pub fn new(first: Micros, most: Micros) -> Result<Self, BackoffError> {
        let valid = first > Micros::ZERO && first <= most;
        if valid { Ok(Self { first, most }) } else { Err(BackoffError) }
    }

    /// The wait after `failures` failures in a row; the first failure is number 1.
    #[must_use]
    pub fn after(self, failures: u32) -> Micros {
        let doubled = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
        Micros::new(self.first.get().saturating_mul(doubled)).min(self.most)
    }
}

/// Whether the time `at` has come. A time further ahead than any wait means that the clock went backwards; waiting
/// for it could take forever.
pub(crate) fn has_come(at: Stamp, now: Stamp, longest: Micros) -> bool {
    at.since(now).is_none_or(|ahead| ahead == Micros::ZERO || ahead > longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_bound() {
        let backoff = Backoff::new(Micros::new(100), Micros::new(1_000)).unwrap();
        let waits: std::vec::Vec<_> =
            [0, 1, 2, 3, 4, 5, 64, 65, u32::MAX].map(|failures| backoff.after(failures).get()).into();
        assert_eq!(waits, [100, 100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000]);
        let whole = Backoff::new(Micros::new(3), Micros::MAX).unwrap();
        assert_eq!(whole.after(64), Micros::MAX);
    }

    #[test]
    fn a_wait_that_is_none_is_refused() {
        assert_eq!(Backoff::new(Micros::ZERO, Micros::new(1)), Err(BackoffError));
        assert_eq!(Backoff::new(Micros::new(2), Micros::new(1)), Err(BackoffError));
    }

    #[test]
    fn a_point_beyond_every_wait_has_come() {
        let at = |micros| Stamp::new(Micros::new(micros));
        let come = |point, now| has_come(at(point), at(now), Micros::new(50));
        assert!(come(100, 100) && come(100, 101));
        assert!(!come(100, 99) && !come(100, 50));
        assert!(come(100, 49), "the clock went backwards");
    }
}
