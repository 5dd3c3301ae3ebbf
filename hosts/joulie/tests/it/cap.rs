//! `joulie node cap` and `restore`, from the command line to the register and back.

use crate::test_machine::{TestMachine, wait};
use rig::faults::{Effect, Fault};
use rig::machine::VirtualAttribute;

const FULL: &str = "250000000\n";
const CAPPED: &str = "120000000\n";

/// Makes package 0 refuse every limit.
fn refuse_writes(room: &TestMachine) {
    room.machine.lock().faults().add(Fault {
        on: VirtualAttribute::PowerLimit(0, 0),
        direction: rig::faults::Direction::Write,
        effect: Effect::Fails(libc::EIO),
        times: u32::MAX,
    });
}

#[test]
fn a_cap_stays_after_the_command_and_restore_puts_it_back() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let said = room.run(&["cap", "--package", "120W"]).ended(0);
    assert!(said.contains("in force, 240 W for 2 together"), "{said}");
    assert!(said.contains("limit read back: 120 W"), "{said}");
    assert!(said.contains("joulie node restore --root"), "{said}");
    assert_eq!([room.limit(0), room.limit(1)], [CAPPED, CAPPED]);
    let shown = room.run(&["show"]).ended(0);
    assert!(shown.contains("120 W, ours"), "{shown}");
    assert!(shown.contains("package-1 (powercap) is ours; before it was 250 W"), "{shown}");
    let back = room.run(&["restore"]).ended(0);
    assert!(back.contains("package-0: 250 W again"), "{back}");
    assert_eq!([room.limit(0), room.limit(1)], [FULL, FULL]);
    let twice = room.run(&["restore"]).ended(0);
    assert!(twice.contains("nothing to put back"), "{twice}");
    assert_eq!(room.limit(0), FULL);
}

#[test]
fn a_percentage_is_one_of_each_package() {
    let Some(room) = TestMachine::profile("xeon-multi-die") else { return };
    let said = room.run(&["cap", "--package", "80%"]).ended(0);
    assert!(said.contains("in force, 400 W for 4 together"), "{said}");
    // 80 % of 125 W.
    assert_eq!(room.limit(3), "100000000\n");
}

#[test]
fn a_cap_above_the_range_is_clamped_and_both_values_are_said() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let said = room.run(&["cap", "--package", "1kW"]).ended(0);
    assert!(said.contains("clamped, 2000 W were asked for 2 together and 500 W are in force"), "{said}");
    assert_eq!(room.limit(0), FULL);
}

#[test]
fn a_cap_below_the_range_permits_more_than_was_asked_and_that_is_no_success() {
    let Some(room) = TestMachine::of("mi300x", |machine| {
        machine.change(|_, _, hwmons| hwmons.iter_mut().for_each(|slot| slot.hwmon.clock = None));
    }) else {
        return;
    };
    let said = room.run(&["cap", "--gpu", "1W"]).ended(1);
    // The lowest cap of this GPU is 350 W.
    assert!(said.contains("clamped, 1 W were asked for 1 together and 350 W are in force"), "{said}");
    room.run(&["restore"]).ended(0);
}

#[test]
fn what_is_held_for_a_time_is_put_back_after_it() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let mut running = room.start(&["cap", "--package", "120W", "--for", "2s"], "held for 2s");
    assert_eq!(room.limit(0), CAPPED);
    assert_eq!(running.end(), Some(0), "{}", running.said());
    assert!(running.said().contains("package-1: 250 W again"), "{}", running.said());
    assert_eq!([room.limit(0), room.limit(1)], [FULL, FULL]);
}

#[test]
fn a_signal_ends_the_time_early_and_puts_back() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    for signal in ["INT", "TERM", "HUP"] {
        let mut running = room.start(&["cap", "--package", "120W", "--for", "10m"], "held for 10m");
        assert_eq!(room.limit(1), CAPPED);
        running.signal(signal);
        assert_eq!(running.end(), Some(0), "{signal}: {}", running.said());
        assert_eq!([room.limit(0), room.limit(1)], [FULL, FULL], "{signal}");
    }
}

