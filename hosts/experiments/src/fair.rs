//! The same work for all: a fixed set of jobs runs to completion, jobs that fit nowhere wait, and later ones may start
//! before them (backfill). Each law runs with and without sleep, by two rules ([`SleepRule`]).
//!
//! With sleep, a node that was empty for some steps sleeps and draws nothing, but some stay awake; an idle GPU of an
//! awake node rests at 10 W. A job on a node that sleeps starts after [`WAKE`] steps, in which the node draws its base
//! and all its GPUs at their idle power. Without sleep an empty node and an idle GPU draw what upstream's model says.
//! At the start the nodes that stay awake are awake, and all others sleep.

use crate::caps::CapRule;
use crate::figures::{cooling_w, outdoor_c, ramp};
use crate::fleet::PowerModel;
use crate::numbers::quantile;
use crate::workload::{CLASSES, OfferedJob};
use cluster::{Cluster, Tally};

mod arms;
mod bound;
mod cluster;
mod upstream;

pub use arms::{FAIR_ARMS, FairArm, SLEEP_RULES, ScoreTerm, SleepRule, TERMS};
pub use bound::bound_kwh;

/// Steps until an empty node sleeps, and steps until it is awake again.
pub const HOLD: u32 = 5;
/// See [`HOLD`].
pub const WAKE: u32 = 2;
/// Empty nodes of each kind that stay awake.
const WARM: u32 = 6;
/// Steps that [`SleepRule::Ahead`] looks back, for how many nodes it keeps awake.
const BACK: usize = 60;
/// Of the most empty nodes that were taken in a short time, it keeps so many hundredths awake.
const KEEP_PERCENT: u32 = 125;
/// What an idle GPU draws at rest.
const REST_W: f64 = 10.0;
/// Empty GPU nodes that the packing keeps for jobs with GPUs.
const KEPT: u32 = 100;

/// How jobs are placed, when nodes sleep, what of our law is left out, and which caps hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementLaw {
    /// The law that places.
    pub arm: FairArm,
    /// When nodes sleep. Where they do, idle GPUs rest.
    pub sleep: SleepRule,
    /// What is left out.
    pub without: Option<ScoreTerm>,
    /// The caps.
    pub caps: CapRule,
    /// What processors draw.
    pub model: PowerModel,
}

impl PlacementLaw {
    /// A whole law without caps.
    #[must_use]
    pub const fn of(arm: FairArm, sleep: SleepRule) -> Self {
        Self { arm, sleep, without: None, caps: CapRule::None, model: PowerModel::Linear }
    }
}

/// What a run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct FairFigures {
    /// Energy of the machines until the last job ended.
    pub it_kwh: f64,
    /// What of it nodes and idle GPUs drew beside jobs.
    pub base_kwh: f64,
    /// What of it nodes drew while they woke.
    pub waking_kwh: f64,
    /// With the cooling of upstream's plant in its climate without noise.
    pub facility_kwh: f64,
    /// The highest total.
    pub peak_kw: f64,
    /// The 99th percentile of the change between two steps.
    pub ramp_kw: f64,
    /// Nodes that were woken.
    pub wakes: u32,
    /// The mean number of nodes that were on, without and with GPUs.
    pub on: [f64; 2],
    /// The mean number of nodes of which a GPU was taken, over the fewest that could have had as many GPUs.
    pub gpu_hosts: f64,
    /// Of the core-hours of jobs without GPUs, the part on GPU nodes.
    pub plain_on_gpu_nodes: f64,
    /// Hours until the last job ended.
    pub makespan_h: f64,
    /// Minutes of waiting of standard jobs: the half, 95 and 99 of a hundred waited at most this.
    pub standard_wait: [f64; 3],
    /// The same of performance jobs.
    pub performance_wait: [f64; 3],
    /// The mean of (waiting + running) / running without caps, less one, of performance jobs.
    pub performance_slowdown: f64,
    /// The same of each class.
    pub slowdown: [f64; 5],
    /// Minutes of waiting that 95 of a hundred jobs of each class did not exceed.
    pub wait_p95: [f64; 5],
    /// Jobs that never ran.
    pub dropped: u32,
}

