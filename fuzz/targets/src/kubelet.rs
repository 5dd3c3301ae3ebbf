//! libFuzzer on the target `kubelet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::run("kubelet", bytes));
