//! Upstream's formulas under the rules of `fair`. They follow the power of each node, so that no two nodes are alike, and each job
//! looks at all of them. They know no sleep: a node that sleeps is for them what it would be awake and empty.

use crate::compat::{CompatArm, PowerTrend, Seen};
use crate::fleet::{FleetNode, Kind, NODES, PowerModel};
use crate::workload::OfferedJob;

/// A formula, and what it has seen.
pub(super) struct Followed {
    arm: CompatArm,
    trend: PowerTrend,
    model: PowerModel,
    idle_gpu_w: f64,
    /// Of each node, for jobs without and with GPUs.
    keys: Vec<[f64; 2]>,
}

impl Followed {
    pub(super) fn new(arm: CompatArm, model: PowerModel, idle_gpu_w: f64) -> Self {
        Self { arm, trend: PowerTrend::new(), model, idle_gpu_w, keys: vec![[0.0; 2]; NODES] }
    }

    /// A step begins.
    pub(super) fn sample(&mut self, step: u32, nodes: &[FleetNode]) {
        let (model, idle) = (self.model, self.idle_gpu_w);
        self.trend.sample(step as usize, |place| nodes[place].draws_by(model, Kind::of(place), idle));
        for (place, node) in nodes.iter().enumerate() {
            self.keys[place] = self.keys_of(place, node);
        }
    }

    /// A node changed within a step.
    pub(super) fn touch(&mut self, place: usize, node: &FleetNode) {
        self.trend.touch(place, node.draws_by(self.model, Kind::of(place), self.idle_gpu_w));
        self.keys[place] = self.keys_of(place, node);
    }

    fn keys_of(&self, place: usize, node: &FleetNode) -> [f64; 2] {
        let seen = Seen {
            kind: Kind::of(place),
            node,
            slope: self.trend.slopes[place],
            scale: self.trend.scale,
            watts: node.draws_by(self.model, Kind::of(place), self.idle_gpu_w),
        };
        [false, true].map(|wants_gpus| self.arm.key(seen, wants_gpus))
    }

    /// The first node of the highest score.
    pub(super) fn choose(&self, nodes: &[FleetNode], job: &OfferedJob) -> Option<usize> {
        let (cores, gpus) = (u32::from(job.cores), u32::from(job.gpus));
        let offsets = [Kind::Cpu, Kind::Gpu].map(|kind| self.arm.offset(kind, cores, gpus, job.performance));
        let mut best = None;
        let mut most = f64::NEG_INFINITY;
        for (place, (node, keys)) in nodes.iter().zip(&self.keys).enumerate() {
            let kind = Kind::of(place);
            if !node.fits(kind, cores, gpus) {
                continue;
            }
            let score = self.arm.score(keys[usize::from(gpus > 0)], offsets[usize::from(kind == Kind::Gpu)]);
            if score > most {
                (best, most) = (Some(place), score);
            }
        }
        best
    }
}
