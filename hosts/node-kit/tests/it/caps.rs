//! Caps from the desired state to the register and back, on every kind of machine.

use crate::test_machine::{TestMachine, limits, watts};
use joulie_core::node::cap::{Backend, Blocked, CapIntent, CapReport, CapResult, DesiredCap};
use joulie_core::node::energy::MeterReading;
use node_kit::{BackendKind, Config, Desire, NodeAccess};
use power_units::{Percent, Watts};
use rig::faults::{Direction, Effect, Fault};
use rig::machine::VirtualAttribute;
use std::time::Duration;

fn applied(watts: i32) -> CapReport {
    CapReport::Cap(CapResult::Applied { effective: Watts::from_int(watts) })
}

#[test]
fn a_cap_is_in_the_register_within_its_period_and_its_original_comes_back() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    let before = limits(&room);
    node.handle().desire(watts(120));
    // One period, and the readings within it.
    room.periods(&mut node, 1);
    let decision = node.report().cpu.unwrap();
    assert_eq!((decision.status.report, decision.mode), (applied(240), Backend::Rapl));
    assert_eq!(room.read("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"), "120000000");
    assert_eq!(room.read("sys/class/powercap/intel-rapl:2/constraint_0_power_limit_uw"), "120000000");
    room.periods(&mut node, 5);
    assert!(room.drawn() <= 240.01, "{}", room.drawn());
    assert!(node.report().packages.iter().all(|package| package.ours));
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 1);
    assert_eq!(limits(&room), before);
    assert!(node.journal().is_empty());
}

#[test]
fn what_the_packages_draw_is_what_the_plant_says() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 3);
    let Some(MeterReading::Fresh { watts, .. }) = node.report().power else {
        panic!("{:?}", node.report().power)
    };
    let measured = watts.to_bits() as f64 / 2_f64.powi(32);
    // Each reading of this clock adds a microsecond, and a few hundred lie between two samples.
    assert!((measured - room.drawn()).abs() < 0.5, "{measured} {}", room.drawn());
}

#[test]
fn a_percentage_is_one_of_each_package() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 1);
    // 60 % of the 250 W in the file max_power_uw.
    let half = DesiredCap::Cap(CapIntent::of_percent(Percent::from_int(60)));
    node.handle().desire(Desire { cpu: half, ..Desire::UNKNOWN });
    room.periods(&mut node, 1);
    assert_eq!(node.report().cpu.unwrap().status.report, applied(300));
}

#[test]
fn every_profile_holds_a_cap_by_the_backend_that_it_has() {
    for (profile, packages, backend) in [
        ("xeon-2s", 2, Backend::Rapl),
        ("xeon-2s-new", 2, Backend::Rapl),
        ("xeon-multi-die", 4, Backend::Rapl),
        ("xeon-locked", 2, Backend::Dvfs),
        ("xeon-tpmi", 2, Backend::Rapl),
        ("epyc", 2, Backend::Rapl),
        ("client", 1, Backend::Rapl),
    ] {
        let Some(room) = TestMachine::profile(profile).map(TestMachine::busy) else { return };
        let mut node = room.open(room.config());
        room.periods(&mut node, 2);
        assert_eq!(node.report().packages.len(), packages, "{profile}");
        let free = room.packages_draw();
        let before = limits(&room);
        let each = if profile == "client" { 20 } else { 120 };
        let cap = f64::from(each) * packages as f64;
        node.handle().desire(watts(each));
        room.periods(&mut node, 12);
        let decision = node.report().cpu.unwrap();
        assert_eq!(decision.mode, backend, "{profile}: {:?}", decision.status);
        assert_eq!(decision.status.report, applied(each * i32::try_from(packages).unwrap()), "{profile}");
        let drawn = room.packages_draw();
        assert!(cap < free && drawn <= cap * 1.02, "{profile}: {drawn} of {free}");
        node.handle().desire(Desire::GONE);
        room.periods(&mut node, 4);
        assert_eq!(limits(&room), before, "{profile}");
        assert!(node.journal().is_empty(), "{profile}: {:?}", node.journal().entries());
    }
}

