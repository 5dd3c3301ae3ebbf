//! The load of the machine: per core, per GPU, and over time.

use crate::plant::InputError;
use crate::random::Random;
use power_units::Micros;

/// The load on one core, or on one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The fraction of the time in which it is busy, 0 to 1.
    pub utilisation: f64,
    /// The power of a busy cycle, relative to the rating; 0 to 2.
    pub intensity: f64,
    /// The fraction of the busy time at the highest clock that is spent waiting for memory, 0 to 1: it does not
    /// depend on the clock.
    pub memory: f64,
    /// The fraction of the busy time that runs wide vector code, 0 to 1. It only affects a package with a licence
    /// limit.
    pub vector: f64,
}

impl Load {
    /// No load.
    pub const IDLE: Self = Self::busy(0.0);

    /// Ordinary code that is busy for this fraction of the time.
    #[must_use]
    pub const fn busy(utilisation: f64) -> Self {
        Self { utilisation, intensity: 1.0, memory: 0.0, vector: 0.0 }
    }

    /// Checks that every field is in its range.
    pub(crate) fn check(&self) -> Result<(), InputError> {
        self.fault().map_or(Ok(()), |why| Err(InputError::Refused(why)))
    }

    fn fault(&self) -> Option<&'static str> {
        let part = |x: f64| (0.0..=1.0).contains(&x);
        if !part(self.utilisation) {
            Some("utilisation must lie between 0 and 1")
        } else if !(0.0..=2.0).contains(&self.intensity) {
            Some("intensity must lie between 0 and 2")
        } else if !part(self.memory) {
            Some("memory must lie between 0 and 1")
        } else if !part(self.vector) {
            Some("vector must lie between 0 and 1")
        } else {
            None
        }
    }
}

/// The utilisation of all cores, or of all GPUs, over time: a factor on the load of each.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadProfile {
    /// Constant.
    Constant(f64),
    /// The factor 1 until the first of these times, then the factor of each step.
    Steps(Vec<(Micros, f64)>),
    /// `high` for `high_for`, then `low` for `low_for`, and so on from the start.
    Square {
        /// The factor in the first part of the period.
        high: f64,
        /// The factor in the second part.
        low: f64,
        /// The length of the first part.
        high_for: Micros,
        /// The length of the second part.
        low_for: Micros,
    },
}

impl LoadProfile {
    /// Checks that every factor is in its range and the times are in order.
    pub(crate) fn check(&self) -> Result<(), InputError> {
        self.fault().map_or(Ok(()), |why| Err(InputError::Refused(why)))
    }

    fn fault(&self) -> Option<&'static str> {
        let part = |x: f64| (0.0..=1.0).contains(&x);
        match self {
            Self::Constant(factor) if part(*factor) => None,
            Self::Constant(_) => Some("a factor must lie between 0 and 1"),
            Self::Steps(steps) if !steps.iter().all(|&(_, factor)| part(factor)) => {
                Some("a factor must lie between 0 and 1")
            }
            Self::Steps(steps) if !steps.is_sorted_by(|a, b| a.0 < b.0) => Some("the steps must be in order"),
            Self::Steps(_) => None,
            Self::Square { high, low, .. } if !part(*high) || !part(*low) => {
                Some("a factor must lie between 0 and 1")
            }
            Self::Square { high_for, low_for, .. } if high_for.get() == 0 || low_for.get() == 0 => {
                Some("both parts of a period must be longer than 0")
            }
            Self::Square { .. } => None,
        }
    }

    /// The factor at a time, and the time at which it may change next.
    fn at(&self, now_us: u64) -> (f64, u64) {
        match self {
            Self::Constant(factor) => (*factor, u64::MAX),
            Self::Steps(steps) => {
                let begun = steps.partition_point(|&(from, _)| from.get() <= now_us);
                let factor = begun.checked_sub(1).map_or(1.0, |last| steps[last].1);
                (factor, steps.get(begun).map_or(u64::MAX, |next| next.0.get()))
            }
            Self::Square { high, low, high_for, low_for } => {
                let period = high_for.get().saturating_add(low_for.get());
                let phase = now_us % period;
                if phase < high_for.get() {
                    (*high, (now_us - phase).saturating_add(high_for.get()))
                } else {
                    (*low, (now_us - phase).saturating_add(period))
                }
            }
        }
    }
}

/// Random variation of the load: every `every`, a factor is drawn around the profile's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadJitter {
    /// The deviation, as a fraction of the factor, 0 to 1.
    pub deviation: f64,
    /// How long a drawn factor is used.
    pub every: Micros,
}

/// A profile that is being played.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    profile: LoadProfile,
    jitter: Option<LoadJitter>,
    random: Random,
    factor: f64,
    wobble: f64,
    profile_changes_us: u64,
    wobble_changes_us: u64,
}

