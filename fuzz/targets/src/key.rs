//! libFuzzer on the target `key`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("key", bytes));
