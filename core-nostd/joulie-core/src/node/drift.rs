//! Handles a limit that somebody else changes: counts the changes, restores our limit with growing waits, and stops
//! after a number of them.
//!
//! ```text
//!           moved                       moved, `give_up` times
//! Calm ───────────▶ Contested{moves} ───────────────────────▶ Yielded
//!  ▲ put back at once  │  put back after a wait that doubles      │  put back once every `truce`
//!  └──── not moved for a `truce` ──────────────────────────────────┘  (two of them after yielding)
//! ```
//!
//! Only a harmful change is contested: a limit above ours, or below the node's own floor. A limit that somebody
//! lowered (a thermal daemon, a board controller in an emergency) is accepted: to raise it again would defeat their
//! protection.

use super::backoff::Backoff;
use core::fmt;
use power_units::{Micros, Stamp};

/// How long and how often to contest a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriftLaw {
    backoff: Backoff,
    give_up: u32,
    truce: Micros,
}

/// Whether somebody else changes a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// Nobody changes it.
    Calm,
    /// Somebody changed it, and we restore it each time.
    Contested {
        /// How often.
        moves: u32,
        /// When it was last changed.
        last: Stamp,
    },
    /// Somebody changes it again and again, and we no longer restore it each time.
    Yielded {
        /// When the last time.
        last: Stamp,
    },
}

/// The number of moves is zero, or the truce is not longer than the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriftError;

impl fmt::Display for DriftError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected to give up after at least one move, and a truce longer than the longest wait")
    }
}

impl core::error::Error for DriftError {}

/// When to restore a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PutBack {
    /// The earliest time.
    pub(crate) at: Stamp,
    /// How often it was restored before without lasting.
    pub(crate) failures: u32,
}

impl DriftLaw {
    /// Restores after `give_up` changes with the waits of `backoff`, and after that once every `truce`.
    ///
    /// # Errors
    /// When it would never restore, or when the truce is not longer than the longest wait.
    pub fn new(backoff: Backoff, give_up: u32, truce: Micros) -> Result<Self, DriftError> {
        let valid = give_up > 0 && truce > backoff.after(u32::MAX);
        if valid { Ok(Self { backoff, give_up, truce }) } else { Err(DriftError) }
    }

    pub(crate) const fn truce(self) -> Micros {
        self.truce
    }
}

impl Drift {
    /// The limit was not changed until now.
    #[must_use]
    pub(crate) fn quiet(self, law: DriftLaw, now: Stamp) -> Self {
        match self {
            Self::Calm => Self::Calm,
            Self::Contested { last, .. } => match now.since(last) {
                Some(quiet) if quiet > law.truce => Self::Calm,
                Some(_) | None => self,
            },
            Self::Yielded { last } => match now.since(last) {
                Some(quiet) if quiet > law.truce + law.truce => Self::Calm,
                Some(_) | None => self,
            },
        }
    }

    /// The limit was changed.
    #[must_use]
    pub(crate) fn moved(self, law: DriftLaw, now: Stamp) -> (Self, PutBack) {
        let yielded = (Self::Yielded { last: now }, PutBack { at: now + law.truce, failures: law.give_up });
        match self {
            Self::Calm => (Self::Contested { moves: 1, last: now }, PutBack { at: now, failures: 0 }),
            Self::Contested { moves, .. } if moves >= law.give_up => yielded,
            Self::Contested { moves, .. } => {
                let contested = Self::Contested { moves: moves.saturating_add(1), last: now };
                (contested, PutBack { at: now + law.backoff.after(moves), failures: moves })
            }
            Self::Yielded { .. } => yielded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Stamp {
        Stamp::new(Micros::new(micros))
    }

    fn law() -> DriftLaw {
        let backoff = Backoff::new(Micros::new(10), Micros::new(40)).unwrap();
        DriftLaw::new(backoff, 4, Micros::new(1_000)).unwrap()
    }

    #[test]
    fn a_limit_is_put_back_with_growing_waits_and_not_forever() {
        let mut drift = Drift::Calm;
        let mut waits = std::vec::Vec::new();
        for move_at in [100, 200, 300, 400, 500, 2_000] {
            let (next, back) = drift.quiet(law(), at(move_at)).moved(law(), at(move_at));
            drift = next;
            waits.push((back.at.since(at(move_at)).unwrap().get(), back.failures));
        }
        assert_eq!(waits, [(0, 0), (10, 1), (20, 2), (40, 3), (1_000, 4), (1_000, 4)]);
        assert_eq!(drift, Drift::Yielded { last: at(2_000) });
    }

    #[test]
    fn every_state_meets_every_event() {
        let contested = |moves, last| Drift::Contested { moves, last: at(last) };
        let yielded = |last| Drift::Yielded { last: at(last) };
        // State, time, after a quiet step, after a move.
        for (state, now, quiet, moved) in [
            (Drift::Calm, 500, Drift::Calm, contested(1, 500)),
            (contested(1, 100), 1_100, contested(1, 100), contested(2, 1_100)),
            (contested(1, 100), 1_101, Drift::Calm, contested(2, 1_101)),
            (contested(3, 100), 500, contested(3, 100), contested(4, 500)),
            (contested(4, 100), 500, contested(4, 100), yielded(500)),
            (contested(2, 100), 99, contested(2, 100), contested(3, 99)),
            (yielded(100), 2_100, yielded(100), yielded(2_100)),
            (yielded(100), 2_101, Drift::Calm, yielded(2_101)),
            (yielded(100), 99, yielded(100), yielded(99)),
        ] {
            assert_eq!(state.quiet(law(), at(now)), quiet, "{state:?} at {now}");
            assert_eq!(state.moved(law(), at(now)).0, moved, "{state:?} at {now}");
        }
    }

    #[test]
    fn a_law_that_never_answers_is_refused() {
        let backoff = Backoff::new(Micros::new(10), Micros::new(40)).unwrap();
        assert_eq!(DriftLaw::new(backoff, 0, Micros::new(1_000)), Err(DriftError));
        assert_eq!(DriftLaw::new(backoff, 1, Micros::new(40)), Err(DriftError));
    }
}
