//! How well GPUs are packed: 1,000 nodes of 8 cards with 90 % of the cards in use, while jobs come and go.
//!
//! Jobs are those of the upstream simulator's default generator (its families of GPU jobs, durations, processors and
//! memory; 1, 2, 4 or 8 GPUs with 80, 10, 7 and 3 %), each as one pod. A job ends, and the next ones come until 90 % of
//! the cards are in use again. One that fits nowhere is turned away, and counted. So each policy works at the same
//! load.
//!
//! A card is *fragmented* if it is free and no job for eight cards can have it, as another card of its node is in use;
//! *within islands*, if it is free and another card of its island is in use. Every other node has two islands of four
//! cards, the rest one of eight. Which cards of a node a job gets is not the scheduler's choice: a device plugin gives
//! the first free ones, whatever the policy.

use anyhow::Result;
use joulie_core::placement::class::{SchedulableClass, WorkloadClass};
use joulie_core::placement::cluster::ClusterAggregates;
use joulie_core::placement::demand::{GpuDemand, GpuVendor, MilliCores, PodDemand};
use joulie_core::placement::estimate::{Coefficients, HardwareRecord, HardwareTerms, NodeGpus};
use joulie_core::placement::freshness::Freshness;
use joulie_core::placement::gpu::{GpuPhase, GpuRequest, Island, Model, PhysicalGpu, Vram, fit, mixed};
use joulie_core::placement::score::{
    Formula, NodeFacts, NodeTerms, PodTerms, ScoreMax, Scoring, TwinPower, TwinStatus, UnknownScore,
};
use power_units::{Micros, Percent, Watts};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NODES: usize = 1_000;
const CARDS: usize = 8;
/// Cards in use: 90 %.
const LOAD: usize = NODES * CARDS * 9 / 10;
/// Jobs that end before anything is counted, and while it is.
const WARM_UP: usize = 30_000;
const COUNTED: usize = 30_000;
const CARD_MB: i64 = 80_000;
const CORES: f64 = 128.0;
const GIB: f64 = 1_024.0;
/// What a node draws without a job, and its cap: some 80 % of the most that it could draw.
const IDLE_WATTS: f64 = 740.0;
const CAP_WATTS: i32 = 3_200;
const SCORING: Scoring = Scoring {
    formula: Formula::Headroom,
    facility_metrics: false,
    unknown: UnknownScore::Cautious,
    max: ScoreMax::Hundred,
    coefficients: Coefficients::REFERENCE,
};
const HARDWARE: HardwareRecord = HardwareRecord {
    cpu_max: Some(Watts::from_int(560)),
    cores: Some(128),
    gpus: Some(NodeGpus {
        count: Some(8),
        max: Some(Watts::from_int(400)),
        vendor: Some(GpuVendor::Nvidia),
        adds: None,
    }),
};

/// Who says which of the nodes with enough free cards a job goes to. Equal nodes are drawn by lot.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Policy {
    /// kube-scheduler's default: NodeResourcesFit by LeastAllocated and NodeResourcesBalancedAllocation, both of
    /// processors and memory.
    Default,
    /// NodeResourcesFit by MostAllocated of the cards alone, and NodeResourcesBalancedAllocation.
    MostAllocated,
    /// The node with the fewest cards left.
    BestFit,
    /// The extender with weight 1 and this `GPU_SCORE_SHARE`, beside kube-scheduler's default.
    Ours(u8),
    /// The GPUs' part of that score alone, with kube-scheduler's own scores off.
    Alone,
}

const POLICIES: [(&str, Policy); 10] = [
    ("kube-scheduler's default", Policy::Default),
    ("MostAllocated of the GPUs", Policy::MostAllocated),
    ("best fit", Policy::BestFit),
    ("`GPU_SCORE_SHARE` 0", Policy::Ours(0)),
    ("`GPU_SCORE_SHARE` 20", Policy::Ours(20)),
    ("`GPU_SCORE_SHARE` 40", Policy::Ours(40)),
    ("`GPU_SCORE_SHARE` 60, the default", Policy::Ours(60)),
    ("`GPU_SCORE_SHARE` 80", Policy::Ours(80)),
    ("`GPU_SCORE_SHARE` 100", Policy::Ours(100)),
    ("the same, and kube-scheduler's own scores off", Policy::Alone),
];

