//! Rounds in which power follows demand, calculated by hand. Every node has two packages of 100 to 360 W.

use super::*;
use joulie_core::budget::demand::DemandReport;

fn by_demand(site: i32) -> BudgetLimits {
    BudgetLimits { sharing: PowerSharing::Demand, ..limits(site) }
}

fn wants(watts: i32, bites: bool) -> Option<DemandReport> {
    Some(DemandReport::new(&[w(watts)], bites).unwrap())
}

/// A performance node that may have all that it can draw, and has read back its grant.
fn holds(name: &str, serial: u64, watts: i32, demand: Option<DemandReport>) -> Claim {
    Claim {
        priority: Priority::Performance,
        wanted: Some(w(720)),
        grant: grant(serial, watts),
        receipt: receipt(serial, watts),
        demand,
        ..claim(name)
    }
}

#[test]
fn what_a_node_does_not_want_goes_to_one_that_is_throttled_and_comes_back_when_it_is_wanted() {
    let (limits, mut memory) = (by_demand(1000), BudgetMemory::default());
    let mut ask_all = |claims: &[Claim], second| asks_of(claims, &limits, &mut memory, at(second), true);
    let first = [holds("a", 1, 500, wants(720, true)), holds("b", 1, 500, wants(250, false))];
    // There is no room, and a new leader takes nothing from anybody for 20 s.
    assert_eq!(ask_all(&first, 1), [None, None]);
    assert_eq!(ask_all(&first, 20), [None, None]);
    // The first lacks 220 W, and the reserve 10 W. The second is asked for all that it can spare, up to three times as much.
    assert_eq!(ask_all(&first, 21), [None, ask(250, 500)]);
    // Until that is read back there is no room.
    let awaited =
        Claim { grant: Some(Grant { serial: 2, watts: w(250), ceiling: w(500) }), ..first[1].clone() };
    assert_eq!(ask_all(&[first[0].clone(), awaited], 22), [None, None]);
    let lent = holds("b", 2, 250, wants(250, false));
    assert_eq!(ask_all(&[first[0].clone(), lent.clone()], 23), [ask(720, 720), None]);
    // Demand that stands asks for nothing.
    let raised = holds("a", 2, 720, wants(700, false));
    for second in 24..30 {
        assert_eq!(ask_all(&[raised.clone(), lent.clone()], second), [None, None]);
    }
    // The second is throttled below its entitlement of 500 W. The first was raised a moment ago; that protects no more
    // than its own 500 W. What there is of room, 30 W, goes out at once.
    let bitten = holds("b", 2, 250, wants(375, true));
    assert_eq!(ask_all(&[raised, bitten], 30), [ask(500, 720), ask(280, 280)]);
}

#[test]
fn the_policy_bounds_what_a_node_is_granted() {
    let bitten = Claim { wanted: Some(w(432)), ..holds("a", 1, 300, wants(720, true)) };
    assert_eq!(asked(&[bitten], &by_demand(2000)), [ask(432, 432)]);
}

#[test]
fn a_fleet_without_reports_is_granted_what_it_was() {
    let claims = |demand| {
        [
            holds("a", 1, 720, demand),
            holds("b", 1, 300, demand),
            Claim { priority: Priority::Eco, ..holds("c", 1, 432, demand) },
            Claim { grant: None, receipt: None, ..holds("d", 1, 0, demand) },
        ]
    };
    for site in [900, 1200, 1500, 2000, 3000] {
        assert_eq!(asked(&claims(None), &by_demand(site)), asked(&claims(None), &limits(site)), "{site} W");
    }
    // With reports nobody is raised who wants nothing.
    let asks = asked(&claims(wants(200, false)), &by_demand(3000));
    assert_eq!((asks[0], asks[1], asks[2]), (None, None, None));
}

#[test]
fn a_blind_node_keeps_its_entitlement_and_lends_nothing() {
    let mut claims: Vec<Claim> =
        ["a", "b", "c", "d", "e"].into_iter().map(|name| holds(name, 1, 300, wants(200, false))).collect();
    claims[0].demand = wants(720, true);
    claims[4].demand = None;
    let (limits, mut memory) = (by_demand(1500), BudgetMemory::default());
    let (_, round) = round_of(&claims, &limits, &mut memory, at(1), true);
    let power = round.standings[0].power.unwrap();
    assert_eq!((power.lends, power.blind, power.biting.nodes, power.biting.watts), (true, 1, 1, w(420)));
    // The three that report hold 100 W each that they do not want.
    assert_eq!(power.reclaimable, [w(300), Watts::ZERO, Watts::ZERO]);
    let (asks, _) = round_of(&claims, &limits, &mut memory, at(30), true);
    assert!(asks[4].is_none(), "it has what it is entitled to");
    assert!(asks[1].is_some() || asks[2].is_some() || asks[3].is_some());
    // Two of five: nothing is lent, and each has its entitlement already.
    claims[3].demand = None;
    let (asks, round) = round_of(&claims, &limits, &mut memory, at(60), true);
    let power = round.standings[0].power.unwrap();
    assert!(asks.iter().all(Option::is_none) && !power.lends && power.blind == 2);
}

