//! Upstream's experiment 04 to the letter: a step is a minute, jobs are placed one by one in the order of arrival, and a
//! job that fits nowhere is dropped for good.
//!
//! In each step: jobs end; what each node draws is written into its ring of ten samples; slopes are computed once;
//! jobs are placed, each of which changes its node's sample and score at once, but no slope; the total is recorded.
//!
//! All nodes of a kind differ in a score only by a part that does not depend on the size of the request, so that
//! requests of one shape share an ordered index of the nodes that they fit.

use crate::figures::{Meter, PlacementFigures};
use crate::fleet::{CPU_NODES, FleetNode, GPU_IDLE_W, GPU_NODES, Kind, NODES};
use crate::numpy::NumpyGenerator;
use crate::tree::{Holds, Tree};
use crate::workload::OfferedJob;

mod arms;
mod trend;

pub use arms::{ARMS, CompatArm};

pub(crate) use arms::Seen;
pub(crate) use trend::PowerTrend;

/// No job lasts longer, in steps.
const LONGEST: usize = 512;
/// The requests for cores alone, and those for GPUs; every job of the workload is one of them.
const CORES: [u32; 9] = [1, 2, 4, 8, 16, 32, 48, 64, 96];
const CORES_WITH_GPUS: [u32; 5] = [4, 8, 16, 32, 64];
const GPUS: [u32; 4] = [1, 2, 4, 8];
const SHAPES: usize = CORES.len() + CORES_WITH_GPUS.len() * GPUS.len();

/// The cores and GPUs of a shape.
const fn shape(index: usize) -> (u32, u32) {
    if index < CORES.len() {
        return (CORES[index], 0);
    }
    let index = index - CORES.len();
    (CORES_WITH_GPUS[index / GPUS.len()], GPUS[index % GPUS.len()])
}

fn shape_of(job: &OfferedJob) -> usize {
    let (cores, gpus) = (u32::from(job.cores), u32::from(job.gpus));
    (0..SHAPES).find(|&index| shape(index) == (cores, gpus)).unwrap_or(SHAPES - 1)
}

/// Runs a law over the jobs of a seed.
#[must_use]
pub fn run(arm: CompatArm, seed: u64, jobs: &[OfferedJob], hours: u32) -> PlacementFigures {
    let mut run = Run::new(arm, seed);
    let mut meter = Meter::new(jobs);
    let mut left = jobs.iter().enumerate().peekable();
    for step in 0..hours * 60 {
        run.begin(step as usize, jobs, &mut meter);
        while let Some((index, job)) = left.next_if(|(_, job)| job.arrives <= step) {
            match run.choose(job) {
                Some(node) => {
                    run.nodes[node].add(job);
                    meter.start(job, Kind::of(node), run.nodes[node].jobs == 1);
                    run.ends[(step + job.lasts) as usize % LONGEST].push((index, node));
                    run.touch(node);
                }
                None => meter.drop_job(job),
            }
        }
        meter.record();
    }
    meter.finish()
}

/// How many values the hash of a node has, by which [`CompatArm::Random`] chooses.
const HASHES: f64 = 256.0;

/// Of so many nodes, each with a random value, the number of the first that has the highest: drawn by two numbers from 0 to 1.
///
/// The highest is at most `v` with the probability ((v + 1) / [`HASHES`])^nodes. Each node before the first one that has it is below it,
/// so that each has v / (v + 1) of the chance of the one before.
fn first_of_highest(nodes: f64, highest: f64, place: f64) -> f64 {
    if nodes <= 1.0 {
        return 0.0;
    }
    let value = (HASHES * highest.powf(1.0 / nodes)).ceil() - 1.0;
    if value <= 0.0 {
        return 0.0;
    }
    let each = value / (value + 1.0);
    let number = (1.0 - place * (1.0 - each.powf(nodes))).ln() / each.ln();
    number.floor().clamp(0.0, nodes - 1.0)
}

struct Run {
    arm: CompatArm,
    nodes: Vec<FleetNode>,
    trend: PowerTrend,
    cpu_trees: Vec<Tree>,
    gpu_trees: Vec<Tree>,
    /// By the step at which they end: jobs and their nodes.
    ends: Vec<Vec<(usize, usize)>>,
    rng: NumpyGenerator,
    /// The shape of a job by its cores and GPUs.
    shapes: Vec<u8>,
}

impl Run {
    fn new(arm: CompatArm, seed: u64) -> Self {
        let holds = if arm == CompatArm::Random { Holds::Count } else { Holds::Largest };
        let mut run = Self {
            arm,
            nodes: vec![FleetNode::default(); NODES],
            trend: PowerTrend::new(),
            cpu_trees: vec![Tree::new(CPU_NODES, holds); CORES.len()],
            gpu_trees: vec![Tree::new(GPU_NODES, holds); SHAPES],
            ends: vec![Vec::new(); LONGEST],
            rng: NumpyGenerator::new(seed),
            shapes: vec![u8::MAX; 1 << 16],
        };
        run.index_all();
        run
    }