/// The traces: by the first one the score was chosen, so the bars are over all of them.
const TRACES: [u64; 5] = [
    0x9E37_79B9_7F4A_7C15,
    0xD6E8_FEB8_6659_FD93,
    0xA076_1D64_78BD_642F,
    0xE703_7ED1_A0B4_28DB,
    0x8EBC_6AF0_9C88_C6E3,
];
/// The policies that the bars compare: the extender's default, kube-scheduler's, and MostAllocated.
const COMPARED: [Policy; 3] = [Policy::Ours(60), Policy::Default, Policy::MostAllocated];

/// Runs all policies on the first trace and those of the bars on all, and prints the tables and the bars.
pub(crate) fn run() -> Result<()> {
    println!(
        "| policy | fragmented GPUs, mean | within islands | whole nodes free | of jobs for 4 / 8 GPUs turned away | the fullest node, of its cap | deviation of all nodes |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut seen = Vec::new();
    for (what, policy) in POLICIES {
        let outcome = Site::new(policy, TRACES[0]).run();
        let Outcome { fragmented, in_islands, whole, turned_away: [four, eight], fullest, deviation } =
            outcome;
        println!(
            "| {what} | {fragmented:.1} | {in_islands:.1} | {whole:.1} | {four:.1} / {eight:.1} % | {fullest:.0} % | {deviation:.1} % |"
        );
        seen.push((policy, outcome));
    }
    // Eight is a multiple of each size, so jobs that are sorted by size leave no gap but in the last node.
    println!("| an offline packer, at most | 7 | 7 | | | | |\n");
    println!("| trace | fragmented GPUs: share 60, default, MostAllocated | within islands |\n|---|---|---|");
    let mut sums = [Outcome::default(); COMPARED.len()];
    for (number, trace) in (1..).zip(TRACES) {
        let known = |policy: Policy| seen.iter().find(|(one, _)| *one == policy && trace == TRACES[0]);
        let of =
            |policy| known(policy).map_or_else(|| Site::new(policy, trace).run(), |(_, outcome)| *outcome);
        let outcomes = COMPARED.map(of);
        let [ours, default, most] = outcomes.map(|outcome| outcome.fragmented);
        let [of_islands, by_default, by_most] = outcomes.map(|outcome| outcome.in_islands);
        println!(
            "| {number} | {ours:.1}, {default:.1}, {most:.1} | {of_islands:.1}, {by_default:.1}, {by_most:.1} |"
        );
        for (sum, outcome) in sums.iter_mut().zip(outcomes) {
            sum.fragmented += outcome.fragmented;
            sum.in_islands += outcome.in_islands;
        }
    }
    println!();
    let [ours, default, most] = sums;
    for (name, ours, other, bar) in [
        ("gpus_fragmented_of_default", ours.fragmented, default.fragmented, 0.5),
        ("gpus_fragmented_in_islands_of_default", ours.in_islands, default.in_islands, 0.5),
        ("gpus_fragmented_of_most_allocated", ours.fragmented, most.fragmented, 1.0),
        ("gpus_fragmented_in_islands_of_most_allocated", ours.in_islands, most.in_islands, 1.0),
    ] {
        let ratio = ours / other;
        println!("BAR {name} {ratio:.3} {bar} {}", if ratio <= bar { "PASS" } else { "FAIL" });
    }
    Ok(())
}

/// The means over all jobs that ended while it was counted.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    fragmented: f64,
    in_islands: f64,
    whole: f64,
    /// Percent of the jobs for four and for eight cards.
    turned_away: [f64; 2],
    /// Percent of its cap.
    fullest: f64,
    /// The standard deviation of the nodes' draw, in percent of their caps.
    deviation: f64,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    cards: usize,
    cores: f64,
    gib: f64,
    seconds: f64,
    watts: f64,
}

/// A family of GPU jobs: how likely it is; the median and the sigma of its duration in seconds, with its limits; the
/// medians of its processors, and of its GiB for each card.
type Family = (f64, (f64, f64), (f64, f64), (f64, f64));

