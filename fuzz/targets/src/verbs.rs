//! libFuzzer on the target `verbs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("verbs", bytes));
