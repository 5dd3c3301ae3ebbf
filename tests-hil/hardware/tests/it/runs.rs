//! Undisturbed runs on every virtual machine.

use crate::test_machine::{Said, TestMachine};
use rig::faults::{Direction, Effect, Fault};
use rig::machine::VirtualAttribute;
use rig::profile::PROFILES;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The backends of a profile.
fn ways(profile: &str) -> &'static [&'static str] {
    match profile {
        "epyc" => &["powercap", "cpufreq", "amd-socket"],
        "mi300x" => &["powercap", "cpufreq", "amd-socket", "amd-gpu"],
        "mi300x-smi" => &["powercap", "cpufreq", "amd-socket", "rocm"],
        "max1550" => &["powercap", "cpufreq", "intel"],
        "gpu-2s8" => &["powercap", "cpufreq", "nvidia"],
        _ => &["powercap", "cpufreq"],
    }
}

/// All files below a folder that the process has open, and whether they are open for writing.
fn open_files(process: u32, root: &str, seen: &mut BTreeMap<String, bool>) {
    let Ok(numbers) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return };
    for number in numbers.flatten() {
        let Ok(target) = std::fs::read_link(number.path()) else { continue };
        let Some(path) = target.to_str().filter(|path| path.starts_with(root)) else { continue };
        let name = number.file_name().into_string().unwrap();
        let Ok(info) = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{name}")) else { continue };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim().to_owned();
        let flags = i32::from_str_radix(&flags, 8).unwrap();
        *seen.entry(path.to_owned()).or_default() |= flags & libc::O_ACCMODE != libc::O_RDONLY;
    }
}

