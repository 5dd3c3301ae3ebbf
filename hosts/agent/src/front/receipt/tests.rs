use super::*;
use crate::front::rows::NodeRow;
use crate::machine::{Beside, Details, Found, LeaseState};
use joulie_core::node::cap::CapRange;
use node_kit::{Desire, Kept, NodeGrant};
use std::collections::BTreeMap;
use std::sync::Arc;

const TERMS: Terms =
    Terms { cpu: true, gpu: true, simulate_only: false, patience: Duration::from_secs(5), relax: false };

fn w(count: i32) -> Watts {
    Watts::from_int(count)
}

fn at(second: u64) -> Mono {
    Mono::at(Duration::from_secs(second))
}

fn stands(serial: u64) -> Stands {
    Stands::Grant(Kept { uid: "u".to_owned(), grant: NodeGrant { serial, watts: w(500) } })
}

fn inputs() -> Inputs {
    let row = NodeRow {
        uid: "n-1".to_owned(),
        boot: Some("b-1".to_owned()),
        labels: BTreeMap::new(),
        cores: None,
        memory_bytes: None,
        sockets: None,
        gpus: 0,
        refused: crate::counts::Refused::default(),
    };
    Inputs { node: Some(Arc::new(row)), ..Inputs::default() }
}

/// Packages of at most 250 W, each with its limit, its share and what it draws.
pub(crate) fn packages(all: &[(Option<i32>, i32, Drawn)]) -> Part {
    let device = |(number, &(limit, share, drawn)): (usize, &(Option<i32>, i32, Drawn))| Device {
        key: format!("package-{number}"),
        limit: limit.map(w),
        range: CapRange::new(Some(w(50)), Some(w(250)), None),
        share: Some(w(share)),
        drawn,
        energy: None,
        beside: Beside::default(),
    };
    let drawn = Drawn::sum(all.iter().map(|(_, _, drawn)| *drawn));
    let report = CapReport::Cap(CapResult::Applied { effective: w(0) });
    Part {
        means: Means::Limits("rapl"),
        report,
        devices: all.iter().enumerate().map(device).collect(),
        drawn,
        trouble: None,
    }
}

fn none() -> Part {
    Part { means: Means::None, report: CapReport::NoIntent, ..packages(&[]) }
}

pub(crate) fn view(serial: u64, cpu: Part) -> View {
    View {
        desire: stands(serial).over(Desire::GONE, &ArmedNow::default()),
        cpu,
        gpu: none(),
        node_power: None,
        rest: None,
        plug: None,
        source: "rapl",
        found: Arc::new(Found::default()),
        lease: LeaseState::Desired,
        boot: None,
        wants: node_kit::NodeWants::default(),
        details: Details::default(),
    }
}

pub(crate) fn draws(watts: i32) -> Drawn {
    Drawn::Is(w(watts))
}

/// Returns the serial and the power that the receipt holds.
fn of(receipts: &mut Receipts, serial: u64, view: &View, second: u64) -> Option<(u64, Option<Watts>)> {
    let receipt = receipts.of(&stands(serial), &inputs(), view, &TERMS, at(second))?;
    assert_eq!((receipt.boot.as_str(), receipt.node.as_str()), ("b-1", "n-1"));
    Some((receipt.serial, receipt.holds))
}

#[test]
fn a_receipt_waits_until_every_limit_is_read_back_and_shows_in_what_is_drawn() {
    let mut it = Receipts::default();
    let pending = |cpu: Part| Part { report: CapReport::Pending, ..cpu };
    let high = pending(packages(&[(Some(250), 150, draws(200)), (Some(150), 150, draws(140))]));
    assert_eq!(of(&mut it, 1, &view(1, high), 0), None);
    let hot = packages(&[(Some(150), 150, draws(200)), (Some(150), 150, draws(140))]);
    assert_eq!(of(&mut it, 1, &view(1, hot.clone()), 1), None, "the power is of the time before");
    let cool = packages(&[(Some(150), 150, draws(150)), (Some(150), 150, draws(140))]);
    assert_eq!(of(&mut it, 1, &view(1, cool), 2), Some((1, Some(w(300)))));
    // A package that draws above its limit for longer than a limit needs counts with all that it can draw.
    assert_eq!(of(&mut it, 1, &view(1, hot.clone()), 3), Some((1, Some(w(300)))));
    assert_eq!(it.unkept(), &Unkept::default(), "not yet");
    assert_eq!(of(&mut it, 1, &view(1, hot), 8), Some((1, Some(w(400)))));
    assert_eq!(it.unkept(), &Unkept { above: vec!["package-0".to_owned()], ..Unkept::default() });
}

