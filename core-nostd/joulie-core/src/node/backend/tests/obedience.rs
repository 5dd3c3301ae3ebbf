//! A limit that reads back and is not kept: the loop takes over, tries the limit, and gives the package back.

use super::*;
use crate::node::demand::ThrottleReading;

/// One tick in which each package draws this, as its limit lets it or as it does not.
fn tick_drawing(node: &mut Node, draws: impl Fn(&Register) -> i32, desired: DesiredCap) -> BackendDecision {
    for (package, register) in node.packages.iter_mut().zip(&node.registers) {
        let watts = Some(w(draws(register)));
        package.draws(DeviceDraw { watts, throttled: ThrottleReading::Lacking });
    }
    node.step(desired)
}

/// 150 W under a limit of 100 W that both packages ignore, for as long as it takes the loop to hold them.
fn disobeyed() -> Node {
    let mut node = Node::new(&[package(), package()]);
    for _ in 0..183 {
        let decision = tick_drawing(&mut node, |_| 150, watts(100));
        assert_ne!(decision.mode, Backend::Dvfs, "{}", node.tick);
    }
    for _ in 0..4 {
        tick_drawing(&mut node, |_| 100, watts(100));
    }
    node
}

#[test]
fn a_limit_that_is_read_back_and_not_kept_is_replaced_by_the_loop_and_stays_in_place() {
    let mut node = disobeyed();
    let decision = tick_drawing(&mut node, |_| 100, watts(100));
    assert_eq!(decision.status, status(Backend::Dvfs, applied(200)), "the sum of both");
    assert_eq!(decision.throttle, ThrottleOrder::RunLoop { cap: w(200) });
    assert!(node.packages.iter().all(Package::disobeys));
    assert!(node.registers.iter().all(|register| register.limit == Some(w(100))));
    // Nothing is lifted for a trial: no limit is ever above the cap, and the loop runs on.
    for _ in 0..600 {
        let decision = tick_drawing(&mut node, |_| 100, watts(100));
        assert_eq!(decision.mode, Backend::Dvfs);
        assert!(node.registers.iter().all(|register| register.limit <= Some(w(100))));
    }
    assert!(node.packages.iter().all(Package::disobeys), "the power never followed a trial");
    let trials: Vec<u64> = node
        .log
        .iter()
        .filter(|(_, given)| matches!(given, Given::Limit(0, LimitOrder::Set(watts)) if *watts < w(100)))
        .map(|&(tick, _)| tick)
        .collect();
    assert_eq!(trials.len(), 3, "after one, two and four minutes: {trials:?}");
}

#[test]
fn a_limit_that_bites_again_gets_the_node_back() {
    let mut node = disobeyed();
    // Mended: no more is drawn than the register says.
    let kept = |register: &Register| {
        let limit = register.limit.map_or(250, |limit| limit.to_bits() >> 32);
        i32::try_from(limit).unwrap().min(100)
    };
    let mut given_back = None;
    for _ in 0..120 {
        let decision = tick_drawing(&mut node, kept, watts(100));
        if decision.throttle == ThrottleOrder::Release {
            given_back.get_or_insert(node.tick);
            assert!(
                node.registers.iter().all(|register| register.limit == Some(w(100))),
                "before the loop ends"
            );
        }
    }
    assert!(given_back.is_some());
    let decision = tick_drawing(&mut node, kept, watts(100));
    assert_eq!(decision.status, status(Backend::Rapl, applied(200)));
    assert!(!node.packages.iter().any(Package::disobeys));
}

#[test]
fn under_a_grant_alone_a_trial_lowers_no_cap_for_good() {
    let mut node = Node::new(&[package(), package()]);
    for package in &mut node.packages {
        package.grant(Some(w(100)), Some(w(100)));
    }
    for tick in 0..400 {
        let draws = if tick < 190 { 150 } else { 95 };
        tick_drawing(&mut node, |_| draws, DesiredCap::Unknown);
    }
    assert!(node.packages.iter().all(Package::disobeys));
    let lowest = node.log.iter().filter_map(|(_, given)| match given {
        Given::Limit(_, LimitOrder::Set(watts)) => Some(*watts),
        Given::Limit(..) | Given::Throttle(_) => None,
    });
    let lowest = lowest.min().unwrap();
    assert!(lowest < w(100) && lowest >= w(80), "{lowest:?}");
    let decision = tick_drawing(&mut node, |_| 95, DesiredCap::Unknown);
    assert_eq!(decision.node_cap, Some(w(200)));
}
