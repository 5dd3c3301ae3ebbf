//! Situations that may be mistaken: a backend that is late, an old reading, a refused write, a thread that hangs.

use crate::test_machine::{TestMachine, limits, watts};
use joulie_core::node::cap::{CapIntent, DesiredCap};
use node_kit::{Boot, Config, Desire, OpenError, OpenNode};
use power_units::{KiloHertz, Micros, Percent};
use rig::faults::{Direction, Effect, Fault};
use rig::machine::VirtualAttribute;
use std::time::Duration;

#[test]
fn a_cap_is_adopted_whichever_backend_lists_first() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let free = limits(&room);
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 2);
    drop(node);
    assert_ne!(limits(&room), free);
    room.machine.lock().faults().add(Fault {
        on: VirtualAttribute::Energy(0),
        direction: Direction::Read,
        effect: Effect::Takes(Duration::from_secs(2)),
        times: 1,
    });
    room.machine.lock().faults().add(Fault {
        on: VirtualAttribute::PowerLimit(0, 0),
        direction: Direction::Read,
        effect: Effect::Takes(Duration::from_secs(2)),
        times: 1,
    });
    let mut node = room.open(room.config());
    assert_eq!(node.restore(Duration::from_secs(20)), Ok(()));
    assert_eq!(limits(&room), free);
}

#[test]
fn changes_of_the_wish_put_no_later_period_off() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let config = Config { period: Micros::new(200_000), ..room.config() };
    let mut node = room.open(config);
    let handle = node.handle();
    let thread = std::thread::spawn(move || {
        node.run();
    });
    for n in 0..100 {
        handle.desire(watts(100 + n));
        room.rest();
    }
    let before = handle.report().counts.periods;
    for _ in 0..40 {
        room.rest();
    }
    let after = handle.report().counts.periods;
    handle.stop();
    thread.join().unwrap();
    assert!(after >= before + 8);
}

#[test]
fn a_disk_that_hangs_holds_up_no_period() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 1);
    let fifo = room.state().join("originals.json.new");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    node.handle().desire(watts(120));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..3 {
            node.period();
            tell.send(()).unwrap();
        }
        std::mem::forget(node);
    });
    let mut count = 0;
    while told.recv_timeout(Duration::from_secs(4)).is_ok() {
        count += 1;
        if count == 3 {
            break;
        }
    }
    // The thread that waits for a reader of the pipe continues.
    let _reader = std::fs::OpenOptions::new().read(true).write(true).open(&fifo);
    room.rest();
    assert_eq!(count, 3);
}

#[test]
fn a_closed_node_holds_its_lock_while_a_thread_of_it_is_in_a_driver() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 1);
    room.machine.lock().faults().add(Fault {
        on: VirtualAttribute::MaxFreq(0),
        direction: Direction::Read,
        effect: Effect::Takes(Duration::from_secs(5)),
        times: 1,
    });
    room.pass(Duration::from_secs(1));
    node.period();
    drop(node);
    let second = OpenNode::open_in(room.config(), room.time.clone(), Boot::new("boot-1").unwrap());
    let got = matches!(second, Err(OpenError::Lock(_)));
    drop(second);
    for _ in 0..100 {
        room.rest();
    }
    assert!(got, "the lock is free although a thread of its holder is in the driver");
}

#[test]
fn a_release_is_complete_when_the_file_says_so_too() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 2);
    std::fs::create_dir(room.state().join("originals.json.new")).unwrap();
    assert!(node.restore(Duration::from_secs(2)).is_err());
    std::fs::remove_dir(room.state().join("originals.json.new")).unwrap();
    assert_eq!(node.restore(Duration::from_secs(2)), Ok(()));
}

#[test]
fn a_reading_from_before_an_order_is_no_other_writer() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    node.handle().desire(watts(120));
    room.pass(Duration::from_secs(1));
    node.period();
    // The reading after the orders hangs, so the one before them is used for a while.
    let count = room.machine.lock().policies().len();
    for on in [VirtualAttribute::AvgFreq(count - 1), VirtualAttribute::CurFreq(count - 1)] {
        room.machine.lock().faults().add(Fault {
            on,
            direction: Direction::Read,
            effect: Effect::Takes(Duration::from_secs(3)),
            times: 4,
        });
    }
    for _ in 0..6 {
        room.pass(Duration::from_secs(1));
        node.period();
    }
    for _ in 0..400 {
        room.rest();
        node.settle();
        if !node.is_busy() && node.report().backends.iter().all(|b| b.stuck_since.is_none()) {
            break;
        }
    }
    assert_eq!(node.report().counts.moved, 0);
}

