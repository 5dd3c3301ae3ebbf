//! Rows as the watch brings them, and what becomes of them.

use super::*;
use crate::settings::GpuNodeCores;
use joulie_core::placement::class::WorkloadClass;
use joulie_core::placement::demand::MilliCores;
use joulie_core::placement::gpu::{Link, Packing, Reject};
use serde_json::json;

const NOW: UnixTime = UnixTime::from_micros(1_800_000_000_000_000);

fn row(name: &str, spec: &Value, status: &Value) -> GpuRow {
    let mut whole =
        json!({"nodeName": "n", "uuid": name, "model": "NVIDIA A100-SXM4-40GB", "totalVRAMmb": 40_000});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    GpuRow::read(&json!({"metadata": {"name": name}, "spec": whole, "status": status})).unwrap()
}

fn free() -> Value {
    json!({"allocatedVRAMmb": 0, "phase": "Available"})
}

fn taken(uid: &str, vram: Value, since: &str) -> Value {
    json!({"allocatedVRAMmb": 0, "phase": "Available",
           "assumed": [{"podUID": uid, "podName": "p", "podNamespace": "d", "vramMb": vram, "since": since}]})
}

fn cards(rows: &[GpuRow]) -> Vec<HeldCard> {
    let mut models = Models::default();
    node_cards(rows.iter(), NOW, |name, vendor| models.number(name, vendor))
}

/// 2027-01-15T08:00:00Z is `NOW`.
const JUST: &str = "2027-01-15T07:59:00Z";
const LONG_AGO: &str = "2027-01-15T07:49:00Z";
const FUTURE: &str = "2027-01-15T09:00:00Z";

#[test]
fn a_card_that_a_bind_took_is_taken_until_the_kubelet_says_who_has_it() {
    let of = |status: &Value| cards(&[row("a", &json!({}), status)])[0].card;
    assert_eq!(of(&free()).phase, GpuPhase::Available);
    for since in [JUST, FUTURE, "no time", ""] {
        let card = of(&taken("u", json!(40_000), since));
        assert_eq!((card.phase, card.vram.unwrap().free_mb()), (GpuPhase::Allocated, Some(0)), "{since}");
    }
    // More than the card has, and a part that is not said, is all of it.
    for vram in [json!(90_000), json!(null), json!(-1)] {
        assert_eq!(of(&taken("u", vram, JUST)).vram.unwrap().free_mb(), Some(0));
    }
    assert_eq!(of(&taken("u", json!(40_000), LONG_AGO)).phase, GpuPhase::Available);
    // The kubelet gave the pod another card of the node.
    let held = json!({"allocatedVRAMmb": 40_000, "phase": "Allocated", "podName": "p",
                      "allocations": [{"podUID": "u", "podName": "p", "vramMb": 40_000}]});
    let both = cards(&[row("a", &json!({}), &taken("u", json!(40_000), JUST)), row("b", &json!({}), &held)]);
    let phases: Vec<GpuPhase> = both.iter().map(|card| card.card.phase).collect();
    assert_eq!(phases, [GpuPhase::Available, GpuPhase::Allocated]);
}

#[test]
fn a_pod_whose_card_the_kubelet_gave_to_another_one_will_have_a_free_one() {
    let other = json!({"model": "Tesla T4"});
    let mut given_away = taken("u", json!(40_000), JUST);
    given_away["allocatedVRAMmb"] = json!(40_000);
    given_away["phase"] = json!("Allocated");
    given_away["allocations"] = json!([{"podUID": "v", "podName": "v", "vramMb": 40_000}]);
    let phases =
        |rows: &[GpuRow]| -> Vec<GpuPhase> { cards(rows).iter().map(|one| one.card.phase).collect() };
    let (gone, free_a, free_b) = (GpuPhase::Allocated, GpuPhase::Available, GpuPhase::Available);
    // Two cards and two pods: nothing is free, although one card shows no pod.
    let two = [row("a", &json!({}), &given_away), row("b", &json!({}), &free())];
    assert_eq!(phases(&two), [gone, gone]);
    let last = &cards(&two)[1];
    assert_eq!((last.card.vram.unwrap().free_mb(), last.holders.len()), (Some(0), 1));
    // Of several, one of the same model is not free, and any other one if there is none.
    let three = [row("a", &json!({}), &given_away), row("b", &other, &free()), row("c", &json!({}), &free())];
    assert_eq!(phases(&three), [gone, free_a, gone]);
    assert_eq!(phases(&three[..2]), [gone, gone]);
    // A card that pods share was not given away.
    let shared = json!({"sharing": "mps"});
    assert_eq!(phases(&[row("a", &shared, &given_away), row("b", &json!({}), &free())])[1], free_b);
    // It counts no longer than any card that was taken.
    given_away["assumed"][0]["since"] = json!(LONG_AGO);
    assert_eq!(phases(&[row("a", &json!({}), &given_away), row("b", &json!({}), &free())])[1], free_b);
}

#[test]
fn a_shared_card_gives_what_is_left_of_it() {
    let shared = json!({"sharing": "time-slicing"});
    let card = |status: &Value| cards(&[row("a", &shared, status)])[0].card;
    let some = card(&taken("u", json!(30_000), JUST));
    assert_eq!((some.phase, some.vram.unwrap().free_mb()), (GpuPhase::Available, Some(10_000)));
}