/// What a group could grant to performance, draining and eco nodes, in whole watts: the reserve of 1 % is a little less.
fn grantable(group: &GroupStanding) -> [Watts; 3] {
    group.power.unwrap().grantable.map(|watts| Watts::from_bits(watts.to_bits() >> 32 << 32))
}

#[test]
fn what_could_be_granted_is_the_room_without_the_reserve_and_what_others_do_not_want() {
    let eco = |name, watts, wanted| Claim {
        priority: Priority::Eco,
        ..holds(name, 1, watts, wants(wanted, false))
    };
    // 1000 of 2000 W are counted, and 20 W are the reserve. The performance node does not want 250 W, the eco node 60 W.
    let claims = [holds("a", 1, 500, wants(250, false)), eco("b", 500, 440)];
    let of = |claims: &[Claim], site| {
        round_of(claims, &by_demand(site), &mut BudgetMemory::default(), at(1), true).1
    };
    assert_eq!(grantable(&of(&claims, 2000).standings[0]), [w(980 + 310), w(980 + 60), w(980 + 60)]);
    // Without room what is not wanted is left, less the reserve.
    assert_eq!(grantable(&of(&claims, 1000).standings[0]), [w(300), w(50), w(50)]);
    // Where too many are blind, nothing is lent, and so nothing can be granted beyond the entitlements.
    let blind = [claims[0].clone(), Claim { demand: None, ..claims[1].clone() }];
    let round = of(&blind, 2000);
    assert_eq!(grantable(&round.standings[0]), [Watts::ZERO; 3]);
    let fixed = round_of(&claims, &limits(2000), &mut BudgetMemory::default(), at(1), true).1;
    assert_eq!((fixed.standings[0].power, fixed.reach.len()), (None, 0), "BUDGET_MODE=static");
}

#[test]
fn nothing_could_be_granted_where_nothing_is_raised() {
    let could = |site: SiteLimit, rack: &str| {
        let tree = [site, written(rack, Some(0), 10_000, true)];
        let settings = BudgetLimits { sharing: PowerSharing::Demand, ..BudgetLimits::none() };
        let rules = Rules { settings: &settings, limits: &tree, trial: false };
        let node =
            |name, place| Claim { demand: wants(250, false), ..under(name, &tree, &[place], Some(300)) };
        let (_, round) =
            round_under(&[node("a", 1), node("b", 0)], rules, &mut BudgetMemory::default(), at(1), true);
        let of = |name: &str| grantable(round.standings.iter().find(|group| group.name == name).unwrap())[0];
        (of("powerbudget/site") > Watts::ZERO, of(&format!("powerbudget/{rack}")) > Watts::ZERO)
    };
    let site = |armed: bool| SiteLimit { armed, ..written("site", None, 10_000, true) };
    assert_eq!(could(site(false), "r1"), (true, true));
    assert_eq!(could(site(false), "paused"), (true, false), "a person has paused the rack");
    assert_eq!(could(site(true), "r1"), (false, false), "an event is on for the whole site");
}

/// The first node, under a limit of its own, was granted 500 W, has yielded 200 W of them, and is throttled.
#[test]
fn under_a_paused_limit_a_node_gets_back_what_it_has_yielded_and_nothing_more() {
    let asks = |rack: &str, armed: bool, wanted: i32, bites: bool, limit: i32| {
        let site = SiteLimit { armed, ..written("site", None, limit, true) };
        let tree = [site, written(rack, Some(0), 10_000, true)];
        let place = |at| LimitPlace::of(&tree, &[at], false);
        let yields = receipt(1, 300).map(|it| GrantReceipt { yields: Some(w(300)), ..it });
        let a = Claim { limits: place(1), receipt: yields, ..holds("a", 1, 500, wants(wanted, bites)) };
        let b = Claim { limits: place(0), ..holds("b", 1, 300, wants(250, false)) };
        let settings = BudgetLimits { sharing: PowerSharing::Demand, ..BudgetLimits::none() };
        let rules = Rules { settings: &settings, limits: &tree, trial: false };
        let (asks, _) = round_under(&[a, b], rules, &mut BudgetMemory::default(), at(1), true);
        assert!(asks[1].is_none());
        asks[0].as_ref().map(|ask| (ask.watts.to_bits() >> 32, ask.lends))
    };
    assert_eq!(
        asks("r1", false, 650, true, 10_000),
        Some((720, false)),
        "without a pause, its whole entitlement"
    );
    assert_eq!(asks("paused", false, 450, true, 10_000), Some((450, false)));
    assert_eq!(asks("paused", false, 650, true, 10_000), Some((500, false)), "all of its grant, and no more");
    assert_eq!(asks("paused", false, 450, false, 10_000), None, "it does not want it");
    assert_eq!(asks("paused", true, 450, true, 10_000), None, "an event is on for which the site is armed");
    // Beyond the lowest caps there are 360 W, of which the first may have 300 W and the second 520: 200 + 360 · 300 / 820.
    assert_eq!(asks("paused", false, 650, true, 760), Some((331, false)), "its entitlement");
}

