//! libFuzzer on the target `text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("text", bytes));
