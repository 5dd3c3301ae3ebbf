//! libFuzzer on the target `catalog`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("catalog", bytes));
