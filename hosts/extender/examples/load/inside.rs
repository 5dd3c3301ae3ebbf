//! The decisions without the network.

use super::{Any, SIZES, bodies, tell};
use bytes::Bytes;
use extender::probe::{self, Picture};
use extender::settings::{GpuNodeCores, GpuPods, GpuRule, PlacementSettings};
use extender::shortlist::{ShortlistPods, ShortlistRule};
use joulie_core::placement::class::SchedulableClass;
use joulie_core::placement::estimate::{Coefficients, HardwareRecord};
use joulie_core::placement::filter::PowerFit;
use joulie_core::placement::gpu::Packing;
use joulie_core::placement::kube_scheduler::{Amounts, ScheduledNode, ScheduledPod};
use joulie_core::placement::score::{Formula, ScoreMax, Scoring, TwinPower, TwinStatus, UnknownScore};
use power_units::{Percent, Watts, WattsPerMinute};
use std::fmt::Display;
use std::hint::black_box;
use std::time::Duration;

/// The least number of rounds and the least time: the machine is shared.
const ROUNDS: u32 = 30;
const TIME: Duration = Duration::from_millis(400);

/// The upper limit for a decision over 5,000 nodes, in milliseconds: the limit's name, the form of the request, the
/// decision.
const BARS: [(&str, &str, &str, f64); 7] = [
    ("extender_names_filter_ms", "names", FILTER, 0.15),
    ("extender_names_filter_half_ms", "names", FILTER_HALF, 0.15),
    ("extender_names_filter_power_ms", "names", FILTER_POWER, 0.15),
    // It filters and scores, so that it may take what both may.
    ("extender_names_filter_short_ms", "names", FILTER_SHORT, 0.45),
    ("extender_names_prioritize_ms", "names", PRIORITIZE, 0.30),
    ("extender_nodes_filter_ms", "nodes", FILTER, 25.0),
    ("extender_nodes_filter_half_ms", "nodes", FILTER_HALF, 25.0),
];
/// The most allocations of one request.
const ALLOCATIONS: u64 = 8;

const FILTER: &str = "filter, standard pod";
const FILTER_HALF: &str = "filter, performance pod, half rejected";
const FILTER_POWER: &str = "filter, POWER_FIT=filter";
const FILTER_SHORT: &str = "filter, SHORTLIST=all";
const FILTER_HALF_SHORT: &str = "filter, performance pod, half rejected, SHORTLIST=all";
const PRIORITIZE: &str = "prioritize";

/// The measurement of a decision.
struct Measured {
    nodes: usize,
    form: &'static str,
    what: &'static str,
    took: Duration,
    allocations: u64,
}

pub(crate) fn run() -> Result<(), Any> {
    tell("\n### Decisions alone, in one thread\n")?;
    tell("| nodes | form | MB | what | ms, best | MB/s | allocations |")?;
    tell("|---|---|---|---|---|---|---|")?;
    let mut all = Vec::new();
    for count in SIZES {
        for form in ["names", "nodes"] {
            all.extend(table(count, form)?);
        }
    }
    tell("")?;
    for (name, form, what, limit) in BARS {
        let of_bar = |one: &&Measured| one.nodes == 5_000 && one.form == form && one.what == what;
        let Measured { took, .. } = all.iter().find(of_bar).ok_or("a bar is not measured")?;
        let ms = took.as_secs_f64() * 1e3;
        bar(name, format_args!("{ms:.4}"), limit, ms <= limit)?;
    }
    let most = all.iter().map(|one| one.allocations).max().unwrap_or(0);
    bar("extender_allocations", most, ALLOCATIONS, most <= ALLOCATIONS)?;
    gpus()
}

/// The nodes of the table of GPUs.
const GPU_NODES: usize = 5_000;
/// The upper limit of a filter of a pod with GPUs, in milliseconds.
const GPU_FILTER_MS: f64 = 0.5;

/// Decisions on pods with GPUs over 40,000 cards.
pub(crate) fn gpus() -> Result<(), Any> {
    tell(&format!("\n### Pods with GPUs, {GPU_NODES} nodes of {} cards, names\n", bodies::CARDS))?;
    tell("| GPUs, joined by links | what | ms, best | allocations | pass |")?;
    tell("|---|---|---|---|---|")?;
    let objects = bodies::gpus(GPU_NODES);
    let (mut slowest, mut most) = (0.0_f64, 0);
    for cards in [1, 2, 8] {
        let body = bodies::gpu_names(cards, GPU_NODES);
        let rule = GpuRule {
            scope: GpuPods::Annotated,
            packing: Packing::Pack,
            share: 60,
            cores: GpuNodeCores::Free,
            reads_claims: false,
        };
        let of =
            |list| picture(GPU_NODES, PowerFit::Score, list, rule).with_gpus(&objects).with_pod_of(&body);
        let picture = of(ShortlistRule::OFF)?;
        let short = of(ShortlistRule { pods: ShortlistPods::All, ..ShortlistRule::OFF })?;
        let answer: serde_json::Value = serde_json::from_slice(&picture.filter(&body)?.whole())?;
        let pass = answer["nodenames"].as_array().map_or(0, Vec::len);
        let filter = best(|| picture.filter(black_box(&body)).is_ok());
        let prioritize = best(|| picture.prioritize(black_box(&body)).is_ok());
        // It scores too.
        let short = best(|| short.filter(black_box(&body)).is_ok());
        slowest = slowest.max(filter.0.as_secs_f64() * 1e3);
        for (what, (took, allocations)) in
            [("filter", filter), (FILTER_SHORT, short), ("prioritize", prioritize)]
        {
            most = most.max(allocations);
            let ms = took.as_secs_f64() * 1e3;
            tell(&format!("| {cards} | {what} | {ms:.4} | {allocations} | {pass} |"))?;
        }
    }
    tell("")?;
    bar("extender_gpu_filter_ms", format_args!("{slowest:.4}"), GPU_FILTER_MS, slowest <= GPU_FILTER_MS)?;
    bar("extender_gpu_allocations", most, ALLOCATIONS, most <= ALLOCATIONS)
}

