//! libFuzzer on the target `powercap`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("powercap", bytes));
