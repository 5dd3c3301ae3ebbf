//! Whether a package keeps to its limit. A limit that reads back and is not kept is no limiter: the closed loop takes
//! over, and the limit is tried from time to time, below what is drawn, so that a trial raises nothing.
//!
//! ```text
//!           above the limit       for three minutes            after a wait, and while the loop holds
//!   Kept ────────────────▶ Exceeding ───────────▶ Broken ────────────────────────────────▶ Trial
//!    ▲  ◀──────────────────── within               ▲                                         │
//!    │                                             └── above it, or the load has changed ────┤
//!    └────────────────────────── the power follows the lowered limit ────────────────────────┘
//! ```
//!
//! A package that says that its limit throttles it keeps to it as far as it can. A package that draws an unknown amount
//! shows nothing.

use crate::node::cap::ResolvedCap;
use power_units::{Micros, Stamp, Watts};

/// For how long more than the limit must be drawn: a limit holds a mean over a window, and one of 28 s that is exceeded
/// by a twentieth acts after 85 s.
const BROKEN_AFTER: Micros = Micros::new(180_000_000);
/// How long a lowered limit may take to act, and how long a trial lasts.
const ACTS_WITHIN: Micros = Micros::new(5_000_000);
const TRIAL: Micros = Micros::new(15_000_000);
/// The wait before the first trial. Each failure doubles it, six times at most.
const FIRST_WAIT: u64 = 60_000_000;
const DOUBLED_MAX: u8 = 6;
/// More than 1/16 above the limit exceeds it; a meter has an error of a few percent.
const EXCESS_SHIFT: u32 = 4;
/// A trial lowers the limit to 7/8 of what is drawn, and a kept one is followed to 1/32 above it and 1/8 below.
const LOWER_SHIFT: u32 = 3;
const FOLLOWS_SHIFT: u32 = 5;

/// The state of a package's obedience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obedience {
    /// Nothing speaks against it; the limit was given back to this often.
    Kept { relapses: u8 },
    /// More is drawn, since then.
    Exceeding { since: Stamp, relapses: u8 },
    /// The limit is not kept. It is tried again from then on.
    Broken { trial_at: Stamp, relapses: u8 },
    /// The limit is lowered to see whether the power follows. `before` was in force before.
    Trial { since: Stamp, limit: Watts, before: Watts, relapses: u8 },
}

/// What a period has shown of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draw {
    pub(super) watts: Watts,
    /// Whether its power limit held it back, as it says itself.
    pub(super) throttled: bool,
}

/// The limit under watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    /// What is in force, and since when.
    pub(super) limit: Watts,
    pub(super) since: Stamp,
    /// The least that it can be.
    pub(super) least: Watts,
    /// Whether the closed loop holds the node.
    pub(super) looped: bool,
}

impl Obedience {
    pub(super) const START: Self = Self::Kept { relapses: 0 };

    /// Whether the limit does not count.
    pub(super) const fn is_broken(self) -> bool {
        matches!(self, Self::Broken { .. } | Self::Trial { .. })
    }

    /// The target of the limit: lower in a trial.
    pub(super) fn tried(self, target: ResolvedCap) -> ResolvedCap {
        match self {
            Self::Trial { limit, .. } if limit < target.effective() => target.standing_at(limit),
            Self::Kept { .. } | Self::Exceeding { .. } | Self::Broken { .. } | Self::Trial { .. } => target,
        }
    }

    /// What was in force before the trial. A cap that is derived from the limit in force must not follow a trial down.
    pub(super) const fn before(self) -> Option<Watts> {
        match self {
            Self::Trial { before, .. } => Some(before),
            Self::Kept { .. } | Self::Exceeding { .. } | Self::Broken { .. } => None,
        }
    }

    /// Takes in a period. A limit that is not in force is not watched.
    pub(super) fn after(self, now: Stamp, draw: Draw, watched: Option<Watched>) -> Self {
        let Some(watched) = watched else {
            return match self {
                Self::Kept { relapses } | Self::Exceeding { relapses, .. } => Self::Kept { relapses },
                Self::Broken { .. } => self,
                // The order for the trial is on its way, or was refused.
                Self::Trial { since, relapses, .. } if lasts(now, since) > TRIAL => {
                    Self::broken(now, relapses)
                }
                Self::Trial { .. } => self,
            };
        };
        let exceeds = !draw.throttled && draw.watts > above(watched.limit, EXCESS_SHIFT);
        match self {
            Self::Kept { relapses } if exceeds => Self::Exceeding { since: now, relapses },
            Self::Kept { .. } => self,
            Self::Exceeding { relapses, .. } if !exceeds => Self::Kept { relapses },
            // Another limit has the whole time again.
            Self::Exceeding { since, relapses } if since < watched.since => {
                Self::Exceeding { since: watched.since, relapses }
            }
            Self::Exceeding { since, relapses } if lasts(now, since) >= BROKEN_AFTER => {
                Self::broken(now, relapses)
            }
            Self::Exceeding { .. } => self,
            Self::Broken { trial_at, relapses } if watched.looped && now >= trial_at => {
                let limit = below(draw.watts.min(watched.limit), LOWER_SHIFT);
                if limit < watched.least {
                    return Self::broken(now, relapses);
                }
                Self::Trial { since: now, limit, before: watched.limit, relapses }
            }
            Self::Broken { .. } => self,
            Self::Trial { since, limit, relapses, .. } => {
                // The lowered limit is not in force yet, or has not had its time.
                let age = lasts(now, since.max(watched.since));
                if watched.limit > limit && age <= TRIAL || age < ACTS_WITHIN {
                    return self;
                }
                let most = above(limit, FOLLOWS_SHIFT);
                if draw.watts > most && !draw.throttled {
                    return Self::broken(now, relapses.saturating_add(1));
                }
                if !draw.throttled && draw.watts < below(limit, LOWER_SHIFT) {
                    return Self::broken(now, relapses);
                }
                if age >= TRIAL { Self::Kept { relapses: relapses.saturating_add(1) } } else { self }
            }
        }
    }

