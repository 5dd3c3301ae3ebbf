//! Power from energy counters: what a package drew between two samples of its counter.
//!
//! An [`EnergyMeter`] describes one counter, a [`Baseline`] remembers its last sample, and a [`MeterReading`] says
//! which value is credible. Missing, stale and impossible are three different facts, and none of them is a number: a
//! counter that cannot be read must never count as an idle package. The [`total`] of a node exists only when every
//! known package contributes; a partial sum is not the total.
//!
//! ```text
//! Nothing ──a sample──▶ At(sample) ──a later sample──▶ At(later), and the power between them
//!                          │  ▲
//!                          └──┘ no sample, a stale one, one too soon after, one that stands still: the baseline stays
//! ```
//!
//! *Wrap*: a RAPL counter is 32 bits of a quantum, so it starts again after minutes. *Range*: the largest value that
//! the counter shows; its *modulus* is one quantum more, for the step from there to zero.

use core::fmt;
use power_hal::{Counter, Untold};
use power_units::{MicroJoules, Micros, NonZeroMicros, Stamp, Watts};

/// One energy counter, and the most that its package can draw. Immutable; the state is the [`Baseline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnergyMeter {
    counter: Counter,
    power_max: Watts,
    span_min: Micros,
    stale_after: Micros,
}

/// The value of a counter, and when that counter was read: every meter has its own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterSample {
    /// The counter's value.
    pub energy: MicroJoules,
    /// When it was read, on the clock that `now` is from.
    pub at: Stamp,
}

/// The last sample that the next one is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// No sample yet, or none that may be used.
    Nothing,
    /// The last sample.
    At(CounterSample),
}

/// What a meter reports at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterReading {
    /// A value to act on.
    Fresh {
        /// The mean power since the sample before.
        watts: Watts,
        /// The time over which this is the mean.
        over: Micros,
    },
    /// The newest sample is this old.
    Stale {
        /// How long ago the counter was read.
        age: Micros,
    },
    /// There is no reading.
    Missing(Gap),
    /// There is a reading that cannot be true.
    Impossible(Oddity),
}

/// Why there is no reading. For several packages, the total reports the last of these that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gap {
    /// The power is not measured here.
    NoMeter,
    /// The counter could not be read.
    Unread,
    /// The first sample: there is nothing yet to compare it with.
    FirstSample,
    /// Too soon after the last sample for the counter's own update rate; wait for the next sample.
    TooSoon,
    /// So long after the last sample, or of a counter of unknown range, that the number of wraps is unknown.
    WrapsUnknowable,
}

/// Why a reading cannot be true. For several packages, the total reports the last of these that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oddity {
    /// More power than the package can draw: a counter was reset, or another one was read.
    AboveMaximum,
    /// A value that the counter cannot show.
    AboveRange,
    /// A counter that does not wrap went backwards: it was reset.
    RanBackwards,
    /// The sample was read before the one that it follows.
    ClockBackwards,
    /// The sample was read later than now.
    FromTheFuture,
    /// Two different values at the same time.
    TwoAtOnce,
}

/// Why a meter is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterError {
    /// The most that the package can draw is not above zero.
    PowerMax,
    /// The shortest span between two samples is not above zero, or not below the age at which a sample is stale.
    Spans,
}

impl fmt::Display for MeterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PowerMax => "expected the most power that the package can draw, above 0 W",
            Self::Spans => "expected 0 < shortest span between samples < age at which a sample is stale",
        })
    }
}

impl core::error::Error for MeterError {}

/// Why two counter values give no reading.
impl From<Untold> for MeterReading {
    fn from(why: Untold) -> Self {
        match why {
            Untold::AboveRange => Self::Impossible(Oddity::AboveRange),
            Untold::RanBackwards => Self::Impossible(Oddity::RanBackwards),
            Untold::WrapsUnknowable => Self::Missing(Gap::WrapsUnknowable),
        }
    }
}

impl EnergyMeter {
    /// A meter of a package that never draws more than `power_max`. Samples closer together than `span_min` wait for
    /// the next one (the hardware updates about once a millisecond), and a sample older than `stale_after` is stale.
    ///
    /// # Errors
    /// When a value is not what [`MeterError`] says is expected.
    pub fn new(
        counter: Counter,
        power_max: Watts,
        span_min: Micros,
        stale_after: Micros,
    ) -> Result<Self, MeterError> {
        if power_max <= Watts::ZERO {
            return Err(MeterError::PowerMax);
        }
        if span_min == Micros::ZERO || span_min >= stale_after {
            return Err(MeterError::Spans);
        }
        Ok(Self { counter, power_max, span_min, stale_after })
    }

