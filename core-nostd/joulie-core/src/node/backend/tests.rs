mod obedience;

use super::rig::*;
use super::*;
use crate::node::actuation::InForce;
use crate::node::cap::{Blocked, CAP_LEAST, CapIntent, CapReport, CapResult, Resolution};
use crate::node::limiter::{LimitOutcome, LimitReading};
use power_units::Percent;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

fn status(backend: Backend, report: CapReport) -> CpuControlStatus {
    CpuControlStatus { backend, report }
}

fn applied(effective: i32) -> CapReport {
    CapReport::Cap(CapResult::Applied { effective: w(effective) })
}

fn failed(kind: ErrorKind) -> CapReport {
    CapReport::Cap(CapResult::Failed(kind))
}

fn blocked(reason: Blocked) -> CapReport {
    CapReport::Cap(CapResult::Blocked(reason))
}

fn forty() -> ThrottlePercent {
    ThrottlePercent::new(40).unwrap()
}

fn throttled_by_40() -> ThrottleOrder {
    ThrottleOrder::Set(forty())
}

#[test]
fn limits_come_first_and_caps_are_per_package() {
    // Fix list agent S4: 100 W for each package, 200 W for the node.
    let mut node = Node::new(&[package(), package()]);
    let first = node.step(watts(100));
    assert_eq!(first.status, status(Backend::None, CapReport::Pending), "ordered is not applied");
    assert_eq!(first.mode, Backend::None);
    let second = node.step(watts(100));
    assert_eq!(second.status, status(Backend::Rapl, applied(200)));
    assert_eq!(
        (second.mode, second.node_cap, second.throttle),
        (Backend::Rapl, Some(w(200)), ThrottleOrder::Leave)
    );
    node.steps(50, watts(100));
    let set = LimitOrder::Set(w(100));
    assert_eq!(
        node.log,
        [(1, Given::Limit(0, set)), (1, Given::Limit(1, set))],
        "a steady node is left alone"
    );
}

#[test]
fn what_the_package_cannot_do_is_clamped_and_said() {
    // Fix list agent S16.
    let mut node = Node::new(&[package(), package()]);
    let clamped = CapResult::Clamped { requested: w(10_000), effective: w(540) };
    assert_eq!(node.steps(2, watts(5_000)).status, status(Backend::Rapl, CapReport::Cap(clamped)));
}

#[test]
fn a_locked_package_brings_the_closed_loop_with_the_nodes_total() {
    // Fix list agent S8, S4: the lock of one package neither stops the fallback nor the other package's limit.
    let mut node = Node::new(&[package(), package()]);
    node.registers[1].refuses = Some(ErrorKind::Locked);
    let refused = node.steps(2, watts(100));
    assert_eq!(refused.throttle, ThrottleOrder::RunLoop { cap: w(200) });
    assert_eq!(refused.status.report, CapReport::Pending);
    let held = node.step(watts(100));
    assert_eq!(held.status, status(Backend::Dvfs, applied(200)));
    assert_eq!(held.mode, Backend::Dvfs);
    assert_eq!((node.registers[0].limit, node.registers[1].limit), (Some(w(100)), None));
    assert_eq!(node.step(watts(80)).throttle, ThrottleOrder::RunLoop { cap: w(160) }, "a new cap at once");
}

#[test]
fn the_throttle_is_lifted_only_when_every_limit_was_read_back_and_settled() {
    // Fix list agent S13.
    let mut node = Node::new(&[package(), package()]);
    node.registers[1].refuses = Some(ErrorKind::Locked);
    node.steps(10, watts(100));
    node.registers[1].refuses = None;
    let start = node.tick;
    let mut told = Vec::new();
    for _ in 0..30 {
        let decision = node.step(watts(100));
        assert!(node.is_held());
        if told.last() != Some(&(decision.mode, decision.status)) {
            told.push((decision.mode, decision.status));
        }
    }
    assert_eq!(
        told,
        [
            (Backend::Dvfs, status(Backend::Dvfs, applied(200))),
            // Set and read back: the limits' result, while the throttle is still in force.
            (Backend::Dvfs, status(Backend::Rapl, applied(200))),
            (Backend::Rapl, status(Backend::Rapl, applied(200))),
        ]
    );
    let orders: Vec<_> = node.ordered().into_iter().filter(|(tick, _)| *tick > start).collect();
    let [(set_at, set), (lift_at, lift)] = orders[..] else { panic!("{orders:?}") };
    assert_eq!(set, Given::Limit(1, LimitOrder::Set(w(100))));
    assert_eq!(lift, Given::Throttle(ThrottleOrder::Release));
    assert_eq!(
        lift_at,
        set_at + 1 + SETTLE,
        "read back one tick later, and held for as long as it takes to settle"
    );
}

#[test]
fn a_limit_that_stays_locked_is_tried_with_growing_waits() {
    let mut node = Node::new(&[package()]);
    node.registers[0].refuses = Some(ErrorKind::Locked);
    node.steps(60, watts(100));
    let tries: Vec<_> = node.ordered().iter().map(|(tick, _)| *tick).collect();
    // Waits of 4, 8, 16, 16 s from the refusal, which comes one tick after each try.
    assert_eq!(tries, [1, 6, 15, 32, 49]);
}

