//! libFuzzer on the target `decimal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("decimal", bytes));
