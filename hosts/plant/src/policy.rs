//! Frequency policies: from a written limit, through dead time and lag, to the request of each core.
//!
//! A core runs at the highest request of the policies that cover it, whether or not the thread of a request is
//! busy: throttling only one of two SMT siblings has no effect.

use crate::spec::{ActuatorSpec, NodeSpec, PolicyLayout};
use crate::units::real;
use std::collections::VecDeque;
use std::ops::Range;

/// A limit closer than this to its target has reached it, kHz.
const ARRIVED_KHZ: f64 = 0.5;

#[derive(Clone, Debug)]
struct Policy {
    min_khz: u32,
    max_khz: u32,
    /// The last written value.
    written: u32,
    /// Writes that have not taken effect yet, with the time of their effect.
    pending: VecDeque<(u64, u32)>,
    /// The limit's target.
    target: f64,
    /// The present limit.
    khz: f64,
    stuck: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Policies {
    layout: PolicyLayout,
    dead_us: u64,
    pace: f64,
    policies: Vec<Policy>,
    /// The first core of every package, and the number of cores at the end.
    first_core: Vec<usize>,
    settled: bool,
}

impl Policies {
    pub(crate) fn new(spec: &NodeSpec) -> Self {
        let ActuatorSpec { dead_time, lag_s } = spec.actuator;
        let step_s = real(spec.step.get()) / 1e6;
        let mut first_core = vec![0];
        let mut policies = Vec::new();
        for package in &spec.packages {
            let cores_before = first_core.last().copied().unwrap_or(0);
            first_core.push(cores_before + package.cores);
            let count = if spec.layout == PolicyLayout::PerPackage { 1 } else { package.cores };
            let policy = Policy {
                min_khz: package.min_khz,
                max_khz: package.max_khz,
                written: package.max_khz,
                pending: VecDeque::new(),
                target: f64::from(package.max_khz),
                khz: f64::from(package.max_khz),
                stuck: false,
            };
            policies.extend(std::iter::repeat_n(policy, count));
        }
        if let PolicyLayout::PerThread { threads } = spec.layout {
            let first = policies.len();
            policies = policies.into_iter().cycle().take(first * threads).collect();
        }
        Self {
            layout: spec.layout,
            dead_us: dead_time.get(),
            pace: step_s / (lag_s + step_s),
            policies,
            first_core,
            settled: true,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.policies.len()
    }

    pub(crate) fn cores(&self) -> usize {
        self.first_core.last().copied().unwrap_or(0)
    }

    /// The package of a core and its index there.
    pub(crate) fn place(&self, core: usize) -> (usize, usize) {
        let package = self.first_core.partition_point(|&first| first <= core) - 1;
        (package, core - self.first_core[package])
    }

    /// The cores that a policy covers.
    pub(crate) fn cores_of(&self, policy: usize) -> Range<usize> {
        match self.layout {
            PolicyLayout::PerCore => policy..policy + 1,
            PolicyLayout::PerThread { .. } => {
                let core = policy % self.cores();
                core..core + 1
            }
            PolicyLayout::PerPackage => self.first_core[policy]..self.first_core[policy + 1],
        }
    }

    /// The request of a core: the highest of its policies.
    pub(crate) fn request(&self, core: usize) -> f64 {
        match self.layout {
            PolicyLayout::PerCore => self.policies[core].khz,
            PolicyLayout::PerThread { .. } => {
                let threads = self.policies[core..].iter().step_by(self.cores());
                threads.fold(0.0, |highest, policy| policy.khz.max(highest))
            }
            PolicyLayout::PerPackage => self.policies[self.place(core).0].khz,
        }
    }

    /// Writes a limit, clamped to the policy's range; returns the written value.
    pub(crate) fn write(&mut self, policy: usize, khz: u32, now_us: u64) -> u32 {
        let policy = &mut self.policies[policy];
        let khz = khz.clamp(policy.min_khz, policy.max_khz);
        if khz != policy.written {
            policy.written = khz;
            policy.pending.push_back((now_us.saturating_add(self.dead_us), khz));
            self.settled = false;
        }
        khz
    }

    pub(crate) fn written(&self, policy: usize) -> u32 {
        self.policies[policy].written
    }

    pub(crate) fn range(&self, policy: usize) -> (u32, u32) {
        (self.policies[policy].min_khz, self.policies[policy].max_khz)
    }

    /// A stuck policy accepts writes and reads them back, but its limit does not change.
    pub(crate) fn stick(&mut self, policy: usize, stuck: bool) {
        self.policies[policy].stuck = stuck;
        self.settled = false;
    }

    /// Runs a step. Returns whether a limit changed or is about to.
    pub(crate) fn step(&mut self, now_us: u64) -> bool {
        if self.settled {
            return false;
        }
        let mut settled = true;
        for policy in &mut self.policies {
            policy.step(now_us, self.pace);
            settled &= policy.pending.is_empty() && (policy.stuck || policy.khz == policy.target);
        }
        self.settled = settled;
        true
    }
}

impl Policy {
    fn step(&mut self, now_us: u64, pace: f64) {
        while let Some(&(due, khz)) = self.pending.front()
            && due <= now_us
        {
            self.target = f64::from(khz);
            self.pending.pop_front();
        }
        if self.stuck {
            return;
        }
        let way = self.target - self.khz;
        self.khz = if way.abs() <= ARRIVED_KHZ { self.target } else { self.khz + way * pace };
    }
}
