//! The power and speed of a package at a given clock: the part of the model without state.
//!
//! Clocks are fractions of the package's highest.

use crate::curve::speed;
use crate::load::Load;
use crate::spec::{Governor, PackageSpec};
use crate::units::real;

impl PackageSpec {
    /// The lowest clock.
    pub(crate) fn floor(&self) -> f64 {
        f64::from(self.min_khz) / f64::from(self.max_khz)
    }

    /// The highest clock under the licence for vector code.
    pub(crate) fn licence_clock(&self) -> f64 {
        self.licence.map_or(1.0, |licence| f64::from(licence.max_khz) / f64::from(self.max_khz))
    }

    /// The highest clock with this many busy cores.
    pub(crate) fn turbo_clock(&self, busy_cores: usize) -> f64 {
        let Some(turbo) = self.turbo else { return 1.0 };
        let over = real(busy_cores.saturating_sub(turbo.free_cores) as u64);
        let range = real((self.cores - turbo.free_cores) as u64);
        1.0 - over / range * (1.0 - f64::from(turbo.all_core_khz) / f64::from(self.max_khz))
    }

    /// The clock that a core's governor chooses under a limit at this utilisation.
    pub(crate) fn governed(&self, utilisation: f64, limit: f64) -> f64 {
        match self.governor {
            Governor::AtLimit => limit,
            Governor::Hardware { full_at, .. } => (utilisation / full_at).max(self.floor()).min(limit),
        }
    }

    /// The dynamic power and the speed of a core that is busy for the fraction `utilisation` of the time; both are 1
    /// for one busy core at the highest clock.
    pub(crate) fn core_at(&self, load: Load, utilisation: f64, clock: f64) -> (f64, f64) {
        let Load { intensity, memory, vector, .. } = load;
        let mut power = self.curve.at(clock);
        let mut pace = speed(clock, memory);
        if let Some(licence) = self.licence
            && vector > 0.0
        {
            let slow = clock.min(self.licence_clock());
            power += vector * (licence.power * self.curve.at(slow) - power);
            pace += vector * (speed(slow, memory) - pace);
        }
        (utilisation * intensity * power, utilisation * pace)
    }

    /// The mean clock of busy time, when the fraction `vector` of it runs under the licence.
    pub(crate) fn mean_clock(&self, clock: f64, vector: f64) -> f64 {
        clock + vector * (clock.min(self.licence_clock()) - clock)
    }
}
