use super::rig::{carried, node, state};
use super::*;
use crate::intent::DeviceCap;
use power_units::Percent;

fn cpu(watts: i32) -> Option<DeviceCap> {
    Some(DeviceCap { percent: None, watts: Some(Watts::from_int(watts)) })
}

fn percent(value: i32) -> Option<DeviceCap> {
    Some(DeviceCap { percent: Some(Percent::from_int(value)), watts: None })
}

fn wanted() -> DesiredState {
    let policy = Some("static-partition-v1".into());
    DesiredState { policy, ..state(Profile::Eco, NodeCaps { cpu: percent(60), gpu: None }) }
}

#[test]
fn a_cap_that_a_person_set_stands_and_is_worth_no_write() {
    let persons = NodeCaps { cpu: cpu(200), gpu: None };
    let theirs = Theirs { cpu: true, ..Theirs::default() };
    let there = Carried { theirs, ..carried(DesiredState { caps: persons, ..wanted() }) };
    assert_eq!(wanted().over(&there).caps.cpu, cpu(200));
    let published = Published {
        profile: Some(there.clone()),
        twin: Some(carried(there.desired)),
        ..Published::default()
    };
    assert_eq!(published.differs(&wanted(), false), None, "nothing is to be written");
}

#[test]
fn an_object_that_a_person_made_is_theirs_as_a_whole() {
    let there = Carried { persons: true, ..carried(state(Profile::Performance, NodeCaps::default())) };
    let stands = wanted().over(&there);
    assert_eq!(
        (stands.profile, stands.caps, stands.policy),
        (Profile::Performance, NodeCaps::default(), None)
    );
}

#[test]
fn each_part_of_a_desired_state_is_its_owners() {
    // Field by field: the owner of one field does not own the others.
    let caps = NodeCaps { cpu: cpu(200), gpu: cpu(300) };
    let there = DesiredState { draining: true, policy: None, ..state(Profile::Performance, caps) };
    let over = |theirs| wanted().over(&Carried { theirs, ..carried(there.clone()) });
    let nothing = Theirs::default();
    assert_eq!(over(nothing), wanted());
    let of_profile = over(Theirs { profile: true, ..nothing });
    assert_eq!(of_profile, DesiredState { profile: Profile::Performance, ..wanted() });
    let of_cpu = over(Theirs { cpu: true, ..nothing });
    assert_eq!(of_cpu, DesiredState { caps: NodeCaps { cpu: cpu(200), gpu: None }, ..wanted() });
    let of_gpu = over(Theirs { gpu: true, ..nothing });
    assert_eq!(of_gpu, DesiredState { caps: NodeCaps { gpu: cpu(300), ..wanted().caps }, ..wanted() });
    assert_eq!(over(Theirs { policy: true, ..nothing }), DesiredState { policy: None, ..wanted() });
    assert_eq!(over(Theirs { scheduling: true, ..nothing }), DesiredState { draining: true, ..wanted() });
}

#[test]
fn a_mirror_that_cannot_be_read_is_not_written_over() {
    let published = Published { profile: Some(carried(wanted())), ..Published::default() };
    let mirror = Publish { desired: wanted(), profile: false, twin: true };
    assert_eq!(published.differs(&wanted(), false), Some(mirror));
    assert_eq!(Published { twin_unread: true, ..published }.differs(&wanted(), false), None);
}

#[test]
fn a_receipt_of_another_boot_or_another_node_is_none() {
    let receipt =
        GrantReceipt { serial: 7, holds: Watts::from_int(290), floor: Watts::from_int(200), yields: None };
    let signed = |boot: &str, uid: &str| {
        let mut node = node("a", &HardwareFacts::default());
        (node.boot, node.uid) = (boot.to_owned(), uid.to_owned());
        let signed = Signed { receipt, boot: "b1".to_owned(), node_uid: "u1".to_owned() };
        node.granted.signed = Some(signed);
        node.receipt()
    };
    assert_eq!(signed("b1", "u1"), Some(receipt));
    assert_eq!(signed("b2", "u1"), None, "it has rebooted");
    assert_eq!(signed("b1", "u2"), None, "another machine under the same name");
    assert_eq!(signed("", "u1"), None, "nobody says in which boot it is");
}

#[test]
fn a_receipt_of_another_boot_is_none_either_once_the_node_is_deleted() {
    let receipt =
        GrantReceipt { serial: 7, holds: Watts::from_int(290), floor: Watts::from_int(200), yields: None };
    let last_seen = |boot: &str, uid: &str| {
        let mut node = node("a", &HardwareFacts::default());
        (node.boot, node.uid, node.presence) = (boot.to_owned(), uid.to_owned(), Presence::Gone);
        let signed = Signed { receipt, boot: "b1".to_owned(), node_uid: "u1".to_owned() };
        node.granted.signed = Some(signed);
        node.receipt()
    };
    assert_eq!(last_seen("b1", "u1"), Some(receipt), "the machine runs on under its agent");
    assert_eq!(last_seen("b2", "u1"), None, "it had rebooted");
    assert_eq!(last_seen("b1", "u2"), None, "it was another machine under the same name");
    assert_eq!(last_seen("", ""), Some(receipt), "nobody here saw it, so its agent's word stands");
}

#[test]
fn the_next_grant_is_later_than_the_one_that_stands_and_than_the_one_that_was_followed() {
    let next = |stands: Option<u64>, followed: Option<u64>| {
        let none = Watts::ZERO;
        let grant = stands.map(|serial| Grant { serial, watts: none, ceiling: none });
        let receipt = |serial| GrantReceipt { serial, holds: none, floor: none, yields: None };
        let signed = |serial| Signed { receipt: receipt(serial), boot: "b".into(), node_uid: "u".into() };
        Granted { grant, signed: followed.map(signed), ..Granted::default() }.next_serial()
    };
    assert_eq!(next(None, None), 1);
    assert_eq!((next(Some(7), None), next(Some(7), Some(6))), (8, 8));
    assert_eq!(next(Some(3), Some(9)), 10, "the API server was brought back to grant 3");
    // An agent, or another holder of its token, cannot use up all serials.
    assert_eq!(next(Some(3), Some(u64::MAX)), 4);
}
