//! Predefined machines, each with the difficulties of its kind.

use crate::cpufreq::VirtualPolicy;
use crate::gpu_clock::{AmdClock, HwmonClock, IntelGt};
use crate::hwmon::{HwmonChip, HwmonDevice, IntelGpu, Switch};
use crate::machine::{CpuLocation, Feeds, HwmonSlot, MachineParts, RigMachine, RigTime, ZoneSlot};
use crate::msr::Writes;
use crate::nvidia::NvidiaGpu;
use crate::powercap::{Constraint, RegisterLock, Units, Zone};
use plant::{Load, NodeSpec, Plant, PlantDomain, SpecError, preset};

/// Builds a machine on a clock.
pub type MachineBuilder = fn(RigTime) -> Result<RigMachine, SpecError>;

/// Every profile by name, with a description for people.
pub const PROFILES: [(&str, &str, MachineBuilder); 11] = [
    ("xeon-2s", "two packages with dram and psys zones, intel_pstate, msr", xeon_2s),
    (
        "xeon-2s-new",
        "as xeon-2s, on Linux 6.9 or later, which numbers dies over the machine, and with a short-term limit of 0 W that is off",
        xeon_2s_new,
    ),
    (
        "xeon-multi-die",
        "two packages of two dies, a zone for each die, numbered over the machine as since Linux 6.9",
        xeon_multi_die,
    ),
    ("xeon-locked", "as xeon-2s, but the BIOS has locked the package limits", xeon_locked),
    ("xeon-tpmi", "limits behind TPMI: 18-bit fields, a peak_power limit, no msr limits", xeon_tpmi),
    ("epyc", "energy counters without limits, HSMP sockets, acpi-cpufreq with a table", epyc),
    ("client", "core and uncore zones, an mmio twin of the package", client),
    (
        "mi300x",
        "an EPYC host under amd-pstate with two GPUs, one of them the secondary die of a module",
        mi300x,
    ),
    (
        "mi300x-smi",
        "two whole GPUs beside the secondary die, whose hwmon is hidden: ROCm SMI alone",
        mi300x_smi,
    ),
    (
        "max1550",
        "as xeon-2s, with three Intel GPUs of 600 W: by i915, by xe with its package's limit, by xe with a mailbox",
        max1550,
    ),
    ("gpu-2s8", "as xeon-2s, with eight NVIDIA GPUs of 200 to 700 W behind NVML", gpu_2s8),
];

/// The profile of that name.
#[must_use]
pub fn find(name: &str) -> Option<MachineBuilder> {
    PROFILES.iter().find(|(known, ..)| *known == name).map(|(.., build)| *build)
}

fn limit(name: &'static str, watts: u64, max_watts: u64, window_raw: u64) -> Constraint {
    let max_uw = max_watts * 1_000_000;
    Constraint { name, power_raw: watts * 8, window_raw, max_uw, enabled: true, clamps: true }
}

/// The limit, switched off with its clamp bit.
fn off(constraint: Constraint) -> Constraint {
    Constraint { enabled: false, clamps: false, ..constraint }
}

/// 28 s and 2.44 ms, as vendors ship them.
const LONG_WINDOW: u64 = 0x6e;
const SHORT_WINDOW: u64 = 0x01;

fn zone(id: String, name: String, units: Units, constraints: Vec<Constraint>) -> Zone {
    Zone { id, name, units, constraints, lock: RegisterLock::Open, enabled_is_hollow: false }
}

fn slot(zone: Zone, feeds: Feeds, parent: Option<usize>) -> ZoneSlot {
    ZoneSlot { zone, feeds, control_type: "intel-rapl", parent, present: true }
}

/// A package of a Xeon, and its dram zone below it.
fn xeon_package(zones: &mut Vec<ZoneSlot>, package: usize, number: usize) {
    let id = format!("intel-rapl:{number:x}");
    let limits = vec![limit("long_term", 250, 250, LONG_WINDOW), limit("short_term", 300, 500, SHORT_WINDOW)];
    let parent = zones.len();
    let package_zone = zone(id.clone(), format!("package-{package}"), Units::XEON, limits);
    zones.push(slot(package_zone, Feeds::Package(package), None));
    let dram = zone(
        format!("{id}:0"),
        "dram".into(),
        Units { energy_nj: 15_300, ..Units::XEON },
        vec![off(limit("long_term", 0, 41, LONG_WINDOW))],
    );
    zones.push(slot(dram, Feeds::Share(package, 12), Some(parent)));
}

