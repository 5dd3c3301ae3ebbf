//! Watches that keep trimmed rows.
//!
//! One [`Rows`] a kind: every object as the [`Row`] that the program needs and nothing else of it. Objects arrive one
//! at a time and are trimmed as they arrive, so that memory holds rows and not objects.
//!
//! What upstream writes is not trusted: an object that does not become a row is counted, named in the log and
//! skipped, and the watch goes on. Where the same object had a good row before, that one stays and says since when it
//! is stale: a value of some minutes ago with its age is worth more than none, and whoever reads decides.
//!
//! Of a kind of which there are too many to keep, [`follow`] hands on the events instead.

mod by_hand;
mod driver;
mod feed;
mod news;
mod object;
mod patience;
mod table;

pub use by_hand::{ByHand, by_hand};
pub use driver::{Reflections, WatchSource, follow, reflect, reflect_within};
pub use feed::{Feed, ReflectEvent};
pub use news::{RowChange, RowChanges};
pub use object::{ObjectKey, Row};
pub use patience::HEARD_WITHIN;
pub use table::{CachedRow, Rows};

use crate::clock::HostClock;
use std::time::Duration;

/// `base` and up to a fifth more, so that many do not knock at once.
pub(crate) fn jittered(base: Duration, clock: &dyn HostClock) -> Duration {
    let random = clock.chance() % 1000;
    base.saturating_add(base / 5000 * u32::try_from(random).unwrap_or(0))
}

/// How long to wait after each failure in a row: half a second, doubled, at most half a minute.
#[derive(Debug)]
struct Backoff {
    failures: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(500);
    const MOST: Duration = Duration::from_secs(30);

    fn next(&mut self) -> Duration {
        let wait = Self::FIRST.saturating_mul(1 << self.failures.min(10)).min(Self::MOST);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_a_minute_and_begin_anew_after_a_success() {
        let mut backoff = Backoff { failures: 0 };
        let waits: Vec<u128> = (0..8).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        backoff.reset();
        assert_eq!(backoff.next(), Backoff::FIRST);
        let clock = crate::clock::SystemClock::new();
        for _ in 0..1000 {
            let spread = jittered(Backoff::MOST, &clock);
            assert!(spread >= Backoff::MOST && spread <= Backoff::MOST + Backoff::MOST / 5);
        }
    }
}
