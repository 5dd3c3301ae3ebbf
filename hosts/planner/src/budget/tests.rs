use super::rig::{Claim, round_of, round_under};
use super::*;
use crate::hardware::{Cpu, GpuInventory, ResolvedHardware};
use crate::intent::{DeviceCap, NodeCaps};
use crate::node::Power;
use crate::power::{NodeReading, PowerMeter};
use joulie_core::budget::{Grant, GrantReceipt, Priority};
use power_units::Percent;

mod demand;
mod sleep;

fn w(watts: i32) -> Watts {
    Watts::from_int(watts)
}

/// Two packages with a lowest cap of 100 W.
fn node(max: Option<i32>) -> ResolvedHardware {
    let cpu =
        Cpu { sockets: Some(2), min_per_socket: Some(w(100)), max_per_socket: max.map(w), ..Cpu::default() };
    ResolvedHardware { cpu, gpu: None }
}

fn percent(value: i32) -> NodeCaps {
    NodeCaps { cpu: Some(DeviceCap { percent: Some(Percent::from_int(value)), watts: None }), gpu: None }
}

const BOTH: (bool, bool) = (true, true);

fn limits(site: i32) -> BudgetLimits {
    BudgetLimits {
        site: Some(w(site)),
        site_base: Watts::ZERO,
        racks: BTreeMap::new(),
        rack_base: BTreeMap::new(),
        node_rest: Watts::ZERO,
        rest_measured: false,
        unknown_node: None,
        dead_band: w(5),
        raise_band: Ratio::ZERO,
        raise_dwell: Micros::ZERO,
        answer_within: Micros::new(30_000_000),
        gone_hold: Micros::new(600_000_000),
        sharing: PowerSharing::Static,
    }
}

fn grant(serial: u64, watts: i32) -> Option<Grant> {
    Some(Grant { serial, watts: w(watts), ceiling: w(watts) })
}

fn receipt(serial: u64, holds: i32) -> Option<GrantReceipt> {
    Some(GrantReceipt { serial, holds: w(holds), floor: Watts::ZERO, yields: None })
}

/// Two packages of 100 to 360 W that the policy caps at 60 %: about 432 W.
fn claim(name: &str) -> Claim {
    let power_model = NodePowerModel::of(&node(Some(360)), BOTH);
    Claim {
        node: name.into(),
        priority: Priority::Eco,
        wanted: Some(w(432)),
        power_model,
        leaves: false,
        grant: None,
        released: false,
        receipt: None,
        registered_anew: false,
        sent: Vec::new(),
        gone: false,
        limits: LimitPlace::default(),
        aside: false,
        rack: None,
        rest_most: None,
        power: Power::UNMETERED,
        demand: None,
        sleep: crate::sleep::SleepCount::Awake,
        expected: None,
    }
}

fn at(second: u64) -> Stamp {
    Stamp::new(Micros::new(second * 1_000_000))
}

/// The desired grant of each: the watts, the ceiling, and whether it is released.
type Asked = Vec<Option<(Watts, Watts, bool)>>;

fn plain(asks: Vec<Option<DesiredGrant>>) -> Asked {
    let plain = |ask: DesiredGrant| (ask.watts, ask.ceiling, ask.released);
    asks.into_iter().map(|ask| ask.map(plain)).collect()
}

fn asks_of(
    claims: &[Claim],
    limits: &BudgetLimits,
    memory: &mut BudgetMemory,
    now: Stamp,
    raises: bool,
) -> Asked {
    plain(round_of(claims, limits, memory, now, raises).0)
}

fn asked(claims: &[Claim], limits: &BudgetLimits) -> Asked {
    asks_of(claims, limits, &mut BudgetMemory::default(), at(1), true)
}

fn ask(watts: i32, ceiling: i32) -> Option<(Watts, Watts, bool)> {
    Some((w(watts), w(ceiling), false))
}

