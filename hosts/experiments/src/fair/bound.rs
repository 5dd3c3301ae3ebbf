//! The least energy with which the jobs can be done.

use super::REST_W;
use crate::fleet::{FleetNode, GPU_NODES, Kind, PowerModel};
use crate::numbers::value;
use crate::workload::OfferedJob;
use std::collections::BTreeMap;

/// What the jobs cannot be run below, with sleep, if each starts when it arrives: what they draw themselves on the
/// cheapest cores, and parts of nodes as the fewest that they need. On the curve each busy core is taken for as cheap as at the best
/// load, and idle GPUs draw nothing. In kWh.
#[must_use]
pub fn bound_kwh(jobs: &[OfferedJob], model: PowerModel) -> f64 {
    let end = jobs.iter().map(|job| job.arrives + job.lasts).max().unwrap_or(0) as usize;
    let mut starts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut ends = starts.clone();
    for (index, job) in jobs.iter().enumerate() {
        starts.entry(job.arrives as usize).or_default().push(index);
        ends.entry((job.arrives + job.lasts) as usize).or_default().push(index);
    }
    // No job without GPUs keeps its cores less busy.
    let busy = |job: &OfferedJob| value(job.busy_cores) / f64::from(job.cores.max(1));
    let least_busy = jobs.iter().filter(|job| job.gpus == 0).map(busy).fold(1.0, f64::min);
    let (mut gpu, mut cpu, mut kwh) = (FleetNode::default(), FleetNode::default(), 0.0);
    for step in 0..=end {
        for &index in ends.get(&step).into_iter().flatten() {
            if jobs[index].gpus > 0 { gpu.remove(&jobs[index]) } else { cpu.remove(&jobs[index]) }
        }
        for &index in starts.get(&step).into_iter().flatten() {
            if jobs[index].gpus > 0 { gpu.add(&jobs[index]) } else { cpu.add(&jobs[index]) }
        }
        let watts = match model {
            PowerModel::Linear => at_least_w(&gpu, &cpu, least_busy),
            PowerModel::Curve => gpu.gpu_w() + (gpu.busy() + cpu.busy()) * model.least_w(),
        };
        kwh += watts / 60_000.0;
    }
    kwh
}

/// Of all jobs of a step, those with GPUs and those without.
fn at_least_w(gpu: &FleetNode, cpu: &FleetNode, least_busy: f64) -> f64 {
    let host = |nodes: f64, gpus: f64| nodes * Kind::Gpu.base_w(true) + (8.0 * nodes - gpus) * REST_W;
    let (cores, gpus) = (f64::from(gpu.cores), f64::from(gpu.gpus));
    let hosts = (gpus / 8.0).max(cores / 128.0);
    let here = f64::from(cpu.cores).min(GPU_NODES as f64 * 128.0 - cores);
    let more = ((cores + here) / 128.0).max(hosts);
    let there = f64::from(cpu.cores) - here;
    let on_cpu_nodes =
        there * (Kind::Cpu.base_w(true) / 96.0 + least_busy * (Kind::Cpu.core_w() - Kind::Gpu.core_w()));
    gpu.gpu_w() + gpu.cpu_w(Kind::Gpu) + cpu.cpu_w(Kind::Gpu) + host(more, gpus) + on_cpu_nodes
}