#[test]
fn a_refused_write_is_no_other_writer() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let count = room.machine.lock().policies().len();
    for at in 0..count {
        room.machine.lock().faults().add(Fault {
            on: VirtualAttribute::MaxFreq(at),
            direction: Direction::Write,
            effect: Effect::Fails(13),
            times: 1000,
        });
    }
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 10);
    assert_eq!(node.report().counts.moved, 0);
}

#[test]
fn a_loop_goes_on_after_a_restart_with_a_policy_offline() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 10);
    drop(node);
    let cpus: Vec<usize> = room.machine.lock().policies()[0].cpus.to_vec();
    for &cpu in &cpus {
        room.machine.lock().set_online(cpu, false);
    }
    let mut node = room.open(room.config());
    node.handle().desire(watts(200));
    room.periods(&mut node, 40);
    println!("limit {:?}", limits(&room).iter().rev().take(3).collect::<Vec<_>>());
    assert!(room.packages_draw() > 330.0);
}

#[test]
fn a_policy_that_was_offline_at_a_restart_gets_its_original_back() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let free = limits(&room);
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 8);
    drop(node);
    room.machine.lock().set_online(5, false);
    let mut node = room.open(room.config());
    node.handle().desire(watts(100));
    room.periods(&mut node, 8);
    room.machine.lock().set_online(5, true);
    node.handle().desire(Desire::GONE);
    // An enumeration of all hardware takes real time, which this clock does not count.
    for _ in 0..400 {
        if limits(&room) == free {
            break;
        }
        room.periods(&mut node, 5);
        room.rest();
    }
    assert_eq!(limits(&room), free);
}

/// A node without a meter is held by a fixed share.
#[test]
fn a_policy_that_was_offline_when_a_share_was_set_is_limited_when_it_is_back() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    room.machine.lock().boot_without_powercap();
    let last = room.machine.lock().policies().len() - 1;
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    room.machine.lock().set_online(last, false);
    let all = DesiredCap::Cap(CapIntent::of_percent(Percent::from_int(1)));
    node.handle().desire(Desire { cpu: all, ..Desire::UNKNOWN });
    room.periods(&mut node, 4);
    room.machine.lock().set_online(last, true);
    room.periods(&mut node, 4);
    let limits: Vec<_> = node.report().policies.iter().map(|policy| policy.limit).collect();
    let lowest = Some(KiloHertz::from_int(800_000));
    assert_eq!(limits.iter().filter(|limit| **limit != lowest).count(), 0, "{limits:?}");
}

/// While the journal cannot be written nothing is changed, and a limit that an administrator sets meanwhile is the
/// original.
#[test]
fn what_is_lowered_before_the_first_write_is_what_a_loop_may_rise_to() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    std::fs::create_dir(room.state().join("originals.json.new")).unwrap();
    node.handle().desire(watts(120));
    room.periods(&mut node, 3);
    room.machine.lock().change(|_, policies, _| policies[5].user_max = 1_200_000);
    let lowered = limits(&room);
    std::fs::remove_dir(room.state().join("originals.json.new")).unwrap();
    for _ in 0..6 {
        room.periods(&mut node, 1);
        let limit = room.machine.lock().policies()[5].user_max;
        assert!(limit <= 1_200_000, "{limit}");
    }
    assert!(!node.journal().is_empty());
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 3);
    assert_eq!(limits(&room), lowered);
}

/// A loop whose cap is far away writes nothing.
#[test]
fn what_is_lowered_while_a_loop_waits_is_what_it_may_rise_to() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(400));
    room.periods(&mut node, 4);
    assert!(node.report().law.is_some() && node.journal().is_empty());
    room.machine.lock().change(|_, policies, _| policies[5].user_max = 800_000);
    let lowered = limits(&room);
    room.periods(&mut node, 4);
    for cap in [120, 150] {
        node.handle().desire(watts(cap));
        for _ in 0..6 {
            room.periods(&mut node, 1);
            let limit = room.machine.lock().policies()[5].user_max;
            assert!(limit <= 800_000, "{limit} at {cap} W");
        }
    }
    assert!(!node.journal().is_empty());
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 3);
    assert_eq!(limits(&room), lowered);
}
