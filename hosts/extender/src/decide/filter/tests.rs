use super::writer::ECO;
use super::*;
use crate::budgets::{BudgetRow, Budgets};
use crate::burst;
use crate::expected::Expected;
use crate::index::{Index, Registry};
use crate::probe::{Picture, ProbeResponse};
use crate::settings::{GpuPods, GpuRule};
use crate::shortlist::{ShortlistPods, ShortlistRule};
use crate::snapshot::{Fleet, Node, View};
use host_kit::clock::Mono;
use host_kit::reflect::by_hand;
use joulie_api::extender::PodDeferral;
use joulie_api::labels;
use joulie_core::placement::class::SchedulableClass;
use joulie_core::placement::demand::{MilliCores, PodDemand};
use joulie_core::placement::estimate::{Coefficients, HardwareRecord};
use joulie_core::placement::filter::FilterTerms;
use joulie_core::placement::freshness::{Freshness, UnixTime};
use joulie_core::placement::score::{NodeFacts, PodTerms, TwinPower, TwinStatus};
use power_units::Micros;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn the_words_are_the_core_s() {
    assert_eq!(ECO, format!(":\"{}\",", Rejection::Eco));
    let counted = [Rejection::Eco, Rejection::Draining, Rejection::EcoLabel];
    assert_eq!(counted.map(Rejection::kind), Rejection::KINDS[..3], "they are counted in this order");
}

/// A pod that asks for nothing.
fn nothing(class: WorkloadClass) -> PodDemand {
    PodDemand { class, cpu: MilliCores::new(0), memory_bytes: 0, gpus: None, gpu_quarters: 0 }
}

#[test]
fn what_is_sorted_together_is_what_is_judged_alone() {
    use Admission::{Draining, Eco, EcoLabel, Free, Unlabelled};
    let (mut registry, mut admissions, mut filters) = (Registry::default(), Vec::new(), Vec::new());
    for node in 0..90 {
        registry.number(&format!("n{node}"));
        admissions.push([Free, Unlabelled, Eco, Draining, EcoLabel][node % 5]);
        filters.push(if node % 3 == 0 { over() } else { FilterTerms::UNKNOWN });
    }
    let index = Arc::new(Index::of(&registry));
    let (admissions, filters) = (admissions.into(), filters.into());
    let fleet = Arc::new(Fleet { index, admissions, filters, ..Fleet::default() });
    let snapshot = Snapshot { fleet, ..Snapshot::nothing() }.with_left();
    for (first, count) in [(0, 0), (0, 1), (3, 63), (7, 64), (60, 64)] {
        // The last names are not known nodes.
        let names: Vec<String> = (first..first + count).map(|node| format!("n{node}")).collect();
        let numbers = snapshot.fleet.index.find_all(names.iter().map(|name| name.as_bytes()));
        for (class, weighs) in [
            (WorkloadClass::Standard, true),
            (WorkloadClass::Performance, false),
            (WorkloadClass::Performance, true),
        ] {
            let demand = nothing(class);
            let weighed = snapshot.fleet.kinds.weigh(&PodTerms::of(&demand, &Coefficients::REFERENCE));
            let power = weighs.then_some(&weighed);
            let sorted = sort(&snapshot, class, &numbers, count, power);
            for place in 0..AT_ONCE {
                let has = |bits: u64| bits >> place & 1 == 1;
                let told = (has(sorted.all), has(sorted.kept), has(sorted.unlabelled), has(sorted.eco));
                let number = numbers.at(place);
                let verdict = judge(&snapshot, (class, GpuNeeds::default()), number, power, || None);
                let is_performance = class == WorkloadClass::Performance;
                let is = |which| is_performance && admission(&snapshot, number) == which;
                let alone = (true, verdict.rejection().is_none(), is(Unlabelled), is(Eco));
                let expected = if place < count { alone } else { (false, false, false, false) };
                assert_eq!(told, expected, "{first} {count} {class:?} {weighs} {place}");
            }
        }
    }
}