#[test]
fn a_second_signal_ends_at_once_and_says_that_the_caps_stay() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let mut running = room.start(&["cap", "--package", "120W", "--for", "10m"], "held for 10m");
    refuse_writes(&room);
    running.signal("INT");
    wait(|| running.said().contains("putting back"), || running.said());
    running.signal("INT");
    assert_eq!(running.end(), Some(130), "{}", running.said());
    assert!(running.said().contains("are still ours"), "{}", running.said());
}

#[test]
fn what_cannot_be_put_back_is_listed_with_its_reason_and_stays_in_the_journal() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    room.run(&["cap", "--package", "120W"]).ended(0);
    refuse_writes(&room);
    let said = room.run(&["restore"]).ended(1);
    assert!(said.contains("package-1: 250 W again"), "{said}");
    let left = said.split("not put back:").nth(1).unwrap();
    assert!(
        left.contains("package-0 (powercap): ") && left.contains("constraint_0_power_limit_uw"),
        "{said}"
    );
    assert!(!left.contains("package-1"), "{said}");
    assert_eq!([room.limit(0), room.limit(1)], [CAPPED, FULL]);
    room.machine.lock().faults().heal();
    room.run(&["restore"]).ended(0);
    assert_eq!(room.limit(0), FULL);
}

#[test]
fn while_it_is_held_a_cap_that_somebody_moved_is_put_in_force_again() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let _running = room.start(&["cap", "--package", "120W", "--for", "10m"], "held for 10m");
    room.machine.lock().change(|zones, _, _| zones[0].zone.constraints[0].power_raw = 240 * 8);
    assert_eq!(room.limit(0), "240000000\n");
    wait(|| room.limit(0) == CAPPED, || room.limit(0));
}

#[test]
fn a_kill_leaves_the_cap_and_restore_puts_it_back() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let mut running = room.start(&["cap", "--package", "120W", "--for", "10m"], "held for 10m");
    running.signal("KILL");
    assert_eq!(running.end(), None);
    assert_eq!([room.limit(0), room.limit(1)], [CAPPED, CAPPED]);
    let back = room.run(&["restore"]).ended(0);
    assert!(back.contains("package-0: 250 W again"), "{back}");
    assert_eq!([room.limit(0), room.limit(1)], [FULL, FULL]);
}

#[test]
fn there_is_one_writer_and_the_second_is_told_who() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let mut running = room.start(&["cap", "--package", "120W", "--for", "10m"], "held for 10m");
    for words in [&["cap", "--package", "200W"][..], &["restore"]] {
        let second = room.run(words);
        assert_eq!(second.code, Some(3), "{words:?}: {second:?}");
        assert!(second.err.contains("joulie (process "), "{}", second.err);
    }
    assert_eq!(room.limit(0), CAPPED);
    let shown = room.run(&["show"]).ended(0);
    assert!(shown.contains("the writer's lock is held by joulie (process "), "{shown}");
    running.signal("INT");
    assert_eq!(running.end(), Some(0));
    assert_eq!(room.limit(0), FULL);
}

#[test]
fn a_locked_machine_is_held_by_frequencies_as_long_as_the_command_runs() {
    let Some(room) = TestMachine::profile("xeon-locked") else { return };
    let words = ["cap", "--package", "120W", "--law", "tracking"];
    let mut running = room.start(&words, "this command stays");
    let said = running.said();
    assert!(said.contains("the power limits of the packages do not take the cap"), "{said}");
    assert!(said.contains("the firmware has locked this limit"), "{said}");
    assert!(said.contains("held by the closed loop over 128 frequency policies"), "{said}");
    let drawn = room.machine.lock().plant().node_watts();
    assert!(drawn < 260.0, "{drawn}");
    running.signal("INT");
    assert_eq!(running.end(), Some(0), "{}", running.said());
    let policy = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
    assert_ne!(room.file(policy), "3200000\n");
    room.run(&["restore"]).ended(0);
    assert_eq!(room.file(policy), "3200000\n");
}

