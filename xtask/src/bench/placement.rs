//! The cost of filtering, estimating and scoring a request of 5,000 nodes, and of computing the snapshot for it.

use crate::bench::{Row, measure};
use joulie_core::placement::assumed::{AssumedRule, AssumedSlot, AssumedWatts, NodeKey, PodUid, Sighting};
use joulie_core::placement::class::{SchedulableClass, WorkloadClass};
use joulie_core::placement::cluster::ClusterAggregates;
use joulie_core::placement::demand::{GpuDemand, GpuVendor, MilliCores, PodDemand};
use joulie_core::placement::estimate::{Coefficients, HardwareRecord, HardwareTerms, NodeGpus};
use joulie_core::placement::filter::FilterTerms;
use joulie_core::placement::freshness::{Freshness, UnixTime};
use joulie_core::placement::score::{
    ConsolidateCandidate, ConsolidateFacts, ConsolidatePod, ConsolidateTerms, Formula, GpuSupply,
    NodeCandidate, NodeCards, NodeFacts, NodeTerms, PodTerms, Points, ScoreMax, Scoring, TwinPower,
    TwinStatus, UnknownScore, consolidate_all, score_all,
};
use joulie_core::placement::sensitivity::PointsLost;
use power_units::{Micros, Percent, Ratio, Watts, WattsPerMinute};
use std::hint::black_box;

const NODES: u16 = 5_000;
const BATCH: u32 = 20;
const FRESH: Freshness = Freshness::Fresh { left: Micros::MINUTE };
const SCORING: Scoring = Scoring {
    formula: Formula::Headroom,
    facility_metrics: true,
    unknown: UnknownScore::Cautious,
    max: ScoreMax::Hundred,
    coefficients: Coefficients::REFERENCE,
};

struct Fleet {
    nodes: Vec<(TwinStatus, HardwareRecord)>,
    cluster: ClusterAggregates,
    hardware: Vec<HardwareTerms>,
    terms: Vec<NodeTerms>,
    filters: Vec<FilterTerms>,
    assumed: Vec<Watts>,
}

/// Nodes that differ in every relevant field, so that no branch always goes the same way.
fn node(n: u16) -> (TwinStatus, HardwareRecord) {
    let vary = |step: u16, range: u16| i32::from(n.wrapping_mul(step) % range);
    let class = match n % 4 {
        0 => SchedulableClass::Performance,
        1 | 2 => SchedulableClass::Eco,
        _ => SchedulableClass::Draining,
    };
    let power = TwinPower {
        measured: Some(Watts::from_int(200 + vary(37, 3000))),
        capped: (!n.is_multiple_of(10)).then_some(Watts::from_int(600 + vary(53, 5000))),
        trend: Some(WattsPerMinute::from_int(vary(7, 100) - 50)),
    };
    let twin = TwinStatus {
        class,
        headroom: Some(Percent::from_int(vary(11, 100))),
        cooling: Some(Percent::from_int(vary(13, 100))),
        psu: Some(Percent::from_int(vary(17, 100))),
        pue: Some(Ratio::ONE + Ratio::from_bits(i64::from(vary(19, 100)) << 24)),
        power: Some(power),
        // Some under a PowerBudget that is short.
        price: Ratio::from_bits(i64::from(vary(23, 100)) << 24),
        entitled: Some(Watts::from_int(vary(29, 700))),
        ..TwinStatus::silent(class)
    };
    let vendor = [Some(GpuVendor::Nvidia), Some(GpuVendor::Amd), None][usize::from(n % 3)];
    let max = (!n.is_multiple_of(5)).then_some(Watts::from_int(700));
    let gpus = n.is_multiple_of(2).then_some(NodeGpus { count: Some(8), max, vendor, adds: None });
    (twin, HardwareRecord { cpu_max: Some(Watts::from_int(720)), cores: Some(96), gpus })
}

fn facts((twin, hardware): &(TwinStatus, HardwareRecord)) -> NodeFacts<'_> {
    NodeFacts { freshness: FRESH, twin: Some(twin), hardware: Some(hardware) }
}

fn fleet() -> Fleet {
    let nodes: Vec<_> = (0..NODES).map(node).collect();
    let cluster = ClusterAggregates::of(nodes.iter().map(|(twin, _)| (FRESH, twin)));
    let terms = nodes.iter().map(|node| NodeTerms::of(&facts(node), &cluster, &SCORING)).collect();
    let hardware = nodes.iter().map(|(_, one)| HardwareTerms::of(Some(one), &SCORING.coefficients)).collect();
    let filters = nodes.iter().map(|node| FilterTerms::of(&facts(node), false)).collect();
    let assumed = (0..NODES).map(|n| Watts::from_int(i32::from(n % 300))).collect();
    Fleet { nodes, cluster, hardware, terms, filters, assumed }
}

fn pod(class: WorkloadClass, gpus: u32) -> PodTerms {
    let gpus = (gpus > 0).then_some(GpuDemand { count: gpus, vendor: GpuVendor::Nvidia });
    let demand =
        PodDemand { class, cpu: MilliCores::new(8_000), memory_bytes: 10 << 30, gpus, gpu_quarters: 0 };
    PodTerms::of(&demand, &SCORING.coefficients)
}

