//! libFuzzer on the target `plug`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("plug", bytes));
