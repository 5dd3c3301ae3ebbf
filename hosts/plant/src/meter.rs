//! True power and energy of one domain, with enough history for a sensor to average over.
//!
//! Energy is counted in whole nanojoules, so that a time span has the same energy for any division into steps.

use crate::units::{real, whole};
use power_units::MicroJoules;

/// The time grid of the history.
pub(crate) const GRID_US: u64 = 10_000;
/// The number of points in the history: 1.27 s.
const POINTS: usize = 128;
/// The longest time that a sensor may look back.
pub(crate) const REACH_US: u64 = GRID_US * (POINTS as u64 - 1);

/// The power and energy of one package, GPU or node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Meter {
    watts: f64,
    nanojoules: u128,
    /// The energy at the last points of the grid; the point at `t` has the index `t / GRID_US mod POINTS`.
    past: Vec<u128>,
}

impl Meter {
    /// A meter that reads zero, on a domain that has drawn `watts` for at least the length of the history.
    pub(crate) fn new(watts: f64) -> Self {
        Self { watts, nanojoules: 0, past: vec![0; POINTS] }
    }

    /// The power in the last step.
    pub(crate) fn watts(&self) -> f64 {
        self.watts
    }

    /// The energy since the start.
    pub(crate) fn energy(&self) -> MicroJoules {
        micro(self.nanojoules)
    }

    /// Adds `steps` steps of `step_us` at `watts`, starting at `now_us`.
    pub(crate) fn run(&mut self, watts: f64, now_us: u64, step_us: u64, steps: u64) {
        self.watts = watts;
        let per_step = u128::from(whole(watts * real(step_us * 1_000)));
        let end_us = now_us + step_us * steps;
        let last = end_us / GRID_US;
        let first = (now_us / GRID_US + 1).max((last + 1).saturating_sub(POINTS as u64));
        for point in first..=last {
            let passed = (point * GRID_US - now_us) / step_us;
            let index = usize::try_from(point).unwrap_or(0) % POINTS;
            self.past[index] = self.nanojoules + per_step * u128::from(passed);
        }
        self.nanojoules += per_step * u128::from(steps);
    }

    /// The energy at a point of the grid within the history; zero before the start.
    pub(crate) fn energy_at(&self, at_us: u64) -> MicroJoules {
        let index = usize::try_from(at_us / GRID_US).unwrap_or(0) % POINTS;
        micro(self.past[index])
    }
}

fn micro(nanojoules: u128) -> MicroJoules {
    MicroJoules::new(u64::try_from(nanojoules / 1_000).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_costs_the_same_however_it_is_cut() {
        let mut whole = Meter::new(0.0);
        let mut cut = Meter::new(0.0);
        whole.run(123.456_789, 0, 1_000, 5_000);
        for step in 0..5_000 {
            cut.run(123.456_789, step * 1_000, 1_000, 1);
        }
        assert_eq!(whole, cut);
        // 123.456789 W for 5 s, each step rounded to a nanojoule.
        assert_eq!(whole.energy(), MicroJoules::new(617_283_945));
    }

    #[test]
    fn the_past_is_kept_on_its_grid() {
        let mut meter = Meter::new(0.0);
        meter.run(100.0, 0, 5_000, 400);
        meter.run(300.0, 2_000_000, 5_000, 10);
        assert_eq!(meter.energy_at(1_000_000), MicroJoules::new(100_000_000));
        assert_eq!(meter.energy_at(2_000_000), MicroJoules::new(200_000_000));
        assert_eq!(meter.energy_at(2_010_000), MicroJoules::new(203_000_000));
        assert_eq!(meter.energy(), MicroJoules::new(215_000_000));
    }
}
