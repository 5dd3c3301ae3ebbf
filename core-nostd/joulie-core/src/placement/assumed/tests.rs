//! The life of an assumption, late and repeated events, full storage, and a burst that must be spread.

use super::*;
use crate::placement::class::SchedulableClass;
use crate::placement::class::WorkloadClass;
use crate::placement::cluster::ClusterAggregates;
use crate::placement::demand::Runs;
use crate::placement::demand::tests::{asks, container, pod};
use crate::placement::dice::Dice;
use crate::placement::estimate::{Coefficients, HardwareRecord, HardwareTerms};
use crate::placement::freshness::Freshness;
use crate::placement::score::{
    Formula, NodeFacts, NodeTerms, PodTerms, ScoreMax, Scoring, TwinPower, TwinStatus, UnknownScore,
};
use power_units::Percent;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

const SECOND: u64 = 1_000_000;

/// Settles in 30 s; a pod that does not run is forgotten after ten minutes.
fn rule() -> AssumedRule {
    AssumedRule::new(Micros::new(30 * SECOND), Micros::new(600 * SECOND)).unwrap()
}

fn at(seconds: i64) -> UnixTime {
    UnixTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
}

fn storage(slots: usize) -> AssumedWatts<Vec<AssumedSlot>> {
    AssumedWatts::new(rule(), std::vec![AssumedSlot::EMPTY; slots])
}

fn seen(pod: u128, node: u32, bound: i64, running: Option<i64>) -> Sighting {
    Sighting {
        pod: PodUid(pod),
        node: NodeKey(node),
        watts: Watts::from_int(50),
        bound: at(bound),
        running: running.map(at),
    }
}

fn watts(assumed: &AssumedWatts<Vec<AssumedSlot>>, node: u32) -> i64 {
    assumed.of_node(NodeKey(node)).to_bits() >> 32
}

#[test]
fn a_pod_counts_from_its_binding_until_a_sample_shows_it() {
    let mut assumed = storage(4);
    assert_eq!(assumed.see(&seen(1, 7, 0, None), at(0), Some(at(0))), SightingOutcome::Counted);
    assert_eq!(watts(&assumed, 7), 50);
    assert_eq!(assumed.see(&seen(1, 7, 0, Some(10)), at(10), Some(at(0))), SightingOutcome::Known);
    // A sample no later than start plus settle time shows nothing yet, however long ago it was taken.
    for sample in [None, Some(at(5)), Some(at(40))] {
        assert_eq!(assumed.sweep(at(5000), |_| sample), Swept::default());
        assert_eq!(watts(&assumed, 7), 50);
    }
    let shown = assumed.sweep(at(41), |_| Some(at(41)));
    assert_eq!((shown, watts(&assumed, 7)), (Swept { shown: 1, never_ran: 0 }, 0));
}

#[test]
fn whether_a_pod_counts_can_be_asked_before_it_is_kept() {
    let rule = rule();
    for (pod, now, sampled, stands) in [
        (seen(1, 7, 0, None), 600, Some(600), true),
        (seen(1, 7, 0, None), 601, Some(601), false),
        (seen(1, 7, 0, Some(10)), 40, Some(40), true),
        (seen(1, 7, 0, Some(10)), 41, Some(41), false),
        (seen(1, 7, 0, Some(10)), 5000, None, true),
    ] {
        assert_eq!(rule.stands(&pod, at(now), sampled.map(at)), stands, "{pod:?} {now}");
        let kept = storage(1).see(&pod, at(now), sampled.map(at)) == SightingOutcome::Counted;
        assert_eq!(kept, stands);
    }
}

