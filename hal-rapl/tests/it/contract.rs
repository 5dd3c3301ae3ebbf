//! The contract of the port, on every profile of the rig.

use crate::bench::Bench;
use power_hal::contract::{ContractMode, ContractReport, Rule, check};
use rig::profile::PROFILES;

fn run(name: &str) -> Option<ContractReport> {
    let mut bench = Bench::mounted(name)?;
    let mut hal = bench.open();
    match check(&mut hal, &mut bench, ContractMode::Full) {
        Ok(report) => Some(report),
        Err(breach) => panic!("{name}: {breach}"),
    }
}

/// Profile, domains, controls set, controls that are locked.
const EXPECTED: [(&str, u32, u32, u32); 11] = [
    ("xeon-2s", 2, 2, 0),
    ("xeon-2s-new", 2, 2, 0),
    ("xeon-multi-die", 4, 4, 0),
    ("xeon-locked", 2, 0, 2),
    ("xeon-tpmi", 2, 2, 0),
    ("epyc", 2, 0, 0),
    ("client", 1, 1, 0),
    ("mi300x", 2, 0, 0),
    ("mi300x-smi", 2, 0, 0),
    ("gpu-2s8", 2, 2, 0),
    ("max1550", 2, 2, 0),
];

#[test]
fn every_profile_keeps_the_contract() {
    for (name, ..) in PROFILES {
        assert!(EXPECTED.iter().any(|(known, ..)| *known == name), "{name} is new: say what is in it");
    }
    for (name, domains, controls, blocked) in EXPECTED {
        let Some(report) = run(name) else { return };
        assert_eq!((report.domains, report.controls, report.blocked), (domains, controls, blocked), "{name}");
        assert_eq!((report.blind, report.in_use), (0, 0), "{name}");
        assert!(report.looks(Rule::SampleComplete) > 0, "{name}");
        if controls > 0 {
            for rule in [
                Rule::Restored,
                Rule::Ordered,
                Rule::RestartRestores,
                Rule::LockedSaid,
                Rule::GoneSaid,
                Rule::StaleRefused,
                Rule::SavedFirst,
                Rule::Clamped,
                Rule::SampleSeesOthers,
                Rule::KeyFollowsHardware,
            ] {
                let cannot = name == "xeon-2s-new" && matches!(rule, Rule::GoneSaid | Rule::StaleRefused);
                assert!(cannot || report.looks(rule) > 0, "{name}: nothing was seen of {rule:?}");
            }
        }
    }
}

#[test]
fn registers_keep_the_contract() {
    let Some(mut bench) = Bench::of("xeon-2s", |machine| machine.boot_without_powercap()) else { return };
    let mut hal = bench.registers().unwrap();
    let report = check(&mut hal, &mut bench, ContractMode::Full).unwrap_or_else(|breach| panic!("{breach}"));
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (2, 2, 0, 0));
    for rule in
        [Rule::Restored, Rule::Ordered, Rule::LockedSaid, Rule::GoneSaid, Rule::BatchSurvives, Rule::Clamped]
    {
        assert!(report.looks(rule) > 0, "nothing was seen of {rule:?}");
    }
}