#[test]
fn a_part_can_be_granted_no_more_than_the_whole() {
    let mut limits = by_demand(1000);
    limits.racks = BTreeMap::from([("r".to_owned(), w(900))]);
    let in_rack = Claim { rack: Some("r".into()), ..holds("a", 1, 300, wants(250, false)) };
    let claims = [in_rack, holds("b", 1, 600, wants(600, false))];
    let (_, round) = round_of(&claims, &limits, &mut BudgetMemory::default(), at(1), true);
    // The site: 1000 − 900 − 10 + 50. The rack alone: 900 − 300 − 9 + 50.
    let [site, .., rack] = round.standings.as_slice() else { panic!("a site and a rack") };
    assert_eq!((grantable(site)[0], grantable(rack)[0]), (w(140), w(140)));
}

#[test]
fn a_node_is_raised_for_pods_that_were_bound_to_it_before_they_draw_anything() {
    let idle = holds("a", 1, 300, wants(200, false));
    let expects = |watts| Claim { expected: Some(w(watts)), ..idle.clone() };
    let limits = by_demand(2000);
    assert_eq!(asked(std::slice::from_ref(&idle), &limits), [None]);
    assert_eq!(asked(&[expects(500)], &limits), [ask(500, 500)]);
    assert_eq!(asked(&[expects(250)], &limits), [None], "it has that already");
    let capped = Claim { wanted: Some(w(432)), ..expects(500) };
    assert_eq!(asked(std::slice::from_ref(&capped), &limits), [ask(432, 432)], "within the policy's cap");
    let (_, round) = round_of(&[capped], &limits, &mut BudgetMemory::default(), at(1), true);
    let power = round.standings[0].power.unwrap();
    assert_eq!((power.assumed, power.biting.nodes), (w(232), 0));
    // It is taken from one who does not want it.
    let lender = holds("b", 1, 700, wants(250, false));
    let mut memory = BudgetMemory::default();
    let claims = [expects(500), lender];
    asks_of(&claims, &by_demand(1000), &mut memory, at(1), true);
    // The first lacks 200 W, and the reserve 10 W: the other one is asked for all that it can spare, up to three times as much.
    assert_eq!(asks_of(&claims, &by_demand(1000), &mut memory, at(30), true), [None, ask(250, 700)]);
}

#[test]
fn the_most_that_a_node_could_be_granted_leaves_the_others_the_least_that_they_can_be_brought_to() {
    let claims = [holds("a", 1, 500, wants(250, false)), holds("b", 1, 300, wants(250, false))];
    let of = |claims: &[Claim]| {
        round_of(claims, &by_demand(1000), &mut BudgetMemory::default(), at(1), true).1.reach
    };
    // Each is entitled to half of the site, whatever it holds now; the other one's floor is 200 W.
    let half = GrantReach { entitled: w(500), most: w(800) };
    assert_eq!(of(&claims), [half; 2]);
    // Of six, one that has not confirmed its grant for 30 s may draw 720 W, and no longer its floor of 200 W.
    let mut six: Vec<Claim> =
        ["a", "b", "c", "d", "e", "f"].map(|name| holds(name, 1, 300, wants(250, false))).into();
    six[5].receipt = None;
    let mut memory = BudgetMemory::default();
    let mut most = |second| round_of(&six, &by_demand(3000), &mut memory, at(second), true).1.reach[0].most;
    assert_eq!((most(1), most(40)), (w(2000), w(1480)));
}

#[test]
fn a_node_at_full_power_fits_while_the_limits_above_it_can_be_kept() {
    let claims = [
        holds("a", 1, 300, wants(250, false)),
        Claim { priority: Priority::Eco, ..holds("b", 1, 300, None) },
    ];
    let mut memory = BudgetMemory::default();
    assert!(!memory.fits("a"), "nobody knows before the first round");
    for (site, fits) in [(1000, true), (399, false), (400, true)] {
        round_of(&claims, &by_demand(site), &mut memory, at(1), true);
        assert_eq!((memory.fits("a"), memory.fits("b")), (fits, true), "{site} W");
    }
}

#[test]
fn a_node_without_a_receipt_is_below_kept_limits_or_not_by_what_is_counted() {
    let silent = Claim { receipt: None, ..holds("a", 1, 300, None) };
    let claims = [silent, holds("b", 1, 300, None)];
    let mut memory = BudgetMemory::default();
    assert!(!memory.keeps("a"), "nobody knows before the first round");
    // One counts all of its 720 W, the other one 300 W.
    for (site, keeps) in [(1019, false), (1020, true)] {
        round_of(&claims, &by_demand(site), &mut memory, at(1), true);
        assert_eq!((memory.keeps("a"), memory.keeps("b")), (keeps, true), "{site} W");
    }
}
