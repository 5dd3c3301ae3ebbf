//! What wakes the control loop.

use super::lock;
use crate::time::Deadline;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Notified by threads that have something for the control loop.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Wakeup {
    pub(crate) fn notify(&self) {
        let mut count = lock(&self.count);
        *count = count.wrapping_add(1);
        self.changed.notify_all();
    }

    /// How often it was notified.
    pub(crate) fn count(&self) -> u64 {
        *lock(&self.count)
    }

    /// Waits until the count differs from `before`, at most until `until`.
    pub(crate) fn wait(&self, before: u64, until: Deadline) {
        let mut count = lock(&self.count);
        while *count == before {
            let left = until.left();
            if left == Duration::ZERO {
                return;
            }
            count = self.changed.wait_timeout(count, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
