//! The classifier's input on a workload's behaviour: utilisations as shares, and the energy used. Every signal may
//! be missing, and a missing signal is not zero.

use power_units::{MicroJoules, NonZeroMicros, Percent, Ratio, Role, Watts};

/// The metrics of one workload, as the rules read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkloadMetrics {
    /// Use of the processors.
    pub cpu: Option<Percent>,
    /// Use of the graphics processors.
    pub gpu: Option<Percent>,
    /// How full its memory is.
    pub memory: Option<Percent>,
    /// The energy it used, as Kepler attributes it.
    pub energy: Option<Energy>,
}

/// A workload's energy by part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Energy {
    /// The processor packages.
    pub package: MicroJoules,
    /// The memory.
    pub dram: MicroJoules,
    /// The graphics processors.
    pub gpu: MicroJoules,
}

impl Energy {
    /// package / (package + dram + gpu), if the sum is not zero.
    #[must_use]
    pub fn compute_share(self) -> Option<Ratio> {
        share(self.package, [self.package, self.dram, self.gpu])
    }

    /// dram / (package + dram), if the sum is not zero.
    #[must_use]
    pub fn memory_share(self) -> Option<Ratio> {
        share(self.dram, [self.package, self.dram, MicroJoules::ZERO])
    }

    /// Whether any energy was used.
    #[must_use]
    pub fn is_some(self) -> bool {
        self.package > MicroJoules::ZERO || self.dram > MicroJoules::ZERO || self.gpu > MicroJoules::ZERO
    }
}

fn share(part: MicroJoules, whole: [MicroJoules; 3]) -> Option<Ratio> {
    let whole: u128 = whole.iter().map(|energy| u128::from(energy.get())).sum();
    let bits = (u128::from(part.get()) << 32).checked_div(whole)?;
    i64::try_from(bits).ok().map(Ratio::from_bits)
}

impl WorkloadMetrics {
    /// Whether no signal is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The mean over the pods of a controller: of each signal over the pods that have it, and the energy of all
    /// pods.
    #[must_use]
    pub fn mean(pods: &[Self]) -> Self {
        let energy = pods.iter().filter_map(|pod| pod.energy).reduce(|a, b| Energy {
            package: a.package + b.package,
            dram: a.dram + b.dram,
            gpu: a.gpu + b.gpu,
        });
        let of = |signal: fn(&Self) -> Option<Percent>| mean(pods.iter().filter_map(signal));
        Self { cpu: of(|pod| pod.cpu), gpu: of(|pod| pod.gpu), memory: of(|pod| pod.memory), energy }
    }

    /// The metrics with each known signal shifted, and kept between 0 and 100.
    #[must_use]
    pub fn moved(&self, cpu: Percent, gpu: Percent, memory: Percent) -> Self {
        let shift = |signal: Option<Percent>, by: Percent| signal.map(|signal| bounded(signal + by));
        Self {
            cpu: shift(self.cpu, cpu),
            gpu: shift(self.gpu, gpu),
            memory: shift(self.memory, memory),
            energy: self.energy,
        }
    }

    /// Reads the annotations `sim.joulie.io/{cpu-util-pct, gpu-util-pct, memory-pressure-pct}` of a simulated pod;
    /// `None` when none of them is a number.
    #[must_use]
    pub fn of_annotations(cpu: Option<&str>, gpu: Option<&str>, memory: Option<&str>) -> Option<Self> {
        let read = |text: Option<&str>| Percent::parse(text?.trim(), Role::Nearest).ok().map(bounded);
        let metrics = Self { cpu: read(cpu), gpu: read(gpu), memory: read(memory), energy: None };
        (!metrics.is_empty()).then_some(metrics)
    }
}

fn mean(signals: impl Iterator<Item = Percent>) -> Option<Percent> {
    let (sum, count) = signals
        .fold((0_i128, 0_i128), |(sum, count), signal| (sum + i128::from(signal.to_bits()), count + 1));
    sum.checked_div(count).and_then(|bits| i64::try_from(bits).ok()).map(Percent::from_bits)
}

fn bounded(percent: Percent) -> Percent {
    percent.within(Percent::ZERO, Percent::HUNDRED)
}