#[test]
fn what_was_expired_does_not_count_again() {
    let mut assumed = storage(4);
    // A list after a restart: a pod that has run for long, on a node that is sampled, and one that has not run for
    // long.
    assert_eq!(assumed.see(&seen(1, 7, 0, Some(10)), at(5000), Some(at(4990))), SightingOutcome::Ignored);
    assert_eq!(assumed.see(&seen(2, 7, 0, None), at(5000), Some(at(4990))), SightingOutcome::Ignored);
    assert!(assumed.is_empty());
    // A pod that runs on a node without samples counts.
    assert_eq!(assumed.see(&seen(1, 7, 0, Some(10)), at(5000), None), SightingOutcome::Counted);
    assert_eq!(assumed.see(&seen(1, 7, 0, Some(10)), at(5000), Some(at(4990))), SightingOutcome::Ignored);
    assert!(assumed.is_empty());
}

#[test]
fn a_pod_that_never_runs_is_forgotten_after_the_maximum_age_however_often_it_is_seen() {
    let mut assumed = storage(4);
    assert_eq!(assumed.see(&seen(1, 7, 0, None), at(0), None), SightingOutcome::Counted);
    assert_eq!(assumed.see(&seen(1, 7, 0, None), at(599), None), SightingOutcome::Known);
    assert_eq!(assumed.sweep(at(600), |_| None), Swept::default());
    assert_eq!(assumed.sweep(at(601), |_| None), Swept { shown: 0, never_ran: 1 });
    assert_eq!(assumed.see(&seen(1, 7, 0, None), at(602), None), SightingOutcome::Ignored);
    assert_eq!(watts(&assumed, 7), 0);
}

#[test]
fn the_word_that_a_pod_runs_is_not_taken_back_by_an_older_one() {
    let mut assumed = storage(4);
    let _ = assumed.see(&seen(1, 7, 0, Some(10)), at(11), None);
    // The bind call's answer, with a clock seconds apart, arrives after the watch.
    assert_eq!(assumed.see(&seen(1, 7, 3, None), at(12), None), SightingOutcome::Known);
    assert_eq!(assumed.sweep(at(50), |_| Some(at(45))).shown, 1);
}

#[test]
fn a_pod_that_is_gone_stays_gone() {
    let mut assumed = storage(4);
    let _ = assumed.see(&seen(1, 7, 0, None), at(0), None);
    assumed.gone(PodUid(1), at(1));
    assert_eq!(watts(&assumed, 7), 0);
    assert_eq!(assumed.see(&seen(1, 7, 0, Some(1)), at(2), None), SightingOutcome::Ignored);
    // Deleted before its binding was reported.
    assumed.gone(PodUid(2), at(1));
    assumed.gone(PodUid(2), at(2));
    assert_eq!(assumed.see(&seen(2, 7, 0, None), at(2), None), SightingOutcome::Ignored);
    assert!(assumed.is_empty());
    // After a minute the pod is no longer remembered.
    assert_eq!(assumed.sweep(at(62), |_| None), Swept::default());
    assert_eq!(assumed.filled, 0);
}

#[test]
fn a_pod_that_is_bound_again_counts_on_the_later_node_only() {
    for order in [[0, 1], [1, 0]] {
        let mut assumed = storage(4);
        let sightings = [seen(1, 7, 0, None), seen(1, 8, 5, None)];
        for which in order {
            let _ = assumed.see(&sightings[which], at(6), None);
        }
        assert_eq!((watts(&assumed, 7), watts(&assumed, 8)), (0, 50));
    }
    let mut assumed = storage(4);
    let _ = assumed.see(&seen(1, 7, 0, None), at(0), None);
    assumed.unbound(PodUid(1), NodeKey(8));
    assert_eq!(watts(&assumed, 7), 50);
    assumed.unbound(PodUid(1), NodeKey(7));
    assert_eq!(watts(&assumed, 7), 0);
    assert_eq!(assumed.see(&seen(1, 8, 1, None), at(1), None), SightingOutcome::Counted);
    // A bind that reports failure after the pod was seen running did not fail.
    let _ = assumed.see(&seen(1, 8, 1, Some(2)), at(2), None);
    assumed.unbound(PodUid(1), NodeKey(8));
    assert_eq!(watts(&assumed, 8), 50);
}

