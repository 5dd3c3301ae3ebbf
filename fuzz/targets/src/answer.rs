//! libFuzzer on the target `answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("answer", bytes));