/// The meter readings of one pod over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals {
    /// The cores used.
    pub cores_used: Option<Ratio>,
    /// The cores requested.
    pub cores_requested: Option<Ratio>,
    /// The core limit.
    pub cores_limit: Option<Ratio>,
    /// The cores of its node.
    pub cores_of_node: Option<Ratio>,
    /// The bytes used.
    pub memory_used: Option<u64>,
    /// The memory limit, in bytes.
    pub memory_limit: Option<u64>,
    /// The bytes of its node.
    pub memory_of_node: Option<u64>,
    /// The mean utilisation of its graphics processors.
    pub gpu_utilization: Option<Percent>,
    /// Its graphics processors, used when their utilisation is unknown and their energy is known.
    pub gpus: Option<GpuShare>,
    /// Its energy over the window.
    pub energy: Option<Energy>,
    /// The window.
    pub window: NonZeroMicros,
}

/// The graphics processors of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuShare {
    /// Their number.
    pub count: u32,
    /// The rated power of each, if known.
    pub each: Option<Watts>,
}

/// A graphics processor without a known rating counts with 400 W.
const GPU_REFERENCE: Watts = Watts::from_int(400);

impl Signals {
    /// The signals as shares. Cores are divided by the request, else the limit, else the node's cores; memory by
    /// the limit, else the node's memory.
    #[must_use]
    pub fn to_metrics(&self) -> WorkloadMetrics {
        let cores = [self.cores_requested, self.cores_limit, self.cores_of_node];
        let base = cores.into_iter().flatten().find(|&cores| cores > Ratio::ZERO);
        let cpu = self.cores_used.zip(base).and_then(|(used, base)| used.ratio_to(base, Role::Demand));
        WorkloadMetrics {
            cpu: cpu.map(|share| bounded(share.to_percent())),
            gpu: self.gpu_utilization.map(bounded).or_else(|| self.gpu_by_energy()),
            memory: self.memory(),
            energy: self.energy,
        }
    }

    fn memory(&self) -> Option<Percent> {
        let base = [self.memory_limit, self.memory_of_node].into_iter().flatten().find(|&bytes| bytes > 0)?;
        let bits = (u128::from(self.memory_used?) * 100) << 32;
        let percent = bits.checked_div(u128::from(base))?;
        Some(bounded(i64::try_from(percent).map_or(Percent::MAX, Percent::from_bits)))
    }