#[test]
fn a_driver_that_does_not_answer_is_a_refusal() {
    let mut node = Node::new(&[package()]);
    node.registers[0].delay = 1_000;
    let decision = node.steps(PATIENCE + 3, watts(100));
    assert_eq!(decision.throttle, ThrottleOrder::RunLoop { cap: w(100) });
    assert_eq!(node.step(watts(100)).status, status(Backend::Dvfs, applied(100)));
}

#[test]
fn without_any_throttle_the_refusal_is_the_result() {
    let mut node = Node::new(&[package(), package()]);
    node.throttle = None;
    node.registers[1].refuses = Some(ErrorKind::Locked);
    let decision = node.steps(2, watts(100));
    assert_eq!(decision.status, status(Backend::Rapl, failed(ErrorKind::Locked)));
    assert_eq!((decision.mode, decision.throttle), (Backend::None, ThrottleOrder::Leave));
}

#[test]
fn a_percentage_of_an_unknown_maximum_is_throttled_and_seen() {
    // The rows of the percent path: 60 throttles by 40, 100 by nothing, and both are applied.
    let mut node = Node::new(&[silent(false)]);
    let first = node.step(percent(60));
    assert_eq!((first.throttle, first.mode), (throttled_by_40(), Backend::None));
    assert_eq!(first.status.report, CapReport::Pending);
    let throttled = CapReport::Throttled(forty());
    assert_eq!(node.step(percent(60)).status, status(Backend::Dvfs, throttled));
    assert_eq!(node.steps(20, percent(60)).mode, Backend::Dvfs);
    assert_eq!(node.log.len(), 1, "Fix list agent C16: a steady throttle is not written again");
    let full = node.step(percent(100));
    assert_eq!(full.throttle, ThrottleOrder::Set(ThrottlePercent::NONE));
    assert_eq!(
        node.step(percent(100)).status,
        status(Backend::Dvfs, CapReport::Throttled(ThrottlePercent::NONE))
    );
    assert_eq!(throttled.word(), Some("applied"));
}

#[test]
fn a_package_that_knows_its_maximum_is_limited_beside_one_that_does_not() {
    let mut node = Node::new(&[package(), silent(true)]);
    let first = node.step(percent(60));
    assert_eq!(first.throttle, throttled_by_40());
    let limits: Vec<_> = node.packages.iter().map(Package::order).collect();
    assert_eq!(limits, [LimitOrder::Set(w(162)), LimitOrder::Leave]);
    let throttled = CapReport::Throttled(forty());
    assert_eq!(node.steps(9, percent(60)).status, status(Backend::Dvfs, throttled));
    assert_eq!(node.registers[0].limit, Some(w(162)));
}

#[test]
fn a_known_maximum_makes_the_closed_loop_reachable_for_a_percentage() {
    // Fix list agent C1: no power limit, but a known maximum: 60 % of 200 W on each of two packages.
    let range = CapRange::new(None, Some(w(200)), None);
    let mut node = Node::new(&[PackageFacts { range, ..silent(false) }; 2]);
    assert_eq!(node.step(percent(60)).throttle, ThrottleOrder::RunLoop { cap: w(240) });
}

#[test]
fn a_node_without_packages_takes_percent_and_no_watts() {
    let mut node = Node::new(&[]);
    assert_eq!(node.step(percent(60)).throttle, throttled_by_40());
    let mut node = Node::new(&[]);
    assert_eq!(node.step(watts(100)).status, status(Backend::None, blocked(Blocked::NoPackages)));
}

#[test]
fn what_nothing_can_hold_is_blocked_and_reads_as_no_backend() {
    // Fix list agent C3, S11: a control that is off has neither, and nothing is ordered.
    for (packages, desired, reason) in [
        (vec![silent(false)], watts(100), Blocked::NoBackend),
        (vec![silent(false)], percent(60), Blocked::NoRange),
        (vec![], percent(60), Blocked::NoBackend),
        (vec![package()], watts(0), Blocked::NotPositive),
        (vec![package()], percent(-5), Blocked::NotPositive),
        (vec![], percent(0), Blocked::NotPositive),
    ] {
        let mut node = Node::new(&packages);
        node.throttle = None;
        let decision = node.steps(5, desired);
        assert_eq!(decision.status, status(Backend::None, blocked(reason)), "{packages:?} {desired:?}");
        assert_eq!((decision.mode, node.log.len()), (Backend::None, 0));
    }
}

/// A package whose owner has set 80 W, on a node whose floor is 100 W.
fn held_by_its_owner() -> PackageFacts {
    PackageFacts { range: package().range.below(Some(w(80))), ..package() }
}

#[test]
fn an_owners_limit_below_the_floor_holds_the_cap_and_nothing_is_written() {
    let mut node = Node::new(&[held_by_its_owner(), held_by_its_owner()]);
    node.law.floor = Floor::new(w(100)).unwrap();
    let decision = node.steps(6, watts(220));
    let held = CapResult::Clamped { requested: w(440), effective: w(160) };
    assert_eq!(decision.status, status(Backend::Rapl, CapReport::Cap(held)));
    assert_eq!(node.log, [], "nothing is ordered");
    assert_eq!(node.step(DesiredCap::Gone).status.report, CapReport::NoIntent);
}

#[test]
fn a_locked_package_beside_one_that_its_owner_holds_brings_the_closed_loop() {
    let mut node = Node::new(&[held_by_its_owner(), package()]);
    node.law.floor = Floor::new(w(100)).unwrap();
    node.registers[1].refuses = Some(ErrorKind::Locked);
    node.steps(6, watts(120));
    // 80 W of the one and 120 W of the other.
    assert_eq!(node.step(watts(120)).throttle, ThrottleOrder::RunLoop { cap: w(200) });
}

