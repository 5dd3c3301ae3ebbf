//! The fleet of a run: which nodes are awake, where jobs are, and what is drawn.
//!
//! Nodes in the same state have the same score, so that a job looks at each state once, and not at each node.

use super::arms::{Around, FairArm, SleepRule};
use super::upstream::Followed;
use super::{BACK, HOLD, KEEP_PERCENT, PlacementLaw, REST_W, WAKE, WARM};
use crate::STEP_S;
use crate::fleet::{CPU_NODES, FleetNode, GPU_IDLE_W, Kind, NODES, PowerModel};
use crate::numpy::NumpyGenerator;
use crate::product::{GpuAsks, JobTerms, NodeView};
use crate::workload::OfferedJob;
use std::collections::BTreeMap;

/// What a node draws that wakes.
fn waking_w(kind: Kind, model: PowerModel) -> f64 {
    model.boot_w(kind) + f64::from(kind.gpus()) * GPU_IDLE_W
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    /// Since when it is empty matters where there are no jobs.
    Awake(u32),
    Asleep,
    /// Until this step.
    Waking(u32),
}

/// All that a score depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    has_gpus: bool,
    asleep: bool,
    used: bool,
    cores: u32,
    gpus: u32,
}

/// Sums over the steps of a run: watts, and watts of parts; nodes that are on, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) watts: f64,
    pub(super) base: f64,
    pub(super) waking: f64,
    pub(super) on: [f64; 2],
    pub(super) gpu_hosts: f64,
    pub(super) gpus: f64,
}

pub(super) struct Cluster {
    law: PlacementLaw,
    nodes: Vec<FleetNode>,
    power: Vec<Power>,
    states: BTreeMap<State, Vec<usize>>,
    ends: BTreeMap<u32, Vec<(usize, usize)>>,
    rng: NumpyGenerator,
    pub(super) wakes: u32,
    /// GPU nodes without jobs.
    whole: u32,
    /// What jobs with GPUs ask for, those that wait included.
    asks: GpuAsks,
    /// Empty nodes of each kind that got a job, by step.
    opened: [Vec<u32>; 2],
    /// What upstream's formulas have seen.
    followed: Option<Followed>,
    /// Free GPUs, whether their node is awake or not.
    free_gpus: u32,
    /// Core steps of jobs without GPUs: all, and those on GPU nodes.
    pub(super) plain: [f64; 2],
}

impl Cluster {
    pub(super) fn new(law: PlacementLaw, seed: u64) -> Self {
        let idle = if law.sleep.sleeps() { REST_W } else { GPU_IDLE_W };
        let followed = match law.arm {
            FairArm::Upstream(arm) => Some(Followed::new(arm, law.model, idle)),
            FairArm::KubeDefault
            | FairArm::MostAllocated
            | FairArm::Random
            | FairArm::AvoidGpu
            | FairArm::Packing
            | FairArm::Joulie => None,
        };
        let mut cluster = Self {
            law,
            nodes: vec![FleetNode::default(); NODES],
            power: vec![Power::Awake(0); NODES],
            states: BTreeMap::new(),
            ends: BTreeMap::new(),
            rng: NumpyGenerator::new(seed),
            wakes: 0,
            whole: 0,
            free_gpus: 0,
            asks: GpuAsks::default(),
            opened: [vec![WARM; BACK], vec![WARM; BACK]],
            followed,
            plain: [0.0; 2],
        };
        if law.sleep.sleeps() {
            let first = WARM as usize;
            cluster.power[first..CPU_NODES].fill(Power::Asleep);
            cluster.power[CPU_NODES + first..].fill(Power::Asleep);
        }
        for place in 0..NODES {
            cluster.states.entry(cluster.state(place)).or_default().push(place);
            cluster.whole += u32::from(place >= CPU_NODES);
            cluster.free_gpus += Kind::of(place).gpus();
        }
        cluster
    }

    fn state(&self, place: usize) -> State {
        let node = &self.nodes[place];
        State {
            has_gpus: Kind::of(place) == Kind::Gpu,
            asleep: !matches!(self.power[place], Power::Awake(_)),
            used: node.jobs > 0,
            cores: node.cores,
            gpus: node.gpus,
        }
    }

