use super::*;
use crate::front::wanted::Subject;
use crate::machine::{Beside, ClockLoop, Details, Device, Drawn, Found};
use joulie_api::condition::ConditionStatus;
use joulie_core::node::cap::{CapRange, DesiredCap};
use joulie_core::node::throttle::ThrottlePercent;
use node_kit::{Desire, LoopCause};
use power_hal::ErrorKind;
use std::sync::Arc;

fn watts(count: i32) -> Watts {
    Watts::from_int(count)
}

const TERMS: Terms =
    Terms { cpu: true, gpu: true, simulate_only: false, patience: Duration::from_secs(5), relax: false };

fn goal(cpu: CapIntent, gpu: CapIntent) -> Wanted {
    Wanted::Goal(Goal {
        object: Subject { name: "node-a".to_owned(), uid: "1".to_owned(), generation: Some(3) },
        cpu,
        gpu,
        policy: None,
        malformed: None,
        rivals: Vec::new(),
    })
}

fn part(means: Means, report: CapReport, limit: Option<i32>, drawn: i32) -> Part {
    let device = |number| Device {
        key: format!("package-{number}"),
        limit: limit.map(watts),
        range: CapRange::new(Some(watts(80)), Some(watts(250)), None),
        share: None,
        drawn: Drawn::Is(watts(drawn / 2)),
        energy: None,
        beside: Beside::default(),
    };
    Part { means, report, devices: vec![device(0), device(1)], drawn: Drawn::Is(watts(drawn)), trouble: None }
}

fn nothing() -> Part {
    Part {
        means: Means::None,
        report: CapReport::NoIntent,
        devices: Vec::new(),
        drawn: Drawn::Unmetered,
        trouble: None,
    }
}

fn view(wanted: &Wanted, cpu: Part, gpu: Part) -> View {
    View {
        desire: wanted.desire(true, true),
        cpu,
        gpu,
        node_power: None,
        rest: None,
        plug: None,
        source: "rapl",
        found: Arc::new(Found::default()),
        lease: LeaseState::Desired,
        boot: None,
        wants: node_kit::NodeWants::default(),
        details: Details::default(),
    }
}

fn of(wanted: &Wanted, cpu: Part, gpu: Part) -> Outcome {
    Outcomes::default().of(wanted, &view(wanted, cpu, gpu), &TERMS, Mono::START)
}

#[test]
fn gpus_that_a_loop_holds_by_their_clocks_are_counted_with_the_cause() {
    let wanted = goal(CapIntent::NONE, CapIntent::of_watts(watts(200)));
    let report = CapReport::Cap(CapResult::Applied { effective: watts(400) });
    let gpus = |report, drawn, causes: [Option<LoopCause>; 2]| {
        let mut part = part(Means::Limits("host-nvidia"), report, Some(200), drawn);
        for (device, cause) in part.devices.iter_mut().zip(causes) {
            device.beside.clock = cause.map_or(ClockLoop::Idle, ClockLoop::Holds);
        }
        part
    };
    let said = |part| {
        let outcome = of(&wanted, nothing(), part);
        (why(&outcome), outcome.gpu.unwrap())
    };
    let (why, gpu) = said(gpus(report, 390, [Some(LoopCause::NotKept), None]));
    let message = "applied gpu cap: 400 W together; a closed loop over the clock holds 1 of 2 GPUs instead of a power limit: 1 not_kept";
    assert_eq!((why, gpu.message.as_str(), gpu.cap), (Why::Enforced, message, Some(watts(200))));
    // The lowest clock draws more than was asked: both are told.
    let clamped = CapReport::Cap(CapResult::Clamped { requested: watts(200), effective: watts(236) });
    let (why, gpu) = said(gpus(clamped, 236, [Some(LoopCause::OutOfRange), Some(LoopCause::Refused)]));
    let message = "applied gpu cap: asked for 200 W together, and 236 W are in force or drawn; a closed loop over the clock holds 2 of 2 GPUs instead of a power limit: 1 out_of_range, 1 refused";
    assert_eq!((why, gpu.message.as_str(), gpu.cap), (Why::ClampedAbove, message, None));
    let (_, gpu) = said(gpus(report, 390, [None; 2]));
    assert_eq!(gpu.message, "applied gpu cap: 200 W for each of 2 GPUs, read back");
}

