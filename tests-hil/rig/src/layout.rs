//! The files of a machine: the layout of sysfs and /dev/cpu, as the drivers create it.

use crate::gpu_clock::{ClockFile, HwmonClock};
use crate::hwmon::{HwmonChip, IntelGpu};
use crate::library::{NVML, ROCM};
use crate::machine::{CpuLocation, GpuFile, HwmonSlot, PowerFile, RigMachine, VirtualAttribute};
use crate::nvidia::{self, CardFile};
use crate::rocm::{self, is_gpu};
use crate::tree::FileTree;

/// The folder of powercap's zones; the class folder contains only links, without subfolders.
const POWERCAP: &str = "sys/devices/virtual/powercap";
const POWERCAP_CLASS: &str = "sys/class/powercap";
const CPU: &str = "sys/devices/system/cpu";
/// The permission bits that the drivers use. Only root can read energy, because it can be used for a side-channel
/// attack.
const ROOT_ONLY: u16 = 0o400;
const READ: u16 = 0o444;
const WRITE: u16 = 0o644;

/// All files of a machine in its current state.
#[must_use]
pub(crate) fn files(machine: &RigMachine) -> FileTree {
    let mut tree = FileTree::new();
    tree.folder("dev/cpu");
    powercap(machine, &mut tree);
    cpufreq(machine, &mut tree);
    hwmon(machine, &mut tree);
    bus(machine, &mut tree);
    registers(machine, &mut tree);
    nvidia(machine, &mut tree);
    rocm(machine, &mut tree);
    tree
}

fn powercap(machine: &RigMachine, tree: &mut FileTree) {
    if !machine.powercap_loaded {
        return;
    }
    tree.folder(POWERCAP_CLASS);
    for (at, slot) in machine.zones.iter().enumerate().filter(|(_, slot)| slot.present) {
        let control_type = slot.control_type;
        let id = &slot.zone.id;
        let path = match slot.parent.map(|parent| &machine.zones[parent].zone.id) {
            Some(parent) => format!("{control_type}/{parent}/{id}"),
            None => format!("{control_type}/{id}"),
        };
        let folder = format!("{POWERCAP}/{path}");
        tree.text(&format!("{POWERCAP}/{control_type}/enabled"), "1\n");
        tree.link(
            &format!("{POWERCAP_CLASS}/{control_type}"),
            format!("../../devices/virtual/powercap/{control_type}"),
        );
        tree.link(&format!("{POWERCAP_CLASS}/{id}"), format!("../../devices/virtual/powercap/{path}"));
        tree.text(&format!("{folder}/name"), format!("{}\n", slot.zone.name));
        tree.text(
            &format!("{folder}/max_energy_range_uj"),
            format!("{}\n", slot.zone.units.energy_range_uj()),
        );
        tree.file(&format!("{folder}/energy_uj"), ROOT_ONLY, VirtualAttribute::Energy(at));
        tree.file(&format!("{folder}/enabled"), WRITE, VirtualAttribute::Enabled(at));
        tree.link(&format!("{folder}/subsystem"), "../../../../../class/powercap");
        for (number, constraint) in slot.zone.constraints.iter().enumerate() {
            let file = |what: &str| format!("{folder}/constraint_{number}_{what}");
            tree.text(&file("name"), format!("{}\n", constraint.name));
            tree.text(&file("max_power_uw"), format!("{}\n", constraint.max_uw));
            tree.file(&file("power_limit_uw"), WRITE, VirtualAttribute::PowerLimit(at, number));
            tree.file(&file("time_window_us"), WRITE, VirtualAttribute::TimeWindow(at, number));
        }
    }
}

