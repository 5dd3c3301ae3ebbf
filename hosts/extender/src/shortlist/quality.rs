//! What a shortlist costs: the points of kube-scheduler's total that the chosen node lacks compared with the best of all
//! candidates, in a model of kube-scheduler 1.36 with the plugins that score every pod or most pods.
//!
//! The model has NodeResourcesFit (LeastAllocated) as filter and score, NodeResourcesBalancedAllocation, the default
//! PodTopologySpread over hosts and zones, and this extender with weight 1. It has no taints, affinity, images, volumes
//! or claims, and binds at once.
//!
//! `cargo xtask bench shortlist` makes 10,000 placements, and a burst of like pods, and prints tables (docs/adr/0034).

use super::{OtherScores, Remembered, ShortlistPods, ShortlistRule};
use crate::burst;
use crate::decide;
use crate::expected::Expected;
use crate::index::{Index, Registry};
use crate::probe::ProbeResponse;
use crate::scan::Message;
use crate::settings::PlacementSettings;
use crate::snapshot::{Fleet, Node, Rules, Snapshot, View, places};
use bytes::Bytes;
use host_kit::clock::Mono;
use joulie_api::extender::pod;
use joulie_core::placement::class::SchedulableClass;
use joulie_core::placement::estimate::HardwareRecord;
use joulie_core::placement::freshness::{Evidence, FreshnessRule, Now, PlanLease, UnixTime};
use joulie_core::placement::kube_scheduler::{Amounts, ScheduledNode, ScheduledPod, SchedulerProfile};
use joulie_core::placement::score::{TwinPower, TwinStatus};
use power_units::{Micros, Percent, Stamp, Watts};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NODES: usize = 1_000;
const ZONES: usize = 5;
const REPLICA_SETS: usize = 20;
/// Debug builds are slow; they only show that the model works.
const PLACEMENTS: usize = if cfg!(debug_assertions) { 20 } else { 10_000 };
const BURST: usize = if cfg!(debug_assertions) { 20 } else { 1_000 };
/// The bar: so many of kube-scheduler's points lost at the mean.
const POINTS_LOST_MAX: f64 = 0.5;
/// What each node can give.
const ROOM: Amounts = Amounts { cpu_milli: 96_000, memory_bytes: 384 << 30, gpus: 0 };

struct Pod {
    number: usize,
    cores: u32,
    gib: u32,
    /// Its ReplicaSet; a pod of a Job has none.
    replica_set: Option<usize>,
    class: &'static str,
}

impl Pod {
    fn uid(&self) -> String {
        format!("pod-{}", self.number)
    }

    fn object(&self) -> Value {
        json!({"metadata": {"name": "p", "uid": self.uid(),
                            "annotations": {"joulie.io/workload-class": self.class}},
               "spec": {"containers": [{"resources": {"requests": {
                   "cpu": self.cores.to_string(), "memory": format!("{}Gi", self.gib)}}}]}})
    }

    fn asks(&self) -> ScheduledPod {
        let cpu = Some(u64::from(self.cores) * 1000);
        ScheduledPod::EMPTY.with(cpu, Some(u64::from(self.gib) << 30), 0)
    }
}

struct World {
    snapshot: Snapshot,
    placement: PlacementSettings,
    /// The pods of each ReplicaSet on each node.
    replicas: Vec<Vec<u32>>,
    dice: u64,
}

fn name(node: usize) -> String {
    format!("node-{node:04}")
}

fn zone(node: usize) -> usize {
    node % ZONES
}

