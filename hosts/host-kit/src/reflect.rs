//! Watches that keep trimmed rows.
//!
//! There is one [`Rows`] for each kind. It keeps of every object only the [`Row`] that the program needs. Objects are
//! trimmed one at a time as they arrive, so that memory holds rows and not objects.
//!
//! The content of objects is not trusted: an object that does not become a row is counted, named in the log and
//! skipped, and the watch continues. If the same object had a valid row before, that row stays, with the time since
//! which it is stale. An old value with its age is worth more than none, and the reader decides whether to use it.
//!
//! For a kind with too many objects to keep, [`follow`] passes on the events instead.

mod by_hand;
mod driver;
mod feed;
mod news;
mod object;
mod patience;
mod served;
mod table;

pub use by_hand::{ByHand, by_hand};
pub use driver::{Reflections, WatchSource, follow, reflect, reflect_within};
pub use feed::{Feed, ReflectEvent};
pub use news::{RowChange, RowChanges};
pub use object::{ObjectKey, Row};
pub use patience::HEARD_WITHIN;
pub use served::{Served, once_served};
pub use table::{CachedRow, Rows};

use crate::clock::HostClock;
use std::time::Duration;

/// Returns `base` and up to a fifth more, so that many clients do not send at once.
pub(crate) fn jittered(base: Duration, clock: &dyn HostClock) -> Duration {
    let random = clock.chance() % 1000;
    base.saturating_add(base / 5000 * u32::try_from(random).unwrap_or(0))
}

/// How long to wait after each failure in a row: half a second, doubled each time, at most half a minute.
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
