//! The limits in force of the simulated machines, and the judge.
//!
//! Every request to a machine passes the [gate](super::gate), so that each change of a limit is known at its instant:
//! no change is missed, and no sum mixes values of different times. A machine that boots has its highest limits.
//! After each phase the recorded limits are compared with the machines themselves.

use judge::{Breach, Excess, Excuse, Judge, MachinePart};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The longest excuse of a booted machine, if its first receipt is missing.
const REBOOT_AT_MOST: Duration = Duration::from_secs(300);
/// The number of event lines that are kept, to find the cause of an excess.
const LINES: usize = 400;
/// The time before an excess whose lines are shown.
const BEFORE: Duration = Duration::from_secs(5);

/// The limits of a machine's hardware.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    packages: f64,
    package: (f64, f64),
    gpus: f64,
    gpu: (f64, f64),
}

impl Shape {
    /// Reads the shape from the simulator's telemetry.
    pub(super) fn read(telemetry: &Value) -> Self {
        let (cpu, gpu) = (&telemetry["cpu"], &telemetry["gpu"]);
        let read = |part: &Value, field: &str| part[field].as_f64().unwrap_or_default();
        Self {
            packages: read(cpu, "sockets"),
            package: (read(cpu, "capMinWatts"), read(cpu, "capMaxWatts")),
            gpus: read(gpu, "count"),
            gpu: (read(gpu, "capMinWattsPerGpu"), read(gpu, "capMaxWattsPerGpu")),
        }
    }

    /// The lowest possible limit of a part.
    pub(super) const fn least(&self, part: MachinePart) -> f64 {
        match part {
            MachinePart::Cpu => self.packages * self.package.0,
            MachinePart::Gpu => self.gpus * self.gpu.0,
        }
    }

    /// The highest possible limit of a part.
    pub(super) const fn most(&self, part: MachinePart) -> f64 {
        match part {
            MachinePart::Cpu => self.packages * self.package.1,
            MachinePart::Gpu => self.gpus * self.gpu.1,
        }
    }
}

/// The limit of each package and of each GPU of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Each {
    pub(super) package: f64,
    pub(super) gpu: f64,
}

/// The state at one moment.
pub(super) struct Look {
    /// The sum of the limits of all machines.
    pub(super) sum: f64,
    /// The limit of the site.
    pub(super) limit: f64,
    pub(super) unexcused: Excess,
    pub(super) excused: BTreeMap<Excuse, Excess>,
    pub(super) breaches: Vec<Breach>,
}

/// See the module documentation.
pub(super) struct Truth {
    begun: Instant,
    state: Mutex<State>,
}

struct State {
    judge: Judge,
    limit: f64,
    machines: BTreeMap<String, Shape>,
    /// The number of the boot. A request of an earlier boot has no effect any more.
    boot: u32,
    lines: VecDeque<(Duration, String)>,
    /// How often a limit in force was lowered by more than a watt.
    falls: u32,
}

impl Truth {
    /// Machines that have just booted, under a site limit.
    pub(super) fn new(machines: BTreeMap<String, Shape>, limit: f64) -> Self {
        let judge = Judge::new(limit);
        let state = State { judge, limit, machines, boot: 0, lines: VecDeque::new(), falls: 0 };
        let truth = Self { begun: Instant::now(), state: Mutex::new(state) };
        truth.booted();
        truth
    }

    /// The time since the start.
    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn judged(&self) -> (MutexGuard<'_, State>, Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Read the clock under the lock, so that time does not go backwards.
        let now = self.now();
        state.judge.advance(now);
        (state, now)
    }

    /// The names of all machines.
    pub(super) fn names(&self) -> Vec<String> {
        self.judged().0.machines.keys().cloned().collect()
    }

    /// The number of the current boot.
    pub(super) fn boot(&self) -> u32 {
        self.judged().0.boot
    }

    /// Records the limits in force of a machine after a request in a boot.
    pub(super) fn set(&self, node: &str, boot: u32, each: Each) {
        let (mut state, now) = self.judged();
        let Some(shape) = state.machines.get(node).copied() else { return };
        if state.boot != boot {
            return;
        }
        for (part, watts) in
            [(MachinePart::Cpu, shape.packages * each.package), (MachinePart::Gpu, shape.gpus * each.gpu)]
        {
            let before = state.judge.held(node, part);
            state.judge.holds(node, part, watts);
            if before.to_bits() != watts.to_bits() {
                state.falls += u32::from(watts < before - 1.0);
                let all = state.judge.in_force();
                state.tell(now, format!("{node} {part:?} {before:.1} → {watts:.1} W; all {all:.1} W"));
            }
        }
    }

    /// Records that all machines are off.
    pub(super) fn down(&self) {
        let (mut state, now) = self.judged();
        state.boot += 1;
        for node in state.machines.clone().into_keys() {
            for part in [MachinePart::Cpu, MachinePart::Gpu] {
                state.judge.holds(&node, part, 0.0);
            }
        }
        state.tell(now, "all machines are off".to_owned());
    }