#[test]
fn a_package_that_takes_no_cap_leaves_no_locked_one_without_a_limiter() {
    // Its maximum is 90 W, and the floor of the node is 100.
    let small = PackageFacts { range: CapRange::new(Some(w(20)), Some(w(90)), None), ..package() };
    let mut node = Node::new(&[small, package()]);
    node.law.floor = Floor::new(w(100)).unwrap();
    node.registers[1].refuses = Some(ErrorKind::Locked);
    let decision = node.steps(6, watts(120));
    assert_eq!(decision.throttle, ThrottleOrder::RunLoop { cap: w(210) });
    assert_eq!(decision.status, status(Backend::None, blocked(Blocked::FloorAboveMax)), "and it says so");
    assert_eq!(decision.mode, Backend::Dvfs);
}

#[test]
fn packages_that_all_take_no_cap_have_none_together() {
    let small = PackageFacts { range: CapRange::new(Some(w(20)), Some(w(90)), None), ..package() };
    let mut node = Node::new(&[small, small]);
    node.law.floor = Floor::new(w(100)).unwrap();
    assert_eq!(node.steps(6, watts(120)).node_cap, None);
}

#[test]
fn an_intent_that_is_none_leaves_what_is_in_force() {
    let mut node = Node::new(&[package()]);
    node.steps(2, watts(100));
    let decision = node.steps(5, watts(-1));
    assert_eq!(decision.status.report, blocked(Blocked::NotPositive));
    assert_eq!(node.registers[0].limit, Some(w(100)), "a slip must not lift a node to full power");
}

#[test]
fn watts_without_a_limit_need_a_meter() {
    let mut node = Node::new(&[silent(false)]);
    node.has_meter = false;
    assert_eq!(node.step(watts(100)).status, status(Backend::None, blocked(Blocked::NoMeter)));
    let both = CapIntent { watts: Some(w(100)), percent: Some(Percent::from_int(60)) };
    assert_eq!(node.step(DesiredCap::Cap(both)).throttle, throttled_by_40(), "a percentage beside them does");
    node.throttle = None;
    let none = node.step(watts(100)).status;
    assert_eq!(none, status(Backend::None, blocked(Blocked::NoBackend)), "a meter would not help");
}

#[test]
fn a_blind_loop_holds_nothing_and_says_so() {
    // Fix list agent C2.
    let mut node = Node::new(&[silent(false)]);
    node.frequencies().blind = Some(ErrorKind::Timeout);
    let decision = node.steps(3, watts(100));
    assert_eq!(decision.status, status(Backend::Dvfs, failed(ErrorKind::Timeout)));
    assert_eq!(
        decision.throttle,
        ThrottleOrder::RunLoop { cap: w(100) },
        "it goes on: the safe side is its own"
    );
    node.frequencies().blind = None;
    assert_eq!(node.steps(2, watts(100)).status, status(Backend::Dvfs, applied(100)));
}

#[test]
fn a_loop_at_its_bound_says_what_the_node_still_draws() {
    let mut node = Node::new(&[silent(false)]);
    node.frequencies().drawn_at_bound = Some(w(130));
    let clamped = CapResult::Clamped { requested: w(100), effective: w(130) };
    assert_eq!(node.steps(3, watts(100)).status, status(Backend::Dvfs, CapReport::Cap(clamped)));
}

#[test]
fn a_throttle_that_is_refused_goes_no_other_way() {
    // Fix list agent S12: one machine, one route, in every decision.
    for route in [Route::Host, Route::Remote] {
        let mut node = Node::new(&[silent(false)]);
        node.mode = Mode::start(route, false);
        node.frequencies().refuses = Some(ErrorKind::Io);
        for desired in [percent(60), watts(100), DesiredCap::Gone] {
            for _ in 0..40 {
                assert_eq!(node.step(desired).route, route);
            }
        }
        let refused = node.steps(3, percent(60));
        assert_eq!(refused.status, status(Backend::Dvfs, failed(ErrorKind::Io)));
    }
}

#[test]
fn a_limit_of_an_earlier_cap_goes_when_the_throttle_holds_and_not_before() {
    let mut node = Node::new(&[silent(true)]);
    node.steps(4, watts(100));
    node.frequencies().delay = 2;
    for _ in 0..3 {
        assert_eq!(node.step(percent(60)).mode, Backend::Rapl);
        assert_eq!(node.registers[0].limit, Some(w(100)));
    }
    node.step(percent(60));
    let orders: Vec<_> = node.ordered()[1..].to_vec();
    assert_eq!(orders, [(5, Given::Throttle(throttled_by_40())), (8, Given::Limit(0, LimitOrder::Release))]);
    node.step(percent(60));
    assert_eq!((node.registers[0].limit, node.is_held()), (None, true));
}

#[test]
fn throttle_only_lets_limits_go_once_the_loop_sees_and_holds() {
    let mut node = Node::new(&[package()]);
    node.steps(3, watts(100));
    node.law.preference = BackendPreference::ThrottleOnly;
    node.frequencies().blind = Some(ErrorKind::Gone);
    node.steps(20, watts(100));
    assert_eq!(node.registers[0].limit, Some(w(100)), "a blind loop is no reason to let go");
    node.frequencies().blind = None;
    node.steps(3, watts(100));
    assert_eq!((node.registers[0].limit, node.is_held()), (None, true));
    assert_eq!(node.step(watts(100)).status, status(Backend::Dvfs, applied(100)));
}