fn psys(zones: &mut Vec<ZoneSlot>, number: usize) {
    let limits = vec![off(limit("long_term", 0, 0, LONG_WINDOW))];
    zones.push(slot(
        zone(format!("intel-rapl:{number:x}"), "psys".into(), Units::XEON, limits),
        Feeds::Platform,
        None,
    ));
}

fn places(packages: usize, cores: usize, threads: usize) -> Vec<CpuLocation> {
    let per_thread =
        (0..packages).flat_map(|package| (0..cores).map(move |core| CpuLocation { package, die: 0, core }));
    (0..threads).flat_map(|_| per_thread.clone()).collect()
}

/// One policy for each of the plant's, with the processors of its cores.
fn policies(plant: &Plant, cpus: &[CpuLocation], driver: &'static str, table: &[u32]) -> Vec<VirtualPolicy> {
    (0..plant.policies())
        .map(|at| {
            let (min, max) = plant.frequency_range(at).unwrap_or((0, 0));
            VirtualPolicy {
                cpus: processors(plant, cpus, at),
                driver,
                table: table.to_vec(),
                hardware: min..=max,
                user_max: max,
                user_min: min,
                others_max: u32::MAX,
                inactive: false,
                present: true,
                // The base clock is three quarters of a Xeon's highest clock.
                base: driver.starts_with("intel").then(|| max / 4 * 3),
                turbo_off: false,
                averages: false,
                late_reads: 0,
                coming: None,
            }
        })
        .collect()
}

/// Linux numbers the first threads of all cores before the second ones. If each thread has a policy, the numbers are
/// the same; if each core or package has one, the policy contains all threads of its cores.
fn processors(plant: &Plant, cpus: &[CpuLocation], policy: usize) -> Vec<usize> {
    if plant.policies() == cpus.len() {
        return vec![policy];
    }
    let cores = plant.cores_of(policy).unwrap_or(0..0);
    (0..cpus.len()).filter(|cpu| cores.contains(&(cpu % plant.cores()))).collect()
}

fn busy(spec: &NodeSpec) -> Result<Plant, SpecError> {
    let mut plant = Plant::new(spec, 1)?;
    let taken = plant.set_load(Load::busy(1.0));
    debug_assert!(taken.is_ok(), "a full load is a load");
    for gpu in 0..plant.gpus() {
        let taken = plant.set_gpu_load(gpu, Load::busy(1.0));
        debug_assert!(taken.is_ok(), "a full load is a load");
    }
    Ok(plant)
}

fn xeon_2s(clock: RigTime) -> Result<RigMachine, SpecError> {
    xeon(&preset::xeon_2s_per_thread(), clock)
}

fn gpu_2s8(clock: RigTime) -> Result<RigMachine, SpecError> {
    let spec = NodeSpec { gpus: vec![preset::h100_sxm(); 8], ..preset::xeon_2s_per_thread() };
    let mut machine = xeon(&spec, clock)?;
    machine.install_nvidia((0..8).map(NvidiaGpu::h100).collect());
    Ok(machine)
}

fn xeon(spec: &NodeSpec, clock: RigTime) -> Result<RigMachine, SpecError> {
    let plant = busy(spec)?;
    let mut zones = Vec::new();
    // The driver registers zones that are not below a package with the first package.
    xeon_package(&mut zones, 0, 0);
    xeon_package(&mut zones, 1, 2);
    psys(&mut zones, 1);
    let cpus = places(2, 32, 2);
    let policies = policies(&plant, &cpus, "intel_pstate", &[]);
    Ok(RigMachine::new(
        MachineParts { plant, zones, policies, hwmons: vec![], cpus, msr: Some(Writes::Pass) },
        clock,
    ))
}