#[test]
fn receipts_of_grants_of_one_value_are_told_apart_by_their_serials() {
    // 300, 500 and 300 W again: the second 300 W is not confirmed by the first.
    let mut it = Receipts::default();
    let at_300 = packages(&[(Some(150), 150, draws(100)), (Some(150), 150, draws(100))]);
    assert_eq!(of(&mut it, 1, &view(1, at_300.clone()), 0), Some((1, Some(w(300)))));
    let at_500 = packages(&[(Some(250), 250, draws(200)), (Some(250), 250, draws(200))]);
    assert_eq!(of(&mut it, 2, &view(2, at_500.clone()), 1), Some((2, Some(w(500)))));
    assert_eq!(of(&mut it, 3, &view(1, at_300.clone()), 2), Some((2, Some(w(500)))), "the machine is at 1");
    let on_its_way = Part { report: CapReport::Pending, ..packages(&[(Some(250), 150, draws(100)); 2]) };
    assert_eq!(of(&mut it, 3, &view(3, on_its_way), 3), Some((2, Some(w(500)))));
    assert_eq!(of(&mut it, 3, &view(3, at_300), 4), Some((3, Some(w(300)))));
}

#[test]
fn what_refuses_is_counted_with_the_limit_that_it_has_or_with_all_that_it_draws() {
    let failed = CapReport::Cap(CapResult::Failed(power_hal::ErrorKind::Locked));
    let refusing =
        |limit| Part { report: failed, ..packages(&[(limit, 150, draws(90)), (Some(150), 150, draws(90))]) };
    for (limit, holds) in [(Some(220), Some(w(370))), (None, Some(w(400)))] {
        let mut it = Receipts::default();
        assert_eq!(of(&mut it, 1, &view(1, refusing(limit)), 0), Some((1, holds)));
        assert_eq!(it.unkept(), &Unkept { refused: vec!["package-0".to_owned()], ..Unkept::default() });
    }
    let mut unknown = refusing(None);
    unknown.devices[0].range = CapRange::UNKNOWN;
    assert_eq!(of(&mut Receipts::default(), 1, &view(1, unknown), 0), Some((1, None)), "nobody can say");
}

#[test]
fn what_a_device_held_that_was_asked_for_less_is_its_floor_until_it_goes_lower() {
    let mut it = Receipts::default();
    let mut floor = |serial, first: (i32, i32)| {
        let failed = CapReport::Cap(CapResult::Failed(power_hal::ErrorKind::Locked));
        let part = packages(&[(Some(first.0), first.1, draws(90)), (Some(150), 150, draws(90))]);
        let part = if first.0 > first.1 { Part { report: failed, ..part } } else { part };
        it.of(&stands(serial), &inputs(), &view(serial, part), &TERMS, at(serial)).unwrap().floor
    };
    // Two packages of at least 50 W.
    assert_eq!(floor(1, (150, 150)), Some(w(100)));
    assert_eq!(floor(2, (120, 80)), Some(w(170)), "it was asked for 80 W and holds 120 W");
    assert_eq!(floor(3, (200, 200)), Some(w(170)), "granted more it is no other device");
    assert_eq!(floor(4, (110, 110)), Some(w(100)));
    assert_eq!(floor(5, (120, 80)), Some(w(170)));
    assert_eq!(floor(124, (120, 120)), Some(w(170)));
    assert_eq!(floor(125, (120, 120)), Some(w(100)), "it has refused nothing for two minutes");
}

