//! libFuzzer on the target `cpufreq`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("cpufreq", bytes));