#[test]
fn a_node_is_its_devices() {
    let power_model = NodePowerModel::of(&node(Some(360)), BOTH);
    // 2 × 360 W × 50 % = 360 W.
    assert_eq!(power_model.watts(&percent(50)), Some(w(360)));
    assert_eq!((power_model.floor(), power_model.max()), (w(200), Some(w(720))));
    // The power of a node with unknown devices is unknown, as is that of an unknown number of packages.
    assert_eq!(NodePowerModel::of(&node(None), BOTH).max(), None);
    let mut uncounted = node(Some(360));
    uncounted.cpu.sockets = None;
    let uncounted = NodePowerModel::of(&uncounted, BOTH);
    assert_eq!((uncounted.is_known(), uncounted.watts(&percent(60))), (false, None));
    assert!(!NodePowerModel::of(&node(Some(360)), (false, false)).is_cappable());
}

#[test]
fn a_device_that_names_no_lowest_limit_is_asked_for_no_less_than_it_draws_idle() {
    let mut hardware = node(Some(360));
    hardware.cpu.min_per_socket = None;
    // A fifth of 360 W: 72 W a package.
    assert_eq!(NodePowerModel::of(&hardware, BOTH).floor(), w(144));
}

#[test]
fn what_an_agent_makes_of_a_grant_is_on_the_way_from_the_lowest_to_what_is_desired() {
    let gpu = GpuInventory { model: None, count: 2, min: Some(w(100)), max: Some(w(300)) };
    let power_model = NodePowerModel::of(&ResolvedHardware { gpu: Some(gpu), ..node(Some(360)) }, BOTH);
    let each = |caps: NodeCaps| (caps.cpu.and_then(|cap| cap.watts), caps.gpu.and_then(|cap| cap.watts));
    // Floors 2 × 100 + 2 × 100 = 400 W; maximum 2 × 360 + 2 × 300 = 1320 W: half of the difference of 920 W
    // is 460 W.
    let half = power_model.under_grant(&NodeCaps::default(), w(860));
    assert_eq!(each(half), (Some(w(230)), Some(w(200))));
    assert_eq!(power_model.under_grant(&percent(60), w(2000)), percent(60), "what is desired fits");
    assert_eq!(each(power_model.under_grant(&percent(60), w(10))), (Some(w(100)), Some(w(100))));
}

#[test]
fn a_node_whose_object_is_gone_is_lowered_as_far_as_its_agent_can_and_never_raised() {
    let stays = Claim { grant: grant(1, 432), receipt: receipt(1, 432), ..claim("a") };
    let orphan = |least: i32, granted: i32| {
        let floor = if least < granted { w(least) } else { Watts::ZERO };
        Claim {
            gone: true,
            wanted: None,
            power_model: NodePowerModel::lump(w(least), w(granted)),
            grant: grant(3, granted),
            receipt: Some(GrantReceipt { serial: 3, holds: w(granted), floor, yields: None }),
            ..claim("b")
        }
    };
    // Both are lowered to 200 W, and hold their former grants until they have confirmed the new ones.
    let both = asked(&[stays.clone(), orphan(200, 432)], &limits(400));
    assert_eq!(both, [ask(200, 432), ask(200, 432)]);
    // If its agent does not report its floor, the others are lowered instead.
    assert_eq!(asked(&[stays.clone(), orphan(432, 432)], &limits(632)), [ask(200, 432), None]);
    // Further power is not given to a node that may be switched off at any moment.
    assert_eq!(asked(&[stays, orphan(200, 300)], &limits(2000)), [None, None]);
}

#[test]
fn a_removed_node_counts_with_a_grant_that_was_sent_and_may_still_land() {
    let orphan = Claim {
        gone: true,
        wanted: None,
        power_model: NodePowerModel::lump(w(200), w(300)),
        grant: Some(Grant { serial: 7, watts: w(300), ceiling: w(720) }),
        receipt: Some(GrantReceipt { serial: 7, holds: w(300), floor: w(200), yields: None }),
        ..claim("a")
    };
    let load = |sent: &[Grant]| {
        let claim = Claim { sent: sent.to_vec(), ..orphan.clone() };
        round_of(&[claim], &limits(2000), &mut BudgetMemory::default(), at(1), true).1.standings[0].load
    };
    assert_eq!(load(&[]), Some(w(300)));
    assert_eq!(load(&[Grant { serial: 8, watts: w(500), ceiling: w(500) }]), Some(w(500)));
}

