//! What a device reports of its state beside its power: how warm it is, how busy, how much of its memory is in use,
//! what slows it, and for how long its power limit has held it back.
//!
//! None of it is a limit, and no control law needs all of it, so a domain lists what it reports ([`StateReadings`]).
//! Whether a power limit bites is an ability of its own ([`ThrottledMeter`]), because devices measure it in three ways
//! and one share is made of all of them.

use power_units::{Celsius, Micros, NonZeroMicros, Percent, Ratio, Stamp};

/// One kind of reading of a device's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateReading {
    /// Its temperature.
    Temperature,
    /// For which part of the time it computes.
    Utilisation,
    /// How much of its memory is in use.
    Memory,
    /// What holds its clocks down.
    Slowdown,
}

impl StateReading {
    /// Every kind, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::Temperature, Self::Utilisation, Self::Memory, Self::Slowdown];

    const fn bit(self) -> u8 {
        match self {
            Self::Temperature => 1,
            Self::Utilisation => 2,
            Self::Memory => 4,
            Self::Slowdown => 8,
        }
    }
}

/// The kinds of readings that a domain has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StateReadings(u8);

impl StateReadings {
    /// None.
    pub const NONE: Self = Self(0);

    /// With one more kind.
    #[must_use]
    pub const fn with(self, kind: StateReading) -> Self {
        Self(self.0 | kind.bit())
    }

    /// Whether this kind is among them.
    #[must_use]
    pub const fn has(self, kind: StateReading) -> bool {
        self.0 & kind.bit() != 0
    }

    /// The set as a number that is the same for the same set only.
    pub(crate) const fn to_bits(self) -> u8 {
        self.0
    }
}

/// The memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    used_bytes: u64,
    total_bytes: u64,
}

impl MemoryUse {
    /// So much in use of so much; `None` if there is no memory, or more in use than there is.
    #[must_use]
    pub const fn new(used_bytes: u64, total_bytes: u64) -> Option<Self> {
        if total_bytes == 0 || used_bytes > total_bytes {
            return None;
        }
        Some(Self { used_bytes, total_bytes })
    }

    /// How much is in use, in bytes.
    #[must_use]
    pub const fn used_bytes(self) -> u64 {
        self.used_bytes
    }

    /// How much there is, in bytes.
    #[must_use]
    pub const fn total_bytes(self) -> u64 {
        self.total_bytes
    }
}

/// The temperatures at which a device can run; any other reading is a wrong answer.
const COLDEST: Celsius = Celsius::from_int(-60);
const HOTTEST: Celsius = Celsius::from_int(200);

/// The temperature, if a device can have it.
///
/// ```
/// use power_hal::possible_temperature;
/// use power_units::Celsius;
/// assert_eq!(possible_temperature(Celsius::from_int(71)), Some(Celsius::from_int(71)));
/// assert_eq!(possible_temperature(Celsius::from_int(65_535)), None);
/// ```
#[must_use]
pub fn possible_temperature(temperature: Celsius) -> Option<Celsius> {
    (COLDEST <= temperature && temperature <= HOTTEST).then_some(temperature)
}

/// The utilisation, if it is between 0 and 100 %.
#[must_use]
pub fn possible_utilisation(utilisation: Percent) -> Option<Percent> {
    (Percent::ZERO <= utilisation && utilisation <= Percent::HUNDRED).then_some(utilisation)
}

/// A cause that holds the clocks of a device below what it could run at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slowdown {
    /// Its power limit: the only one that more watts would end.
    PowerLimit,
    /// The largest current of its supply.
    Current,
    /// Heat, of the device itself, of its memory or of its voltage regulators.
    Heat,
    /// A signal from outside, for example of a power supply, or an emergency stop of the hardware.
    Hardware,
    /// A setting: a clock that somebody has fixed, or that is the same for a group of devices.
    Setting,
}

impl Slowdown {
    /// Every cause, in the order of declaration.
    pub const ALL: [Self; 5] = [Self::PowerLimit, Self::Current, Self::Heat, Self::Hardware, Self::Setting];

    /// A short word for a metric label and for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::PowerLimit => "power_limit",
            Self::Current => "current",
            Self::Heat => "heat",
            Self::Hardware => "hardware",
            Self::Setting => "setting",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::PowerLimit => 1,
            Self::Current => 2,
            Self::Heat => 4,
            Self::Hardware => 8,
            Self::Setting => 16,
        }
    }
}

/// The causes that hold a device down at one instant. None of them is a known fact: the device runs freely.
///
/// ```
/// use power_hal::{Slowdown, Slowdowns};
/// let causes = Slowdowns::NONE.with(Slowdown::Heat);
/// assert!(causes.has(Slowdown::Heat) && !causes.has(Slowdown::PowerLimit));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slowdowns(u8);

impl Slowdowns {
    /// None.
    pub const NONE: Self = Self(0);

    /// With one more cause.
    #[must_use]
    pub const fn with(self, cause: Slowdown) -> Self {
        Self(self.0 | cause.bit())
    }