const DAY: f64 = 86_400.0;
const FAMILIES: [Family; 5] = [
    // Debug and evaluation, single-GPU training, distributed training, parameter server, hyperparameters.
    (0.45, (206.0, 1.0), (30.0, 1_000.0), (2.0, 4.0)),
    (0.25, (7_200.0, 1.0), (900.0, 7.0 * DAY), (4.0, 10.0)),
    (0.14, (14_400.0, 1.2), (1_200.0, 14.0 * DAY), (4.0, 12.0)),
    (0.07, (10_800.0, 1.1), (900.0, 7.0 * DAY), (5.0, 14.0)),
    (0.09, (7_200.0, 1.0), (1_200.0, 3.0 * DAY), (2.0, 6.0)),
];
/// How likely each number of cards is, and how busy the cards are then.
const SIZES: [(f64, usize, f64); 4] =
    [(0.80, 1, 0.5238), (0.10, 2, 0.50), (0.07, 4, 0.4518), (0.03, 8, 0.5899)];
/// Of processors and memory.
const SIGMA: f64 = 0.35;

struct Dice(u64);

impl Dice {
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From 0 to below 1.
    fn part(&mut self) -> f64 {
        f64::from(u32::try_from(self.draw() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }

    fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let radius = (-2.0 * self.part().max(1e-9).ln()).sqrt();
        median * (sigma * radius * (std::f64::consts::TAU * self.part()).cos()).exp()
    }

    /// The first of these whose likelihoods together are more than what was drawn.
    fn one_of<T: Copy>(&mut self, all: &[T], likely: impl Fn(&T) -> f64) -> Option<T> {
        let mut left = self.part();
        let chosen = all.iter().find(|one| {
            left -= likely(one);
            left < 0.0
        });
        chosen.or(all.last()).copied()
    }

    fn job(&mut self) -> Option<Job> {
        let (_, (median, sigma), (least, most), (cores, gib)) = self.one_of(&FAMILIES, |one| one.0)?;
        let (_, cards, busy) = self.one_of(&SIZES, |one| one.0)?;
        let count = f64::from(u32::try_from(cards).unwrap_or(0));
        let seconds = self.log_normal(median, sigma).clamp(least, most);
        let cores = self.log_normal(cores, SIGMA).clamp(1.0, 16.0);
        let gib = 2.0 + count * self.log_normal(gib, SIGMA).clamp(2.0, 32.0);
        // A card draws 55 W at rest, which is in the node's idle watts, and 400 W at most.
        Some(Job { cards, cores, gib, seconds, watts: count * 345.0 * busy + 0.3 * 560.0 * cores / CORES })
    }
}

struct Machine {
    cards: [PhysicalGpu; CARDS],
    free: usize,
    cores: f64,
    gib: f64,
    watts: f64,
    terms: NodeTerms,
}

struct Site {
    policy: Policy,
    nodes: Vec<Machine>,
    cluster: ClusterAggregates,
    hardware: HardwareTerms,
    /// The trace, which is the same for all policies.
    trace: Dice,
    /// For equal nodes.
    lots: Dice,
    /// When which job ends, in thousandths of a second.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// The jobs that were placed, with their node and their cards.
    jobs: Vec<(Job, usize, u64)>,
    now: u64,
    in_use: usize,
}

impl Site {
    fn new(policy: Policy, trace: u64) -> Self {
        let cards = |node: usize| {
            std::array::from_fn(|card| PhysicalGpu {
                key: u64::try_from(node * CARDS + card).unwrap_or(0),
                model: Some(Model(0)),
                vram: Vram::read(Some(CARD_MB), Some(0)),
                island: Some(Island(u16::from(node.is_multiple_of(2) && card >= CARDS / 2))),
                phase: GpuPhase::Available,
            })
        };
        let twin = twin(IDLE_WATTS);
        let cluster = ClusterAggregates::of([(FRESH, &twin)]);
        let terms = terms(IDLE_WATTS, &cluster);
        let node = |node| Machine {
            cards: cards(node),
            free: CARDS,
            cores: 0.0,
            gib: 0.0,
            watts: IDLE_WATTS,
            terms,
        };
        Self {
            policy,
            nodes: (0..NODES).map(node).collect(),
            cluster,
            hardware: HardwareTerms::of(Some(&HARDWARE), &SCORING.coefficients),
            trace: Dice(trace),
            lots: Dice(0x2545_F491_4F6C_DD1D),
            ends: BinaryHeap::new(),
            jobs: Vec::new(),
            now: 0,
            in_use: 0,
        }
    }