#[test]
fn a_first_grant_is_written_whatever_the_node_draws_and_counts_when_it_is_read_back() {
    let (one, two) = (claim("a"), claim("b"));
    // Neither was ever heard from: 2 × 720 W. Each is granted half of 800 W, and may hold 720 W until it is heard.
    assert_eq!(asked(&[one.clone(), two.clone()], &limits(800)), [ask(400, 720), ask(400, 720)]);
    // Neither grant was confirmed: both stay, and nothing is written.
    let stands = Some(Grant { serial: 1, watts: w(400), ceiling: w(720) });
    let told = [Claim { grant: stands, ..one.clone() }, Claim { grant: stands, ..two.clone() }];
    assert_eq!(asked(&told, &limits(800)), [None, None]);
    // Both have booted since their grants were confirmed: the ceiling says so.
    let told = [Claim { grant: grant(1, 400), ..one }, Claim { grant: grant(1, 400), ..two }];
    assert_eq!(asked(&told, &limits(800)), [ask(400, 720), ask(400, 720)]);
}

#[test]
fn a_grant_that_did_not_land_is_asked_for_again_in_every_round() {
    // 4.1 of the first install: the limit is cut, and no write arrives for 40 s.
    let holds = |name| Claim { grant: grant(7, 432), receipt: receipt(7, 432), ..claim(name) };
    let (mut memory, limits) = (BudgetMemory::default(), limits(700));
    for second in 1..=40 {
        let asks = asks_of(&[holds("a"), holds("b")], &limits, &mut memory, at(second), true);
        assert_eq!(asks, [ask(350, 432), ask(350, 432)], "second {second}");
    }
}

#[test]
fn what_was_sent_without_an_answer_is_written_over_as_soon_as_it_is_not_wanted() {
    let sent = |watts| vec![Grant { serial: 8, watts: w(watts), ceiling: w(432) }];
    let holds = |sent| Claim { grant: grant(7, 432), receipt: receipt(7, 432), sent, ..claim("a") };
    assert_eq!(asked(&[holds(sent(300))], &limits(1000)), [ask(432, 432)]);
    assert_eq!(asked(&[holds(sent(432))], &limits(1000)), [None], "it is what is wanted");
}

#[test]
fn a_node_that_has_followed_a_later_grant_than_stands_is_told_again_though_nothing_else_is_wanted() {
    let ahead = Claim { grant: grant(3, 432), receipt: receipt(5, 432), ..claim("a") };
    assert_eq!(asked(std::slice::from_ref(&ahead), &limits(1000)), [ask(432, 432)]);
    let level = Claim { receipt: receipt(3, 432), ..ahead };
    assert_eq!(asked(&[level], &limits(1000)), [None]);
}

#[test]
fn a_node_that_leaves_is_brought_up_as_there_is_room_and_then_released() {
    let leaves =
        |watts| Claim { leaves: true, grant: grant(3, watts), receipt: receipt(3, watts), ..claim("a") };
    let other = || Claim { grant: grant(5, 432), receipt: receipt(5, 432), ..claim("b") };
    // 1000 − 432 − 432 = 136 W are free: part of the raise to 720 W, and no more.
    let full = limits(1000);
    let first = asked(&[leaves(432), other()], &full);
    assert_eq!((first[0], first[1]), (ask(568, 568), None));
    // It keeps its grant and waits; it does not count as free, and the limit is kept.
    assert_eq!(asked(&[leaves(568), other()], &full)[0], None);
    // It gives up no power for nodes that want more, unless the limit cannot be kept otherwise.
    let would = || Claim { wanted: Some(w(720)), priority: Priority::Performance, ..other() };
    assert_eq!(asked(&[leaves(568), would()], &full), [None, None]);
    assert_eq!(asked(&[leaves(568), would()], &limits(700)), [ask(200, 568), None]);
    let free = Some((w(720), w(720), true));
    assert_eq!(asked(&[leaves(720), other()], &limits(2000))[0], free);
    // It has its greatest power, and the limit is cut: of the 300 W above both floors it gets its part by
    // what both had there, 200 + 300 · 520 / 752 = 407 W.
    assert_eq!(asked(&[leaves(720), other()], &limits(700))[0], ask(407, 720));
    // Its devices do not obey: it counts all that it can draw, and needs no higher grant first.
    let ignores = Claim { receipt: receipt(3, 720), ..leaves(432) };
    assert_eq!(asked(&[ignores.clone(), other()], &limits(2000))[0], free);
    assert!(
        asked(&[ignores, other()], &limits(700))[0].is_none_or(|(.., released)| !released),
        "there is no room"
    );
    let released = Claim { grant: None, released: true, ..leaves(720) };
    assert_eq!(asked(&[released.clone(), other()], &limits(2000))[0], None);
    // When it is planned again it has no bound until it confirms one: its ceiling is its greatest power.
    let back = Claim { leaves: false, ..released };
    assert_eq!(asked(&[back, other()], &limits(1000))[0], ask(432, 720));
}

