//! libFuzzer on the target `registers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("registers", bytes));
