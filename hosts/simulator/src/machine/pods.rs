//! The pods of a machine: how the clocks determine their progress, and which load they cause.

use super::SimulatedMachine;
use super::power::{BOOT_LOAD, MachinePower};
use crate::work::Work;
use plant::Load;
use std::fmt;

/// The identity of a pod: its UID, because names are reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId(pub String);

impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pod on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// Its work.
    pub work: Work,
    /// The part of its work that is done, 0 to 1; always 0 for work without an end.
    done: f64,
    /// The time up to which its progress was counted.
    since_us: u64,
}

impl Running {
    pub(super) fn new(work: Work, done: f64, since_us: u64) -> Self {
        // An invalid part starts at 0: repeated work is better than missing work.
        let done = if (0.0..=1.0).contains(&done) { done } else { 0.0 };
        Self { work, done, since_us }
    }

    /// The part of its work that is done.
    #[must_use]
    pub const fn done(&self) -> f64 {
        self.done
    }

    /// Whether all work is done. A pod without an end never finishes.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.work.duration.is_some() && self.done >= 1.0
    }

    /// Counts the work that was done until `now_us` at this pace.
    fn progress(&mut self, now_us: u64, pace: f64) {
        let span = now_us.saturating_sub(self.since_us);
        self.since_us = now_us;
        let Some(duration) = self.work.duration else { return };
        let part = span as f64 / 1e6 * pace / duration.as_secs_f64();
        self.done = (self.done + part).min(1.0);
    }
}

impl SimulatedMachine {
    /// Counts the progress of every pod. Finished pods no longer load the machine.
    pub(super) fn work(&mut self, now_us: u64) {
        if self.pods.is_empty() {
            return;
        }
        let cpu_clock = self.cpu_clock();
        // Pods can want more than the machine has only if they use more than they requested.
        let share = (1.0 / self.cpu_wanted()).min(1.0);
        let mut ended = false;
        let clocks: Vec<f64> = self.pods.keys().map(|id| self.gpu_clock_of(id)).collect();
        for (pod, gpu_clock) in self.pods.values_mut().zip(clocks) {
            if pod.is_finished() {
                continue;
            }
            let pace = pod.work.pace(cpu_clock, gpu_clock) * share;
            pod.progress(now_us, pace);
            ended |= pod.is_finished();
        }
        if ended {
            self.load();
        }
    }

    /// The clock of the slowest of a pod's GPUs as a part of the highest clock, because they work in lockstep. GPUs
    /// that a pod did not get or did not request do not slow it down.
    fn gpu_clock_of(&self, id: &PodId) -> f64 {
        let held = self.boards.iter().enumerate().filter(|(_, board)| board.as_ref() == Some(id));
        held.filter_map(|(at, _)| self.plant.gpu_clock(at)).fold(1.0, f64::min)
    }

    /// The part of all processors that the pods would keep busy.
    fn cpu_wanted(&self) -> f64 {
        let busy = |pod: &Running| pod.work.cpus * pod.work.cpu_utilisation;
        let wanted: f64 = self.pods.values().filter(|pod| !pod.is_finished()).map(busy).sum();
        wanted / f64::from(self.hardware.cpus())
    }

    /// Applies the pods' load to the plant: evenly on all cores, as a kernel spreads threads, and by pod on the GPUs.
    pub(super) fn load(&mut self) {
        let mut busy = 0.0;
        let (mut intensity, mut waiting) = (0.0, 0.0);
        for pod in self.pods.values().filter(|pod| !pod.is_finished()) {
            let part = pod.work.cpus * pod.work.cpu_utilisation;
            busy += part;
            intensity += part * pod.work.intensity();
            waiting += part * pod.work.waiting();
        }
        let load = if matches!(self.power(), MachinePower::Booting { .. }) {
            BOOT_LOAD
        } else if busy > 0.0 {
            Load {
                utilisation: (busy / f64::from(self.hardware.cpus())).min(1.0),
                intensity: (intensity / busy).clamp(0.0, 2.0),
                memory: (waiting / busy).clamp(0.0, 1.0),
                vector: 0.0,
            }
        } else {
            Load::IDLE
        };
        let set = self.plant.set_load(load);
        debug_assert!(set.is_ok(), "every part was brought into its range");
        for at in 0..self.boards.len() {
            let pod =
                self.boards[at].as_ref().and_then(|id| self.pods.get(id)).filter(|pod| !pod.is_finished());
            let load = pod.map_or(Load::IDLE, |pod| Load {
                utilisation: pod.work.gpu_utilisation,
                intensity: 1.0,
                memory: pod.work.gpu_memory(),
                vector: 0.0,
            });
            let set = self.plant.set_gpu_load(at, load);
            debug_assert!(set.is_ok(), "every part is in its range");
        }
    }
}
