//! The worked examples, the laws of the score, and the score against a model in floating point.

use super::*;
use crate::placement::class::SchedulableClass::{Draining, Eco, Performance, Unknown};
use crate::placement::demand::tests::{asks, container, pod};
use crate::placement::demand::{GpuDemand, GpuVendor, MilliCores, Runs};
use crate::placement::dice::Dice;
use crate::placement::estimate::NodeGpus;
use crate::placement::freshness::Staleness;
use power_units::{Micros, Role};
use proptest::prelude::*;
use std::vec::Vec;

mod model;

const SEEDS: Scoring = Scoring {
    formula: Formula::Headroom,
    facility_metrics: false,
    unknown: UnknownScore::Neutral,
    max: ScoreMax::Hundred,
    coefficients: Coefficients::REFERENCE,
};
const FRESH: Freshness = Freshness::Fresh { left: Micros::MINUTE };
const STALE: Freshness = Freshness::Stale(Staleness::NoTimestamp);

fn cluster(pressure: i32, trend: i32) -> ClusterAggregates {
    let (pressure, trend) = (Some(Percent::from_int(pressure)), Some(WattsPerMinute::from_int(trend)));
    ClusterAggregates { pressure, trend, fresh: 1, holds_for: None }
}

fn calm() -> ClusterAggregates {
    cluster(0, 0)
}

fn twin(class: SchedulableClass, headroom: i32, cooling: i32) -> TwinStatus {
    let percent = |percent| Some(Percent::from_int(percent));
    TwinStatus { headroom: percent(headroom), cooling: percent(cooling), ..TwinStatus::silent(class) }
}

fn measured(twin: TwinStatus, measured: i32, capped: i32, trend: i32) -> TwinStatus {
    let power = TwinPower {
        measured: Some(Watts::from_int(measured)),
        capped: Some(Watts::from_int(capped)),
        trend: Some(WattsPerMinute::from_int(trend)),
    };
    TwinStatus { power: Some(power), ..twin }
}

fn nothing(class: WorkloadClass) -> PodTerms {
    PodTerms::of(&pod(class, &[]), &Coefficients::REFERENCE)
}

fn standard() -> PodTerms {
    nothing(WorkloadClass::Standard)
}

fn score_with(
    twin: &TwinStatus,
    hardware: Option<&HardwareRecord>,
    cluster: &ClusterAggregates,
    pod: &PodTerms,
) -> Score {
    let facts = NodeFacts { freshness: FRESH, twin: Some(twin), hardware };
    score_of(&facts, cluster, &SEEDS, pod, Watts::ZERO).unwrap()
}

/// The score of a pod on a node, by its terms and the watts that it adds there.
fn score_of(
    facts: &NodeFacts<'_>,
    cluster: &ClusterAggregates,
    scoring: &Scoring,
    pod: &PodTerms,
    assumed: Watts,
) -> Option<Score> {
    let added = pod.on(&HardwareTerms::of(facts.hardware, &scoring.coefficients)).total();
    NodeTerms::of(facts, cluster, scoring).score(pod.class(), added, assumed)
}

/// A node on which a pod without requests is scored.
fn candidate(terms: Option<&NodeTerms>) -> NodeCandidate<'_> {
    NodeCandidate { terms, added: Watts::ZERO, assumed: Watts::ZERO, lost: PointsLost::NONE }
}

fn whole(twin: &TwinStatus) -> u8 {
    score_with(twin, None, &calm(), &standard()).whole()
}

fn points(score: Score) -> f64 {
    score.exact().to_bits() as f64 / (1_u64 << 32) as f64
}

#[track_caller]
fn assert_points(actual: f64, expected: f64) {
    assert!((actual - expected).abs() < 1e-6, "{actual} is not {expected}");
}

/// A node and a pod that adds 50 W to it: 0.7 · 500 W · 10/70 cores.
fn fifty_watts() -> (HardwareRecord, PodTerms) {
    let hardware = HardwareRecord { cpu_max: Some(Watts::from_int(500)), cores: Some(70), gpus: None };
    let demand = pod(WorkloadClass::Performance, &[container(Runs::Main, asks(10_000))]);
    (hardware, PodTerms::of(&demand, &Coefficients::REFERENCE))
}

#[test]
fn the_worked_example_of_the_page() {
    // (600 − 350) / 600 · 70 + 80 · 0.15 = 29.1666 + 12.
    let (hardware, pod) = fifty_watts();
    let node = measured(twin(Performance, 99, 20), 300, 600, 0);
    let score = score_with(&node, Some(&hardware), &calm(), &pod);
    assert_points(points(score), 41.0 + 1.0 / 6.0);
    assert_eq!(score.whole(), 41);
    // On an eco node a standard pod of the same watts gets ten more.
    let standard = PodTerms { class: WorkloadClass::Standard, ..pod };
    assert_eq!(
        score_with(&TwinStatus { class: Eco, ..node }, Some(&hardware), &calm(), &standard).whole(),
        51
    );
}

