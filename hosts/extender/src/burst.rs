//! A burst of equal pods, and a watch that reports bindings some decisions late: where kube-scheduler places the pods
//! by our answers.
//!
//! `cargo test -p extender burst -- --nocapture` prints the table of docs/adr/0011.

use crate::assumed_ledger::{AssumedLedger, Round, Scales};
use crate::decide;
use crate::expected::{Expected, Forgotten};
use crate::index::{Index, Registry};
use crate::rows::PodRow;
use crate::settings::{GpuRule, PlacementSettings};
use crate::shortlist::ShortlistRule;
use crate::snapshot::{Fleet, Node, Rules, Snapshot, View, places};
use bytes::Bytes;
use host_kit::clock::Mono;
use host_kit::reflect::{ReflectEvent, Row};
use joulie_core::placement::assumed::AssumedRule;
use joulie_core::placement::class::SchedulableClass;
use joulie_core::placement::estimate::{Coefficients, HardwareRecord};
use joulie_core::placement::filter::PowerFit;
use joulie_core::placement::freshness::{Evidence, FreshnessRule, Now, PlanLease, UnixTime};
use joulie_core::placement::score::{Formula, ScoreMax, Scoring, TwinPower, TwinStatus, UnknownScore};
use power_units::{Micros, Percent, Stamp, Watts};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A kind of node: how many, their cap, the draw of the first (each next one draws 5 W more), their cores and watts.
#[derive(Clone, Copy)]
struct Kind {
    nodes: usize,
    cap: i32,
    drawn: i32,
    cores: u32,
    watts: i32,
}

/// As in the end-to-end scenario: eight nodes with a higher cap and eight with a lower one.
const MIXED: [Kind; 2] = [
    Kind { nodes: 8, cap: 900, drawn: 250, cores: 192, watts: 720 },
    Kind { nodes: 8, cap: 600, drawn: 200, cores: 64, watts: 500 },
];
const ALIKE: [Kind; 1] = [Kind { nodes: 100, cap: 1000, drawn: 200, cores: 64, watts: 500 }];
const PODS: usize = 200;
const NOW: i64 = 1_700_000_000_000_000;

struct World {
    kinds: Vec<usize>,
    cores: Vec<u32>,
    registry: Registry,
    snapshot: Snapshot,
    ledger: AssumedLedger,
    expected: Expected,
    /// Number of pods bound to each node, which kube-scheduler knows at once.
    bound: Vec<usize>,
    dice: u64,
}

pub(crate) fn placement() -> PlacementSettings {
    let scoring = Scoring {
        formula: Formula::Headroom,
        facility_metrics: false,
        unknown: UnknownScore::Neutral,
        max: ScoreMax::Hundred,
        coefficients: Coefficients::REFERENCE,
    };
    PlacementSettings {
        scoring,
        power_fit: PowerFit::Score,
        shortlist: ShortlistRule::OFF,
        gpus: GpuRule::OFF,
    }
}

fn pod(number: usize) -> Value {
    json!({"metadata": {"name": "p", "uid": format!("pod-{number}")},
           "spec": {"containers": [{"resources": {"requests": {"cpu": "4"}}}]}})
}

impl World {
    fn new(kinds: &[Kind], expected: Duration, seed: u64) -> Self {
        let mut registry = Registry::default();
        let all: Vec<(usize, usize, Kind)> = kinds
            .iter()
            .enumerate()
            .flat_map(|(at, &kind)| (0..kind.nodes).map(move |number| (at, number, kind)))
            .collect();
        for node in 0..all.len() {
            registry.number(&name(node));
        }
        let mut nodes = places(&registry);
        let now = Now { wall: UnixTime::from_micros(NOW), own: Stamp::new(Micros::ZERO) };
        for (node, (place, &(_, number, kind))) in nodes.iter_mut().zip(&all).enumerate() {
            let measured = kind.drawn + 5 * i32::try_from(number % 8).unwrap();
            let power = TwinPower {
                measured: Some(Watts::from_int(measured)),
                capped: Some(Watts::from_int(kind.cap)),
                trend: None,
            };
            let cooling = Some(Percent::ZERO);
            let twin = TwinStatus {
                cooling,
                power: Some(power),
                ..TwinStatus::silent(SchedulableClass::Performance)
            };
            let cpu_max = Some(Watts::from_int(kind.watts));
            let hardware = Some(HardwareRecord { cpu_max, cores: Some(kind.cores), gpus: None });
            let evidence = Evidence::Dated(Some(now.wall));
            *place = Node { twin: Some(twin), hardware, evidence, ..Node::unknown(&name(node)) };
        }
        let freshness = FreshnessRule::new(Micros::MINUTE).unwrap();
        let rules = Rules {
            scoring: &placement().scoring,
            profile_key: &"".into(),
            freshness,
            lease: PlanLease::Unseen,
            now,
        };
        let fleet = Arc::new(Fleet::of(nodes, Arc::new(Index::of(&registry)), &rules, true));
        let rule = AssumedRule::new(Micros::new(30_000_000), Micros::MINUTE).unwrap();
        Self {
            kinds: all.iter().map(|(kind, _, _)| *kind).collect(),
            cores: all.iter().map(|(_, _, kind)| kind.cores).collect(),
            bound: vec![0; all.len()],
            snapshot: Snapshot { fleet, assumed: vec![Watts::ZERO; all.len()].into(), ..Snapshot::nothing() },
            ledger: AssumedLedger::new(rule, 4096, Coefficients::REFERENCE),
            expected: Expected::new(expected),
            registry,
            dice: seed | 1,
        }
    }

