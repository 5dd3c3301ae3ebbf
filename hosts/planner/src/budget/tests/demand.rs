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
    // The first lacks 220 W, and the reserve 10 W.
    assert_eq!(ask_all(&first, 21), [None, ask(270, 500)]);
    // Until that is read back there is no room.
    let awaited =
        Claim { grant: Some(Grant { serial: 2, watts: w(270), ceiling: w(500) }), ..first[1].clone() };
    assert_eq!(ask_all(&[first[0].clone(), awaited], 22), [None, None]);
    let lent = holds("b", 2, 270, wants(250, false));
    assert_eq!(ask_all(&[first[0].clone(), lent.clone()], 23), [ask(720, 720), None]);
    // Demand that stands asks for nothing.
    let raised = holds("a", 2, 720, wants(700, false));
    for second in 24..30 {
        assert_eq!(ask_all(&[raised.clone(), lent.clone()], second), [None, None]);
    }
    // The second is throttled below its entitlement of 500 W. The first was raised a moment ago; that protects no more
    // than its own 500 W.
    let bitten = holds("b", 2, 270, wants(405, true));
    assert_eq!(ask_all(&[raised, bitten], 30), [ask(500, 720), None]);
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
