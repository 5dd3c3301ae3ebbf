//! libFuzzer on the target `hwmon`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("hwmon", bytes));
