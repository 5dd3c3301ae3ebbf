//! True power and energy of one domain, with enough history for a sensor to average over.
//!
//! Energy is counted in whole nanojoules, so that a time span has the same energy for any division into steps.

use crate::units::{real, whole};
use power_units::MicroJoules;
use std::fmt;

/// The time grid of the history.
pub(crate) const GRID_US: u64 = 10_000;
/// The number of points in the history: 1.27 s.
const POINTS: usize = 128;
/// The longest time that a sensor may look back.
pub(crate) const REACH_US: u64 = GRID_US * (POINTS as u64 - 1);

/// The power and energy of one package, GPU or node.
#[derive(Clone)]
pub(crate) struct Meter {
    watts: f64,
    nanojoules: u128,
    /// The last steps at one power; their energies are not in `past` yet.
    last: Run,
    /// The energies at the points of the grid before; the point at `t` has the index `t / GRID_US mod POINTS`.
    past: Vec<u128>,
}

/// Steps of one power, one after the other.
#[derive(Clone, Copy, Default)]
struct Run {
    since_us: u64,
    step_us: u64,
    steps: u64,
    nanojoules_before: u128,
    nanojoules_per_step: u128,
}

impl Run {
    fn end_us(&self) -> u64 {
        self.since_us + self.step_us * self.steps
    }

    /// The energy at a point of the grid after its start.
    fn energy_at(&self, point: u64) -> u128 {
        let passed = (point * GRID_US - self.since_us).checked_div(self.step_us).unwrap_or(0);
        self.nanojoules_before + self.nanojoules_per_step * u128::from(passed)
    }
}

impl Meter {
    /// A meter that reads zero, on a domain that has drawn `watts` for at least the length of the history.
    pub(crate) fn new(watts: f64) -> Self {
        Self { watts, nanojoules: 0, last: Run::default(), past: vec![0; POINTS] }
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
        let last = self.last;
        if (last.end_us(), last.step_us, last.nanojoules_per_step) == (now_us, step_us, per_step) {
            self.last.steps += steps;
        } else {
            let end = last.end_us() / GRID_US;
            for point in (last.since_us / GRID_US + 1).max((end + 1).saturating_sub(POINTS as u64))..=end {
                self.past[index(point)] = last.energy_at(point);
            }
            let (nanojoules_before, nanojoules_per_step) = (self.nanojoules, per_step);
            self.last = Run { since_us: now_us, step_us, steps, nanojoules_before, nanojoules_per_step };
        }
        self.nanojoules += per_step * u128::from(steps);
    }

    /// The energies at all points of the grid within the history.
    fn history(&self) -> impl Iterator<Item = MicroJoules> {
        let until_us = self.last.end_us();
        let points = until_us.saturating_sub(REACH_US) / GRID_US..=until_us / GRID_US;
        points.map(|point| self.energy_at(point * GRID_US))
    }

    /// The energy at a point of the grid within the history; zero before the start.
    pub(crate) fn energy_at(&self, at_us: u64) -> MicroJoules {
        let point = at_us / GRID_US;
        let is_of_last = point * GRID_US > self.last.since_us;
        micro(if is_of_last { self.last.energy_at(point) } else { self.past[index(point)] })
    }
}

// Two meters are equal, and look equal, if every question has the same answer, however the time was divided.

impl PartialEq for Meter {
    fn eq(&self, other: &Self) -> bool {
        (self.watts, self.nanojoules, self.last.end_us())
            == (other.watts, other.nanojoules, other.last.end_us())
            && self.history().eq(other.history())
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { watts, nanojoules, .. } = self;
        write!(f, "Meter {{ watts: {watts}, nanojoules: {nanojoules}, history: ")?;
        f.debug_list().entries(self.history()).finish()?;
        f.write_str(" }")
    }
}

fn index(point: u64) -> usize {
    usize::try_from(point).unwrap_or(0) % POINTS
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
        // Then the history is of both: of the end of the long run, and of what came after it.
        whole.run(50.0, 5_000_000, 1_000, 300);
        cut.run(50.0, 5_000_000, 1_000, 300);
        assert_eq!(whole, cut);
        // 123.456789 W for 5 s, each step rounded to a nanojoule, and 50 W for 0.3 s.
        assert_eq!(whole.energy(), MicroJoules::new(617_283_945 + 15_000_000));
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