impl World {
    fn new(pods: ShortlistPods, size: u32) -> Self {
        let mut registry = Registry::default();
        for node in 0..NODES {
            registry.number(&name(node));
        }
        let mut world = Self {
            snapshot: Snapshot::nothing(),
            placement: PlacementSettings { shortlist: ShortlistRule { pods, size }, ..burst::placement() },
            replicas: vec![vec![0; NODES]; REPLICA_SETS],
            dice: 0x9E37_79B9_7F4A_7C15,
        };
        let load = |world: &mut Self| {
            let mut node = ScheduledNode::empty(ROOM, 110);
            let [cpu, memory] = [0, 1].map(|_| u64::from(world.draw(60)));
            let part = |whole: u64, percent: u64| Some(whole / 100 * percent);
            node.bind(&ScheduledPod::EMPTY.with(
                part(ROOM.cpu_milli, cpu),
                part(ROOM.memory_bytes, memory),
                0,
            ));
            node
        };
        let loads = (0..NODES).map(|_| load(&mut world)).collect();
        let now = Now { wall: UnixTime::from_micros(0), own: Stamp::new(Micros::ZERO) };
        let mut nodes = places(&registry);
        for (node, place) in nodes.iter_mut().enumerate() {
            let class = if node % 4 == 0 { SchedulableClass::Eco } else { SchedulableClass::Performance };
            let measured = i32::try_from(200 + world.draw(300)).unwrap();
            let power = TwinPower {
                measured: Some(Watts::from_int(measured)),
                capped: Some(Watts::from_int(if node % 4 == 0 { 600 } else { 900 })),
                trend: None,
            };
            let cooling = Some(Percent::from_int(i32::try_from(world.draw(30)).unwrap()));
            let twin = TwinStatus { cooling, power: Some(power), ..TwinStatus::silent(class) };
            let hardware =
                Some(HardwareRecord { cpu_max: Some(Watts::from_int(720)), cores: Some(96), gpus: None });
            let evidence = Evidence::Dated(Some(now.wall));
            *place = Node { twin: Some(twin), hardware, evidence, ..Node::unknown(&name(node)) };
        }
        let freshness = FreshnessRule::new(Micros::MINUTE).unwrap();
        let scoring = &world.placement.scoring;
        let rules = Rules { scoring, profile_key: &"".into(), freshness, lease: PlanLease::Unseen, now };
        let fleet = Arc::new(Fleet::of(nodes, Arc::new(Index::of(&registry)), &rules, true));
        let zones = (0..NODES).map(|node| u16::try_from(zone(node) + 1).unwrap());
        world.snapshot = Snapshot {
            fleet,
            assumed: vec![Watts::ZERO; NODES].into(),
            loads,
            other_scores: Arc::new(OtherScores::of_zones(zones)),
            remembered: Arc::new(Remembered::new()),
            ..Snapshot::nothing()
        };
        world
    }