    fn change(&mut self, place: usize, change: impl FnOnce(&mut FleetNode, &mut Power)) {
        let before = self.state(place);
        change(&mut self.nodes[place], &mut self.power[place]);
        let after = self.state(place);
        if before == after {
            return;
        }
        if let Some(places) = self.states.get_mut(&before) {
            if let Ok(at) = places.binary_search(&place) {
                places.remove(at);
            }
            if places.is_empty() {
                self.states.remove(&before);
            }
        }
        let places = self.states.entry(after).or_default();
        if let Err(at) = places.binary_search(&place) {
            places.insert(at, place);
        }
        if after.has_gpus {
            self.whole = self.whole + u32::from(before.used) - u32::from(after.used);
            self.free_gpus = self.free_gpus + before.gpus - after.gpus;
        }
    }

    /// A job waits from now on.
    pub(super) fn arrive(&mut self, job: &OfferedJob) {
        self.asks.add(job, true);
    }

    /// Jobs end, nodes are awake, and nodes that have been empty go to sleep. Returns how many jobs ended.
    pub(super) fn begin(&mut self, step: u32, jobs: &[OfferedJob]) -> usize {
        let ended = self.ends.remove(&step).unwrap_or_default();
        for &(index, place) in &ended {
            self.asks.add(&jobs[index], false);
            self.change(place, |node, power| {
                node.remove(&jobs[index]);
                if node.jobs == 0 {
                    *power = Power::Awake(step);
                }
            });
        }
        if self.law.sleep.sleeps() {
            self.sleep(step);
        }
        if let Some(followed) = &mut self.followed {
            followed.sample(step, &self.nodes);
        }
        ended.len()
    }

    /// Nodes are awake, and nodes that have been empty go to sleep.
    fn sleep(&mut self, step: u32) {
        let keep = self.keep(step);
        let hold = [Kind::Cpu, Kind::Gpu].map(|kind| self.hold(kind));
        let mut warm = [0_u32; 2];
        for place in 0..NODES {
            let kind = usize::from(place >= CPU_NODES);
            let is_empty = self.nodes[place].jobs == 0;
            match self.power[place] {
                Power::Waking(until) if until <= step => {
                    warm[kind] += u32::from(is_empty);
                    self.change(place, |_, power| *power = Power::Awake(step));
                }
                Power::Awake(since) if is_empty => {
                    warm[kind] += 1;
                    if warm[kind] > keep[kind] && step - since >= hold[kind] {
                        self.change(place, |_, power| *power = Power::Asleep);
                    }
                }
                Power::Waking(_) => warm[kind] += u32::from(is_empty),
                Power::Awake(_) | Power::Asleep => {}
            }
        }
        if self.is_ahead() {
            self.wake_ahead(step, keep, warm);
        }
    }

    /// Steps until an empty node sleeps; ahead of jobs: until idling has cost what waking costs, as the planner does.
    fn hold(&self, kind: Kind) -> u32 {
        if !self.is_ahead() {
            return HOLD;
        }
        let model = self.law.model;
        let idle = model.cores_w(kind, 0.0, false) + f64::from(kind.gpus()) * REST_W;
        crate::numbers::steps(f64::from(WAKE * STEP_S) * waking_w(kind, model) / idle).max(HOLD)
    }

    fn is_ahead(&self) -> bool {
        self.law.sleep == SleepRule::Ahead
    }

    /// How many empty nodes of each kind stay awake.
    fn keep(&mut self, step: u32) -> [u32; 2] {
        if !self.is_ahead() {
            return [WARM; 2];
        }
        let slot = step as usize % BACK;
        let reach = WAKE as usize + 1;
        self.opened.each_mut().map(|opened| {
            let most = (0..BACK).map(|at| (0..reach).map(|more| opened[(at + more) % BACK]).sum()).max();
            opened[slot] = 0;
            (most.unwrap_or(WARM) * KEEP_PERCENT).div_ceil(100).max(WARM)
        })
    }

    /// Nodes that sleep are woken until as many are awake and empty as are to be kept.
    fn wake_ahead(&mut self, step: u32, keep: [u32; 2], mut warm: [u32; 2]) {
        for place in 0..NODES {
            let kind = usize::from(place >= CPU_NODES);
            if warm[kind] < keep[kind] && self.power[place] == Power::Asleep {
                warm[kind] += 1;
                self.wakes += 1;
                self.change(place, |_, power| *power = Power::Waking(step + WAKE));
            }
        }
    }