#[test]
fn a_restart_adopts_what_it_finds_until_the_desired_state_is_known() {
    // Fix list agent C14, S5: a throttle from before the restart is lifted when limits work, and not earlier.
    let mut node = Node::new(&[package()]);
    node.mode = Mode::start(Route::Host, true);
    node.packages = vec![Package::adopted(package())];
    node.registers[0].limit = Some(w(90));
    node.frequencies().by = Some(Throttling::Fixed(ThrottlePercent::new(30).unwrap()));
    let waiting = node.steps(10, DesiredCap::Unknown);
    assert_eq!((waiting.mode, waiting.status.report, node.log.len()), (Backend::Dvfs, CapReport::Pending, 0));
    assert_eq!(waiting.status.report.word(), None, "what was reported before stands");
    let decision = node.steps(8, watts(100));
    assert_eq!((decision.mode, decision.status), (Backend::Rapl, status(Backend::Rapl, applied(100))));
    assert_eq!(node.frequencies().by, None);
}

#[test]
fn a_throttle_from_before_a_restart_runs_on_as_the_loop_where_limits_fail() {
    let mut node = Node::new(&[package()]);
    node.mode = Mode::start(Route::Host, true);
    node.frequencies().by = Some(Throttling::Fixed(ThrottlePercent::new(30).unwrap()));
    node.registers[0].refuses = Some(ErrorKind::PermissionDenied);
    for _ in 0..40 {
        node.step(watts(100));
        assert!(node.is_held());
    }
    assert_eq!(node.frequencies().by, Some(Throttling::Loop));
}

#[test]
fn everything_goes_back_when_nothing_is_desired() {
    // Fix list agent S6, C15.
    for gone in [DesiredCap::Gone, DesiredCap::Cap(CapIntent::NONE)] {
        let mut node = Node::new(&[package(), package()]);
        node.registers[1].refuses = Some(ErrorKind::Locked);
        node.steps(5, watts(100));
        node.registers[1].refuses = None;
        assert_eq!(node.step(gone).status.report, CapReport::Pending);
        let decision = node.steps(3, gone);
        assert_eq!(decision.status, status(Backend::None, CapReport::NoIntent));
        assert_eq!(decision.mode, Backend::None);
        assert!(!node.is_held() && node.registers.iter().all(|register| register.limit.is_none()));
        assert_eq!(CapReport::NoIntent.word(), Some("none"));
    }
}

#[test]
fn an_original_that_cannot_be_put_back_is_an_error_and_tried_again() {
    let mut node = Node::new(&[package()]);
    node.steps(3, watts(100));
    node.registers[0].refuses = Some(ErrorKind::Io);
    assert_eq!(node.steps(2, DesiredCap::Gone).status, status(Backend::Rapl, failed(ErrorKind::Io)));
    node.registers[0].refuses = None;
    assert_eq!(node.steps(8, DesiredCap::Gone).status.report, CapReport::NoIntent);

    let mut node = Node::new(&[silent(false)]);
    node.steps(3, percent(60));
    node.frequencies().refuses = Some(ErrorKind::Busy);
    assert_eq!(node.steps(2, DesiredCap::Gone).status, status(Backend::Dvfs, failed(ErrorKind::Busy)));
}

#[test]
fn a_limit_that_somebody_keeps_raising_ends_in_the_closed_loop() {
    let mut node = Node::new(&[package()]);
    let mut moved = 0;
    let mut throttled_at = None;
    for _ in 0..90 {
        let decision = node.step(watts(100));
        moved += decision.moved;
        if decision.status == status(Backend::Dvfs, applied(100)) && throttled_at.is_none() {
            throttled_at = Some(node.tick);
        }
        // Somebody else raises it again as soon as it is held.
        if matches!(node.packages[0].limiter().actuation(), Actuation::Held { .. }) {
            node.registers[0].limit = Some(w(250));
        }
    }
    assert_eq!(moved, 4, "three are answered, the fourth is yielded to for a truce");
    assert!(throttled_at.is_some_and(|tick| tick < 10), "{throttled_at:?}");
    let sets = node.ordered().iter().filter(|(_, given)| matches!(given, Given::Limit(..))).count();
    assert_eq!(sets, 4);
    assert_eq!(node.step(watts(100)).mode, Backend::Dvfs);
}

#[test]
fn a_moved_limit_that_is_put_back_at_once_brings_no_throttle() {
    let mut node = Node::new(&[package()]);
    node.steps(3, watts(100));
    node.registers[0].limit = Some(w(250));
    let decision = node.step(watts(100));
    assert_eq!((decision.moved, node.packages[0].order()), (1, LimitOrder::Set(w(100))));
    assert_eq!(node.step(watts(100)).status, status(Backend::Rapl, applied(100)));
    assert!(node.log.iter().all(|(_, given)| matches!(given, Given::Limit(..))));
}

