//! A node's report of itself, and the floor that its configuration sets.

use crate::test_machine::{TestMachine, watts};
use joulie_core::node::energy::{Gap, MeterReading};
use node_kit::{Config, Desire};
use power_units::{KiloHertz, Micros, Role, Watts};

#[test]
fn a_report_names_the_wish_that_its_outcome_is_of() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 1);
    node.handle().desire(watts(120));
    assert_eq!(node.report().desire, Desire::UNKNOWN, "what no step has seen yet has no outcome");
    room.periods(&mut node, 1);
    assert_eq!(node.report().desire, watts(120));
    assert_eq!(node.handle().report().desire, watts(120), "and so says what is published");
}

#[test]
fn a_report_shows_what_the_counter_shows() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    assert_eq!(node.report().packages.len(), 2);
    for (zone, package) in [0, 2].into_iter().zip(&node.report().packages) {
        let counter: u64 =
            room.read(&format!("sys/class/powercap/intel-rapl:{zone}/energy_uj")).parse().unwrap();
        assert_eq!(
            package.energy.map(power_units::MicroJoules::get),
            Some(counter),
            "{}",
            package.key.as_str()
        );
    }
    room.machine.lock().load_powercap(false);
    room.periods(&mut node, 2);
    assert!(node.report().packages.iter().all(|package| package.energy.is_none()), "an old count is none");
}

#[test]
fn whoever_listens_is_told_after_each_step_and_the_last_word_is_stop() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(Config { period: Micros::new(100_000), ..room.config() });
    let handle = node.handle();
    handle.desire(watts(120));
    let mut told = Vec::new();
    node.run_telling(|report| {
        told.push((report.desire, report.counts.periods));
        if report.counts.periods >= 3 {
            handle.stop();
        }
    });
    assert!(told.iter().all(|(desire, _)| *desire == watts(120)), "{told:?}");
    assert!(told.is_sorted_by_key(|(_, periods)| *periods) && told[0].1 == 1, "{told:?}");
    assert_eq!(told.iter().filter(|(_, periods)| *periods >= 3).count(), 1, "after the stop nothing is told");
}

#[test]
fn no_throttle_goes_below_the_floor_of_the_configuration() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let floor = 1_600_000;
    let frequency_floor = Some(KiloHertz::from_int(floor));
    let mut node = room.open(Config { frequency_floor, ..room.config() });
    // Less than the machine's power at its lowest clock.
    node.handle().desire(watts(20));
    room.periods(&mut node, 12);
    let limits: Vec<u32> = room.machine.lock().policies().iter().map(|policy| policy.user_max).collect();
    assert!(limits.iter().all(|limit| *limit == floor.unsigned_abs()), "{limits:?}");
}

/// The rig's memory draws 12 hundredths of its package's power, in a counter of its own.
#[test]
fn the_memory_of_a_package_is_reported_beside_it_and_in_no_sum() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 6);
    let report = node.report();
    let watts = |reading: MeterReading| {
        let MeterReading::Fresh { watts, .. } = reading else { panic!("{reading:?}") };
        watts
    };
    let (mut packages, mut memory) = (Watts::ZERO, Watts::ZERO);
    for package in &report.packages {
        packages += watts(package.power);
        memory += watts(package.dram);
        assert!(package.dram_energy.is_some() && package.dram_energy != package.energy);
        assert_eq!(package.state, node_kit::DeviceState::default(), "powercap reports nothing else");
    }
    assert_eq!(watts(report.power.unwrap()), packages, "the memory is not in the sum");
    let part = memory.ratio_to(packages, Role::Nearest).unwrap().to_percent().round();
    assert_eq!(part, 12);
}

#[test]
fn a_machine_whose_memory_is_not_counted_has_no_memory_power() {
    let Some(room) = TestMachine::profile("epyc").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 3);
    assert!(!node.report().packages.is_empty());
    for package in &node.report().packages {
        assert_eq!((package.dram, package.dram_energy), (MeterReading::Missing(Gap::NoMeter), None));
    }
}