    /// Binds all pods one after the other. Each pod is seen when `behind` more have been decided on, or with 0 before any is;
    /// its binding when `lag` more have been.
    fn burst(&mut self, behind: usize, lag: usize, plugins: bool) {
        let mut told: VecDeque<(usize, usize)> = VecDeque::new();
        (0..PODS).filter(|_| behind == 0).for_each(|number| self.see(number, None));
        for number in 0..PODS {
            if let (true, Some(pod)) = (behind > 0, number.checked_sub(behind)) {
                self.see(pod, None);
            }
            if number > lag {
                told.pop_front().into_iter().for_each(|(pod, node)| self.see(pod, Some(node)));
            }
            let node = self.place(number, plugins);
            self.bound[node] += 1;
            told.push_back((number, node));
        }
    }

    /// What kube-scheduler does: ten times the score plus its own plugins' points, and any of the best nodes.
    fn place(&mut self, number: usize, plugins: bool) -> usize {
        let names: Vec<String> = (0..self.bound.len()).map(name).collect();
        let body: Bytes = json!({"Pod": pod(number), "NodeNames": names}).to_string().into();
        let expected = self.expected.load();
        // One millisecond for each decision.
        let now = Mono::from_millis(u64::try_from(number).unwrap());
        let view = View { snapshot: &self.snapshot, expected: &expected, now };
        let (reply, outcome) = decide::prioritize(&view, &placement(), &body).unwrap();
        let offered = outcome.offer.map(|offer| self.expected.offer(offer, now));
        assert_eq!(offered.unwrap_or_default(), Forgotten::default());
        let answer: Value = serde_json::from_slice(&crate::probe::ProbeResponse::of(reply).whole()).unwrap();
        let total = |node: usize| {
            let used = 400 * self.bound[node] / usize::try_from(self.cores[node]).unwrap();
            // All of the node's cores are requested: kube-scheduler would not have sent it as a candidate.
            let spare = u64::try_from(100_usize.checked_sub(used)?).unwrap();
            Some(answer[node]["score"].as_u64().unwrap() * 10 + if plugins { spare } else { 0 })
        };
        let all: Vec<Option<u64>> = (0..self.bound.len()).map(total).collect();
        let best: Vec<usize> = (0..all.len()).filter(|&node| Some(&all[node]) == all.iter().max()).collect();
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        best[usize::try_from(self.dice % u64::try_from(best.len()).unwrap()).unwrap()]
    }

    /// The watch reports a pod, or its binding.
    fn see(&mut self, number: usize, node: Option<usize>) {
        let mut told = pod(number);
        told["spec"]["nodeName"] = json!(node.map(name));
        let row = Arc::new(PodRow::read(&told).unwrap());
        let now = UnixTime::from_micros(NOW);
        let scales = Scales { registry: &self.registry, fleet: &self.snapshot.fleet, now };
        let mut round = Round::default();
        self.ledger.follow(ReflectEvent::Seen { uid: String::new(), row }, scales, &mut round);
        self.snapshot.assumed = self.ledger.sums(self.bound.len());
        self.snapshot.queue = self.ledger.queue();
        self.expected.tell(|pod, node| self.snapshot.adds(pod, node));
        self.expected.settle(&round.bound);
    }