#[test]
fn a_node_that_is_gone_takes_its_pods_along() {
    let mut assumed = storage(4);
    for (pod, node) in [(1, 7), (2, 8), (3, 7)] {
        let _ = assumed.see(&seen(pod, node, 0, None), at(0), None);
    }
    assumed.node_gone(NodeKey(7));
    assert_eq!((watts(&assumed, 7), watts(&assumed, 8), assumed.len()), (0, 50, 1));
}

#[test]
fn times_from_the_future_are_times_of_now() {
    let mut assumed = storage(4);
    // A node whose clock is an hour ahead: its pod settles nevertheless.
    let _ = assumed.see(&seen(1, 7, 3600, Some(3600)), at(0), None);
    assert_eq!(assumed.sweep(at(31), |_| Some(at(31))).shown, 1);
    // A sample an hour ahead shows nothing before its time.
    let _ = assumed.see(&seen(2, 7, 0, Some(0)), at(0), Some(at(3600)));
    assert_eq!(watts(&assumed, 7), 50);
    assert_eq!(assumed.sweep(at(30), |_| Some(at(3600))).shown, 0);
    assert_eq!(assumed.sweep(at(31), |_| Some(at(3600))).shown, 1);
    let _ = assumed.see(&seen(3, 7, i64::MIN >> 24, None), at(0), None);
    assert!(assumed.is_empty());
}

#[test]
fn full_storage_drops_what_is_gone_then_what_was_bound_first_and_says_so() {
    let mut assumed = storage(3);
    for (pod, bound) in [(5, 10), (1, 20), (3, 30)] {
        assert_eq!(assumed.see(&seen(pod, 7, bound, None), at(40), None), SightingOutcome::Counted);
    }
    assert_eq!(assumed.see(&seen(9, 7, 5, None), at(40), None), SightingOutcome::Full);
    assert_eq!(assumed.see(&seen(4, 7, 25, None), at(40), None), SightingOutcome::Displaced(PodUid(5)));
    assert_eq!(assumed.see(&seen(4, 7, 25, None), at(40), None), SightingOutcome::Known);
    assumed.gone(PodUid(3), at(41));
    // The report that an unknown pod ended does not displace a pod that counts.
    assert_eq!(assumed.see(&seen(2, 7, 35, None), at(42), None), SightingOutcome::Counted);
    assumed.gone(PodUid(99), at(43));
    assert_eq!((assumed.len(), watts(&assumed, 7)), (3, 150));
    let mut none = storage(0);
    assert_eq!(none.see(&seen(1, 7, 0, None), at(0), None), SightingOutcome::Full);
    none.gone(PodUid(1), at(0));
    assert_eq!(none.of_node(NodeKey(7)), Watts::ZERO);
}

#[test]
fn sums_are_per_node_and_saturate() {
    let mut assumed = storage(8);
    let huge = |pod| Sighting { watts: Watts::MAX, ..seen(pod, 1, 0, None) };
    for sighting in [seen(1, 0, 0, None), huge(2), huge(3), seen(4, 9, 0, None)] {
        let _ = assumed.see(&sighting, at(0), None);
    }
    let negative = Sighting { watts: Watts::from_int(-900), ..seen(5, 0, 0, None) };
    let _ = assumed.see(&negative, at(0), None);
    let mut sums = [Watts::from_int(7); 3];
    assumed.sum_into(&mut sums);
    assert_eq!(sums, [Watts::from_int(50), Watts::MAX, Watts::ZERO]);
}

#[test]
fn a_rule_that_forgets_before_it_settles_is_refused() {
    let second = Micros::new(SECOND);
    assert_eq!(AssumedRule::new(second, second), Err(AgeTooShort));
    assert!(AssumedRule::new(second, Micros::new(SECOND + 1)).is_ok());
}

/// Node, binding, start.
type Row = (u32, i64, Option<i64>);

