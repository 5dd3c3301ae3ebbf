//! GPUs behind a library.

use crate::test_machine::TestMachine;
use joulie_core::node::cap::{CapIntent, CapReport, CapResult, DesiredCap};
use node_kit::{BackendKind, Config, Desire, DeviceValue, HardwareSources};
use nvml_stub::{StubGpu, StubMachine};
use plant::Load;
use power_units::{Percent, Watts};
use std::collections::BTreeMap;
use std::path::PathBuf;

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

/// A GPU of AMD at c1:00.0 in a plain folder, with a process of a pod that computes on it and draws with it.
fn amd_gpu_in_use(room: &TestMachine) {
    let device = "sys/devices/pci0000:c0/0000:c1:00.0";
    let own = "proc/4711";
    let [hwmon, node, kfd] = [
        "sys/class/hwmon/hwmon0",
        "sys/class/kfd/kfd/topology/nodes/1",
        "sys/class/kfd/kfd/proc/4711/stats_51234",
    ];
    for folder in [device, hwmon, node, kfd, &format!("{own}/fd"), &format!("{own}/fdinfo")] {
        std::fs::create_dir_all(room.root().join(folder)).unwrap();
    }
    let link = |to: PathBuf, at: String| std::os::unix::fs::symlink(to, room.root().join(at)).unwrap();
    link(room.root().join(device), format!("{hwmon}/device"));
    link("/dev/dri/renderD128".into(), format!("{own}/fd/3"));
    for (file, text) in [
        ("name", "amdgpu"),
        ("power1_average", "250000000"),
        ("power1_cap", "300000000"),
        ("power1_cap_min", "100000000"),
        ("power1_cap_max", "300000000"),
    ] {
        room.write(&format!("{hwmon}/{file}"), &format!("{text}\n"));
    }
    room.write(&format!("{node}/gpu_id"), "51234\n");
    // Device 0 of bus c1h.
    room.write(&format!("{node}/properties"), "simd_count 320\nsimd_per_cu 4\nlocation_id 49408\ndomain 0\n");
    room.write("sys/class/kfd/kfd/proc/4711/vram_51234", "4096\n");
    room.write(&format!("{kfd}/cu_occupancy"), "20\n");
    room.write(&format!("{own}/cgroup"), "0::/kubepods/podu1/c\n");
    drew(room, 1_000);
}

fn drew(room: &TestMachine, nanos: u64) {
    let text = format!(
        "drm-driver:\tamdgpu\ndrm-client-id:\t5\ndrm-pdev:\t0000:c1:00.0\ndrm-engine-gfx:\t{nanos} ns\n"
    );
    room.write("proc/4711/fdinfo/3", &text);
}

#[test]
fn who_uses_a_gpu_of_amd_is_told_by_the_kernels_files() {
    let room = TestMachine::folder();
    amd_gpu_in_use(&room);
    let mut node = room.open(Config { tells_uses: true, ..room.config() });
    room.periods(&mut node, 2);
    drew(&room, 300_001_000);
    room.periods(&mut node, 1);
    let told = node.report().backends.iter().find(|one| one.kind == BackendKind::AmdGpu).unwrap();
    let Some([one]) = told.uses.as_deref() else { panic!("one card: {:?}", told.uses) };
    assert_eq!(one.key.as_str(), "gpu-0000:c1:00.0");
    let groups: Vec<_> = one.groups.iter().map(|(group, used)| (group.as_deref(), *used)).collect();
    let [(Some("/kubepods/podu1/c"), used)] = groups[..] else { panic!("{groups:?}") };
    // 300 ms by the file, and 20 of 80 units for a second; the clock of the test adds microseconds.
    assert!((550_000_000..551_000_000).contains(&used), "{used}");
    // The driver refuses its list: anybody may compute on the card.
    room.write("sys/class/kfd/kfd/topology/nodes/1/gpu_id", "\n");
    room.periods(&mut node, 1);
    let told = node.report().backends.iter().find(|one| one.kind == BackendKind::AmdGpu).unwrap();
    assert_eq!(told.uses.as_deref().map(<[_]>::len), Some(0));
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
