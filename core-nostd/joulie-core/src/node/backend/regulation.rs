//! What the backend selection learns from a step of the closed loop.

use crate::node::law::{Decision, PowerReading, Reach};
use power_hal::ErrorKind;
use power_units::Watts;

/// The reading on which a step of the closed loop was based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regulation {
    /// A fresh reading, and the cap can be kept.
    Keeping,
    /// A fresh reading: the node draws this although everything is throttled.
    AtBound {
        /// What it draws.
        drawn: Watts,
    },
    /// No reading: the loop holds its throttle or throttles everything.
    Blind(ErrorKind),
}

impl Regulation {
    /// Classifies a law's decision on a reading. A reading that the law did not act on counts as
    /// none.
    #[must_use]
    pub fn of(power: PowerReading, decision: &Decision) -> Self {
        match (power, decision.observed) {
            (PowerReading::Fresh { .. }, Some(drawn)) if decision.reach == Reach::NotAchievable => {
                Self::AtBound { drawn }
            }
            (PowerReading::Fresh { .. }, Some(_)) => Self::Keeping,
            (PowerReading::Missing | PowerReading::Stale, _) => Self::Blind(ErrorKind::Timeout),
            (PowerReading::Impossible, _) | (PowerReading::Fresh { .. }, None) => {
                Self::Blind(ErrorKind::BadData)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::law::{Hold, LawAction};
    use power_units::Micros;

    fn decision(observed: Option<i32>, reach: Reach) -> Decision {
        Decision {
            action: LawAction::Hold(Hold::Steady),
            command: None,
            in_effect: None,
            observed: observed.map(Watts::from_int),
            smoothed: None,
            counts: None,
            reach,
        }
    }

    #[test]
    fn a_loop_without_a_reading_is_blind_whatever_it_decided() {
        // Fix list agent C2: a step without a reading must not count as a successful one.
        let fresh = PowerReading::Fresh { watts: Watts::from_int(300), over: Micros::ZERO };
        for reach in [Reach::Achievable, Reach::NotAchievable, Reach::Unknown] {
            for (power, kind) in [
                (PowerReading::Missing, ErrorKind::Timeout),
                (PowerReading::Stale, ErrorKind::Timeout),
                (PowerReading::Impossible, ErrorKind::BadData),
                (fresh, ErrorKind::BadData),
            ] {
                assert_eq!(
                    Regulation::of(power, &decision(None, reach)),
                    Regulation::Blind(kind),
                    "{power:?}"
                );
            }
        }
        let drawn = Watts::from_int(300);
        assert_eq!(Regulation::of(fresh, &decision(Some(300), Reach::Achievable)), Regulation::Keeping);
        assert_eq!(
            Regulation::of(fresh, &decision(Some(300), Reach::NotAchievable)),
            Regulation::AtBound { drawn }
        );
    }
}