#[test]
fn the_ideal_nodes_of_the_page() {
    assert_eq!(whole(&twin(Eco, 100, 0)), 95);
    assert_eq!(whole(&measured(twin(Eco, 0, 0), 0, 432, 0)), 95);
    assert_eq!(whole(&twin(Performance, 100, 0)), 85);
    // With a record of 96 cores and 720 W the pod's own watts count: 8 cores are 42 W of 720, nothing is 1.3125 W.
    let hardware = HardwareRecord { cpu_max: Some(Watts::from_int(720)), cores: Some(96), gpus: None };
    let eight = pod(WorkloadClass::Standard, &[container(Runs::Main, asks(8000))]);
    let eight = PodTerms::of(&eight, &Coefficients::REFERENCE);
    let ideal = measured(twin(Eco, 100, 0), 0, 720, 0);
    assert_eq!(score_with(&ideal, Some(&hardware), &calm(), &eight).whole(), 90);
    assert_eq!(score_with(&ideal, Some(&hardware), &calm(), &standard()).whole(), 94);
}

#[test]
fn the_reference_s_table_of_scores() {
    // Extender table, rows 2, 5, 6, 7, 10, 12 and 15.
    // 79.5 with the bonus is 0.7 · 80 + 0.15 · 90 + 10.
    assert_eq!(whole(&twin(Eco, 80, 10)), 79);
    assert_eq!(whole(&twin(Performance, 30, 70)), 25);
    assert_eq!(whole(&twin(Performance, 100, 0)), 85);
    assert_eq!(whole(&twin(Performance, 0, 100)), 0);
    let pressed = |class| score_with(&twin(class, 50, 30), None, &cluster(80, 0), &standard());
    assert!(pressed(Eco) > pressed(Performance));
    let unpressed = |class| score_with(&twin(class, 50, 30), None, &calm(), &standard());
    assert!(unpressed(Eco) > unpressed(Performance));
    // 300 of 1000 W, the twin's own 50 ignored: 49 + 12.
    assert_eq!(whole(&measured(twin(Performance, 50, 20), 300, 1000, 0)), 61);
    assert_eq!(whole(&twin(Performance, 80, 10)), 69);
    let trending = |trend| {
        points(score_with(&measured(twin(Performance, 50, 20), 500, 1000, trend), None, &calm(), &standard()))
    };
    // ±120 W/min over 6.
    assert_points(trending(-120), 47.0 + 20.0);
    assert_points(trending(120), 47.0 - 20.0);
}

#[test]
fn a_demand_lowers_the_score_and_a_larger_node_suffers_less_from_it() {
    let hardware =
        |watts, gpus| HardwareRecord { cpu_max: Some(Watts::from_int(watts)), cores: Some(96), gpus };
    let gpus = |count, max| {
        Some(NodeGpus { count: Some(count), max: Some(Watts::from_int(max)), vendor: None, adds: None })
    };
    let node = measured(twin(Performance, 50, 20), 200, 1000, 0);
    let eight = pod(WorkloadClass::Standard, &[container(Runs::Main, asks(8000))]);
    let eight = PodTerms::of(&eight, &Coefficients::REFERENCE);
    let plain = hardware(720, None);
    assert!(score_with(&node, Some(&plain), &calm(), &eight) < score_with(&node, None, &calm(), &eight));
    let gpu_pod = PodDemand {
        gpus: Some(GpuDemand { count: 1, vendor: GpuVendor::Nvidia }),
        ..pod(WorkloadClass::Standard, &[container(Runs::Main, asks(4000))])
    };
    let gpu_pod = PodTerms::of(&gpu_pod, &Coefficients::REFERENCE);
    let large =
        score_with(&measured(node, 1000, 5000, 0), Some(&hardware(720, gpus(8, 700))), &calm(), &gpu_pod);
    let small =
        score_with(&measured(node, 200, 1000, 0), Some(&hardware(720, gpus(2, 350))), &calm(), &gpu_pod);
    assert!(large > small);
}

/// Not measured, with or without a cap.
fn blind(twin: TwinStatus, capped: Option<i32>) -> TwinStatus {
    let power = TwinPower { measured: None, capped: capped.map(Watts::from_int), trend: None };
    TwinStatus { power: Some(power), ..twin }
}

#[test]
fn a_node_whose_telemetry_is_dead_is_not_the_best_for_every_pod() {
    // Fix list extender B21.
    let (hardware, pod) = fifty_watts();
    let node = blind(twin(Performance, 70, 0), None);
    let at = |node: &TwinStatus, hardware: Option<&HardwareRecord>, assumed: i32| {
        let facts = NodeFacts { freshness: FRESH, twin: Some(node), hardware };
        points(score_of(&facts, &calm(), &SEEDS, &pod, Watts::from_int(assumed)).unwrap())
    };
    // (70 − 50/600) and (70 − 80/600), in hundredths.
    assert_points(at(&blind(node, Some(600)), Some(&hardware), 0), 64.0 - 35.0 / 6.0);
    assert_points(at(&blind(node, Some(600)), Some(&hardware), 30), 64.0 - 56.0 / 6.0);
    // Assumed watts are known even where no record is.
    assert_points(at(&blind(node, Some(600)), None, 30), 64.0 - 3.5);
    // Without a cap: 50 W of 500 W of hardware, and of 500 W + 2 · 250 W.
    assert_points(at(&node, Some(&hardware), 0), 64.0 - 7.0);
    let watts = |watts| Some(Watts::from_int(watts));
    let gpus = |count, max| Some(NodeGpus { count, max, vendor: None, adds: None });
    let with_gpus = |count, max| HardwareRecord { gpus: gpus(count, max), ..hardware };
    assert_points(at(&node, Some(&with_gpus(Some(2), watts(250))), 0), 64.0 - 3.5);
    // GPUs without complete data in the record add nothing to the reference.
    for unsaid in [with_gpus(None, watts(250)), with_gpus(Some(2), None), with_gpus(Some(2), watts(-250))] {
        assert_points(at(&node, Some(&unsaid), 0), 64.0 - 7.0);
    }
    // A measurement without a cap is no measurement against a cap.
    let uncapped = TwinPower { measured: watts(9), capped: None, trend: None };
    assert_points(at(&TwinStatus { power: Some(uncapped), ..node }, Some(&hardware), 0), 64.0 - 7.0);
    // Neither a cap nor watts of the hardware, or no powerMeasurement: the prediction as it is.
    assert_points(at(&twin(Performance, 70, 0), Some(&hardware), 30), 64.0);
    assert_points(at(&node, Some(&HardwareRecord { cpu_max: None, ..hardware }), 30), 64.0);
    assert_points(at(&node, None, 30), 64.0);
}

