//! The jobs of a seed, as upstream's experiment 04 draws them, and the thinned sets of the fair comparison.

use crate::numbers::{parts, steps};
use crate::numpy::NumpyGenerator;
use std::f64::consts::TAU;

/// The classes of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobClass {
    /// 1 to 8 cores, up to ten minutes.
    Small,
    /// 16 to 64 cores, up to an hour.
    Medium,
    /// GPUs for hours.
    Training,
    /// One or two GPUs for minutes.
    Inference,
    /// 64 or 96 cores, up to two hours.
    Large,
}

/// All classes.
pub const CLASSES: [JobClass; 5] =
    [JobClass::Small, JobClass::Medium, JobClass::Training, JobClass::Inference, JobClass::Large];

impl JobClass {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Training => "training",
            Self::Inference => "inference",
            Self::Large => "large",
        }
    }

    /// Its place in [`CLASSES`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Small => 0,
            Self::Medium => 1,
            Self::Training => 2,
            Self::Inference => 3,
            Self::Large => 4,
        }
    }
}

/// A job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferedJob {
    /// The first step at which it can be placed.
    pub arrives: u32,
    /// For how many steps it runs.
    pub lasts: u32,
    /// Cores.
    pub cores: u8,
    /// GPUs.
    pub gpus: u8,
    /// Whether its class is performance.
    pub performance: bool,
    /// Its class.
    pub class: JobClass,
    /// Busy cores, in 2⁻³².
    pub busy_cores: i64,
    /// Busy GPUs, in 2⁻³².
    pub busy_gpus: i64,
}

/// The rate of arrivals, per second, at a second of the run.
fn rate(second: f64) -> f64 {
    let hour = (second / 3600.0) % 24.0;
    (0.25 + 0.70 * (1.0 - (TAU * (hour - 4.0) / 24.0).cos()) / 2.0) * 80.0 / 60.0
}

/// The jobs of a seed over this many hours, in the order of their arrival.
#[must_use]
pub fn jobs(seed: u64, hours: u32) -> Vec<OfferedJob> {
    let mut rng = NumpyGenerator::new(seed);
    let end = f64::from(hours) * 3600.0;
    let mut all = Vec::new();
    let mut now = 0.0;
    loop {
        now += rng.exponential(1.0 / rate(now));
        if now >= end {
            return all;
        }
        let burst = rng.unit() < 0.10;
        let count = if burst { 50 + rng.below(151) } else { 1 };
        let arrives = steps(now);
        for _ in 0..count {
            all.push(job(&mut rng, arrives));
        }
    }
}

fn job(rng: &mut NumpyGenerator, arrives: u32) -> OfferedJob {
    let class = match rng.unit() {
        u if u < 0.35 => JobClass::Small,
        u if u < 0.55 => JobClass::Medium,
        u if u < 0.80 => JobClass::Training,
        u if u < 0.92 => JobClass::Inference,
        _ => JobClass::Large,
    };
    let performance = match class {
        JobClass::Small | JobClass::Inference => false,
        JobClass::Medium => rng.unit() < 0.3,
        JobClass::Training | JobClass::Large => true,
    };
    let cores = match class {
        JobClass::Small => rng.choice([1, 2, 4, 8]),
        JobClass::Medium => rng.choice([16, 32, 48, 64]),
        JobClass::Training => rng.choice([16, 32, 64]),
        JobClass::Inference => rng.choice([4, 8, 16]),
        JobClass::Large => rng.choice([64, 96]),
    };
    let gpus = match class {
        JobClass::Training => rng.choice([1, 2, 4, 8]),
        JobClass::Inference => rng.choice([1, 2]),
        JobClass::Small | JobClass::Medium | JobClass::Large => 0,
    };
    let (cpu, gpu, seconds) = match class {
        JobClass::Small => ((0.3, 0.8), None, (60.0, 600.0)),
        JobClass::Medium => ((0.4, 0.9), None, (300.0, 3600.0)),
        JobClass::Training => ((0.3, 0.6), Some((0.6, 0.95)), (3600.0, 28800.0)),
        JobClass::Inference => ((0.3, 0.6), Some((0.3, 0.7)), (60.0, 900.0)),
        JobClass::Large => ((0.5, 0.95), None, (1800.0, 7200.0)),
    };
    let cpu = rng.uniform(cpu.0, cpu.1);
    let gpu = gpu.map_or(0.0, |(low, high)| rng.uniform(low, high));
    let lasts = steps(rng.uniform(seconds.0, seconds.1));
    OfferedJob {
        arrives,
        lasts,
        cores: u8::try_from(cores).unwrap_or(u8::MAX),
        gpus: u8::try_from(gpus).unwrap_or(u8::MAX),
        performance,
        class,
        busy_cores: parts(cpu * f64::from(cores)),
        busy_gpus: parts(gpu * f64::from(gpus)),
    }
}

/// How much of a seed's jobs the fair comparison keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferedLoad {
    /// About 20 % of the GPUs.
    Low,
    /// About 50 %.
    Middle,
    /// About 80 %.
    High,
}

impl OfferedLoad {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "20 %",
            Self::Middle => "50 %",
            Self::High => "80 %",
        }
    }

    /// The jobs that are kept: one draw for each job and load, in the order of the loads.
    #[must_use]
    pub fn thin(self, jobs: &[OfferedJob]) -> Vec<OfferedJob> {
        // Training, inference and the rest, for each load.
        const KEPT: [[f64; 3]; 3] = [[0.005, 0.10, 0.08], [0.0115, 0.25, 0.17], [0.019, 0.40, 0.30]];
        let mut rng = NumpyGenerator::new(7);
        for load in [Self::Low, Self::Middle, Self::High] {
            let [training, inference, rest] = KEPT[match load {
                Self::Low => 0,
                Self::Middle => 1,
                Self::High => 2,
            }];
            let mut kept = Vec::new();
            for job in jobs {
                let part = match job.class {
                    JobClass::Training => training,
                    JobClass::Inference => inference,
                    JobClass::Small | JobClass::Medium | JobClass::Large => rest,
                };
                if rng.unit() < part {
                    kept.push(*job);
                }
            }
            if load == self {
                return kept;
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts that the same draws gave with numpy 2.4.6; upstream's own run of seed 42 had 1,818,845 jobs in 48 hours.
    #[test]
    fn the_jobs_of_a_seed_are_upstream_s() {
        let first = jobs(42, 1);
        assert_eq!(first.len(), 21_232);
        let job = first[2];
        assert_eq!((job.cores, job.gpus, job.class, job.lasts), (64, 8, JobClass::Training, 379));
        assert!((crate::numbers::value(job.busy_cores) - 64.0 * 0.548_289_351_597_774_6).abs() < 1e-8);
        assert_eq!(jobs(42, 48).len(), 1_818_845);
    }
}