#[test]
fn a_bit_of_each_candidate_is_at_its_place_whatever_its_other_bits_and_neighbours_are() {
    let admissions =
        [Admission::Free, Admission::Unlabelled, Admission::Eco, Admission::Draining, Admission::EcoLabel];
    for which in admissions {
        for place in 0..AT_ONCE {
            let mut bytes = [0; AT_ONCE];
            bytes[place] = which.bit();
            assert_eq!(column(&bytes, which), 1 << place, "{which:?} {place}");
            let others = bytes.map(|byte| !byte);
            assert_eq!(column(&others, which), !(1 << place), "all but {which:?} {place}");
        }
        // Bytes of all kinds beside each other.
        for first in 0..=u8::MAX {
            let bytes: [u8; AT_ONCE] =
                std::array::from_fn(|at| first.wrapping_mul(u8::try_from(at).unwrap()) ^ first);
            let expected = (0..AT_ONCE).filter(|&at| bytes[at] & which.bit() != 0);
            assert_eq!(column(&bytes, which), expected.fold(0, |all, at| all | 1 << at), "{which:?} {first}");
        }
    }
}

/// 700 W under a cap of 600 W.
fn over() -> FilterTerms {
    let power =
        TwinPower { measured: Some(Watts::from_int(700)), capped: Some(Watts::from_int(600)), trend: None };
    let twin = TwinStatus { power: Some(power), ..TwinStatus::silent(SchedulableClass::Performance) };
    let freshness = Freshness::Fresh { left: Micros::MINUTE };
    FilterTerms::of(&NodeFacts { freshness, twin: Some(&twin), hardware: None }, false)
}

#[test]
fn a_limit_that_lacks_watts_is_named_with_them() {
    let (mut server, rows) = by_hand::<BudgetRow>();
    let demand = json!({"assumedWatts": 0, "grantableWatts": {"performance": 20, "draining": 0, "eco": 0},
        "price": {"performance": 0, "draining": 0, "eco": 0}});
    server.list([&json!({"metadata": {"name": "rack-0", "uid": "u"},
        "spec": {"watts": 1000, "mode": "enforce"},
        "status": {"observedGeneration": 0, "mode": "enforce", "demand": demand}})]);
    let budgets = rows.with(|rows| Budgets::of(rows, true));
    let power =
        TwinPower { measured: Some(Watts::from_int(700)), capped: Some(Watts::from_int(900)), trend: None };
    let twin = TwinStatus {
        power: Some(power),
        entitled: Some(Watts::from_int(600)),
        ..TwinStatus::silent(SchedulableClass::Performance)
    };
    let freshness = Freshness::Fresh { left: Micros::MINUTE };
    let filters =
        [FilterTerms::of(&NodeFacts { freshness, twin: Some(&twin), hardware: None }, false)].into();
    let mut registry = Registry::default();
    registry.number("n0");
    let nodes: Box<[Node]> =
        [Node { twin: Some(twin), budget: Some("rack-0".into()), ..Node::unknown("n0") }].into();
    let (places, index) = (budgets.places(&nodes), Arc::new(Index::of(&registry)));
    let fleet = Arc::new(Fleet { index, filters, budgets, places, nodes, ..Fleet::default() });
    // 20 W can be granted, and 70 W are assumed there.
    let assumed = [Watts::from_int(70)].into();
    let snapshot = Snapshot { fleet, assumed, ..Snapshot::nothing() }.with_left();
    let demand = nothing(WorkloadClass::Standard);
    let weighed = snapshot.fleet.kinds.weigh(&PodTerms::of(&demand, &Coefficients::REFERENCE));
    let judged =
        |power| judge(&snapshot, (WorkloadClass::Standard, GpuNeeds::default()), Some(0), power, || None);
    let reason = judged(Some(&weighed)).reason().unwrap().to_string();
    assert_eq!(reason, "joulie: PowerBudget rack-0 lacks 50 W for the pod");
    let by = Watts::from_int(50);
    assert_eq!(judged(Some(&weighed)).rejection(), Some(Rejection::OverBudget { by }));
    assert_eq!(judged(None).rejection(), None, "POWER_FIT=score");
}

