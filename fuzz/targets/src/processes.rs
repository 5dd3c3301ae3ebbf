//! libFuzzer on the target `processes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("processes", bytes));
