//! libFuzzer on the target `backend`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("backend", bytes));