#[test]
fn what_cannot_be_held_is_said_and_nothing_stays() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let said = room.run(&["cap", "--gpu", "300W", "--for", "10m"]).ended(1);
    assert!(said.contains("gpus: not in force, blocked"), "{said}");
    assert_eq!(room.limit(0), FULL);
}

#[test]
fn gpus_are_capped_and_packages_are_left_alone() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let said = room.run(&["cap", "--gpu", "400W"]).ended(0);
    assert!(said.contains("limit read back: 400 W"), "{said}");
    let shown: serde_json::Value = serde_json::from_str(&room.run(&["show", "--json"]).ended(0)).unwrap();
    assert_eq!(shown["gpus"][0]["limit_watts"], 400.0);
    assert_eq!(shown["packages"][0]["ours"], false);
    room.run(&["restore"]).ended(0);
}

#[test]
fn originals_of_an_earlier_boot_are_void_and_that_is_said() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    room.run(&["cap", "--package", "120W"]).ended(0);
    let path = room.state().join("originals.json");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let journal = std::fs::read_to_string(&path).unwrap();
    assert!(journal.contains(boot.trim()), "{journal}");
    std::fs::write(&path, journal.replace(boot.trim(), "another-boot")).unwrap();
    for words in [&["show"][..], &["restore"]] {
        let said = room.run(words).ended(0);
        assert!(said.contains("2 originals of an earlier boot are void"), "{said}");
    }
    // The originals of the earlier boot must not be put back in this one.
    assert_eq!(room.limit(0), CAPPED);
}

#[test]
fn a_journal_that_cannot_be_read_stops_a_writer_and_not_a_reader() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    std::fs::create_dir_all(room.state()).unwrap();
    std::fs::write(room.state().join("originals.json"), "half a jour").unwrap();
    let refused = room.run(&["cap", "--package", "120W"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("originals.json"), "{}", refused.err);
    assert_eq!(room.limit(0), FULL);
    let shown = room.run(&["show"]).ended(0);
    assert!(shown.contains("the journal of originals is unknown ("), "{shown}");
    assert!(shown.contains("whose is unknown (the journal cannot be read)"), "{shown}");
}