/// Runs a law over jobs, which come in the order of their arrival, until all are done.
#[must_use]
pub fn run(law: PlacementLaw, seed: u64, offered: &[OfferedJob]) -> FairFigures {
    let jobs: Vec<OfferedJob> = offered.iter().map(|job| law.caps.capped(job)).collect();
    let mut cluster = Cluster::new(law, seed);
    let mut queue: Vec<usize> = Vec::new();
    // Steps that a job took longer than it runs without caps; `None` while it waits.
    let mut late: Vec<Option<u32>> = vec![None; jobs.len()];
    let mut waits = vec![0_u32; jobs.len()];
    let (mut next, mut running, mut step) = (0, 0_usize, 0_u32);
    let mut tally = Tally::default();
    let mut series_kw = Vec::new();
    while next < jobs.len() || running > 0 || !queue.is_empty() {
        running -= cluster.begin(step, &jobs);
        while next < jobs.len() && jobs[next].arrives <= step {
            cluster.arrive(&jobs[next]);
            queue.push(next);
            next += 1;
        }
        let mut full: Vec<(u8, u8)> = Vec::new();
        let waiting = queue.len();
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
            late[index] = Some(waits[index] + job.lasts - offered[index].lasts);
            false
        });
        let placed = waiting - queue.len();
        running += placed;
        series_kw.push(cluster.tally(step, &mut tally) / 1000.0);
        if placed == 0 && running == 0 && next == jobs.len() && !queue.is_empty() {
            // What is left fits no empty fleet either.
            break;
        }
        step += 1;
    }
    let sorted = |counts: &dyn Fn(&OfferedJob) -> bool| {
        let waited = jobs.iter().zip(&waits).filter(|(job, _)| counts(job));
        let mut minutes: Vec<f64> = waited.map(|(_, &wait)| f64::from(wait)).collect();
        minutes.sort_by(f64::total_cmp);
        minutes
    };
    let of = |performance: bool| {
        let minutes = sorted(&|job| job.performance == performance);
        [0.5, 0.95, 0.99].map(|part| quantile(&minutes, part))
    };
    let slowed = |counts: &dyn Fn(&OfferedJob) -> bool| {
        let parts: Vec<f64> = (offered.iter().zip(&late))
            .filter(|(job, _)| counts(job))
            .filter_map(|(job, &late)| Some(f64::from(late?) / f64::from(job.lasts.max(1))))
            .collect();
        parts.iter().sum::<f64>() / parts.len().max(1) as f64
    };
    let (steps, minute) = (f64::from(step.max(1)), 1.0 / 60_000.0);
    let [all, on_gpu_nodes] = cluster.plain;
    FairFigures {
        it_kwh: tally.watts * minute,
        base_kwh: tally.base * minute,
        waking_kwh: tally.waking * minute,
        facility_kwh: facility_kwh(&series_kw),
        peak_kw: series_kw.iter().copied().fold(0.0, f64::max),
        ramp_kw: ramp(&series_kw),
        wakes: cluster.wakes,
        on: tally.on.map(|sum| sum / steps),
        gpu_hosts: 8.0 * tally.gpu_hosts / tally.gpus.max(1.0),
        plain_on_gpu_nodes: on_gpu_nodes / all.max(1.0),
        makespan_h: f64::from(step) / 60.0,
        standard_wait: of(false),
        performance_wait: of(true),
        performance_slowdown: slowed(&|job| job.performance),
        slowdown: CLASSES.map(|class| slowed(&|job| job.class == class)),
        wait_p95: CLASSES.map(|class| quantile(&sorted(&|job| job.class == class), 0.95)),
        dropped: u32::try_from(queue.len()).unwrap_or(u32::MAX),
    }
}

fn facility_kwh(series_kw: &[f64]) -> f64 {
    let of = |(minute, kw): (u32, &f64)| {
        let watts = 1000.0 * kw;
        (watts + cooling_w(watts, outdoor_c(f64::from(minute) / 60.0))) / 60_000.0
    };
    (0..).zip(series_kw).map(of).sum()
}

#[cfg(test)]
mod tests;
