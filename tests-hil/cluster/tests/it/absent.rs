//! A machine with neither binaries nor Go.

use std::process::Command;

#[test]
fn a_machine_that_cannot_have_one_skips_once_and_says_why() {
    let nowhere = std::env::temp_dir().join(format!("joulie-absent-{}", std::process::id()));
    // Run this test program as on such a machine: several tests that need a control plane.
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["bring_up::", "life::", "ending::", "--show-output"])
        .env_remove("KUBEBUILDER_ASSETS")
        .env("PATH", &nowhere)
        .env("XDG_CACHE_HOME", &nowhere)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    let skips: Vec<&str> = said.lines().filter(|line| line.starts_with("SKIP(")).collect();
    let [skip] = skips.as_slice() else { panic!("{} skips: {said}", skips.len()) };
    assert!(skip.contains("no Go on PATH") && skip.contains("set KUBEBUILDER_ASSETS"), "{skip}");
    // The message must appear even if the output of tests is captured.
    assert_eq!(String::from_utf8_lossy(&ran.stderr).matches("SKIP(").count(), 1);
    assert!(!nowhere.exists(), "a machine without Go gets no cache folder");
}