    fn gpu_by_energy(&self) -> Option<Percent> {
        let energy = self.energy.filter(|energy| energy.gpu > MicroJoules::ZERO)?;
        let gpus = self.gpus.unwrap_or(GpuShare { count: 1, each: None });
        let each = gpus.each.filter(|&each| each > Watts::ZERO).unwrap_or(GPU_REFERENCE);
        let rating = each.times(gpus.count.max(1));
        crate::share::percent_of(energy.gpu.over(self.window), rating, Role::Demand).map(bounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::Micros;

    fn percent(value: i32) -> Option<Percent> {
        Some(Percent::from_int(value))
    }

    fn joules(value: u64) -> MicroJoules {
        MicroJoules::new(value * 1_000_000)
    }

    fn energy(package: u64, dram: u64, gpu: u64) -> Energy {
        Energy { package: joules(package), dram: joules(dram), gpu: joules(gpu) }
    }

    fn signals() -> Signals {
        Signals {
            cores_used: None,
            cores_requested: None,
            cores_limit: None,
            cores_of_node: None,
            memory_used: None,
            memory_limit: None,
            memory_of_node: None,
            gpu_utilization: None,
            gpus: None,
            energy: None,
            window: Micros::new(600_000_000).non_zero().unwrap(),
        }
    }

    #[test]
    fn shares_of_energy_are_of_energy() {
        // Fix list operator B-C1.
        let half = Some(Ratio::from_bits(1 << 31));
        assert_eq!(energy(50, 25, 25).compute_share(), half);
        assert_eq!(energy(50, 50, 900).memory_share(), half);
        assert_eq!(energy(0, 0, 0).compute_share(), None);
        assert_eq!(energy(0, 0, 9).memory_share(), None);
        let huge = Energy { package: MicroJoules::MAX, dram: MicroJoules::MAX, gpu: MicroJoules::ZERO };
        assert_eq!(huge.compute_share(), half);
    }

    #[test]
    fn a_pod_without_a_request_is_not_idle() {
        // Fix list operator B-C1.
        let cores = |value| Some(Ratio::from_int(value));
        let busy = Signals { cores_used: cores(2), ..signals() };
        let cpu = |signals: Signals| signals.to_metrics().cpu;
        assert_eq!(cpu(Signals { cores_requested: cores(4), cores_limit: cores(8), ..busy }), percent(50));
        assert_eq!(cpu(Signals { cores_limit: cores(8), cores_of_node: cores(64), ..busy }), percent(25));
        assert_eq!(
            cpu(Signals { cores_requested: cores(0), cores_of_node: cores(16), ..busy }),
            percent(13 - 1).map(|p| p + Percent::from_bits(1 << 31))
        );
        assert_eq!(cpu(busy), None);
        assert_eq!(cpu(Signals { cores_requested: cores(1), ..busy }), percent(100));
    }

    #[test]
    fn memory_counts_against_the_limit_or_the_node() {
        // Fix list operator B-C1.
        let used = Signals { memory_used: Some(3 << 30), ..signals() };
        let memory = |signals: Signals| signals.to_metrics().memory;
        assert_eq!(memory(Signals { memory_limit: Some(4 << 30), ..used }), percent(75));
        assert_eq!(memory(Signals { memory_of_node: Some(12 << 30), ..used }), percent(25));
        assert_eq!(memory(Signals { memory_limit: Some(0), ..used }), None);
        assert_eq!(
            memory(Signals { memory_used: Some(u64::MAX), memory_limit: Some(1), ..used }),
            percent(100)
        );
    }

    #[test]
    fn the_energy_of_graphics_processors_counts_against_their_own_rating() {
        // Fix list operator B-C1: 600 s at 1400 W on 4 × 700 W; without a rating one of 400 W.
        let used = Signals { energy: Some(energy(0, 0, 840_000)), ..signals() };
        let gpu = |signals: Signals| signals.to_metrics().gpu;
        let four = GpuShare { count: 4, each: Some(Watts::from_int(700)) };
        assert_eq!(gpu(Signals { gpus: Some(four), ..used }), percent(50));
        assert_eq!(gpu(Signals { energy: Some(energy(0, 0, 120_000)), ..signals() }), percent(50));
        assert_eq!(gpu(used), percent(100));
        // A utilisation takes precedence, even when it is zero.
        assert_eq!(gpu(Signals { gpu_utilization: percent(0), ..used }), percent(0));
        assert_eq!(gpu(signals()), None);
    }

    #[test]
    fn the_mean_over_pods_leaves_out_what_is_not_known() {
        let pod = |cpu, gpu| WorkloadMetrics { cpu, gpu, memory: None, energy: None };
        let mean =
            WorkloadMetrics::mean(&[pod(percent(20), None), pod(percent(60), percent(90)), pod(None, None)]);
        assert_eq!(mean, pod(percent(40), percent(90)));
        assert!(WorkloadMetrics::mean(&[]).is_empty());
        let with =
            |package| WorkloadMetrics { energy: Some(energy(package, 1, 0)), ..WorkloadMetrics::default() };
        assert_eq!(WorkloadMetrics::mean(&[with(2), with(3)]).energy, Some(energy(5, 2, 0)));
    }

    #[test]
    fn simulated_pods_say_what_they_do() {
        let read = WorkloadMetrics::of_annotations(Some("85"), Some("0"), Some(" 20.5 ")).unwrap();
        assert_eq!((read.cpu, read.gpu), (percent(85), percent(0)));
        assert_eq!(read.memory, Percent::parse("20.5", Role::Nearest).ok());
        assert_eq!(WorkloadMetrics::of_annotations(None, None, None), None);
        assert_eq!(WorkloadMetrics::of_annotations(Some("NaN"), Some("busy"), Some("")), None);
        assert_eq!(
            WorkloadMetrics::of_annotations(Some("1e3"), Some("-4"), None).map(|m| (m.cpu, m.gpu)),
            Some((percent(100), percent(0)))
        );
    }

    #[test]
    fn noise_stays_between_0_and_100() {
        let metrics = WorkloadMetrics { cpu: percent(90), gpu: percent(5), memory: None, energy: None };
        let moved = metrics.moved(Percent::from_int(18), Percent::from_int(-18), Percent::MAX);
        assert_eq!((moved.cpu, moved.gpu, moved.memory), (percent(100), percent(0), None));
    }
}