#[test]
fn who_leaves_gives_back_what_it_had() {
    let held = json!({"allocatedVRAMmb": 30_000, "phase": "Available", "allocations": [
        {"podUID": "u", "vramMb": 20_000}, {"podUID": "v", "vramMb": 10_000}]});
    let (u, v, w) = (pod::uid("u"), pod::uid("v"), pod::uid("w"));
    let shared = &cards(&[row("a", &json!({"sharing": "mps"}), &held)])[0];
    for (gone, left) in [(&[u][..], 30_000), (&[v], 20_000), (&[u, v], 40_000), (&[w], 10_000)] {
        assert_eq!(shared.without(gone).vram.unwrap().free_mb(), Some(left));
    }
    let alone = &cards(&[row("a", &json!({}), &held)])[0];
    assert_eq!(alone.without(&[u]).phase, GpuPhase::Allocated);
    assert_eq!(alone.without(&[u, v]).phase, GpuPhase::Available);
    let ill = json!({"allocatedVRAMmb": 30_000, "phase": "Allocated", "health": "Unknown",
                     "podName": "p", "allocations": [{"podUID": "u"}]});
    let ill = &cards(&[row("a", &json!({}), &ill)])[0];
    assert_eq!(
        ill.without(&[u]).phase,
        GpuPhase::Unknown,
        "an unhealthy card is no good without its pod either"
    );
}

fn demand(count: u32) -> PodDemand {
    let gpus = (count > 0).then_some(GpuDemand { count, vendor: GpuVendor::Nvidia });
    PodDemand { class: WorkloadClass::Standard, cpu: MilliCores::new(0), memory_bytes: 0, gpus }
}

const RULE: GpuRule =
    GpuRule { scope: GpuPods::Annotated, packing: Packing::Pack, share: 60, cores: GpuNodeCores::Free };

#[test]
fn a_pod_asks_by_its_annotations_or_by_its_count_as_the_rule_says() {
    let mut models = Models::default();
    let a100 = models.number("NVIDIA A100-SXM4-40GB", Some(GpuVendor::Nvidia));
    let wish = |model: &'static str| Ok(Some(GpuWish { model: Some(model.into()), ..GpuWish::default() }));
    let of = |scope, wish, count| models.asked(&GpuRule { scope, ..RULE }, wish, &demand(count));
    for scope in [GpuPods::Annotated, GpuPods::All] {
        let request = of(scope, wish("a100"), 2).unwrap().unwrap();
        assert_eq!((request.count(), request.models()), (2, Some(ModelSet::EMPTY.with(a100))));
        assert_eq!(of(scope, wish("A10"), 1).unwrap().unwrap().models(), Some(ModelSet::EMPTY));
        assert_eq!(of(scope, wish("A100"), 0), Some(Err(BadWish::NoCount)));
        assert_eq!(of(scope, Err(BadWish::Link), 1), Some(Err(BadWish::Link)));
        assert_eq!(of(scope, Ok(None), 0), None);
        assert_eq!(of(scope, Ok(None), 1).is_some(), scope == GpuPods::All);
    }
    assert_eq!(of(GpuPods::Off, Err(BadWish::Link), 1), None);
    let counted = of(GpuPods::All, Ok(None), 1).unwrap().unwrap();
    assert_eq!((counted.models(), counted.link(), counted.packing()), (None, Link::Preferred, Packing::Pack));
    // Cards of another maker are no nvidia.com/gpu.
    models.number("AMD Instinct MI300X", Some(GpuVendor::Amd));
    let counted =
        models.asked(&GpuRule { scope: GpuPods::All, ..RULE }, Ok(None), &demand(1)).unwrap().unwrap();
    assert_eq!(counted.models(), Some(ModelSet::EMPTY.with(a100)));
}

#[test]
fn a_node_without_cards_and_a_row_that_cannot_be_read_take_no_gpu_pod() {
    let mut registry = Registry::default();
    registry.number("m");
    registry.number("n");
    let read = |object: &Value| {
        let (mut writer, rows) = host_kit::reflect::by_hand::<GpuRow>();
        writer.list([object]);
        writer.apply(&json!({"metadata": {"name": "a", "uid": "1"}, "spec": {"nodeName": 7}}));
        rows
    };
    let object = json!({"metadata": {"name": "a", "uid": "1"}, "status": free(),
                        "spec": {"nodeName": "n", "model": "A100", "totalVRAMmb": 40_000}});
    let ask: GpuAsk = Ok(GpuRequest::new(None, None, 1).unwrap());
    let why = |rows: &host_kit::reflect::Rows<GpuRow>, number| {
        rows.with(|rows| Gpus::of(rows.values(), &registry, NOW)).rejects(&ask, number)
    };
    let (mut writer, rows) = host_kit::reflect::by_hand::<GpuRow>();
    writer.list([&object]);
    assert_eq!(why(&rows, Some(1)), None);
    for nothing in [Some(0), Some(2), Some(usize::MAX), None] {
        assert_eq!(why(&rows, nothing), Some(Rejection::Gpu(Reject::NoCards)), "{nothing:?}");
    }
    assert_eq!(why(&read(&object), Some(1)), Some(Rejection::Gpu(Reject::Unknown { have: 0 })));
}
