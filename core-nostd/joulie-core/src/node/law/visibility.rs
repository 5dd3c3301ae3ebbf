//! Counts how long a law has been without a reading.
//!
//! ```text
//!              no reading              no reading, BLIND_STEPS_HELD times held
//!   Seeing ──────────────► Dim{steps} ───────────────────────────────────────► Blind
//!     ▲  ▲      fresh          │                                                │
//!     │  └─────────────────────┘                    fresh: after a gap          │
//!     └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A meter that is known to have stopped makes it blind at once.
//!
//! A law that has never had a reading starts as dim, and its first reading counts as one after a gap.

use super::{BLIND_STEPS_HELD, PowerReading};
use power_units::{Micros, Watts};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// There has been no reading yet.
    Unseen { steps: u8 },
    /// The last step had a reading.
    Seeing,
    /// This many steps had no reading.
    Dim { steps: u8 },
    /// There has been no reading for longer than a law holds.
    Blind,
}

/// The reading as one step sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// A reading. After a gap, the state from earlier readings is void.
    Fresh { watts: Watts, over: Micros, after_gap: bool },
    /// No reading, but not for long.
    Dark,
    /// No reading for so long that the law must move to the safe side.
    Lost,
}

impl Visibility {
    pub(crate) const START: Self = Self::Unseen { steps: 0 };

    pub(crate) fn look(&mut self, reading: PowerReading) -> Look {
        if let Some((watts, over)) = usable(reading) {
            let after_gap = match *self {
                Self::Unseen { .. } | Self::Blind => true,
                Self::Seeing | Self::Dim { .. } => false,
            };
            *self = Self::Seeing;
            return Look::Fresh { watts, over, after_gap };
        }
        *self = match *self {
            Self::Seeing => Self::Dim { steps: 1 },
            Self::Dim { steps } if steps < BLIND_STEPS_HELD => Self::Dim { steps: steps.saturating_add(1) },
            Self::Unseen { steps } if steps < BLIND_STEPS_HELD => {
                Self::Unseen { steps: steps.saturating_add(1) }
            }
            Self::Dim { .. } | Self::Unseen { .. } | Self::Blind => Self::Blind,
        };
        match *self {
            Self::Blind => Look::Lost,
            Self::Seeing | Self::Dim { .. } | Self::Unseen { .. } => Look::Dark,
        }
    }

    /// The meter is known to have stopped: there is nothing to wait for.
    pub(crate) fn lose(&mut self) -> Look {
        *self = Self::Blind;
        Look::Lost
    }
}

/// A running machine draws something: a value of zero or less is as impossible as a value that the
/// sensor itself calls impossible.
fn usable(reading: PowerReading) -> Option<(Watts, Micros)> {
    match reading {
        PowerReading::Fresh { watts, over } if watts > Watts::ZERO => Some((watts, over)),
        PowerReading::Fresh { .. }
        | PowerReading::Missing
        | PowerReading::Stale
        | PowerReading::Impossible => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: PowerReading = PowerReading::Fresh { watts: Watts::from_int(200), over: Micros::ZERO };
    const fn seen(after_gap: bool) -> Look {
        Look::Fresh { watts: Watts::from_int(200), over: Micros::ZERO, after_gap }
    }

    #[test]
    fn three_steps_are_held_and_the_fourth_is_lost() {
        let dark = |watts| PowerReading::Fresh { watts, over: Micros::ZERO };
        for missing in [
            PowerReading::Missing,
            PowerReading::Stale,
            PowerReading::Impossible,
            dark(Watts::ZERO),
            dark(Watts::MIN),
        ] {
            for start in [Visibility::START, Visibility::Seeing] {
                let mut visibility = start;
                let looks: [Look; 6] = [(); 6].map(|()| visibility.look(missing));
                use Look::{Dark, Lost};
                assert_eq!(looks, [Dark, Dark, Dark, Lost, Lost, Lost], "{missing:?}");
            }
        }
    }

    #[test]
    fn a_short_loss_keeps_what_was_seen_and_a_long_one_voids_it() {
        for (lost, after_gap) in [(1, false), (3, false), (4, true), (300, true)] {
            let mut visibility = Visibility::Seeing;
            for _ in 0..lost {
                visibility.look(PowerReading::Missing);
            }
            assert_eq!(visibility.look(FRESH), seen(after_gap), "{lost}");
            assert_eq!(visibility.look(FRESH), seen(false));
        }
        let mut unseen = Visibility::START;
        assert_eq!(unseen.look(FRESH), seen(true));
    }
}