fn cap(each: i32) -> Wanted {
    goal(CapIntent::of_watts(watts(each)), CapIntent::NONE)
}

fn why(outcome: &Outcome) -> Why {
    outcome.verdict.as_ref().unwrap().why
}

fn result(result: CapResult) -> CapReport {
    CapReport::Cap(result)
}

#[test]
fn what_is_in_force_and_seen_in_what_is_drawn_is_enforced() {
    let applied = result(CapResult::Applied { effective: watts(240) });
    let outcome = of(&cap(120), part(Means::Limits("rapl"), applied, Some(120), 230), nothing());
    let said = outcome.cpu.clone().unwrap();
    assert_eq!((said.backend, said.result, said.generation), (Means::Limits("rapl"), "applied", Some(3)));
    assert_eq!((said.requested, said.cap), (Some(watts(120)), Some(watts(120))));
    assert_eq!((why(&outcome), why(&outcome).status()), (Why::Enforced, ConditionStatus::True));
    let outcome = of(&cap(120), part(Means::Limits("rapl"), applied, Some(120), 300), nothing());
    assert_eq!(
        (why(&outcome), why(&outcome).status()),
        (Why::Pending, ConditionStatus::Unknown),
        "not seen yet"
    );
    let dark = Part { drawn: Drawn::Unmetered, ..part(Means::Limits("rapl"), applied, Some(120), 0) };
    assert_eq!(why(&of(&cap(120), dark, nothing())), Why::Unmeasured, "unknown is never good news");
}

#[test]
fn a_node_that_lacks_a_meter_says_that_prometheus_is_none() {
    let (applied, blocked) =
        (result(CapResult::Applied { effective: watts(240) }), result(CapResult::Blocked(Blocked::NoMeter)));
    let refused = result(CapResult::Blocked(Blocked::NoGpus));
    let limits = Means::Limits("rapl");
    let dark = Part { drawn: Drawn::Unmetered, ..part(limits, applied, Some(120), 0) };
    for (cpu, is_said) in [
        (dark, true),
        (part(limits, blocked, None, 300), true),
        (part(limits, applied, Some(120), 230), false),
        (part(limits, refused, None, 300), false),
    ] {
        let (wanted, report) = (cap(120), cpu.report);
        let view = view(&wanted, cpu, nothing());
        let outcome = Outcomes::default().of(&wanted, &view, &TERMS, Mono::START);
        let mut verdict = outcome.verdict.unwrap();
        verdict.unjudged(&view);
        assert_eq!(verdict.message.contains("Prometheus"), is_said, "{report:?}: {}", verdict.message);
    }
}

#[test]
fn clamped_blocked_and_failed_are_told_apart() {
    let above = result(CapResult::Clamped { requested: watts(100), effective: watts(160) });
    let outcome = of(&cap(50), part(Means::Limits("rapl"), above, Some(80), 150), nothing());
    let said = outcome.cpu.clone().unwrap();
    assert_eq!((said.result, said.requested, said.cap), ("applied", Some(watts(50)), Some(watts(80))));
    assert!(said.message.contains("asked for 100"), "{}", said.message);
    assert_eq!(
        (why(&outcome).word(), why(&outcome).status()),
        ("Clamped", ConditionStatus::False),
        "more than was asked"
    );
    let below = result(CapResult::Clamped { requested: watts(600), effective: watts(500) });
    let outcome = of(&cap(300), part(Means::Limits("rapl"), below, Some(250), 480), nothing());
    assert_eq!(
        (why(&outcome).word(), why(&outcome).status()),
        ("Clamped", ConditionStatus::True),
        "less is kept"
    );
    let said = outcome.cpu.clone().unwrap();
    assert!(said.message.contains("the hardware takes 500"), "{}", said.message);
    let mut owned = part(
        Means::Limits("rapl"),
        result(CapResult::Clamped { requested: watts(480), effective: watts(400) }),
        Some(200),
        380,
    );
    for device in &mut owned.devices {
        device.range = device.range.below(Some(watts(200)));
    }
    let said = of(&cap(240), owned, nothing()).cpu.unwrap();
    assert!(said.message.contains("its owner's limit allows 400"), "{}", said.message);
    let blocked = result(CapResult::Blocked(Blocked::NoMeter));
    let outcome = of(&cap(120), part(Means::Dvfs, blocked, None, 300), nothing());
    assert_eq!(
        (outcome.cpu.clone().unwrap().backend, outcome.cpu.clone().unwrap().result),
        (Means::None, "blocked")
    );
    assert_eq!(why(&outcome), Why::Blocked);
    let failed = result(CapResult::Failed(ErrorKind::Locked));
    let stuck = Part {
        trouble: Some("the firmware has locked it".to_owned()),
        ..part(Means::Limits("rapl"), failed, None, 300)
    };
    let outcome = of(&cap(120), stuck, nothing());
    let said = outcome.cpu.clone().unwrap();
    assert_eq!((said.backend, said.result, said.cap), (Means::Limits("rapl"), "error", None));
    assert!(said.message.contains("the firmware has locked it"), "{}", said.message);
    assert_eq!(why(&outcome), Why::Failed);
}

