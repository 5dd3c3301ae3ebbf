//! The same work for all: a fixed set of jobs runs to completion, jobs that fit nowhere wait, and later ones may start
//! before them (backfill). Each law runs with and without sleep.
//!
//! With sleep, a node that was empty for [`HOLD`] steps sleeps and draws nothing, but some stay awake; an idle GPU of an
//! awake node rests at 10 W. A job on a node that sleeps starts after [`WAKE`] steps, in which the node draws its base
//! and all its GPUs at their idle power. Without sleep an empty node and an idle GPU draw what upstream's model says.

use crate::fleet::{CPU_NODES, FleetNode, GPU_IDLE_W, GPU_NODES, Kind, NODES};
use crate::numbers::quantile;
use crate::numpy::NumpyGenerator;
use crate::product::{JobTerms, consolidate_terms};
use crate::workload::OfferedJob;
use joulie_core::placement::score::ConsolidateTerms;

/// Steps until an empty node sleeps, and steps until it is awake again.
pub const HOLD: u32 = 5;
/// See [`HOLD`].
pub const WAKE: u32 = 2;
/// Empty nodes of each kind that stay awake.
const WARM: u32 = 6;
/// Steps that our law looks back, for how many nodes it keeps awake.
const HOUR: usize = 60;
/// What an idle GPU draws at rest.
const REST_W: f64 = 10.0;
/// Empty GPU nodes that our law keeps for jobs with GPUs.
const KEPT: u32 = 100;

/// A law that places jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairArm {
    /// kube-scheduler's default profile, by the model in `joulie-core`. Of equal nodes, any.
    KubeDefault,
    /// kube-scheduler's `MostAllocated` over what is requested.
    MostAllocated,
    /// Any node that fits.
    Random,
    /// `MostAllocated`, and jobs without GPUs take nodes without GPUs first.
    AvoidGpu,
    /// The fewest nodes by marginal watts; see [`FairArm::score`].
    Packing,
    /// The score `consolidate` that the extender ships. A node that sleeps is taken only where no awake one fits, and as many
    /// empty nodes are kept awake, and woken ahead, as were opened in any [`WAKE`] steps of the last hour.
    Joulie,
}

/// All of them.
pub const FAIR_ARMS: [FairArm; 6] = [
    FairArm::KubeDefault,
    FairArm::MostAllocated,
    FairArm::Random,
    FairArm::AvoidGpu,
    FairArm::Packing,
    FairArm::Joulie,
];

/// What a run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct FairFigures {
    /// Energy of the machines until the last job ended.
    pub it_kwh: f64,
    /// The highest total.
    pub peak_kw: f64,
    /// Nodes that were woken.
    pub wakes: u32,
    /// Hours until the last job ended.
    pub makespan_h: f64,
    /// Minutes of waiting of standard jobs: the half, 95 and 99 of a hundred waited at most this.
    pub standard_wait: [f64; 3],
    /// The same of performance jobs.
    pub performance_wait: [f64; 3],
    /// The mean of (waiting + running) / running, less one, of performance jobs.
    pub performance_slowdown: f64,
    /// Jobs that never ran.
    pub dropped: u32,
}

/// What a law may know beside the node.
struct Around<'a> {
    seen: &'a JobTerms,
    terms: &'a ConsolidateTerms,
    empty_gpu_nodes: u32,
    asleep: bool,
    chance: f64,
}