    /// The counter that it describes.
    #[must_use]
    pub const fn counter(&self) -> Counter {
        self.counter
    }

    /// What the meter reports at `now`, given the newest sample.
    #[must_use]
    pub fn step(&self, baseline: &mut Baseline, now: Stamp, sample: Option<CounterSample>) -> MeterReading {
        let Some(sample) = sample else { return MeterReading::Missing(Gap::Unread) };
        let Some(age) = now.since(sample.at) else { return MeterReading::Impossible(Oddity::FromTheFuture) };
        if age > self.stale_after {
            return MeterReading::Stale { age };
        }
        if !self.counter.can_show(sample.energy) {
            return MeterReading::Impossible(Oddity::AboveRange);
        }
        let last = match *baseline {
            Baseline::Nothing => {
                *baseline = Baseline::At(sample);
                return MeterReading::Missing(Gap::FirstSample);
            }
            Baseline::At(last) => last,
        };
        let Some(elapsed) = sample.at.since(last.at) else {
            *baseline = Baseline::At(sample);
            return MeterReading::Impossible(Oddity::ClockBackwards);
        };
        let Some(span) = elapsed.non_zero() else {
            let repeated = sample.energy == last.energy;
            return if repeated {
                MeterReading::Stale { age }
            } else {
                MeterReading::Impossible(Oddity::TwoAtOnce)
            };
        };
        if elapsed < self.span_min {
            return MeterReading::Missing(Gap::TooSoon);
        }
        // A running package draws more than a quantum in that time. So a counter that does not change does not mean 0
        // W; counted as such it would make the total too low. The energy drawn meanwhile is included when the counter
        // changes again.
        if sample.energy == last.energy {
            return MeterReading::Stale { age: elapsed };
        }
        *baseline = Baseline::At(sample);
        self.power(last, sample, span)
    }

    fn power(&self, last: CounterSample, sample: CounterSample, span: NonZeroMicros) -> MeterReading {
        if !self.counter.tells(self.power_max.during(Micros::new(span.get()))) {
            return MeterReading::Missing(Gap::WrapsUnknowable);
        }
        match self.counter.between(last.energy, sample.energy) {
            Err(untold) => untold.into(),
            Ok(energy) => match energy.over(span) {
                drawn if drawn > self.power_max => MeterReading::Impossible(Oddity::AboveMaximum),
                watts => MeterReading::Fresh { watts, over: Micros::new(span.get()) },
            },
        }
    }
}

/// What all packages draw together. It is a number only when every one of them is. Otherwise it is the worst of them,
/// impossible before missing before stale, whatever their order. A sum that overflows the unit is impossible.
pub fn total(packages: impl IntoIterator<Item = MeterReading>) -> MeterReading {
    let told = packages.into_iter().reduce(MeterReading::and).unwrap_or(MeterReading::Missing(Gap::NoMeter));
    let overflowed = matches!(told, MeterReading::Fresh { watts, .. } if watts == Watts::MAX);
    if overflowed { MeterReading::Impossible(Oddity::AboveMaximum) } else { told }
}

impl MeterReading {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fresh { watts: a, over: of_a }, Self::Fresh { watts: b, over: of_b }) => {
                Self::Fresh { watts: a + b, over: of_a.max(of_b) }
            }
            (Self::Impossible(a), Self::Impossible(b)) => Self::Impossible(a.max(b)),
            (bad @ Self::Impossible(_), _) | (_, bad @ Self::Impossible(_)) => bad,
            (Self::Missing(a), Self::Missing(b)) => Self::Missing(a.max(b)),
            (none @ Self::Missing(_), _) | (_, none @ Self::Missing(_)) => none,
            (Self::Stale { age: a }, Self::Stale { age: b }) => Self::Stale { age: a.max(b) },
            (old @ Self::Stale { .. }, Self::Fresh { .. })
            | (Self::Fresh { .. }, old @ Self::Stale { .. }) => old,
        }
    }
}

#[cfg(test)]
mod tests;