    /// Records that all machines are on, without limits.
    pub(super) fn booted(&self) {
        let (mut state, now) = self.judged();
        for (node, shape) in state.machines.clone() {
            for part in [MachinePart::Cpu, MachinePart::Gpu] {
                state.judge.holds(&node, part, shape.most(part));
                state.judge.excuse((&node, part), Excuse::Reboot, shape.least(part), now + REBOOT_AT_MOST);
            }
        }
        let all = state.judge.in_force();
        state.tell(now, format!("all machines are on, without limits; all {all:.1} W"));
    }

    /// Records the first receipt of a machine in this boot.
    pub(super) fn receipt(&self, node: &str) {
        let (mut state, _) = self.judged();
        for part in [MachinePart::Cpu, MachinePart::Gpu] {
            state.judge.end((node, part), Excuse::Reboot);
        }
    }

    /// Sets another site limit, and how long the limits may be above it.
    pub(super) fn cut(&self, watts: f64, within: Duration) {
        let (mut state, now) = self.judged();
        state.limit = watts;
        state.judge.budget(watts, now + within);
        state.tell(now, format!("every operator has been told of {watts:.0} W"));
    }

    /// Records an event of the programs.
    pub(super) fn note(&self, what: &str) {
        let (mut state, now) = self.judged();
        state.tell(now, format!("** {what}"));
    }

    /// Judges up to now, and returns the state.
    pub(super) fn look(&self) -> Look {
        let (state, _) = self.judged();
        let (unexcused, excused, breaches) = state.judge.verdict();
        Look { sum: state.judge.in_force(), limit: state.limit, unexcused, excused, breaches }
    }

    /// How often limits in force were lowered.
    pub(super) fn falls(&self) -> u32 {
        self.judged().0.falls
    }

    /// The limits in force of each machine.
    pub(super) fn held(&self) -> BTreeMap<String, f64> {
        let (state, _) = self.judged();
        let held = |node: &String| {
            state.judge.held(node, MachinePart::Cpu) + state.judge.held(node, MachinePart::Gpu)
        };
        state.machines.keys().map(|node| (node.clone(), held(node))).collect()
    }

    /// The first machine whose recorded limits differ from its own report.
    pub(super) fn differs(&self, states: &BTreeMap<String, Each>) -> Option<String> {
        let (state, _) = self.judged();
        state.machines.iter().find_map(|(node, shape)| {
            let each = states.get(node)?;
            let parts = [
                (MachinePart::Cpu, shape.packages * each.package),
                (MachinePart::Gpu, shape.gpus * each.gpu),
            ];
            parts.into_iter().find_map(|(part, is)| {
                let held = state.judge.held(node, part);
                ((held - is).abs() > 0.5)
                    .then(|| format!("{node} {part:?} is at {is} W, and {held} W were written down"))
            })
        })
    }

    /// The events around an excess.
    pub(super) fn lines_of(&self, breach: &Breach) -> Vec<String> {
        let (state, _) = self.judged();
        let around = breach.from.saturating_sub(BEFORE)..=breach.to;
        let lines = state.lines.iter().filter(|(at, _)| around.contains(at));
        lines.map(|(at, line)| format!("{:9.3} {line}", at.as_secs_f64())).collect()
    }

    /// The last events of the programs, such as kills, outages and boots.
    pub(super) fn last_notes(&self, count: usize) -> Vec<String> {
        let (state, _) = self.judged();
        let notes = state.lines.iter().rev().filter(|(_, line)| line.starts_with("**")).take(count);
        notes.map(|(at, line)| format!("{:9.3} {line}", at.as_secs_f64())).collect()
    }
}

impl State {
    fn tell(&mut self, at: Duration, line: String) {
        if self.lines.len() >= LINES {
            self.lines.pop_front();
        }
        self.lines.push_back((at, line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Truth {
        let shape = Shape { packages: 2.0, package: (100.0, 300.0), gpus: 1.0, gpu: (200.0, 700.0) };
        Truth::new([("a".to_owned(), shape), ("b".to_owned(), shape)].into(), 1_500.0)
    }

    #[test]
    fn a_machine_that_has_booted_counts_with_its_least_until_its_first_receipt() {
        let truth = two();
        assert_eq!(truth.held().into_values().collect::<Vec<_>>(), [1_300.0, 1_300.0]);
        truth.set("a", 0, Each { package: 250.0, gpu: 700.0 });
        assert_eq!(truth.look().unexcused.watt_seconds, 0.0, "four parts with 200 W");
        truth.receipt("a");
        assert!(
            truth.look().unexcused.watt_seconds > 0.0,
            "1200 W and two parts with 200 W are above 1500 W"
        );
    }

    #[test]
    fn what_was_on_its_way_before_a_boot_changes_nothing() {
        let truth = two();
        let boot = truth.boot();
        truth.down();
        truth.booted();
        truth.set("a", boot, Each { package: 100.0, gpu: 200.0 });
        assert_eq!(truth.look().sum, 2_600.0);
    }

    #[test]
    fn a_record_that_is_not_the_machines_is_told() {
        let truth = two();
        let is = |gpu| [("a".to_owned(), Each { package: 300.0, gpu })].into();
        assert_eq!(truth.differs(&is(700.0)), None);
        assert!(truth.differs(&is(650.0)).unwrap().starts_with("a Gpu is at 650 W"));
    }
}