#[test]
fn a_node_that_does_not_read_its_grant_back_is_not_counted_on() {
    // It has restarted, and no receipt says in which boot its grant was put in force.
    let silent = Claim { grant: grant(3, 432), ..claim("a") };
    let other = Claim { grant: grant(5, 432), receipt: receipt(5, 432), ..claim("b") };
    let (limits, mut memory) = (limits(1000), BudgetMemory::default());
    let claims = [silent, other];
    let mut other = |second| asks_of(&claims, &limits, &mut memory, at(second), true)[1];
    assert_eq!((other(1), other(30)), (None, None), "its agent may still come");
    // 1000 − 720 = 280 W are left.
    assert_eq!(other(31), ask(280, 432));
}

#[test]
fn a_node_that_is_registered_anew_gets_back_what_it_had_yielded_as_there_is_room() {
    let yielded = GrantReceipt { serial: 3, holds: w(250), floor: w(200), yields: Some(w(250)) };
    let known =
        Claim { grant: grant(3, 432), priority: Priority::Performance, receipt: Some(yielded), ..claim("a") };
    let other = Claim { grant: grant(5, 432), receipt: receipt(5, 432), ..claim("b") };
    let asks = |known: Claim, site: i32| asked(&[known, other.clone()], &limits(site));
    let anew = || Claim { registered_anew: true, ..known.clone() };
    // It counts its 720 W, so that 1152 of 900 W are counted. It is told once more, with what it keeps to now.
    assert_eq!(asks(anew(), 900), [ask(250, 720), None]);
    // 1152 of 1200 W are counted: its whole grant counts less than that.
    assert_eq!(asks(anew(), 1200)[0], ask(432, 720));
    // While its receipt fits it counts 250 W.
    assert_eq!(asks(known.clone(), 900)[0], ask(432, 432));
}

#[test]
fn a_round_says_when_the_next_node_that_is_silent_is_not_counted_on_any_more() {
    let holds = |name| Claim { grant: grant(5, 432), receipt: receipt(5, 432), ..claim(name) };
    let silent = |name| Claim { receipt: None, ..holds(name) };
    let (limits, mut memory) = (limits(2000), BudgetMemory::default());
    let mut again =
        |claims: &[Claim], second| round_of(claims, &limits, &mut memory, at(second), true).1.again;
    assert_eq!(again(&[holds("a"), holds("b")], 1), None, "everybody has said what it holds");
    // An agent has 30 s to confirm.
    assert_eq!(again(&[silent("a"), holds("b")], 2), Some(at(32)));
    assert_eq!(again(&[silent("a"), silent("b")], 12), Some(at(32)), "the first of them");
    assert_eq!(again(&[silent("a"), silent("b")], 32), Some(at(42)), "the first has had its time");
    assert_eq!(again(&[silent("a"), silent("b")], 42), None);
    assert_eq!(again(&[silent("a"), holds("b")], 43), None);
    // Of a mere raise it may tell when it has something else to tell.
    let raised = Claim { grant: grant(6, 440), ..holds("a") };
    assert_eq!(again(&[raised, holds("b")], 50), None);
}