fn cpufreq(machine: &RigMachine, tree: &mut FileTree) {
    for (at, policy) in machine.policies.iter().enumerate().filter(|(_, policy)| policy.present) {
        let first = policy.cpus.first().copied().unwrap_or(0);
        let folder = format!("{CPU}/cpufreq/policy{first}");
        let list =
            |cpus: &mut dyn Iterator<Item = &usize>| cpus.map(usize::to_string).collect::<Vec<_>>().join(" ");
        let mut text = |name: &str, value: String| {
            tree.file(
                &format!("{folder}/{name}"),
                READ,
                VirtualAttribute::PolicyText(at, format!("{value}\n")),
            );
        };
        text("related_cpus", list(&mut policy.cpus.iter()));
        text("affected_cpus", list(&mut policy.cpus.iter().filter(|cpu| !machine.offline.contains(cpu))));
        text("cpuinfo_min_freq", policy.hardware.start().to_string());
        text("cpuinfo_max_freq", policy.hardware.end().to_string());
        text("cpuinfo_transition_latency", "20000".into());
        text("scaling_driver", policy.driver.into());
        text("scaling_governor", "performance".into());
        if let Some(base) = policy.base {
            text("base_frequency", base.to_string());
        }
        if !policy.table.is_empty() {
            // The kernel ends every entry with a space.
            text("scaling_available_frequencies", policy.table.iter().map(|khz| format!("{khz} ")).collect());
            text("bios_limit", policy.hardware.end().to_string());
        }
        if policy.averages {
            tree.file(&format!("{folder}/cpuinfo_avg_freq"), READ, VirtualAttribute::AvgFreq(at));
        }
        tree.file(&format!("{folder}/scaling_max_freq"), WRITE, VirtualAttribute::MaxFreq(at));
        tree.file(&format!("{folder}/scaling_min_freq"), WRITE, VirtualAttribute::MinFreq(at));
        tree.file(&format!("{folder}/scaling_cur_freq"), READ, VirtualAttribute::CurFreq(at));
        for cpu in &policy.cpus {
            tree.link(&format!("{CPU}/cpu{cpu}/cpufreq"), format!("../cpufreq/policy{first}"));
        }
    }
    if machine.policies.iter().any(|policy| policy.present && policy.driver.starts_with("intel")) {
        tree.file(&format!("{CPU}/intel_pstate/no_turbo"), WRITE, VirtualAttribute::NoTurbo);
    }
    topology(machine, tree);
}

/// An offline processor has no topology and is not listed as a sibling.
fn topology(machine: &RigMachine, tree: &mut FileTree) {
    let online = |cpu: &usize| !machine.offline.contains(cpu);
    let dies = machine.dies();
    let die_id = |place: &CpuLocation| {
        let over_all = dies.iter().position(|&die| die == (place.package, place.die));
        if machine.dies_over_the_machine { over_all.unwrap_or(place.die) } else { place.die }
    };
    for (cpu, place) in machine.cpus.iter().enumerate().filter(|(cpu, _)| online(cpu)) {
        let folder = format!("{CPU}/cpu{cpu}/topology");
        let siblings = machine.cpus.iter().enumerate().filter(|(at, other)| *other == place && online(at));
        let list = siblings.map(|(at, _)| at.to_string()).collect::<Vec<_>>().join(",");
        tree.text(&format!("{folder}/physical_package_id"), format!("{}\n", place.package));
        tree.text(&format!("{folder}/die_id"), format!("{}\n", die_id(place)));
        tree.text(&format!("{folder}/core_id"), format!("{}\n", place.core));
        tree.text(&format!("{folder}/thread_siblings_list"), format!("{list}\n"));
    }
    if !machine.cpus.is_empty() {
        tree.text(&format!("{CPU}/online"), format!("{}\n", ranges((0..machine.cpus.len()).filter(online))));
        tree.text(&format!("{CPU}/possible"), format!("0-{}\n", machine.cpus.len() - 1));
    }
}

