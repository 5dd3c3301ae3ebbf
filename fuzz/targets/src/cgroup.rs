//! libFuzzer on the target `cgroup`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("cgroup", bytes));