#[test]
fn a_limit_that_is_gone_is_held_by_the_loop_at_once_and_by_itself_when_it_is_back() {
    let mut node = Node::new(&[package(), package()]);
    node.steps(5, watts(100));
    node.registers[1].hidden = Some(LimitReading::Gone);
    node.registers[1].limit = None;
    assert_eq!(node.step(watts(100)).throttle, ThrottleOrder::RunLoop { cap: w(200) });
    let gone = node.steps(40, watts(100));
    assert_eq!(gone.status, status(Backend::Dvfs, applied(200)));
    let to_it = |node: &Node| {
        let all = node.ordered().into_iter();
        all.filter(|(_, given)| matches!(given, Given::Limit(1, _))).map(|(tick, _)| tick).collect::<Vec<_>>()
    };
    assert_eq!(to_it(&node), [1], "what is not there is ordered nothing");
    node.registers[1].hidden = None;
    let back = node.tick + 1;
    node.step(watts(100));
    assert_eq!(to_it(&node), [1, back], "and waits for nothing when it is there again");
    let decision = node.steps(SETTLE + 3, watts(100));
    assert_eq!((decision.mode, decision.status), (Backend::Rapl, status(Backend::Rapl, applied(200))));
    assert_eq!(decision.moved, 0, "it was not somebody else");
}

#[test]
fn a_limit_that_cannot_be_read_is_held_by_the_loop_after_the_patience() {
    let mut node = Node::new(&[package()]);
    node.steps(5, watts(100));
    // A driver that hangs keeps returning its last reading.
    for hidden in
        [LimitReading::Unread(ErrorKind::Io), LimitReading::At { limit: w(100), read: at(node.tick) }]
    {
        let mut node = Node { packages: node.packages.clone(), ..Node::new(&[package()]) };
        (node.tick, node.registers[0].hidden, node.registers[0].delay) = (5, Some(hidden), 1_000);
        for _ in 0..PATIENCE {
            assert_eq!(node.step(watts(100)).throttle, ThrottleOrder::Leave, "{hidden:?}");
        }
        assert_eq!(node.step(watts(100)).throttle, ThrottleOrder::RunLoop { cap: w(100) }, "{hidden:?}");
        assert_eq!(node.steps(2, watts(100)).status, status(Backend::Dvfs, applied(100)));
    }
}

#[test]
fn without_any_throttle_a_limit_that_is_gone_is_not_called_applied() {
    let mut node = Node::new(&[package()]);
    node.throttle = None;
    node.steps(5, watts(100));
    node.registers[0].hidden = Some(LimitReading::Gone);
    let decision = node.step(watts(100));
    assert_eq!(
        (decision.mode, decision.status),
        (Backend::None, status(Backend::Rapl, failed(ErrorKind::Gone)))
    );
}

#[test]
fn an_original_whose_device_was_away_goes_back_as_soon_as_it_is_there() {
    let mut node = Node::new(&[package()]);
    node.steps(5, watts(100));
    node.registers[0].hidden = Some(LimitReading::Gone);
    assert_eq!(node.steps(40, DesiredCap::Gone).status, status(Backend::Rapl, failed(ErrorKind::Gone)));
    node.registers[0].hidden = None;
    assert_eq!(node.steps(2, DesiredCap::Gone).status.report, CapReport::NoIntent);
    assert_eq!(node.registers[0].limit, None);
}

/// One of each state of an actuation, at tick 100; held ones are settled, or not yet.
fn actuations<T: Copy>(target: T, other: T) -> Vec<Actuation<T>> {
    let (kind, retry_at, since) = (ErrorKind::Locked, at(105), at(99));
    vec![
        Actuation::Free,
        Actuation::Adopted,
        Actuation::Pending { target, since, failures: 0, standing: InForce::At(other) },
        Actuation::Pending { target, since, failures: 2, standing: InForce::Nothing },
        Actuation::Held { target, as_is: target, since: at(90) },
        Actuation::Held { target, as_is: target, since },
        Actuation::Held { target: other, as_is: other, since: at(90) },
        Actuation::Refused { target, kind, retry_at, failures: 2, standing: InForce::At(other) },
        Actuation::Releasing { since, failures: 0 },
        Actuation::Stuck { kind, retry_at, failures: 1 },
    ]
}

/// Steps once from every state of two packages and the throttle.
fn from_every_state(
    desired: DesiredCap,
    facts: PackageFacts,
    check: impl Fn(&Mode, &[Package; 2], &Mode, &BackendDecision, [LimitOrder; 2]),
) {
    let resolve = |watts| {
        let resolution = CapIntent::of_watts(w(watts)).resolve(facts.range, Floor::NONE);
        let Resolution::Watts(target) = resolution else { panic!("{resolution:?}") };
        target
    };
    let limits = actuations(resolve(100), resolve(120));
    for throttling in [Throttling::Loop, Throttling::Fixed(forty())] {
        for throttle in actuations(throttling, Throttling::Fixed(ThrottlePercent::new(7).unwrap())) {
            for first in &limits {
                for second in &limits {
                    let package = |actuation: &Actuation<_>| Package {
                        limiter: Limiter::at(*actuation),
                        ..Package::untouched(facts)
                    };
                    let mut packages = [package(first), package(second)];
                    let before = packages;
                    let mode = Mode { throttle, cap: Some(w(200)), ..Mode::start(Route::Host, false) };
                    let mut after = mode;
                    let outcome = Some(ThrottleOutcome::Unknown);
                    let node =
                        Facts { now: at(100), desired, throttle: outcome, has_meter: true, beyond: w(0) };
                    let decision = law().step(&mut after, &mut packages, &node);
                    check(&mode, &before, &after, &decision, packages.map(|package| package.order()));
                }
            }
        }
    }
}

fn is_settled(package: &Package) -> bool {
    matches!(package.limiter.actuation(), Actuation::Held { target, since, .. }
        if target.effective() == w(100) && since == at(90))
}