#[test]
fn a_blind_node_that_gets_pods_falls_behind_one_that_is_seen() {
    // Fix list extender B21: ten pods of 50 W, each assumed until a sample includes it. Each subtracts 5.83 of the
    // 34.65 points by which the unmeasured node leads.
    let (hardware, pod) = fifty_watts();
    let (dark, seen) = (blind(twin(Unknown, 100, 0), Some(600)), measured(twin(Unknown, 0, 0), 297, 600, 0));
    let score = |node: &TwinStatus, assumed: i32| {
        let facts = NodeFacts { freshness: FRESH, twin: Some(node), hardware: Some(&hardware) };
        score_of(&facts, &calm(), &SEEDS, &pod, Watts::from_int(assumed)).unwrap()
    };
    let to_dark = (0..10).filter(|&pods| score(&dark, 50 * pods) > score(&seen, 0)).count();
    assert_eq!(to_dark, 6);
}

#[test]
fn without_a_pod_s_watts_the_prediction_stands_exactly() {
    // Fix list extender B21: "the extender falls back to the twin-computed predictedPowerHeadroomScore".
    let mut dice = Dice::new(6);
    for _ in 0..10_000 {
        let node = dice.twin();
        let power = node.power.map(|power| TwinPower { measured: None, ..power });
        let fallback = TwinStatus { power: power.map(|power| TwinPower { capped: None, ..power }), ..node };
        let of = |node: &TwinStatus| score_with(node, None, &calm(), &standard());
        assert_eq!(of(&TwinStatus { power, ..node }), of(&fallback));
    }
    // The reference's rows: no hardware, head 80, cool 10, 4 cores.
    let four = pod(WorkloadClass::Standard, &[container(Runs::Main, asks(4000))]);
    let four = PodTerms::of(&four, &Coefficients::REFERENCE);
    assert_eq!(score_with(&twin(Performance, 80, 10), None, &calm(), &four).whole(), 69);
    // And no measurement, head 70, cool 20: 270 W of 32 cores, and 720 W of 96 cores with 8 GPUs of 700 W.
    let hardware = |watts, cores, gpus| HardwareRecord {
        cpu_max: Some(Watts::from_int(watts)),
        cores: Some(cores),
        gpus,
    };
    let gpus = Some(NodeGpus { count: Some(8), max: Some(Watts::from_int(700)), vendor: None, adds: None });
    for hardware in [hardware(270, 32, None), hardware(720, 96, gpus)] {
        let score = score_with(&twin(Performance, 70, 20), Some(&hardware), &calm(), &four);
        assert_points(points(score), 61.0);
    }
}

#[test]
fn a_cap_that_is_none_leaves_the_predicted_headroom() {
    // Seed table, row 16.
    let node = twin(Performance, 70, 20);
    let power =
        |measured, capped| TwinStatus { power: Some(TwinPower { measured, capped, trend: None }), ..node };
    let watts = |watts| Some(Watts::from_int(watts));
    for (drawn, cap) in [(watts(5), None), (watts(5), watts(0)), (watts(5), watts(-9)), (None, watts(600))] {
        assert_eq!(whole(&power(drawn, cap)), 61, "{drawn:?} {cap:?}");
    }
    // The trend counts nevertheless: 60 W/min over 6.
    let trend = Some(WattsPerMinute::from_int(60));
    let trending = TwinStatus { power: Some(TwinPower { measured: None, capped: None, trend }), ..node };
    assert_eq!(whole(&trending), 51);
}

#[test]
fn a_node_over_its_cap_is_penalised_and_not_zeroed() {
    // 700 of 600 W: −16.6666 · 0.7 + 15.
    assert_eq!(whole(&measured(twin(Unknown, 0, 0), 700, 600, 0)), 3);
    assert_points(
        points(score_with(&measured(twin(Unknown, 0, 0), 700, 600, 0), None, &calm(), &standard())),
        15.0 - 70.0 / 6.0,
    );
    assert_eq!(whole(&measured(twin(Unknown, 0, 0), 6000, 600, 0)), 0);
}

#[test]
fn what_lies_outside_its_range_is_brought_into_it() {
    // Seed table, row 8.
    // Fix list extender B18.
    assert_eq!(whole(&twin(Unknown, 130, 0)), 85);
    assert_eq!(whole(&twin(Unknown, 500, 0)), 85);
    assert_eq!(whole(&twin(Unknown, 50, -300)), 50);
    assert_eq!(whole(&twin(Unknown, 50, 300)), 35);
    let pressed =
        |pressure| score_with(&twin(Performance, 100, 0), None, &cluster(pressure, 0), &standard()).whole();
    assert_eq!((pressed(150), pressed(100), pressed(-60)), (55, 55, 85));
    // Headroom has no lower bound: −100 · 0.7 + 15.
    assert_points(points(score_with(&twin(Unknown, -100, 0), None, &calm(), &standard())), -55.0);
}