fn xeon_2s_new(clock: RigTime) -> Result<RigMachine, SpecError> {
    let mut machine = xeon_2s(clock)?;
    machine.dies_over_the_machine = true;
    machine.change(|zones, _, _| {
        for slot in zones.iter_mut().filter(|slot| slot.zone.name.starts_with("package")) {
            slot.zone.constraints[1] = off(limit("short_term", 0, 500, SHORT_WINDOW));
        }
    });
    Ok(machine)
}

fn xeon_locked(clock: RigTime) -> Result<RigMachine, SpecError> {
    let mut machine = xeon_2s(clock)?;
    machine.change(|zones, _, _| {
        for slot in zones.iter_mut().filter(|slot| slot.zone.name.starts_with("package")) {
            slot.zone.lock = RegisterLock::WindowIgnored;
        }
    });
    Ok(machine)
}

fn xeon_multi_die(clock: RigTime) -> Result<RigMachine, SpecError> {
    let mut spec = preset::xeon_2s();
    // Four dies of 16 cores. The plant has no dies, so each die is a package of the plant.
    for package in &mut spec.packages {
        package.cores = 16;
        package.static_watts /= 2.0;
        package.dynamic_watts /= 2.0;
    }
    spec.packages = vec![spec.packages[0].clone(); 4];
    let plant = busy(&spec)?;
    let mut zones = Vec::new();
    for die in 0..4 {
        let limits =
            vec![limit("long_term", 125, 125, LONG_WINDOW), limit("short_term", 150, 250, SHORT_WINDOW)];
        let name = format!("package-{}-die-{die}", die / 2);
        zones.push(slot(
            zone(format!("intel-rapl:{die:x}"), name, Units::XEON, limits),
            Feeds::Package(die),
            None,
        ));
    }
    let cpus: Vec<CpuLocation> = places(4, 16, 1)
        .iter()
        .map(|at| CpuLocation { package: at.package / 2, die: at.package % 2, core: at.core })
        .collect();
    let policies = policies(&plant, &cpus, "intel_cpufreq", &[]);
    let mut machine =
        RigMachine::new(MachineParts { plant, zones, policies, hwmons: vec![], cpus, msr: None }, clock);
    machine.dies_over_the_machine = true;
    machine.settle();
    Ok(machine)
}

fn xeon_tpmi(clock: RigTime) -> Result<RigMachine, SpecError> {
    let mut machine = xeon_2s(clock)?;
    machine.change(|zones, policies, _| {
        for slot in zones.iter_mut().filter(|slot| slot.zone.name.starts_with("package")) {
            slot.zone.units = Units::TPMI;
            slot.zone.constraints.push(Constraint { window_raw: 0, ..limit("peak_power", 600, 600, 0) });
        }
        // The kernel of such a machine has the average frequency.
        policies.iter_mut().for_each(|policy| policy.averages = true);
    });
    machine.msr = None;
    Ok(machine)
}

fn epyc(clock: RigTime) -> Result<RigMachine, SpecError> {
    epyc_with(0, clock)
}

/// An EPYC with this many GPUs in the plant.
fn epyc_with(gpus: usize, clock: RigTime) -> Result<RigMachine, SpecError> {
    let plant = busy(&NodeSpec { gpus: vec![preset::mi300x(); gpus], ..preset::epyc_2s() })?;
    let mut zones = Vec::new();
    for package in 0..2 {
        let hollow = |zone: Zone| Zone { enabled_is_hollow: true, ..zone };
        let id = format!("intel-rapl:{package:x}");
        let parent = zones.len();
        let whole = hollow(zone(id.clone(), format!("package-{package}"), Units::EPYC, vec![]));
        zones.push(slot(whole, Feeds::Package(package), None));
        // The driver reads the counter of the lead processor's core here, which is only a fraction of the energy.
        let core = hollow(zone(format!("{id}:0"), "core".into(), Units::EPYC, vec![]));
        zones.push(slot(core, Feeds::Share(package, 1), Some(parent)));
    }
    let cores = plant.cores() / 2;
    let cpus = places(2, cores, 2);
    let (min, max) = plant.frequency_range(0).unwrap_or((0, 0));
    let table = [min, (min + max) / 2, max];
    let policies = policies(&plant, &cpus, "acpi-cpufreq", &table);
    let hwmons = (0..2).map(|socket| hsmp_socket(socket, 400)).collect();
    Ok(RigMachine::new(MachineParts { plant, zones, policies, hwmons, cpus, msr: None }, clock))
}

