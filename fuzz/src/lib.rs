//! What must hold of everything that reads bytes from outside, and of the laws behind it, whatever the bytes are.
//!
//! A *target* is a function of bytes that panics when its property does not hold. libFuzzer drives it (`fuzz/targets`,
//! `cargo xtask test --fuzz`), and the everyday tests drive the same function over its *seeds* (`corpus/NAME`: texts as
//! drivers write them), over every input that ever broke it (`regressions/NAME`) and over some thousands of variations.
//! So this library knows neither libFuzzer nor the nightly compiler.
//!
//! A property is more than "does not panic": a second, plainer way to the same answer, a round trip, a range, or who
//! must be named when something is wrong. A parser that only a HAL reaches is fed through a tree of files ([`tree`]).
#![forbid(unsafe_code)]

mod backend;
mod cpufreq;
mod decimal;
mod feed;
mod hsmp;
mod hwmon;
mod key;
mod laws;
mod lists;
mod message;
mod port;
mod powercap;
mod registers;
mod text;
mod tree;

/// Something that is fed with bytes.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Its name: of the program for libFuzzer, and of the folders of its inputs.
    pub name: &'static str,
    /// Panics if the property does not hold of these bytes.
    pub run: fn(&[u8]),
    /// How many variations of the seeds the everyday test tries.
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
];

/// Runs the target of this name.
///
/// # Panics
/// When there is none, or its property does not hold.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    assert!(target.is_some(), "no target {name}");
    if let Some(target) = target {
        (target.run)(bytes);
    }
}
