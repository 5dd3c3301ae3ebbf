//! Drivers that disappear and return.

use crate::test_machine::{TestMachine, watts};
use joulie_core::node::cap::Backend;
use node_kit::Desire;
use power_units::Watts;

#[test]
fn a_driver_that_was_away_for_long_is_capped_again_within_two_periods() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 3);
    room.machine.lock().load_powercap(false);
    room.periods(&mut node, 20);
    room.machine.lock().load_powercap(true);
    room.periods(&mut node, 2);
    let machine = room.machine.lock();
    let packages = machine.zones().iter().filter(|slot| slot.zone.name.starts_with("package-"));
    let limits: Vec<_> = packages.map(|slot| slot.zone.in_force("long_term").map(|(uw, _)| uw)).collect();
    assert_eq!(limits, [Some(120_000_000); 2]);
}

#[test]
fn a_new_cap_that_no_limit_takes_while_the_meters_are_away_is_held_at_the_lowest_clock() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 3);
    room.machine.lock().load_powercap(false);
    room.periods(&mut node, 2);
    node.handle().desire(watts(100));
    room.periods(&mut node, 15);
    let machine = room.machine.lock();
    let fast = machine.policies().iter().filter(|policy| policy.user_max > *policy.hardware.start());
    assert_eq!(fast.count(), 0);
}

#[test]
fn a_policy_that_was_offline_at_the_release_gets_its_original_when_it_is_back() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 5);
    let limit = |at: usize| room.machine.lock().policies()[at].user_max;
    let original = *room.machine.lock().policies()[5].hardware.end();
    assert!(limit(5) < original);
    room.machine.lock().set_online(5, false);
    room.periods(&mut node, 1);
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 3);
    assert_eq!((limit(4), node.journal().len()), (original, 1));
    room.machine.lock().set_online(5, true);
    room.periods(&mut node, 3);
    assert_eq!((limit(5), node.journal().len()), (original, 0));
}

/// The socket's limit is in one driver and its meter in another. If it counted as two packages, the node would be
/// held to twice its cap.
#[test]
fn a_socket_whose_limit_goes_away_is_still_one_package() {
    let Some(room) = TestMachine::profile("epyc").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 3);
    let cap = |node: &node_kit::OpenNode| node.report().cpu.unwrap().node_cap;
    assert_eq!((node.report().packages.len(), cap(&node)), (2, Some(Watts::from_int(240))));
    for present in [false, true] {
        room.machine.lock().change(|_, _, sockets| {
            sockets.iter_mut().for_each(|socket| socket.present = present);
        });
        room.periods(&mut node, 12);
        assert_eq!(
            (node.report().packages.len(), cap(&node)),
            (2, Some(Watts::from_int(240))),
            "present: {present}"
        );
    }
    assert!(room.packages_draw() <= 245.0, "{}", room.packages_draw());
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 5);
    assert!(node.journal().is_empty(), "{:?}", node.journal().entries());
}

/// A node that draws more than the cap because its limit disappeared is held by the frequencies within two seconds,
/// and by its limit again when that is back.
#[test]
fn a_node_whose_limits_go_away_is_held_by_its_frequencies_until_they_are_back() {
    let Some(room) = TestMachine::profile("epyc").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 5);
    let present = |present: bool| {
        room.machine.lock().change(|_, _, sockets| {
            sockets.iter_mut().for_each(|socket| socket.present = present);
        });
    };
    present(false);
    // The limit disappears with its driver.
    room.periods(&mut node, 2);
    let mut worst: f64 = 0.0;
    for _ in 0..30 {
        room.periods(&mut node, 1);
        worst = worst.max(room.packages_draw());
    }
    assert!(worst <= 252.0, "{worst} W at a cap of 240 W");
    let mode = |node: &node_kit::OpenNode| node.report().cpu.unwrap().mode;
    assert_eq!(mode(&node), Backend::Dvfs);
    assert!(node.report().packages.iter().all(|package| package.limit.is_none()), "nobody knows it any more");
    present(true);
    // Found within a second, set, and seen in force for two.
    room.periods(&mut node, 6);
    assert_eq!(mode(&node), Backend::Rapl);
    let machine = room.machine.lock();
    let slowed = machine.policies().iter().filter(|policy| policy.user_max < *policy.hardware.end());
    assert_eq!(slowed.count(), 0, "the throttle is lifted");
    drop(machine);
    assert!(room.packages_draw() <= 252.0, "{} W", room.packages_draw());
}
