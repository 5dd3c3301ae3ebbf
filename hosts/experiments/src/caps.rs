//! Caps on the cores and GPUs of jobs: what they draw less, and how much longer they run.
//!
//! A cap on GPUs holds a job's GPUs at a part of the 700 W: with r = cap / what they would draw, they draw r times as much, and
//! run at the speed ½ · r^γ + ½ · (1 − 0.15 · (1 − r)^0.9), upstream's form for work that is half bound by memory. γ is what is
//! disputed: upstream's file says 1.4 for this GPU, and power that grows with the cube of the frequency says ⅓. A frequency
//! f of cores draws f^1.35 of the busy cores' watts and runs at upstream's speed for the class *other*.
//!
//! A job's work is the same under all rules; how much later it ends is its slowdown.

use crate::fleet::gpu_w;
use crate::numbers::{parts, value};
use crate::workload::OfferedJob;

/// Which caps hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapRule {
    /// None.
    None,
    /// GPUs at 60 % of their most, cubic power.
    GpusCubic,
    /// GPUs at 50 % of their most, cubic power.
    GpusDeepCubic,
    /// GPUs at 35 % of their most, cubic power. That is 245 W; upstream's catalogue has 350 W as the least limit of this GPU.
    GpusLeastCubic,
    /// GPUs at 60 %, with upstream's γ.
    GpusUpstream,
    /// Cores at 60 % of their frequency.
    Cores,
    /// Cores of standard jobs at 60 %: performance jobs have no cap.
    StandardCores,
    /// Cores of standard jobs, and GPUs of training jobs, whose work is long, at 60 % with cubic power.
    ByClass,
    /// Cores and GPUs at 60 % and no job is slower, which is what upstream's published runs amount to.
    Free,
}

/// All of them, none first.
pub const CAP_RULES: [CapRule; 9] = [
    CapRule::None,
    CapRule::GpusCubic,
    CapRule::GpusDeepCubic,
    CapRule::GpusLeastCubic,
    CapRule::GpusUpstream,
    CapRule::Cores,
    CapRule::StandardCores,
    CapRule::ByClass,
    CapRule::Free,
];

/// The frequency of capped cores, as a part.
const FREQUENCY: f64 = 0.6;
const GPU_MOST_W: f64 = 700.0;
const CUBIC: f64 = 1.0 / 3.0;
const UPSTREAM: f64 = 1.4;

impl CapRule {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "no caps",
            Self::GpusCubic => "GPUs 60 %, cubic",
            Self::GpusDeepCubic => "GPUs 50 %, cubic",
            Self::GpusLeastCubic => "GPUs 35 %, cubic",
            Self::GpusUpstream => "GPUs 60 %, upstream's gamma",
            Self::Cores => "cores 60 %",
            Self::StandardCores => "cores 60 % of standard jobs",
            Self::ByClass => "by class",
            Self::Free => "all 60 %, no slowdown",
        }
    }

    /// The job under the caps.
    #[must_use]
    pub fn capped(self, job: &OfferedJob) -> OfferedJob {
        let gpus = match self {
            Self::None | Self::Cores | Self::StandardCores => None,
            Self::GpusCubic | Self::Free => Some((0.6, CUBIC)),
            Self::GpusDeepCubic => Some((0.5, CUBIC)),
            Self::GpusLeastCubic => Some((0.35, CUBIC)),
            Self::GpusUpstream => Some((0.6, UPSTREAM)),
            Self::ByClass => job.performance.then_some((0.6, CUBIC)),
        };
        let cores = match self {
            Self::None
            | Self::GpusCubic
            | Self::GpusDeepCubic
            | Self::GpusLeastCubic
            | Self::GpusUpstream => false,
            Self::Cores | Self::Free => true,
            Self::StandardCores | Self::ByClass => !job.performance,
        };
        let mut capped = *job;
        let mut speed = 1.0_f64;
        if let Some((part, gamma)) = gpus.filter(|_| job.gpus > 0) {
            let each = gpu_w(job.performance) * value(job.busy_gpus) / f64::from(job.gpus);
            let r = (part * GPU_MOST_W / each).min(1.0);
            capped.busy_gpus = parts(value(job.busy_gpus) * r);
            speed = speed.min(0.5 * r.powf(gamma) + 0.5 * (1.0 - 0.15 * (1.0 - r).powf(0.9)));
        }
        if cores {
            capped.busy_cores = parts(value(job.busy_cores) * FREQUENCY.powf(1.35));
            // A job with GPUs waits for its GPUs.
            speed = if job.gpus > 0 { speed } else { speed.min(core_speed(FREQUENCY)) };
        }
        if self != Self::Free {
            capped.lasts = crate::numbers::steps(f64::from(job.lasts) * f64::from(crate::STEP_S) / speed);
        }
        capped
    }
}

/// Upstream's speed at a frequency for the class *other*, of work that is bound by neither memory nor devices.
fn core_speed(f: f64) -> f64 {
    0.6975 * f + 0.1925 * (1.0 - 0.12 * (1.0 - f)) + 0.11 * (1.0 - 0.05 * (1.0 - f))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::JobClass;

    #[test]
    fn a_cap_is_paid_for_in_time_as_calculated_by_hand() {
        let job = OfferedJob {
            arrives: 0,
            lasts: 1000,
            cores: 16,
            gpus: 2,
            performance: true,
            class: JobClass::Training,
            busy_cores: parts(8.0),
            busy_gpus: parts(1.6),
        };
        assert_eq!(CapRule::None.capped(&job), job);
        // 0.85 * 700 * 0.8 = 476 W each, held at 350 W: r = 0.7353. ½ · 0.9026 + ½ · (1 − 0.15 · 0.3024) = 0.9286.
        let capped = CapRule::GpusDeepCubic.capped(&job);
        assert!((value(capped.busy_gpus) - 1.6 * 350.0 / 476.0).abs() < 1e-6);
        assert!((1076..=1078).contains(&capped.lasts), "{}", capped.lasts);
        // At 245 W: r = 0.5147. ½ · 0.8014 + ½ · (1 − 0.15 · 0.5217) = 0.8616.
        let least = CapRule::GpusLeastCubic.capped(&job);
        assert!((1160..=1162).contains(&least.lasts), "{}", least.lasts);
        // A job of 200 W each is not touched by a cap of 350 W.
        let light = OfferedJob { busy_gpus: parts(0.6), ..job };
        assert_eq!(CapRule::GpusDeepCubic.capped(&light), light);
        // 0.6975 · 0.6 + 0.1925 · 0.952 + 0.11 · 0.98 = 0.7096, and 0.6^1.35 = 0.5018.
        let plain = OfferedJob { gpus: 0, busy_gpus: 0, performance: false, ..job };
        let capped = CapRule::Cores.capped(&plain);
        assert_eq!(capped.lasts, 1410);
        assert!((value(capped.busy_cores) - 8.0 * 0.501_76).abs() < 1e-3);
        assert_eq!(CapRule::Free.capped(&plain).lasts, 1000);
        assert_eq!(CapRule::ByClass.capped(&OfferedJob { performance: true, ..plain }).lasts, 1000);
    }
}