    fn run(mut self) -> Outcome {
        let mut outcome = Outcome::default();
        // Jobs for four and for eight cards: all, and those that were turned away.
        let mut refused = [(0_u32, 0_u32); 2];
        let mut next = self.trace.job();
        for ended in 0..WARM_UP + COUNTED {
            while let Some(job) = next.filter(|job| self.in_use + job.cards <= LOAD) {
                let is_placed = self.place(job);
                if let (true, Some(of)) =
                    (ended >= WARM_UP, [4, 8].iter().position(|size| *size == job.cards))
                    && let Some((all, away)) = refused.get_mut(of)
                {
                    *all += 1;
                    *away += u32::from(!is_placed);
                }
                next = self.trace.job();
            }
            if ended >= WARM_UP {
                self.count(&mut outcome);
            }
            self.end_one();
        }
        let count = f64::from(u32::try_from(COUNTED).unwrap_or(1));
        for sum in [
            &mut outcome.fragmented,
            &mut outcome.in_islands,
            &mut outcome.whole,
            &mut outcome.fullest,
            &mut outcome.deviation,
        ] {
            *sum /= count;
        }
        outcome.turned_away = refused.map(|(all, away)| 100.0 * f64::from(away) / f64::from(all.max(1)));
        outcome
    }

    /// Places a job by the policy; false if it fits nowhere.
    fn place(&mut self, job: Job) -> bool {
        let Ok(ask) = GpuRequest::new(Some(Model(0)), None, i64::try_from(job.cards).unwrap_or(i64::MAX))
        else {
            return false;
        };
        let added = self.added(&job);
        let mut best: Option<(i64, u64, usize)> = None;
        for (at, node) in self.nodes.iter().enumerate() {
            if node.free < job.cards || node.cores + job.cores > CORES || node.gib + job.gib > GIB {
                continue;
            }
            let total = total(self.policy, node, &job, ask, added);
            let ranked = (total, self.lots.draw(), at);
            if best.is_none_or(|best| ranked > best) {
                best = Some(ranked);
            }
        }
        let Some((_, _, at)) = best else { return false };
        let number = self.jobs.len();
        let Some(node) = self.nodes.get_mut(at) else { return false };
        let mut cards = 0;
        let free = node.cards.iter_mut().enumerate().filter(|(_, card)| card.phase == GpuPhase::Available);
        for (bit, card) in free.take(job.cards) {
            cards |= 1 << bit;
            card.phase = GpuPhase::Allocated;
            card.vram = Vram::read(Some(CARD_MB), Some(CARD_MB));
        }
        node.changed(&job, 1.0, &self.cluster);
        self.in_use += job.cards;
        self.jobs.push((job, at, cards));
        self.ends.push(Reverse((self.now.saturating_add(millis(job.seconds)), number)));
        true
    }

    /// The watts that the extender estimates for it.
    fn added(&self, job: &Job) -> Watts {
        let count = u32::try_from(job.cards).unwrap_or(0);
        let demand = PodDemand {
            class: WorkloadClass::Standard,
            cpu: MilliCores::new(u32::try_from(millis(job.cores)).unwrap_or(0)),
            memory_bytes: 0,
            gpus: Some(GpuDemand { count, vendor: GpuVendor::Nvidia }),
            gpu_quarters: 0,
        };
        PodTerms::of(&demand, &SCORING.coefficients).on(&self.hardware).total()
    }

    fn end_one(&mut self) {
        let Some(Reverse((at, number))) = self.ends.pop() else { return };
        self.now = at;
        let Some((job, node, cards)) = self.jobs.get(number).copied() else { return };
        let Some(node) = self.nodes.get_mut(node) else { return };
        for (_, card) in node.cards.iter_mut().enumerate().filter(|(bit, _)| cards >> bit & 1 == 1) {
            card.phase = GpuPhase::Available;
            card.vram = Vram::read(Some(CARD_MB), Some(0));
        }
        node.changed(&job, -1.0, &self.cluster);
        self.in_use -= job.cards;
    }