#[test]
fn what_a_twin_does_not_say_is_taken_for_the_worse() {
    // Fix list extender B1: missing is not zero. No headroom, full cooling stress.
    assert_eq!(whole(&TwinStatus::silent(Unknown)), 0);
    let facility = Scoring { formula: Formula::Facility, ..SEEDS };
    let silent = TwinStatus::silent(Unknown);
    let facts = NodeFacts { freshness: FRESH, twin: Some(&silent), hardware: None };
    assert_eq!(score_of(&facts, &calm(), &facility, &standard(), Watts::ZERO).unwrap().whole(), 0);
}

#[test]
fn a_trend_that_is_missing_is_neither_bonus_nor_penalty() {
    let at = |trend: Option<i32>| {
        let trend = trend.map(WattsPerMinute::from_int);
        let (measured, capped) = (Some(Watts::from_int(500)), Some(Watts::from_int(1000)));
        let power = Some(TwinPower { measured, capped, trend });
        points(score_with(&TwinStatus { power, ..twin(Unknown, 0, 0) }, None, &calm(), &standard()))
    };
    // 0.7 · 50 + 15, and ±60 W/min over 6.
    assert_points(at(None), 50.0);
    assert_points(at(Some(0)), 50.0);
    assert_points(at(Some(60)), 40.0);
    assert_points(at(Some(-60)), 60.0);
}

#[test]
fn pressure_seventy_takes_twenty_one_points_of_standard_pods_on_performance_nodes_only() {
    let at = |class, pressure, pod| {
        points(score_with(&twin(class, 100, 0), None, &cluster(pressure, 0), &nothing(pod)))
    };
    use WorkloadClass::{Performance as Fast, Standard};
    assert_points(at(Performance, 70, Standard), 85.0 - 21.0);
    assert_points(at(Performance, 70, Fast), 85.0);
    for class in [Draining, Unknown] {
        assert_points(at(class, 70, Standard), 85.0);
    }
    assert_points(at(Eco, 70, Standard), 95.0);
    assert_points(at(Eco, 70, Fast), 85.0);
}

#[test]
fn a_burst_makes_the_trend_count_threefold() {
    // Seed table, row 10.
    // Fix list extender B17: the absolute threshold, the scale and the plain sum are the page's.
    let at = |sum, trend| {
        let node = measured(twin(Unknown, 0, 0), 500, 1000, trend);
        points(score_with(&node, None, &cluster(0, sum), &standard())) - 50.0
    };
    assert_points(at(510, 30), -15.0);
    assert_points(at(500, 30), -5.0);
    assert_points(at(-510, -30), 15.0);
    for (sum, trend, bonus) in
        [(0, 150, -25.0), (0, 151, -25.0), (0, -900, 25.0), (501, 50, -25.0), (501, 51, -25.0)]
    {
        assert_points(at(sum, trend), bonus);
    }
    assert_points(at(0, i32::MAX), -25.0);
    assert_points(at(0, i32::MIN), 25.0);
    assert_points(at(0, 0), 0.0);
}

#[test]
fn pue_multiplies_the_pod_s_watts_where_facility_metrics_are_enabled() {
    let (hardware, pod) = fifty_watts();
    let with = |pue: Option<&str>, facility_metrics| {
        let pue = pue.map(|text| Ratio::parse(text, Role::Nearest).unwrap());
        let node = TwinStatus { pue, ..measured(twin(Performance, 99, 20), 300, 600, 0) };
        let facts = NodeFacts { freshness: FRESH, twin: Some(&node), hardware: Some(&hardware) };
        let scoring = Scoring { facility_metrics, ..SEEDS };
        score_of(&facts, &calm(), &scoring, &pod, Watts::ZERO).unwrap()
    };
    // 50 W · 1.6 = 80 W: (600 − 380) / 600 · 70 + 12.
    assert_points(points(with(Some("1.6"), true)), 12.0 + 70.0 * 220.0 / 600.0);
    assert_eq!(with(Some("1.6"), true).whole(), 37);
    for (pue, enabled) in
        [(Some("1.6"), false), (Some("1"), true), (Some("0.3"), true), (Some("-2"), true), (None, true)]
    {
        assert_eq!(with(pue, enabled).whole(), 41, "{pue:?} {enabled}");
    }
}

#[test]
fn watts_assumed_for_pods_on_their_way_count_as_measured() {
    let node = measured(twin(Performance, 99, 20), 300, 600, 0);
    let facts = NodeFacts { freshness: FRESH, twin: Some(&node), hardware: None };
    let fifty = score_of(&facts, &calm(), &SEEDS, &standard(), Watts::from_int(50));
    assert_points(points(fifty.unwrap()), 41.0 + 1.0 / 6.0);
    // Negative assumed watts do not reduce the pod's own watts.
    let (hardware, pod) = fifty_watts();
    let facts = NodeFacts { hardware: Some(&hardware), ..facts };
    let with = |assumed| score_of(&facts, &calm(), &SEEDS, &pod, assumed);
    assert_eq!(with(Watts::from_int(-50)), with(Watts::ZERO));
}