#[test]
fn what_nobody_measures_had_its_time_to_come_down() {
    let mut it = Receipts::default();
    let dark = || packages(&[(Some(150), 150, Drawn::Unmetered); 2]);
    assert_eq!(of(&mut it, 1, &view(1, dark()), 0), None);
    assert_eq!(of(&mut it, 1, &view(1, dark()), 4), None);
    assert_eq!(of(&mut it, 1, &view(1, dark()), 5), Some((1, Some(w(300)))));
    assert_eq!(of(&mut it, 2, &view(2, dark()), 6), Some((1, Some(w(300)))));
    assert_eq!(of(&mut it, 2, &view(2, dark()), 11), Some((2, Some(w(300)))));
}

#[test]
fn a_closed_loop_holds_its_cap_while_no_more_is_drawn() {
    let looped = |drawn| Part {
        means: Means::Dvfs,
        report: CapReport::Cap(CapResult::Applied { effective: w(300) }),
        ..packages(&[(Some(250), 150, draws(drawn)), (Some(250), 150, draws(drawn))])
    };
    let mut it = Receipts::default();
    assert_eq!(of(&mut it, 1, &view(1, looped(200)), 0), None);
    assert_eq!(of(&mut it, 1, &view(1, looped(150)), 1), Some((1, Some(w(300)))));
    assert_eq!(of(&mut it, 1, &view(1, looped(200)), 2), Some((1, Some(w(300)))));
    assert_eq!(of(&mut it, 1, &view(1, looped(200)), 7), Some((1, Some(w(500)))));
    assert_eq!(it.unkept().above, ["package-0", "package-1"]);
}

#[test]
fn where_a_closed_loop_does_not_hold_the_limits_are_the_least_that_there_is() {
    let mut it = Receipts::default();
    let mut floor = |(serial, second), share, drawn| {
        let part = Part {
            means: Means::Dvfs,
            report: CapReport::Cap(CapResult::Applied { effective: w(300) }),
            ..packages(&[(Some(250), share, draws(drawn)), (Some(250), share, draws(drawn))])
        };
        it.of(&stands(serial), &inputs(), &view(serial, part), &TERMS, at(second)).unwrap().floor
    };
    // Two packages of at least 50 W, while the loop keeps them to 300 W together.
    assert_eq!(floor((1, 1), 150, 150), Some(w(100)));
    assert_eq!(floor((1, 2), 150, 200), Some(w(100)), "it has its time");
    assert_eq!(floor((1, 7), 150, 200), Some(w(500)), "each draws what its own limit lets it");
    // The budget grants what they hold; the floor does not fall because of that.
    assert_eq!(floor((2, 8), 250, 200), Some(w(500)));
    assert_eq!(floor((2, 9), 250, 150), Some(w(100)), "it holds again");
}

#[test]
fn a_wiggle_is_not_said_and_a_release_is_confirmed() {
    let mut it = Receipts::default();
    let some = |more: &str| {
        let mut part = packages(&[(Some(150), 151, draws(90)), (Some(150), 151, draws(90))]);
        part.devices[0].limit = Watts::parse(more, power_units::Role::Limit).ok();
        part
    };
    assert_eq!(of(&mut it, 1, &view(1, some("150.5")), 0), Some((1, Some(w(300) + half()))));
    assert_eq!(of(&mut it, 1, &view(1, some("149.9")), 1), Some((1, Some(w(300) + half()))));
    assert_eq!(
        of(&mut it, 1, &view(1, some("148.6")), 2),
        Some((1, Some(w(300) + half()))),
        "less than 1 W for each"
    );
    assert_eq!(of(&mut it, 1, &view(1, some("148.5")), 3), Some((1, Some(w(298) + half()))));
    let released =
        Stands::Released(Kept { uid: "u".to_owned(), grant: NodeGrant { serial: 2, watts: w(500) } });
    let mut free = view(2, packages(&[(Some(250), 250, draws(90)); 2]));
    free.desire = released.over(Desire::GONE, &ArmedNow::default());
    free.cpu.devices.iter_mut().for_each(|device| device.share = None);
    let receipt = it.of(&released, &inputs(), &free, &TERMS, at(3)).unwrap();
    assert_eq!((receipt.serial, receipt.holds), (2, Some(w(500))));
}

fn half() -> Watts {
    Watts::from_bits(1 << 31)
}

