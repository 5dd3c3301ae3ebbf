//! libFuzzer on the target `devices`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("devices", bytes));