#[test]
fn before_anything_may_be_raised_nothing_is_and_what_is_to_come_down_does() {
    let low = Claim { grant: grant(1, 250), receipt: receipt(1, 250), ..claim("a") };
    let high = Claim { grant: grant(1, 500), receipt: receipt(1, 500), ..claim("b") };
    let asks = asks_of(&[low, high], &limits(1000), &mut BudgetMemory::default(), at(1), false);
    assert_eq!(asks, [None, ask(432, 500)]);
    // Of one that has booted the ceiling is written at once, and its raise waits.
    let booted = Claim { grant: grant(1, 250), ..claim("a") };
    let asks = asks_of(&[booted], &limits(2000), &mut BudgetMemory::default(), at(1), false);
    assert_eq!(asks, [ask(250, 720)]);
}

#[test]
fn what_a_node_draws_beside_its_devices_counts_in_the_limit_and_is_no_part_of_its_grant() {
    let limits = BudgetLimits { node_rest: w(50), ..limits(400) };
    // 400 − 50 = 350 W for the packages, which may hold 720 W until they are heard.
    assert_eq!(asked(&[claim("a")], &limits), [ask(350, 720)]);
    let unknown = Claim {
        power_model: NodePowerModel::of(&ResolvedHardware::default(), BOTH),
        wanted: None,
        ..claim("a")
    };
    let stands = |limits| {
        let (asks, round) =
            round_of(std::slice::from_ref(&unknown), limits, &mut BudgetMemory::default(), at(1), true);
        (asks[0].clone(), round.standings[0].load)
    };
    assert_eq!(stands(&limits), (None, None));
    let assumed = BudgetLimits { unknown_node: Some(w(900)), ..limits.clone() };
    assert_eq!(stands(&assumed), (None, Some(w(900))));
}

#[test]
fn a_meter_that_shows_more_beside_the_devices_counts_where_it_is_asked_for_and_one_that_shows_less_never_does()
 {
    let limits = BudgetLimits { node_rest: w(50), ..limits(400) };
    let measured = BudgetLimits { rest_measured: true, ..limits.clone() };
    let shows = |rest| Claim { rest_most: rest, ..claim("a") };
    // 400 − 90 = 310 W for the packages.
    assert_eq!(asked(&[shows(Some(w(90)))], &measured), [ask(310, 720)]);
    for (rest, limits) in [(Some(w(90)), &limits), (Some(w(20)), &measured), (None, &measured)] {
        assert_eq!(asked(&[shows(rest)], limits), [ask(350, 720)], "{rest:?}");
    }
    // Its grant and what it holds count with it: 250 + 90 W, of which 10 W are too much.
    let stands = Claim { grant: grant(1, 250), receipt: receipt(1, 250), ..shows(Some(w(90))) };
    let tight = BudgetLimits { site: Some(w(330)), ..measured };
    let (_, round) = round_of(&[stands], &tight, &mut BudgetMemory::default(), at(1), true);
    assert_eq!((round.standings[0].load, round.standings[0].base), (Some(w(340)), Watts::ZERO));
}

#[test]
fn where_nothing_is_limited_a_node_of_unknown_hardware_keeps_no_other_from_its_release() {
    let nothing = BudgetLimits { site: None, ..limits(0) };
    let leaves =
        |watts| Claim { leaves: true, grant: grant(3, watts), receipt: receipt(3, watts), ..claim("a") };
    let power_model = NodePowerModel::of(&ResolvedHardware::default(), BOTH);
    let unknown = || Claim { power_model, wanted: None, leaves: true, aside: true, ..claim("b") };
    assert_eq!(asked(&[leaves(432), unknown()], &nothing), [ask(720, 720), None]);
    assert_eq!(asked(&[leaves(720), unknown()], &nothing), [Some((w(720), w(720), true)), None]);
    // What is shown of the site is unknown all the same, and where it has a limit nobody is raised.
    let round = round_of(&[leaves(432), unknown()], &nothing, &mut BudgetMemory::default(), at(1), true).1;
    assert_eq!(round.standings[0].load, None);
    assert_eq!(asked(&[leaves(432), unknown()], &limits(5000)), [None, None]);
}

