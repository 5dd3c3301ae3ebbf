//! libFuzzer on the target `laws`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("laws", bytes));
