//! libFuzzer on the target `lists`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("lists", bytes));
