//! GPUs behind a library.

use crate::test_machine::TestMachine;
use joulie_core::node::cap::{CapIntent, CapReport, CapResult, DesiredCap};
use node_kit::{BackendKind, Config, Desire, DeviceValue, HardwareSources};
use nvml_stub::{StubGpu, StubMachine};
use plant::Load;
use power_units::{Percent, Watts};
use std::collections::BTreeMap;

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

#[test]
fn each_gpu_is_capped_by_its_own_range_and_gets_its_own_limit_back() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let folder = room.beside("gpus");
    let gpus = StubMachine::at(&folder);
    let library = gpus.library().unwrap();
    gpus.put("driver", "570.86.16").unwrap();
    for (name, card) in ["a", "b"].into_iter().zip(&CARDS) {
        gpus.add(name, card).unwrap();
    }
    let config = room.config();
    let sources = HardwareSources { nvml: Some(library), ..config.sources.clone() };
    let mut node = room.open(Config { sources, ..config });
    room.periods(&mut node, 2);
    assert_eq!(node.report().gpus.len(), 2);
    let cap = |intent| Desire { gpu: DesiredCap::Cap(intent), ..Desire::UNKNOWN };
    // 60 % of 700 W and of 400 W.
    node.handle().desire(cap(CapIntent::of_percent(Percent::from_int(60))));
    room.periods(&mut node, 1);
    let effective = Watts::from_int(420 + 240);
    assert_eq!(node.report().gpu.unwrap().report, CapReport::Cap(CapResult::Applied { effective }));
    let limits: Vec<_> = node.report().gpus.iter().map(|gpu| (gpu.limit, gpu.ours)).collect();
    assert_eq!(limits, [(Some(Watts::from_int(420)), true), (Some(Watts::from_int(240)), true)]);
    // 500 W are more than the second accepts.
    node.handle().desire(cap(CapIntent::of_watts(Watts::from_int(500))));
    room.periods(&mut node, 1);
    let (requested, effective) = (Watts::from_int(1_000), Watts::from_int(900));
    let clamped = CapReport::Cap(CapResult::Clamped { requested, effective });
    assert_eq!(node.report().gpu.unwrap().report, clamped);
    node.handle().desire(Desire { gpu: DesiredCap::Gone, ..Desire::UNKNOWN });
    room.periods(&mut node, 2);
    let limits: Vec<_> = node.report().gpus.iter().map(|gpu| gpu.limit).collect();
    assert_eq!(limits, [Some(Watts::from_int(700)), Some(Watts::from_int(400))]);
    assert!(node.journal().is_empty());
}

#[test]
fn who_uses_a_gpu_is_told_where_that_is_asked_for() {
    for tells_uses in [false, true] {
        let Some(room) = TestMachine::profile("xeon-2s") else { return };
        let gpus = StubMachine::at(room.beside("gpus"));
        let library = gpus.library().unwrap();
        gpus.put("driver", "570.86.16").unwrap();
        gpus.add("a", &CARDS[0]).unwrap();
        gpus.put("gpus/a/processes", "1000 4711 10 0 0 0").unwrap();
        let config = room.config();
        let sources = HardwareSources { nvml: Some(library), ..config.sources.clone() };
        let mut node = room.open(Config { sources, tells_uses, ..config });
        room.periods(&mut node, 1);
        gpus.put("gpus/a/processes", "2000 4711 60 0 0 0").unwrap();
        room.periods(&mut node, 1);
        let told = node.report().backends.iter().find(|one| one.kind == BackendKind::Nvidia).unwrap();
        assert_eq!(told.uses.is_some(), tells_uses);
        if let Some([one]) = told.uses.as_deref() {
            assert_eq!(one.key.as_str(), "gpu-11111111-0b1c-4d7e-9a55-0123456789ab");
            // The virtual machine has no such process.
            assert_eq!(one.groups, BTreeMap::from([(None, 60)]));
        } else {
            assert!(!tells_uses, "one card: {:?}", told.uses);
        }
    }
}

/// The plant's own counter says how long its limiter holds a GPU back.
#[test]
fn a_report_says_what_a_gpu_reports_and_in_which_part_of_the_time_its_limit_bites() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    room.machine.lock().plant().set_gpu_load(0, Load::busy(0.5)).unwrap();
    let mut node = room.open(room.config());
    room.periods(&mut node, 1);
    let throttled = |node: &node_kit::OpenNode| node.report().gpus[0].state.throttled;
    assert!(matches!(throttled(&node), DeviceValue::Unknown(_)), "one reading of a counter says nothing");
    room.periods(&mut node, 2);
    assert_eq!(throttled(&node), DeviceValue::Is(Percent::ZERO), "750 W are enough for it");
    let cap = CapIntent::of_watts(Watts::from_int(350));
    node.handle().desire(Desire { gpu: DesiredCap::Cap(cap), ..Desire::UNKNOWN });
    room.periods(&mut node, 4);
    assert_eq!(throttled(&node), DeviceValue::Is(Percent::HUNDRED));
    let state = node.report().gpus[0].state;
    assert_eq!(state.utilisation, DeviceValue::Is(Percent::from_int(50)));
    assert!(state.temperature.known().is_some() && state.memory.known().is_some());
    assert_eq!(state.slowdowns, DeviceValue::Lacking, "its table counts, and shows no instant");
    // While its backend does not answer, what it said before is not repeated for ever.
    room.machine.lock().change(|_, _, hwmons| hwmons.iter_mut().for_each(|slot| slot.present = false));
    room.periods(&mut node, 4);
    assert_eq!(
        node.report().gpus[0].state,
        node_kit::DeviceState::default(),
        "and what is gone reports nothing"
    );
}