#[test]
fn racks_are_groups_where_they_have_a_limit() {
    let limits = BudgetLimits {
        racks: [("r1", 400), ("*", 500)].map(|(rack, watts)| (rack.to_owned(), w(watts))).into(),
        rack_base: [("r1".to_owned(), w(40))].into(),
        ..limits(1000)
    };
    let rules = Rules { settings: &limits, limits: &[], trial: false };
    let groups = Groups::of_racks(rules, &[], ["r2"].into_iter()).unwrap();
    let of = |rack| groups.groups[groups.group(groups.find(rack).unwrap())];
    assert_eq!((of("r1").limit(), of("r1").base()), (w(400), Some(w(40))));
    assert_eq!(of("r2").limit(), w(500));
    assert_eq!(groups.find("r3"), None);
}

#[test]
fn a_group_above_its_limit_for_longer_than_a_read_back_takes_is_told_of_with_who_holds_it() {
    // Two packages of 360 W without any receipt may draw 720 W.
    let claim = Claim { grant: grant(1, 432), ..claim("a") };
    let (limits, mut memory) = (limits(500), BudgetMemory::default());
    let mut stands = |second: u64| {
        let (_, round) = round_of(std::slice::from_ref(&claim), &limits, &mut memory, at(second), true);
        let site = round.standings.first().unwrap().clone();
        (site.exceeded, site.holders.len())
    };
    assert_eq!(stands(1), (None, 0), "what was asked for may be read back any moment");
    assert_eq!(stands(30), (None, 0));
    assert_eq!(stands(31), (Some(w(220)), 1));
}

/// A written limit; it is paused where its name says so.
fn written(name: &str, parent: Option<usize>, watts: i32, enforced: bool) -> SiteLimit {
    let paused = name.starts_with("paused");
    SiteLimit {
        name: name.into(),
        parent,
        watts: w(watts),
        base: Watts::ZERO,
        enforced,
        paused,
        armed: false,
        sustained: None,
    }
}

/// A node that these limits select and that holds its grant, or has none.
fn under(name: &str, tree: &[SiteLimit], selected: &[usize], granted: Option<i32>) -> Claim {
    Claim {
        limits: LimitPlace::of(tree, selected, false),
        grant: granted.and_then(|watts| grant(1, watts)),
        receipt: granted.and_then(|watts| receipt(1, watts)),
        aside: granted.is_none(),
        ..claim(name)
    }
}

/// A round without limits in the settings.
fn round_of_written(claims: &[Claim], tree: &[SiteLimit], trial: bool) -> (Vec<Option<i64>>, Round) {
    let settings = BudgetLimits { dead_band: w(5), ..BudgetLimits::none() };
    let claims: Vec<Claim> =
        claims.iter().map(|claim| Claim { aside: claim.aside && !trial, ..claim.clone() }).collect();
    let rules = Rules { settings: &settings, limits: tree, trial };
    let (asks, round) = round_under(&claims, rules, &mut BudgetMemory::default(), at(1), true);
    let watts = |ask: Option<DesiredGrant>| ask.map(|ask| ask.watts.to_bits() >> 32);
    (asks.into_iter().map(watts).collect(), round)
}

#[test]
fn one_rack_is_enforced_while_the_rest_of_the_site_is_observed() {
    let tree = [
        written("site", None, 10_000, false),
        written("r1", Some(0), 400, true),
        written("r2", Some(0), 300, false),
    ];
    let nodes = [under("a", &tree, &[0, 1], Some(432)), under("b", &tree, &[0, 2], None)];
    let (asks, round) = round_of_written(&nodes, &tree, false);
    assert_eq!(asks, [Some(400), None]);
    let of = |round: &Round, name: &str| {
        let group = round.standings.iter().find(|group| group.name == name).unwrap();
        (group.load, group.lowered.watts, group.lowered.nodes, group.nodes, group.enforced)
    };
    // 432 W are held in r1; b has no grant and counts its largest draw, 720 W.
    assert_eq!(of(&round, "powerbudget/r1"), (Some(w(432)), w(32), 1, 1, true));
    assert_eq!(of(&round, "powerbudget/r2"), (Some(w(720)), w(0), 0, 1, false));
    assert_eq!(of(&round, "powerbudget/site"), (Some(w(1152)), w(32), 1, 2, false));
    // If all were enforced, b would be lowered from the 432 W of its profile to 300 W.
    let (asks, trial) = round_of_written(&nodes, &tree, true);
    assert_eq!(asks, [Some(400), Some(300)]);
    assert_eq!(of(&trial, "powerbudget/r2"), (Some(w(720)), w(132), 1, 1, false));
    assert_eq!(of(&trial, "powerbudget/site"), (Some(w(1152)), w(164), 2, 2, false));
}

