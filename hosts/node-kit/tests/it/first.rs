//! One cap, from the wish to the register and back.

use crate::room::{Room, watts};
use joulie_core::node::cap::{Backend, CapResult, Report as CapReport};
use node_kit::Desire;
use power_units::Watts;
use std::time::Duration;

#[test]
fn a_cap_is_in_the_register_and_its_original_comes_back() {
    let Some(room) = Room::profile("xeon-2s").map(Room::busy) else { return };
    let mut node = room.open(room.config());
    let handle = node.handle();
    room.periods(&mut node, 2);
    let before = std::fs::read_to_string(
        room.root().join("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"),
    )
    .unwrap();
    handle.desire(watts(120));
    room.periods(&mut node, 1);
    let decision = node.report().cpu.unwrap();
    assert_eq!(
        decision.status.report,
        CapReport::Cap(CapResult::Applied { effective: Watts::from_int(240) })
    );
    assert_eq!(decision.mode, Backend::Rapl);
    room.periods(&mut node, 5);
    assert!(room.drawn() < 240.0 * 1.05, "{}", room.drawn());
    handle.desire(Desire::GONE);
    room.periods(&mut node, 1);
    let after = std::fs::read_to_string(
        room.root().join("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"),
    )
    .unwrap();
    assert_eq!(before, after);
    assert!(node.journal().is_empty());
    assert!(node.restore(Duration::from_secs(1)).is_ok());
}

#[test]
fn tracking_holds_a_cap_without_a_power_limit() {
    let Some(room) = Room::profile("xeon-locked").map(Room::busy) else { return };
    let mut node = room.open(room.tracking());
    room.periods(&mut node, 2);
    println!("free {}", room.drawn());
    node.handle().desire(watts(120));
    for _ in 0..20 {
        room.periods(&mut node, 1);
        println!(
            "{:.1} {:?} {:?}",
            room.drawn(),
            node.report().cpu.unwrap().status,
            node.report().law.map(|l| (l.action, l.command))
        );
    }
}
