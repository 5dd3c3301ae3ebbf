//! Keeps the outcome of a desired state steady while a node divides its grant anew.
//!
//! Every second the node may move watts from one of its devices to another. Its limits are then on their way for a moment,
//! and each device is held to other watts than before, but the grant is kept to all the time and the verdict stays. That
//! is not worth a write for each move.

use super::outcome::{Outcome, Why};
use super::wanted::Wanted;
use crate::machine::{LeaseState, View};
use host_kit::clock::Mono;
use node_kit::Desire;
use std::time::Duration;

/// An outcome with the same verdict is told anew no more often than this.
const TOLD_APART: Duration = Duration::from_secs(30);
/// For so long limits may be on their way before that is told.
const ON_ITS_WAY: Duration = Duration::from_secs(10);

/// What was told last of a node with a grant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steady {
    last: Option<Last>,
}

#[derive(Clone, Debug)]
struct Last {
    wanted: Wanted,
    desire: Desire,
    lease: LeaseState,
    outcome: Outcome,
    told: Mono,
    /// When the limits were last read back with this verdict.
    settled: Mono,
}

impl Steady {
    /// The outcome to tell.
    pub(crate) fn of(&mut self, outcome: Outcome, wanted: &Wanted, view: &View, now: Mono) -> Outcome {
        if view.desire.grant.is_none() {
            self.last = None;
            return outcome;
        }
        let why = outcome.verdict.as_ref().map(|verdict| verdict.why);
        if let Some(last) = &mut self.last
            && (&last.wanted, last.desire, last.lease) == (wanted, view.desire, view.lease)
            && last.outcome.verdict.as_ref().is_some_and(|verdict| is_settled(verdict.why))
        {
            let is_same = why == last.outcome.verdict.as_ref().map(|verdict| verdict.why);
            if is_same {
                last.settled = now;
            }
            let keeps = match why {
                Some(Why::Pending) => now.since(last.settled) < ON_ITS_WAY,
                _ => is_same && now.since(last.told) < TOLD_APART,
            };
            if keeps {
                return last.outcome.clone();
            }
        }
        let (desire, lease) = (view.desire, view.lease);
        let (wanted, told) = (wanted.clone(), outcome.clone());
        self.last = Some(Last { wanted, desire, lease, outcome: told, told: now, settled: now });
        outcome
    }
}

/// Whether the limits of all devices were read back.
const fn is_settled(why: Why) -> bool {
    match why {
        Why::Enforced | Why::Clamped | Why::Unmeasured => true,
        Why::NoCap
        | Why::Pending
        | Why::Exceeded
        | Why::ClampedAbove
        | Why::Blocked
        | Why::Failed
        | Why::Malformed
        | Why::LeaseExpired
        | Why::Deselected
        | Why::SimulateOnly => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::outcome::Verdict;
    use crate::front::receipt::tests::{packages, view};
    use crate::front::wanted::Unknown;

    fn outcome(why: Why, message: &str) -> Outcome {
        let verdict = Verdict { why, message: message.to_owned(), generation: None };
        Outcome { verdict: Some(verdict), ..Outcome::default() }
    }

    #[test]
    fn watts_that_move_between_devices_are_told_now_and_then_and_a_new_verdict_at_once() {
        let (wanted, one) = (Wanted::Unknown(Unknown::NotSynced), view(1, packages(&[])));
        let mut it = Steady::default();
        let mut say = |view: &View, why, message: &str, second| {
            let told = it.of(outcome(why, message), &wanted, view, Mono::at(Duration::from_secs(second)));
            told.verdict.unwrap().message
        };
        assert_eq!(say(&one, Why::Pending, "first", 0), "first");
        assert_eq!(say(&one, Why::Clamped, "300 W", 1), "300 W");
        assert_eq!(say(&one, Why::Pending, "moving", 2), "300 W");
        assert_eq!(say(&one, Why::Clamped, "301 W", 3), "300 W");
        assert_eq!(say(&one, Why::Clamped, "302 W", 31), "302 W", "30 s after it was told");
        assert_eq!(say(&one, Why::Exceeded, "too much", 32), "too much");
        assert_eq!(say(&one, Why::Clamped, "303 W", 33), "303 W");
        assert_eq!(say(&one, Why::Pending, "moving", 42), "303 W");
        assert_eq!(say(&one, Why::Pending, "it hangs", 43), "it hangs", "10 s after it was read back");
        assert_eq!(say(&one, Why::Clamped, "304 W", 44), "304 W");
        // Another grant is another matter.
        assert_eq!(say(&view(2, packages(&[])), Why::Pending, "second", 45), "second");
    }
}
