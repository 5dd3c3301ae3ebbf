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

/// What a node draws on its processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerModel {
    /// Upstream's: a base, and so many watts for each busy core, which is less on nodes with GPUs.
    Linear,
    /// The published SPECpower curve of a pair of EPYC 9654, for as many cores as the node has.
    Curve,
}

/// The pair's 192 cores at 0, 10, … 100 % of the load, in watts.
const CURVE_W: [f64; 11] = [128.0, 257.0, 300.0, 340.0, 378.0, 410.0, 442.0, 498.0, 577.0, 697.0, 817.0];
const CURVE_CORES: f64 = 192.0;

impl PowerModel {
    /// What the processors of a node draw with so many busy cores; in the linear model an idle node without a job draws less.
    #[must_use]
    pub fn cores_w(self, kind: Kind, busy: f64, active: bool) -> f64 {
        match self {
            Self::Linear => kind.base_w(active) + kind.core_w() * busy,
            Self::Curve => {
                let cores = f64::from(kind.cores());
                let load = 10.0 * (busy / cores).clamp(0.0, 1.0);
                let watts = CURVE_W.windows(2).zip(0_u8..).find_map(|(pair, tenth)| {
                    let above = load - f64::from(tenth);
                    (above <= 1.0).then(|| pair[0] + (pair[1] - pair[0]) * above)
                });
                watts.unwrap_or(CURVE_W[10]) * cores / CURVE_CORES
            }
        }
    }

    /// The most that the processors of a node draw.
    #[must_use]
    pub fn most_w(self, kind: Kind) -> f64 {
        match self {
            Self::Linear => kind.cpu_max_w(),
            Self::Curve => self.cores_w(kind, f64::from(kind.cores()), true),
        }
    }

    /// What the processors of a node draw while it boots: in the linear model the base of a node with a job, on the curve a
    /// tenth of the load.
    #[must_use]
    pub fn boot_w(self, kind: Kind) -> f64 {
        match self {
            Self::Linear => kind.base_w(true),
            Self::Curve => self.cores_w(kind, 0.1 * f64::from(kind.cores()), true),
        }
    }

    /// The least that a busy core costs at any load, the idle draw of its node included; zero in the linear model, where that is
    /// not asked.
    #[must_use]
    pub fn least_w(self) -> f64 {
        match self {
            Self::Linear => 0.0,
            Self::Curve => {
                let each = |(watts, tenth): (&f64, u8)| watts / (CURVE_CORES * f64::from(tenth) / 10.0);
                CURVE_W.iter().skip(1).zip(1..).map(each).fold(f64::INFINITY, f64::min)
            }
        }
    }
}

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
        *self.busy_gpus(job.performance) += job.busy_gpus;
    }

    /// A job that was added ends.
    pub fn remove(&mut self, job: &OfferedJob) {
        self.cores -= u32::from(job.cores);
        self.gpus -= u32::from(job.gpus);
        self.jobs -= 1;
        self.busy_cores -= job.busy_cores;
        *self.busy_gpus(job.performance) -= job.busy_gpus;
    }

    const fn busy_gpus(&mut self, performance: bool) -> &mut i64 {
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
        self.draws_by(PowerModel::Linear, kind, idle_gpu_w)
    }

    /// The same, with its processors by a model.
    #[must_use]
    pub fn draws_by(&self, model: PowerModel, kind: Kind, idle_gpu_w: f64) -> f64 {
        let idle = f64::from(kind.gpus() - self.gpus) * idle_gpu_w;
        model.cores_w(kind, value(self.busy_cores), self.jobs > 0) + self.gpu_w() + idle
    }

    /// Busy cores.
    #[must_use]
    pub fn busy(&self) -> f64 {
        value(self.busy_cores)
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
        // On the curve 32 of 128 cores are a quarter: between 300 and 340 W of 192 cores, for 128.
        let watts = node.draws_by(PowerModel::Curve, Kind::Gpu, GPU_IDLE_W);
        assert!((watts - (320.0 * 128.0 / 192.0 + 1785.0 + 400.0)).abs() < 1e-6, "{watts}");
        assert!(node.fits(Kind::Gpu, 64, 4) && !node.fits(Kind::Gpu, 65, 0) && !node.fits(Kind::Gpu, 1, 5));
        node.remove(&job);
        assert_eq!(node, FleetNode::default());
    }

    /// 96 cores are half of the pair: 64 W idle, 408.5 W at most. A busy core is cheapest at 70 %: 498 W of 134.4 cores.
    #[test]
    fn the_curve_is_that_of_its_points() {
        let half = |busy| PowerModel::Curve.cores_w(Kind::Cpu, busy, true);
        assert_eq!((half(0.0), half(9.6), half(96.0)), (64.0, 128.5, 408.5));
        assert_eq!(
            (PowerModel::Curve.most_w(Kind::Cpu), PowerModel::Curve.boot_w(Kind::Cpu)),
            (408.5, 128.5)
        );
        assert!((PowerModel::Curve.least_w() - 498.0 / 134.4).abs() < 1e-9);
        assert_eq!(PowerModel::Linear.most_w(Kind::Cpu), 700.0);
    }
}
