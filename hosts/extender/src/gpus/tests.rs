//! Rows as the watch brings them, and what becomes of them.

use super::*;
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
    node_cards(rows.iter(), &ClaimedCards::default(), NOW, |name, vendor| models.number(name, vendor))
}

/// 2027-01-15T08:00:00Z is `NOW`.
const JUST: &str = "2027-01-15T07:59:00Z";
const LONG_AGO: &str = "2027-01-15T07:49:00Z";
const FUTURE: &str = "2027-01-15T09:00:00Z";

#[test]
fn a_card_that_a_bind_took_is_taken_until_the_kubelet_says_who_has_it() {
    // Fix list article G6.
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
    let (class, cpu) = (WorkloadClass::Standard, MilliCores::new(0));
    PodDemand { class, cpu, memory_bytes: 0, gpus, gpu_quarters: 0 }
}

const RULE: GpuRule = GpuRule { scope: GpuPods::Annotated, share: 60, ..GpuRule::OFF };

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
        rows.with(|rows| Gpus::of(rows.values(), &registry, Arc::default(), NOW)).rejects(&ask, number)
    };
    let (mut writer, rows) = host_kit::reflect::by_hand::<GpuRow>();
    writer.list([&object]);
    assert_eq!(why(&rows, Some(1)), None);
    for nothing in [Some(0), Some(2), Some(usize::MAX), None] {
        assert_eq!(why(&rows, nothing), Some(Rejection::Gpu(Reject::NoCards)), "{nothing:?}");
    }
    assert_eq!(why(&read(&object), Some(1)), Some(Rejection::Gpu(Reject::Unknown { have: 0 })));
}

fn claimed(devices: Value, claims: &[Value]) -> ClaimedCards {
    let slice = json!({"spec": {"driver": "gpu.nvidia.com", "pool": {"name": "n", "generation": 1}, "devices": devices}});
    let slice = joulie_api::dra::DeviceSlice::read(&slice).unwrap();
    let claims: Vec<_> = claims.iter().map(|one| joulie_api::dra::DeviceClaim::read(one).unwrap()).collect();
    ClaimedCards::of([&slice].into_iter(), claims.iter())
}

fn device(name: &str, uuid: &str) -> Value {
    json!({"name": name, "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid}}})
}

fn claim(device: &str, pods: &[&str]) -> Value {
    let pods: Vec<Value> = pods.iter().map(|uid| json!({"resource": "pods", "uid": uid})).collect();
    json!({"metadata": {"uid": "claim"}, "status": {"reservedFor": pods, "allocation": {"devices": {
        "results": [{"driver": "gpu.nvidia.com", "pool": "n", "device": device}]}}}})
}

#[test]
fn a_card_that_a_claim_holds_takes_no_other_pod_until_the_claim_is_gone() {
    let rows = [row("a", &json!({}), &free()), row("b", &json!({}), &free())];
    let of = |all: &ClaimedCards, rows: &[GpuRow]| {
        let mut models = Models::default();
        node_cards(rows.iter(), all, NOW, |name, vendor| models.number(name, vendor))
    };
    let phases = |cards: &[HeldCard]| cards.iter().map(|card| card.card.phase).collect::<Vec<_>>();
    let (gone, open, unknown) = (GpuPhase::Allocated, GpuPhase::Available, GpuPhase::Unknown);
    let both = || json!([device("gpu-0", "a"), device("gpu-1", "b")]);
    let held = of(&claimed(both(), &[claim("gpu-0", &["u"])]), &rows);
    assert_eq!(phases(&held), [gone, open]);
    assert_eq!(held[0].card.vram.unwrap().free_mb(), Some(0));
    assert_eq!(held[0].without(&[pod::uid("u")]).phase, open, "who leaves gives the card back");
    assert_eq!(held[0].without(&[pod::uid("v")]).phase, gone);
    // A claim without pods holds it as well, and no eviction frees it.
    assert_eq!(phases(&of(&claimed(both(), &[claim("gpu-0", &[])]), &rows)), [gone, open]);
    assert_eq!(phases(&of(&claimed(both(), &[]), &rows)), [open, open]);
    // Nobody knows which card this is.
    assert_eq!(phases(&of(&claimed(both(), &[claim("gpu-7", &["u"])]), &rows)), [unknown, unknown]);
    // The card that bind took for another pod is none of the claim's: that pod will have the other one.
    let two = [row("a", &json!({}), &taken("v", json!(40_000), JUST)), row("b", &json!({}), &free())];
    assert_eq!(phases(&of(&claimed(both(), &[claim("gpu-0", &["u"])]), &two)), [gone, gone]);
    // The same pod's: it is one card.
    assert_eq!(phases(&of(&claimed(both(), &[claim("gpu-0", &["v"])]), &two)), [gone, open]);
    // Its kubelet has told it too.
    let told = json!({"allocatedVRAMmb": 40_000, "phase": "Allocated", "podName": "p", "allocations": [{"podUID": "u"}]});
    let one = of(&claimed(both(), &[claim("gpu-0", &["u"])]), &[row("a", &json!({}), &told)]);
    assert_eq!((one[0].holders.len(), one[0].card.phase), (1, gone));
}

#[test]
fn what_the_driver_publishes_of_a_card_is_the_truth() {
    let mut said = device("gpu-0", "a");
    said["attributes"]["productName"] = json!({"string": "NVIDIA H100 80GB HBM3"});
    said["capacity"] = json!({"memory": {"value": "81559Mi"}});
    let rows = [row("a", &json!({}), &free())];
    let mut models = Models::default();
    let h100 = models.number("NVIDIA H100 80GB HBM3", None);
    let all = claimed(json!([said.clone()]), &[]);
    let cards = node_cards(rows.iter(), &all, NOW, |name, vendor| models.number(name, vendor));
    assert_eq!((cards[0].card.model, cards[0].card.vram.unwrap().total_mb()), (Some(h100), 81_559));
    // A taint keeps pods off.
    said["taints"] = json!([{"key": "ill", "effect": "NoExecute"}]);
    let all = claimed(json!([said]), &[]);
    let cards = node_cards(rows.iter(), &all, NOW, |name, vendor| models.number(name, vendor));
    assert_eq!(cards[0].card.phase, GpuPhase::Unknown);
}