#[test]
fn the_outcome_of_one_wish_is_never_taken_for_that_of_the_next() {
    let applied = result(CapResult::Applied { effective: watts(240) });
    let old = view(&cap(120), part(Means::Limits("rapl"), applied, Some(120), 200), nothing());
    let outcome = Outcomes::default().of(&cap(100), &old, &TERMS, Mono::START);
    assert_eq!(outcome, Outcome::default());
    // A change in progress reports nothing new, but it is not a success either.
    let outcome = of(&cap(100), part(Means::Limits("rapl"), CapReport::Pending, Some(120), 200), nothing());
    assert_eq!((outcome.cpu.clone(), why(&outcome)), (None, Why::Pending));
}

#[test]
fn a_throttle_of_a_percentage_is_told_with_its_share() {
    // Agent table, row 23.
    let percent = goal(CapIntent::of_percent(power_units::Percent::HUNDRED), CapIntent::NONE);
    let outcome =
        of(&percent, part(Means::Dvfs, CapReport::Throttled(ThrottlePercent::NONE), None, 250), nothing());
    let said = outcome.cpu.clone().unwrap();
    assert_eq!((said.backend.word(), said.result), ("dvfs", "applied"));
    assert!(said.message.contains("throttle=0%"), "{}", said.message);
    assert_eq!(why(&outcome).status(), ConditionStatus::Unknown, "no watts are known, so none are kept");
}

#[test]
fn gpus_are_told_in_the_words_of_the_contract() {
    let wanted = goal(CapIntent::NONE, CapIntent::of_watts(watts(250)));
    // Agent table, row 35.
    let applied = result(CapResult::Applied { effective: watts(500) });
    let idle = Part { report: CapReport::NoIntent, ..part(Means::None, CapReport::NoIntent, Some(250), 300) };
    let outcome = of(&wanted, idle.clone(), part(Means::Http, applied, Some(250), 480));
    let said = outcome.gpu.clone().unwrap();
    assert_eq!((said.backend.word(), said.result, said.cap), ("http", "applied", Some(watts(250))));
    assert!(said.message.contains("applied gpu cap"), "{}", said.message);
    assert_eq!(why(&outcome), Why::Enforced);
    // Agent table, row 34.
    let blocked = Part { report: result(CapResult::Blocked(Blocked::NoGpus)), ..nothing() };
    let outcome = of(&wanted, idle, blocked);
    let said = outcome.gpu.unwrap();
    assert_eq!((said.backend.word(), said.result), ("none", "blocked"));
    assert_eq!(said.message, "node has no allocatable GPU resources");
}

#[test]
fn a_part_that_fails_is_the_verdict_of_both() {
    let both = goal(CapIntent::of_watts(watts(120)), CapIntent::of_watts(watts(250)));
    let applied = result(CapResult::Applied { effective: watts(240) });
    let failed = Part {
        trouble: Some("the card fell off the bus".to_owned()),
        ..part(Means::Limits("host-nvidia"), result(CapResult::Failed(ErrorKind::Gone)), None, 300)
    };
    let outcome = of(&both, part(Means::Limits("rapl"), applied, Some(120), 200), failed);
    assert_eq!(why(&outcome), Why::Failed);
    let text = outcome.verdict.unwrap().message;
    assert!(text.contains("the card fell off the bus") && !text.contains("packages"), "{text}");
}

