//! What a run measured.

use crate::fleet::{CPU_NODES, FleetNode, GPU_IDLE_W, GPU_NODES, Kind};
use crate::numbers::{quantile, value};
use crate::workload::{JobClass, OfferedJob};
use std::f64::consts::TAU;

/// The figures of one run. Energy in kWh, power in kW; arrays are in the order of [`crate::workload::CLASSES`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementFigures {
    /// Energy of the machines.
    pub it_kwh: f64,
    /// With the cooling of upstream's plant in its climate without noise.
    pub facility_kwh: f64,
    /// The highest total.
    pub peak_kw: f64,
    /// The deviation of the totals, start included.
    pub std_kw: f64,
    /// The 99th percentile of the change between two steps.
    pub ramp_kw: f64,
    /// Jobs that arrived, by class.
    pub jobs: [u32; 5],
    /// Jobs that were dropped, by class.
    pub dropped: [u32; 5],
    /// Allocated core-hours.
    pub core_h: f64,
    /// Core-hours times utilisation.
    pub useful_core_h: f64,
    /// Allocated GPU-hours.
    pub gpu_h: f64,
    /// GPU-hours times utilisation.
    pub useful_gpu_h: f64,
    /// Allocated core-hours of large jobs.
    pub large_core_h: f64,
    /// What nodes draw beside jobs and GPUs.
    pub base_kwh: f64,
    /// What jobs draw on cores.
    pub cpu_kwh: f64,
    /// What jobs draw on GPUs.
    pub gpu_kwh: f64,
    /// The totals, one for each step, in kW.
    pub series_kw: Vec<f64>,
}

impl PlacementFigures {
    /// Jobs that were dropped.
    #[must_use]
    pub fn drops(&self) -> u32 {
        self.dropped.iter().sum()
    }

    /// Energy for each job that was not dropped.
    #[must_use]
    pub fn kwh_each(&self) -> f64 {
        let done = self.jobs.iter().sum::<u32>() - self.drops();
        if done == 0 { 0.0 } else { self.it_kwh / f64::from(done) }
    }

    /// All energy over what jobs themselves drew.
    #[must_use]
    pub fn for_work(&self) -> f64 {
        let work = self.cpu_kwh + self.gpu_kwh;
        if work > 0.0 { self.it_kwh / work } else { 0.0 }
    }
}

/// Sums over the fleet, kept up to date job by job. All jobs together are one node of each kind.
#[derive(Debug)]
pub(crate) struct Meter {
    cpu: FleetNode,
    gpu: FleetNode,
    active: [u32; 2],
    busy_cores: i64,
    busy_gpus: i64,
    large_cores: u32,
    figures: PlacementFigures,
}

impl Meter {
    pub(crate) fn new(jobs: &[OfferedJob]) -> Self {
        let mut figures = PlacementFigures::default();
        for job in jobs {
            figures.jobs[job.class.index()] += 1;
        }
        let (cpu, gpu) = (FleetNode::default(), FleetNode::default());
        Self { cpu, gpu, active: [0; 2], busy_cores: 0, busy_gpus: 0, large_cores: 0, figures }
    }

    pub(crate) fn start(&mut self, job: &OfferedJob, kind: Kind, was_empty: bool) {
        match kind {
            Kind::Cpu => self.cpu.add(job),
            Kind::Gpu => self.gpu.add(job),
        }
        self.active[usize::from(kind == Kind::Gpu)] += u32::from(was_empty);
        self.busy_cores += job.busy_cores;
        self.busy_gpus += job.busy_gpus;
        if job.class == JobClass::Large {
            self.large_cores += u32::from(job.cores);
        }
    }

    pub(crate) fn end(&mut self, job: &OfferedJob, kind: Kind, is_empty: bool) {
        match kind {
            Kind::Cpu => self.cpu.remove(job),
            Kind::Gpu => self.gpu.remove(job),
        }
        self.active[usize::from(kind == Kind::Gpu)] -= u32::from(is_empty);
        self.busy_cores -= job.busy_cores;
        self.busy_gpus -= job.busy_gpus;
        if job.class == JobClass::Large {
            self.large_cores -= u32::from(job.cores);
        }
    }

    pub(crate) fn drop_job(&mut self, job: &OfferedJob) {
        self.figures.dropped[job.class.index()] += 1;
    }

