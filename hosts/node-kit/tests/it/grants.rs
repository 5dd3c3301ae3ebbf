//! Grants: what packages and GPUs may be allowed together.

use crate::test_machine::{TestMachine, watts};
use joulie_core::node::cap::{CapIntent, CapReport, CapResult, DesiredCap};
use joulie_core::node::lease::{LeaseLaw, LeasePhase, OnExpiry};
use node_kit::{Config, Desire, HardwareSources, LeaseTerms, NodeGrant, NodeParts, OpenNode};
use nvml_stub::{StubGpu, StubMachine};
use power_units::{Micros, Percent, Watts};
use std::time::Duration;

fn w(count: i32) -> Watts {
    Watts::from_int(count)
}

fn granted(serial: u64, watts: i32, desire: Desire) -> Desire {
    Desire { grant: Some(NodeGrant { serial, watts: w(watts) }), ..desire }
}

/// The limits in force: of the packages, and of the GPUs.
fn limits(node: &OpenNode) -> (Vec<Watts>, Vec<Watts>) {
    let all = |devices: &[node_kit::DeviceReport]| devices.iter().map(|it| it.limit.unwrap()).collect();
    (all(&node.report().packages), all(&node.report().gpus))
}

fn sum(node: &OpenNode) -> Watts {
    let (packages, gpus) = limits(node);
    packages.into_iter().chain(gpus).fold(w(0), |sum, one| sum + one)
}

const CARDS: [StubGpu; 2] = [
    StubGpu {
        uuid: "GPU-11111111-0b1c-4d7e-9a55-0123456789ab",
        pci: "00000000:19:00.0",
        min_mw: 200_000,
        max_mw: 700_000,
        default_mw: 700_000,
    },
    StubGpu {
        uuid: "GPU-22222222-0b1c-4d7e-9a55-0123456789ab",
        pci: "00000000:C1:00.0",
        min_mw: 100_000,
        max_mw: 400_000,
        default_mw: 400_000,
    },
];

fn with_gpus(room: &TestMachine) -> Config {
    let gpus = StubMachine::at(room.beside("gpus"));
    let library = gpus.library().unwrap();
    gpus.put("driver", "570.86.16").unwrap();
    for (name, card) in ["a", "b"].into_iter().zip(&CARDS) {
        gpus.add(name, card).unwrap();
    }
    let config = room.config();
    let sources = HardwareSources { nvml: Some(library), ..config.sources.clone() };
    Config { sources, ..config }
}

#[test]
fn unlike_gpus_and_packages_share_a_grant_and_are_never_above_it_while_the_shares_turn_round() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let mut node = room.open(with_gpus(&room));
    room.periods(&mut node, 2);
    let before = limits(&node);
    node.handle().desire(granted(1, 1_000, Desire::GONE));
    room.periods(&mut node, 2);
    assert!(sum(&node) <= w(1_000) && sum(&node) > w(990), "{:?}", limits(&node));
    assert_eq!(node.report().desire.grant.map(|grant| grant.serial), Some(1));
    let shares = node.report().packages.iter().chain(&node.report().gpus).filter_map(|it| it.share);
    assert_eq!(shares.collect::<Vec<_>>(), [limits(&node).0, limits(&node).1].concat());
    assert!(matches!(node.report().gpu.unwrap().report, CapReport::Cap(CapResult::Applied { .. })));
    let low = |cpu: i32, gpu: i32| Desire {
        cpu: DesiredCap::Cap(CapIntent::of_percent(Percent::from_int(cpu))),
        gpu: DesiredCap::Cap(CapIntent::of_percent(Percent::from_int(gpu))),
        ..Desire::UNKNOWN
    };
    for (cpu, gpu) in [(100, 40), (40, 100), (100, 40)] {
        node.handle().desire(granted(1, 1_000, low(cpu, gpu)));
        room.pass(Duration::from_secs(1));
        node.period();
        for turn in 1..=500 {
            assert!(sum(&node) <= w(1_000), "{cpu} {gpu}: {:?}", limits(&node));
            node.settle_within(Duration::from_millis(20));
            if turn % 50 == 0 {
                if (limits(&node).0[0] == w(250)) == (cpu == 100) {
                    break;
                }
                room.pass(Duration::from_secs(1));
                node.period();
            }
        }
        let (packages, gpus) = limits(&node);
        assert_eq!(packages[0] == w(250), cpu == 100, "{packages:?} {gpus:?}");
    }
    // Without a grant the originals are restored, and not before.
    node.handle().desire(Desire::GONE);
    room.periods(&mut node, 2);
    assert_eq!(limits(&node), before);
    assert!(node.journal().is_empty());
}

#[test]
fn a_grant_lowers_what_is_not_known_and_raises_nothing() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 2);
    node.handle().desire(granted(1, 400, Desire::UNKNOWN));
    room.periods(&mut node, 2);
    assert_eq!(limits(&node).0, [w(120), w(120)], "as found, which is less");
    node.handle().desire(granted(2, 200, Desire::UNKNOWN));
    room.periods(&mut node, 2);
    assert_eq!(limits(&node).0, [w(100), w(100)]);
    node.handle().desire(granted(3, 400, Desire::UNKNOWN));
    room.periods(&mut node, 2);
    assert_eq!(limits(&node).0, [w(100), w(100)]);
}

#[test]
fn the_end_of_a_lease_brings_no_originals_back_while_a_grant_stands() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let term = Micros::new(10_000_000);
    let law = LeaseLaw::new(term, OnExpiry::Relax { delay: Micros::ZERO }).unwrap();
    let (safe_cpu, safe_gpu) = (CapIntent::NONE, CapIntent::NONE);
    let mut node = room.open(Config { lease: Some(LeaseTerms { law, safe_cpu, safe_gpu }), ..room.config() });
    node.handle().desire(granted(1, 400, watts(120)));
    room.periods(&mut node, 15);
    assert_eq!(node.report().lease.unwrap().0, LeasePhase::Relaxed);
    assert_eq!(limits(&node).0, [w(120), w(120)], "those of the policy under the grant hold");
}

#[test]
fn what_the_configuration_leaves_alone_counts_with_all_that_it_draws() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let config = Config { grants: NodeParts { cpu: false, gpu: true }, ..with_gpus(&room) };
    let mut node = room.open(config);
    room.periods(&mut node, 2);
    let before = limits(&node).0;
    // Of 1000 W the packages draw 500 at most, so 200 are left above the floors of 200 and 100 W: a quarter of 500 and
    // of 300 W.
    node.handle().desire(granted(1, 1_000, Desire::GONE));
    room.periods(&mut node, 2);
    assert_eq!(limits(&node), (before, vec![w(325), w(175)]));
}

#[test]
fn packages_without_a_limit_are_held_by_the_closed_loop() {
    let Some(room) = TestMachine::profile("xeon-locked").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    room.periods(&mut node, 2);
    let free = room.packages_draw();
    node.handle().desire(granted(1, 300, Desire::GONE));
    room.periods(&mut node, 12);
    assert_eq!(node.report().cpu.unwrap().node_cap, Some(w(300)));
    assert!(free > 300.0 && room.packages_draw() <= 306.0, "{} of {free}", room.packages_draw());
}
