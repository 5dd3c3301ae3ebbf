//! `joulie node show` and `watch` on every kind of machine.

use crate::test_machine::TestMachine;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// The properties of each profile in `rig::profile`: the backend of its packages, their number, and their limit in
/// watts.
#[test]
fn every_profile_is_shown_with_what_it_has() {
    let table: [(&str, usize, &str, f64, u64); 8] = [
        ("xeon-2s", 2, "powercap", 250.0, 128),
        ("xeon-2s-new", 2, "powercap", 250.0, 128),
        ("xeon-multi-die", 4, "powercap", 125.0, 64),
        ("xeon-tpmi", 2, "powercap", 250.0, 128),
        ("epyc", 2, "amd-socket", 400.0, 384),
        ("client", 1, "powercap", 35.0, 16),
        ("mi300x", 2, "amd-socket", 400.0, 384),
        ("max1550", 2, "powercap", 250.0, 128),
    ];
    for (profile, packages, backend, limit, policies) in table {
        let Some(room) = TestMachine::profile(profile) else { return };
        let text = room.run(&["show", "--json"]).ended(0);
        let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
        let listed = shown["packages"].as_array().unwrap();
        assert_eq!(listed.len(), packages, "{profile}: {text}");
        for package in listed {
            assert_eq!(package["backend"], backend, "{profile}: {text}");
            assert_eq!(package["limit_watts"].as_f64(), Some(limit), "{profile}: {text}");
            assert_eq!(package["ours"], false, "{profile}");
            let power = package["power_watts"].as_f64().unwrap();
            assert!(power > 10.0 && power < 1000.0, "{profile}: {power}");
        }
        assert_eq!(shown["policies"]["count"], policies, "{profile}: {text}");
        assert_eq!(shown["fallback"]["possible"], true, "{profile}");
        assert!(!room.state().exists(), "{profile}: who only looks has written");
    }
}

#[test]
fn a_module_of_two_dies_is_one_gpu() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let text = room.run(&["show", "--json"]).ended(0);
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    let gpus = shown["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 1, "{text}");
    assert_eq!(gpus[0]["backend"], "amd-gpu", "{text}");
    assert!(gpus[0]["limit_watts"].as_f64().unwrap() > 100.0, "{text}");
}

#[test]
fn what_is_measured_beside_power_is_shown_where_there_is_any() {
    let Some(room) = TestMachine::profile("mi300x") else { return };
    let text = room.run(&["show", "--json"]).ended(0);
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    let gpu = &shown["gpus"][0];
    assert_eq!(gpu["memory_total_bytes"], 192_u64 << 30, "{text}");
    assert!(gpu["temperature_celsius"].as_f64().unwrap() > 10.0, "{text}");
    assert!(gpu["throttled_percent"].as_f64().is_some(), "{text}");
    // An MI300 counts, and shows no causes of the instant: absent, with no reason and no empty list.
    assert!(gpu["slowed_by"].is_null() && gpu["unknown"]["slowed_by"].is_null(), "{text}");
    let lines = room.run(&["show"]).ended(0);
    assert!(lines.contains("beside power") && lines.contains("of 196608 MiB"), "{lines}");
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let text = room.run(&["show", "--json"]).ended(0);
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    let package = &shown["packages"][0];
    let (memory, whole) = (package["dram_watts"].as_f64().unwrap(), package["power_watts"].as_f64().unwrap());
    assert!(0.0 < memory && memory < whole, "{text}");
    assert!(package["temperature_celsius"].is_null(), "{text}");
}

#[test]
fn the_document_has_the_fields_that_are_documented() {
    let Some(room) = TestMachine::profile("client") else { return };
    let text = room.run(&["show", "--json"]).ended(0);
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    let names = |value: &serde_json::Value| {
        let mut names: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(
        names(&shown),
        "backends fallback format gpus journal machine packages plug_source plug_watts policies power_watts unknown version writer"
    );
    assert_eq!(
        names(&shown["packages"][0]),
        "backend clock_khz clock_limit_khz clock_max_khz clock_min_khz clock_ours dram_watts key limit_watts max_watts memory_total_bytes memory_used_bytes min_watts ours \
         power_over_seconds power_watts slowed_by temperature_celsius throttled_percent unknown utilisation_percent"
    );
    assert_eq!(names(&shown["policies"]), "count highest_limit_khz lowest_limit_khz max_khz min_khz unknown");
    assert_eq!(names(&shown["backends"][0]), "complaints domains name standing");
    assert_eq!(names(&shown["journal"]), "originals unknown void");
    // This profile does not report the package's range: the value is null with a reason, and never 0.
    let package = &shown["packages"][0];
    assert!(package["max_watts"].is_null(), "{text}");
    assert!(package["unknown"]["max_watts"].is_string(), "{text}");
    let docs = include_str!("../../../../docs/OPERATE.md");
    for name in names(&shown).split(' ').chain(names(package).split(' ')) {
        assert!(docs.contains(&format!("`{name}`")), "docs/OPERATE.md does not have {name}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    for words in [&["show"][..], &["show", "--json"], &["watch", "--for", "20s"]] {
        let mut child = room.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.success() && said.is_empty(), "{words:?}: {:?} {said}", ended.status);
        assert!(!first.is_empty());
    }
}

#[test]
fn a_watch_says_the_power_and_the_limit_of_every_package() {
    let Some(room) = TestMachine::profile("xeon-2s") else { return };
    let text = room.run(&["watch", "--for", "3s"]).ended(0);
    let last = text.lines().last().unwrap();
    for part in ["package-0 ", "package-1 ", "of 250 W", "all packages ", "of 500 W"] {
        assert!(last.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
}
