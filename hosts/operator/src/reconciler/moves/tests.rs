use super::*;

fn at(seconds: u64) -> Mono {
    Mono::at(Duration::from_secs(seconds))
}

fn group(name: &str, parent: Option<usize>, limit: i32) -> GroupStanding {
    GroupStanding {
        name: name.to_owned(),
        source: LimitSource::Site,
        parent,
        limit: Some(Watts::from_int(limit)),
        enforced: true,
        nodes: 4,
        lowered: Sum::default(),
        load: Some(Watts::from_int(900)),
        base: Watts::ZERO,
        short: None,
        spare: None,
        unknown: false,
        exceeded: None,
        holders: Vec::new(),
        armed: false,
        power: None,
    }
}

fn site(limit: i32) -> Vec<GroupStanding> {
    vec![group(SITE, None, limit), group("r1", Some(0), 600)]
}

fn sum(watts: i32) -> Sum {
    Sum { watts: Watts::from_int(watts), nodes: 2 }
}

#[test]
fn a_twentieth_of_a_limit_that_is_enforced_is_large() {
    let mut limited = group(SITE, None, 1000);
    assert!(is_large(&limited, sum(50)) && !is_large(&limited, sum(49)));
    assert!(!is_large(&limited, Sum { nodes: 0, ..sum(50) }));
    limited.enforced = false;
    assert!(!is_large(&limited, sum(1000)), "it is only observed");
    assert!(!is_large(&GroupStanding { limit: None, ..group(SITE, None, 0) }, sum(1000)));
    let all = site(1000);
    let over: Vec<&str> = above(&all, 1).map(|(_, group)| group.name.as_str()).collect();
    assert_eq!(over, [SITE]);
}

#[test]
fn the_cause_is_what_has_changed_within_a_minute() {
    let mut moves = MoveMemory::default();
    moves.begin(at(0));
    moves.planned(3, at(0));
    moves.follow(&site(1000), at(0));
    let cause = |moves: &MoveMemory, standings: &[GroupStanding], way, now| {
        let (cause, why) = moves.cause(standings, 1, way, at(now));
        (cause, why)
    };
    let (lowers, raises) = (MoveWay::Lowers, MoveWay::Raises);
    assert_eq!(cause(&moves, &site(1000), lowers, 59).0, MoveCause::Term);
    assert_eq!(cause(&moves, &site(1000), lowers, 60).0, MoveCause::Other);
    // The limit above the rack is cut, and that is no reason to raise anybody.
    moves.follow(&site(800), at(100));
    let why = "the limit of the site is 800.0 W instead of 1000.0 W".to_owned();
    assert_eq!(cause(&moves, &site(800), lowers, 159), (MoveCause::Limit, why));
    assert_eq!(cause(&moves, &site(800), raises, 159).0, MoveCause::Other);
    assert_eq!(cause(&moves, &site(800), lowers, 160).0, MoveCause::Other);
    // Less than a fortieth of it: 800 - 781 = 19 W.
    moves.follow(&site(781), at(200));
    assert_eq!(cause(&moves, &site(781), lowers, 200).0, MoveCause::Other);
    // Step by step it is a change all the same, and the first value counts.
    moves.follow(&site(770), at(201));
    let why = "the limit of the site is 770.0 W instead of 800.0 W".to_owned();
    assert_eq!(cause(&moves, &site(770), lowers, 201), (MoveCause::Limit, why));
    // Back to what it was: nothing has changed.
    moves.follow(&site(800), at(202));
    assert_eq!(cause(&moves, &site(800), raises, 202).0, MoveCause::Other);

    moves.planned(5, at(300));
    let why = "5 nodes are planned for full power instead of 3".to_owned();
    assert_eq!(cause(&moves, &site(800), raises, 300), (MoveCause::Plan, why));
    let mut more = site(800);
    more[1].nodes = 6;
    moves.follow(&more, at(301));
    let why = "6 nodes count in it instead of 4".to_owned();
    assert_eq!(cause(&moves, &more, lowers, 301), (MoveCause::Nodes, why));
    more[1].exceeded = Some(Watts::from_int(40));
    let why = "it counts 40.0 W more than its limit".to_owned();
    assert_eq!(cause(&moves, &more, lowers, 301), (MoveCause::Excess, why));
    assert_eq!(cause(&moves, &more, raises, 301).0, MoveCause::Nodes);
}

#[test]
fn a_limit_that_is_enforced_now_is_a_cause_to_lower() {
    let mut moves = MoveMemory::default();
    let observed = GroupStanding { enforced: false, ..group(SITE, None, 1000) };
    moves.follow(&[observed], at(0));
    let all = [group(SITE, None, 1000)];
    moves.follow(&all, at(1));
    let why = "the limit of the site, 1000.0 W, is enforced since a moment ago".to_owned();
    assert_eq!(moves.cause(&all, 0, MoveWay::Lowers, at(1)), (MoveCause::Limit, why));
    assert_eq!(moves.cause(&all, 0, MoveWay::Raises, at(1)).0, MoveCause::Other);
}

#[test]
fn a_limit_that_is_new_is_a_cause_and_those_of_the_first_pass_are_none() {
    let mut moves = MoveMemory::default();
    let cause = |moves: &MoveMemory, second| moves.cause(&site(1000), 1, MoveWay::Lowers, at(second)).0;
    moves.follow(&site(1000), at(0));
    assert_eq!(cause(&moves, 0), MoveCause::Other);
    // The rack goes, and comes back.
    moves.follow(&site(1000)[..1], at(1));
    moves.follow(&site(1000), at(2));
    assert_eq!(cause(&moves, 2), MoveCause::Limit);
    assert_eq!(cause(&moves, 62), MoveCause::Other);
}

#[test]
fn what_follows_demand_is_told_seldom_and_what_a_person_did_at_once() {
    let mut moves = MoveMemory::default();
    let mut due = |cause, second| moves.is_due("r1", MoveWay::Lowers, cause, at(second));
    assert_eq!(due(MoveCause::Demand, 0), Some(0));
    assert_eq!(due(MoveCause::Demand, 899), None);
    assert_eq!(due(MoveCause::Limit, 29), None, "thirty seconds are the least");
    assert_eq!(due(MoveCause::Limit, 40), Some(2));
    assert_eq!(due(MoveCause::Demand, 100), None);
    assert_eq!(due(MoveCause::Demand, 940), Some(1));
    assert_eq!(moves.is_due("r1", MoveWay::Raises, MoveCause::Demand, at(940)), Some(0), "the other way");
}

#[test]
fn a_decision_is_told_in_words() {
    let expected = "decision 12.345: 2 nodes of the site are lowered by 100.0 W together, because of a test; \
                    the site counts 900.0 W of 1000.0 W; 3 decisions like it since the last Event of it have none";
    let told = text(&group(SITE, None, 1000), ("12.345", "lowered"), sum(100), "of a test", 3);
    assert_eq!(told, expected);
}