    /// The node with the highest score.
    fn choose(&mut self, job: &OfferedJob) -> Option<usize> {
        if let Some(followed) = &self.followed {
            return followed.choose(&self.nodes, job);
        }
        let seen = JobTerms::of(job, self.law.model);
        let law = self.law;
        let mut best: Vec<&Vec<usize>> = Vec::new();
        let mut most = f64::NEG_INFINITY;
        for (state, places) in &self.states {
            let kind = if state.has_gpus { Kind::Gpu } else { Kind::Cpu };
            let Some(node) = places.first().map(|&place| &self.nodes[place]) else { continue };
            if !node.fits(kind, u32::from(job.cores), u32::from(job.gpus)) {
                continue;
            }
            let idle = if law.sleep.sleeps() { REST_W } else { GPU_IDLE_W };
            let view = NodeView {
                whole: self.whole,
                free: self.free_gpus,
                asks: self.asks,
                idle_gpu_w: idle,
                model: law.model,
            };
            let (whole, without, asleep) = (self.whole, law.without, state.asleep);
            let score = law.arm.score(kind, node, job, &Around { seen: &seen, view, whole, asleep, without });
            if score > most {
                best.clear();
                most = score;
            }
            if score >= most {
                best.push(places);
            }
        }
        if !law.arm.draws() {
            return best.iter().filter_map(|places| places.first().copied()).min();
        }
        let count: usize = best.iter().map(|places| places.len()).sum();
        let mut number = self.rng.below(u32::try_from(count).unwrap_or(1)) as usize;
        for places in best {
            match places.get(number) {
                Some(&place) => return Some(place),
                None => number -= places.len(),
            }
        }
        None
    }

    /// Places a job, if it fits, and says how many steps later it starts.
    pub(super) fn place(&mut self, index: usize, job: &OfferedJob, step: u32) -> Option<u32> {
        let place = self.choose(job)?;
        let later = match self.power[place] {
            Power::Awake(_) => 0,
            Power::Asleep => {
                self.wakes += 1;
                WAKE
            }
            Power::Waking(until) => until.saturating_sub(step),
        };
        let kind = usize::from(place >= CPU_NODES);
        if self.nodes[place].jobs == 0 {
            self.opened[kind][step as usize % BACK] += 1;
        }
        if job.gpus == 0 {
            let steps = f64::from(u32::from(job.cores)) * f64::from(job.lasts);
            self.plain[0] += steps;
            self.plain[1] += if kind == 1 { steps } else { 0.0 };
        }
        self.change(place, |node, power| {
            node.add(job);
            if *power == Power::Asleep {
                *power = Power::Waking(step + WAKE);
            }
        });
        if let Some(followed) = &mut self.followed {
            followed.touch(place, &self.nodes[place]);
        }
        self.ends.entry(step + later + job.lasts).or_default().push((index, place));
        Some(later)
    }

    /// Adds what is drawn in a step.
    pub(super) fn tally(&self, step: u32, tally: &mut Tally) -> f64 {
        let idle = if self.law.sleep.sleeps() { REST_W } else { GPU_IDLE_W };
        let mut sum = 0.0;
        for (place, node) in self.nodes.iter().enumerate() {
            let kind = Kind::of(place);
            let free = f64::from(kind.gpus() - node.gpus);
            match self.power[place] {
                Power::Asleep => continue,
                Power::Waking(until) if until > step => {
                    let watts = waking_w(kind, self.law.model);
                    tally.waking += watts;
                    sum += watts;
                }
                Power::Awake(_) | Power::Waking(_) => {
                    sum += node.draws_by(self.law.model, kind, idle);
                    tally.base += self.law.model.cores_w(kind, 0.0, node.jobs > 0) + free * idle;
                }
            }
            tally.on[usize::from(kind == Kind::Gpu)] += 1.0;
            tally.gpu_hosts += if node.gpus > 0 { 1.0 } else { 0.0 };
            tally.gpus += f64::from(node.gpus);
        }
        tally.watts += sum;
        sum
    }
}
