//! The node's clock: one monotonic time for all threads.

use power_hal::Clock;
use power_units::{Micros, Stamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A source of time. Clones return the same time.
#[derive(Clone, Debug)]
pub struct Time(Source);

#[derive(Clone, Debug)]
enum Source {
    Monotonic { start: Instant, speed: u32 },
    Manual(Arc<AtomicU64>),
}

/// A point in real time until which something is waited for, independent of the node's clock: other threads and the
/// hardware continue when that clock stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline(Instant);

#[expect(clippy::disallowed_methods, reason = "this is where a thread's own waits meet the machine's clock")]
fn instant() -> Instant {
    Instant::now()
}

impl Deadline {
    pub(crate) fn after(wait: Duration) -> Self {
        Self(instant() + wait)
    }

    pub(crate) fn left(self) -> Duration {
        self.0.saturating_duration_since(instant())
    }

    pub(crate) fn is_over(self) -> bool {
        self.left() == Duration::ZERO
    }

    /// The next deadline of a series; missed ones are skipped.
    pub(crate) fn next(self, period: Duration) -> Self {
        Self((self.0 + period).max(instant()))
    }
}

impl Time {
    /// The machine's monotonic time from now on.
    #[must_use]
    pub fn real() -> Self {
        Self(Source::Monotonic { start: instant(), speed: 1 })
    }

    /// A time that runs `speed` times as fast, on virtual hardware that does the same. Zero counts as one.
    #[must_use]
    pub fn faster(speed: u32) -> Self {
        Self(Source::Monotonic { start: instant(), speed: speed.max(1) })
    }

    /// A time that stands still until it is [advanced](Self::advance). Each reading adds a microsecond, so that no two
    /// readings have the same stamp.
    #[must_use]
    pub fn manual() -> Self {
        Self(Source::Manual(Arc::default()))
    }

    /// Advances a manual time; another time advances by itself.
    pub fn advance(&self, by: Micros) {
        if let Source::Manual(now) = &self.0 {
            now.fetch_add(by.get(), Ordering::Relaxed);
        }
    }

    /// The real duration of a span of this time.
    pub(crate) fn lasting(&self, span: Micros) -> Duration {
        let real = Duration::from_micros(span.get());
        match self.0 {
            Source::Monotonic { speed, .. } => real / speed,
            Source::Manual(_) => real,
        }
    }
}

impl Clock for Time {
    fn now(&self) -> Stamp {
        let micros = match &self.0 {
            Source::Monotonic { start, speed } => {
                let elapsed = start.elapsed().as_micros().saturating_mul(u128::from(*speed));
                u64::try_from(elapsed).unwrap_or(u64::MAX)
            }
            Source::Manual(now) => now.fetch_add(1, Ordering::Relaxed),
        };
        Stamp::new(Micros::new(micros))
    }
}
