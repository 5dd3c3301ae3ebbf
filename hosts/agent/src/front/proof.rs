//! Checks whether the measured power stays within a cap that is in force.
//!
//! A limit that reads back correctly but is not kept (firmware that ignores it, a meter of another machine) must not
//! count as enforced. A single reading above the cap proves nothing: limits act on a mean over a window, and the first
//! reading after a change still covers the time before it.

use crate::machine::Drawn;
use host_kit::clock::Mono;
use power_units::{Percent, Role, Watts};
use std::time::Duration;

/// What the readings show about a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measured {
    /// No more than the cap is drawn.
    Within,
    /// There is no evidence yet, neither for the cap nor against it.
    Waiting,
    /// The power is not known.
    Unknown,
    /// More is drawn, for longer than a limit needs to take effect.
    Above,
}

/// The memory about one cap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proof {
    cap: Option<Watts>,
    seen_within: bool,
    above_since: Option<Mono>,
    blind_since: Option<Mono>,
}

/// The closed loop's own band, which is more than the error of any package's meter.
const TOLERANCE: Percent = Percent::from_int(103);

impl Proof {
    /// Judges the power that is drawn under `cap`. `patience` is how long a limit may need to take effect.
    pub(crate) fn look(&mut self, cap: Watts, drawn: Drawn, now: Mono, patience: Duration) -> Measured {
        if self.cap != Some(cap) {
            *self = Self { cap: Some(cap), ..Self::default() };
        }
        let over = |since: Mono| now.since(since) >= patience;
        match drawn {
            Drawn::Is(watts) => {
                self.blind_since = None;
                let most = cap.scale(TOLERANCE.to_ratio(Role::Demand), Role::Demand);
                if watts <= most {
                    (self.seen_within, self.above_since) = (true, None);
                    return Measured::Within;
                }
                if over(*self.above_since.get_or_insert(now)) {
                    self.seen_within = false;
                    return Measured::Above;
                }
                if self.seen_within { Measured::Within } else { Measured::Waiting }
            }
            Drawn::Unmetered => Measured::Unknown,
            Drawn::Unknown => {
                if over(*self.blind_since.get_or_insert(now)) {
                    self.seen_within = false;
                    return Measured::Unknown;
                }
                if self.seen_within { Measured::Within } else { Measured::Waiting }
            }
        }
    }

    /// Forgets the cap: there is none any more.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn at(second: u64) -> Mono {
        Mono::at(Duration::from_secs(second))
    }

    fn draws(watts: i32) -> Drawn {
        Drawn::Is(Watts::from_int(watts))
    }

    #[test]
    fn a_cap_is_earned_by_the_first_reading_within_it_and_lost_by_lasting_excess() {
        let (mut proof, cap) = (Proof::default(), Watts::from_int(200));
        let mut look = |second, drawn| proof.look(cap, drawn, at(second), PATIENCE);
        assert_eq!(look(0, draws(300)), Measured::Waiting, "of the time before the cap");
        assert_eq!(look(1, draws(206)), Measured::Within, "3 % above is within");
        assert_eq!(look(2, draws(207)), Measured::Within, "one reading is none");
        assert_eq!(look(6, draws(207)), Measured::Within);
        assert_eq!(look(7, draws(207)), Measured::Above);
        assert_eq!(look(8, draws(150)), Measured::Within);
    }

    #[test]
    fn nobody_knows_is_not_within() {
        let (mut proof, cap) = (Proof::default(), Watts::from_int(200));
        assert_eq!(proof.look(cap, Drawn::Unmetered, at(0), PATIENCE), Measured::Unknown);
        assert_eq!(proof.look(cap, Drawn::Unknown, at(0), PATIENCE), Measured::Waiting);
        assert_eq!(proof.look(cap, Drawn::Unknown, at(5), PATIENCE), Measured::Unknown);
        assert_eq!(proof.look(cap, draws(100), at(6), PATIENCE), Measured::Within);
        assert_eq!(proof.look(cap, Drawn::Unknown, at(7), PATIENCE), Measured::Within);
        let lower = Watts::from_int(100);
        assert_eq!(proof.look(lower, Drawn::Unknown, at(8), PATIENCE), Measured::Waiting, "another cap");
    }
}
