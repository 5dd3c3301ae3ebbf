//! A histogram of durations made of atomics: an observer never waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The bounds of upstream's histograms, in seconds. One more bucket takes what is above the last bound.
pub(super) const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// How long something took.
#[derive(Debug, Default)]
pub(super) struct Latency {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// A histogram as it is read: sum, count, and the buckets with their bounds.
pub(super) struct Reading {
    pub(super) sum: f64,
    pub(super) count: u64,
    pub(super) buckets: Vec<(f64, u64)>,
}

impl Latency {
    pub(super) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Reading {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let micros = self.micros.load(Ordering::Relaxed);
        let sum = Duration::from_micros(micros).as_secs_f64();
        Reading { sum, count: buckets.iter().map(|(_, count)| count).sum(), buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_on_a_bound_belongs_below_it() {
        let latency = Latency::default();
        for millis in [5, 6, 10_000, 10_001] {
            latency.observe(Duration::from_millis(millis));
        }
        let Reading { sum, count, buckets } = latency.read();
        assert_eq!(count, 4);
        assert!((sum - 20.012).abs() < 1e-9);
        let filled: Vec<_> = buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.005, 1), (0.01, 1), (10.0, 1), (f64::INFINITY, 1)]);
    }
}