/// Runs to its end, and meanwhile records the open files below the root.
fn watched(room: &TestMachine) -> (Said, BTreeMap<String, bool>) {
    let mut hil = room.hil(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let root = room.root().display().to_string();
    let mut seen = BTreeMap::new();
    while hil.try_wait().unwrap().is_none() {
        open_files(hil.id(), &root, &mut seen);
    }
    (Said::from(hil.wait_with_output().unwrap()), seen)
}

#[test]
fn the_mailbox_of_sockets_is_opened_to_ask_only_unless_it_is_to_be_written() {
    let Some(room) = TestMachine::profile("epyc") else { return };
    room.machine.lock().age_hsmp_driver();
    let before = room.registers();
    let (said, seen) = watched(&room);
    said.is_fine();
    assert!(said.has("PASS hsmp SampleComplete: "), "{}", said.text);
    let mailbox: Vec<_> = seen.iter().filter(|(path, _)| path.ends_with("/dev/hsmp")).collect();
    assert!(mailbox.len() == 1 && mailbox.iter().all(|(_, writable)| !**writable), "{seen:?}");
    let said = Said::of(&mut room.hil(&["--write", "--require", "amd"]));
    said.is_fine();
    assert!(said.has("PASS hsmp Restored: "), "{}", said.text);
    assert_eq!(room.registers(), before);
}

#[test]
fn a_run_that_reads_opens_nothing_to_be_written_and_passes_on_every_machine() {
    for (name, ..) in PROFILES {
        let Some(room) = TestMachine::profile(name) else { return };
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = writes.clone();
        room.machine.lock().watch(move |_, _, _| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let before = room.registers();
        let (said, seen) = watched(&room);
        said.is_fine();
        for way in ways(name) {
            assert!(said.has(&format!("PASS {way} SampleComplete: ")), "{name}: {}", said.text);
            assert!(said.has(&format!("SKIP({way} Restored: nothing is set without --write)")), "{name}");
        }
        assert!(said.has("PASS limits: all "), "{name}: {}", said.text);
        assert!(seen.keys().any(|path| path.ends_with("energy_uj")), "{name}: {seen:?}");
        assert!(seen.values().all(|writable| !writable), "{name}: {seen:?}");
        assert_eq!(writes.load(Ordering::Relaxed), 0, "{name}");
        assert_eq!(room.registers(), before, "{name}");
        assert!(!room.state().exists(), "{name}");
    }
}

#[test]
fn a_run_that_writes_raises_nothing_and_leaves_every_machine_as_it_was() {
    for (name, ..) in PROFILES {
        let Some(room) = TestMachine::profile(name) else { return };
        let written: Arc<Mutex<Vec<(VirtualAttribute, u64)>>> = Arc::default();
        let noted = written.clone();
        room.machine.lock().watch(move |attribute, data, _| {
            let number = std::str::from_utf8(data).ok().and_then(|text| text.trim().parse().ok());
            noted.lock().unwrap().extend(number.map(|number| (attribute.clone(), number)));
        });
        let before = room.registers();
        let limits = in_force(&room);
        let said = Said::of(&mut room.hil(&["--write"]));
        said.is_fine();
        for way in ways(name) {
            // The zones of an EPYC have no limits, and those of this Xeon are locked.
            let sets = *way != "powercap" || !["epyc", "mi300x", "mi300x-smi", "xeon-locked"].contains(&name);
            for rule in ["Restored", "SavedFirst", "RestartRestores", "OthersUntouched"] {
                let line = if sets {
                    format!("PASS {way} {rule}: ")
                } else {
                    format!("PASS {way} LackingRefused: ")
                };
                assert!(said.has(&line), "{name}: {line}: {}", said.text);
            }
        }
        assert!(said.has("SKIP(msr: to write registers taints the kernel"), "{name}: {}", said.text);
        assert!(said.has("PASS limits: all "), "{name}: {}", said.text);
        assert_eq!(room.registers(), before, "{name}");
        assert_eq!(room.journal(), 0, "{name}");
        assert!(!room.state().join("hil-writes").exists(), "{name}");
        let written = written.lock().unwrap();
        let mut compared = 0;
        for (attribute, number) in written.iter() {
            if let Some((_, limit)) = limits.iter().find(|(known, _)| known == attribute) {
                compared += 1;
                assert!(number <= limit, "{name}: {attribute:?} was set to {number}, above {limit}");
            }
        }
        assert!(compared > 0, "{name}: {written:?}");
    }
}

/// The current limits of power and frequency.
fn in_force(room: &TestMachine) -> Vec<(VirtualAttribute, u64)> {
    let machine = room.machine.lock();
    let zones = machine.zones().iter().enumerate().flat_map(|(at, slot)| {
        let constraints = 0..slot.zone.constraints.len();
        constraints
            .map(move |which| (VirtualAttribute::PowerLimit(at, which), slot.zone.power_limit_uw(which)))
    });
    let policies = machine.policies().iter().enumerate();
    let policies = policies.map(|(at, policy)| (VirtualAttribute::MaxFreq(at), u64::from(policy.user_max)));
    zones.chain(policies).collect()
}

#[test]
fn a_limit_that_somebody_else_sets_meanwhile_is_told() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let effect = Effect::Takes(Duration::from_millis(100));
    let slow = Fault { on: VirtualAttribute::MaxFreq(0), direction: Direction::Read, effect, times: 100 };
    room.machine.lock().faults().add(slow);
    let mut hil = room.hil(&[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(hil.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The power limits were recorded, and the frequencies are still to be read.
    assert!(lines.any(|line| line.starts_with("PASS powercap ")));
    room.machine.lock().change(|zones, _, _| zones[0].zone.constraints[0].power_raw -= 8);
    let told: Vec<_> = lines.filter(|line| line.starts_with("FAIL ")).collect();
    assert_eq!(hil.wait().unwrap().code(), Some(1));
    let [told] = &told[..] else { panic!("{told:?}") };
    assert!(told.starts_with("FAIL limits: power of package-0 by powercap was ["), "{told}");
    assert!(told.contains("249000000"), "{told}");
}

#[test]
fn registers_are_written_only_where_they_are_required() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    room.machine.lock().boot_without_powercap();
    let before = room.registers();
    let said = Said::of(&mut room.hil(&["--require", "msr"]));
    said.is_fine();
    assert!(said.has("PASS msr SampleComplete: "), "{}", said.text);
    let said = Said::of(&mut room.hil(&["--write", "--require", "msr"]));
    said.is_fine();
    assert!(said.has("PASS msr Restored: "), "{}", said.text);
    assert_eq!(room.registers(), before);
}

#[test]
fn registers_that_powercap_owns_are_no_hardware_to_require() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let said = Said::of(&mut room.hil(&["--require", "msr"]));
    assert_eq!(said.code, Some(1));
    assert!(said.has("FAIL msr: msr is required: "), "{}", said.text);
}

#[test]
fn a_node_that_an_agent_has_capped_is_left_alone() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let lock = node_kit::NodeLock::take(&room.state()).unwrap();
    let said = Said::of(&mut room.hil(&["--write"]));
    assert_eq!(said.code, Some(1));
    assert!(said.text.contains(&format!("(process {})", std::process::id())), "{}", said.text);
    // The agent has ended, and its caps and originals remain.
    use power_hal::{Control, Key, Original, Originals};
    let journal = node_kit::Journal::open(&room.state(), node_kit::Boot::of_the_kernel().unwrap()).unwrap();
    let mut share = journal.of(node_kit::BackendKind::Powercap);
    let original = Original::new(0, &[250_000_000]).unwrap();
    share.keep(&Key::package(0, None), Control::Power, &original).unwrap();
    drop(lock);
    let before = room.registers();
    // The second run finds that the first one was the last holder of the lock.
    for _ in 0..2 {
        let said = Said::of(&mut room.hil(&["--write"]));
        assert_eq!(said.code, Some(1));
        assert!(said.text.contains("put them back first"), "{}", said.text);
        assert_eq!((room.registers(), room.journal()), (before.clone(), 1));
    }
}

#[test]
fn the_cards_of_a_library_are_told_and_keep_the_contract() {
    let empty = TestMachine::empty();
    let at = empty.folder.0.join("gpus");
    std::fs::create_dir_all(&at).unwrap();
    let machine = nvml_stub::StubMachine::at(&at);
    machine.library().unwrap();
    machine.put("driver", "570.86.16").unwrap();
    let card = nvml_stub::StubGpu {
        uuid: "GPU-11111111-0b1c-4d7e-9a55-0123456789ab",
        pci: "00000000:19:00.0",
        min_mw: 200_000,
        max_mw: 700_000,
        default_mw: 700_000,
    };
    machine.add("a", &card).unwrap();
    let library = at.join("libnvidia-ml.so.1").display().to_string();
    let words = ["--nvml", library.as_str(), "--require", "nvidia"];
    let said = Said::of(&mut empty.hil(&words));
    said.is_fine();
    assert!(said.text.contains(card.uuid) && said.text.contains("570.86.16"), "{}", said.text);
    assert!(said.text.contains("range 200.000 W to 700.000 W, default 700.000 W"), "{}", said.text);
    assert!(said.has("PASS nvidia SampleComplete: "), "{}", said.text);
    assert_eq!(machine.get("gpus/a/log"), None, "a run that reads sets nothing");
    let said = Said::of(&mut empty.hil(&[&words[..], &["--write"]].concat()));
    said.is_fine();
    assert!(said.has("PASS nvidia Restored: "), "{}", said.text);
    assert_eq!(machine.get("gpus/a/limit_mw").as_deref().map(str::trim), Some("700000"));
    let log = machine.get("gpus/a/log").unwrap();
    assert!(log.lines().count() > 2, "{log}");
}