/// The same rules over an ordered map, with unlimited storage.
#[derive(Clone, Default)]
struct Model {
    pods: BTreeMap<u128, (u32, i64, Option<i64>, Option<i64>)>,
}

impl Model {
    fn see(&mut self, pod: u128, (node, bound, running): Row, (now, sampled): (i64, i64)) {
        let (bound, running) = (bound.min(now), running.map(|since| since.min(now)));
        let mut row = (node, bound, running, None);
        if let Some(&known) = self.pods.get(&pod) {
            if known.3.is_some() {
                return;
            }
            row = match known.0 == node {
                true => (node, known.1.min(bound), known.2.into_iter().chain(running).min(), None),
                false if (bound, node) > (known.1, known.0) => row,
                false => known,
            };
        }
        self.pods.insert(pod, row);
        self.expire(|other| other == pod, now, sampled);
    }

    fn expire(&mut self, which: impl Fn(u128) -> bool, now: i64, sampled: i64) {
        self.pods.retain(|&pod, &mut (_, bound, running, gone)| {
            !which(pod)
                || match (gone, running) {
                    (Some(gone), _) => now - gone <= 60,
                    (None, Some(since)) => sampled.min(now) - since <= 30,
                    (None, None) => now - bound <= 600,
                }
        });
    }

    fn watts(&self, node: u32) -> i64 {
        let here = self.pods.values().filter(|row| row.0 == node && row.3.is_none());
        here.count() as i64 * 50
    }
}

#[derive(Clone, Debug)]
enum Event {
    See { pod: u128, node: u32, bound: i64, running: Option<i64> },
    Gone { pod: u128 },
    Sweep,
}

fn event() -> impl Strategy<Value = Event> {
    let see = (0_u128..12, 0_u32..3, 0_i64..900, proptest::option::of(0_i64..900));
    prop_oneof![
        6 => see.prop_map(|(pod, node, bound, running)| Event::See { pod, node, bound, running }),
        1 => (0_u128..12).prop_map(|pod| Event::Gone { pod }),
        2 => Just(Event::Sweep),
    ]
}