fn hsmp_socket(socket: usize, max_watts: u64) -> HwmonSlot {
    let max_uw = max_watts * 1_000_000;
    let hwmon = HwmonDevice {
        device: HwmonChip::Hsmp,
        cap_uw: max_uw,
        min_uw: 0,
        max_uw,
        default_uw: max_uw,
        out_of_band_uw: None,
        in_reset: false,
        silent: false,
        asleep: false,
        clock: None,
    };
    let device_path = format!("sys/devices/platform/amd_hsmp.{socket}");
    HwmonSlot {
        hwmon,
        name: "amd_hsmp_hwmon",
        device_path,
        feeds: PlantDomain::Package(socket),
        present: true,
    }
}

fn client(clock: RigTime) -> Result<RigMachine, SpecError> {
    let plant = busy(&preset::client())?;
    let limits = || vec![limit("long_term", 35, 28, LONG_WINDOW), limit("short_term", 60, 0, SHORT_WINDOW)];
    let mut zones = vec![slot(
        zone("intel-rapl:0".into(), "package-0".into(), Units::XEON, limits()),
        Feeds::Package(0),
        None,
    )];
    for (at, name, share) in [(0, "core", 70), (1, "uncore", 10)] {
        let part = zone(format!("intel-rapl:0:{at}"), name.into(), Units::XEON, vec![]);
        zones.push(slot(part, Feeds::Share(0, share), Some(0)));
    }
    psys(&mut zones, 1);
    let twin = zone("intel-rapl-mmio:0".into(), "package-0".into(), Units::XEON, limits());
    zones.push(ZoneSlot { control_type: "intel-rapl-mmio", ..slot(twin, Feeds::Package(0), None) });
    let cpus = places(1, plant.cores(), 2);
    let policies = policies(&plant, &cpus, "intel_pstate", &[]);
    Ok(RigMachine::new(
        MachineParts { plant, zones, policies, hwmons: vec![], cpus, msr: Some(Writes::Refused) },
        clock,
    ))
}

fn mi300x(clock: RigTime) -> Result<RigMachine, SpecError> {
    mi300x_with(1, clock)
}

fn mi300x_smi(clock: RigTime) -> Result<RigMachine, SpecError> {
    let mut machine = mi300x_with(2, clock)?;
    machine.mask_gpu_hwmon();
    Ok(machine)
}

/// This many whole GPUs. The first one has a secondary die, which the plant does not model: the first die of a module
/// measures and caps the whole module.
fn mi300x_with(whole: usize, clock: RigTime) -> Result<RigMachine, SpecError> {
    let mut machine = epyc_with(whole, clock)?;
    let gpu = |at: usize, feeds: usize, (min, max): (u64, u64)| HwmonSlot {
        hwmon: HwmonDevice {
            device: HwmonChip::Amdgpu { checks_min: true },
            cap_uw: max * 1_000_000,
            min_uw: min * 1_000_000,
            max_uw: max * 1_000_000,
            default_uw: max * 1_000_000,
            out_of_band_uw: None,
            in_reset: false,
            silent: false,
            asleep: false,
            // The secondary die has a clock of its own.
            clock: Some(HwmonClock::Amd(AmdClock::free((132, 2_100)))),
        },
        name: "amdgpu",
        device_path: format!("sys/devices/pci0000:00/0000:{:02x}:00.0", 0x0c + at),
        feeds: PlantDomain::Gpu(feeds),
        present: true,
    };
    machine.change(|_, policies, hwmons| {
        hwmons.extend([gpu(0, 0, (350, 750)), gpu(1, whole, (0, 0))]);
        hwmons.extend((1..whole).map(|at| gpu(at + 1, at, (350, 750))));
        for policy in policies {
            policy.driver = "amd-pstate-epp";
            policy.table.clear();
        }
    });
    Ok(machine)
}

