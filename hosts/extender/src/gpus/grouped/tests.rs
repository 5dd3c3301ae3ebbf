//! Random clusters of GPU objects: a filter over all nodes says what each node's cards say, one for one.

use crate::decide::{self, GpuNeeds, judge};
use crate::dra::ClaimedCards;
use crate::expected::Expected;
use crate::gpus::{GpuRow, Gpus};
use crate::index::{Index, Registry};
use crate::probe::ProbeResponse;
use crate::settings::{GpuPods, GpuRule, PlacementSettings};
use crate::snapshot::{Fleet, Snapshot, View};
use crate::{burst, scan};
use host_kit::clock::Mono;
use host_kit::reflect::by_hand;
use joulie_core::placement::filter::Rejection;
use joulie_core::placement::freshness::UnixTime;
use joulie_core::placement::gpu::fits;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// 2027-01-15T08:00:00Z.
const NOW: UnixTime = UnixTime::from_micros(1_800_000_000_000_000);
const NODES: u64 = 150;

struct Dice(u64);

impl Dice {
    /// A number below `range`.
    fn roll(&mut self, range: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % range
    }

    fn is(&mut self, of: u64) -> bool {
        self.roll(of) == 0
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.roll(u64::try_from(all.len()).unwrap())).unwrap()]
    }

    /// A card: of several models and sizes, in an island or in none, ill, cut, shared, held, taken, claimed, or doubled.
    fn card(&mut self, node: u64, card: u64) -> Value {
        let name = format!("n{node}-{card}");
        let uuid = if self.is(30) { "n0-0".to_owned() } else { name.clone() };
        let total = *self.one_of(&[40_000, 40_000, 40_000, 80_000, 0]);
        let mut spec = json!({"nodeName": format!("n{node}"), "uuid": uuid, "totalVRAMmb": total, "vendor": "nvidia",
                              "model": self.one_of(&["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "Tesla T4"])});
        if self.is(12) {
            spec.as_object_mut().unwrap().remove("model");
        }
        if !self.is(5) {
            spec["island"] = json!(self.roll(3));
        }
        if self.is(15) {
            spec["sliced"] = json!(true);
        }
        let is_shared = self.is(3);
        if is_shared {
            spec["sharing"] = json!(self.one_of(&["mps", "time-slicing", "none"]));
        }
        let pod = format!("pod-{}", self.roll(40));
        let part = if is_shared { self.roll(5) * 10_000 } else { 40_000 };
        let mut status = match self.roll(4) {
            0 => {
                json!({"allocatedVRAMmb": part, "phase": if is_shared { "Available" } else { "Allocated" }, "podName": "p",
                        "allocations": [{"podUID": pod, "podName": "p", "vramMb": part}]})
            }
            1 => json!({"allocatedVRAMmb": 0, "phase": "Available",
                        "assumed": [{"podUID": pod, "podName": "p", "vramMb": part, "since": "2027-01-15T07:59:00Z"}]}),
            _ => json!({"allocatedVRAMmb": 0, "phase": "Available"}),
        };
        if self.is(10) {
            status["health"] = json!("Unknown");
        }
        if self.is(30) {
            status["allocatedVRAMmb"] = json!(90_000);
        }
        if self.is(25) {
            status = json!({});
        }
        json!({"metadata": {"name": name, "uid": name}, "spec": spec, "status": status})
    }

    /// A pod that asks for cards.
    fn pod(&mut self) -> Value {
        let mut annotations =
            json!({"gpu-extender.mle.com/link": self.one_of(&["required", "required", "preferred", "none"])});
        if !self.is(3) {
            annotations["gpu-extender.mle.com/model"] =
                json!(self.one_of(&["A100", "T4", "A100,T4", "H100"]));
        }
        if !self.is(3) {
            annotations["gpu-extender.mle.com/vram-mb"] =
                json!(self.one_of(&["1", "15000", "30000", "60000", "90000"]));
        }
        let limits = json!({"nvidia.com/gpu": (1 + self.roll(8)).to_string()});
        json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": [{"resources": {"limits": limits}}]}})
    }
}

fn snapshot(dice: &mut Dice) -> Snapshot {
    let mut registry = Registry::default();
    for node in 0..NODES {
        registry.number(&format!("n{node}"));
    }
    // Some nodes have no cards, and some have more than are looked at.
    let cards = |dice: &mut Dice| match dice.roll(12) {
        0 => 0,
        1 => 1,
        2 => 65,
        3 => 16,
        _ => 8,
    };
    let objects: Vec<Value> = (0..NODES)
        .flat_map(|node| (0..cards(dice)).map(|card| dice.card(node, card)).collect::<Vec<_>>())
        .collect();
    let claims: Vec<_> = (0..10)
        .map(|claim| {
            let device = format!("gpu-{claim}");
            let result = json!({"driver": "gpu.nvidia.com", "pool": "n9", "device": device});
            let object = json!({"metadata": {"uid": device}, "status": {"reservedFor": [],
                                "allocation": {"devices": {"results": [result]}}}});
            joulie_api::dra::DeviceClaim::read(&object).unwrap()
        })
        .collect();
    let devices: Vec<Value> = (0..9)
        .map(|at| {
            json!({"name": format!("gpu-{at}"), "attributes": {"type": {"string": "gpu"}, "uuid": {"string": format!("n{at}-{at}")}}})
        })
        .collect();
    let slice = json!({"spec": {"driver": "gpu.nvidia.com", "pool": {"name": "n9", "generation": 1}, "devices": devices}});
    let slice = joulie_api::dra::DeviceSlice::read(&slice).unwrap();
    let claimed = Arc::new(ClaimedCards::of([&slice].into_iter(), claims.iter()));
    let (mut writer, rows) = by_hand::<GpuRow>();
    writer.list(&objects);
    let gpus = Arc::new(rows.with(|rows| Gpus::of(rows.values(), &registry, claimed, NOW)));
    let index = Arc::new(Index::of(&registry));
    let fleet = Arc::new(Fleet { index, gpus, ..Fleet::default() });
    Snapshot { fleet, ..Snapshot::nothing() }.with_left()
}

#[test]
fn what_a_filter_says_of_all_nodes_is_what_their_cards_say_one_for_one() {
    // Fix list article G2.
    let gpus = GpuRule { scope: GpuPods::Annotated, share: 60, ..GpuRule::OFF };
    let placement = PlacementSettings { gpus, ..burst::placement() };
    let expected = Expected::new(Duration::ZERO).load();
    let (mut passed, mut reasons) = (0, std::collections::BTreeSet::new());
    for seed in 1..16 {
        let mut dice = Dice(seed * 0x9E37_79B9);
        let snapshot = snapshot(&mut dice);
        let view = View { snapshot: &snapshot, expected: &expected, now: Mono::START };
        for _ in 0..12 {
            // The last name is not a known node.
            let names: Vec<String> = (0..=NODES).map(|node| format!("n{node}")).collect();
            let body = json!({"Pod": dice.pod(), "NodeNames": names}).to_string();
            let message = scan::Message::read(body.as_bytes()).unwrap();
            let (_, asked) = decide::asked(&snapshot, &message, &placement).unwrap();
            let request = asked.gpus.unwrap().unwrap();
            let (reply, outcome) = decide::filter(&view, &placement, &body.clone().into()).unwrap();
            let answer: Value = serde_json::from_slice(&ProbeResponse::of(reply).whole()).unwrap();
            let mut kept = Vec::new();
            for (number, name) in (0..).zip(&names) {
                let by_card =
                    fits(request, snapshot.fleet.gpus.cards(Some(number))).err().map(Rejection::Gpu);
                let needs = GpuNeeds::of(&asked, &placement);
                let verdict = judge(&snapshot, (asked.class, needs), Some(number), None, || None);
                assert_eq!(verdict.rejection(), by_card, "{seed} {name} {request:?}");
                let Some(why) = by_card else {
                    kept.push(name.clone());
                    continue;
                };
                reasons.insert(why.to_string());
                assert_eq!(answer["failedNodes"][name], why.to_string(), "{seed} {name}");
                let may_help = answer["failedAndUnresolvableNodes"][name].is_null();
                let Rejection::Gpu(reject) = why else { panic!("{why}") };
                assert_eq!(may_help, reject.preemption_may_help(), "{seed} {name}");
            }
            passed += kept.len();
            assert_eq!(answer["nodenames"], json!(kept), "{seed}");
            let rejected: u32 = outcome.rejected.iter().sum();
            assert_eq!(usize::try_from(rejected), Ok(names.len() - kept.len()));
        }
    }
    // The test is of no use unless all sorts of answers occur, more in one answer than a writer remembers.
    assert!(passed > 2_000 && reasons.len() > 25, "{passed} {reasons:?}");
}