#[test]
fn from_every_state_a_throttle_is_let_go_only_under_settled_limits() {
    from_every_state(watts(100), package(), |mode, packages, after, decision, limits| {
        let context = (mode.throttle, packages[0].limiter.actuation(), packages[1].limiter.actuation());
        let settled = packages.iter().all(is_settled);
        let lacking = packages.iter().any(|package| package.limiter.actuation().lacks());
        if decision.throttle == ThrottleOrder::Release {
            assert!(settled, "{context:?}");
        }
        if settled && mode.throttle.stands() && !matches!(mode.throttle, Actuation::Pending { .. }) {
            let let_go = matches!(after.throttle, Actuation::Releasing { .. } | Actuation::Stuck { .. });
            assert!(let_go, "{context:?} became {:?}", after.throttle);
        }
        if lacking {
            let engaged = after.throttle.target().is_some();
            assert!(engaged, "{context:?} became {:?}", after.throttle);
        }
        assert!(
            !limits.contains(&LimitOrder::Release),
            "a limit that is wanted is never let go: {context:?}"
        );
        for (package, order) in packages.iter().zip(limits) {
            let free = matches!(
                package.limiter.actuation(),
                Actuation::Free | Actuation::Adopted | Actuation::Releasing { .. } | Actuation::Stuck { .. }
            );
            let other = matches!(package.limiter.actuation(), Actuation::Held { target, .. } if target.effective() == w(120));
            let expected = if free || other { LimitOrder::Set(w(100)) } else { LimitOrder::Leave };
            assert_eq!(order, expected, "{context:?}");
        }
    });
}

#[test]
fn from_every_state_a_limit_is_let_go_only_under_a_throttle_that_holds() {
    from_every_state(percent(60), silent(true), |mode, packages, after, decision, limits| {
        let context = (mode.throttle, packages[0].limiter.actuation(), packages[1].limiter.actuation());
        let wanted = Throttling::Fixed(forty());
        let holds = matches!(mode.throttle, Actuation::Held { target, .. } if target == wanted);
        assert_ne!(decision.throttle, ThrottleOrder::Release, "{context:?}");
        assert!(after.throttle.target().is_some(), "{context:?}");
        for (package, order) in packages.iter().zip(limits) {
            let actuation = package.limiter.actuation();
            let ours =
                matches!(actuation, Actuation::Adopted | Actuation::Held { .. } | Actuation::Refused { .. });
            let expected = if holds && ours { LimitOrder::Release } else { LimitOrder::Leave };
            assert_eq!(order, expected, "{context:?}");
        }
    });
}

#[test]
fn from_every_state_nothing_is_done_while_nobody_knows_what_is_desired() {
    from_every_state(DesiredCap::Unknown, package(), |mode, packages, after, decision, limits| {
        let context = (mode.throttle, packages[0].limiter.actuation(), packages[1].limiter.actuation());
        assert_eq!((limits, mode.throttle), ([LimitOrder::Leave; 2], after.throttle), "{context:?}");
        let runs = mode.throttle.target() == Some(Throttling::Loop);
        let expected = if runs { ThrottleOrder::RunLoop { cap: w(200) } } else { ThrottleOrder::Leave };
        assert_eq!(decision.throttle, expected, "{context:?}");
    });
}

#[test]
fn from_every_state_everything_is_on_its_way_back_when_nothing_is_desired() {
    from_every_state(DesiredCap::Gone, package(), |mode, packages, after, _, limits| {
        let context = (mode.throttle, packages[0].limiter.actuation(), packages[1].limiter.actuation());
        let returning =
            matches!(after.throttle, Actuation::Free | Actuation::Releasing { .. } | Actuation::Stuck { .. });
        assert!(returning || matches!(mode.throttle, Actuation::Pending { .. }), "{context:?}");
        for order in limits {
            assert!(matches!(order, LimitOrder::Leave | LimitOrder::Release), "{context:?}");
        }
    });
}

#[test]
fn from_every_state_the_words_claim_no_more_than_stands() {
    for (desired, facts) in
        [(watts(100), package()), (percent(60), silent(true)), (DesiredCap::Gone, package())]
    {
        from_every_state(desired, facts, |_, _, after, decision, _| {
            let throttled = after.throttle.stands();
            assert_eq!(decision.mode == Backend::Dvfs, throttled);
            match decision.status.report {
                CapReport::Cap(CapResult::Blocked(_)) => assert_eq!(decision.status.backend, Backend::None),
                CapReport::Cap(CapResult::Applied { .. } | CapResult::Clamped { .. })
                | CapReport::Throttled(_) => {
                    assert_ne!(decision.status.backend, Backend::None);
                    assert_ne!(decision.mode, Backend::None);
                }
                CapReport::NoIntent => assert_eq!(decision.mode, Backend::None),
                CapReport::Pending | CapReport::Cap(CapResult::Failed(_)) => {}
            }
        });
    }
}

/// Faults between two ticks. None of them removes a limiter: only orders can.
#[derive(Clone, Debug)]
enum Fault {
    Package(usize, Option<ErrorKind>),
    Throttle(Option<ErrorKind>),
    Meter(Option<ErrorKind>),
    SlowPackage(usize, u64),
    SlowThrottle(u64),
    Desired(DesiredCap),
}

