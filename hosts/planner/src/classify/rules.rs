//! The rules from metrics to a profile. The first match decides, and whether a comparison is strict is part of the
//! rule.
//!
//! | output | rule |
//! |---|---|
//! | cpu intensity | from 75 high, from 30 medium, else low |
//! | cpu bound/sensitivity | GPU-dominant: mixed/low · CPU > 65, memory < 50: compute/(CPU > 70: high, else medium) · memory > 50, CPU < 60: memory/low · CPU < 20: io/low · else mixed/medium |
//! | Kepler override | share of package energy > 0.70: compute/high, else share of DRAM energy > 0.40: memory/low |
//! | gpu intensity | from 70 high, from 25 medium, else low |
//! | gpu bound | memory > 60: memory, else GPU > 40: compute, else mixed |
//! | gpu sensitivity | compute and high: high · low intensity: low · else medium |
//! | confidence | 0.3, + 0.2 for a class other than standard, + 0.2 for CPU use, + 0.2 for energy |
//!
//! GPU-dominant is GPU > 40 and GPU > CPU. Packages take most of the energy of nearly every workload without a
//! graphics processor, whether it waits or computes; so the override to compute also requires a CPU intensity above
//! low.

use super::metrics::{Energy, WorkloadMetrics};
use super::{
    Bound, CPU_GRADES, Confidence, DeviceUsage, GPU_GRADES, Grades, Hints, Intensity, Sensitivity,
    WorkloadProfile,
};
use joulie_core::placement::class::WorkloadClass;
use power_units::{Percent, Ratio, Role};
use std::fmt::Write as _;

/// The profile that follows from the hints and the metrics; without metrics from the hints alone.
#[must_use]
pub fn classify(hints: &Hints, metrics: Option<&WorkloadMetrics>) -> WorkloadProfile {
    let Some(metrics) = metrics.filter(|metrics| !metrics.is_empty()) else {
        return by_hints(hints);
    };
    let mut reason = Reason(String::new());
    let cpu = cpu_verdict(metrics, &mut reason);
    let gpu = gpu_verdict(metrics, &mut reason);
    WorkloadProfile {
        class: hints.class.class,
        reschedulable: hints.reschedulable,
        cpu,
        gpu,
        confidence: confidence(hints, metrics),
        reason: reason.0,
    }
}

fn by_hints(hints: &Hints) -> WorkloadProfile {
    let cpu = DeviceUsage {
        intensity: Intensity::Medium,
        bound: Bound::Mixed,
        sensitivity: Sensitivity::Medium,
        utilization: None,
    };
    WorkloadProfile {
        class: hints.class.class,
        reschedulable: hints.reschedulable,
        cpu,
        gpu: UNUSED,
        confidence: Confidence::tenths(3),
        reason: "hints only: no metrics".to_owned(),
    }
}

const UNUSED: DeviceUsage = DeviceUsage {
    intensity: Intensity::None,
    bound: Bound::None,
    sensitivity: Sensitivity::None,
    utilization: None,
};

/// The class that the metrics suggest for a workload that names none. Simulated workloads are classified like this if
/// the configuration asks for it. A named class always stays, `standard` too.
#[must_use]
pub fn derive_class(hints: &Hints, metrics: &WorkloadMetrics) -> WorkloadClass {
    if hints.explicit {
        return hints.class.class;
    }
    let Seen { cpu, gpu, memory } = Seen::of(metrics);
    let busy = cpu > percent(65) && memory < percent(50);
    if is_gpu_dominant(metrics) || gpu > percent(50) || busy {
        WorkloadClass::Performance
    } else {
        WorkloadClass::Standard
    }
}

/// The tokens of a reason, with `; ` between them.
struct Reason(String);

impl Reason {
    fn add(&mut self, token: std::fmt::Arguments<'_>) {
        if !self.0.is_empty() {
            self.0.push_str("; ");
        }
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(token);
    }
}

/// The signals for comparisons: a missing signal counts as zero, so it is no evidence.
struct Seen {
    cpu: Percent,
    gpu: Percent,
    memory: Percent,
}

impl Seen {
    fn of(metrics: &WorkloadMetrics) -> Self {
        let seen = |signal: Option<Percent>| signal.unwrap_or(Percent::ZERO);
        Self { cpu: seen(metrics.cpu), gpu: seen(metrics.gpu), memory: seen(metrics.memory) }
    }
}

fn is_gpu_dominant(metrics: &WorkloadMetrics) -> bool {
    let Seen { cpu, gpu, .. } = Seen::of(metrics);
    gpu > percent(40) && gpu > cpu
}

