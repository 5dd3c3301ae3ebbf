//! Properties of all code that reads bytes from outside, and of the laws behind it, for any input.
//!
//! A *target* is a function of bytes that panics if its property does not hold. libFuzzer calls it (`fuzz/targets`,
//! `cargo xtask test --fuzz`). The everyday tests call the same function with its *seeds* (`corpus/NAME`: texts as
//! drivers write them), with every input that ever broke it (`regressions/NAME`) and with some thousands of
//! variations. So this library needs neither libFuzzer nor the nightly compiler.
//!
//! A property is more than "does not panic": a second, simpler way to the same answer, a round trip, a range, or the
//! name in an error. A parser that only a HAL can reach is tested with a tree of files ([`tree`]).
#![forbid(unsafe_code)]

mod answer;
mod backend;
mod cards;
mod catalog;
mod cgroup;
mod clients;
mod cpufreq;
mod decimal;
mod devices;
mod feed;
mod hsmp;
mod hwmon;
mod kepler;
mod key;
mod kubelet;
mod laws;
mod lists;
mod message;
mod plug;
mod port;
mod powercap;
mod processes;
mod registers;
mod text;
mod tree;
mod verbs;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// The name of its libFuzzer program and of its input folders.
    pub name: &'static str,
    /// Panics if the property does not hold for these bytes.
    pub run: fn(&[u8]),
    /// The number of variations of the seeds in the everyday test.
    pub cases: u32,
}

/// All targets.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "text", run: text::run, cases: 20_000 },
    FuzzTarget { name: "decimal", run: decimal::run, cases: 20_000 },
    FuzzTarget { name: "key", run: key::run, cases: 20_000 },
    FuzzTarget { name: "lists", run: lists::run, cases: 5_000 },
    FuzzTarget { name: "powercap", run: powercap::run, cases: 1_000 },
    FuzzTarget { name: "registers", run: registers::run, cases: 1_000 },
    FuzzTarget { name: "cpufreq", run: cpufreq::run, cases: 1_000 },
    FuzzTarget { name: "hwmon", run: hwmon::run, cases: 1_000 },
    FuzzTarget { name: "hsmp", run: hsmp::run, cases: 5_000 },
    FuzzTarget { name: "laws", run: laws::run, cases: 5_000 },
    FuzzTarget { name: "backend", run: backend::run, cases: 5_000 },
    FuzzTarget { name: "message", run: message::run, cases: 20_000 },
    FuzzTarget { name: "answer", run: answer::run, cases: 20_000 },
    FuzzTarget { name: "catalog", run: catalog::run, cases: 5_000 },
    FuzzTarget { name: "plug", run: plug::run, cases: 20_000 },
    FuzzTarget { name: "verbs", run: verbs::run, cases: 20_000 },
    FuzzTarget { name: "cards", run: cards::run, cases: 5_000 },
    FuzzTarget { name: "devices", run: devices::run, cases: 20_000 },
    FuzzTarget { name: "kubelet", run: kubelet::run, cases: 20_000 },
    FuzzTarget { name: "cgroup", run: cgroup::run, cases: 20_000 },
    FuzzTarget { name: "kepler", run: kepler::run, cases: 20_000 },
    FuzzTarget { name: "processes", run: processes::run, cases: 20_000 },
    FuzzTarget { name: "clients", run: clients::run, cases: 20_000 },
];

/// Runs the target of this name.
///
/// # Panics
/// If there is none, or its property does not hold.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    assert!(target.is_some(), "no target {name}");
    if let Some(target) = target {
        (target.run)(bytes);
    }
}
