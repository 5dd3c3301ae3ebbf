//! The command line: an error names the accepted values, and nothing is written.

use crate::test_machine::bare;
use rig::test_machine::Folder;

#[test]
fn a_value_that_means_nothing_is_refused_with_what_is_accepted() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.0.join("root/sys")).unwrap();
    let (root, state) = (folder.0.join("root"), folder.0.join("state"));
    let place = ["--root", root.to_str().unwrap(), "--state", state.to_str().unwrap()];
    let unit = "a cap needs its unit: W, kW or %";
    let cap = "expected a number and its unit";
    let range = "expected a cap from 1W to 10kW";
    let percent = "expected a percentage from 1% to 100%";
    let span = "expected a time with its unit";
    let table: &[(&[&str], &str)] = &[
        (&["cap", "--package", "120"], unit),
        (&["cap", "--gpu", "120"], unit),
        (&["cap", "--package", "0"], unit),
        (&["cap", "--package", "NaN"], cap),
        (&["cap", "--package", "NaNW"], cap),
        (&["cap", "--package", "-120W"], cap),
        (&["cap", "--package", "120Wx"], cap),
        (&["cap", "--package", "120 W"], cap),
        (&["cap", "--package", "1e9W"], cap),
        (&["cap", "--package", ""], cap),
        (&["cap", "--package", "0W"], range),
        (&["cap", "--package", "99999999999999999999W"], range),
        (&["cap", "--package", "120kW"], range),
        (&["cap", "--package", "0%"], percent),
        (&["cap", "--package", "101%"], percent),
        (&["cap", "--package", "120W", "--for", "10"], span),
        (&["cap", "--package", "120W", "--for", "NaN"], span),
        (&["cap", "--package", "120W", "--for", "0s"], "above zero"),
        (&["cap", "--package", "120W", "--for", "99999999999999d"], "at most 30d"),
        (&["cap", "--package", "120W", "--for", "10m", "--hold"], "cannot be used with"),
        (&["cap"], "--package"),
        (&["cap", "--package", "120W", "--law", "clasic"], "tracking"),
        (&["show", "--registers", "yes"], "msr-safe"),
        (&["show", "--period", "10ms"], "from 100ms to 60s"),
        (&["watch", "--for", "-1s"], span),
        (&["shwo"], "show"),
    ];
    for (words, accepted) in table {
        let words: Vec<&str> = words.iter().copied().chain(place).collect();
        let said = bare(&words);
        assert_eq!(said.code, Some(2), "{words:?}: {said:?}");
        assert!(said.err.contains(accepted), "{words:?}: {}", said.err);
    }
    assert!(!state.exists(), "a refused command has opened the node");
}

#[test]
fn a_root_that_is_no_machine_is_refused() {
    let folder = Folder::new();
    std::fs::create_dir(folder.0.join("root")).unwrap();
    for root in [folder.0.join("root"), folder.0.join("nowhere")] {
        let said = bare(&["show", "--root", root.to_str().unwrap()]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("expected a folder that holds sys and dev"), "{}", said.err);
    }
}

#[test]
fn a_machine_without_any_power_hardware_is_shown_and_cannot_be_capped() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.0.join("root/sys")).unwrap();
    let root = folder.0.join("root");
    let place = ["--root", root.to_str().unwrap()];
    let shown = bare(&[&["show"], &place[..]].concat()).ended(0);
    assert!(shown.contains("no CPU package was found"), "{shown}");
    assert!(!folder.0.join("root.joulie").exists(), "who only looks has written");
    let capped = bare(&[&["cap", "--package", "120W"], &place[..]].concat()).ended(1);
    assert!(capped.contains("the packages of this node are not known"), "{capped}");
}
