//! The values that software reads: power and energy through sensors that average, lag, have errors, drop out and
//! stick.
//!
//! A sensor is outside of the plant and only reads it, so that an additional sensor changes nothing. Every sensor has
//! its own stream of noise. Its readings depend on when it is read, as with a real sensor.

use crate::plant::{Plant, PlantDomain};
use crate::random::Random;
use crate::units::{real, whole};
use power_units::{MicroJoules, Micros};
use std::fmt;

/// The errors of a sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The deviation of a reading, as a fraction of it; 0 to 1.
    pub deviation: f64,
    /// The fraction of the readings that fail; 0 to 1.
    pub dropped: f64,
}

impl Noise {
    /// A sensor without errors.
    pub const NONE: Self = Self { deviation: 0.0, dropped: 0.0 };

    fn check(self) -> Result<(), SensorError> {
        let part = |x: f64| (0.0..=1.0).contains(&x);
        if !part(self.deviation) {
            Err(SensorError("a deviation must lie between 0 and 1"))
        } else if !part(self.dropped) {
            Err(SensorError("the dropped part must lie between 0 and 1"))
        } else {
            Ok(())
        }
    }
}

/// Invalid settings of a sensor; names the accepted range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SensorError(&'static str);

impl fmt::Display for SensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for SensorError {}

/// Lower numbers are the plant's own sources of noise.
const FIRST_SOURCE: u64 = 16;

/// A sensor that shows power.
#[derive(Clone, Debug)]
pub struct PowerSensor {
    domain: PlantDomain,
    window: Micros,
    noise: Noise,
    random: Random,
    last: Option<f64>,
    stuck: bool,
}

impl PowerSensor {
    /// A sensor of the mean over `window` (of the present power for a window of zero), like a GPU's over 1 s.
    /// `number` distinguishes sensors of one seed.
    ///
    /// # Errors
    /// When the window is not a multiple of 10 ms up to 1.2 s, or the noise is out of its range.
    pub fn new(
        domain: PlantDomain,
        window: Micros,
        noise: Noise,
        seed: u64,
        number: u64,
    ) -> Result<Self, SensorError> {
        noise.check()?;
        if !window.get().is_multiple_of(10_000) || window.get() > 1_200_000 {
            return Err(SensorError("the window must be a multiple of 10 ms up to 1.2 s"));
        }
        let random = Random::stream(seed, FIRST_SOURCE.wrapping_add(number));
        Ok(Self { domain, window, noise, random, last: None, stuck: false })
    }

    /// Makes the sensor repeat its last reading, or ends that.
    pub fn stick(&mut self, stuck: bool) {
        self.stuck = stuck;
    }

    /// A reading, W; `None` when it failed or the node has no such domain.
    ///
    /// Until the node has run for a whole window, the mean is over the time since the start.
    pub fn read(&mut self, plant: &Plant) -> Option<f64> {
        // Both random numbers are drawn for every reading, so that a dropped one does not shift the following ones.
        let (drop, error) = (self.random.unit(), self.random.normal());
        if drop < self.noise.dropped {
            return None;
        }
        if self.stuck && self.last.is_some() {
            return self.last;
        }
        let shown = self.mean(plant)? * (1.0 + self.noise.deviation * error);
        self.last = Some(shown.max(0.0));
        self.last
    }

    fn mean(&self, plant: &Plant) -> Option<f64> {
        let ago = self.window.get().min(plant.now().get());
        if ago == 0 {
            return plant.watts(self.domain);
        }
        let (at, then) = plant.energy_before(self.domain, Micros::new(ago))?;
        let span = real((plant.stepped() - at).get());
        let drawn = real((plant.energy(self.domain)? - then).get());
        if span > 0.0 { Some(drawn / span) } else { plant.watts(self.domain) }
    }
}

/// An energy counter that is updated at intervals, such as RAPL's every millisecond and a GPU's every 100 ms. It does
/// not wrap: see [`wrapped`].
#[derive(Clone, Debug)]
pub struct EnergyCounter {
    domain: PlantDomain,
    every: Micros,
    noise: Noise,
    random: Random,
    seen: MicroJoules,
    shown: MicroJoules,
    stuck: bool,
}

impl EnergyCounter {
    /// A counter that is updated every `every`. Its noise applies to the added energy, so that it never runs
    /// backwards. `number` distinguishes sensors of one seed.
    ///
    /// # Errors
    /// When the interval is neither 1 ms nor a multiple of 10 ms up to 1.2 s, or the noise is out of its range.
    pub fn new(
        domain: PlantDomain,
        every: Micros,
        noise: Noise,
        seed: u64,
        number: u64,
    ) -> Result<Self, SensorError> {
        noise.check()?;
        let on_grid = every.get() > 0 && every.get().is_multiple_of(10_000) && every.get() <= 1_200_000;
        if every.get() != 1_000 && !on_grid {
            return Err(SensorError("the interval must be 1 ms, or a multiple of 10 ms up to 1.2 s"));
        }
        let random = Random::stream(seed, FIRST_SOURCE.wrapping_add(number));
        let (seen, shown) = (MicroJoules::ZERO, MicroJoules::ZERO);
        Ok(Self { domain, every, noise, random, seen, shown, stuck: false })
    }

    /// Stops the counter, or ends that: it then continues and includes the energy drawn meanwhile.
    pub fn stick(&mut self, stuck: bool) {
        self.stuck = stuck;
    }

    /// A reading; `None` when it failed or the node has no such domain.
    pub fn read(&mut self, plant: &Plant) -> Option<MicroJoules> {
        let (drop, error) = (self.random.unit(), self.random.normal());
        if drop < self.noise.dropped {
            return None;
        }
        if self.stuck {
            return Some(self.shown);
        }
        let now = self.latched(plant)?;
        let added = real((now - self.seen).get()) * (1.0 + self.noise.deviation * error);
        self.seen = now;
        self.shown = self.shown + MicroJoules::new(whole(added));
        Some(self.shown)
    }

    /// The energy at the counter's last update.
    fn latched(&self, plant: &Plant) -> Option<MicroJoules> {
        let since = plant.stepped().get() % self.every.get();
        if since == 0 || self.every.get() == 1_000 {
            return plant.energy(self.domain);
        }
        plant.energy_before(self.domain, Micros::new(since)).map(|(_, energy)| energy)
    }
}

/// The reading of a counter in a register that wraps at `modulus` microjoules; `None` for a modulus of zero.
#[must_use]
pub fn wrapped(counted: MicroJoules, modulus: MicroJoules) -> Option<MicroJoules> {
    counted.get().checked_rem(modulus.get()).map(MicroJoules::new)
}

#[cfg(test)]
mod tests;
