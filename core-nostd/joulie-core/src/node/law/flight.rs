//! A command between the decision and its outcome.
//!
//! ```text
//!            ask                    Unknown
//!   Landed ───────► InFlight ◄──────────┐
//!     ▲                │  └─────────────┘
//!     └────────────────┘
//!      Applied, Refused
//! ```
//!
//! An outcome that is not about the command in flight (late, twice, out of order) changes nothing.

use super::{Command, CommandOutcome};
use power_units::Stamp;

/// The command in effect, and the command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Actuator {
    in_effect: Option<Command>,
    flight: Flight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    Landed,
    InFlight { asked: Command, at: Stamp },
}

/// What the facts of a step report about the command in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landing {
    /// There is none in flight.
    Idle,
    /// It was decided at this time and is in effect now.
    Applied { at: Stamp },
    /// It was refused; nothing has changed.
    Refused,
    /// It is still on its way.
    Pending,
}

impl Actuator {
    pub(crate) const fn new(found: Option<Command>) -> Self {
        Self { in_effect: found, flight: Flight::Landed }
    }

    pub(crate) const fn in_effect(&self) -> Option<Command> {
        self.in_effect
    }

    pub(crate) fn ask(&mut self, asked: Command, at: Stamp) {
        self.flight = Flight::InFlight { asked, at };
    }

    pub(crate) fn settle(&mut self, outcome: CommandOutcome) -> Landing {
        match (self.flight, outcome) {
            (Flight::Landed, _) => Landing::Idle,
            (Flight::InFlight { asked, at }, CommandOutcome::Applied { asked: done, in_effect })
                if done == asked =>
            {
                *self = Self { in_effect: Some(in_effect), flight: Flight::Landed };
                Landing::Applied { at }
            }
            (Flight::InFlight { asked, .. }, CommandOutcome::Refused { asked: refused })
                if refused == asked =>
            {
                self.flight = Flight::Landed;
                Landing::Refused
            }
            (
                Flight::InFlight { .. },
                CommandOutcome::Unknown | CommandOutcome::Applied { .. } | CommandOutcome::Refused { .. },
            ) => Landing::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::{KiloHertz, Micros};

    const ASKED: Command = Command::MeanFrequency(KiloHertz::from_int(2_000_000));
    const OTHER: Command = Command::MeanFrequency(KiloHertz::from_int(1_900_000));
    const AT: Stamp = Stamp::new(Micros::new(7));

    fn in_flight() -> Actuator {
        let mut actuator = Actuator::new(Some(OTHER));
        actuator.ask(ASKED, AT);
        actuator
    }

    #[test]
    fn every_flight_meets_every_outcome() {
        let about = |asked| {
            [
                CommandOutcome::Unknown,
                CommandOutcome::Applied { asked, in_effect: asked },
                CommandOutcome::Refused { asked },
            ]
        };
        let mut seen = std::vec::Vec::new();
        for outcome in about(ASKED).into_iter().chain(about(OTHER)) {
            assert_eq!(Actuator::new(Some(OTHER)).settle(outcome), Landing::Idle, "{outcome:?}");
            let mut actuator = in_flight();
            seen.push((actuator.settle(outcome), actuator.in_effect()));
        }
        let still = (Landing::Pending, Some(OTHER));
        let applied = (Landing::Applied { at: AT }, Some(ASKED));
        assert_eq!(seen, [still, applied, (Landing::Refused, Some(OTHER)), still, still, still]);
    }

    #[test]
    fn what_was_read_back_is_in_effect_and_not_what_was_asked() {
        let mut actuator = in_flight();
        actuator.settle(CommandOutcome::Applied { asked: ASKED, in_effect: OTHER });
        assert_eq!(actuator.in_effect(), Some(OTHER));
    }

    #[test]
    fn an_outcome_that_comes_twice_counts_once() {
        let mut actuator = in_flight();
        let outcome = CommandOutcome::Applied { asked: ASKED, in_effect: ASKED };
        assert_eq!(actuator.settle(outcome), Landing::Applied { at: AT });
        assert_eq!(actuator.settle(outcome), Landing::Idle);
    }
}
