use super::*;
use planner::hardware::{Cpu, Hardware};
use planner::intent::Cap;
use power_units::{Micros, Percent, Ratio, Stamp};

fn node(min: i32, max: Option<i32>) -> Hardware {
    let watts = |watts| Watts::from_int(watts);
    let cpu = Cpu {
        sockets: Some(2),
        min_per_socket: Some(watts(min)),
        max_per_socket: max.map(watts),
        ..Cpu::default()
    };
    Hardware { cpu, gpu: None }
}

fn percent(value: i32) -> Caps {
    Caps { cpu: Some(Cap { percent: Some(Percent::from_int(value)), watts: None }), gpu: None }
}

fn split(max: Option<i32>) -> Split {
    Split::of(&node(100, max), &percent(60), (true, true), (Watts::from_int(50), None))
}

#[test]
fn a_node_is_its_devices_and_the_rest() {
    // 2 × 360 W × 60 % + 50 W = 482 W; 2 × 100 W + 50 W = 250 W; 2 × 360 W + 50 W = 770 W.
    let split = split(Some(360));
    let watts = |watts: Option<Watts>| watts.map(|watts| i32::try_from(watts.to_bits() >> 32).unwrap());
    assert_eq!(watts(split.watts(&percent(60))), Some(482));
    assert_eq!((watts(Some(split.floor())), watts(split.max())), (Some(250), Some(770)));
    // Nobody can say what a node of unknown devices draws.
    assert_eq!(super::tests::split(None).max(), None);
    assert!(
        !Split::of(&node(100, Some(360)), &percent(60), (false, false), (Watts::ZERO, None)).is_cappable()
    );
}

#[test]
fn caps_for_less_than_is_desired_are_on_the_way_from_the_lowest_and_never_above() {
    let split = split(Some(360));
    let cap = |target: i32| {
        let caps = split.caps(&percent(100), Watts::from_int(target));
        assert!(split.watts(&caps).unwrap() <= Watts::from_int(target.max(250)), "{target}");
        caps.cpu.unwrap().watts.unwrap()
    };
    assert_eq!(cap(10_000), Watts::from_int(360));
    // (510 - 50) / 2
    assert_eq!(cap(510), Watts::from_int(230));
    assert_eq!(cap(511), Watts::from_int(230), "whole watts");
    assert_eq!(cap(100), Watts::from_int(100), "no lower than the devices go");
}

#[test]
fn a_device_that_names_no_lowest_limit_is_asked_for_no_less_than_it_draws_idle() {
    let mut hardware = node(100, Some(360));
    hardware.cpu.min_per_socket = None;
    let split = Split::of(&hardware, &percent(60), (true, true), (Watts::ZERO, None));
    // A fifth of 360 W: 72 W a package.
    assert_eq!(split.floor(), Watts::from_int(144));
    let caps = split.caps(&percent(100), Watts::from_int(1));
    assert_eq!(caps.cpu.unwrap().watts, Some(Watts::from_int(72)));
}

#[test]
fn a_node_of_unknown_hardware_counts_with_what_was_said_for_it_or_with_nothing_that_adds_up() {
    let nothing = Hardware::default();
    let of = |assumed| Split::of(&nothing, &percent(60), (true, true), (Watts::ZERO, assumed));
    let said = of(Some(Watts::from_int(900)));
    assert_eq!((of(None).is_known(), of(None).max()), (false, None));
    assert_eq!((said.is_known(), said.max()), (false, Some(Watts::from_int(900))));
    // How many packages there are is a part of what it can draw: one cap is not one package's cap.
    let mut uncounted = node(100, Some(360));
    uncounted.cpu.sockets = None;
    let split = Split::of(&uncounted, &percent(60), (true, true), (Watts::ZERO, None));
    assert_eq!((split.is_known(), split.watts(&percent(60))), (false, None));
}

#[test]
fn racks_are_groups_where_they_have_a_limit() {
    let limits = Limits {
        site: Some(Watts::from_int(1000)),
        site_base: Watts::ZERO,
        racks: [("r1", 400), ("*", 500)]
            .map(|(rack, watts)| (rack.to_owned(), Watts::from_int(watts)))
            .into(),
        rack_base: [("r1".to_owned(), Watts::from_int(40))].into(),
        node_rest: Watts::ZERO,
        unknown_node: None,
        dead_band: Watts::ZERO,
        raise_band: Ratio::ZERO,
        raise_dwell: Micros::ZERO,
    };
    let groups = Groups::of(&limits, ["r2"].into_iter()).unwrap();
    let of = |rack| groups.groups[groups.find(rack)];
    assert_eq!(
        (of(Some("r1")).limit(), of(Some("r1")).base()),
        (Watts::from_int(400), Some(Watts::from_int(40)))
    );
    assert_eq!(of(Some("r2")).limit(), Watts::from_int(500));
    assert_eq!(groups.find(None), 0);
}

#[test]
fn a_group_above_its_limit_for_longer_than_a_read_back_takes_is_told_of() {
    let limits = Limits {
        site: Some(Watts::from_int(500)),
        site_base: Watts::ZERO,
        racks: Default::default(),
        rack_base: Default::default(),
        node_rest: Watts::ZERO,
        unknown_node: None,
        dead_band: Watts::from_int(5),
        raise_band: Ratio::ZERO,
        raise_dwell: Micros::ZERO,
    };
    let mut ledger = Ledger::new(limits).unwrap();
    let claim = Claim {
        node: "a".into(),
        rack: None,
        priority: Priority::Eco,
        split: Split::of(&node(100, Some(360)), &percent(60), (true, true), (Watts::ZERO, None)),
        desired: Some(percent(60)),
        lifts: false,
        stands: None,
        reachable: true,
        fixed: false,
    };
    let mut stands = |second: u64| {
        let now = Stamp::new(Micros::new(second * 1_000_000));
        ledger.round(std::slice::from_ref(&claim), true, now).unwrap();
        let site = ledger.standings().first().unwrap();
        (site.exceeded, site.verdict().1)
    };
    // Two packages of 360 W of which nothing was ever read back may draw 720 W.
    assert_eq!(stands(1), (None, "Kept"), "what was asked for may be read back any moment");
    assert_eq!(stands(30), (None, "Kept"));
    assert_eq!(stands(31), (Some(Watts::from_int(220)), "BudgetExceeded"));
}