    fn count(&self, outcome: &mut Outcome) {
        let cap = f64::from(CAP_WATTS);
        let (mut most, mut sum, mut squares) = (0.0_f64, 0.0, 0.0);
        for node in &self.nodes {
            let free = |cards: &[PhysicalGpu]| {
                let free = cards.iter().filter(|card| card.phase == GpuPhase::Available).count();
                if free == cards.len() { 0.0 } else { f64::from(u32::try_from(free).unwrap_or(0)) }
            };
            outcome.fragmented += free(&node.cards);
            let island = |number: u16| -> Vec<PhysicalGpu> {
                node.cards.iter().filter(|card| card.island == Some(Island(number))).copied().collect()
            };
            outcome.in_islands += free(&island(0)) + free(&island(1));
            outcome.whole += f64::from(u8::from(node.free == CARDS));
            let used = node.watts / cap * 100.0;
            most = most.max(used);
            sum += used;
            squares += used * used;
        }
        let count = f64::from(u32::try_from(NODES).unwrap_or(1));
        outcome.fullest += most;
        outcome.deviation += (squares / count - (sum / count) * (sum / count)).max(0.0).sqrt();
    }
}

impl Machine {
    /// A job has come (1) or gone (−1).
    fn changed(&mut self, job: &Job, by: f64, cluster: &ClusterAggregates) {
        self.free = self.cards.iter().filter(|card| card.phase == GpuPhase::Available).count();
        self.cores += by * job.cores;
        self.gib += by * job.gib;
        self.watts += by * job.watts;
        self.terms = terms(self.watts, cluster);
    }
}

/// kube-scheduler's total of a node that fits.
fn total(policy: Policy, node: &Machine, job: &Job, ask: GpuRequest, added: Watts) -> i64 {
    let shares = |with: f64| [(node.cores + with * job.cores) / CORES, (node.gib + with * job.gib) / GIB];
    let balance = |[cpu, memory]: [f64; 2]| whole((1.0 - (cpu - memory).abs() / 2.0) * 100.0);
    let balanced = 50 + (50 + balance(shares(1.0)) - balance(shares(0.0))) / 2;
    let default = shares(1.0).iter().map(|share| whole((1.0 - share) * 100.0)).sum::<i64>() / 2 + balanced;
    let left = i64::try_from(node.free - job.cards).unwrap_or(0);
    match policy {
        Policy::Default => default,
        Policy::MostAllocated => (8 - left) * 100 / 8 + balanced,
        Policy::BestFit => -left,
        Policy::Alone => fit(ask, &node.cards).map_or(0, |fit| i64::from(fit.score)),
        Policy::Ours(share) => {
            let cards = fit(ask, &node.cards).map_or(0, |fit| fit.score);
            let fill = shares(1.0).iter().map(|share| whole(share * 100.0)).sum::<i64>() / 2;
            let watts = node.terms.score(WorkloadClass::Standard, added, Watts::ZERO);
            let watts = watts.map_or(0, |score| score.whole());
            default + 10 * i64::from(mixed(cards, u8::try_from(fill).ok(), watts, share))
        }
    }
}

const FRESH: Freshness = Freshness::Fresh { left: Micros::MINUTE };

fn twin(watts: f64) -> TwinStatus {
    let measured = i32::try_from(whole(watts)).ok().map(Watts::from_int);
    let power = TwinPower { measured, capped: Some(Watts::from_int(CAP_WATTS)), trend: None };
    let cooling = Some(Percent::ZERO);
    TwinStatus { cooling, power: Some(power), ..TwinStatus::silent(SchedulableClass::Performance) }
}

fn terms(watts: f64, cluster: &ClusterAggregates) -> NodeTerms {
    let twin = twin(watts);
    let facts = NodeFacts { freshness: FRESH, twin: Some(&twin), hardware: Some(&HARDWARE) };
    NodeTerms::of(&facts, cluster, &SCORING)
}

#[expect(clippy::cast_possible_truncation, reason = "a few thousand at most")]
fn whole(value: f64) -> i64 {
    value as i64
}

/// Thousandths.
fn millis(value: f64) -> u64 {
    u64::try_from(whole(value * 1_000.0)).unwrap_or(0)
}
