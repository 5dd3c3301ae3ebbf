use super::*;
use crate::front::inputs::GoalOf;
use crate::front::rows::{NodeRow, ProfileRow, TwinRow};
use host_kit::config::parse::selector;
use host_kit::reflect::Row;
use power_units::Watts;
use serde_json::{Value, json};
use std::sync::Arc;

fn profile(name: &str, watts: Value) -> (String, GoalOf) {
    let object = json!({
        "apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile",
        "metadata": {"name": name, "uid": name, "generation": 2},
        "spec": {"nodeName": "node-a", "profile": "eco", "cpu": {"packagePowerCapWatts": watts}},
    });
    (name.to_owned(), GoalOf::Profile(Arc::new(ProfileRow::read(&object).unwrap())))
}

fn inputs(goals: Vec<(String, GoalOf)>) -> Inputs {
    let node = json!({"metadata": {"name": "node-a", "labels": {"joulie.io/managed": "true"}}});
    let node = Some(Arc::new(NodeRow::read(&node).unwrap()));
    Inputs { synced: true, node, goals, ..Inputs::default() }
}

fn of(inputs: &Inputs, before: &Wanted) -> Wanted {
    wanted(inputs, &selector("joulie.io/managed=true").unwrap(), before)
}

const NEVER: Wanted = Wanted::Unknown(Unknown::NotSynced);

fn watts(wanted: &Wanted) -> Option<Watts> {
    wanted.goal().and_then(|goal| goal.cpu.watts)
}

#[test]
fn nothing_changes_until_everything_has_been_read() {
    let good = of(&inputs(vec![profile("a", json!(120))]), &NEVER);
    assert_eq!(watts(&good), Some(Watts::from_int(120)));
    let not_synced = Inputs { synced: false, ..inputs(Vec::new()) };
    assert_eq!(of(&not_synced, &good), good);
    assert_eq!(of(&not_synced, &NEVER), NEVER);
    assert_eq!(NEVER.desire(true, true), Desire::UNKNOWN);
}

#[test]
fn an_object_that_is_gone_and_a_node_that_is_deselected_are_known_to_want_nothing() {
    // Fix list agent S6.
    let gone = of(&inputs(Vec::new()), &NEVER);
    assert_eq!((&gone, gone.desire(true, true)), (&Wanted::Nothing(Nothing::NoObject), Desire::GONE));
    let mut other = inputs(vec![profile("a", json!(120))]);
    other.node = Some(Arc::new(NodeRow::read(&json!({"metadata": {"name": "node-a"}})).unwrap()));
    assert_eq!(of(&other, &NEVER), Wanted::Nothing(Nothing::Deselected));
    // A missing Node object says nothing about the node: a kubelet may be registering it again.
    other.node = None;
    assert_eq!(of(&other, &NEVER), Wanted::Unknown(Unknown::NoNode));
}

#[test]
fn a_malformed_object_is_its_last_good_state_or_nothing_that_anybody_knows() {
    let good = of(&inputs(vec![profile("a", json!(120))]), &NEVER);
    let bad = inputs(vec![profile("a", json!(0.5))]);
    let kept = of(&bad, &good);
    assert_eq!(watts(&kept), Some(Watts::from_int(120)));
    let why = kept.goal().and_then(|goal| goal.malformed.clone()).unwrap();
    assert!(why.contains("spec.cpu.packagePowerCapWatts"), "{why}");
    assert_eq!(of(&bad, &kept), kept, "and again");
    assert!(matches!(of(&bad, &NEVER), Wanted::Unknown(Unknown::Malformed { .. })));
    // The state of another object does not count.
    let other = of(&inputs(vec![profile("b", json!(100))]), &NEVER);
    assert!(matches!(of(&bad, &other), Wanted::Unknown(Unknown::Malformed { .. })));
}

#[test]
fn of_several_objects_the_first_by_name_counts_and_the_others_are_named() {
    // Fix list agent K5.
    let several = inputs(vec![profile("a", json!(120)), profile("b", json!(100))]);
    let found = of(&several, &NEVER);
    assert_eq!(watts(&found), Some(Watts::from_int(120)));
    assert_eq!(found.goal().unwrap().rivals, ["b"]);
}

#[test]
fn caps_are_read_whole_or_not_from_both_kinds() {
    // Agent table, rows 5 and 25.
    for cap in [json!(120), json!(120.0)] {
        assert_eq!(watts(&of(&inputs(vec![profile("a", cap)]), &NEVER)), Some(Watts::from_int(120)));
    }
    let twin = json!({
        "apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin", "metadata": {"name": "t", "uid": "t"},
        "spec": {"nodeName": "node-a", "profile": "eco", "cpu": {"packagePowerCapWatts": 120}},
        "status": {"powerMeasurement": "a mess"},
    });
    let twin = GoalOf::Twin(Arc::new(TwinRow::read(&twin).unwrap()));
    assert_eq!(watts(&of(&inputs(vec![("t".to_owned(), twin)]), &NEVER)), Some(Watts::from_int(120)));
}

#[test]
fn a_part_that_is_left_alone_is_told_nothing() {
    let wanted = of(&inputs(vec![profile("a", json!(120))]), &NEVER);
    let desire = wanted.desire(false, true);
    assert_eq!(desire, Desire { gpu: DesiredCap::Cap(CapIntent::NONE), ..Desire::UNKNOWN });
}
