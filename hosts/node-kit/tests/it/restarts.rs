//! The state that survives the process: caps, and the originals that they replaced.

use crate::test_machine::{TestMachine, limits, watts};
use node_kit::{Boot, Desire, OpenError, OpenNode};
use rig::faults::{Direction, Effect, Fault};
use rig::machine::VirtualAttribute;
use std::time::Duration;

#[test]
fn a_cap_survives_a_restart_and_is_adopted() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let free = limits(&room);
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 2);
    let capped = limits(&room);
    assert_ne!(capped, free);
    drop(node);
    assert_eq!(limits(&room), capped, "the end of a process lifts no cap");
    let mut node = room.open(room.config());
    room.periods(&mut node, 5);
    assert_eq!(limits(&room), capped, "and what is not known to be gone stays");
    node.handle().desire(watts(150));
    room.periods(&mut node, 1);
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 1);
    assert_eq!(limits(&room), free, "the original is that from before the first process");
}

#[test]
fn a_throttle_survives_a_restart_and_the_loop_goes_on_from_it() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let free = limits(&room);
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 8);
    let held = room.drawn();
    assert!(held < 245.0);
    drop(node);
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    for _ in 0..6 {
        room.periods(&mut node, 1);
        assert!((room.drawn() - held).abs() < 240.0 * 0.03, "{} was {held}", room.drawn());
    }
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 3);
    assert_eq!(limits(&room), free);
}

/// An administrator's limit below the hardware's maximum is the upper end of a throttle, also after a
/// restart.
#[test]
fn a_loop_never_raises_a_policy_above_what_its_administrator_set() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    room.machine.lock().change(|_, policies, _| {
        for policy in policies.iter_mut() {
            policy.user_max = 2_000_000;
        }
    });
    for cap in [70, 1_000] {
        let mut node = room.open(room.config());
        node.handle().desire(watts(cap));
        room.periods(&mut node, 12);
        let highest = room.machine.lock().policies().iter().map(|policy| policy.user_max).max();
        assert!(highest <= Some(2_000_000), "{cap} W: {highest:?}");
    }
}

/// A limit that could not be read before the first order does not allow a rise to the hardware's maximum.
#[test]
fn a_limit_that_cannot_be_read_at_first_is_not_taken_for_none() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    room.machine.lock().change(|_, policies, _| {
        for policy in policies.iter_mut() {
            policy.user_max = 2_000_000;
        }
    });
    let count = room.machine.lock().policies().len();
    let mut node = room.open(room.config());
    for at in 0..count {
        let (on, direction) = (VirtualAttribute::MaxFreq(at), Direction::Read);
        room.machine.lock().faults().add(Fault { on, direction, effect: Effect::Fails(5), times: 4 });
    }
    node.handle().desire(watts(1_000));
    for _ in 0..12 {
        room.periods(&mut node, 1);
        let highest = room.machine.lock().policies().iter().map(|policy| policy.user_max).max();
        assert!(highest <= Some(2_000_000), "{highest:?}");
    }
}

#[test]
fn after_a_reboot_what_is_found_is_the_original() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 2);
    drop(node);
    let firmware = limits(&room);
    let mut node = OpenNode::open_in(room.config(), room.time.clone(), Boot::new("boot-2").unwrap()).unwrap();
    assert_eq!((node.journal().len(), node.journal().void()), (0, 2));
    assert!(!node.journal().is_behind());
    assert!(!room.journal().contains("package-0"), "the file does not hold what is void");
    node.handle().desire(watts(100));
    room.periods(&mut node, 3);
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 2);
    assert_eq!(limits(&room), firmware);
}

/// A limit that the firmware refuses is unchanged, and must not be restored by anyone.
#[test]
fn what_was_refused_leaves_no_original_behind() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 5);
    assert!(node.report().policies.iter().all(|policy| policy.asked.is_some()));
    assert!(node.report().packages.iter().all(|package| !package.ours), "{:?}", node.report().packages);
    assert!(!room.journal().contains("package"), "{}", room.journal());
}

#[test]
fn there_is_one_writer() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let node = room.open(room.config());
    let second = OpenNode::open_in(room.config(), room.time.clone(), Boot::new("boot-1").unwrap());
    assert!(matches!(second, Err(OpenError::Lock(_))));
    drop(node);
    room.open(room.config());
}

#[test]
fn without_its_journal_nothing_is_written() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let free = limits(&room);
    std::fs::create_dir_all(room.state()).unwrap();
    std::fs::write(room.state().join("originals.json"), "junk").unwrap();
    let refused = OpenNode::open_in(room.config(), room.time.clone(), Boot::new("boot-1").unwrap());
    assert!(matches!(refused, Err(OpenError::Journal(_))));
    std::fs::remove_file(room.state().join("originals.json")).unwrap();
    // A journal that cannot be written: a folder is in place of its file.
    std::fs::create_dir(room.state().join("originals.json.new")).unwrap();
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 3);
    assert_eq!(limits(&room), free);
    assert!(node.report().backends.iter().any(|backend| backend.troubles > 0));
    std::fs::remove_dir(room.state().join("originals.json.new")).unwrap();
    room.periods(&mut node, 10);
    assert_ne!(limits(&room), free, "it is tried again");
    assert_eq!(node.restore(Duration::from_secs(20)), Ok(()));
    assert_eq!(limits(&room), free);
}