impl FairArm {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeDefault => "kube-default",
            Self::MostAllocated => "most-allocated",
            Self::Random => "random",
            Self::AvoidGpu => "avoid-gpu",
            Self::Packing => "packing",
            Self::Joulie => "joulie",
        }
    }

    /// A node's score for a job that fits; the highest wins.
    ///
    /// The packing takes nodes that have jobs first, then awake ones. A job without GPUs takes the cheaper cores of a
    /// GPU node where they are surplus, 16 for each free GPU being kept, or where enough empty GPU nodes are left.
    fn score(self, kind: Kind, node: &FleetNode, job: &OfferedJob, around: &Around<'_>) -> f64 {
        let cores = f64::from(node.cores) / f64::from(kind.cores());
        let gpus = f64::from(node.gpus) / 8.0;
        let wants = job.gpus > 0;
        let used = if wants { (cores + gpus) / 2.0 } else { cores };
        match self {
            Self::KubeDefault => {
                let points = around.seen.scheduled(kind, node);
                f64::from(u32::try_from(points).unwrap_or(u32::MAX)) + around.chance
            }
            Self::Joulie => {
                let points = f64::from(around.seen.consolidated(kind, around.terms));
                if around.asleep { points - 1000.0 } else { points }
            }
            Self::MostAllocated => used,
            Self::Random => around.chance,
            Self::AvoidGpu if !wants && kind == Kind::Gpu => used - 10.0,
            Self::AvoidGpu => used,
            Self::Packing => {
                let tier = match (node.jobs > 0, around.asleep) {
                    (true, _) => 0.0,
                    (false, false) => -10.0,
                    (false, true) => -20.0,
                };
                let place = match kind {
                    Kind::Cpu => 0.0,
                    Kind::Gpu if wants => {
                        if node.gpus > 0 || node.jobs == 0 {
                            0.0
                        } else {
                            -30.0
                        }
                    }
                    Kind::Gpu => {
                        let left = kind.cores() - node.cores - u32::from(job.cores);
                        let surplus = node.gpus > 0 && left >= 16 * (kind.gpus() - node.gpus);
                        let spare = node.gpus == 0 && (node.jobs > 0 || around.empty_gpu_nodes > KEPT);
                        if surplus || spare { 5.0 } else { -40.0 }
                    }
                };
                tier + place + if wants { gpus + cores / 100.0 } else { cores }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Power {
    /// Since when it is empty matters where there are no jobs.
    Awake(u32),
    Asleep,
    /// Until this step.
    Waking(u32),
}

struct Cluster {
    arm: FairArm,
    sleeps: bool,
    nodes: Vec<FleetNode>,
    power: Vec<Power>,
    ends: Vec<Vec<(usize, usize)>>,
    rng: NumpyGenerator,
    wakes: u32,
    /// The extender's terms of each node.
    terms: Vec<ConsolidateTerms>,
    /// Empty nodes of each kind that got a job, by step.
    opened: [[u32; HOUR]; 2],
}

/// Runs a law over jobs, which come in the order of their arrival, until all are done.
#[must_use]
pub fn run(arm: FairArm, sleeps: bool, seed: u64, jobs: &[OfferedJob]) -> FairFigures {
    let mut cluster = Cluster {
        arm,
        sleeps,
        nodes: vec![FleetNode::default(); NODES],
        power: vec![if sleeps { Power::Asleep } else { Power::Awake(0) }; NODES],
        ends: vec![Vec::new(); 1024],
        rng: NumpyGenerator::new(seed),
        wakes: 0,
        terms: (0..NODES).map(|place| consolidate_terms(Kind::of(place), &FleetNode::default())).collect(),
        opened: [[WARM; HOUR]; 2],
    };
    let mut queue: Vec<usize> = Vec::new();
    let mut waits = vec![0_u32; jobs.len()];
    let (mut next, mut running, mut step) = (0, 0_usize, 0_u32);
    let (mut joules, mut peak) = (0.0_f64, 0.0_f64);
    while next < jobs.len() || running > 0 || !queue.is_empty() {
        running -= cluster.begin(step, jobs);
        while next < jobs.len() && jobs[next].arrives <= step {
            queue.push(next);
            next += 1;
        }
        let mut full: Vec<(u8, u8)> = Vec::new();
        let mut before = queue.len();
        queue.retain(|&index| {
            let job = &jobs[index];
            if full.contains(&(job.cores, job.gpus)) {
                return true;
            }
            let Some(later) = cluster.place(index, job, step) else {
                full.push((job.cores, job.gpus));
                return true;
            };
            waits[index] = step - job.arrives + later;
            false
        });
        before -= queue.len();
        running += before;
        let watts = cluster.watts(step);
        joules += watts * f64::from(crate::STEP_S);
        peak = peak.max(watts);
        if before == 0 && running == 0 && next == jobs.len() && !queue.is_empty() {
            // What is left fits no empty fleet either.
            break;
        }
        step += 1;
    }
    let of = |performance: bool| {
        let mut minutes: Vec<f64> = (jobs.iter().zip(&waits))
            .filter(|(job, _)| job.performance == performance)
            .map(|(_, &wait)| f64::from(wait))
            .collect();
        minutes.sort_by(f64::total_cmp);
        [0.5, 0.95, 0.99].map(|part| quantile(&minutes, part))
    };
    let late = |(job, &wait): (&OfferedJob, &u32)| f64::from(wait) / f64::from(job.lasts.max(1));
    let slowed: Vec<f64> = jobs.iter().zip(&waits).filter(|(job, _)| job.performance).map(late).collect();
    FairFigures {
        it_kwh: joules / 3.6e6,
        peak_kw: peak / 1000.0,
        wakes: cluster.wakes,
        makespan_h: f64::from(step) / 60.0,
        standard_wait: of(false),
        performance_wait: of(true),
        performance_slowdown: slowed.iter().sum::<f64>() / slowed.len().max(1) as f64,
        dropped: u32::try_from(queue.len()).unwrap_or(u32::MAX),
    }
}

impl Cluster {
    /// Jobs end, nodes are awake, and nodes that have been empty go to sleep. Returns how many jobs ended.
    fn begin(&mut self, step: u32, jobs: &[OfferedJob]) -> usize {
        let slot = step as usize % self.ends.len();
        let ended = std::mem::take(&mut self.ends[slot]);
        for &(index, node) in &ended {
            self.nodes[node].remove(&jobs[index]);
            self.terms[node] = consolidate_terms(Kind::of(node), &self.nodes[node]);
            if self.nodes[node].jobs == 0 {
                self.power[node] = Power::Awake(step);
            }
        }
        let keep = self.keep(step);
        let mut warm = [0_u32; 2];
        for (place, node) in self.nodes.iter().enumerate() {
            match self.power[place] {
                Power::Waking(until) if until <= step => self.power[place] = Power::Awake(step),
                Power::Awake(since) if self.sleeps && node.jobs == 0 => {
                    let kind = usize::from(place >= CPU_NODES);
                    warm[kind] += 1;
                    if warm[kind] > keep[kind] && step - since >= HOLD {
                        self.power[place] = Power::Asleep;
                    }
                }
                Power::Waking(_) if node.jobs == 0 => warm[usize::from(place >= CPU_NODES)] += 1,
                Power::Awake(_) | Power::Asleep | Power::Waking(_) => {}
            }
        }
        if self.arm == FairArm::Joulie && self.sleeps {
            self.wake_ahead(step, keep, warm);
        }
        ended.len()
    }

    /// How many empty nodes of each kind stay awake.
    fn keep(&mut self, step: u32) -> [u32; 2] {
        if self.arm != FairArm::Joulie {
            return [WARM; 2];
        }
        let slot = step as usize % HOUR;
        let reach = WAKE as usize + 1;
        self.opened.each_mut().map(|opened| {
            let most = (0..HOUR).map(|at| (0..reach).map(|more| opened[(at + more) % HOUR]).sum()).max();
            opened[slot] = 0;
            most.unwrap_or(WARM).max(WARM)
        })
    }

    /// Nodes that sleep are woken until as many are awake and empty as are to be kept.
    fn wake_ahead(&mut self, step: u32, keep: [u32; 2], mut warm: [u32; 2]) {
        for place in 0..NODES {
            let kind = usize::from(place >= CPU_NODES);
            if warm[kind] < keep[kind] && matches!(self.power[place], Power::Asleep) {
                warm[kind] += 1;
                self.wakes += 1;
                self.power[place] = Power::Waking(step + WAKE);
            }
        }
    }

    /// Places a job, if it fits, and says how many steps later it starts.
    fn place(&mut self, index: usize, job: &OfferedJob, step: u32) -> Option<u32> {
        let empty = self.nodes[CPU_NODES..].iter().filter(|node| node.jobs == 0).count();
        let empty_gpu_nodes = u32::try_from(empty).unwrap_or(0);
        let seen = JobTerms::of(job);
        let draws = matches!(self.arm, FairArm::Random | FairArm::KubeDefault);
        let mut best: Option<(f64, usize)> = None;
        for (place, node) in self.nodes.iter().enumerate() {
            let kind = Kind::of(place);
            if !node.fits(kind, u32::from(job.cores), u32::from(job.gpus)) {
                continue;
            }
            let asleep = !matches!(self.power[place], Power::Awake(_));
            let chance = if draws { self.rng.unit() } else { 0.0 };
            let terms = &self.terms[place];
            let around = Around { seen: &seen, terms, empty_gpu_nodes, asleep, chance };
            let score = self.arm.score(kind, node, job, &around);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, place));
            }
        }
        let (_, place) = best?;
        let later = match self.power[place] {
            Power::Awake(_) => 0,
            Power::Asleep => {
                self.wakes += 1;
                self.power[place] = Power::Waking(step + WAKE);
                WAKE
            }
            Power::Waking(until) => until.saturating_sub(step),
        };
        if self.nodes[place].jobs == 0 {
            self.opened[usize::from(place >= CPU_NODES)][step as usize % HOUR] += 1;
        }
        self.nodes[place].add(job);
        self.terms[place] = consolidate_terms(Kind::of(place), &self.nodes[place]);
        let slot = (step + later + job.lasts) as usize % self.ends.len();
        self.ends[slot].push((index, place));
        Some(later)
    }

    fn watts(&self, step: u32) -> f64 {
        let idle = if self.sleeps { REST_W } else { GPU_IDLE_W };
        let of = |(place, node): (usize, &FleetNode)| {
            let kind = Kind::of(place);
            match self.power[place] {
                Power::Asleep => 0.0,
                Power::Waking(until) if until > step => {
                    kind.base_w(true) + f64::from(kind.gpus()) * GPU_IDLE_W
                }
                Power::Awake(_) | Power::Waking(_) => node.draws_w(kind, idle),
            }
        };
        self.nodes.iter().enumerate().map(of).sum()
    }
}