fn any_kind() -> impl Strategy<Value = Option<ErrorKind>> {
    prop_oneof![2 => Just(None), 1 => (0..ErrorKind::ALL.len()).prop_map(|kind| Some(ErrorKind::ALL[kind]))]
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0_usize..2, any_kind()).prop_map(|(package, kind)| Fault::Package(package, kind)),
        any_kind().prop_map(Fault::Throttle),
        any_kind().prop_map(Fault::Meter),
        (0_usize..2, 0_u64..8).prop_map(|(package, delay)| Fault::SlowPackage(package, delay)),
        (0_u64..8).prop_map(Fault::SlowThrottle),
        (1_i32..400).prop_map(|cap| Fault::Desired(watts(cap))),
        (1_i32..=100).prop_map(|part| Fault::Desired(percent(part))),
        Just(Fault::Desired(DesiredCap::Unknown)),
        Just(Fault::Desired(watts(0))),
    ]
}

impl Node {
    fn suffer(&mut self, fault: &Fault, desired: &mut DesiredCap) {
        match *fault {
            Fault::Package(package, kind) => self.registers[package].refuses = kind,
            Fault::Throttle(kind) => self.frequencies().refuses = kind,
            Fault::Meter(kind) => self.frequencies().blind = kind,
            Fault::SlowPackage(package, delay) => self.registers[package].delay = delay,
            Fault::SlowThrottle(delay) => self.frequencies().delay = delay,
            Fault::Desired(now) => *desired = now,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_node_that_is_held_stays_held_and_heals(
        silent_packages in any::<bool>(),
        throttle_only in any::<bool>(),
        faults in proptest::collection::vec((any_fault(), 1_u64..12), 0..25),
    ) {
        let facts = if silent_packages { silent(true) } else { package() };
        let mut node = Node::new(&[facts, facts]);
        if throttle_only {
            node.law.preference = BackendPreference::ThrottleOnly;
        }
        let mut desired = watts(100);
        let mut was_held = false;
        for (fault, ticks) in &faults {
            node.suffer(fault, &mut desired);
            for _ in 0..*ticks {
                let decision = node.step(desired);
                prop_assert_eq!(decision.route, Route::Host);
                prop_assert!(node.is_held() || !was_held, "let go at tick {}: {:#?}", node.tick, node.log);
                was_held = node.is_held();
            }
        }
        // Heal everything: the best backend takes over, and the other one is released.
        for package in 0..2 {
            node.suffer(&Fault::Package(package, None), &mut desired);
            node.suffer(&Fault::SlowPackage(package, 0), &mut desired);
        }
        for fault in [Fault::Throttle(None), Fault::Meter(None), Fault::SlowThrottle(0)] {
            node.suffer(&fault, &mut desired);
        }
        let decision = node.steps(80, watts(100));
        prop_assert_eq!(decision.status.report, applied(200));
        let limits = node.registers.iter().map(|register| register.limit).collect::<Vec<_>>();
        if throttle_only {
            prop_assert_eq!((decision.mode, limits), (Backend::Dvfs, vec![None; 2]));
        } else {
            prop_assert_eq!((decision.mode, limits), (Backend::Rapl, vec![Some(w(100)); 2]));
            prop_assert_eq!(node.frequencies().by, None);
        }
    }

    #[test]
    fn whatever_is_told_is_answered(
        limit in any::<i64>(), seen in any::<i64>(), now in proptest::collection::vec(any::<u64>(), 1..12),
        desired in any::<i64>(),
    ) {
        let mut mode = Mode::start(Route::Host, true);
        let mut packages = [Package::adopted(package()), Package::untouched(silent(true))];
        for (i, now) in now.into_iter().enumerate() {
            for package in &mut packages {
                let outcome = match package.order() {
                    LimitOrder::Set(_) => LimitOutcome::Set {
                        ticket: package.limiter().ticket(), read_back: Ok(Watts::from_bits(limit)),
                    },
                    LimitOrder::Leave | LimitOrder::Release => LimitOutcome::Unknown,
                };
                let read = Stamp::new(Micros::new(now.wrapping_add(seen.unsigned_abs() % 3)));
                let seen = LimitReading::At { limit: Watts::from_bits(seen), read };
                package.facts.limit = LimitFacts { outcome, seen };
            }
            let intent = CapIntent::of_watts(Watts::from_bits(desired.wrapping_mul(i as i64)));
            let facts = Facts {
                now: Stamp::new(Micros::new(now)),
                desired: DesiredCap::Cap(intent),
                throttle: Some(ThrottleOutcome::Unknown),
                has_meter: true,
                beyond: w(0),
            };
            let decision = law().step(&mut mode, &mut packages, &facts);
            if let ThrottleOrder::RunLoop { cap } = decision.throttle {
                prop_assert!(cap > Watts::ZERO);
            }
            for package in &packages {
                if let LimitOrder::Set(limit) = package.order() {
                    prop_assert!(limit >= CAP_LEAST);
                }
            }
        }
    }
}

#[test]
fn a_late_answer_to_an_earlier_throttle_confirms_no_later_one_of_the_same_share() {
    let mut node = Node::new(&[silent(false)]);
    node.frequencies().delay = 1_000;
    let first = node.step(percent(60)).ticket;
    node.steps(PATIENCE + 1, percent(60));
    assert_eq!(node.step(percent(80)).throttle, ThrottleOrder::Set(ThrottlePercent::new(20).unwrap()));
    node.steps(PATIENCE + 1, percent(80));
    let third = node.step(percent(60));
    assert_eq!(third.throttle, throttled_by_40());
    let mut learn = |ticket| {
        let outcome = Some(ThrottleOutcome::Fixed { ticket, outcome: Ok(()) });
        let facts = Facts {
            now: at(node.tick),
            desired: percent(60),
            throttle: outcome,
            has_meter: true,
            beyond: w(0),
        };
        node.law.step(&mut node.mode, &mut node.packages, &facts).status.report
    };
    assert_eq!(learn(first), CapReport::Pending, "confirmed by the first");
    assert_eq!(learn(third.ticket), CapReport::Throttled(forty()));
}

#[test]
fn what_a_loop_of_before_says_is_not_of_the_loop_that_runs() {
    let mut node = Node::new(&[silent(false)]);
    let first = node.step(watts(100)).ticket;
    node.steps(3, percent(60));
    assert_eq!(node.step(watts(100)).throttle, ThrottleOrder::RunLoop { cap: w(100) });
    let bound = Ok(Regulation::AtBound { drawn: w(130) });
    let outcome = Some(ThrottleOutcome::Loop { ticket: first, outcome: bound });
    let facts =
        Facts { now: at(node.tick), desired: watts(100), throttle: outcome, has_meter: true, beyond: w(0) };
    node.law.step(&mut node.mode, &mut node.packages, &facts);
    assert_eq!(node.mode.regulation, Regulation::Keeping);
    assert!(matches!(node.mode.throttle(), Actuation::Pending { .. }), "{:?}", node.mode);
}

fn granted(packages: &[PackageFacts], most: i32) -> Node {
    let mut node = Node::new(packages);
    node.packages.iter_mut().for_each(|package| package.grant(None, Some(w(most))));
    node
}

#[test]
fn a_grant_holds_whatever_is_desired_and_the_policy_where_that_is_less() {
    for (desired, cap) in [
        (percent(100), 150),
        (watts(120), 120),
        (watts(0), 150),
        (DesiredCap::Gone, 150),
        (DesiredCap::Cap(CapIntent::NONE), 150),
        (DesiredCap::Unknown, 150),
    ] {
        let mut node = granted(&[package(); 2], 150);
        let decision = node.steps(3, desired);
        assert_eq!([node.registers[0].limit, node.registers[1].limit], [Some(w(cap)); 2], "{desired:?}");
        assert_eq!(decision.node_cap, Some(w(2 * cap)));
        assert!(matches!(decision.status.report, CapReport::Cap(_)), "{desired:?}: {:?}", decision.status);
    }
    let mut node = granted(&[package()], 10);
    node.steps(3, DesiredCap::Gone);
    assert_eq!(node.registers[0].limit, Some(w(50)), "never below what the device takes");
    let mut node = granted(&[silent(true)], 150);
    node.steps(3, percent(60));
    assert_eq!(node.registers[0].limit, Some(w(150)), "a percentage of nobody knows what");
}

#[test]
fn under_a_grant_an_unknown_desire_raises_nothing() {
    let mut node = granted(&[package()], 150);
    node.registers[0].limit = Some(w(100));
    node.steps(4, DesiredCap::Unknown);
    assert_eq!(node.registers[0].limit, Some(w(100)), "as found, which is less");
    node.packages[0].grant(None, Some(w(80)));
    node.steps(4, DesiredCap::Unknown);
    assert_eq!(node.registers[0].limit, Some(w(80)));
    node.packages[0].grant(None, Some(w(200)));
    node.registers[0].hidden = Some(LimitReading::Unread(ErrorKind::Timeout));
    node.steps(2, DesiredCap::Unknown);
    assert_eq!(node.registers[0].limit, Some(w(80)), "nor while nobody sees it");
}

#[test]
fn only_without_a_grant_the_originals_come_back() {
    let mut node = granted(&[package()], 150);
    node.steps(5, DesiredCap::Gone);
    assert!(node.is_held());
    node.packages[0].grant(None, None);
    let decision = node.steps(3, DesiredCap::Gone);
    assert_eq!((node.registers[0].limit, decision.status.report), (None, CapReport::NoIntent));
}

#[test]
fn a_package_without_a_limit_is_held_to_its_grant_by_the_loop() {
    let mut node = granted(&[PackageFacts { has_limit: false, ..package() }; 2], 120);
    node.steps(3, DesiredCap::Gone);
    assert_eq!(node.frequencies().by, Some(Throttling::Loop));
    assert_eq!(node.log.last().unwrap().1, Given::Throttle(ThrottleOrder::RunLoop { cap: w(240) }));
}

#[test]
fn under_a_grant_orders_that_were_lost_do_not_make_the_loop_count_as_the_limit() {
    // The number of orders for the limit until a result is reported.
    let orders = |kind, share: Option<Watts>| {
        let mut node = Node::new(&[package()]);
        node.packages[0].grant(share, share);
        node.registers[0].refuses = Some(kind);
        let told = |node: &mut Node| matches!(node.step(watts(120)).status.report, CapReport::Cap(_));
        assert!((0..10_000).any(|_| told(&mut node)), "{kind:?} {share:?}");
        node.log.iter().filter(|(_, given)| matches!(given, Given::Limit(0, LimitOrder::Set(_)))).count()
    };
    let share = Some(w(120));
    assert_eq!([ErrorKind::Timeout, ErrorKind::Io].map(|kind| orders(kind, share)), [8, 8]);
    assert_eq!([ErrorKind::Timeout, ErrorKind::Io].map(|kind| orders(kind, None)), [1, 1], "without a grant");
    assert_eq!(orders(ErrorKind::Locked, share), 1, "the device has said no");
}