proptest! {
    #[test]
    fn any_history_ends_as_the_plain_rules_say(events in prop::collection::vec((event(), 0_i64..60, 0_i64..90), 0..120)) {
        let (mut assumed, mut model, mut now) = (storage(12), Model::default(), 0);
        for (event, later, sample_age) in events {
            now += later;
            let sampled = now - sample_age;
            match event {
                Event::See { pod, node, bound, running } => {
                    let _ = assumed.see(&seen(pod, node, bound, running), at(now), Some(at(sampled)));
                    model.see(pod, (node, bound, running), (now, sampled));
                }
                Event::Gone { pod } => {
                    assumed.gone(PodUid(pod), at(now));
                    let row = model.pods.entry(pod).or_insert((0, now, None, None));
                    row.3 = row.3.or(Some(now));
                }
                Event::Sweep => {
                    let _ = assumed.sweep(at(now), |_| Some(at(sampled)));
                    model.expire(|_| true, now, sampled);
                }
            }
            for node in 0..3 {
                prop_assert_eq!(watts(&assumed, node), model.watts(node));
            }
            prop_assert_eq!(assumed.filled, model.pods.len());
            let sorted: Vec<PodUid> = assumed.entries().map(|entry| entry.pod).collect();
            prop_assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn the_order_of_the_pods_makes_no_difference(seed in any::<u64>(), slots in 0_usize..24) {
        // Each pod on one node, seen up to three times; all orders give the same storage, even when it is full.
        let mut dice = Dice::new(seed);
        let mut sightings = Vec::new();
        for pod in 0..20 {
            let (node, bound) = (dice.below(3) as u32, dice.below(500) as i64);
            for _ in 0..1 + if slots >= 20 { dice.below(3) } else { 0 } {
                let running = (dice.below(2) == 0).then(|| dice.below(500) as i64);
                sightings.push(seen(pod, node, bound, running));
            }
        }
        let mut first: Option<Vec<AssumedSlot>> = None;
        for _ in 0..6 {
            let mut assumed = storage(slots);
            for sighting in &sightings {
                let _ = assumed.see(sighting, at(500), None);
            }
            prop_assert_eq!(first.get_or_insert_with(|| assumed.slots.clone()), &assumed.slots);
            dice.shuffle(&mut sightings);
        }
    }
}

/// Places `pods` identical pods on `nodes` identical nodes one after the other, before any sample includes one, always
/// on the node with the best `score`, the first of several. Returns how many each node got.
fn burst(nodes: usize, pods: usize, cap: i32, score: impl Fn(&NodeTerms, Watts, Watts) -> i64) -> Vec<usize> {
    let scoring = Scoring {
        formula: Formula::Headroom,
        facility_metrics: false,
        unknown: UnknownScore::Neutral,
        max: ScoreMax::Hundred,
        coefficients: Coefficients::REFERENCE,
    };
    let power =
        TwinPower { measured: Some(Watts::from_int(100)), capped: Some(Watts::from_int(cap)), trend: None };
    let twin = TwinStatus {
        cooling: Some(Percent::from_int(20)),
        power: Some(power),
        ..TwinStatus::silent(SchedulableClass::Eco)
    };
    let hardware = HardwareRecord { cpu_max: Some(Watts::from_int(720)), cores: Some(96), gpus: None };
    let freshness = Freshness::Fresh { left: Micros::MINUTE };
    let facts = NodeFacts { freshness, twin: Some(&twin), hardware: Some(&hardware) };
    let terms = NodeTerms::of(&facts, &ClusterAggregates::of([(freshness, &twin)]), &scoring);
    let pod = PodTerms::of(
        &pod(WorkloadClass::Standard, &[container(Runs::Main, asks(8000))]),
        &Coefficients::REFERENCE,
    );
    let watts = pod.on(&HardwareTerms::of(Some(&hardware), &Coefficients::REFERENCE)).total();
    let mut assumed = storage(pods);
    let mut placed = std::vec![0; nodes];
    let mut sums = std::vec![Watts::ZERO; nodes];
    for uid in 0..pods {
        assumed.sum_into(&mut sums);
        let points: Vec<i64> = sums.iter().map(|&sum| score(&terms, watts, sum)).collect();
        let best = points.iter().max().unwrap();
        let node = points.iter().position(|points| points == best).unwrap();
        placed[node] += 1;
        let sighting = Sighting { watts, ..seen(uid as u128, node as u32, 0, None) };
        assert_eq!(assumed.see(&sighting, at(0), None), SightingOutcome::Counted);
    }
    placed
}

fn spread(placed: &[usize]) -> usize {
    placed.iter().max().unwrap() - placed.iter().min().unwrap()
}

#[test]
fn a_burst_spreads_over_identical_nodes() {
    // Fix list extender B20. 42 W of a cap of 2000 W are 1.47 points, so every pod lowers the whole score, too.
    let score = |terms: &NodeTerms, pod, sum| terms.score(WorkloadClass::Standard, pod, sum).unwrap();
    let whole = |terms: &NodeTerms, pod, sum| i64::from(score(terms, pod, sum).whole());
    let exact = |terms: &NodeTerms, pod, sum| score(terms, pod, sum).exact().to_bits();
    for (nodes, pods) in [(1, 5), (3, 10), (7, 7), (10, 95), (50, 333)] {
        let placed = burst(nodes, pods, 2000, whole);
        assert!(spread(&placed) <= 1, "{placed:?}");
        // Even for pods that are small compared with the cap, the exact score distinguishes the nodes.
        let placed = burst(nodes, pods, 200_000, exact);
        assert!(spread(&placed) <= 1, "{placed:?}");
    }
    // Without assumed watts all of them would go to one node.
    let blind = burst(10, 95, 2000, |terms, pod, _| whole(terms, pod, Watts::ZERO));
    assert_eq!(spread(&blind), 95);
}
