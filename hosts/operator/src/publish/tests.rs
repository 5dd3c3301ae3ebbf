use super::*;
use crate::rows::ProfileSeen;
use host_kit::reflect::Row;
use power_units::{Percent, Watts};

fn percent(value: i32) -> Option<Cap> {
    Some(Cap { percent: Some(Percent::from_int(value)), watts: None })
}

fn wanted() -> Wanted {
    Wanted {
        profile: Profile::Eco,
        caps: Caps { cpu: percent(60), gpu: None },
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
    let stands = wanted().over(&there);
    assert_eq!(stands.caps.cpu, Some(Cap { percent: None, watts: Some(Watts::from_int(200)) }));
    assert!(stands.is_in(&there, false, false), "nothing is to be written");
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
    assert!(there.is_a_persons());
    let stands = wanted().over(&there);
    assert_eq!(
        (stands.profile, stands.caps, stands.policy.as_deref()),
        (Profile::Performance, Caps::default(), None)
    );
}

#[test]
fn an_empty_cap_is_no_field_and_a_mirror_says_whether_it_drains() {
    let document =
        state_document(Carrier::Twin, "a", "n.1", &Wanted { caps: Caps::default(), ..wanted() }, None);
    assert_eq!(
        document["spec"],
        json!({"nodeName": "n.1", "profile": "eco", "policy": {"name": "static-partition-v1"}, "scheduling": {"draining": false}})
    );
    assert!(document["metadata"].get("uid").is_none());
}

fn node(labels: Value, managed: Value) -> NodeSeen {
    NodeSeen::read(
        &json!({"metadata": {"name": "n", "uid": "u", "labels": labels, "managedFields": managed}}),
    )
    .unwrap()
}

#[test]
fn c14_labels_are_written_once_and_never_over_a_persons() {
    // Table C14: an unchanged label is no write.
    let key = labels::node::POWER_PROFILE;
    let bare = node(json!({}), json!([]));
    let document = labels_document(&bare, key, Some(Profile::Eco), Some(false)).unwrap();
    assert_eq!(document["metadata"]["labels"], json!({key: "eco", "joulie.io/draining": "false"}));
    let there = node(json!({key: "eco", "joulie.io/draining": "false"}), json!([]));
    assert_eq!(labels_document(&there, key, Some(Profile::Eco), Some(false)), None);
    // What is to stay is applied again beside what changes: an applied label that is left out is taken away.
    let document = labels_document(&there, key, None, Some(true)).unwrap();
    assert_eq!(document["metadata"]["labels"], json!({key: "eco", "joulie.io/draining": "true"}));
    let persons = json!([{"manager": "kubectl-label", "operation": "Update",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:joulie.io/power-profile": {}}}}}]);
    let held = node(json!({key: "performance", "joulie.io/draining": "false"}), persons);
    assert_eq!(labels_document(&held, key, Some(Profile::Eco), Some(false)), None);
    let document = labels_document(&held, key, Some(Profile::Eco), Some(true)).unwrap();
    assert_eq!(document["metadata"]["labels"], json!({"joulie.io/draining": "true"}));
}