#[test]
fn the_facility_formula_weighs_forty_thirty_thirty() {
    // Seed table, rows 17, 18 and 19.
    let facility = Scoring { formula: Formula::Facility, ..SEEDS };
    let of = |headroom, cooling, psu, class, cluster: ClusterAggregates| {
        let node = TwinStatus { psu: Some(Percent::from_int(psu)), ..twin(class, headroom, cooling) };
        let facts = NodeFacts { freshness: FRESH, twin: Some(&node), hardware: None };
        score_of(&facts, &cluster, &facility, &standard(), Watts::ZERO).unwrap().whole()
    };
    assert_eq!(of(50, 30, 30, Unknown, calm()), 62);
    assert_eq!(of(90, 10, 5, Unknown, calm()), 91);
    // Cooling stress 80 leaves 6 of 30 points.
    assert_eq!(of(0, 80, 100, Unknown, calm()), 6);
    assert_eq!(of(50, 30, 30, Eco, calm()), 72);
    assert_eq!(of(50, 30, 30, Performance, cluster(100, 0)), 32);
    let trending = measured(TwinStatus { psu: Some(Percent::ZERO), ..twin(Unknown, 0, 0) }, 0, 100, 900);
    let facts = NodeFacts { freshness: FRESH, twin: Some(&trending), hardware: None };
    assert_eq!(score_of(&facts, &calm(), &facility, &standard(), Watts::ZERO).unwrap().whole(), 100);
}

#[test]
fn a_node_without_a_rack_is_neither_under_full_power_supply_stress_nor_under_none() {
    let facility = Scoring { formula: Formula::Facility, ..SEEDS };
    let of = |headroom, cooling, psu: Option<i32>| {
        let node = TwinStatus { psu: psu.map(Percent::from_int), ..twin(Unknown, headroom, cooling) };
        let facts = NodeFacts { freshness: FRESH, twin: Some(&node), hardware: None };
        score_of(&facts, &calm(), &facility, &standard(), Watts::ZERO).unwrap().whole()
    };
    // 0.55 · 80 + 0.45 · (100 − 20) = 80; with 0 it is 0.4 · 80 + 0.3 · 80 + 30 = 86, with 100 it is 56.
    assert_eq!((of(80, 20, None), of(80, 20, Some(0)), of(80, 20, Some(100))), (80, 86, 56));
    // 0.55 · 50 + 0.45 · 70 = 59; nothing is left at the ends.
    assert_eq!((of(50, 30, None), of(100, 0, None), of(0, 100, None)), (59, 100, 0));
}

fn all(scoring: &Scoring, nodes: &[(Freshness, Option<TwinStatus>)]) -> (Vec<u8>, ScoreSummary) {
    let terms: Vec<NodeTerms> = nodes
        .iter()
        .map(|(freshness, twin)| {
            NodeTerms::of(
                &NodeFacts { freshness: *freshness, twin: twin.as_ref(), hardware: None },
                &calm(),
                scoring,
            )
        })
        .collect();
    let mut out = std::vec![Points::Unknown(0); nodes.len()];
    let candidates = terms.iter().map(|terms| candidate(Some(terms)));
    let outcome = score_all(scoring, WorkloadClass::Standard, candidates, &mut out);
    (out.into_iter().map(Points::get).collect(), outcome)
}

#[test]
fn a_stale_or_missing_twin_scores_fifty() {
    let good = twin(Performance, 90, 5);
    let nodes = [
        (FRESH, Some(good)),
        (STALE, Some(good)),
        (Freshness::Absent, None),
        (Freshness::Absent, Some(good)),
    ];
    // 0.7 · 90 + 0.15 · 95 = 77.25.
    let (points, outcome) = all(&SEEDS, &nodes);
    assert_eq!(points, [77, 50, 50, 50]);
    assert_eq!(outcome, ScoreSummary { known: 1, unknown: 3, lowest: Some(77) });
    let mut out = [Points::Known(9)];
    let unheard_of = candidate(None);
    score_all(&SEEDS, WorkloadClass::Standard, [unheard_of], &mut out);
    assert_eq!(out, [Points::Unknown(50)]);
}

#[test]
fn a_cautious_unknown_never_beats_a_known_node() {
    // Fix list extender B19.
    let cautious = Scoring { unknown: UnknownScore::Cautious, ..SEEDS };
    let busy = twin(Performance, 10, 50);
    let (points, _) = all(&cautious, &[(STALE, None), (FRESH, Some(busy)), (STALE, Some(twin(Eco, 100, 0)))]);
    // 7 + 7.5.
    assert_eq!(points, [14, 14, 14]);
    assert_eq!(all(&cautious, &[(STALE, None)]).0, [50]);
    assert_eq!(all(&cautious, &[(STALE, None), (FRESH, Some(twin(Eco, 100, 0)))]).0, [50, 95]);
    let tenths = Scoring { max: ScoreMax::Ten, ..cautious };
    assert_eq!(all(&tenths, &[(STALE, None), (FRESH, Some(busy))]).0, [1, 1]);
    assert_eq!(
        all(&Scoring { max: ScoreMax::Ten, ..SEEDS }, &[(STALE, None), (FRESH, Some(busy))]).0,
        [5, 1]
    );
}

#[test]
fn a_node_s_terms_fit_a_cache_line() {
    assert_eq!(size_of::<NodeTerms>(), 32);
}

