//! Hardware that misbehaves: it hangs, disappears, or is changed by others.

use crate::test_machine::{TestMachine, limits, watts};
use joulie_core::node::cap::Backend;
use node_kit::Desire;
use rig::faults::{Direction, Effect, Fault};
use rig::machine::VirtualAttribute;
use std::time::Duration;

/// A backend that hangs for minutes by the test's clock.
#[test]
fn a_backend_that_hangs_stops_nothing_else() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    room.machine.lock().faults().add(Fault {
        on: VirtualAttribute::MaxFreq(0),
        direction: Direction::Read,
        effect: Effect::Takes(Duration::from_secs(4)),
        times: 1,
    });
    room.pass(Duration::from_secs(1));
    node.period();
    for cap in [120, 110, 130] {
        node.handle().desire(watts(cap));
        room.pass(Duration::from_secs(60));
        node.period();
        node.settle_within(Duration::from_secs(2));
        let wanted = format!("{cap}000000");
        assert_eq!(room.read("sys/class/powercap/intel-rapl:2/constraint_0_power_limit_uw"), wanted);
        assert_eq!(node.report().cpu.unwrap().mode, Backend::Rapl);
    }
    let stuck: Vec<_> =
        node.report().backends.iter().filter(|backend| backend.stuck_since.is_some()).collect();
    assert_eq!(stuck.len(), 1, "{stuck:?}");
    assert!(node.report().counts.late > 0);
    // The call returns before the machine is unmounted. That it is still reported as stuck shows that nothing waited.
    for _ in 0..600 {
        room.rest();
        node.settle();
        if node.report().backends.iter().all(|backend| backend.stuck_since.is_none()) {
            return;
        }
    }
    panic!("{:?}", node.report().backends);
}

#[test]
fn a_zone_that_went_away_and_came_back_with_other_limits_is_capped_again() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let free = limits(&room);
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 3);
    let capped = limits(&room);
    room.machine.lock().load_powercap(false);
    room.periods(&mut node, 3);
    room.machine.lock().load_powercap(true);
    assert_ne!(limits(&room), capped, "the driver has switched its limits off");
    room.periods(&mut node, 70);
    assert_eq!(limits(&room), capped);
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 5);
    assert_eq!(limits(&room), free);
}

#[test]
fn somebody_else_who_raises_a_limit_is_counted_and_overruled() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 2);
    room.write("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "250000000");
    room.periods(&mut node, 2);
    assert_eq!(room.read("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"), "120000000");
    assert_eq!(node.report().counts.moved, 1);
}

/// Fix list agent S11 is about frequencies that another program sets: they are set back, and counted.
#[test]
fn somebody_else_who_raises_a_frequency_is_counted_and_overruled() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 8);
    let held = room.drawn();
    room.machine.lock().change(|_, policies, _| {
        for policy in policies.iter_mut() {
            policy.user_max = 3_200_000;
        }
    });
    room.pass(Duration::from_millis(100));
    assert!(room.drawn() > held);
    room.periods(&mut node, 4);
    assert!((room.drawn() - held).abs() < 5.0, "{} was {held}", room.drawn());
    assert!(node.report().counts.moved > 0);
}

#[test]
fn a_burst_of_errors_is_got_over() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    for direction in [Direction::Read, Direction::Write] {
        for on in
            [VirtualAttribute::Energy(0), VirtualAttribute::PowerLimit(0, 0), VirtualAttribute::MaxFreq(3)]
        {
            let effect = Effect::Fails(5);
            room.machine.lock().faults().add(Fault { on, direction, effect, times: 3 });
        }
    }
    node.handle().desire(watts(120));
    room.periods(&mut node, 20);
    assert_eq!(room.read("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"), "120000000");
    assert_eq!(node.report().cpu.unwrap().mode, Backend::Rapl, "and the throttle is gone again");
}