    fn draw(&mut self, most: u32) -> u32 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        u32::try_from(self.dice >> 20 & 0xFFFF_FFFF).unwrap() % most
    }

    fn pod(&mut self, number: usize) -> Pod {
        let (cores, gib) = (1 << self.draw(4), 1 << self.draw(5));
        let replica_set = (self.draw(10) < 6).then(|| self.draw(20)).map(|set| usize::try_from(set).unwrap());
        let class = if self.draw(10) < 3 { "performance" } else { "standard" };
        Pod { number, cores, gib, replica_set, class }
    }

    fn ask<T>(&self, nodes: &[usize], pod: &Pod, ask: impl FnOnce(&View<'_>, &Bytes) -> T) -> T {
        let names: Vec<String> = nodes.iter().map(|&node| name(node)).collect();
        let body: Bytes = json!({"Pod": pod.object(), "NodeNames": names}).to_string().into();
        let expected = Expected::new(Duration::ZERO).load();
        ask(&View { snapshot: &self.snapshot, expected: &expected, now: Mono::START }, &body)
    }

    fn filter(&self, placement: &PlacementSettings, nodes: &[usize], pod: &Pod) -> Vec<usize> {
        let answer = self.ask(nodes, pod, |view, body| decide::filter(view, placement, body).unwrap().0);
        let answer: Value = serde_json::from_slice(&ProbeResponse::of(answer).whole()).unwrap();
        let names = answer["nodenames"].as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap()["node-".len()..].parse().unwrap()).collect()
    }

    /// The parts of kube-scheduler's total of each of these nodes: this extender's, those of the soft spread, and those of
    /// processors and memory.
    fn totals(&self, nodes: &[usize], pod: &Pod) -> Vec<[i64; 3]> {
        let ours: Vec<i64> = self.ask(nodes, pod, |view, body| {
            let message = Message::read(body).unwrap();
            let (uid, asked) = decide::asked(view.snapshot, &message, &self.placement).unwrap();
            let (points, _) = decide::points(view, &self.placement, &message, uid, &asked);
            points.iter().map(|points| i64::from(points.get()) * 10).collect()
        });
        let spread = self.spread(nodes, pod);
        let asks = pod.asks();
        let own =
            nodes.iter().map(|&node| SchedulerProfile::DEFAULT.resources(&self.snapshot.loads[node], &asks));
        let own = own.map(|points| i64::try_from(points).unwrap());
        ours.into_iter().zip(spread).zip(own).map(|((ours, spread), own)| [ours, 2 * spread, own]).collect()
    }

    /// The default PodTopologySpread, normalised over these nodes.
    fn spread(&self, nodes: &[usize], pod: &Pod) -> Vec<i64> {
        let Some(set) = pod.replica_set else { return vec![0; nodes.len()] };
        let replicas = &self.replicas[set];
        let count = |nodes: usize| f64::from(u32::try_from(nodes + 2).unwrap()).ln();
        let zones = (0..ZONES).filter(|&one| nodes.iter().any(|&node| zone(node) == one)).count();
        let in_zone =
            |one: usize| (0..NODES).filter(|&node| zone(node) == one).map(|node| replicas[node]).sum::<u32>();
        let by_zone: Vec<f64> = (0..ZONES).map(|one| f64::from(in_zone(one)) * count(zones) + 4.0).collect();
        let raw = |node: usize| f64::from(replicas[node]) * count(nodes.len()) + 2.0 + by_zone[zone(node)];
        let raw: Vec<i64> = nodes.iter().map(|&node| whole(raw(node).round())).collect();
        let (least, most) = (raw.iter().min().copied().unwrap_or(0), raw.iter().max().copied().unwrap_or(0));
        raw.iter().map(|one| if most == 0 { 100 } else { 100 * (most + least - one) / most }).collect()
    }

    fn bind(&mut self, node: usize, pod: &Pod) {
        self.snapshot.loads[node].bind(&pod.asks());
        if let Some(set) = pod.replica_set {
            self.replicas[set][node] += 1;
        }
        // As the ledger of assumed watts.
        let added = self.ask(&[node], pod, |view, body| {
            let message = Message::read(body).unwrap();
            let (_, asked) = decide::asked(view.snapshot, &message, &self.placement).unwrap();
            view.snapshot.fleet.kinds.added(node, &asked.terms)
        });
        self.snapshot.assumed[node] += added;
        self.snapshot.remembered.forget(pod::uid(&pod.uid()));
    }

    /// The standard deviation of what the nodes draw with their pods, and the most, in percent of their caps.
    fn power_spread(&self) -> (f64, f64) {
        let watts = |watts: Watts| watts.to_string().parse::<f64>().unwrap();
        let used = self.snapshot.fleet.nodes.iter().zip(&self.snapshot.assumed).map(|(node, assumed)| {
            let power = node.twin.unwrap().power.unwrap();
            (watts(power.measured.unwrap()) + watts(*assumed)) / watts(power.capped.unwrap()) * 100.0
        });
        let used: Vec<f64> = used.collect();
        let count = f64::from(u32::try_from(used.len()).unwrap());
        let mean = used.iter().sum::<f64>() / count;
        let squares = used.iter().map(|one| (one - mean).powi(2)).sum::<f64>();
        ((squares / count).sqrt(), used.iter().copied().fold(0.0, f64::max))
    }

    /// Binds a pod as kube-scheduler does, and returns its node and by how many points the best of all nodes is better,
    /// part by part.
    fn place(&mut self, pod: &Pod) -> Option<(usize, [i64; 3])> {
        let asks = pod.asks();
        let fits = |node: &usize| self.snapshot.loads[*node].fits(&asks);
        let fit: Vec<usize> = (0..NODES).filter(fits).collect();
        let off = PlacementSettings { shortlist: ShortlistRule::OFF, ..self.placement };
        let all = self.filter(&off, &fit, pod);
        let few = self.filter(&self.placement, &fit, pod);
        let totals = self.totals(&all, pod);
        let best = totals.iter().max_by_key(|parts| sum(parts))?;
        let few_totals = self.totals(&few, pod);
        let (chosen, _) = few.iter().zip(few_totals).max_by_key(|(_, parts)| sum(parts))?;
        let own = all.iter().zip(&totals).find(|(node, _)| *node == chosen)?.1;
        let chosen = *chosen;
        let lost = [0, 1, 2].map(|part| best[part] - own[part]);
        self.bind(chosen, pod);
        Some((chosen, lost))
    }
}