/// Ascending numbers in the kernel's list format: `0-3,8`.
fn ranges(numbers: impl Iterator<Item = usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

fn hwmon(machine: &RigMachine, tree: &mut FileTree) {
    tree.folder("sys/class/hwmon");
    if machine.hwmons.iter().any(|slot| slot.hwmon.device == HwmonChip::Hsmp) {
        tree.file("dev/hsmp", WRITE, VirtualAttribute::Hsmp);
    }
    let registered = |slot: &HwmonSlot| {
        slot.present && if is_gpu(slot) { machine.gpus_in_hwmon } else { machine.hsmp_in_hwmon }
    };
    for (at, slot) in machine.hwmons.iter().enumerate().filter(|(_, slot)| registered(slot)) {
        // The number is the first free one at probe time; only the device behind it is stable.
        let number = machine.hwmon_base + at;
        let folder = format!("{}/hwmon/hwmon{number}", slot.device_path);
        tree.link(&format!("sys/class/hwmon/hwmon{number}"), format!("../../../{folder}"));
        tree.link(&format!("{folder}/device"), "../..");
        tree.text(&format!("{folder}/name"), format!("{}\n", slot.name));
        if let HwmonChip::Intel(intel) = slot.hwmon.device {
            intel_gpu(at, intel, &folder, tree);
            intel_state(at, slot, &folder, tree);
            intel_clock(at, slot, tree);
            continue;
        }
        tree.text(&format!("{folder}/power1_label"), "PPT\n");
        tree.file(&format!("{folder}/power1_cap"), WRITE, VirtualAttribute::Cap(at));
        let reading = if slot.name == "amdgpu" { "power1_average" } else { "power1_input" };
        tree.file(&format!("{folder}/{reading}"), READ, VirtualAttribute::Power(at, PowerFile::Average));
        tree.file(&format!("{folder}/power1_cap_max"), READ, VirtualAttribute::Power(at, PowerFile::Max));
        if slot.name == "amdgpu" {
            amd_state(at, slot, &folder, tree);
            amd_clock(at, slot, &folder, tree);
            tree.file(&format!("{folder}/power1_cap_min"), READ, VirtualAttribute::Power(at, PowerFile::Min));
            tree.file(
                &format!("{folder}/power1_cap_default"),
                READ,
                VirtualAttribute::Power(at, PowerFile::Default),
            );
        }
    }
}

/// The files of i915 and xe for a GPU: the limit and the counter of its card or of its package.
fn intel_gpu(at: usize, intel: IntelGpu, folder: &str, tree: &mut FileTree) {
    let IntelGpu { limit, energy, .. } = intel;
    let label = |channel| if channel == 1 { "card\n" } else { "pkg\n" };
    tree.text(&format!("{folder}/power{limit}_label"), label(limit));
    tree.text(&format!("{folder}/energy{energy}_label"), label(energy));
    tree.file(&format!("{folder}/power{limit}_max"), WRITE, VirtualAttribute::Cap(at));
    tree.file(
        &format!("{folder}/power{limit}_rated_max"),
        READ,
        VirtualAttribute::Power(at, PowerFile::Rated),
    );
    tree.text(&format!("{folder}/power{limit}_max_interval"), "28000\n");
    tree.file(
        &format!("{folder}/energy{energy}_input"),
        READ,
        VirtualAttribute::Power(at, PowerFile::Energy),
    );
}

/// The files of amdgpu that report a GPU's state beside its power.
fn amd_state(at: usize, slot: &HwmonSlot, folder: &str, tree: &mut FileTree) {
    tree.text(&format!("{folder}/temp1_label"), "edge\n");
    tree.text(&format!("{folder}/temp2_label"), "junction\n");
    let device = &slot.device_path;
    for (path, file) in [
        (format!("{folder}/temp1_input"), GpuFile::Temperature),
        (format!("{folder}/temp2_input"), GpuFile::Temperature),
        (format!("{device}/gpu_busy_percent"), GpuFile::Busy),
        (format!("{device}/mem_info_vram_used"), GpuFile::MemoryUsed),
        (format!("{device}/mem_info_vram_total"), GpuFile::MemoryTotal),
    ] {
        tree.file(&path, READ, VirtualAttribute::GpuState(at, file));
    }
    tree.file(&format!("{device}/gpu_metrics"), READ, VirtualAttribute::GpuMetrics(at));
}

/// The files of amdgpu for the clock of an Instinct GPU.
fn amd_clock(at: usize, slot: &HwmonSlot, folder: &str, tree: &mut FileTree) {
    let Some(HwmonClock::Amd(_)) = &slot.hwmon.clock else { return };
    let device = &slot.device_path;
    for (path, mode, file) in [
        (format!("{device}/pp_od_clk_voltage"), WRITE, ClockFile::Table),
        (format!("{device}/power_dpm_force_performance_level"), WRITE, ClockFile::Level),
        (format!("{folder}/freq1_input"), READ, ClockFile::Running),
    ] {
        tree.file(&path, mode, VirtualAttribute::GpuClock(at, file));
    }
}

/// The files of i915 and xe for the clocks of a GPU. Where xe limits a package, its parts are on tiles of their own.
fn intel_clock(at: usize, slot: &HwmonSlot, tree: &mut FileTree) {
    let Some(HwmonClock::Intel(parts)) = &slot.hwmon.clock else { return };
    let (device, of_xe) = (&slot.device_path, slot.name == "xe");
    let tiled = matches!(slot.hwmon.device, HwmonChip::Intel(IntelGpu { limit: 2, .. }));
    for (number, part) in parts.iter().enumerate() {
        let folder = match (of_xe, tiled) {
            (true, true) => format!("{device}/tile{number}/gt0/freq0"),
            (true, false) => format!("{device}/tile0/gt{number}/freq0"),
            (false, _) => format!("{device}/drm/card0/gt/gt{number}"),
        };
        let names = if of_xe {
            ["min_freq", "max_freq", "rpn_freq", "rp0_freq", "act_freq"]
        } else {
            [
                "rps_min_freq_mhz",
                "rps_max_freq_mhz",
                "rps_RPn_freq_mhz",
                "rps_RP0_freq_mhz",
                "rps_act_freq_mhz",
            ]
        };
        let files = [
            (WRITE, ClockFile::Low(number)),
            (WRITE, ClockFile::High(number)),
            (READ, ClockFile::Least(number)),
            (READ, ClockFile::Most(number)),
            (READ, ClockFile::Actual(number)),
        ];
        for (name, (mode, file)) in names.into_iter().zip(files) {
            tree.file(&format!("{folder}/{name}"), mode, VirtualAttribute::GpuClock(at, file));
        }
        if part.boost.is_some() {
            let boost = VirtualAttribute::GpuClock(at, ClockFile::Boost(number));
            tree.file(&format!("{folder}/rps_boost_freq_mhz"), WRITE, boost);
        }
    }
}

/// The files of i915 and xe that report a GPU's state beside its power.
fn intel_state(at: usize, slot: &HwmonSlot, folder: &str, tree: &mut FileTree) {
    let device = &slot.device_path;
    let (sensor, causes) = if slot.name == "xe" {
        (2, format!("{device}/tile0/gt0/freq0/throttle/"))
    } else {
        (1, format!("{device}/drm/card0/gt/gt0/throttle_reason_"))
    };
    let reason = if slot.name == "xe" { "reason_" } else { "" };
    tree.file(
        &format!("{folder}/temp{sensor}_input"),
        READ,
        VirtualAttribute::GpuState(at, GpuFile::Temperature),
    );
    tree.file(&format!("{causes}status"), READ, VirtualAttribute::GpuState(at, GpuFile::Slowed));
    for (name, file) in [
        ("pl1", GpuFile::SlowedByPower),
        ("pl2", GpuFile::SlowedByNothing),
        ("pl4", GpuFile::SlowedByNothing),
        ("thermal", GpuFile::SlowedByHeat),
        ("prochot", GpuFile::SlowedByNothing),
        ("ratl", GpuFile::SlowedByNothing),
        ("vr_thermalert", GpuFile::SlowedByNothing),
        ("vr_tdc", GpuFile::SlowedByNothing),
    ] {
        tree.file(&format!("{causes}{reason}{name}"), READ, VirtualAttribute::GpuState(at, file));
    }
}

/// The GPUs on their bus, also if nothing else of them is visible.
fn bus(machine: &RigMachine, tree: &mut FileTree) {
    for (at, slot) in machine.hwmons.iter().enumerate().filter(|(_, slot)| slot.present && is_gpu(slot)) {
        let path = &slot.device_path;
        tree.file(&format!("{path}/power/runtime_status"), READ, VirtualAttribute::RuntimeStatus(at));
        if let Some((_, address)) = path.rsplit_once('/') {
            tree.link(&format!("sys/bus/pci/devices/{address}"), format!("../../../../{path}"));
        }
    }
}

/// The files for `nvml-stub`, and a link to the stub.
fn nvidia(machine: &RigMachine, tree: &mut FileTree) {
    if machine.nvidia.cards.is_empty() {
        return;
    }
    library(machine, tree, NVML, "nvml");
    tree.text("nvml/served", "");
    tree.text("nvml/driver", "570.86.16\n");
    tree.text("nvml/epoch", format!("{}\n", machine.nvidia.epoch));
    tree.text("nvml/order", machine.nvidia_order());
    for function in nvml_stub::OF_THE_MACHINE {
        tree.file(&format!("nvml/calls/{function}"), READ, VirtualAttribute::NvmlCall(None, function));
    }
    for (at, card) in machine.nvidia.cards.iter().enumerate().filter(|(_, card)| card.present) {
        let file = |name: &str| format!("nvml/gpus/{}/{name}", nvidia::folder(at));
        for (name, text) in [
            ("uuid", card.uuid.clone()),
            ("pci", card.pci.clone()),
            ("name", card.name.to_owned()),
            ("vram_mib", card.vram_mib.to_string()),
            ("min_mw", card.min_mw.to_string()),
            ("max_mw", card.max_mw.to_string()),
            ("default_mw", card.default_mw.to_string()),
            ("persistence", u8::from(card.persistent).to_string()),
            ("mig", "0".to_owned()),
            ("nvlink", card.nvlinks()),
        ] {
            tree.text(&file(name), format!("{text}\n"));
        }
        if let Some(limit) = card.out_of_band_mw {
            tree.text(&file("oob_mw"), format!("{limit}\n"));
        }
        for (name, mode, number) in [
            ("limit_mw", WRITE, CardFile::Limit),
            ("energy_mj", READ, CardFile::Energy),
            ("power_mw", READ, CardFile::Average),
            ("average_mw", READ, CardFile::Average),
            ("instant_mw", READ, CardFile::Instant),
            ("celsius", READ, CardFile::Celsius),
            ("busy_percent", READ, CardFile::Busy),
            ("reasons", READ, CardFile::Reasons),
            ("throttled_ns", READ, CardFile::Throttled),
            ("vram_used_mib", READ, CardFile::MemoryUsed),
        ] {
            tree.file(&file(name), mode, VirtualAttribute::Nvml(at, number));
        }
        if let Some([lowest, highest, step]) = card.clocks_mhz {
            tree.text(&file("clocks_mhz"), format!("{lowest} {highest} {step}\n"));
            tree.file(&file("lock_mhz"), WRITE, VirtualAttribute::Nvml(at, CardFile::Lock));
            tree.file(&file("clock_mhz"), READ, VirtualAttribute::Nvml(at, CardFile::Clock));
        }
        for function in nvml_stub::OF_A_CARD {
            tree.file(
                &file(&format!("calls/{function}")),
                READ,
                VirtualAttribute::NvmlCall(Some(at), function),
            );
        }
    }
}

/// The files for `rocm-stub`, and a link to the stub.
fn rocm(machine: &RigMachine, tree: &mut FileTree) {
    let order = machine.rocm_order();
    if order.is_empty() {
        return;
    }
    library(machine, tree, ROCM, "rocm");
    tree.text("rocm/served", "");
    tree.file("rocm/gpus/fail_init", READ, VirtualAttribute::RocmCall(None, "init"));
    for (index, at) in order.into_iter().enumerate() {
        let slot = &machine.hwmons[at];
        let file = |name: &str| format!("rocm/gpus/{index}/{name}");
        if let Some(id) = rocm::pci_id(&slot.device_path) {
            tree.text(&file("pci"), format!("{id}\n"));
        }
        for function in rocm_stub::FUNCTIONS {
            let call = VirtualAttribute::RocmCall(Some(at), function);
            tree.file(&file(&format!("fail_{function}")), READ, call);
        }
        if !slot.present {
            continue;
        }
        tree.file(&file("cap"), WRITE, VirtualAttribute::Cap(at));
        for (name, number) in [
            ("cap_min", PowerFile::Min),
            ("cap_max", PowerFile::Max),
            ("cap_default", PowerFile::Default),
            ("power", PowerFile::Average),
        ] {
            tree.file(&file(name), READ, VirtualAttribute::Power(at, number));
        }
        for (name, reading) in [
            ("temp", GpuFile::Temperature),
            ("busy", GpuFile::Busy),
            ("vram_used", GpuFile::MemoryUsed),
            ("vram_total", GpuFile::MemoryTotal),
        ] {
            tree.file(&file(name), READ, VirtualAttribute::GpuState(at, reading));
        }
    }
}

/// Links a library, which finds its folder beside it.
fn library(machine: &RigMachine, tree: &mut FileTree, name: &str, folder: &str) {
    if let Some(copies) = &machine.libraries {
        tree.link(&format!("lib/{name}"), copies.join(name).display().to_string());
        tree.link(&format!("lib/{folder}"), format!("../{folder}"));
    }
}

fn registers(machine: &RigMachine, tree: &mut FileTree) {
    if machine.msr.is_none() {
        return;
    }
    for cpu in 0..machine.cpus.len() {
        tree.file(&format!("dev/cpu/{cpu}/msr"), 0o600, VirtualAttribute::Msr(cpu));
    }
}