fn max1550(clock: RigTime) -> Result<RigMachine, SpecError> {
    let spec = NodeSpec { gpus: vec![preset::max_1550(); 3], ..preset::xeon_2s_per_thread() };
    let mut machine = xeon(&spec, clock)?;
    let card = IntelGpu { limit: 1, energy: 1, mailbox: false, switch: Switch::Off, locked: false };
    // i915 and xe on a server begin with the highest clock as the lowest one; xe shows two tiles of one, and a card with a
    // part for media beside the main one.
    let server = |boosts| IntelGt::free((300, 1_600), true, boosts);
    let (main, media) =
        (IntelGt::free((400, 2_400), false, false), IntelGt::free((300, 1_500), false, false));
    let gpu = |at: usize, name: &'static str, intel: IntelGpu, parts: &[IntelGt]| HwmonSlot {
        hwmon: HwmonDevice {
            device: HwmonChip::Intel(intel),
            cap_uw: 600_000_000,
            // Data-centre cards do not report a minimum.
            min_uw: 0,
            max_uw: 600_000_000,
            default_uw: 600_000_000,
            out_of_band_uw: None,
            in_reset: false,
            silent: false,
            asleep: false,
            clock: Some(HwmonClock::Intel(parts.to_vec())),
        },
        name,
        device_path: format!("sys/devices/pci0000:00/0000:{:02x}:00.0", 0x4d + at),
        feeds: PlantDomain::Gpu(at),
        present: true,
    };
    machine.change(|_, _, hwmons| {
        hwmons.push(gpu(0, "i915", card, &[server(true)]));
        // Linux 6.8 to 6.15 show a Ponte Vecchio in this way: the limit of its package, and the counter of its card.
        let package = IntelGpu { limit: 2, switch: Switch::Nothing, ..card };
        hwmons.push(gpu(1, "xe", package, &[server(false), server(false)]));
        hwmons.push(gpu(2, "xe", IntelGpu { mailbox: true, ..card }, &[main, media]));
    });
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Shared, VirtualAttribute};
    use std::time::Duration;

    fn shared(name: &str) -> Shared {
        Shared::new(find(name).unwrap()(RigTime::Manual).unwrap())
    }

    fn attribute(machine: &Shared, path: &str) -> VirtualAttribute {
        match machine.lock().tree().get(path) {
            Some(crate::tree::TreeEntry::File(_, attribute)) => attribute.clone(),
            other => panic!("{path}: {other:?}"),
        }
    }

    fn read(machine: &Shared, path: &str) -> String {
        let attribute = attribute(machine, path);
        String::from_utf8(machine.read(&attribute, 0, 4096).unwrap()).unwrap()
    }

    #[test]
    fn every_profile_shows_zones_policies_and_links_that_lead_somewhere() {
        for (name, _, build) in PROFILES {
            let machine = build(RigTime::Manual).unwrap();
            let names: Vec<_> =
                machine.tree().children("sys/class/powercap").map(|(name, _)| name.to_owned()).collect();
            assert!(names.contains(&"intel-rapl:0".to_owned()), "{name}: {names:?}");
            assert!(
                machine.tree().get("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq").is_some(),
                "{name}"
            );
        }
    }

    #[test]
    fn every_policy_of_a_profile_has_processors_of_its_own() {
        for (name, _, build) in PROFILES {
            let machine = build(RigTime::Manual).unwrap();
            let mut all: Vec<usize> =
                machine.policies.iter().flat_map(|policy| policy.cpus.clone()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..machine.cpus.len()).collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn an_offline_processor_has_no_topology_and_a_policy_without_any_is_busy() {
        let machine = shared("xeon-2s");
        let cpu = "sys/devices/system/cpu";
        machine.lock().set_online(32 + 64 - 1, false);
        assert!(machine.lock().tree().get(&format!("{cpu}/cpu95/topology/core_id")).is_none());
        assert_eq!(read(&machine, &format!("{cpu}/online")), "0-94,96-127\n");
        assert_eq!(read(&machine, &format!("{cpu}/cpu31/topology/thread_siblings_list")), "31\n");
        let driver = attribute(&machine, &format!("{cpu}/cpufreq/policy95/scaling_driver"));
        assert_eq!(machine.read(&driver, 0, 64), Err(libc::EBUSY));
        machine.lock().set_online(95, true);
        assert_eq!(read(&machine, &format!("{cpu}/cpu31/topology/thread_siblings_list")), "31,95\n");
        assert_eq!(read(&machine, &format!("{cpu}/cpufreq/policy95/affected_cpus")), "95\n");
    }

    /// facts/kernel-in-the-loop.md: zones are registered as package-0, psys, package-1.
    #[test]
    fn psys_is_numbered_between_the_packages() {
        for name in ["xeon-2s", "xeon-2s-new", "xeon-locked", "xeon-tpmi", "gpu-2s8", "max1550"] {
            let machine = shared(name);
            let class = "sys/devices/virtual/powercap/intel-rapl";
            let names = [0, 1, 2].map(|at| read(&machine, &format!("{class}/intel-rapl:{at}/name")));
            assert_eq!(names, ["package-0\n", "psys\n", "package-1\n"], "{name}");
            assert_eq!(read(&machine, &format!("{class}/intel-rapl:2/intel-rapl:2:0/name")), "dram\n");
        }
    }

    /// facts/kernel-in-the-loop.md: two packages of one die show two die ids since Linux 6.9, and the second package's
    /// first die is the third of all.
    #[test]
    fn dies_are_numbered_over_the_machine_by_new_kernels() {
        let cpu = "sys/devices/system/cpu";
        let places = |name: &str, cpus: &[usize]| {
            let machine = shared(name);
            let of = |at: &usize| {
                ["physical_package_id", "die_id"]
                    .map(|file| read(&machine, &format!("{cpu}/cpu{at}/topology/{file}")))
            };
            cpus.iter().map(of).map(|ids| ids.concat()).collect::<Vec<_>>()
        };
        assert_eq!(places("xeon-2s", &[0, 32]), ["0\n0\n", "1\n0\n"]);
        assert_eq!(places("xeon-2s-new", &[0, 32]), ["0\n0\n", "1\n1\n"]);
        assert_eq!(places("xeon-multi-die", &[0, 16, 32, 48]), ["0\n0\n", "0\n1\n", "1\n2\n", "1\n3\n"]);
        let machine = shared("xeon-multi-die");
        let name = "sys/devices/virtual/powercap/intel-rapl/intel-rapl:2/name";
        assert_eq!(read(&machine, name), "package-1-die-2\n");
    }

    /// facts/kernel-in-the-loop.md: one switch controls both limits, and the power drops to its floor.
    #[test]
    fn a_short_term_limit_of_0_w_that_is_off_stops_the_package_once_it_is_switched_on() {
        let machine = shared("xeon-2s-new");
        let watts = || {
            machine.lock().advance(Duration::from_secs(20));
            machine.lock().plant().watts(PlantDomain::Package(0)).unwrap()
        };
        let free = watts();
        assert!((free - 250.0).abs() < 5.0, "{free}");
        let zone = "sys/devices/virtual/powercap/intel-rapl/intel-rapl:0";
        assert_eq!(read(&machine, &format!("{zone}/constraint_1_power_limit_uw")), "0\n");
        machine.write(&attribute(&machine, &format!("{zone}/enabled")), 0, b"1").unwrap();
        let stopped = watts();
        assert!(stopped < free / 2.0, "{stopped}");
    }

    /// The golden tables `offline-limits` and `online-enabled`, and the driver's behaviour in
    /// facts/kernel-in-the-loop.md.
    #[test]
    fn both_limits_are_off_after_the_driver_or_the_last_processor_was_away() {
        let register = |machine: &Shared, cpu: usize| {
            machine
                .read(&VirtualAttribute::Msr(cpu), 0x610, 8)
                .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        };
        let (on, away) = (0x0003_8960_00dd_87d0, 0x0002_0960_00dc_07d0);
        let machine = shared("xeon-2s");
        assert_eq!(register(&machine, 32), Ok(on));
        machine.lock().load_powercap(false);
        assert_eq!((register(&machine, 0), register(&machine, 32)), (Ok(away), Ok(away)));
        assert_eq!(machine.lock().plant().power_limit(1, plant::PowerLimitTerm::Short), None);
        machine.lock().load_powercap(true);
        let zone = "sys/devices/virtual/powercap/intel-rapl/intel-rapl:2";
        assert_eq!(read(&machine, &format!("{zone}/enabled")), "0\n");

        let machine = shared("xeon-2s");
        let second = (0..128).filter(|cpu| cpu % 64 / 32 == 1);
        second.clone().for_each(|cpu| machine.lock().set_online(cpu, false));
        assert!(
            machine.lock().tree().get(zone).is_none()
                && machine.lock().tree().get(&format!("{zone}/intel-rapl:2:0")).is_none()
        );
        assert_eq!((register(&machine, 0), register(&machine, 32)), (Ok(on), Err(libc::ENXIO)));
        second.for_each(|cpu| machine.lock().set_online(cpu, true));
        assert_eq!(read(&machine, &format!("{zone}/enabled")), "0\n");
        assert_eq!((register(&machine, 0), register(&machine, 32)), (Ok(on), Ok(away)));

        let machine = shared("xeon-2s");
        machine.lock().boot_without_powercap();
        assert_eq!(register(&machine, 0), Ok(on), "nobody has switched it off");
    }

    #[test]
    fn the_switch_of_turbo_lowers_what_policies_read() {
        let machine = shared("xeon-2s");
        let max = "sys/devices/system/cpu/cpufreq/policy5/scaling_max_freq";
        let switch = attribute(&machine, "sys/devices/system/cpu/intel_pstate/no_turbo");
        machine.write(&switch, 0, b"1").unwrap();
        assert_eq!(machine.read(&switch, 0, 64).unwrap(), b"1\n");
        assert_eq!(read(&machine, max), "2400000\n");
        machine.write(&switch, 0, b"0").unwrap();
        assert_eq!(read(&machine, max), "3200000\n");
    }

    #[test]
    fn a_limit_written_is_a_limit_kept() {
        let machine = shared("xeon-2s");
        let package = "sys/devices/virtual/powercap/intel-rapl/intel-rapl:0";
        machine.lock().advance(Duration::from_secs(2));
        let before = machine.lock().plant().watts(PlantDomain::Package(0)).unwrap();
        assert!((before - 250.0).abs() < 5.0, "{before}");
        let window = attribute(&machine, &format!("{package}/constraint_0_time_window_us"));
        machine.write(&window, 0, b"1000000").unwrap();
        let limit = attribute(&machine, &format!("{package}/constraint_0_power_limit_uw"));
        machine.write(&limit, 0, b"120000000").unwrap();
        machine.lock().advance(Duration::from_secs(20));
        let after = machine.lock().plant().watts(PlantDomain::Package(0)).unwrap();
        assert!((after - 120.0).abs() < 2.0, "{after}");
        let start: u64 = read(&machine, &format!("{package}/energy_uj")).trim().parse().unwrap();
        machine.lock().advance(Duration::from_secs(1));
        let end: u64 = read(&machine, &format!("{package}/energy_uj")).trim().parse().unwrap();
        assert!((end - start).abs_diff(120_000_000) < 2_000_000, "{}", end - start);
    }

    #[test]
    fn a_zone_that_vanishes_comes_back_disabled() {
        let machine = shared("xeon-2s");
        let energy = VirtualAttribute::Energy(0);
        machine.lock().change(|zones, _, _| zones[0].present = false);
        assert_eq!(machine.read(&energy, 0, 64), Err(libc::ENODEV));
        assert!(machine.lock().tree().get("sys/class/powercap/intel-rapl:0").is_none());
        machine.lock().change(|zones, _, _| {
            zones[0].present = true;
            zones[0].zone.come_back();
        });
        assert_eq!(read(&machine, "sys/devices/virtual/powercap/intel-rapl/intel-rapl:0/enabled"), "0\n");
    }

    #[test]
    fn the_lower_of_a_package_and_its_mmio_twin_holds() {
        let machine = shared("client");
        let twin =
            "sys/devices/virtual/powercap/intel-rapl-mmio/intel-rapl-mmio:0/constraint_0_power_limit_uw";
        machine.write(&attribute(&machine, twin), 0, b"15000000").unwrap();
        let held = machine.lock().plant().power_limit(0, plant::PowerLimitTerm::Long).unwrap();
        assert!((held.watts - 15.0).abs() < 1e-9);
    }
}
