//! The observable values of a machine, for telemetry, metrics and tests.

use super::{Running, SimulatedMachine};
use crate::work::LoadBottleneck;
use plant::PlantDomain;

/// The content of a machine's telemetry. Watts are totals of all packages or all GPUs, unless the description says
/// otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryReading {
    /// All packages, mean over the telemetry's window.
    pub cpu_watts: f64,
    /// All packages, now.
    pub cpu_watts_now: f64,
    /// All GPUs, mean over the telemetry's window.
    pub gpu_watts: f64,
    /// All GPUs, now.
    pub gpu_watts_now: f64,
    /// The whole node, including the parts outside packages and GPUs, now.
    pub node_watts: f64,
    /// Each package: power now, W, and temperature, °C.
    pub packages: Vec<(f64, f64)>,
    /// Each GPU: power now, W, and temperature, °C.
    pub boards: Vec<(f64, f64)>,
    /// How busy the processors are, 0 to 1.
    pub cpu_utilisation: f64,
    /// How busy the GPUs are, 0 to 1.
    pub gpu_utilisation: f64,
    /// The mean of the pods' waiting for memory, weighted by their processors.
    pub memory: f64,
    /// The mean of the pods' waiting for disk and network, weighted by their processors.
    pub io: f64,
    /// The mean of the GPU pods' waiting for their processors, weighted by their GPUs.
    pub feed: f64,
    /// The main bottleneck of the busy processors.
    pub cpu_class: LoadBottleneck,
    /// The main bottleneck of the busy GPUs.
    pub gpu_class: LoadBottleneck,
    /// The clock of the processors while busy, as a part of the highest.
    pub cpu_clock: f64,
    /// The clock of the GPUs while busy, as a part of the highest; the mean of all.
    pub gpu_clock: f64,
    /// By how much heat reduces the clock, percent.
    pub thermal_throttle_pct: f64,
    /// Whether a package draws more than its limit although its clock is the lowest.
    pub saturated: bool,
    /// Pods that have not finished.
    pub pods: usize,
    /// Of them, performance pods.
    pub performance_pods: usize,
}

impl TelemetryReading {
    /// That of a machine that is off: its parts draw nothing, and the rest draws this.
    fn switched_off(self, standby_watts: f64) -> Self {
        let without_power = |parts: &[(f64, f64)]| parts.iter().map(|(_, celsius)| (0.0, *celsius)).collect();
        Self {
            cpu_watts: 0.0,
            cpu_watts_now: 0.0,
            gpu_watts: 0.0,
            gpu_watts_now: 0.0,
            node_watts: standby_watts,
            packages: without_power(&self.packages),
            boards: without_power(&self.boards),
            cpu_clock: 0.0,
            gpu_clock: 0.0,
            ..self
        }
    }
}

impl SimulatedMachine {
    /// The limit on each package, W.
    #[must_use]
    pub const fn package_cap(&self) -> f64 {
        self.limit_watts
    }

    /// The cap on each GPU, W; `None` without a GPU.
    #[must_use]
    pub const fn board_cap(&self) -> Option<f64> {
        self.board_watts
    }

    /// By how much the highest clock is reduced, percent.
    #[must_use]
    pub const fn throttle_pct(&self) -> u8 {
        self.throttle_pct
    }

    /// The clock of the processors while busy, as a part of the highest; the mean of all packages.
    pub(super) fn cpu_clock(&self) -> f64 {
        let mut sum = 0.0;
        let count = self.plant.policies();
        for policy in 0..count {
            let most = self.plant.frequency_range(policy).map_or(1, |(_, most)| most);
            sum += self.plant.effective_khz(policy).unwrap_or(0.0) / f64::from(most);
        }
        if count == 0 { 1.0 } else { sum / count as f64 }
    }

    /// Reads everything.
    #[must_use]
    pub fn read(&mut self) -> TelemetryReading {
        let reading = self.read_on();
        match self.standby() {
            Some(watts) => reading.switched_off(watts),
            None => reading,
        }
    }

