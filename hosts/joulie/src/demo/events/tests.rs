use super::*;
use crate::demo::state::{Advice, Node, Telemetry};

fn node(offer: Offer, asked: Option<i32>, is: Option<i32>) -> Node {
    let mut cpu = Device {
        count: 2,
        asked: asked.map(Watts::from_int),
        in_force: is.map(Watts::from_int),
        ..Device::default()
    };
    cpu.standing = standing(&cpu, true, None);
    Node { offer, cpu, ready: true, telemetry: Telemetry::Fresh, ..Node::default() }
}

fn at(millis: u64, node: Node) -> State {
    State {
        at: Duration::from_millis(millis),
        nodes: BTreeMap::from([("node-7".to_owned(), node)]),
        ..State::default()
    }
}

fn told(events: &mut EventLog, state: &State) -> Vec<String> {
    events.go_on(state).into_iter().map(|line| line.text).collect()
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_change_is_told_once_with_what_was_asked_and_what_was_read_back() {
    let mut events = EventLog::default();
    assert_eq!(told(&mut events, &at(0, node(Offer::Unknown, None, None))), NOTHING);
    assert_eq!(told(&mut events, &at(100, node(Offer::Eco, Some(180), None))), NOTHING);
    let done = at(600, node(Offer::Eco, Some(180), Some(180)));
    assert_eq!(told(&mut events, &done), ["node-7 became eco: cap 180 W asked, 180 W read back"]);
    assert_eq!(told(&mut events, &done), NOTHING);
    assert_eq!(
        told(&mut events, &at(900, node(Offer::Eco, Some(200), Some(200)))),
        ["node-7 has another cap: cap 200 W asked, 200 W read back"]
    );
}

#[test]
fn an_outcome_that_does_not_come_is_told_as_missing_and_again_when_it_comes() {
    let mut events = EventLog::default();
    told(&mut events, &at(0, node(Offer::Eco, Some(180), None)));
    assert_eq!(told(&mut events, &at(2900, node(Offer::Eco, Some(180), None))), NOTHING);
    assert_eq!(
        told(&mut events, &at(3000, node(Offer::Eco, Some(180), None))),
        ["node-7 became eco: cap 180 W asked of each package, nothing read back yet"]
    );
    assert_eq!(told(&mut events, &at(4000, node(Offer::Eco, Some(180), None))), NOTHING);
    assert_eq!(
        told(&mut events, &at(5000, node(Offer::Eco, Some(180), Some(180)))),
        ["node-7 became eco: cap 180 W asked, 180 W read back after 5.0 s"]
    );
}

#[test]
fn what_a_device_takes_instead_is_said() {
    let mut events = EventLog::default();
    let lines = events.go_on(&at(0, node(Offer::Eco, Some(100), Some(126))));
    assert_eq!(lines[0].tone, Tone::Warn);
    assert_eq!(
        lines[0].text,
        "node-7 became eco: cap 100 W asked, 126 W read back, which is what the package takes"
    );
}

#[test]
fn a_cap_that_is_refused_says_why_and_a_cap_that_stayed_is_no_success() {
    let mut refused = node(Offer::Eco, Some(180), None);
    refused.cpu.standing = standing(&refused.cpu, true, Some("the firmware has locked this limit"));
    let mut events = EventLog::default();
    told(&mut events, &at(0, refused.clone()));
    assert_eq!(
        told(&mut events, &at(3000, refused)),
        [
            "node-7 became eco: cap 180 W asked of each package, not in force: the firmware has locked this limit"
        ]
    );
    let mut events = EventLog::default();
    told(&mut events, &at(0, node(Offer::Performance, None, Some(180))));
    assert_eq!(
        told(&mut events, &at(3000, node(Offer::Performance, None, Some(180)))),
        ["node-7 became performance: its old caps are still in force"]
    );
}

#[test]
fn draining_is_told_with_its_pods_and_its_end() {
    let mut events = EventLog::default();
    told(&mut events, &at(0, node(Offer::Performance, Some(360), Some(360))));
    let draining = Node { performance: 2, ..node(Offer::Draining, Some(216), Some(216)) };
    assert_eq!(
        told(&mut events, &at(100, draining)),
        ["node-7 drains (2 performance pods still run there): cap 216 W asked, 216 W read back"]
    );
    assert_eq!(
        told(&mut events, &at(200, node(Offer::Eco, Some(216), Some(216)))),
        ["node-7 is eco now: its last performance pod has ended"]
    );
}

#[test]
fn a_blind_node_is_told_once_and_so_is_its_return() {
    let mut events = EventLog::default();
    told(&mut events, &at(0, node(Offer::Eco, Some(180), Some(180))));
    let mut blind = node(Offer::Eco, Some(180), Some(180));
    blind.telemetry = Telemetry::Stale("no sample for 5.0 s".to_owned());
    assert_eq!(told(&mut events, &at(1, blind.clone())), ["node-7 cannot be measured: no sample for 5.0 s"]);
    assert_eq!(told(&mut events, &at(2, blind)), NOTHING);
    let seeing = at(3, node(Offer::Eco, Some(180), Some(180)));
    assert_eq!(told(&mut events, &seeing), ["node-7 is measured again"]);
}

#[test]
fn a_node_that_has_only_begun_to_be_measured_is_not_blind_and_one_not_asked_yet_is_not_free() {
    let mut events = EventLog::default();
    let mut fresh = node(Offer::Eco, None, None);
    fresh.telemetry = Telemetry::Stale("no sample".to_owned());
    assert_eq!(told(&mut events, &at(0, fresh.clone())), NOTHING);
    assert_eq!(told(&mut events, &at(999, fresh.clone())), NOTHING);
    assert_eq!(
        told(&mut events, &at(1000, fresh.clone())),
        ["node-7 became eco: no cap, its own limits are in force"]
    );
    assert_eq!(told(&mut events, &at(4999, fresh.clone())), NOTHING);
    assert_eq!(told(&mut events, &at(5000, fresh)), ["node-7 cannot be measured: no sample"]);
}

#[test]
fn a_person_who_takes_a_node_out_is_told_of() {
    let mut events = EventLog::default();
    told(&mut events, &at(0, node(Offer::Eco, Some(180), Some(180))));
    let reserved = Node { reserved: true, ..node(Offer::Eco, Some(180), Some(180)) };
    assert_eq!(
        told(&mut events, &at(1, reserved)),
        ["node-7 is reserved by a person: out of the plan, its caps are released"]
    );
    assert_eq!(
        told(&mut events, &State { at: Duration::from_secs(2), ..State::default() }),
        ["node-7 is gone"]
    );
}

#[test]
fn the_silence_of_the_planner_and_its_end_are_told() {
    let mut events = EventLog::default();
    let with = |at: u64, age: u64, leader: &str| State {
        at: Duration::from_secs(at),
        plan: Plan { leader: Some(leader.to_owned()), age: Some(Duration::from_secs(age)), policy: None },
        ..State::default()
    };
    assert_eq!(told(&mut events, &with(1, 0, "a")), ["a leads the operators"]);
    assert_eq!(told(&mut events, &with(7, 6, "a")), NOTHING);
    assert_eq!(
        told(&mut events, &with(8, 7, "a")),
        ["nobody has planned for 7.0 s: caps and labels stay as they are"]
    );
    assert_eq!(
        told(&mut events, &with(12, 0, "b")),
        ["somebody plans again, after 11.0 s", "b leads the operators"]
    );
}

#[test]
fn a_budget_that_is_crossed_is_told_at_both_ends() {
    let mut events = EventLog::default();
    let drawing = |watts: i32| State {
        budget: Some(Watts::from_int(4000)),
        nodes: BTreeMap::from([(
            "n".to_owned(),
            Node { power: Some(Watts::from_int(watts)), ready: true, ..Node::default() },
        )]),
        ..State::default()
    };
    assert_eq!(told(&mut events, &drawing(3900)), NOTHING);
    assert_eq!(told(&mut events, &drawing(4100)), ["the site draws 4100 W of a budget of 4000 W"]);
    assert_eq!(told(&mut events, &drawing(4200)), NOTHING);
    assert_eq!(told(&mut events, &drawing(3000)), ["the site is inside its budget again: 3000 W of 4000 W"]);
}

#[test]
fn an_extender_that_is_gone_is_told_and_so_is_its_return() {
    let mut events = EventLog::default();
    let with =
        |silent: Option<&str>| State { extender_silent: silent.map(str::to_owned), ..State::default() };
    assert_eq!(told(&mut events, &with(None)), NOTHING);
    assert_eq!(
        told(&mut events, &with(Some("connection refused"))),
        ["the extender does not answer, pods wait: connection refused"]
    );
    assert_eq!(told(&mut events, &with(Some("connection refused"))), NOTHING);
    assert_eq!(told(&mut events, &with(None)), ["the extender answers again"]);
}

#[test]
fn many_other_caps_at_once_are_one_line() {
    let mut events = EventLog::default();
    let all = |millis, cap| State {
        at: Duration::from_millis(millis),
        nodes: (1..=3).map(|n| (format!("node-{n}"), node(Offer::Eco, Some(cap), Some(cap)))).collect(),
        ..State::default()
    };
    assert_eq!(told(&mut events, &all(0, 180)).len(), 3, "what became eco is told one by one");
    assert_eq!(
        told(&mut events, &all(100, 200)),
        [
            "3 nodes have other caps, all read back as asked or granted; node-1 has another cap: cap 200 W asked, 200 W read back"
        ]
    );
}

#[test]
fn what_a_grant_holds_is_told_as_such_and_not_as_what_the_device_takes() {
    let mut held = node(Offer::Performance, Some(360), Some(250));
    held.hold_by(Some(Watts::from_int(500)));
    assert_eq!(held.cpu.standing, Standing::Granted);
    let mut events = EventLog::default();
    let lines = events.go_on(&at(0, held));
    assert_eq!(
        (lines[0].tone, lines[0].text.as_str()),
        (
            Tone::Good,
            "node-7 became performance: cap 360 W asked, 250 W read back: held by its grant of 500 W"
        )
    );
    // More than was asked is what the device takes, whatever the grant.
    let mut clamped = node(Offer::Eco, Some(100), Some(126));
    clamped.hold_by(Some(Watts::from_int(500)));
    assert_eq!(clamped.cpu.standing, Standing::Clamped);
}

#[test]
fn a_hot_node_is_told_once_with_a_pod_that_would_better_run_elsewhere() {
    let advice = |pods, first: Option<(&str, Option<&str>)>| {
        let first = first.map(|(pod, to)| (pod.to_owned(), to.map(str::to_owned)));
        let mut hot = node(Offer::Performance, None, None);
        hot.advice = Some(Advice { why: "83 % of its cooling is used".to_owned(), pods, first });
        hot
    };
    let mut events = EventLog::default();
    let cool = node(Offer::Performance, None, None);
    told(&mut events, &at(0, cool.clone()));
    let hot = advice(3, Some(("web-0", Some("node-2"))));
    assert_eq!(
        told(&mut events, &at(500, hot)),
        ["node-7: 83 % of its cooling is used; web-0 would better run on node-2, and 2 more"]
    );
    assert_eq!(told(&mut events, &at(600, advice(1, Some(("web-0", None))))), NOTHING);
    assert_eq!(told(&mut events, &at(700, cool)), ["node-7: no pod is recommended to leave any more"]);
    assert_eq!(
        told(&mut events, &at(800, advice(0, None))),
        ["node-7: 83 % of its cooling is used; none of its pods may be moved"]
    );
}

#[test]
fn what_is_known_of_a_workload_is_told_once_and_again_when_it_changes() {
    let mut events = EventLog::default();
    let of = |level: &str| {
        let workload = Workload { intensity: level.to_owned(), sensitivity: "medium".to_owned() };
        let workloads = BTreeMap::from([("Deployment shop/web".to_owned(), workload)]);
        State { workloads, ..State::default() }
    };
    let line = |level: &str| {
        format!(
            "Deployment shop/web is classified: it works processors with {level} intensity, and its sensitivity to caps is medium"
        )
    };
    assert_eq!(told(&mut events, &of("low")), [line("low")]);
    assert!(told(&mut events, &of("low")).is_empty());
    assert!(told(&mut events, &State::default()).is_empty());
    assert_eq!(told(&mut events, &of("high")), [line("high")]);
}