/// What the jobs cannot be run below, with sleep, if each starts when it arrives: what they draw themselves on the
/// cheapest cores, and parts of nodes as the fewest that they need. In kWh.
#[must_use]
pub fn bound_kwh(jobs: &[OfferedJob]) -> f64 {
    let end = jobs.iter().map(|job| job.arrives + job.lasts).max().unwrap_or(0) as usize;
    let mut starts: Vec<Vec<usize>> = vec![Vec::new(); end + 1];
    let mut ends = starts.clone();
    for (index, job) in jobs.iter().enumerate() {
        starts[job.arrives as usize].push(index);
        ends[(job.arrives + job.lasts) as usize].push(index);
    }
    let (mut gpu, mut cpu, mut kwh) = (FleetNode::default(), FleetNode::default(), 0.0);
    for step in 0..=end {
        for &index in &ends[step] {
            if jobs[index].gpus > 0 { gpu.remove(&jobs[index]) } else { cpu.remove(&jobs[index]) }
        }
        for &index in &starts[step] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{OfferedLoad, jobs};

    #[test]
    fn all_laws_do_all_the_work_and_none_uses_less_than_the_bound() {
        let jobs = OfferedLoad::Low.thin(&jobs(42, 2));
        let bound = bound_kwh(&jobs);
        for arm in FAIR_ARMS {
            for sleeps in [false, true] {
                let figures = run(arm, sleeps, 42, &jobs);
                assert_eq!(figures, run(arm, sleeps, 42, &jobs));
                assert_eq!(figures.dropped, 0, "{}", arm.name());
                assert!(figures.it_kwh > bound, "{} {sleeps}", arm.name());
            }
        }
    }
}