pub(crate) fn bar(name: &str, value: impl Display, limit: impl Display, holds: bool) -> Result<(), Any> {
    tell(&format!("BAR {name} {value} {limit} {}", if holds { "PASS" } else { "FAIL" }))
}

fn table(count: usize, form: &'static str) -> Result<Vec<Measured>, Any> {
    let make: fn(&str, usize) -> Bytes = if form == "names" { bodies::names } else { bodies::nodes };
    let (standard, performance) = (make("standard", count), make("performance", count));
    let off = ShortlistRule::OFF;
    let picture = |fit, list| picture(count, fit, list, GpuRule::OFF).with_pod_of(&standard);
    let (score, fit) = (picture(PowerFit::Score, off)?, picture(PowerFit::Filter, off)?);
    let short = picture(PowerFit::Score, ShortlistRule { pods: ShortlistPods::All, ..off })?;
    let megabytes = f64::from(u32::try_from(standard.len())?) / 1e6;
    let mut copy = vec![0_u8; standard.len()];
    let rounds = [
        ("memcpy", best(|| black_box(&mut copy).copy_from_slice(black_box(&standard)))),
        ("scan", best(|| probe::count(black_box(&standard)).unwrap_or(0))),
        (FILTER, best(|| score.filter(black_box(&standard)).is_ok())),
        (FILTER_HALF, best(|| score.filter(black_box(&performance)).is_ok())),
        (FILTER_POWER, best(|| fit.filter(black_box(&standard)).is_ok())),
        (FILTER_SHORT, best(|| short.filter(black_box(&standard)).is_ok())),
        (FILTER_HALF_SHORT, best(|| short.filter(black_box(&performance)).is_ok())),
        (PRIORITIZE, best(|| score.prioritize(black_box(&standard)).is_ok())),
    ];
    let mut all = Vec::new();
    for (what, (took, allocations)) in rounds {
        let seconds = took.as_secs_f64();
        tell(&format!(
            "| {count} | {form} | {megabytes:.2} | {what} | {:.4} | {:.0} | {allocations} |",
            seconds * 1e3,
            megabytes / seconds,
        ))?;
        all.push(Measured { nodes: count, form, what, took, allocations });
    }
    Ok(all)
}

/// The shortest time of several rounds, and the allocations of one.
#[expect(clippy::disallowed_methods, reason = "a measurement is what the clock is for")]
fn best<T>(mut operation: impl FnMut() -> T) -> (Duration, u64) {
    black_box(operation());
    let mut best = Duration::MAX;
    let (begun, mut rounds) = (std::time::Instant::now(), 0);
    while rounds < ROUNDS || begun.elapsed() < TIME {
        let began = std::time::Instant::now();
        black_box(operation());
        best = best.min(began.elapsed());
        rounds += 1;
    }
    let counted = allocation_counter::measure(|| drop(black_box(operation())));
    (best, counted.count_total)
}

/// Half of the nodes are eco; all are measured.
fn picture(count: usize, power_fit: PowerFit, shortlist: ShortlistRule, gpus: GpuRule) -> Picture {
    let scoring = Scoring {
        formula: Formula::Headroom,
        facility_metrics: false,
        unknown: UnknownScore::Cautious,
        max: ScoreMax::Hundred,
        coefficients: Coefficients::REFERENCE,
    };
    let nodes: Vec<_> = (0..count)
        .map(|number| {
            let vary = |range: usize| i32::try_from(number * 37 % range).unwrap_or(0);
            let class =
                if bodies::is_eco(number) { SchedulableClass::Eco } else { SchedulableClass::Performance };
            let power = TwinPower {
                measured: Some(Watts::from_int(200 + vary(500))),
                capped: Some(Watts::from_int(900)),
                trend: Some(WattsPerMinute::from_int(vary(100) - 50)),
            };
            let (headroom, cooling) = (Some(Percent::from_int(vary(100))), Some(Percent::from_int(vary(90))));
            let twin = TwinStatus { headroom, cooling, power: Some(power), ..TwinStatus::silent(class) };
            let hardware =
                HardwareRecord { cpu_max: Some(Watts::from_int(720)), cores: Some(96), gpus: None };
            (bodies::name(number), twin, hardware)
        })
        .collect();
    let picture = Picture::of(&nodes, PlacementSettings { scoring, power_fit, shortlist, gpus });
    // The program follows what nodes and pods ask for where it ranks by it.
    match shortlist.pods != ShortlistPods::Nobody || gpus.scope != GpuPods::Off {
        true => picture.with_loads(load),
        false => picture,
    }
}

/// A node of 96 cores and 384 GiB, with some pods.
fn load(number: usize) -> ScheduledNode {
    let has = Amounts { cpu_milli: 96_000, memory_bytes: 384 << 30, gpus: 8 };
    let percent = |range: usize| u64::try_from(number * 37 % range).unwrap_or(0);
    let mut node = ScheduledNode::empty(has, 110);
    let (cpu, memory) = (has.cpu_milli / 100 * percent(61), has.memory_bytes / 100 * percent(53));
    node.bind(&ScheduledPod::EMPTY.with(Some(cpu), Some(memory), 0));
    node
}