#[test]
fn a_socket_takes_its_limit_from_one_backend_and_its_meter_from_another() {
    let Some(room) = TestMachine::profile("epyc").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    for package in &node.report().packages {
        assert_eq!(package.backend, Some(BackendKind::AmdSocket));
        assert!(matches!(package.power, MeterReading::Fresh { .. }), "{package:?}");
    }
}

/// A socket of EPYC has a power meter, which is a mean, and powercap counts the energy of its package.
#[test]
fn an_energy_counter_that_answers_goes_before_a_power_meter() {
    for silent in [false, true] {
        let Some(room) = TestMachine::profile("epyc").map(TestMachine::busy) else { return };
        if silent {
            room.machine.lock().faults().add(Fault {
                on: VirtualAttribute::Energy(0),
                direction: Direction::Read,
                effect: Effect::Fails(5),
                times: u32::MAX,
            });
        }
        let mut node = room.open(room.config());
        room.periods(&mut node, 3);
        let packages = &node.report().packages;
        let counted: Vec<bool> = packages.iter().map(|package| package.counter.is_some()).collect();
        assert_eq!(counted, [!silent, true]);
        assert!(
            packages.iter().all(|package| matches!(package.power, MeterReading::Fresh { .. })),
            "{packages:?}"
        );
    }
}

#[test]
fn who_only_looks_neither_locks_nor_writes() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(Config { access: NodeAccess::Look, ..room.config() });
    let mut other = room.open(Config { access: NodeAccess::Look, ..room.config() });
    let before = limits(&room);
    for node in [&mut node, &mut other] {
        node.handle().desire(watts(100));
        room.periods(node, 3);
        assert_eq!(node.report().counts.orders, 0);
    }
    assert_eq!(limits(&room), before);
    assert!(!room.state().exists());
}

#[test]
fn what_cannot_be_a_cap_is_refused_and_nothing_is_written() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    let before = limits(&room);
    for bad in [0, -5, i32::MIN] {
        node.handle().desire(watts(bad));
        room.periods(&mut node, 2);
        let report = node.report().cpu.unwrap().status.report;
        assert_eq!(report, CapReport::Cap(CapResult::Blocked(Blocked::NotPositive)), "{bad}");
    }
    assert_eq!(limits(&room), before);
    // Far too much is clamped to the range, and reported as clamped.
    node.handle().desire(watts(100_000));
    room.periods(&mut node, 1);
    let (requested, effective) = (Watts::from_int(200_000), Watts::from_int(500));
    let clamped = CapReport::Cap(CapResult::Clamped { requested, effective });
    assert_eq!(node.report().cpu.unwrap().status.report, clamped);
}

#[test]
fn restoring_puts_back_everything_whoever_set_it() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let free = limits(&room);
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 5);
    assert_ne!(limits(&room), free);
    drop(node);
    let mut node = room.open(room.config());
    assert!(!node.journal().is_empty());
    assert_eq!(node.restore(Duration::from_secs(20)), Ok(()));
    assert_eq!(limits(&room), free);
    assert_eq!(node.restore(Duration::from_secs(20)), Ok(()), "twice is harmless");
}

/// An administrator has set 150 W. A cap of 200 W neither lowers nor raises that.
#[test]
fn a_cap_above_what_an_administrator_has_set_raises_nothing() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let long = "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw";
    room.write(long, "150000000");
    let free = limits(&room);
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    for (cap, in_force) in [(200, "150000000"), (120, "120000000"), (200, "150000000")] {
        node.handle().desire(watts(cap));
        for _ in 0..3 {
            room.periods(&mut node, 1);
            let found: u64 = room.read(long).parse().unwrap();
            assert!(found <= 150_000_000, "{found} uW at a cap of {cap} W");
        }
        assert_eq!(room.read(long), in_force, "at a cap of {cap} W");
    }
    // The other package has its own limit of 250 W, so it accepts the cap as it is, and the node reports the sum.
    let clamped = CapResult::Clamped { requested: Watts::from_int(400), effective: Watts::from_int(350) };
    assert_eq!(node.report().cpu.unwrap().status.report, CapReport::Cap(clamped));
    drop(node);
    // A process that finds its own cap and the journal.
    let mut node = room.open(room.config());
    node.handle().desire(watts(220));
    room.periods(&mut node, 3);
    assert_eq!(room.read(long), "150000000");
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 3);
    assert_eq!(limits(&room), free);
}
