//! libFuzzer on the target `message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("message", bytes));
