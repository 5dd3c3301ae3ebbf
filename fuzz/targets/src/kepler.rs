//! libFuzzer on the target `kepler`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("kepler", bytes));