#[test]
fn under_a_paused_limit_nodes_are_lowered_and_never_raised_or_released() {
    let asks = |name: &str, watts: i32, leaves: bool| {
        let tree = [written("site", None, 10_000, true), written(name, Some(0), watts, true)];
        let granted = if leaves { 720 } else { 300 };
        let node = Claim { leaves, ..under("a", &tree, &[1], Some(granted)) };
        round_of_written(&[node], &tree, false).0
    };
    assert_eq!(asks("r1", 1000, false), [Some(432)], "the profile allows 432 W");
    assert_eq!(asks("paused", 1000, false), [None]);
    assert_eq!(asks("paused", 250, false), [Some(250)]);
    assert_eq!(asks("r1", 1000, true), [Some(720)], "it is released");
    assert_eq!(asks("paused", 1000, true), [None]);
}

#[test]
fn under_a_limit_that_is_armed_for_an_event_that_is_on_nodes_are_lowered_and_never_raised() {
    let asks = |armed: bool, watts: i32| {
        let site = SiteLimit { armed, ..written("site", None, 10_000, true) };
        let tree = [site, written("r1", Some(0), watts, true), written("r2", None, 10_000, true)];
        let nodes = [under("a", &tree, &[1], Some(300)), under("b", &tree, &[2], Some(300))];
        round_of_written(&nodes, &tree, false).0
    };
    assert_eq!(asks(false, 1000), [Some(432), Some(432)]);
    assert_eq!(
        asks(true, 1000),
        [None, Some(432)],
        "what the event takes is granted to nobody below the limit"
    );
    assert_eq!(asks(true, 250), [Some(250), Some(432)]);
}

#[test]
fn without_a_measurement_the_limit_for_the_mean_is_the_limit() {
    let both = SustainedLimit::new(w(500), w(400), Micros::MINUTE).unwrap();
    let tree = [SiteLimit { sustained: Some(both), ..written("site", None, 500, true) }];
    let nodes = [under("a", &tree, &[0], Some(432))];
    let (asks, round) = round_of_written(&nodes, &tree, false);
    assert_eq!(asks, [Some(400)]);
    let state = round.sustained[&0];
    assert_eq!((state.effective, state.mean, state.metered), (w(400), None, false));
    assert_eq!(round.standings[1].limit, Some(w(400)));
    assert!(round.again.is_some(), "it is looked at again");
}

#[test]
fn a_reading_of_which_nobody_knows_when_it_was_measured_is_none_for_the_mean() {
    let both = SustainedLimit::new(w(500), w(400), Micros::MINUTE).unwrap();
    let tree = [SiteLimit { sustained: Some(both), ..written("site", None, 500, true) }];
    let metered = |undated: bool| {
        let reading = NodeReading::Measured { meter: PowerMeter::Agent, watts: w(300), age: Micros::ZERO };
        let power = Power { reading, undated, ..Power::UNMETERED };
        let node = Claim { power, ..under("a", &tree, &[0], Some(432)) };
        round_of_written(&[node], &tree, false).1.sustained[&0].metered
    };
    assert_eq!([false, true].map(metered), [true, false]);
}

