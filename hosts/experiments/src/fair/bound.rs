//! The least energy with which the jobs can be done.

use super::REST_W;
use crate::fleet::{FleetNode, GPU_NODES, Kind};
use crate::workload::OfferedJob;
use std::collections::BTreeMap;

/// What the jobs cannot be run below, with sleep, if each starts when it arrives: what they draw themselves on the
/// cheapest cores, and parts of nodes as the fewest that they need. In kWh.
#[must_use]
pub fn bound_kwh(jobs: &[OfferedJob]) -> f64 {
    let end = jobs.iter().map(|job| job.arrives + job.lasts).max().unwrap_or(0) as usize;
    let mut starts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut ends = starts.clone();
    for (index, job) in jobs.iter().enumerate() {
        starts.entry(job.arrives as usize).or_default().push(index);
        ends.entry((job.arrives + job.lasts) as usize).or_default().push(index);
    }
    let (mut gpu, mut cpu, mut kwh) = (FleetNode::default(), FleetNode::default(), 0.0);
    for step in 0..=end {
        for &index in ends.get(&step).into_iter().flatten() {
            if jobs[index].gpus > 0 { gpu.remove(&jobs[index]) } else { cpu.remove(&jobs[index]) }
        }
        for &index in starts.get(&step).into_iter().flatten() {
            if jobs[index].gpus > 0 { gpu.add(&jobs[index]) } else { cpu.add(&jobs[index]) }
        }
        kwh += at_least_w(&gpu, &cpu) / 60_000.0;
    }
    kwh
}

/// Of all jobs of a step, those with GPUs and those without.
fn at_least_w(gpu: &FleetNode, cpu: &FleetNode) -> f64 {
    // No job of the workload keeps its cores less busy.
    const LEAST_BUSY: f64 = 0.3;
    let host = |nodes: f64, gpus: f64| nodes * Kind::Gpu.base_w(true) + (8.0 * nodes - gpus) * REST_W;
    let (cores, gpus) = (f64::from(gpu.cores), f64::from(gpu.gpus));
    let hosts = (gpus / 8.0).max(cores / 128.0);
    let here = f64::from(cpu.cores).min(GPU_NODES as f64 * 128.0 - cores);
    let more = ((cores + here) / 128.0).max(hosts);
    let there = f64::from(cpu.cores) - here;
    let on_cpu_nodes =
        there * (Kind::Cpu.base_w(true) / 96.0 + LEAST_BUSY * (Kind::Cpu.core_w() - Kind::Gpu.core_w()));
    gpu.gpu_w() + gpu.cpu_w(Kind::Gpu) + cpu.cpu_w(Kind::Gpu) + host(more, gpus) + on_cpu_nodes
}