#[test]
fn extremes_neither_panic_nor_leave_the_range() {
    let watts =
        [Watts::MIN, Watts::from_int(-1), Watts::ZERO, Watts::from_bits(1), Watts::from_int(600), Watts::MAX];
    let percents = [Percent::MIN, Percent::ZERO, Percent::from_bits(1), Percent::MAX];
    let trends = [WattsPerMinute::MIN, WattsPerMinute::ZERO, WattsPerMinute::MAX];
    let cores = [0, 1, u32::MAX];
    for (measured, capped) in watts.iter().flat_map(|&a| watts.iter().map(move |&b| (a, b))) {
        for (headroom, cooling) in percents.iter().flat_map(|&a| percents.iter().map(move |&b| (a, b))) {
            for (trend, cores) in trends.iter().flat_map(|&a| cores.iter().map(move |&b| (a, b))) {
                let power = TwinPower { measured: Some(measured), capped: Some(capped), trend: Some(trend) };
                let node = TwinStatus {
                    class: Performance,
                    headroom: Some(headroom),
                    cooling: Some(cooling),
                    psu: Some(cooling),
                    pue: Some(Ratio::MAX),
                    power: Some(power),
                    caps: [Some(headroom), Some(cooling)],
                    marked: false,
                    entitled: Some(capped),
                    price: Ratio::MAX,
                };
                let gpus = Some(NodeGpus { count: Some(cores), max: Some(capped), vendor: None, adds: None });
                let hardware = HardwareRecord { cpu_max: Some(measured), cores: Some(cores), gpus };
                let facts = NodeFacts { freshness: FRESH, twin: Some(&node), hardware: Some(&hardware) };
                let demand = PodDemand {
                    class: WorkloadClass::Standard,
                    cpu: MilliCores::new(u32::MAX),
                    memory_bytes: u64::MAX,
                    gpus: Some(GpuDemand { count: u32::MAX, vendor: GpuVendor::Amd }),
                    gpu_quarters: u32::MAX,
                };
                let pod = PodTerms::of(&demand, &Coefficients::REFERENCE);
                for formula in [Formula::Headroom, Formula::Facility] {
                    let scoring = Scoring { formula, facility_metrics: true, ..SEEDS };
                    let score = score_of(&facts, &cluster(100, 0), &scoring, &pod, watts[5]).unwrap();
                    assert!(score.whole() <= 100);
                    assert!(score.exact() <= Percent::from_int(125));
                }
            }
        }
    }
}

#[test]
fn a_fraction_is_cut_and_no_number_is_not_a_number() {
    // Fix list extender B9: rounding toward zero is the page's rule; a NaN has no value of these types, so it
    // cannot become the smallest integer.
    for (headroom, expected) in
        [(0, 15), (1, 15), (2, 16), (3, 17), (99, 84), (100, 85), (-20, 1), (-21, 0), (-30, 0)]
    {
        assert_eq!(whole(&twin(Unknown, headroom, 0)), expected, "{headroom}");
    }
    for text in ["NaN", "nan", "inf", "-Infinity", "1e400"] {
        for role in [Role::Limit, Role::Demand, Role::Nearest] {
            assert!(Percent::parse(text, role).is_err() && Watts::parse(text, role).is_err(), "{text}");
        }
    }
}

#[test]
fn a_score_that_is_a_whole_number_on_paper_is_that_number() {
    // 462 W of cap and 46.2 W of pod, which has no finite binary fraction: 90 · 0.7 + 15 = 78.
    let hardware = HardwareRecord { cpu_max: Some(Watts::from_int(720)), cores: Some(96), gpus: None };
    let demand = PodDemand {
        memory_bytes: 10 << 30,
        ..pod(WorkloadClass::Performance, &[container(Runs::Main, asks(8000))])
    };
    let node = measured(twin(Performance, 0, 0), 0, 462, 0);
    let pod = PodTerms::of(&demand, &Coefficients::REFERENCE);
    assert_eq!(score_with(&node, Some(&hardware), &calm(), &pod).whole(), 78);
    // Every whole percentage of a cap of 700 W, so that a third of the scores are exactly whole.
    for percent in 0..=100_i32 {
        let score = whole(&measured(twin(Unknown, 0, 0), 7 * percent, 700, 0));
        assert_eq!(i32::from(score), ((100 - percent) * 7 + 150) / 10, "{percent}");
    }
}

#[test]
fn the_fast_path_equals_its_breakdown() {
    // Fix list extender B27: the displayed score is the one that the scheduler gets.
    let mut dice = Dice::new(4);
    for _ in 0..100_000 {
        let scoring = Scoring {
            formula: if dice.below(2) == 0 { Formula::Facility } else { Formula::Headroom },
            facility_metrics: dice.below(2) == 0,
            ..SEEDS
        };
        let cluster = cluster(dice.below(101) as i32, dice.below(2000) as i32 - 1000);
        let (node, hardware, demand) = (dice.twin(), dice.hardware(), dice.demand());
        let freshness = if dice.below(8) == 0 { STALE } else { FRESH };
        let facts = NodeFacts { freshness, twin: Some(&node), hardware: Some(&hardware) };
        let pod = PodTerms::of(&demand, &scoring.coefficients);
        let assumed = dice.watts(0, 500);
        let score = score_of(&facts, &cluster, &scoring, &pod, assumed);
        let breakdown = Breakdown::of(&facts, &cluster, &scoring, &pod, assumed);
        assert_eq!(breakdown.estimate, pod.on(&HardwareTerms::of(facts.hardware, &scoring.coefficients)));
        match breakdown.placement {
            ExplainedTerms::Unknown(why) => {
                assert_eq!(why, STALE);
                assert_eq!(score, None);
            }
            ExplainedTerms::Known(known) => {
                assert_eq!(Some(known.score), score);
                let of_class = known.profile + known.relief + known.mark;
                let sum = known.headroom + known.cooling + known.psu + known.trend + of_class;
                // Each of the terms that are not whole and the total was rounded to 2⁻³² once.
                assert!((sum - known.score.exact()).abs() <= Percent::from_bits(7), "{known:?}");
            }
        }
    }
}

