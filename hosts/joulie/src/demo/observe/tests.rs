use super::*;
use crate::demo::state::Standing;
use host_kit::reflect::Row;
use serde_json::{Value, json};

const fn watts(value: i32) -> Option<Watts> {
    Some(Watts::from_int(value))
}

fn object(kind: &str, spec: Value, status: Value) -> Value {
    json!({"apiVersion": "joulie.io/v1alpha1", "kind": kind, "metadata": {"name": "n", "generation": 3},
           "spec": spec, "status": status})
}

fn machine(labels: Value) -> Machine {
    let mut all = json!({"joulie.io/hw.cpu-model": "AMD_EPYC_9654", "joulie.io/hw.cpu-sockets": "2"});
    all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    Machine::read(&json!({"metadata": {"name": "n", "labels": all}, "status": {"conditions": conditions}}))
        .unwrap()
}

fn hardware() -> Hardware {
    let range = json!({"type": "package", "minWattsPerSocket": 126, "maxWattsPerSocket": 360});
    let power = json!({"cpuWatts": 402.5, "sampledAt": "2026-01-01T00:00:00Z"});
    let status = json!({"cpu": {"sockets": 2, "capRange": range}, "power": power});
    Hardware::read(&object("NodeHardware", json!({"nodeName": "n"}), status)).unwrap()
}

fn profile(cpu: Value, control: Value) -> Profile {
    let spec = json!({"nodeName": "n", "profile": "eco", "cpu": cpu, "policy": {"name": "queue-aware-v1"}});
    Profile::read(&object("NodePowerProfile", spec, json!({"control": {"cpu": control}}))).unwrap()
}

fn seen(profile: &Profile) -> Device {
    assemble(&machine(json!({"joulie.io/power-profile": "eco"})), Some(profile), None, Some(&hardware())).cpu
}

#[test]
fn a_percentage_is_shown_as_the_watts_that_it_means() {
    // 60 % of 360 W, rounded down like every limit.
    let device = seen(&profile(json!({"packagePowerCapPctOfMax": 60}), json!({})));
    assert_eq!(format!("{:.0}", device.asked.unwrap()), "216");
    assert_eq!((device.count, device.in_force, device.standing), (2, None, Standing::Asked));
}

#[test]
fn an_outcome_of_an_older_wish_is_no_answer_to_this_one() {
    let control = |generation: i64| json!({"result": "applied", "observedGeneration": generation, "requestedWatts": 216, "capWatts": 216});
    let now = seen(&profile(json!({"packagePowerCapPctOfMax": 60}), control(3)));
    assert_eq!((now.in_force, now.standing), (watts(216), Standing::InForce));
    let old = seen(&profile(json!({"packagePowerCapWatts": 200}), control(2)));
    assert_eq!((old.asked, old.in_force, old.standing), (watts(200), watts(216), Standing::Asked));
}

#[test]
fn what_was_refused_says_why_and_what_was_clamped_says_both() {
    let control =
        json!({"result": "blocked", "observedGeneration": 3, "message": "locked\u{1b}[2J by firmware"});
    let refused = seen(&profile(json!({"packagePowerCapWatts": 216}), control));
    assert_eq!(refused.standing, Standing::Refused("locked?[2J by firmware".to_owned()));
    let control =
        json!({"result": "applied", "observedGeneration": 3, "requestedWatts": 100, "capWatts": 126});
    let clamped = seen(&profile(json!({"packagePowerCapWatts": 100}), control));
    assert_eq!(
        (clamped.asked, clamped.in_force, clamped.standing),
        (watts(100), watts(126), Standing::Clamped)
    );
}

#[test]
fn a_node_is_what_its_labels_and_its_objects_say() {
    let labels = json!({"joulie.io/power-profile": "eco", "joulie.io/reserved": "True"});
    let spec = json!({"nodeName": "n", "profile": "eco"});
    let stale = json!({"type": "TelemetryFresh", "status": "False", "message": "no sample for 9 s"});
    let status = json!({"schedulableClass": "draining", "conditions": [stale]});
    let twin = Twin::read(&object("NodeTwin", spec, status)).unwrap();
    let node = assemble(&machine(labels), None, Some(&twin), Some(&hardware()));
    assert_eq!(node.kind, "2 EPYC 9654");
    assert_eq!((node.offer, node.reserved, node.ready), (Offer::Draining, true, true));
    assert_eq!(node.telemetry, Telemetry::Stale("no sample for 9 s".to_owned()));
    assert_eq!(node.most, watts(720));
    assert_eq!(node.cpu, Device { count: 2, ..Device::default() });
    assert_eq!(assemble(&machine(json!({})), None, None, None).offer, Offer::Unknown);
}

#[test]
fn a_node_whose_gpus_say_nothing_is_not_known_as_a_whole() {
    let with = |gpu: Value, power: Value| {
        let status = json!({"cpu": {"sockets": 2}, "gpu": gpu, "power": power});
        Hardware::read(&object("NodeHardware", json!({"nodeName": "n"}), status)).unwrap().power
    };
    assert_eq!(with(json!({}), json!({"cpuWatts": 300})), watts(300));
    assert_eq!(with(json!({"count": 4}), json!({"cpuWatts": 300})), None);
    assert_eq!(with(json!({"count": 4}), json!({"cpuWatts": 300, "gpuWatts": 900})), watts(1200));
    assert_eq!(with(json!({"count": 4}), json!({"cpuWatts": 300, "nodeWatts": 1500})), watts(1500));
    let all = json!({"cpuWatts": 300, "gpuWatts": 900, "nodeWatts": 1450});
    assert_eq!(with(json!({"count": 4}), all), watts(1200), "a limit counts nothing else of it");
    assert_eq!(with(json!({}), json!({})), None);
}

#[test]
fn a_binding_is_new_once_and_forgotten_with_its_pod() {
    let mut bindings = Bindings::default();
    let mut look = |pods: &[&str]| {
        let new: Vec<bool> = pods.iter().map(|pod| bindings.is_new((*pod).to_owned())).collect();
        bindings.looked();
        (new, bindings.last.len())
    };
    assert_eq!(look(&["a", "b"]), (vec![true, true], 2));
    assert_eq!(look(&["b", "c"]), (vec![false, true], 2));
    assert_eq!(look(&[]), (vec![], 0), "a run of days does not grow");
}
