//! Power from energy counters: what a package drew between two samples of its counter.
//!
//! A [`EnergyMeter`] knows one counter, a [`Baseline`] remembers its last sample, and a [`MeterReading`] says what may be
//! believed. Missing, stale and impossible are three different facts, and none of them is a number: a counter that
//! cannot be told must never pass for an idle package. The [`total`] of a node exists only when every package that is
//! known contributes; a partial sum is not the total.
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

/// One energy counter, and what its package can draw. Immutable; the memory is the [`Baseline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnergyMeter {
    counter: Counter,
    power_max: Watts,
    span_min: Micros,
    stale_after: Micros,
}

/// What a counter showed, and when that counter was read: every meter has a time of its own.
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

/// What a meter tells about now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterReading {
    /// A value to act on.
    Fresh {
        /// The mean power since the sample before.
        watts: Watts,
        /// Over how long a time this is the mean.
        over: Micros,
    },
    /// Nothing newer than this age was delivered.
    Stale {
        /// How long ago the counter was read.
        age: Micros,
    },
    /// There is no reading.
    Missing(Gap),
    /// There is a reading that cannot be true.
    Impossible(Oddity),
}

/// Why there is no reading. Of several packages the total tells the last one of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gap {
    /// Nobody measures here.
    NoMeter,
    /// The counter could not be read.
    Unread,
    /// The first sample: there is nothing yet to compare it with.
    FirstSample,
    /// Too short after the last sample for the counter's own update rate; the next one will do.
    TooSoon,
    /// So long after the last sample, or of a counter of unknown range, that nobody can tell how often it wrapped.
    WrapsUnknowable,
}

/// Why a reading cannot be true. Of several packages the total tells the last one of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oddity {
    /// More power than the package can draw: a counter was reset, or another one was read.
    AboveMaximum,
    /// A value that the counter cannot show.
    AboveRange,
    /// A counter that does not wrap went back: it was reset.
    RanBackwards,
    /// The sample was read before the one that it follows.
    ClockBackwards,
    /// The sample was read later than now.
    FromTheFuture,
    /// Two different values at the same time.
    TwoAtOnce,
}

/// Why a meter cannot be built so.
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

/// Why two values give no reading.
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

    /// What the meter tells at `now`, given the newest sample that was delivered.
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
        // A package that runs draws more than a quantum in that time: a counter that stands still is not one of 0 W, and
        // with the other packages it would make a total that is too low. What is drawn meanwhile counts when it moves on.
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

/// What all packages draw together. It is only a number when every one of them is; else it is the worst of what they
/// are, impossible before missing before stale, whatever their order. A sum that the unit cannot hold is impossible.
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