    /// Reads everything of a machine that is not off.
    fn read_on(&mut self) -> TelemetryReading {
        let plant = &self.plant;
        let cpu_watts = self.cpu_sensors.iter_mut().filter_map(|sensor| sensor.read(plant)).sum();
        let gpu_watts = self.gpu_sensors.iter_mut().filter_map(|sensor| sensor.read(plant)).sum();
        let part = |domain| (plant.watts(domain).unwrap_or(0.0), plant.celsius(domain).unwrap_or(0.0));
        let packages: Vec<_> = (0..plant.packages()).map(|at| part(PlantDomain::Package(at))).collect();
        let boards: Vec<_> = (0..plant.gpus()).map(|at| part(PlantDomain::Gpu(at))).collect();
        let hot = (0..packages.len())
            .any(|at| plant.throttle(PlantDomain::Package(at)).is_some_and(|throttle| throttle.thermal));
        let cpu_clock = self.cpu_clock();
        let clocks: Vec<f64> = (0..boards.len()).filter_map(|at| plant.gpu_clock(at)).collect();
        let busy: Vec<f64> = (0..boards.len()).filter_map(|at| plant.gpu_utilisation(at)).collect();
        let active: Vec<&Running> = self.pods.values().filter(|pod| !pod.is_finished()).collect();
        let cpus = |pod: &Running| pod.work.cpus * pod.work.cpu_utilisation;
        let gpus = |pod: &Running| f64::from(pod.work.gpus) * pod.work.gpu_utilisation;
        let floor = self
            .hardware
            .plant
            .packages
            .first()
            .map_or(1.0, |package| f64::from(package.min_khz) / f64::from(package.max_khz));
        TelemetryReading {
            cpu_watts,
            cpu_watts_now: packages.iter().map(|(watts, _)| watts).sum(),
            gpu_watts,
            gpu_watts_now: boards.iter().map(|(watts, _)| watts).sum(),
            node_watts: plant.node_watts(),
            cpu_utilisation: self.busy_cores(),
            gpu_utilisation: mean(&busy, 0.0),
            memory: weighted(&active, cpus, |pod| pod.work.memory),
            io: weighted(&active, cpus, |pod| pod.work.io),
            feed: weighted(&active, gpus, |pod| pod.work.feed),
            cpu_class: dominant(&active, cpus, |pod| pod.work.cpu_class),
            gpu_class: dominant(&active, gpus, |pod| pod.work.gpu_class),
            gpu_clock: mean(&clocks, 1.0),
            thermal_throttle_pct: if hot { 100.0 * (1.0 - cpu_clock) } else { 0.0 },
            // A tolerance of one watt: the limiter controls a mean, so a single step may be above the limit.
            saturated: cpu_clock <= floor + 1e-6
                && packages.iter().any(|(watts, _)| *watts > self.limit_watts + 1.0),
            pods: active.len(),
            performance_pods: active.iter().filter(|pod| pod.work.performance).count(),
            cpu_clock,
            packages,
            boards,
        }
    }

    /// How busy the processors are.
    fn busy_cores(&self) -> f64 {
        let busy = self.pods.values().filter(|pod| !pod.is_finished());
        let sum: f64 = busy.map(|pod| pod.work.cpus * pod.work.cpu_utilisation).sum();
        (sum / f64::from(self.hardware.cpus())).min(1.0)
    }

    /// The most that the packages and the GPUs may draw, W.
    #[must_use]
    pub fn watts_max(&self) -> (f64, f64) {
        let packages = f64::from(self.hardware.sockets) * self.hardware.package_cap.1;
        let boards = self.hardware.gpus.as_ref().map_or(0.0, |gpus| f64::from(gpus.count) * gpus.cap.1);
        (packages, boards)
    }
}

fn mean(values: &[f64], none: f64) -> f64 {
    if values.is_empty() { none } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn weighted(pods: &[&Running], weight: impl Fn(&Running) -> f64, value: impl Fn(&Running) -> f64) -> f64 {
    let total: f64 = pods.iter().map(|pod| weight(pod)).sum();
    let sum: f64 = pods.iter().map(|pod| weight(pod) * value(pod)).sum();
    if total > 0.0 { sum / total } else { 0.0 }
}

/// The class of at least three fifths of the weight, otherwise `Mixed` (facts/simulator.md section 3.6).
fn dominant(
    pods: &[&Running],
    weight: impl Fn(&Running) -> f64,
    class: impl Fn(&Running) -> LoadBottleneck,
) -> LoadBottleneck {
    let total: f64 = pods.iter().map(|pod| weight(pod)).sum();
    let of = |wanted: LoadBottleneck| -> f64 {
        pods.iter().filter(|pod| class(pod) == wanted).map(|pod| weight(pod)).sum()
    };
    let leads = |wanted: &LoadBottleneck| total > 0.0 && of(*wanted) >= 0.6 * total;
    LoadBottleneck::ALL.into_iter().find(leads).unwrap_or(LoadBottleneck::Mixed)
}