#[test]
fn registers_are_written_through_msru_by_whoever_asks_for_it() {
    let Some(room) = TestMachine::of("xeon-2s", |machine| machine.boot_without_powercap()) else { return };
    let limit = || {
        let mut limit = 0;
        room.machine.lock().change(|zones, _, _| limit = zones[0].zone.power_limit_uw(0));
        limit
    };
    // msru accesses only the machine's own registers, so it cannot be used with another root.
    let refused = room.run(&["cap", "--package", "120W", "--registers", "msru"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("msru"), "{refused:?}");
    let Some(said) = room.run_inside(&["cap", "--package", "120W", "--registers", "msru"]) else { return };
    let said = said.ended(0);
    assert!(said.contains("in force, 240 W for 2 together"), "{said}");
    assert_eq!(limit(), 120_000_000);
    let shown = room.run_inside(&["show", "--registers", "msru"]).unwrap().ended(0);
    assert!(shown.contains("package-1 (msr) is ours; before it was 250 W"), "{shown}");
    room.run_inside(&["restore", "--registers", "msru"]).unwrap().ended(0);
    assert_eq!(limit(), 250_000_000);
}

#[test]
fn gpus_of_intel_are_shown_capped_and_restored() {
    let Some(room) = TestMachine::profile("max1550") else { return };
    let caps = || {
        let machine = room.machine.lock();
        machine.caps_in_force_uw().map(|cap| cap / 1_000_000).collect::<Vec<_>>()
    };
    let said = room.run(&["cap", "--gpu", "400W"]).ended(0);
    assert!(said.contains("in force, 1200 W for 3 together"), "{said}");
    assert_eq!(caps(), [400; 3]);
    let shown = room.run(&["show"]).ended(0);
    assert!(shown.contains("gpu-0000:4f:00.0 (intel) is ours; before it was 600 W"), "{shown}");
    // The largest limit of the package behind a mailbox is not the cap.
    assert!(!shown.contains("up to 400 W"), "{shown}");
    room.run(&["cap", "--gpu", "75%"]).ended(0);
    assert_eq!(caps(), [450; 3]);
    room.run(&["restore"]).ended(0);
    assert_eq!(caps(), [600; 3]);
}

/// A real process holds the clock of a GPU and is killed. The clock stays, is shown with its owner, and comes back with the
/// next process: by another hold that ends in order, and by `restore`.
#[test]
fn a_gpu_that_is_held_by_its_clock_is_shown_so_and_gets_it_back_from_the_process_after_a_kill() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let (table, level) = ("pp_od_clk_voltage", "power_dpm_force_performance_level");
    let file = |name: &str| room.file(&format!("sys/devices/pci0000:00/0000:0c:00.0/{name}"));
    let free = (file(table), file(level));
    assert_eq!(free, ("OD_SCLK:\n0: 132Mhz\n1: 2100Mhz\n".to_owned(), "auto\n".to_owned()));
    let shown =
        || -> serde_json::Value { serde_json::from_str(&room.run(&["show", "--json"]).ended(0)).unwrap() };
    let gpu = shown()["gpus"][0].clone();
    assert_eq!(
        (gpu["clock_ours"].as_bool(), gpu["clock_limit_khz"].as_u64()),
        (Some(false), Some(2_100_000))
    );
    assert_eq!(
        (gpu["clock_min_khz"].as_u64(), gpu["clock_max_khz"].as_u64()),
        (Some(140_000), Some(2_100_000))
    );
    assert!(gpu["clock_khz"].as_u64().unwrap() > 1_000_000, "{gpu}");
    // The least cap of this GPU is 350 W.
    let words = ["cap", "--gpu", "300W", "--for", "10m"];
    for by in ["restore", "another hold"] {
        let mut running = room.start(&words, "held for 10m");
        let said = running.said();
        assert!(said.contains("its power limit does not go as low as the cap"), "{said}");
        assert!(
            said.contains("closed loops over the clock hold 1 of 1 instead of the power limit"),
            "{said}"
        );
        assert!(said.contains("highest clock: "), "{said}");
        running.signal("KILL");
        assert_eq!(running.end(), None, "{}", running.said());
        assert_eq!(file(level), "manual\n");
        assert_ne!(file(table), free.0);
        let gpu = shown()["gpus"][0].clone();
        assert_eq!(gpu["clock_ours"], true, "{gpu}");
        assert!(gpu["clock_limit_khz"].as_u64().unwrap() < 2_000_000, "{gpu}");
        let text = room.run(&["show"]).ended(0);
        assert!(text.contains("ours: held by its clock"), "{text}");
        assert!(text.contains("gpu-0000:0c:00.0 (amd-gpu) is ours; before it was 2.10 GHz"), "{text}");
        if by == "restore" {
            room.run(&["restore"]).ended(0);
        } else {
            let mut next = room.start(&words, "held for 10m");
            next.signal("TERM");
            assert_eq!(next.end(), Some(0), "{}", next.said());
        }
        assert_eq!((file(table), file(level)), free, "by {by}");
        assert_eq!(shown()["gpus"][0]["clock_ours"], false);
    }
}

/// The loop ends with its process: without a time the command stays, as for packages.
#[test]
fn a_gpu_that_is_held_by_its_clock_is_not_left_alone() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let mut running = room.start(&["cap", "--gpu", "300W"], "this command stays");
    let said = running.said();
    assert!(said.contains("closed loops over the clock hold 1 of 1 instead of the power limit"), "{said}");
    running.signal("INT");
    assert_eq!(running.end(), Some(0), "{}", running.said());
    room.run(&["restore"]).ended(0);
}