    /// A step as it is after its placements.
    pub(crate) fn record(&mut self) {
        let base = |kind: Kind, count: usize, active: u32| {
            f64::from(active) * kind.base_w(true) + (count as f64 - f64::from(active)) * kind.base_w(false)
        };
        let base = base(Kind::Cpu, CPU_NODES, self.active[0]) + base(Kind::Gpu, GPU_NODES, self.active[1]);
        let cpu = self.cpu.cpu_w(Kind::Cpu) + self.gpu.cpu_w(Kind::Gpu);
        let gpu = self.gpu.gpu_w();
        let idle = (GPU_NODES as f64 * 8.0 - f64::from(self.gpu.gpus)) * GPU_IDLE_W;
        // A minute of watts, in kWh.
        let kwh = 1.0 / 60_000.0;
        let total = base + cpu + gpu + idle;
        let hour = self.figures.series_kw.len() as f64 / 60.0;
        let figures = &mut self.figures;
        figures.base_kwh += base * kwh;
        figures.cpu_kwh += cpu * kwh;
        figures.gpu_kwh += gpu * kwh;
        figures.it_kwh += total * kwh;
        figures.facility_kwh += (total + cooling_w(total, outdoor_c(hour))) * kwh;
        figures.core_h += f64::from(self.cpu.cores + self.gpu.cores) / 60.0;
        figures.useful_core_h += value(self.busy_cores) / 60.0;
        figures.gpu_h += f64::from(self.gpu.gpus) / 60.0;
        figures.useful_gpu_h += value(self.busy_gpus) / 60.0;
        figures.large_core_h += f64::from(self.large_cores) / 60.0;
        figures.series_kw.push(total / 1000.0);
    }

    pub(crate) fn finish(mut self) -> PlacementFigures {
        let series = &self.figures.series_kw;
        let count = series.len().max(2) as f64;
        let mean = series.iter().sum::<f64>() / count;
        let spread: f64 = series.iter().map(|kw| (kw - mean).powi(2)).sum();
        self.figures.peak_kw = series.iter().copied().fold(0.0, f64::max);
        self.figures.std_kw = (spread / (count - 1.0)).sqrt();
        self.figures.ramp_kw = ramp(series);
        self.figures
    }
}

/// The 99th percentile of the change between two steps.
pub(crate) fn ramp(series: &[f64]) -> f64 {
    let mut ramps: Vec<f64> = series.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    ramps.sort_by(f64::total_cmp);
    quantile(&ramps, 0.99)
}

/// The temperature outside in upstream's climate, without its noise.
pub(crate) fn outdoor_c(hour: f64) -> f64 {
    23.0 + 6.0 * (TAU * hour / 24.0 - 3.0 * TAU / 8.0).sin() + 2.0 * (TAU * hour / 72.0).sin()
}

/// What upstream's plant draws in the closed form: an economiser, a compressor, and a fan; the room stays at 25 °C.
pub(crate) fn cooling_w(it: f64, outdoor_c: f64) -> f64 {
    const ROOM_C: f64 = 25.0;
    const FLOW: f64 = 82.84;
    const RATED_W: f64 = 1.0e6;
    let economiser = match outdoor_c {
        t if t < 13.0 => 1.0,
        t if t < 17.98 => ((17.98 - t) / 4.98).clamp(0.05, 1.0),
        _ => 0.05,
    };
    let mixed = economiser * outdoor_c + (1.0 - economiser) * ROOM_C;
    let free = FLOW * 1006.0 * (ROOM_C - mixed).max(0.0);
    let driven = (it - free).max(0.0);
    let load = (driven / RATED_W).min(1.0);
    let heat = 1.0 - 0.025 * (outdoor_c - 35.0).max(0.0);
    let efficiency = (3.0 * heat * (1.0 + 0.1 * (1.0 - load))).max(1.0);
    let compressor = if outdoor_c < 13.0 { 0.0 } else { driven / efficiency };
    let fan = (it / RATED_W).clamp(0.2, 1.0);
    compressor + FLOW / 1.2 * 500.0 / 0.7 * fan.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the plant's steady state: 2.655 MW have 1.348 to 1.352 from 18 °C, 1.289 at 15 °C, 1.019 below 13 °C.
    #[test]
    fn cooling_is_as_in_the_plant_s_table() {
        let pue = |t: f64| 1.0 + cooling_w(2.655e6, t) / 2.655e6;
        assert!((1.348..1.353).contains(&pue(25.0)));
        assert!((pue(15.0) - 1.289).abs() < 0.002);
        assert!((pue(12.0) - 1.019).abs() < 0.001);
    }
}
