use super::*;
use crate::demo::state::{Device, Pods};

fn state(at: u64, power: Option<i32>, offer: Offer, cap: Option<i32>) -> State {
    let cap = cap.map(Watts::from_int);
    let standing = if cap.is_some() { Standing::InForce } else { Standing::Free };
    let node = Node {
        kind: "2 x EPYC".to_owned(),
        offer,
        power: power.map(Watts::from_int),
        cpu: Device { count: 2, asked: cap, in_force: cap, standing },
        ..Node::default()
    };
    State {
        at: Duration::from_secs(at),
        budget: Some(Watts::from_int(400)),
        nodes: BTreeMap::from([("a".to_owned(), node)]),
        pods: Pods { running: 1, ended: 2, ..Pods::default() },
        ..State::default()
    }
}

fn placement(waited: u64) -> Placement {
    Placement {
        at: Duration::ZERO,
        namespace: "default".to_owned(),
        pod: "p".to_owned(),
        performance: false,
        node: "a".to_owned(),
        waited: Duration::from_secs(waited),
        why: String::new(),
    }
}

#[test]
fn a_run_is_told_as_a_table() {
    let mut summary = RunSummary::default();
    summary.take(&state(0, Some(300), Offer::Performance, None), &[]);
    // 10 s at 300 W, 10 s at 500 W, of which 100 W are above the budget, and 10 s of unknown power.
    summary.take(&state(10, Some(300), Offer::Performance, Some(360)), &[placement(1), placement(9)]);
    summary.take(&state(20, Some(500), Offer::Draining, Some(200)), &[placement(2)]);
    summary.take(&state(30, None, Offer::Eco, Some(200)), &[]);
    summary.trouble();
    assert_eq!(
        summary.table(),
        [
            "1 nodes for 30.0 s",
            "",
            "  power       400 W on average, 500 W at most; unknown for 10.0 s",
            "  energy      8.0 kJ, 0.0022 kWh",
            "  budget      400 W; measured above it for 10.0 s, 1000 watt-seconds",
            "  used        no pod waited",
            "  pods        3 placed; 2 ended, 0 failed, 1 still run, 0 still wait",
            "  waiting     half of the pods 2.0 s or less, 99 of 100 9.0 s or less",
            "  misplaced   0 performance pods placed on eco nodes",
            "  caps        2 read back from the hardware, 0 of them at another value than was asked",
            "  profiles    2 changes; 1 warnings",
            "",
            "  node           energy     mean     most  changes  pods  at the end  made of",
            "  a              8.0 kJ    400 W    500 W        2     3  eco         2 x EPYC",
        ]
    );
}

#[test]
fn what_is_used_of_the_limit_is_counted_while_pods_wait() {
    let mut summary = RunSummary::default();
    let waits = |at, power, waiting| State {
        pods: Pods { waiting, ..Pods::default() },
        ..state(at, power, Offer::Eco, None)
    };
    // The first ten seconds do not count, nor those in which no pod waits or the power is unknown.
    for (at, power, waiting) in
        [(0, 10, 1), (9, 10, 1), (10, 380, 1), (30, 380, 1), (40, 340, 1), (50, 20, 0), (60, 20, 0)]
    {
        summary.take(&waits(at, Some(power), waiting), &[]);
    }
    summary.take(&waits(70, None, 3), &[]);
    // 380 W for 21 s and 340 W for 10 s, of 400 W.
    let text = summary.table().join("\n");
    assert!(text.contains("used        0.92 of the limit while pods waited, for 31.0 s"), "{text}");
}

#[test]
fn a_run_of_which_nothing_is_known_says_so() {
    let mut summary = RunSummary::default();
    summary.take(&state(0, None, Offer::Unknown, None), &[]);
    summary.take(&state(5, None, Offer::Unknown, None), &[]);
    let text = summary.table().join("\n");
    assert!(text.contains("unknown on average, unknown at most; unknown for 5.0 s"), "{text}");
    assert!(
        text.contains("the power of all nodes was never known") && text.contains("no pod was placed"),
        "{text}"
    );
}
