//! libFuzzer on the target `hsmp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("hsmp", bytes));
