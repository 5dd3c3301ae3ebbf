//! The bell of the control loop.

use super::lock;
use crate::time::Deadline;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Rung by whoever has something for the control loop.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<u64>,
    heard: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        let mut rung = lock(&self.rung);
        *rung = rung.wrapping_add(1);
        self.heard.notify_all();
    }

    pub(crate) fn rung(&self) -> u64 {
        *lock(&self.rung)
    }

    /// Waits until it was rung since `before`, at most until `until`.
    pub(crate) fn wait(&self, before: u64, until: Deadline) {
        let mut rung = lock(&self.rung);
        while *rung == before {
            let left = until.left();
            if left == Duration::ZERO {
                return;
            }
            rung = self.heard.wait_timeout(rung, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
