//! Runs every target with its seeds, with every input that ever broke it, and with variations of both.
//!
//! An input that breaks a target belongs in `fuzz/regressions/NAME`, under a name that says what it showed.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "all of it is tests, which say what they are at"
)]

use fuzz::{FuzzTarget, TARGETS};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::fs;
use std::path::{Path, PathBuf};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn target(name: &str) -> FuzzTarget {
    *TARGETS.iter().find(|target| target.name == name).unwrap()
}

/// The files in a folder, which may be missing.
fn inputs(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// A difference between a seed and a variation.
#[derive(Clone, Debug)]
enum Change {
    Put(usize, u8),
    Insert(usize, u8),
    Remove(usize),
    Double(usize, usize),
    Append(Vec<u8>),
    Cut(usize),
}

fn change() -> impl Strategy<Value = Change> {
    // Bytes that are typical of texts are more frequent.
    let byte =
        || prop_oneof![prop::sample::select(&b"0123456789 \n|-,.!/abcdefghijABCDEFGHIJ"[..]), any::<u8>()];
    prop_oneof![
        (any::<usize>(), byte()).prop_map(|(at, byte)| Change::Put(at, byte)),
        (any::<usize>(), byte()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        any::<usize>().prop_map(Change::Remove),
        (any::<usize>(), any::<usize>()).prop_map(|(from, to)| Change::Double(from, to)),
        prop::collection::vec(byte(), 0..32).prop_map(Change::Append),
        any::<usize>().prop_map(Change::Cut),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let place = |at: usize| at % (bytes.len() + 1);
        match change {
            Change::Put(at, byte) => {
                let at = place(*at);
                if let Some(slot) = bytes.get_mut(at) {
                    *slot = *byte;
                }
            }
            Change::Insert(at, byte) => bytes.insert(place(*at), *byte),
            Change::Remove(at) => {
                let at = place(*at);
                if at < bytes.len() {
                    bytes.remove(at);
                }
            }
            Change::Double(from, to) => {
                let (from, to) = (place(*from), place(*to));
                let part = bytes[from.min(to)..from.max(to)].to_vec();
                bytes.extend(part);
            }
            Change::Append(more) => bytes.extend(more),
            Change::Cut(at) => bytes.truncate(place(*at)),
        }
        bytes.truncate(4_096);
    }
    bytes
}

fn everyday(name: &str) {
    let target = target(name);
    let mut known = inputs(&here().join("corpus").join(name));
    assert!(!known.is_empty(), "{name} has no seed");
    known.extend(inputs(&here().join("regressions").join(name)));
    for (path, bytes) in &known {
        println!("{}", path.display());
        (target.run)(bytes);
    }
    (target.run)(&[]);
    let seeds: Vec<Vec<u8>> = known.into_iter().map(|(_, bytes)| bytes).collect();
    let varied = (prop::sample::select(seeds), prop::collection::vec(change(), 1..6))
        .prop_map(|(seed, changes)| changed(seed, &changes));
    let input = prop_oneof![4 => varied, 1 => prop::collection::vec(any::<u8>(), 0..200)];
    let config = Config { cases: target.cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&input, |bytes| {
        std::panic::catch_unwind(|| (target.run)(&bytes)).map_err(|_| TestCaseError::fail("see above"))
    });
    if let Err(error) = outcome {
        panic!("{name}: put this input into fuzz/regressions/{name}: {error}");
    }
}

macro_rules! everyday {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            everyday(stringify!($name));
        })*

        /// A target without a test would never be checked.
        #[test]
        fn every_target_has_a_test_and_a_program() {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            let manifest = fs::read_to_string(here().join("targets/Cargo.toml")).unwrap();
            let bins: Vec<&str> = manifest.split("[[bin]]").skip(1)
                .filter_map(|bin| bin.lines().find_map(|line| line.strip_prefix("name = "))).collect();
            assert_eq!(bins.iter().map(|name| name.trim_matches('"')).collect::<Vec<_>>(), names);
            for name in names {
                let program = fs::read_to_string(here().join(format!("targets/src/{name}.rs"))).unwrap();
                assert!(program.contains(&format!("fuzz::run(\"{name}\", bytes)")), "{program}");
            }
        }
    };
}

everyday!(
    text, decimal, key, lists, powercap, registers, cpufreq, hwmon, hsmp, laws, backend, message, answer,
    catalog, plug, verbs, cards, devices, kubelet, cgroup, kepler, processes, clients
);
