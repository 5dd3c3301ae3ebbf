use crate::arms::Untouched;
use crate::cluster::{Experiment, run};
use crate::demand::{DemandMix, DemandTrace};
use crate::site::VirtualSite;
use crate::trials::{ArmName, Trial, TrialFault, Tried};
use joulie_core::budget::Priority;

/// The generator is frozen: who changes it changes every figure.
#[test]
fn the_demand_of_a_seed_is_what_it_always_was() {
    let site = VirtualSite::of(100);
    let hash = |mix, seed| DemandTrace::of(&site, mix, seed, 5).hash();
    let all = [
        ("A", 1),
        ("B", 1),
        ("C", 1),
        ("C", 2),
        ("diurnal", 1),
        ("gangs", 1),
        ("flash", 1),
        ("greedy", 1),
        ("steady", 1),
        ("antiphase-30", 1),
    ];
    let hashes: Vec<u64> =
        all.iter().map(|&(name, seed)| hash(DemandMix::read(name).unwrap(), seed)).collect();
    assert_eq!(hashes, GOLDEN, "{hashes:#x?}");
}

const GOLDEN: [u64; 10] = [
    0xe7a6_91d8_5c57_3539,
    0x8f7c_0f18_e53c_369e,
    0x1d28_59b8_7095_1679,
    0x49d8_6b78_4b4a_da93,
    0xa3b8_7675_bcbd_2cbc,
    0xdda6_0ee0_5c18_218b,
    0x7d8f_53e8_697f_deb0,
    0xdcfe_e96f_1560_3b84,
    0x7c79_2901_bf83_00c5,
    0xc2c4_1ea6_ab35_a1d5,
];

fn tried(mix: DemandMix, fault: TrialFault, arms: &[ArmName]) -> Tried {
    Tried::of(Trial { mix, fault, seed: 7, arms: arms.to_vec(), size: None }, 60, 4)
}

#[test]
fn no_count_of_the_planner_is_above_a_limit_and_no_arm_serves_more_than_the_clairvoyant() {
    let tried = tried(DemandMix::C, TrialFault::None, &ArmName::ALL);
    assert!(tried.held <= tried.clairvoyant, "{} {}", tried.held, tried.clairvoyant);
    for arm in ArmName::KEEPING {
        let figures = tried.figures(arm).unwrap();
        assert_eq!(figures.above_s(), 0.0, "{}", arm.name());
        // The clairvoyant has one limit.
        assert!(figures.served() <= tried.clairvoyant || arm.instant() > 1.0, "{}", arm.name());
        assert!(figures.excess() <= 0.0, "{}: {}", arm.name(), figures.excess());
    }
}

#[test]
fn a_cut_is_followed_and_blind_nodes_bring_nothing_above_a_limit() {
    for fault in [TrialFault::Cut, TrialFault::Blind(0.1), TrialFault::Blind(1.0)] {
        let tried = tried(DemandMix::C, fault, &[ArmName::Static, ArmName::Ours]);
        for (arm, figures) in &tried.outcomes {
            assert_eq!(figures.above_s(), 0.0, "{} {}", arm.name(), fault.name());
            assert_eq!(figures.within_after().is_some(), fault == TrialFault::Cut, "{}", arm.name());
        }
    }
}

#[test]
fn an_armed_event_lowers_all_within_two_seconds_and_raises_nothing_in_the_account() {
    let tried = tried(DemandMix::C, TrialFault::Armed, &[ArmName::Ours]);
    let figures = tried.figures(ArmName::Ours).unwrap();
    let (within, above) = figures.armed_within().unwrap();
    assert!(within <= 2.0 && above == 0.0, "{within} s, then {above} s above");
    assert!(figures.armed_after(0.99).unwrap() <= 2.0);
    assert_eq!(figures.above_s(), 0.0);
}

#[test]
fn with_two_limits_no_minute_is_above_the_lower_one_and_no_count_above_the_higher_one() {
    for fault in [TrialFault::None, TrialFault::Blind(0.1), TrialFault::Blind(1.0)] {
        let tried = tried(DemandMix::C, fault, &[ArmName::Ours, ArmName::TwoLimits]);
        let figures = tried.figures(ArmName::TwoLimits).unwrap();
        assert!(figures.window_excess(60) <= 0.0, "{} {}", figures.window_excess(60), fault.name());
        assert_eq!(figures.above_s(), 0.0, "{}", fault.name());
        if fault == TrialFault::None {
            assert!(figures.served() >= tried.figures(ArmName::Ours).unwrap().served());
        }
    }
}

#[test]
fn the_parts_of_the_limit_are_all_of_it() {
    let tried = tried(DemandMix::C, TrialFault::None, &[ArmName::Static, ArmName::Ours]);
    for (arm, figures) in &tried.outcomes {
        let parts = figures.limit_parts();
        let sum = parts.drawn + parts.floors + parts.unneeded + parts.on_its_way + parts.room;
        assert!((sum - 1.0).abs() < 1e-9, "{}: {parts:?}", arm.name());
        assert!(parts.missing > 0.0 && parts.unneeded > 0.0 && parts.on_its_way >= 0.0, "{parts:?}");
    }
}

#[test]
fn eco_machines_are_throttled_before_draining_ones_and_these_before_those_at_full_power() {
    let tried = tried(DemandMix::C, TrialFault::Classes, &[ArmName::Static, ArmName::Ours]);
    for (arm, figures) in &tried.outcomes {
        let of = |class| figures.throttled_in(class);
        let (fast, drains, eco) = (of(Priority::Performance), of(Priority::Draining), of(Priority::Eco));
        // With the policy's split both lower classes have their floors.
        assert!(fast < drains && drains <= eco, "{}: {fast} {drains} {eco}", arm.name());
        assert_eq!(figures.above_s(), 0.0, "{}", arm.name());
    }
}

#[test]
fn a_seed_gives_the_same_figures_again() {
    let once = || {
        let tried = tried(DemandMix::B, TrialFault::None, &[ArmName::Ours]);
        let figures = tried.figures(ArmName::Ours).unwrap();
        (figures.served().to_bits(), figures.orders().to_bits(), figures.writes().to_bits())
    };
    assert_eq!(once(), once());
}

/// The policy's split is what everybody begins with, so that the planner writes nothing.
#[test]
fn the_planner_with_the_policys_split_leaves_the_entitlements_alone() {
    let tried = tried(DemandMix::A, TrialFault::None, &[ArmName::Static]);
    let planned = tried.figures(ArmName::Static).unwrap();
    assert_eq!(planned.orders(), 0.0);
    let site = VirtualSite::of(60);
    let trace = DemandTrace::of(&site, DemandMix::A, 7, 4);
    let limit = trace.limit(&site, DemandMix::A);
    let experiment = Experiment {
        site: &site,
        trace: &trace,
        limit,
        seed: 7,
        blind: 0.0,
        cut: None,
        armed: None,
        instant: 1.0,
    };
    assert_eq!(run(&experiment, &mut Untouched).served(), planned.served());
}
