//! Nodes without fresh data beside measured nodes: how many pods each choice of `UNKNOWN_SCORE` places on them.
//!
//! `cargo test -p extender blind -- --nocapture` prints the table of docs/adr/0014.

use crate::assumed_ledger::{AssumedLedger, Round, Scales};
use crate::burst;
use crate::decide;
use crate::expected::Expected;
use crate::index::{Index, Registry};
use crate::probe::ProbeResponse;
use crate::rows::PodRow;
use crate::settings::PlacementSettings;
use crate::snapshot::{Fleet, Node, Rules, Snapshot, View, places};
use bytes::Bytes;
use host_kit::clock::Mono;
use host_kit::reflect::{ReflectEvent, Row};
use joulie_core::placement::assumed::AssumedRule;
use joulie_core::placement::class::SchedulableClass;
use joulie_core::placement::estimate::{Coefficients, HardwareRecord};
use joulie_core::placement::freshness::{Evidence, FreshnessRule, Now, PlanLease, UnixTime};
use joulie_core::placement::score::{TwinPower, TwinStatus, UnknownScore};
use power_units::{Micros, Percent, Stamp, Watts};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NODES: usize = 100;
const PODS: usize = 100;
const CORES: usize = 128;
/// Cores that a pod requests.
const ASKED: usize = 4;
const NOW: i64 = 1_700_000_000_000_000;

/// A hundred equal nodes with the same load and the same share of cores in use. The first `blind` nodes have twins
/// that are too old.
struct Site {
    blind: usize,
    load: usize,
    placement: PlacementSettings,
    registry: Registry,
    snapshot: Snapshot,
    ledger: AssumedLedger,
    bound: Vec<usize>,
}

fn name(node: usize) -> String {
    format!("node-{node:03}")
}

impl Site {
    fn new(blind: usize, load: usize, unknown: UnknownScore) -> Self {
        let mut placement = burst::placement();
        placement.scoring.unknown = unknown;
        let mut registry = Registry::default();
        (0..NODES).for_each(|node| {
            registry.number(&name(node));
        });
        let now = Now { wall: UnixTime::from_micros(NOW), own: Stamp::new(Micros::ZERO) };
        let mut nodes = places(&registry);
        for (node, place) in nodes.iter_mut().enumerate() {
            let power = TwinPower {
                measured: Some(Watts::from_int(10 * i32::try_from(load).unwrap())),
                capped: Some(Watts::from_int(1000)),
                trend: None,
            };
            let twin = TwinStatus {
                headroom: Some(Percent::from_int(i32::try_from(100 - load).unwrap())),
                cooling: Some(Percent::from_int(20)),
                power: Some(power),
                ..TwinStatus::silent(SchedulableClass::Performance)
            };
            let cores = Some(u32::try_from(CORES).unwrap());
            let hardware = Some(HardwareRecord { cpu_max: Some(Watts::from_int(500)), cores, gpus: None });
            let evidence = Evidence::Dated((node >= blind).then_some(now.wall));
            *place = Node { twin: Some(twin), hardware, evidence, ..Node::unknown(&name(node)) };
        }
        let freshness = FreshnessRule::new(Micros::MINUTE).unwrap();
        let rules = Rules {
            scoring: &placement.scoring,
            profile_key: &"".into(),
            freshness,
            lease: PlanLease::Unseen,
            now,
        };
        let fleet = Arc::new(Fleet::of(nodes, Arc::new(Index::of(&registry)), &rules, true));
        let rule = AssumedRule::new(Micros::new(30_000_000), Micros::MINUTE).unwrap();
        let assumed = vec![Watts::ZERO; NODES].into();
        Self {
            blind,
            load,
            placement,
            registry,
            snapshot: Snapshot { fleet, assumed, ..Snapshot::nothing() },
            ledger: AssumedLedger::new(rule, 4096, Coefficients::REFERENCE),
            bound: vec![0; NODES],
        }
    }

    /// Binds all pods one after the other; each binding is seen at once. Returns how many pods are on blind nodes,
    /// and the highest draw of one of them, in percent of its cap.
    fn fill(mut self) -> (usize, usize) {
        (0..PODS).for_each(|pod| self.place(pod));
        let blind = &self.bound[..self.blind];
        // A pod draws 0.7 · 4/128 · 500 W = 10.9 W of 1000 W.
        let hottest = self.load * 10 + blind.iter().max().unwrap() * 109 / 10;
        (blind.iter().sum(), hottest / 10)
    }

    /// What kube-scheduler does: ten times the score, plus up to a hundred points for unrequested resources.
    fn place(&mut self, number: usize) {
        let names: Vec<String> = (0..NODES).map(name).collect();
        let mut pod = json!({"metadata": {"name": "p", "uid": format!("pod-{number}")},
            "spec": {"containers": [{"resources": {"requests": {"cpu": ASKED.to_string()}}}]}});
        let body: Bytes = json!({"Pod": pod, "NodeNames": names}).to_string().into();
        let expected = Expected::new(Duration::ZERO);
        let expected = expected.load();
        let view = View { snapshot: &self.snapshot, expected: &expected, now: Mono::START };
        let (reply, _) = decide::prioritize(&view, &self.placement, &body).unwrap();
        let answer: Value = serde_json::from_slice(&ProbeResponse::of(reply).whole()).unwrap();
        let total = |node: usize| {
            let used = self.load * CORES / 100 + ASKED * (self.bound[node] + 1);
            let spare = CORES.checked_sub(used)? * 100 / CORES;
            Some(answer[node]["score"].as_u64().unwrap() * 10 + u64::try_from(spare).unwrap())
        };
        // Among equal totals, the first one in a fixed shuffled order.
        let node = (0..NODES).max_by_key(|&node| (total(node), node * 37 % 101)).unwrap();
        self.bound[node] += 1;
        pod["spec"]["nodeName"] = json!(name(node));
        let row = Arc::new(PodRow::read(&pod).unwrap());
        let now = UnixTime::from_micros(NOW);
        let scales = Scales { registry: &self.registry, fleet: &self.snapshot.fleet, now };
        self.ledger.follow(ReflectEvent::Seen { uid: String::new(), row }, scales, &mut Round::default());
        self.snapshot.assumed = self.ledger.sums(NODES);
    }
}

#[test]
fn blind_nodes_get_no_more_than_their_part_of_the_pods() {
    println!("| blind nodes | load | neutral: pods there, hottest | cautious: pods there, hottest |");
    for blind in [5, 20, 50, 95] {
        for load in [20, 50, 70, 90] {
            let of = |unknown| Site::new(blind, load, unknown).fill();
            let (neutral, cautious) = (of(UnknownScore::Neutral), of(UnknownScore::Cautious));
            println!(
                "| {blind} | {load} % | {}, {} % | {}, {} % |",
                neutral.0, neutral.1, cautious.0, cautious.1
            );
            // As many pods as nodes, and one more for the random draw.
            assert!(cautious.0 <= blind + 1, "{blind} {load}: {cautious:?}");
            assert!(cautious.1 <= load + 3, "{blind} {load}: {cautious:?}");
        }
    }
}