#[test]
fn another_boot_needs_its_own_receipt_and_one_that_only_looks_gives_none() {
    let mut it = Receipts::default();
    let held = || packages(&[(Some(150), 150, draws(90)); 2]);
    assert!(of(&mut it, 1, &view(1, held()), 0).is_some());
    let booted = |cpu| View { boot: Some("b-2".to_owned()), ..view(1, cpu) };
    let uncapped = Part { report: CapReport::Pending, ..packages(&[(Some(250), 150, draws(90)); 2]) };
    let receipt = it.of(&stands(1), &inputs(), &booted(uncapped), &TERMS, at(1)).unwrap();
    assert_eq!(
        (receipt.boot.as_str(), receipt.holds),
        ("b-1", Some(w(500))),
        "of the boot that it was given in"
    );
    let receipt = it.of(&stands(1), &inputs(), &booted(held()), &TERMS, at(2)).unwrap();
    assert_eq!((receipt.boot.as_str(), receipt.holds), ("b-2", Some(w(300))));
    let looks = Terms { simulate_only: true, ..TERMS };
    assert_eq!(Receipts::default().of(&stands(1), &inputs(), &view(1, held()), &looks, at(0)), None);
}

/// The object with a grant of so many watts.
fn granted(serial: u64, watts: i32) -> Stands {
    Stands::Grant(Kept { uid: "u".to_owned(), grant: NodeGrant { serial, watts: w(watts) } })
}

/// Returns what the receipt holds and the grant that it is for, for a machine that follows the grant.
fn compared(it: &mut Receipts, stands: &Stands, cpu: Part, second: u64) -> (Option<Watts>, Option<Watts>) {
    let desire = stands.over(Desire::GONE, &ArmedNow::default());
    let view = View { desire, ..view(0, cpu) };
    let receipt = it.of(stands, &inputs(), &view, &TERMS, at(second));
    let granted = stands.grant().map(|grant| grant.watts);
    (receipt.and_then(|receipt| receipt.holds), it.in_force(granted))
}

#[test]
fn what_is_held_is_compared_with_the_grant_that_was_in_force_and_not_with_one_on_its_way() {
    let mut it = Receipts::default();
    let of = |limit, share| packages(&[(Some(limit), share, draws(90)); 2]);
    let pending = |limit, share| Part { report: CapReport::Pending, ..of(limit, share) };
    let is = |holds, of| (Some(w(holds)), Some(w(of)));
    assert_eq!(compared(&mut it, &granted(1, 500), of(250, 250), 0), is(500, 500));
    assert_eq!(compared(&mut it, &granted(2, 400), pending(250, 200), 1), is(500, 500));
    // Nor are three in a row of which none was read back.
    assert_eq!(compared(&mut it, &granted(3, 300), pending(250, 150), 2), is(500, 500));
    assert_eq!(compared(&mut it, &granted(3, 300), of(150, 150), 3), is(300, 300));
    // What is on its way up is within the grant already.
    assert_eq!(compared(&mut it, &granted(4, 450), pending(150, 225), 4), is(300, 450));
    // Devices that refuse to go down hold more than their grant.
    let refused = CapReport::Cap(CapResult::Failed(power_hal::ErrorKind::Locked));
    let refuses = Part { report: refused, ..of(150, 100) };
    assert_eq!(compared(&mut it, &granted(5, 200), refuses, 5), is(300, 200));
    // Limits that are raised before all of them are read back.
    assert_eq!(compared(&mut it, &granted(6, 600), pending(250, 240), 6), is(500, 600));
}

#[test]
fn a_receipt_does_not_say_more_than_the_grant_when_that_is_over() {
    let mut it = Receipts::default();
    let first = |limit| packages(&[(Some(limit), 150, draws(90)), (Some(150), 150, draws(90))]);
    let moved = Part { report: CapReport::Pending, ..first(151) };
    let is = |holds| (Some(w(holds)), Some(w(300)));
    assert_eq!(compared(&mut it, &granted(1, 300), first(150), 0), is(300));
    assert_eq!(compared(&mut it, &granted(1, 300), moved, 1), is(301), "somebody has set another limit");
    // 1 W less is within the rounding of two devices, and would not be told otherwise.
    assert_eq!(compared(&mut it, &granted(1, 300), first(150), 2), is(300));
    assert_eq!(compared(&mut it, &granted(1, 300), first(149), 3), is(300));
}