#[test]
fn a_marked_node_has_25_points_less_for_standard_pods_alone() {
    let (hardware, pod) = fifty_watts();
    let standard = PodTerms { class: WorkloadClass::Standard, ..pod };
    let plain = measured(twin(Eco, 99, 20), 270, 600, 0);
    let marked = TwinStatus { marked: true, ..plain };
    let score = |node: &TwinStatus, pod: &PodTerms| {
        let facts = NodeFacts { freshness: FRESH, twin: Some(node), hardware: Some(&hardware) };
        let breakdown = Breakdown::of(&facts, &cluster(70, 0), &SEEDS, pod, Watts::ZERO);
        let ExplainedTerms::Known(known) = breakdown.placement else { panic!("a fresh twin is known") };
        (known.score.exact(), known.mark)
    };
    let (of_plain, none) = score(&plain, &standard);
    let (of_marked, mark) = score(&marked, &standard);
    assert_eq!((none, mark), (Percent::ZERO, Percent::from_int(-25)));
    assert_eq!(of_plain - of_marked, Percent::from_int(25));
    let performance = PodTerms { class: WorkloadClass::Performance, ..pod };
    assert_eq!(score(&plain, &performance), score(&marked, &performance));
}

#[test]
fn a_watt_counts_as_more_where_watts_have_a_price() {
    let (hardware, pod) = fifty_watts();
    let score = |price: &str| {
        let price = Ratio::parse(price, Role::Nearest).unwrap();
        let node = TwinStatus { price, ..measured(twin(Performance, 99, 20), 270, 600, 0) };
        let facts = NodeFacts { freshness: FRESH, twin: Some(&node), hardware: Some(&hardware) };
        let breakdown = Breakdown::of(&facts, &calm(), &SEEDS, &pod, Watts::ZERO);
        let ExplainedTerms::Known(known) = breakdown.placement else { panic!("a fresh twin is known") };
        assert_eq!(known.score, score_of(&facts, &calm(), &SEEDS, &pod, Watts::ZERO).unwrap());
        points(known.score)
    };
    // 50 W of 600 W are 0.7 · 8.33 points, at a price of 0.25 twice as much, and at the highest five times. What is
    // not a price is the nearest one that is.
    let one = 0.7 * 100.0 * 50.0 / 600.0;
    for (price, times) in [("0", 1.0), ("0.25", 2.0), ("1", 5.0), ("9", 5.0), ("-1", 1.0)] {
        let lost = score("0") + one - score(price);
        assert!((lost - one * times).abs() < 1e-5, "{price}: {lost}");
    }
}

#[test]
fn the_breakdown_names_the_terms_of_the_page() {
    let (hardware, pod) = fifty_watts();
    let node = measured(twin(Performance, 99, 20), 270, 600, 0);
    let facts = NodeFacts { freshness: FRESH, twin: Some(&node), hardware: Some(&hardware) };
    let breakdown = Breakdown::of(&facts, &cluster(70, 0), &SEEDS, &pod, Watts::from_int(30));
    let ExplainedTerms::Known(known) = breakdown.placement else { panic!("a fresh twin is known") };
    // Demand rounds up.
    let fifty = breakdown.estimate.total();
    assert!(fifty >= Watts::from_int(50) && fifty <= Watts::from_int(50) + Watts::from_bits(4), "{fifty}");
    let watts = Watts::from_int;
    assert_eq!(
        known.budget,
        HeadroomSource::Capped { measured: watts(270), projected: watts(300) + fifty, capped: watts(600) }
    );
    assert_eq!((known.pue, known.cooling), (Ratio::ONE, Percent::from_int(12)));
    assert_eq!((known.profile, known.relief), (Percent::ZERO, Percent::ZERO));
    assert_eq!(known.score.whole(), 41);
    // (600 − 350) / 600.
    assert_points(known.headroom_score.to_bits() as f64 / (1_u64 << 32) as f64, 125.0 / 3.0);
    let standard = PodTerms { class: WorkloadClass::Standard, ..pod };
    let breakdown = Breakdown::of(&facts, &cluster(70, 0), &SEEDS, &standard, Watts::ZERO);
    let ExplainedTerms::Known(known) = breakdown.placement else { panic!("a fresh twin is known") };
    assert_eq!(known.relief, Percent::from_int(-21));
    // Fix list extender B21, B27: the breakdown names the reference of the pod's watts.
    let explained = |node: &TwinStatus, hardware: Option<&HardwareRecord>| {
        let facts = NodeFacts { freshness: FRESH, twin: Some(node), hardware };
        match Breakdown::of(&facts, &calm(), &SEEDS, &pod, watts(30)).placement {
            ExplainedTerms::Known(known) => (known.budget, known.score.whole()),
            ExplainedTerms::Unknown(_) => panic!("a fresh twin is known"),
        }
    };
    let predicted = |added, against| HeadroomSource::Predicted { added, against };
    let dark = blind(twin(Unknown, 70, 0), Some(800));
    assert_eq!(
        explained(&dark, Some(&hardware)),
        (predicted(watts(30) + fifty, Against::Cap(watts(800))), 57)
    );
    let uncapped = blind(twin(Unknown, 70, 0), None);
    assert_eq!(
        explained(&uncapped, Some(&hardware)),
        (predicted(watts(30) + fifty, Against::Hardware(watts(500))), 52)
    );
    assert_eq!(explained(&uncapped, None), (predicted(watts(30), Against::Nothing), 64));
}

