//! How long a watch may be silent, and how long a request for a watch may stay unanswered.
//!
//! A server without changes sends a bookmark about once a minute. A connection that is open at this end alone (the
//! machine at the other end is gone, a firewall has forgotten it) delivers nothing, and nothing ends it. So a silent
//! watch is started again from where it was: for a live server that is one request, and its answer is a sign of life.

use super::Backoff;
use std::time::Duration;

/// A server that answers is heard within this time, whatever happened to the connection of a watch. Code that undoes
/// something because nothing was heard must wait longer.
pub const HEARD_WITHIN: Duration = Duration::from_secs(120);

/// For readers that check only now and then when something was last heard.
const LOOK: Duration = Duration::from_secs(5);

/// How long to wait for a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// For its next event, before the jitter.
    pub(super) silence: Duration,
    /// For its start. A first attempt may use another dead connection, so there is time for two.
    pub(super) open: Duration,
}

impl Patience {
    pub(super) const USUAL: Self = Self::within(HEARD_WITHIN);

    /// Chosen so that a server that answers is heard within this time, or within [`HEARD_WITHIN`] if that is less. For
    /// two minutes: 72 s of silence, 86.4 s with the jitter, and 12 s for each attempt.
    pub(super) const fn within(time: Duration) -> Self {
        let time = if time.as_millis() < HEARD_WITHIN.as_millis() { time } else { HEARD_WITHIN };
        Self { silence: parts_of_ten(time, 6), open: parts_of_ten(time, 1) }
    }

    /// The longest time without an event from a server that answers the second attempt.
    const fn longest(self) -> Duration {
        let pause = Backoff::FIRST;
        parts_of_ten(self.silence.saturating_add(pause), 12).saturating_add(self.open.saturating_mul(2))
    }
}

const _: () = assert!(
    Patience::USUAL.longest().saturating_add(LOOK).as_millis() <= HEARD_WITHIN.as_millis(),
    "a silent watch must be begun anew before anybody counts on its silence"
);

const fn parts_of_ten(time: Duration, parts: u32) -> Duration {
    match time.saturating_mul(parts).checked_div(10) {
        Some(time) => time,
        None => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_time_is_kept_and_a_longer_one_is_not_used_up() {
        let seconds = Duration::from_secs;
        assert_eq!(Patience::USUAL, Patience { silence: seconds(72), open: seconds(12) });
        // 1.2 x (72 + 0.5) + 2 x 12.
        assert_eq!(Patience::USUAL.longest(), seconds(111));
        assert_eq!(Patience::within(seconds(86_400)), Patience::USUAL);
        for term in [10, 30, 60, 119] {
            assert!(Patience::within(seconds(term)).longest() <= seconds(term), "{term}");
        }
    }
}
