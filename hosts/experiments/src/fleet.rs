//! The fleet of upstream's experiment 04, and what a node draws.

use crate::numbers::value;
use crate::workload::OfferedJob;

/// Nodes without GPUs; they come first.
pub const CPU_NODES: usize = 2000;
/// Nodes with eight GPUs.
pub const GPU_NODES: usize = 500;
/// All nodes.
pub const NODES: usize = CPU_NODES + GPU_NODES;
/// What a busy GPU draws at full utilisation.
const GPU_MAX_W: f64 = 700.0;
/// What an idle GPU draws.
pub const GPU_IDLE_W: f64 = 100.0;
/// What busy cores draw of the most that all cores draw.
const CPU_PART: f64 = 0.7;

/// The two kinds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 96 cores, 700 W.
    Cpu,
    /// 128 cores, 500 W, and eight GPUs of 700 W.
    Gpu,
}

impl Kind {
    /// The kind of a node.
    #[must_use]
    pub const fn of(node: usize) -> Self {
        if node < CPU_NODES { Self::Cpu } else { Self::Gpu }
    }

    /// Cores.
    #[must_use]
    pub const fn cores(self) -> u32 {
        match self {
            Self::Cpu => 96,
            Self::Gpu => 128,
        }
    }

    /// GPUs.
    #[must_use]
    pub const fn gpus(self) -> u32 {
        match self {
            Self::Cpu => 0,
            Self::Gpu => 8,
        }
    }

    /// The most that its cores draw.
    #[must_use]
    pub const fn cpu_max_w(self) -> f64 {
        match self {
            Self::Cpu => 700.0,
            Self::Gpu => 500.0,
        }
    }

    /// The most that it draws.
    #[must_use]
    pub fn most_w(self) -> f64 {
        self.cpu_max_w() + f64::from(self.gpus()) * GPU_MAX_W
    }

    /// What a busy core adds.
    #[must_use]
    pub fn core_w(self) -> f64 {
        CPU_PART * self.cpu_max_w() / f64::from(self.cores())
    }

    /// What it draws beside its jobs and GPUs: a tenth of the CPU's most with a job, else a twentieth.
    #[must_use]
    pub fn base_w(self, active: bool) -> f64 {
        self.cpu_max_w() * if active { 0.10 } else { 0.05 }
    }
}

/// What a job's busy GPU draws at full utilisation.
#[must_use]
pub const fn gpu_w(performance: bool) -> f64 {
    if performance { GPU_MAX_W * 0.85 } else { GPU_MAX_W * 0.65 }
}

/// What upstream's formulas expect that a job adds, on a kind of node.
#[must_use]
pub fn expected_w(kind: Kind, cores: u32, gpus: u32, performance: bool) -> f64 {
    let share = (f64::from(cores) / f64::from(kind.cores())).min(1.0);
    CPU_PART * kind.cpu_max_w() * share + f64::from(gpus) * gpu_w(performance)
}

/// What is on a node. Sums are whole numbers, so that a node without jobs is exactly an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetNode {
    /// Allocated cores.
    pub cores: u32,
    /// Allocated GPUs.
    pub gpus: u32,
    /// Jobs.
    pub jobs: u32,
    busy_cores: i64,
    busy_standard: i64,
    busy_performance: i64,
}

impl FleetNode {
    /// Whether a request fits.
    #[must_use]
    pub const fn fits(&self, kind: Kind, cores: u32, gpus: u32) -> bool {
        self.cores + cores <= kind.cores() && (gpus == 0 || self.gpus + gpus <= kind.gpus())
    }

    /// A job starts.
    pub fn add(&mut self, job: &OfferedJob) {
        self.cores += u32::from(job.cores);
        self.gpus += u32::from(job.gpus);
        self.jobs += 1;
        self.busy_cores += job.busy_cores;
        *self.busy(job.performance) += job.busy_gpus;
    }

    /// A job that was added ends.
    pub fn remove(&mut self, job: &OfferedJob) {
        self.cores -= u32::from(job.cores);
        self.gpus -= u32::from(job.gpus);
        self.jobs -= 1;
        self.busy_cores -= job.busy_cores;
        *self.busy(job.performance) -= job.busy_gpus;
    }

    const fn busy(&mut self, performance: bool) -> &mut i64 {
        if performance { &mut self.busy_performance } else { &mut self.busy_standard }
    }

    /// What its jobs draw on its cores.
    #[must_use]
    pub fn cpu_w(&self, kind: Kind) -> f64 {
        kind.core_w() * value(self.busy_cores)
    }

    /// What its jobs draw on its GPUs.
    #[must_use]
    pub fn gpu_w(&self) -> f64 {
        value(self.busy_performance) * gpu_w(true) + value(self.busy_standard) * gpu_w(false)
    }

    /// What it draws, where each idle GPU draws this.
    #[must_use]
    pub fn draws_w(&self, kind: Kind, idle_gpu_w: f64) -> f64 {
        let idle = f64::from(kind.gpus() - self.gpus) * idle_gpu_w;
        kind.base_w(self.jobs > 0) + self.cpu_w(kind) + self.gpu_w() + idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::parts;
    use crate::workload::JobClass;

    #[test]
    fn a_node_draws_what_the_model_says() {
        assert_eq!(FleetNode::default().draws_w(Kind::Cpu, GPU_IDLE_W), 35.0);
        // 25 W and eight idle GPUs.
        assert_eq!(FleetNode::default().draws_w(Kind::Gpu, GPU_IDLE_W), 825.0);
        let job = OfferedJob {
            arrives: 0,
            lasts: 1,
            cores: 64,
            gpus: 4,
            performance: true,
            class: JobClass::Training,
            busy_cores: parts(32.0),
            busy_gpus: parts(3.0),
        };
        let mut node = FleetNode::default();
        node.add(&job);
        // 50 + 0.7 · 500 · 32 / 128 + 3 · 595 + 4 · 100.
        assert!((node.draws_w(Kind::Gpu, GPU_IDLE_W) - (50.0 + 87.5 + 1785.0 + 400.0)).abs() < 1e-6);
        assert!(node.fits(Kind::Gpu, 64, 4) && !node.fits(Kind::Gpu, 65, 0) && !node.fits(Kind::Gpu, 1, 5));
        node.remove(&job);
        assert_eq!(node, FleetNode::default());
    }
}