#[test]
fn every_order_of_the_nodes_gives_every_node_the_same_points() {
    // Fix list extender B8.
    let mut dice = Dice::new(5);
    let scoring = Scoring { unknown: UnknownScore::Cautious, ..SEEDS };
    let mut nodes: Vec<(usize, Freshness, TwinStatus)> =
        (0..60).map(|at| (at, if dice.below(4) == 0 { STALE } else { FRESH }, dice.twin())).collect();
    let mut first: Option<Vec<(usize, u8)>> = None;
    for _ in 0..200 {
        let cluster = ClusterAggregates::of(nodes.iter().map(|(_, freshness, twin)| (*freshness, twin)));
        let terms: Vec<NodeTerms> = nodes
            .iter()
            .map(|(_, freshness, twin)| {
                NodeTerms::of(
                    &NodeFacts { freshness: *freshness, twin: Some(twin), hardware: None },
                    &cluster,
                    &scoring,
                )
            })
            .collect();
        let mut out = std::vec![Points::Unknown(0); nodes.len()];
        let candidates = terms.iter().map(|terms| candidate(Some(terms)));
        score_all(&scoring, WorkloadClass::Standard, candidates, &mut out);
        let mut points: Vec<(usize, u8)> =
            nodes.iter().zip(&out).map(|((at, ..), points)| (*at, points.get())).collect();
        points.sort_unstable();
        assert_eq!(*first.get_or_insert_with(|| points.clone()), points);
        dice.shuffle(&mut nodes);
    }
}

proptest! {
    #[test]
    fn more_load_never_scores_better(seed in any::<u64>(), more in 0_i64..(5000 << 32), milli in 0_u32..100_000) {
        let mut dice = Dice::new(seed);
        let (node, hardware, demand) = (dice.twin(), dice.hardware(), dice.demand());
        let assumed = dice.watts(0, 1000);
        let of = |node: &TwinStatus, demand: &PodDemand, assumed| {
            let facts = NodeFacts { freshness: FRESH, twin: Some(node), hardware: Some(&hardware) };
            score_of(&facts, &calm(), &SEEDS, &PodTerms::of(demand, &SEEDS.coefficients), assumed).unwrap()
        };
        let score = of(&node, &demand, assumed);
        prop_assert!(of(&node, &demand, assumed + Watts::from_bits(more)) <= score);
        let larger = PodDemand { cpu: MilliCores::new(demand.cpu.get().saturating_add(milli)), ..demand };
        prop_assert!(of(&node, &larger, assumed) <= score);
        let busier = node.power.map(|power| TwinPower {
            measured: power.measured.map(|measured| measured + Watts::from_bits(more)),
            ..power
        });
        let busier = TwinStatus { power: busier, ..node };
        prop_assert!(of(&busier, &demand, assumed) <= score);
        let hotter = node.cooling.map(|cooling| cooling + Percent::from_bits(more));
        let hotter = TwinStatus { cooling: hotter, ..node };
        prop_assert!(of(&hotter, &demand, assumed) <= score);
    }

    #[test]
    fn a_higher_cap_is_never_worse(seed in any::<u64>(), capped in 1_i64..(5000 << 32), more in 0_i64..(5000 << 32)) {
        let mut dice = Dice::new(seed);
        let (node, hardware, demand) = (dice.twin(), dice.hardware(), dice.demand());
        let measured = dice.watts(-10, 5000);
        let of = |capped| {
            let power = TwinPower { measured: Some(measured), capped: Some(Watts::from_bits(capped)), trend: None };
            let node = TwinStatus { power: Some(power), ..node };
            let facts = NodeFacts { freshness: FRESH, twin: Some(&node), hardware: Some(&hardware) };
            score_of(&facts, &calm(), &SEEDS, &PodTerms::of(&demand, &SEEDS.coefficients), Watts::ZERO).unwrap()
        };
        // Two slopes are rounded separately; the rounding error is a thousandth of the guard.
        prop_assert!(of(capped + more).exact() + Percent::from_bits(8) >= of(capped).exact());
        prop_assert!(of(capped + more).whole() >= of(capped).whole());
    }

    #[test]
    fn a_cautious_unknown_never_beats_any_known(seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        let nodes: Vec<(Freshness, Option<TwinStatus>)> = (0..dice.below(12))
            .map(|_| (if dice.below(2) == 0 { FRESH } else { STALE }, Some(dice.twin())))
            .collect();
        let (points, outcome) = all(&Scoring { unknown: UnknownScore::Cautious, ..SEEDS }, &nodes);
        let of = |fresh: bool| {
            nodes.iter().zip(&points).filter(move |((freshness, _), _)| freshness.is_fresh() == fresh).map(|(_, &p)| p)
        };
        let lowest = of(true).min();
        prop_assert_eq!(outcome.lowest, lowest);
        prop_assert!(of(false).all(|unknown| unknown <= lowest.unwrap_or(50).min(50)));
    }
}