impl Player {
    pub(crate) fn new(random: Random) -> Self {
        Self {
            profile: LoadProfile::Constant(1.0),
            jitter: None,
            random,
            factor: 1.0,
            wobble: 1.0,
            profile_changes_us: 0,
            wobble_changes_us: u64::MAX,
        }
    }

    pub(crate) fn play(&mut self, profile: LoadProfile) {
        self.profile = profile;
        self.profile_changes_us = 0;
    }

    /// Starts or ends the jitter with the next step.
    pub(crate) fn shake(&mut self, jitter: Option<LoadJitter>) {
        self.jitter = jitter;
        self.wobble = 1.0;
        self.wobble_changes_us = if jitter.is_some() { 0 } else { u64::MAX };
        self.profile_changes_us = 0;
    }

    /// When the factor may change next.
    pub(crate) fn changes_us(&self) -> u64 {
        self.profile_changes_us.min(self.wobble_changes_us)
    }

    /// The factor at a time; times must not decrease.
    pub(crate) fn factor(&mut self, now_us: u64) -> f64 {
        if now_us >= self.profile_changes_us {
            (self.factor, self.profile_changes_us) = self.profile.at(now_us);
        }
        if let Some(jitter) = self.jitter
            && now_us >= self.wobble_changes_us
        {
            self.wobble = (1.0 + jitter.deviation * self.random.normal()).max(0.0);
            // On a grid from time zero, so that late calls change nothing.
            self.wobble_changes_us = (now_us / jitter.every.get() + 1).saturating_mul(jitter.every.get());
        }
        self.factor * self.wobble
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Micros {
        Micros::new(s * 1_000_000)
    }

    #[test]
    fn steps_hold_from_their_time_until_the_next() {
        let profile = LoadProfile::Steps(vec![(seconds(300), 0.6), (seconds(600), 1.0)]);
        assert_eq!(profile.fault(), None);
        assert_eq!(profile.at(299_999_999), (1.0, 300_000_000));
        assert_eq!(profile.at(300_000_000), (0.6, 600_000_000));
        assert_eq!(profile.at(600_000_000), (1.0, u64::MAX));
        assert_eq!(LoadProfile::Steps(Vec::new()).at(5), (1.0, u64::MAX));
    }

    #[test]
    fn a_square_wave_begins_high_and_repeats() {
        let profile = LoadProfile::Square { high: 1.0, low: 0.25, high_for: seconds(2), low_for: seconds(3) };
        assert_eq!(profile.at(0), (1.0, 2_000_000));
        assert_eq!(profile.at(1_999_999), (1.0, 2_000_000));
        assert_eq!(profile.at(2_000_000), (0.25, 5_000_000));
        assert_eq!(profile.at(7_000_000), (0.25, 10_000_000));
        assert_eq!(profile.at(10_000_000), (1.0, 12_000_000));
    }

    #[test]
    fn profiles_and_loads_that_mean_nothing_are_refused() {
        let square = |high, low_for| LoadProfile::Square { high, low: 0.0, high_for: seconds(1), low_for };
        assert!(LoadProfile::Constant(-0.1).fault().is_some());
        assert!(LoadProfile::Constant(f64::NAN).fault().is_some());
        assert!(LoadProfile::Steps(vec![(seconds(2), 1.0), (seconds(2), 0.5)]).fault().is_some());
        assert!(LoadProfile::Steps(vec![(seconds(2), 1.5)]).fault().is_some());
        assert!(square(1.0, Micros::ZERO).fault().is_some());
        assert!(square(f64::INFINITY, seconds(1)).fault().is_some());
        assert!(square(1.0, seconds(1)).fault().is_none());

        let load = Load::busy(0.5);
        assert_eq!(load.fault(), None);
        for bad in [-0.001, 2.001, f64::NAN, f64::INFINITY] {
            assert!(Load { utilisation: bad, ..load }.fault().is_some());
            assert!(Load { intensity: bad, ..load }.fault().is_some());
            assert!(Load { memory: bad, ..load }.fault().is_some());
            assert!(Load { vector: bad, ..load }.fault().is_some());
        }
    }

    #[test]
    fn jitter_is_drawn_once_per_interval_and_ends() {
        let mut player = Player::new(Random::stream(1, 2));
        player.shake(Some(LoadJitter { deviation: 0.1, every: Micros::new(100_000) }));
        let first = player.factor(0);
        assert_ne!(first, 1.0);
        assert_eq!(player.factor(99_999), first);
        assert_ne!(player.factor(100_000), first);
        player.shake(None);
        assert_eq!(player.factor(200_000), 1.0);
    }
}
