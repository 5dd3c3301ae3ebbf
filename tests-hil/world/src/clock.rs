//! The clock of one process: it follows the virtual time of the runtime, and its random numbers come from the seed.

use crate::draw::Draw;
use host_kit::clock::{HostClock, Mono};
use jiff::{SignedDuration, Timestamp};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The wall-clock time at the start of an hour: 2026-01-01 00:00:00 UTC.
const MIDNIGHT: i64 = 1_767_225_600;

/// The wall-clock time for a time since the start of the hour.
pub(crate) fn wall(since: Duration) -> Timestamp {
    let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
    Timestamp::constant(MIDNIGHT, 0).saturating_add(since).unwrap_or(Timestamp::MAX)
}

/// A process's clock. Its monotonic time starts with the process, because monotonic times of different processes are
/// not comparable.
pub(crate) struct Virtual {
    /// The start of the hour.
    hour: Instant,
    began: Instant,
    chance: Mutex<Draw>,
}

impl Virtual {
    /// The clock of a process that starts now.
    pub(crate) fn new(hour: Instant, chance: Draw) -> Self {
        Self { hour, began: Instant::now(), chance: Mutex::new(chance) }
    }
}

impl HostClock for Virtual {
    fn mono(&self) -> Mono {
        Mono::at(self.began.elapsed())
    }

    fn wall(&self) -> Timestamp {
        wall(self.hour.elapsed())
    }

    fn chance(&self) -> u64 {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).bits()
    }
}