fn sum(parts: &[i64; 3]) -> i64 {
    parts.iter().sum()
}

#[expect(clippy::cast_possible_truncation, reason = "scores are small")]
fn whole(value: f64) -> i64 {
    value as i64
}

#[test]
fn few_points_are_lost() {
    println!(
        "| SHORTLIST_SIZE | placements | points lost, mean | 99 % | worst | lost nothing | draw of the nodes, deviation and most, of the cap |"
    );
    println!("|---|---|---|---|---|---|---|");
    let (mut told, mut worst_named) = (None, String::new());
    for size in [0, 32, 64, 128] {
        let pods = if size == 0 { ShortlistPods::Nobody } else { ShortlistPods::All };
        let mut world = World::new(pods, size.max(2));
        let (mut lost, mut worst) = (Vec::new(), 0);
        for number in 0..PLACEMENTS {
            let pod = world.pod(number);
            let Some((_, parts)) = world.place(&pod) else { continue };
            lost.push(sum(&parts));
            if size == 64 && sum(&parts) > worst {
                worst = sum(&parts);
                let Pod { cores, gib, replica_set, class, .. } = pod;
                let [ours, spread, own] = parts;
                worst_named = format!(
                    "The worst with 64: a {class} pod of {cores} cores and {gib} GiB, of a ReplicaSet: {}; the best node has {ours} points more by Joulie, {spread} by the soft spread and {own} by processors and memory.",
                    replica_set.is_some()
                );
            }
        }
        lost.sort_unstable();
        let count = f64::from(u32::try_from(lost.len()).unwrap());
        let mean = f64::from(i32::try_from(lost.iter().sum::<i64>()).unwrap()) / count;
        let at = |percent: usize| lost[(lost.len() - 1) * percent / 100];
        let nothing =
            f64::from(u32::try_from(lost.iter().filter(|lost| **lost == 0).count()).unwrap()) / count;
        let (deviation, most) = world.power_spread();
        println!(
            "| {} | {} | {mean:.2} | {} | {} | {:.1} % | {deviation:.2}, {most:.0} % |",
            named(size),
            lost.len(),
            at(99),
            at(100),
            nothing * 100.0,
        );
        assert!(lost.len() * 10 >= PLACEMENTS * 9 && lost[0] >= 0, "{}", lost.len());
        // One point of the extender's is ten.
        assert!(size < 64 || mean < 10.0, "{size}: {mean}");
        assert!(size > 0 || lost.iter().all(|lost| *lost == 0), "all candidates lose nothing");
        if size == 64 {
            told = Some(mean);
        }
    }
    println!("\n{worst_named}\n");
    let mean = told.unwrap();
    let verdict = if mean <= POINTS_LOST_MAX { "PASS" } else { "FAIL" };
    println!("BAR shortlist_points_lost {mean:.3} {POINTS_LOST_MAX} {verdict}");
}

fn named(size: u32) -> String {
    if size == 0 { "off".to_owned() } else { size.to_string() }
}

#[test]
fn the_quality_of_a_burst_is_that_of_all_candidates() {
    println!(
        "| SHORTLIST_SIZE | pods of the burst | nodes used | draw of the nodes, deviation and most, of the cap |"
    );
    println!("|---|---|---|---|");
    let mut off = 0.0;
    for size in [0, 32, 64, 128] {
        let pods = if size == 0 { ShortlistPods::Nobody } else { ShortlistPods::All };
        let mut world = World::new(pods, size.max(2));
        let mut used = std::collections::BTreeSet::new();
        for number in 0..BURST {
            let pod = Pod { number, cores: 4, gib: 8, replica_set: None, class: "performance" };
            used.extend(world.place(&pod).map(|(node, _)| node));
        }
        let (deviation, most) = world.power_spread();
        println!("| {} | {BURST} | {} | {deviation:.2}, {most:.0} % |", named(size), used.len());
        // Their bindings are seen at once, so what is left to a shortlist is which of nearly equal nodes is used.
        if size == 0 {
            off = deviation;
        }
        assert!(deviation < off + 1.0, "{size}: {deviation} instead of {off}");
    }
}
