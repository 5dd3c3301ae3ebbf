use super::*;
use crate::rows::ProfileSeen;
use host_kit::reflect::Row;
use planner::intent::NodeCaps;
use planner::node::Label;
use power_units::{Percent, Watts};

fn percent(value: i32) -> Option<DeviceCap> {
    Some(DeviceCap { percent: Some(Percent::from_int(value)), watts: None })
}

fn wanted() -> DesiredState {
    DesiredState {
        profile: Profile::Eco,
        caps: NodeCaps { cpu: percent(60), gpu: None },
        draining: false,
        policy: Some("static-partition-v1".into()),
    }
}

fn state(spec: Value, managers: &[(&str, &str, Value)]) -> StateSeen {
    let fields: Vec<Value> = managers
        .iter()
        .map(|(who, how, spec)| json!({"manager": who, "operation": how, "fieldsV1": {"f:spec": spec}}))
        .collect();
    let object = json!({"metadata": {"name": "a", "uid": "u", "managedFields": fields}, "spec": spec});
    ProfileSeen::read(&object).unwrap().state
}

#[test]
fn a_cap_that_a_person_set_stands_and_is_left_out_of_what_is_applied() {
    let there = state(
        json!({"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapWatts": 200}, "policy": {"name": "static-partition-v1"}}),
        &[
            ("joulie-operator", "Apply", json!({"f:profile": {}, "f:policy": {}})),
            ("kubectl-edit", "Update", json!({"f:cpu": {}})),
        ],
    );
    let stands = wanted().over(&there.carried);
    assert_eq!(stands.caps.cpu, Some(DeviceCap { percent: None, watts: Some(Watts::from_int(200)) }));
    let document = state_document(Carrier::Profile, "a", "a", &stands, Some(&there));
    assert_eq!(
        document["spec"],
        json!({"nodeName": "a", "profile": "eco", "policy": {"name": "static-partition-v1"}})
    );
    assert_eq!(document["metadata"]["uid"], "u");
}

#[test]
fn an_object_that_a_person_made_is_theirs_as_a_whole() {
    let there = state(
        json!({"nodeName": "a", "profile": "performance"}),
        &[("kubectl-create", "Update", json!({"f:profile": {}, "f:nodeName": {}}))],
    );
    assert!(there.carried.persons);
    let stands = wanted().over(&there.carried);
    assert_eq!(
        (stands.profile, stands.caps, stands.policy.as_deref()),
        (Profile::Performance, NodeCaps::default(), None)
    );
}

#[test]
fn an_empty_cap_is_no_field_and_a_mirror_says_whether_it_drains() {
    let document = state_document(
        Carrier::Twin,
        "a",
        "n.1",
        &DesiredState { caps: NodeCaps::default(), ..wanted() },
        None,
    );
    assert_eq!(
        document["spec"],
        json!({"nodeName": "n.1", "profile": "eco", "policy": {"name": "static-partition-v1"}, "scheduling": {"draining": false}})
    );
    assert!(document["metadata"].get("uid").is_none());
}

fn node(profile: Label, draining: Label) -> Node {
    let seen = json!({"metadata": {"name": "n", "uid": "u"}});
    let mut site = crate::site::tests::of_one_node(&seen);
    let mut node = site.cluster.nodes.remove(0);
    (node.labels.profile, node.labels.draining) = (profile, draining);
    node
}

fn ours(text: &str) -> Label {
    Label { text: Some(text.into()).filter(|text: &std::sync::Arc<str>| !text.is_empty()), theirs: false }
}

#[test]
fn c14_labels_are_never_written_over_a_persons() {
    let key = labels::node::POWER_PROFILE;
    let said = |node: &Node, profile, draining| {
        let document = labels_document(node, key, profile, draining);
        assert_eq!(document["metadata"]["uid"], "u", "a node that is gone is not made anew by its labels");
        document["metadata"]["labels"].clone()
    };
    let bare = node(ours(""), ours(""));
    let both = json!({key: "eco", "joulie.io/draining": "false"});
    assert_eq!(said(&bare, Some(Profile::Eco), Some(false)), both);
    // Labels that stay are applied again beside those that change: leaving out an applied label removes it.
    let there = node(ours("eco"), ours("false"));
    assert_eq!(said(&there, None, Some(true)), json!({key: "eco", "joulie.io/draining": "true"}));
    let held = node(Label { theirs: true, ..ours("performance") }, ours("false"));
    assert_eq!(said(&held, Some(Profile::Eco), Some(true)), json!({"joulie.io/draining": "true"}));
}

/// A node that has booted while it was closed is switched off all the same: before, its mark named the boot of before, so that it
/// counted as one that had been off and was back.
#[test]
fn the_mark_of_a_node_that_is_stopped_names_the_boot_in_which_that_begins() {
    let now: Timestamp = "2027-01-15T08:00:00Z".parse().unwrap();
    let marked = |mark: Option<(SleepPhase, &str)>, boot: &str| {
        let text = mark.map(|(phase, boot)| mark_text(phase, now, boot));
        let meta =
            json!({"name": "a", "resourceVersion": "7", "annotations": {"joulie.io/sleep-state": text}});
        NodeSeen::read(&json!({"metadata": meta, "status": {"nodeInfo": {"bootID": boot}}})).unwrap()
    };
    let boot_of = |node: NodeSeen, phase: SleepPhase| {
        let document = sleep_document(&node, Some(phase), now);
        let text = document["metadata"]["annotations"]["joulie.io/sleep-state"].as_str().unwrap().to_owned();
        text.split(' ').nth(2).unwrap_or_default().to_owned()
    };
    let closed = |boot| marked(Some((SleepPhase::Closing, "b1")), boot);
    assert_eq!(boot_of(marked(None, "b1"), SleepPhase::Closing), "b1");
    assert_eq!(boot_of(closed("b1"), SleepPhase::Stopping), "b1");
    assert_eq!(boot_of(closed("b2"), SleepPhase::Stopping), "b2");
    assert_eq!(boot_of(closed(""), SleepPhase::Stopping), "b1", "a boot that is not known is no other boot");
    for (before, then) in [
        (SleepPhase::Stopping, SleepPhase::Asleep),
        (SleepPhase::Asleep, SleepPhase::Waking),
        (SleepPhase::Waking, SleepPhase::Starting),
        (SleepPhase::Starting, SleepPhase::Left),
    ] {
        assert_eq!(boot_of(marked(Some((before, "b1")), "b2"), then), "b1", "{then:?} compares with it");
    }
    let open = sleep_document(&closed("b2"), None, now);
    assert_eq!(open["metadata"]["annotations"]["joulie.io/sleep-state"], json!(null));
}