#[test]
fn nothing_is_claimed_where_nothing_is_known_and_a_release_that_failed_is_told() {
    let unknown = Wanted::Unknown(Unknown::NotSynced);
    assert_eq!(of(&unknown, nothing(), nothing()), Outcome::default());
    let gone = Wanted::Nothing(Nothing::NoObject);
    let outcome = of(&gone, nothing(), nothing());
    assert_eq!((outcome.cpu.unwrap().result, outcome.verdict.unwrap().why), ("none", Why::NoCap));
    let stuck = Part {
        trouble: Some("no such device".to_owned()),
        ..part(Means::Limits("rapl"), result(CapResult::Failed(ErrorKind::Gone)), Some(120), 200)
    };
    let outcome = of(&gone, stuck, nothing());
    let said = outcome.cpu.clone().unwrap();
    assert_eq!((said.result, said.cap), ("error", Some(watts(120))));
    assert!(said.message.contains("could not be put back: no such device"), "{}", said.message);
    assert_eq!(why(&outcome), Why::Pending);
}

#[test]
fn caps_that_a_lease_replaced_are_not_those_that_were_asked() {
    let wanted = cap(120);
    let applied = result(CapResult::Applied { effective: watts(240) });
    for (lease, holds) in [
        (LeaseState::Desired, true),
        (LeaseState::Held, true),
        (LeaseState::Relaxed, false),
        (LeaseState::Safe, false),
    ] {
        let view =
            View { lease, ..view(&wanted, part(Means::Limits("rapl"), applied, Some(120), 200), nothing()) };
        let outcome = Outcomes::default().of(&wanted, &view, &TERMS, Mono::START);
        assert_eq!(why(&outcome).status() == ConditionStatus::True, holds, "{lease:?}");
        let text = outcome.verdict.unwrap().message;
        assert_eq!(text.contains("nobody confirms"), lease != LeaseState::Desired, "{lease:?}: {text}");
    }
}

#[test]
fn a_part_that_the_configuration_leaves_alone_is_blocked() {
    let wanted = cap(120);
    let terms = Terms { cpu: false, ..TERMS };
    let mut view = view(&wanted, nothing(), nothing());
    view.desire = Desire { gpu: DesiredCap::Cap(CapIntent::NONE), ..Desire::UNKNOWN };
    let outcome = Outcomes::default().of(&wanted, &view, &terms, Mono::START);
    assert_eq!((outcome.cpu.clone().unwrap().result, why(&outcome)), ("blocked", Why::Blocked));
}

#[test]
fn what_a_closed_loop_is_seen_to_hold_is_said_for_each_package_and_what_it_is_not_seen_to_hold_is_not() {
    let applied = result(CapResult::Applied { effective: watts(240) });
    let capped = |drawn| of(&cap(120), Part { drawn, ..part(Means::Dvfs, applied, None, 0) }, nothing());
    let held = capped(Drawn::Is(watts(230)));
    assert_eq!((held.cpu.as_ref().unwrap().cap, why(&held)), (Some(watts(120)), Why::Enforced));
    for drawn in [Drawn::Is(watts(300)), Drawn::Unknown, Drawn::Unmetered] {
        assert_eq!(capped(drawn).cpu.unwrap().cap, None, "{drawn:?}");
    }
    let bound = result(CapResult::Clamped { requested: watts(240), effective: watts(300) });
    assert_eq!(of(&cap(120), part(Means::Dvfs, bound, None, 300), nothing()).cpu.unwrap().cap, None);
}

#[test]
fn a_limit_that_nothing_reads_back_is_not_called_read_back() {
    let applied = result(CapResult::Applied { effective: watts(240) });
    let taken = Part { drawn: Drawn::Unmetered, ..part(Means::Limits("rapl"), applied, None, 0) };
    let outcome = of(&cap(120), taken, nothing());
    let said = outcome.cpu.clone().unwrap();
    assert_eq!(
        (said.cap, why(&outcome), why(&outcome).status()),
        (None, Why::Unmeasured, ConditionStatus::Unknown)
    );
    assert!(said.message.contains("the limit was taken, and nothing reads it back"), "{}", said.message);
}