    fn broken(now: Stamp, relapses: u8) -> Self {
        let wait = Micros::new(FIRST_WAIT.wrapping_shl(u32::from(relapses.min(DOUBLED_MAX))));
        Self::Broken { trial_at: now + wait, relapses }
    }
}

/// Zero where the clock went backwards.
fn lasts(now: Stamp, since: Stamp) -> Micros {
    now.since(since).unwrap_or(Micros::ZERO)
}

fn above(watts: Watts, shift: u32) -> Watts {
    watts + Watts::from_bits(watts.to_bits() >> shift)
}

fn below(watts: Watts, shift: u32) -> Watts {
    watts - Watts::from_bits(watts.to_bits() >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Stamp {
        Stamp::new(Micros::new(second * 1_000_000))
    }

    fn draws(watts: i32) -> Draw {
        Draw { watts: Watts::from_int(watts), throttled: false }
    }

    fn limit(watts: i32, since: u64) -> Option<Watched> {
        let least = Watts::from_int(50);
        Some(Watched { limit: Watts::from_int(watts), since: at(since), least, looped: true })
    }

    /// 200 W under a limit of 100 W, from second 1 to `last`.
    fn exceeded(last: u64) -> Obedience {
        (1..=last).fold(Obedience::START, |state, second| state.after(at(second), draws(200), limit(100, 0)))
    }

    #[test]
    fn a_limit_counts_until_more_is_drawn_for_three_minutes() {
        assert!(!exceeded(180).is_broken());
        assert!(exceeded(181).is_broken());
        // 1/16 is within the error of a meter, and what is unknown shows nothing.
        let within = (1..=600)
            .fold(Obedience::START, |state, second| state.after(at(second), draws(106), limit(100, 0)));
        assert_eq!(within, Obedience::START);
        // One reading within starts it anew, and so does another limit.
        let again = exceeded(180).after(at(181), draws(100), limit(100, 0));
        assert_eq!(again, Obedience::START);
        assert!(!exceeded(180).after(at(182), draws(200), limit(90, 181)).is_broken());
    }

    #[test]
    fn a_package_that_says_that_its_limit_throttles_it_keeps_to_it_as_far_as_it_can() {
        let held = Draw { throttled: true, ..draws(200) };
        let state =
            (1..=600).fold(Obedience::START, |state, second| state.after(at(second), held, limit(100, 0)));
        assert_eq!(state, Obedience::START);
    }

    #[test]
    fn a_trial_goes_below_what_is_drawn_and_the_limit_counts_again_if_the_power_follows() {
        let broken = exceeded(181);
        // The loop has brought it to 96 W. The first trial is a minute later, at 7/8 of that.
        let wait = broken.after(at(240), draws(96), limit(100, 0));
        assert_eq!(wait, broken);
        let trial = broken.after(at(241), draws(96), limit(100, 0));
        let is = Obedience::Trial {
            since: at(241),
            limit: Watts::from_int(84),
            before: Watts::from_int(100),
            relapses: 0,
        };
        assert_eq!((trial, trial.before()), (is, Some(Watts::from_int(100))));
        // It is read back at second 242. What is drawn in the first five seconds shows nothing.
        let acts = |drawn: i32| {
            (242..=257).fold(trial, |state, second| {
                let watts = if second < 246 { 96 } else { drawn };
                state.after(at(second), draws(watts), limit(84, 242))
            })
        };
        assert_eq!(acts(84), Obedience::Kept { relapses: 1 });
        // It does not follow: the next trial comes after two minutes. A load that fell shows nothing: after one.
        let next = |state| match state {
            Obedience::Broken { trial_at, relapses } => (trial_at, relapses),
            other @ (Obedience::Kept { .. } | Obedience::Exceeding { .. } | Obedience::Trial { .. }) => {
                panic!("{other:?}")
            }
        };
        assert_eq!(next(acts(96)), (at(247 + 120), 1));
        assert_eq!(next(acts(60)), (at(247 + 60), 0));
    }

    #[test]
    fn no_trial_goes_below_the_least_limit_or_runs_without_the_loop() {
        let broken = exceeded(181);
        assert!(matches!(broken.after(at(300), draws(55), limit(56, 0)), Obedience::Broken { .. }));
        let alone = limit(100, 0).map(|watched| Watched { looped: false, ..watched });
        assert_eq!(broken.after(at(300), draws(96), alone), broken);
    }

    #[test]
    fn waits_grow_to_an_hour() {
        for (relapses, minutes) in [(0, 1), (1, 2), (6, 64), (7, 64), (u8::MAX, 64)] {
            let broken = Obedience::broken(at(0), relapses);
            assert_eq!(broken, Obedience::Broken { trial_at: at(minutes * 60), relapses });
        }
    }
}
