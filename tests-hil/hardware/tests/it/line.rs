//! The command line and machines without hardware.

use crate::test_machine::{Said, TestMachine};
use node_kit::BackendKind;

#[test]
fn a_machine_without_power_hardware_is_skipped_with_what_was_looked_for() {
    let empty = TestMachine::empty();
    let said = Said::of(&mut empty.hil(&[]));
    said.is_fine();
    // One line for each backend, and one because there is no limit to compare.
    let ways = BackendKind::ALL.len();
    assert_eq!((said.count("PASS "), said.count("SKIP(")), (0, ways + 1), "{}", said.text);
    let class = empty.root().join("sys/class/powercap");
    assert!(said.has(&format!("SKIP(powercap: no package zone in {}", class.display())), "{}", said.text);
    for label in BackendKind::ALL.map(BackendKind::label) {
        assert!(said.has(&format!("SKIP({label}: ")), "{label}: {}", said.text);
    }
    assert!(!empty.state().exists(), "a run that only reads leaves no state behind");
}

#[test]
fn what_is_required_and_absent_fails_with_the_reason() {
    let empty = TestMachine::empty();
    let said = Said::of(&mut empty.hil(&["--require", "nvidia,rapl", "--require", "amd"]));
    assert_eq!(said.code, Some(1));
    let library = empty.root().join("lib/libnvidia-ml.so.1");
    assert!(said.has(&format!("FAIL nvidia: nvidia is required: {}", library.display())), "{}", said.text);
    assert!(said.text.contains("could not be loaded"), "{}", said.text);
    assert!(said.has("FAIL powercap: rapl is required: no package zone"), "{}", said.text);
    assert!(said.has("FAIL amd: required"), "{}", said.text);
    assert_eq!(said.count("FAIL "), 3);
    // Two of the required kinds have one backend each; the third, which no backend found, has a line of its own.
    let skipped = BackendKind::ALL.len() - 1;
    assert!(said.has(&format!("hil: 0 passed, 3 failed, {skipped} skipped")), "{}", said.text);
}

#[test]
fn a_masked_folder_is_told_from_a_missing_one() {
    let empty = TestMachine::empty();
    std::fs::create_dir_all(empty.root().join("sys/class/powercap")).unwrap();
    let said = Said::of(&mut empty.hil(&[]));
    assert!(said.text.contains("container runtimes mask it"), "{}", said.text);
}

#[test]
fn whoever_is_not_root_may_look_and_not_write() {
    use std::os::unix::process::CommandExt;
    let empty = TestMachine::empty();
    let copy = empty.folder.0.join("hil");
    std::fs::copy(env!("CARGO_BIN_EXE_hil"), &copy).unwrap();
    let run = |words: &[&str]| {
        let mut hil = std::process::Command::new(&copy);
        hil.uid(65_534).arg("--root").arg(empty.root()).arg("--state").arg(empty.state()).args(words);
        hil.output()
    };
    let Ok(looked) = run(&[]) else {
        println!("SKIP(to become another user needs root)");
        return;
    };
    let looked = Said::from(looked);
    looked.is_fine();
    assert!(looked.text.contains("not root"), "{}", looked.text);
    let wrote = Said::from(run(&["--write"]).unwrap());
    assert_eq!(wrote.code, Some(2), "{}", wrote.text);
    assert!(wrote.has("FAIL --write needs root"), "{}", wrote.text);
    assert!(!empty.state().exists());
}

#[test]
fn a_line_that_is_not_understood_is_refused() {
    let empty = TestMachine::empty();
    for words in [&["--wirte"][..], &["--require", "gpu"], &["--patience", "soon"], &["--require"], &["now"]]
    {
        let said = Said::of(&mut empty.hil(words));
        assert_eq!(said.code, Some(2), "{words:?}: {}", said.text);
        assert!(!said.text.contains("PASS"), "{}", said.text);
    }
}