    /// For each kind: the most pods on one node, and the median.
    fn most_and_middle(&self) -> Vec<(usize, usize)> {
        let kinds = self.kinds.iter().max().map_or(0, |last| last + 1);
        let of = |kind| {
            let pairs = self.bound.iter().zip(&self.kinds).filter(|(_, one)| **one == kind);
            let mut pods: Vec<usize> = pairs.map(|(pods, _)| *pods).collect();
            pods.sort_unstable();
            (*pods.last().unwrap(), pods[pods.len() / 2])
        };
        (0..kinds).map(of).collect()
    }

    /// The standard deviation of what the nodes would draw with their pods, in percent of their caps.
    fn deviation(&self) -> f64 {
        let used: Vec<f64> = (0..self.bound.len())
            .map(|node| {
                let known = &self.snapshot.fleet.nodes[node];
                let power = known.twin.unwrap().power.unwrap();
                let watts = |watts: Watts| watts.to_string().parse::<f64>().unwrap();
                let hardware = known.hardware.unwrap();
                let pod = 0.7 * watts(hardware.cpu_max.unwrap()) * 4.0 / f64::from(hardware.cores.unwrap());
                let pods = f64::from(u32::try_from(self.bound[node]).unwrap());
                (watts(power.measured.unwrap()) + pods * pod) / watts(power.capped.unwrap()) * 100.0
            })
            .collect();
        let count = f64::from(u32::try_from(used.len()).unwrap());
        let mean = used.iter().sum::<f64>() / count;
        (used.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / count).sqrt()
    }
}

fn name(node: usize) -> String {
    format!("node-{node:03}")
}

const AGE: Duration = Duration::from_secs(5);

#[test]
fn a_burst_spreads_although_its_bindings_are_seen_late() {
    println!("| nodes | plugins | lag | counting | used | most, middle of each kind | deviation, % of cap |");
    for (what, kinds) in [("16, mixed", &MIXED[..]), ("100 alike", &ALIKE[..])] {
        for plugins in [false, true] {
            for lag in [0, 10, 30, 60] {
                let mut seen = Vec::new();
                for (how, age) in [("bindings seen", Duration::ZERO), ("own answers too", AGE)] {
                    let mut world = World::new(kinds, age, 0x9E37_79B9);
                    world.burst(0, lag, plugins);
                    let used = world.bound.iter().filter(|pods| **pods > 0).count();
                    let (pods, deviation) = (world.most_and_middle(), world.deviation());
                    println!("| {what} | {plugins} | {lag} | {how} | {used} | {pods:?} | {deviation:.1} |");
                    seen.push((pods, deviation));
                }
                let [(_, before), (pods, after)] = seen.as_slice() else { panic!("two") };
                // As even as if every binding were seen at once: no node has more than three pods above the median of
                // its kind.
                assert!(pods.iter().all(|(most, middle)| most - middle <= 3), "{what} {lag}: {pods:?}");
                assert!(*after < 6.0, "{what} {lag}: {after}");
                // Without the expectations the pods crowd onto a few nodes, which proves that the test can show the
                // difference.
                assert!(plugins || lag < 10 || *before > 2.0 * after, "{what} {lag}: {before} {after}");
            }
        }
    }
}

#[test]
fn a_burst_spreads_although_the_watch_tells_of_its_pods_late() {
    println!("| nodes | behind | lag | used | most, middle of each kind | deviation, % of cap |");
    for (what, kinds) in [("16, mixed", &MIXED[..]), ("100 alike", &ALIKE[..])] {
        for (behind, lag) in [(1, 30), (3, 30), (10, 60)] {
            let run = |age, behind, lag| {
                let mut world = World::new(kinds, age, 0x9E37_79B9);
                world.burst(behind, lag, false);
                let used = world.bound.iter().filter(|pods| **pods > 0).count();
                (used, world.most_and_middle(), world.deviation())
            };
            let (used, pods, deviation) = run(AGE, behind, lag);
            println!("| {what} | {behind} | {lag} | {used} | {pods:?} | {deviation:.1} |");
            // Counting begins when the watch reports the pods, not when it reports their bindings.
            let (_, _, as_bound) = run(Duration::ZERO, 0, behind);
            let (_, _, without) = run(Duration::ZERO, 0, lag);
            assert!(deviation <= as_bound + 1.0, "{what} {behind}: {deviation}, {as_bound}");
            assert!(1.5 * deviation < without, "{what} {behind}: {deviation}, {without}");
        }
    }
}