#[test]
fn a_node_that_two_limits_select_is_not_raised_and_holds_everybody_in_the_other_one() {
    let asks = |enforced: bool, selected: &[usize], limit: i32| {
        let tree = [
            written("one", None, limit, true),
            written("other", None, 10_000, enforced),
            written("third", None, 10_000, true),
        ];
        let nodes = [
            under("a", &tree, &[0], Some(300)),
            under("b", &tree, selected, Some(300)),
            under("c", &tree, &[1], Some(300)),
            under("d", &tree, &[2], Some(300)),
        ];
        round_of_written(&nodes, &tree, false).0
    };
    assert_eq!(asks(true, &[1], 10_000), [Some(432); 4]);
    // b is under `other`, and what it draws counts in `one` too: nothing is raised in `one`.
    assert_eq!(asks(true, &[0, 1], 10_000), [None, None, Some(432), Some(432)]);
    // An observed limit takes nobody out of an enforced one, and hinders nobody.
    assert_eq!(asks(false, &[0, 1], 500)[..2], [Some(250), Some(250)]);
    assert_eq!(asks(false, &[0, 1], 10_000)[..2], [Some(432), Some(432)]);
}

#[test]
fn nobody_is_lowered_for_a_node_that_may_not_be_raised() {
    let asks = |name: &str| {
        let tree = [written("site", None, 900, true), written(name, Some(0), 10_000, true)];
        let fast = |claim: Claim, wanted| Claim { wanted: Some(w(wanted)), ..claim };
        let a = fast(under("a", &tree, &[1], Some(250)), 720);
        let nodes = [a, fast(under("b", &tree, &[0], Some(650)), 650)];
        round_of_written(&nodes, &tree, false).0
    };
    // Beyond the lowest caps there are 500 W, of which a wants 520 and b 450: b gets 500 · 450 / 970 = 231.
    assert_eq!(asks("r1"), [None, Some(431)], "b is lowered before a is raised");
    assert_eq!(asks("paused"), [None, None]);
}

#[test]
fn what_a_limit_would_cost_is_the_same_a_minute_later() {
    let tree = [written("site", None, 2400, false)];
    let nodes = ["a", "b", "c", "d"].map(|name| Claim { aside: false, ..under(name, &tree, &[0], None) });
    let settings = BudgetLimits { answer_within: Micros::new(30_000_000), ..BudgetLimits::none() };
    let rules = Rules { settings: &settings, limits: &tree, trial: true };
    let mut memory = BudgetMemory::default();
    // 4 × 432 W are 1728 W.
    for second in [1, 60, 120] {
        let (_, round) = round_under(&nodes, rules, &mut memory, at(second), true);
        assert_eq!((round.standings[1].lowered.nodes, round.standings[1].short), (0, None), "at {second} s");
    }
}

#[test]
fn an_observed_limit_takes_no_node_out_of_its_rack() {
    let settings =
        BudgetLimits { racks: [("r1".to_owned(), w(300))].into(), dead_band: w(5), ..BudgetLimits::none() };
    let asks = |enforced: bool, trial: bool| {
        let tree = [written("hall", None, 400, enforced)];
        let claim = Claim { rack: Some("r1".into()), ..under("a", &tree, &[0], Some(432)) };
        let rules = Rules { settings: &settings, limits: &tree, trial };
        let (asks, round) = round_under(&[claim], rules, &mut BudgetMemory::default(), at(1), true);
        let nodes: Vec<usize> = round.standings.iter().map(|group| group.nodes).collect();
        (asks[0].as_ref().map(|ask| ask.watts), nodes)
    };
    // The site, the hall, the rack.
    assert_eq!(asks(false, false), (Some(w(300)), vec![1, 0, 1]));
    assert_eq!(asks(false, true), (Some(w(400)), vec![1, 1, 0]));
    assert_eq!(asks(true, false), (Some(w(400)), vec![1, 1, 0]));
}

#[test]
fn a_node_that_nobody_knows_raises_nobody_where_a_limit_binds_it_and_hinders_nobody_elsewhere() {
    let asks = |site: bool| {
        let tree = [written("site", None, 10_000, site), written("r1", Some(0), 1000, true)];
        let unknown =
            Claim { power_model: NodePowerModel::of(&node(None), BOTH), ..under("b", &tree, &[0], None) };
        let (asks, round) = round_of_written(&[under("a", &tree, &[1], Some(300)), unknown], &tree, false);
        (asks, round.standings.get(1).and_then(|site| site.load))
    };
    assert_eq!(asks(true), (vec![None, None], None));
    assert_eq!(asks(false), (vec![Some(432), None], None), "the load of the site is unknown all the same");
}
