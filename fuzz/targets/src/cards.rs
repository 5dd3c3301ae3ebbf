//! libFuzzer on the target `cards`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("cards", bytes));
