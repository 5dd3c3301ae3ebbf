//! Work done, in whole units so that a time span has the same work for any division into steps.

use crate::units::{real, whole};

/// Work; 1 is a second of one core, or of one GPU, fully busy at its highest clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// In units of 10⁻¹².
    pico: u128,
}

impl Work {
    /// Adds `steps` steps at this speed.
    pub(crate) fn run(&mut self, speed: f64, step_us: u64, steps: u64) {
        self.pico += u128::from(whole(speed * real(step_us * 1_000_000))) * u128::from(steps);
    }

    pub(crate) fn done(&self) -> f64 {
        self.pico as f64 / 1e12
    }
}