/// The rows of the table.
pub(crate) fn rows() -> Vec<Row> {
    let fleet = fleet();
    let items = u32::from(NODES);
    let mut points = vec![Points::Unknown(0); usize::from(NODES)];
    let mut rows = Vec::new();
    for (what, pod) in [("cores", pod(WorkloadClass::Standard, 0)), ("GPUs", pod(WorkloadClass::Standard, 2))]
    {
        rows.push(measure(&format!("estimate of a pod with {what}, a node"), None, (items, BATCH), || {
            let pod = black_box(&pod);
            fleet.hardware.iter().fold(Watts::ZERO, |sum, hardware| sum + pod.on(hardware).total())
        }));
        rows.push(measure(
            &format!("score of a pod with {what}, a node"),
            Some(15.0),
            (items, BATCH),
            || {
                let pod = black_box(&pod);
                let nodes = fleet.terms.iter().zip(&fleet.hardware).zip(&fleet.assumed);
                let candidates = nodes.map(|((terms, hardware), &assumed)| {
                    let added = pod.on(hardware).total();
                    NodeCandidate { terms: Some(terms), added, assumed, lost: PointsLost::NONE }
                });
                score_all(&SCORING, pod.class(), candidates, black_box(&mut points))
            },
        ));
    }
    rows.push(measure("filter of a performance pod, a node", None, (items, BATCH), || {
        let class = black_box(WorkloadClass::Performance);
        fleet.filters.iter().filter(|terms| terms.admits(class).is_ok()).count()
    }));
    rows.push(measure("aggregates of a snapshot, a node", None, (items, BATCH), || {
        ClusterAggregates::of(black_box(&fleet.nodes).iter().map(|(twin, _)| (FRESH, twin)))
    }));
    let mut terms = fleet.terms.clone();
    rows.push(measure("terms of a snapshot, a node", None, (items, BATCH), || {
        for (terms, node) in terms.iter_mut().zip(black_box(&fleet.nodes)) {
            *terms = NodeTerms::of(&facts(node), &fleet.cluster, &SCORING);
        }
        terms.len()
    }));
    rows.push(consolidate_row(&fleet, &mut points));
    rows.extend(assumed_rows());
    rows
}

/// `SCORING_FORMULA=consolidate` of a pod with GPUs.
fn consolidate_row(fleet: &Fleet, points: &mut [Points]) -> Row {
    let gpus = Some(GpuDemand { count: 2, vendor: GpuVendor::Nvidia });
    let (class, cpu) = (WorkloadClass::Standard, MilliCores::new(8_000));
    let demand = PodDemand { class, cpu, memory_bytes: 10 << 30, gpus, gpu_quarters: 0 };
    let (pod, watts) = (ConsolidatePod::of(&demand), PodTerms::of(&demand, &SCORING.coefficients));
    let terms: Vec<Option<ConsolidateTerms>> = (0_u32..)
        .zip(&fleet.nodes)
        .map(|(n, node)| {
            let all = if n.is_multiple_of(2) { 8 } else { 0 };
            let loaded = ConsolidateFacts {
                cores_milli: Some(96_000),
                requested_milli: n.wrapping_mul(7_919) % 96_000,
                cards: Some(NodeCards { all, free: all * (n % 9) / 8 }),
                milli_per_gpu: 4_000,
                is_spare: n.is_multiple_of(5),
                supply: if n.is_multiple_of(7) { GpuSupply::Scarce } else { GpuSupply::Ample },
                is_used: !n.is_multiple_of(3),
                at_rest: None,
                room: None,
                is_emptied: false,
            };
            loaded.of_node(&facts(node)).as_ref().map(ConsolidateTerms::of)
        })
        .collect();
    measure("consolidate of a pod with GPUs, a node", Some(25.0), (u32::from(NODES), BATCH), || {
        let pod = black_box(&pod);
        let nodes = terms.iter().zip(&fleet.hardware).zip(&fleet.assumed);
        let candidates = nodes.map(|((terms, hardware), &assumed)| {
            let added = watts.on(hardware).total();
            ConsolidateCandidate { terms: terms.as_ref(), added, assumed, lost: PointsLost::NONE }
        });
        consolidate_all(&SCORING, pod, candidates, black_box(&mut *points))
    })
}

/// Operations on a full table of assumed pods.
fn assumed_rows() -> [Row; 3] {
    const PODS: u16 = 8_192;
    let now = UnixTime::from_micros(1_700_000_000_000_000);
    let rule = AssumedRule::new(Micros::new(30_000_000), Micros::MINUTE)
        .expect("a minute is longer than half of one");
    let mut slots = vec![AssumedSlot::EMPTY; usize::from(PODS)];
    let mut assumed = AssumedWatts::new(rule, slots.as_mut_slice());
    let sighting = |n: u64| Sighting {
        // Distributed like random UIDs.
        pod: PodUid(u128::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) << 64 | u128::from(n)),
        node: NodeKey(u32::from(u16::try_from(n % 5000).unwrap_or(0))),
        watts: Watts::from_int(50),
        bound: now,
        running: None,
    };
    let mut see = |n: u64| assumed.see(&sighting(n), now, None);
    for n in 0..u64::from(PODS) {
        let _ = see(n);
    }
    let mut n = 0;
    let known = measure("a pod seen again, of 8,192 that count", None, (1, 1000), || {
        n = (n + 1) % u64::from(PODS);
        see(n)
    });
    let mut n = u64::from(PODS);
    let displaced = measure("a new pod seen, of 8,192 that count", None, (1, 100), || {
        n += 1;
        see(n)
    });
    let mut sums = vec![Watts::ZERO; usize::from(NODES)];
    let sum = measure("assumed watts of all nodes, of 8,192 pods", None, (1, 20), || {
        assumed.sum_into(&mut sums);
    });
    [known, displaced, sum]
}