    /// Whether this cause is among them.
    #[must_use]
    pub const fn has(self, cause: Slowdown) -> bool {
        self.0 & cause.bit() != 0
    }

    /// The causes, in the order of declaration.
    pub fn iter(self) -> impl Iterator<Item = Slowdown> {
        Slowdown::ALL.into_iter().filter(move |cause| self.has(*cause))
    }
}

/// How a device measures that its power limit holds it back. Heat and other causes do not count: more watts would not
/// end them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottledMeter {
    /// It counts the time.
    Time {
        /// After how much the counter starts again at zero; `None` if it never does while the machine runs.
        modulus: Option<NonZeroMicros>,
    },
    /// It counts its own control periods, and those of them in which the limit held it back. Both counters have 32 bits
    /// and start again at zero.
    Periods,
    /// It reports whether the limit holds it back at this instant.
    Instant,
}

/// A value of a [`ThrottledMeter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttled {
    /// The time so far; only a difference of two means anything.
    Time(Micros),
    /// The control periods so far; only differences mean anything.
    Periods {
        /// Those in which the limit held the device back.
        held: u32,
        /// All of them.
        of: u32,
    },
    /// Whether the limit holds the device back at this instant.
    Instant(bool),
}

impl ThrottledMeter {
    /// Whether the value is of this kind of meter, and one that it can show.
    #[must_use]
    pub fn can_show(self, value: Throttled) -> bool {
        match (self, value) {
            (Self::Time { modulus }, Throttled::Time(time)) => {
                modulus.is_none_or(|modulus| time.get() < modulus.get())
            }
            (Self::Periods, Throttled::Periods { .. }) | (Self::Instant, Throttled::Instant(_)) => true,
            (Self::Time { .. } | Self::Periods | Self::Instant, _) => false,
        }
    }

    /// The part of the time between two samples in which the limit held the device back; of an instant it is all or
    /// nothing. `None` where it is unknown: no time has passed, a counter went back, or it shows more time than has
    /// passed. Unknown is not zero.
    ///
    /// ```
    /// use power_hal::{Throttled, ThrottledMeter};
    /// use power_units::{Micros, Percent, Stamp};
    /// let at = |us| Stamp::new(Micros::new(us));
    /// let time = |us| Throttled::Time(Micros::new(us));
    /// let meter = ThrottledMeter::Time { modulus: None };
    /// // A quarter of a second of one second.
    /// let share = meter.share((at(0), time(500)), (at(1_000_000), time(250_500)));
    /// assert_eq!(share, Some(Percent::from_int(25)));
    /// assert_eq!(meter.share((at(0), time(500)), (at(1_000_000), time(0))), None);
    /// ```
    #[must_use]
    pub fn share(self, earlier: (Stamp, Throttled), later: (Stamp, Throttled)) -> Option<Percent> {
        if !self.can_show(earlier.1) || !self.can_show(later.1) {
            return None;
        }
        let span = later.0.since(earlier.0)?;
        match (self, earlier.1, later.1) {
            (Self::Time { modulus }, Throttled::Time(from), Throttled::Time(to)) => {
                let held = match (to.checked_sub(from), modulus) {
                    (Some(held), _) => held,
                    (None, Some(modulus)) => (Micros::new(modulus.get()) - from) + to,
                    (None, None) => return None,
                };
                // A device refreshes its counter in steps of its own, so a step may contain a part of the time before.
                (held <= span + span + STEP).then(|| part(held.min(span).get(), span.get()))?
            }
            (
                Self::Periods,
                Throttled::Periods { held: held_from, of: of_from },
                Throttled::Periods { held: held_to, of: of_to },
            ) => {
                let (held, of) = (held_to.wrapping_sub(held_from), of_to.wrapping_sub(of_from));
                // More than half of the counter is a counter that went back.
                let known = of <= u32::MAX >> 1 && held <= of;
                known.then(|| part(held.into(), of.into()))?
            }
            (Self::Instant, _, Throttled::Instant(held)) => {
                Some(if held { Percent::HUNDRED } else { Percent::ZERO })
            }
            (Self::Time { .. } | Self::Periods | Self::Instant, _, _) => None,
        }
    }
}

/// The largest step in which a counter of time advances.
const STEP: Micros = Micros::new(1_000_000);

/// `held` of `all`; `None` of nothing. `held` is not above `all`.
fn part(held: u64, all: u64) -> Option<Percent> {
    // Both are halved until `all` has at most 32 bits, so that the quotient needs no wider division.
    let excess = 32_u32.saturating_sub(all.leading_zeros());
    let (held, all) = (held.wrapping_shr(excess).min(u64::from(u32::MAX)), all.wrapping_shr(excess));
    let bits = held.wrapping_shl(32).checked_div(all)?;
    Some(Ratio::from_bits(i64::try_from(bits).ok()?).to_percent())
}

#[cfg(test)]
mod tests;