fn cpu_verdict(metrics: &WorkloadMetrics, reason: &mut Reason) -> DeviceUsage {
    let intensity = match metrics.cpu {
        Some(cpu) => graded(cpu, &CPU_GRADES),
        None => Intensity::Medium,
    };
    let (bound, sensitivity) = cpu_bound(metrics);
    match metrics.cpu {
        Some(cpu) => reason.add(format_args!("cpu-intensity={} (cpu={cpu:.1}%)", intensity.as_str())),
        None => reason.add(format_args!("cpu-intensity={} (cpu unknown)", intensity.as_str())),
    }
    reason.add(format_args!("cpu-bound={} (cap-sensitivity={})", bound.as_str(), sensitivity.as_str()));
    let verdict = DeviceUsage { intensity, bound, sensitivity, utilization: metrics.cpu };
    metrics.energy.map_or(verdict, |energy| by_energy(verdict, energy, reason))
}

fn cpu_bound(metrics: &WorkloadMetrics) -> (Bound, Sensitivity) {
    let Seen { cpu, memory, .. } = Seen::of(metrics);
    if is_gpu_dominant(metrics) {
        (Bound::Mixed, Sensitivity::Low)
    } else if cpu > percent(65) && memory < percent(50) {
        let much = cpu > percent(70);
        (Bound::Compute, if much { Sensitivity::High } else { Sensitivity::Medium })
    } else if memory > percent(50) && cpu < percent(60) {
        (Bound::Memory, Sensitivity::Low)
    } else if metrics.cpu.is_some_and(|cpu| cpu < percent(20)) {
        (Bound::Io, Sensitivity::Low)
    } else {
        (Bound::Mixed, Sensitivity::Medium)
    }
}

/// Applies the Kepler override to the verdict by utilisation.
fn by_energy(verdict: DeviceUsage, energy: Energy, reason: &mut Reason) -> DeviceUsage {
    let exceeds = |share: Option<Ratio>, percent: i32| {
        share.is_some_and(|share| share > Percent::from_int(percent).to_ratio(Role::Nearest))
    };
    let works = verdict.intensity > Intensity::Low;
    if exceeds(energy.compute_share(), 70) && works {
        if verdict.bound == Bound::Compute {
            return verdict;
        }
        reason.add(format_args!("kepler override: cpu-bound=compute (package energy)"));
        return DeviceUsage { bound: Bound::Compute, sensitivity: Sensitivity::High, ..verdict };
    }
    if exceeds(energy.memory_share(), 40) && verdict.bound != Bound::Memory {
        reason.add(format_args!("kepler override: cpu-bound=memory (DRAM energy)"));
        return DeviceUsage { bound: Bound::Memory, sensitivity: Sensitivity::Low, ..verdict };
    }
    verdict
}

fn gpu_verdict(metrics: &WorkloadMetrics, reason: &mut Reason) -> DeviceUsage {
    let Seen { gpu, memory, .. } = Seen::of(metrics);
    let draws = metrics.energy.is_some_and(|energy| energy.gpu.get() > 0);
    if gpu <= Percent::ZERO && !draws {
        return UNUSED;
    }
    let intensity = graded(gpu, &GPU_GRADES);
    let bound = if memory > percent(60) {
        Bound::Memory
    } else if gpu > percent(40) {
        Bound::Compute
    } else {
        Bound::Mixed
    };
    let sensitivity = match (bound, intensity) {
        (Bound::Compute, Intensity::High) => Sensitivity::High,
        (_, Intensity::Low | Intensity::None) => Sensitivity::Low,
        (_, Intensity::Medium | Intensity::High) => Sensitivity::Medium,
    };
    reason.add(format_args!("gpu-intensity={} (gpu={gpu:.1}%)", intensity.as_str()));
    reason.add(format_args!("gpu-bound={} (cap-sensitivity={})", bound.as_str(), sensitivity.as_str()));
    DeviceUsage { intensity, bound, sensitivity, utilization: metrics.gpu }
}

fn graded(value: Percent, grades: &Grades) -> Intensity {
    if value >= percent(grades.high) {
        Intensity::High
    } else if value >= percent(grades.medium) {
        Intensity::Medium
    } else {
        Intensity::Low
    }
}

fn confidence(hints: &Hints, metrics: &WorkloadMetrics) -> Confidence {
    let says_more = hints.class.class == WorkloadClass::Performance || !hints.class.recognised;
    let works = metrics.cpu.is_some_and(|cpu| cpu > Percent::ZERO);
    let measured = metrics.energy.is_some_and(Energy::is_some);
    let evidence = u8::from(says_more) + u8::from(works) + u8::from(measured);
    Confidence::tenths(3 + 2 * evidence)
}

const fn percent(value: i32) -> Percent {
    Percent::from_int(value)
}

#[cfg(test)]
mod tests;
