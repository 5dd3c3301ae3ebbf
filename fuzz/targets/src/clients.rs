//! libFuzzer on the target `clients`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("clients", bytes));