    /// Jobs end, and what the nodes draw is sampled.
    fn begin(&mut self, step: usize, jobs: &[OfferedJob], meter: &mut Meter) {
        let ended = std::mem::take(&mut self.ends[step % LONGEST]);
        for &(index, node) in &ended {
            self.nodes[node].remove(&jobs[index]);
            meter.end(&jobs[index], Kind::of(node), self.nodes[node].jobs == 0);
            if !self.arm.follows_power() {
                self.touch(node);
            }
        }
        if !self.arm.follows_power() {
            return;
        }
        let nodes = &self.nodes;
        self.trend.sample(step, |place| nodes[place].draws_w(Kind::of(place), GPU_IDLE_W));
        self.index_all();
    }

    fn keys(&self, node: usize) -> [f64; 2] {
        let seen = Seen {
            kind: Kind::of(node),
            node: &self.nodes[node],
            slope: self.trend.slopes[node],
            scale: self.trend.scale,
            watts: match self.arm.follows_power() {
                true => self.nodes[node].draws_w(Kind::of(node), GPU_IDLE_W),
                false => 0.0,
            },
        };
        [self.arm.key(seen, false), self.arm.key(seen, true)]
    }

    fn index_all(&mut self) {
        for node in 0..NODES {
            self.index(node, Tree::put);
        }
        self.cpu_trees.iter_mut().chain(&mut self.gpu_trees).for_each(Tree::rebuild);
    }

    /// A node changed within a step.
    fn touch(&mut self, node: usize) {
        if self.arm.follows_power() {
            self.trend.touch(node, self.nodes[node].draws_w(Kind::of(node), GPU_IDLE_W));
        }
        self.index(node, Tree::set);
    }

    fn index(&mut self, node: usize, set: impl Fn(&mut Tree, usize, f64)) {
        let kind = Kind::of(node);
        let [plain, with_gpus] = self.keys(node);
        let (trees, place) = match kind {
            Kind::Cpu => (&mut self.cpu_trees, node),
            Kind::Gpu => (&mut self.gpu_trees, node - CPU_NODES),
        };
        for (index, tree) in trees.iter_mut().enumerate() {
            let (cores, gpus) = shape(index);
            let key = if gpus > 0 { with_gpus } else { plain };
            let value = if self.nodes[node].fits(kind, cores, gpus) { key } else { tree.nothing() };
            set(tree, place, value);
        }
    }

    /// The node of the highest score, if the job fits anywhere.
    fn choose(&mut self, job: &OfferedJob) -> Option<usize> {
        let place = usize::from(job.cores) << 8 | usize::from(job.gpus);
        if self.shapes[place] == u8::MAX {
            self.shapes[place] = u8::try_from(shape_of(job)).unwrap_or(0);
        }
        let index = usize::from(self.shapes[place]);
        let (cpu, gpu) = (self.cpu_trees.get(index), &self.gpu_trees[index]);
        if self.arm == CompatArm::Random {
            let of_cpu = cpu.map_or(0.0, Tree::top);
            let number = first_of_highest(of_cpu + gpu.top(), self.rng.unit(), self.rng.unit());
            return match cpu {
                Some(tree) if number < of_cpu => Some(tree.nth(number)),
                _ if gpu.top() > 0.0 => Some(CPU_NODES + gpu.nth(number - of_cpu)),
                _ => None,
            };
        }
        let offset = |kind| self.arm.offset(kind, u32::from(job.cores), u32::from(job.gpus), job.performance);
        let best = |tree: &Tree, offset: f64| {
            let top = tree.top();
            (top > f64::NEG_INFINITY).then(|| {
                let score = self.arm.score(top, offset);
                let least = match score {
                    // All that reach a bound have the same score, and the first of them is taken.
                    score if score >= top + offset && self.arm.is_clamped() && score <= 0.0 => f64::MIN,
                    score if score < top + offset => 100.0 - offset,
                    _ => top,
                };
                (score, tree.lowest(least))
            })
        };
        let on_cpu = cpu.and_then(|tree| best(tree, offset(Kind::Cpu)));
        let on_gpu = best(gpu, offset(Kind::Gpu)).map(|(score, node)| (score, CPU_NODES + node));
        match (on_cpu, on_gpu) {
            (Some(cpu), Some(gpu)) if gpu.0 > cpu.0 => Some(gpu.1),
            (Some(cpu), _) => Some(cpu.1),
            (None, gpu) => gpu.map(|(_, node)| node),
        }
    }
}

#[cfg(test)]
mod tests;
