//! The program as a person starts it.

use std::process::Command;

#[test]
fn a_word_that_it_does_not_know_is_refused_with_what_it_takes() {
    let told = Command::new(env!("CARGO_BIN_EXE_vm")).arg("--kernal").output().unwrap();
    assert_eq!(told.status.code(), Some(2));
    let said = String::from_utf8(told.stdout).unwrap();
    assert!(said.contains("--kernal") && said.contains("--kernel"), "{said}");
}