#[test]
fn a_pod_that_may_wait_waits_for_a_lowered_limit_and_not_past_its_deadline() {
    let (mut server, rows) = by_hand::<BudgetRow>();
    let status = json!({"observedGeneration": 0, "mode": "enforce", "limitWatts": 500,
        "lowered": {"by": "Window", "name": "even\"ing", "watts": 500, "until": "1970-01-01T01:00:00Z"}});
    let budget = |name: &str, parent: Option<&str>, mode: &str, status: &Value| {
        json!({"metadata": {"name": name, "uid": name},
            "spec": {"watts": 1000, "mode": mode, "parent": parent}, "status": status})
    };
    let mut observed = status.clone();
    observed["mode"] = json!("observe");
    server.list([
        &budget("site", None, "enforce", &status),
        &budget("rack-0", Some("site"), "enforce", &json!({"observedGeneration": 0, "mode": "enforce"})),
        &budget("free", None, "observe", &observed),
        &budget(
            "short",
            None,
            "enforce",
            &json!({"observedGeneration": 0, "mode": "enforce", "shortWatts": 12}),
        ),
    ]);
    // A silent operator raises nothing, so what it lowered stays lowered.
    let budgets = |now| rows.with(|rows| Budgets::of(rows, false)).at(now);
    let mut registry = Registry::default();
    let names = ["rack-0", "free", "short"];
    for name in names {
        registry.number(name);
    }
    let nodes =
        || names.iter().map(|name| Node { budget: Some((*name).into()), ..Node::unknown(name) }).collect();
    let index = Arc::new(Index::of(&registry));
    let second = |second: i64| UnixTime::from_micros(second * 1_000_000);
    let reasons = |now: i64, deferral: PodDeferral| {
        let (budgets, nodes): (_, Box<[Node]>) = (budgets(second(now)), nodes());
        let (places, index) = (budgets.places(&nodes), index.clone());
        let admissions = vec![Admission::Free; 3].into();
        let fleet = Arc::new(Fleet { index, budgets, places, nodes, admissions, ..Fleet::default() });
        let snapshot = Snapshot { fleet, ..Snapshot::nothing() };
        let needs = GpuNeeds { deferral, ..GpuNeeds::default() };
        [0, 1, 2].map(|at| {
            let verdict = judge(&snapshot, (WorkloadClass::Standard, needs), Some(at), None, || None);
            let alone = needs.rejects(&snapshot, Some(at));
            assert_eq!(verdict.rejection(), alone);
            verdict.reason().map(|why| why.to_string())
        })
    };
    let told = "joulie: the pod may wait, and does for the limit of PowerBudget ";
    let window = format!("{told}site: it is lowered until 1970-01-01T01:00:00Z, now by its window evening");
    let short = format!("{told}short: it cannot be kept");
    let until = PodDeferral::Until(second(7_200));
    assert_eq!(reasons(10, until), [Some(window), None, Some(short.clone())]);
    // The window is over before the deadline; the deadline is over before the limit is kept.
    assert_eq!(reasons(3_600, until), [None, None, Some(short)]);
    for (now, deferral) in [(7_200, until), (10, PodDeferral::None), (10, PodDeferral::Malformed)] {
        assert_eq!(reasons(now, deferral), [None, None, None], "{deferral:?}");
    }
    let needs = GpuNeeds { deferral: until, ..GpuNeeds::default() };
    assert!(!needs.is_none() && GpuNeeds::default().is_none());
}

/// What is known of a node. Of the last kind only the request knows anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    Eco,
    Draining,
    OverCap,
    SaysEco,
}
const KINDS: [Kind; 5] = [Kind::Free, Kind::Eco, Kind::Draining, Kind::OverCap, Kind::SaysEco];

/// Nodes of these kinds, named `n0`, `n1` and so on.
fn snapshot(kinds: &[Kind]) -> Snapshot {
    let mut registry = Registry::default();
    let (mut admissions, mut filters) = (Vec::new(), Vec::new());
    for (node, kind) in kinds.iter().enumerate().filter(|(_, kind)| **kind != Kind::SaysEco) {
        registry.number(&format!("n{node}"));
        admissions.push(match kind {
            Kind::Eco => Admission::Eco,
            Kind::Draining => Admission::Draining,
            Kind::Free | Kind::OverCap | Kind::SaysEco => Admission::Free,
        });
        // An eco node is reported as eco, whether it is over its cap or not.
        let is_over = matches!(kind, Kind::OverCap | Kind::Eco);
        filters.push(if is_over { over() } else { FilterTerms::UNKNOWN });
    }
    let index = Arc::new(Index::of(&registry));
    let (admissions, filters) = (admissions.into(), filters.into());
    let profile_key = labels::node::POWER_PROFILE.into();
    let fleet = Arc::new(Fleet { index, admissions, filters, profile_key, ..Fleet::default() });
    Snapshot { fleet, ..Snapshot::nothing() }.with_left()
}

/// How filter answers for these nodes and a performance pod: requests with names and with objects.
fn answers(kinds: &[Kind]) -> [Value; 4] {
    let (snapshot, expected) = (snapshot(kinds), Expected::new(Duration::ZERO).load());
    let view = View { snapshot: &snapshot, expected: &expected, now: Mono::START };
    let placement = PlacementSettings { power_fit: PowerFit::Filter, ..burst::placement() };
    let pod = r#""Pod":{"metadata":{"annotations":{"joulie.io/workload-class":"performance"}}}"#;
    let name = |node: usize| {
        if node.is_multiple_of(7) { format!(r#""\u006e{node}""#) } else { format!(r#""n{node}""#) }
    };
    let object = |(node, kind): (usize, &Kind)| {
        let says = if *kind == Kind::SaysEco { r#","labels":{"joulie.io/power-profile":"eco"}"# } else { "" };
        format!(r#"{{"metadata":{{"name":"n{node}"{says}}}}}"#)
    };
    let names: Vec<String> = (0..kinds.len()).map(name).collect();
    let objects: Vec<String> = kinds.iter().enumerate().map(object).collect();
    let request = |all: &[String], between: &str, is_objects: bool| {
        let list = all.join(between);
        let list = if is_objects {
            format!(r#""Nodes":{{"items":[{list}]}}"#)
        } else {
            format!(r#""NodeNames":[{list}]"#)
        };
        let (reply, outcome) =
            crate::decide::filter(&view, &placement, &format!("{{{pod},{list}}}").into()).unwrap();
        let mut answer: Value = serde_json::from_slice(&ProbeResponse::of(reply).whole()).unwrap();
        answer["counted"] = json!(outcome.rejected);
        answer
    };
    [(&names, ",", false), (&names, " ,\n", false), (&objects, ",", true), (&objects, " , ", true)]
        .map(|(all, between, is_objects)| request(all, between, is_objects))
}

#[test]
fn whatever_is_kept_is_kept_in_its_order_and_the_others_are_told_of() {
    for count in [0, 1, 2, 63, 64, 65, 127, 128, 129, 200] {
        let patterns: [&dyn Fn(usize) -> Kind; 9] = [
            &|_| Kind::Free,
            &|_| Kind::Eco,
            &|at| if at % 2 == 0 { Kind::Free } else { Kind::Eco },
            &|at| if at % 2 == 0 { Kind::Draining } else { Kind::Free },
            &|at| if at == 0 { Kind::Free } else { Kind::OverCap },
            &|at| if at + 1 == count { Kind::Free } else { Kind::Draining },
            // A run of kept nodes across the edge of a group, and one rejected node among kept ones.
            &|at| if (60..70).contains(&at) { Kind::Free } else { Kind::Eco },
            &|at| if at == 64 { Kind::SaysEco } else { Kind::Free },
            &|at| KINDS[at * at % 7 % 5],
        ];
        for (which, pattern) in patterns.iter().enumerate() {
            let kinds: Vec<Kind> = (0..count).map(pattern).collect();
            let named = |wanted: &[Kind]| -> Vec<String> {
                let all = kinds.iter().enumerate().filter(|(_, kind)| wanted.contains(kind));
                all.map(|(at, _)| format!("n{at}")).collect()
            };
            for (form, answer) in answers(&kinds).into_iter().enumerate() {
                // A request of names carries no label.
                let (kept, labelled): (&[Kind], &[Kind]) = if form < 2 {
                    (&[Kind::Free, Kind::SaysEco], &[])
                } else {
                    (&[Kind::Free], &[Kind::SaysEco])
                };
                let names = match answer["nodes"]["items"].as_array() {
                    Some(items) => items.iter().map(|item| item["metadata"]["name"].clone()).collect(),
                    None => answer["nodenames"].clone(),
                };
                assert_eq!(names, json!(named(kept)), "{count} {which} {form}");
                let told =
                    |map: &str| -> Vec<String> { answer[map].as_object().unwrap().keys().cloned().collect() };
                let mut unresolvable = [named(&[Kind::Eco, Kind::Draining]), named(labelled)].concat();
                let mut failed = [unresolvable.clone(), named(&[Kind::OverCap])].concat();
                unresolvable.sort();
                failed.sort();
                assert_eq!(told("failedNodes"), failed, "{count} {which} {form}");
                assert_eq!(told("failedAndUnresolvableNodes"), unresolvable, "{count} {which} {form}");
                let counts = [&[Kind::Eco][..], &[Kind::Draining], labelled, &[Kind::OverCap]];
                let mut counted = counts.map(|kinds| named(kinds).len()).to_vec();
                // No node is under a budget, and no pod asks for GPUs, leaves cores to them or can wait.
                counted.extend([0, 0, 0, 0, 0]);
                assert_eq!(answer["counted"], json!(counted));
            }
        }
    }
}

/// A request for nodes with names and sizes as those of a cloud provider.
fn request(class: &str, cards: u32, count: usize, is_objects: bool) -> Bytes {
    let name = |node: usize| format!("ip-10-0-{node:03}.eu-central-1.compute.internal");
    let pod = json!({"metadata": {"name": "p", "uid": "u", "annotations": {"joulie.io/workload-class": class,
                                  "gpu-extender.mle.com/link": "required"}},
                     "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": cards.to_string()}}}]}});
    let names: Vec<String> = (0..count).map(name).collect();
    if !is_objects {
        return json!({"Pod": pod, "NodeNames": names}).to_string().into();
    }
    let object = |name: &String| json!({"metadata": {"name": name, "annotations": {"a": "x".repeat(4_200)}}});
    json!({"Pod": pod, "Nodes": {"items": names.iter().map(object).collect::<Vec<_>>()}}).to_string().into()
}

#[test]
fn an_answer_costs_few_allocations_whatever_is_asked() {
    const COUNT: usize = 300;
    let names = request("standard", 1, COUNT, false);
    let message = Message::read(&names).unwrap();
    let names: Vec<String> = candidates(&message.candidates)
        .map(|one| String::from_utf8(one.name.of(message.body).to_vec()).unwrap())
        .collect();
    let hardware = HardwareRecord { cpu_max: Some(Watts::from_int(720)), cores: Some(96), gpus: None };
    let node = |(at, name): (usize, &String)| {
        let class = if at % 2 == 0 { SchedulableClass::Eco } else { SchedulableClass::Performance };
        (name.clone(), TwinStatus::silent(class), hardware)
    };
    let nodes: Vec<_> = names.iter().enumerate().map(node).collect();
    // Of three nodes one has two free cards that are joined, one two that are not, and one has none that is free.
    let card = |at: usize| {
        let (node, card) = (at / 2, at % 2);
        let held = json!({"allocatedVRAMmb": 40_000, "phase": "Allocated", "podName": "p", "allocations": [{"podUID": "v"}]});
        let status = if node % 3 == 2 { held } else { json!({"allocatedVRAMmb": 0, "phase": "Available"}) };
        json!({"metadata": {"name": format!("{node}-{card}"), "uid": "x"}, "status": status,
               "spec": {"nodeName": names[node], "uuid": format!("{node}-{card}"), "model": "A100", "totalVRAMmb": 40_000,
                        "island": if node % 3 == 1 { card } else { 0 }}})
    };
    let cards: Vec<Value> = (0..2 * COUNT).map(card).collect();
    let rule = GpuRule { scope: GpuPods::Annotated, share: 60, ..GpuRule::OFF };
    let short = ShortlistRule { pods: ShortlistPods::All, ..ShortlistRule::OFF };
    for (shortlist, is_objects) in
        [(ShortlistRule::OFF, false), (short, false), (ShortlistRule::OFF, true), (short, true)]
    {
        for (class, gpus) in [("standard", 0), ("performance", 0), ("standard", 2)] {
            let body = request(class, gpus, COUNT, is_objects);
            let gpus = if gpus > 0 { rule } else { GpuRule::OFF };
            let placement = PlacementSettings { shortlist, gpus, ..burst::placement() };
            let picture = Picture::of(&nodes, placement).with_gpus(&cards).with_pod_of(&body).unwrap();
            let answer: Value = serde_json::from_slice(&picture.filter(&body).unwrap().whole()).unwrap();
            let rejected = answer["failedNodes"].as_object().unwrap().len();
            let expected = match (class, gpus.is_on()) {
                ("performance", _) => COUNT / 2,
                (_, true) => COUNT / 3 * 2,
                (_, false) => 0,
            };
            assert_eq!(rejected, expected, "{class}");
            let counted = allocation_counter::measure(|| drop(picture.filter(&body)));
            // Also with a shortlist, which holds the points of all candidates, and with cards, whose reasons are of both kinds. All three
            // with whole objects need one more.
            let most = if is_objects && shortlist.is_on() && gpus.is_on() { 9 } else { 8 };
            assert!(
                counted.count_total <= most,
                "{class} {shortlist:?} {is_objects} {gpus:?}: {}",
                counted.count_total
            );
        }
    }
}
