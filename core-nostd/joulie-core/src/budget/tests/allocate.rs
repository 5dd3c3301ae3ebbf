//! Allocations calculated by hand, and laws over random trees with extreme, unknown and overflowing watts.

use super::*;
use Priority::{Draining, Eco, Performance};
use proptest::prelude::*;

/// Shares are rounded down by less than a microwatt.
fn close(actual: Watts, expected: f64) -> bool {
    let actual = actual.to_bits() as f64 / (1_u64 << 32) as f64;
    actual <= expected + 1e-9 && actual > expected - 1e-6
}

#[test]
fn performance_is_served_first_and_each_priority_shares_alike() {
    let nodes = [
        node(1, 0, Performance, 400, holding(400)),
        node(2, 0, Performance, 250, holding(400)),
        node(3, 0, Eco, 250, holding(250)),
        node(4, 0, Eco, 175, holding(250)),
    ];
    // Base 100 + floors 400: of 950 W, 450 are left. Performance uses 300 + 150, so nothing remains for eco.
    let planned = plan(&[group(None, 950, 100)], &nodes);
    assert_eq!(planned.targets, [w(400), w(250), w(100), w(100)]);
    assert_eq!(planned.verdicts, [GroupVerdict::Kept { spare: Watts::ZERO }]);
    assert_eq!(planned.allocation, Allocation { short: 0, shortest: None, unknown: 0, curtailed: 2 });
    // 225 left: half of each span. 600 left: performance 450, and 150 of the 225 that eco can use: two thirds.
    assert_eq!(plan(&[group(None, 725, 100)], &nodes).targets, [w(250), w(175), w(100), w(100)]);
    let targets = plan(&[group(None, 1100, 100)], &nodes).targets;
    assert_eq!(targets[..2], [w(400), w(250)]);
    assert!(close(targets[2], 200.0) && close(targets[3], 150.0), "{targets:?}");
    assert_eq!(plan(&[group(None, 9000, 100)], &nodes).targets, [w(400), w(250), w(250), w(175)]);
}

#[test]
fn a_draining_node_comes_between() {
    let nodes = [
        node(1, 0, Eco, 300, holding(300)),
        node(2, 0, Draining, 300, holding(300)),
        node(3, 0, Performance, 300, holding(300)),
    ];
    assert_eq!(plan(&[group(None, 600, 0)], &nodes).targets, [w(100), w(200), w(300)]);
}

#[test]
fn a_tight_rack_leaves_its_share_to_its_neighbours() {
    let nodes = [node(1, 1, Performance, 600, holding(600)), node(2, 2, Performance, 600, holding(600))];
    let site = |limit| [group(None, limit, 0), group(Some(0), 250, 0), group(Some(0), 900, 0)];
    assert_eq!(plan(&site(1000), &nodes).targets, [w(250), w(600)]);
    // 500 W beyond the floors for 150 + 500 that can be used: 10/13 of each.
    let targets = plan(&site(700), &nodes).targets;
    assert!(
        close(targets[0], 100.0 + 1500.0 / 13.0) && close(targets[1], 100.0 + 5000.0 / 13.0),
        "{targets:?}"
    );
}

#[test]
fn floors_are_kept_and_what_is_short_is_named() {
    let nodes = [
        node(1, 1, Performance, 600, holding(600)),
        node(2, 1, Eco, 300, holding(300)),
        node(3, 2, Performance, 600, holding(600)),
    ];
    let groups = [group(None, 2000, 0), group(Some(0), 150, 30), group(Some(0), 600, 0)];
    let planned = plan(&groups, &nodes);
    assert_eq!(planned.targets, [w(100), w(100), w(600)]);
    assert_eq!(planned.verdicts[1], GroupVerdict::Short { by: w(80) });
    assert_eq!(
        planned.allocation,
        Allocation { short: 1, shortest: Some((1, w(80))), unknown: 0, curtailed: 2 }
    );
    // A site that is short leaves floors everywhere. A limit of zero is a limit.
    let groups = [group(None, 0, 10), group(Some(0), 900, 0), group(Some(0), 600, 0)];
    let planned = plan(&groups, &nodes);
    assert_eq!(planned.targets, [w(100); 3]);
    assert_eq!(planned.allocation.shortest, Some((0, w(310))));
}

#[test]
fn an_unknown_base_load_is_not_nothing_and_moves_nobody() {
    // Fix list operator B23: uncontrolled load in a rack draws power, too.
    let blind = Group::new(Some(0), w(5000), None).unwrap();
    let mut nodes = [
        node(1, 1, Performance, 600, holding(300)),
        node(2, 2, Performance, 600, holding(300)),
        node(3, 2, Eco, 200, holding(250)),
    ];
    let groups = |site, rack| [group(None, site, 0), blind, group(Some(0), rack, 0)];
    let planned = plan(&groups(9000, 5000), &nodes);
    // No node is raised, none is lowered to the floor for lack of knowledge, and nodes above their desired cap are
    // lowered.
    assert_eq!(planned.targets, [w(300), w(300), w(200)]);
    assert_eq!(
        planned.verdicts,
        [GroupVerdict::Unknown, GroupVerdict::Unknown, GroupVerdict::Kept { spare: w(4500) }]
    );
    assert_eq!((planned.allocation.unknown, planned.allocation.curtailed), (2, 2));
    let moved = round(&groups(9000, 5000), &nodes);
    assert_eq!(moved.moves, [Move::Keep, Move::Keep, Move::Lower(w(200))]);
    // The other rack's sum is known, so it keeps its own limit: 380 − 200 of floors, all to performance.
    assert_eq!(plan(&groups(9000, 380), &nodes).targets, [w(300), w(280), w(100)]);
    // The known part is already too much for the site: 640 − 300 for 200 + 200, then nothing for eco.
    assert_eq!(plan(&groups(640, 5000), &nodes).targets, [w(270), w(270), w(100)]);
    assert_eq!(plan(&groups(200, 5000), &nodes).verdicts[0], GroupVerdict::Unknown);
    assert_eq!(plan(&groups(200, 5000), &nodes).targets, [w(100); 3]);
    // A node with an unknown largest draw keeps the cap that it was once granted.
    let told = GrantAccount::NONE.granted(w(350), open());
    nodes[0] = BudgetNode { range: Range::new(w(100), None).unwrap(), ..node(1, 1, Performance, 600, told) };
    assert_eq!(plan(&groups(9000, 5000), &nodes).targets, [w(350), w(300), w(200)]);
}

#[test]
fn an_unreachable_node_of_an_unknown_largest_draw_moves_nobody() {
    let mut nodes = [
        node(1, 1, Performance, 600, GrantAccount::NONE),
        node(2, 1, Performance, 600, holding(300)),
        node(3, 2, Eco, 200, holding(400)),
    ];
    nodes[0] = BudgetNode { range: Range::new(w(100), None).unwrap(), reachable: false, ..nodes[0] };
    let groups = [group(None, 9000, 0), group(Some(0), 5000, 0), group(Some(0), 5000, 0)];
    let planned = plan(&groups, &nodes);
    assert_eq!(planned.targets[1..], [w(300), w(200)]);
    assert_eq!(
        planned.verdicts,
        [GroupVerdict::Unknown, GroupVerdict::Unknown, GroupVerdict::Kept { spare: w(4800) }]
    );
}

#[test]
fn a_node_that_does_not_answer_is_taken_from_the_others_room() {
    let mut nodes = [
        node(1, 0, Eco, 200, holding(500)),
        node(2, 0, Performance, 600, holding(300)),
        node(3, 0, Performance, 600, GrantAccount::NONE),
    ];
    let groups = [group(None, 1300, 0)];
    // 1300 − 300 of floors = 1000 = 500 + 500: all that performance wants, nothing above the floor for eco.
    assert_eq!(plan(&groups, &nodes).targets, [w(100), w(600), w(600)]);
    nodes[0].reachable = false;
    // It may draw 500 whatever is ordered: 1300 − 500 − 200 = 600 for two nodes that could use 1000. When it
    // answers again it finds an order with the cap that the policy wants.
    assert_eq!(plan(&groups, &nodes).targets, [w(200), w(400), w(400)]);
    nodes[2].reachable = false;
    // No receipt was ever received: its largest draw counts. 1300 − 500 − 600 − 100 = 100.
    assert_eq!(plan(&groups, &nodes).targets, [w(200), w(200), w(600)]);
    let groups = [group(None, 1100, 0)];
    let planned = plan(&groups, &nodes);
    assert_eq!(
        planned.targets,
        [w(100); 3],
        "where the limit cannot be kept, whoever may hear is asked for the least"
    );
    assert_eq!(planned.verdicts, [GroupVerdict::Short { by: w(100) }]);
}

#[test]
fn what_the_devices_refuse_is_their_floor() {
    let account = GrantAccount::NONE.granted(w(100), open()).heard(w(180));
    let nodes = [node(1, 0, Eco, 100, account), node(2, 0, Performance, 600, holding(100))];
    assert_eq!(plan(&[group(None, 500, 0)], &nodes).targets, [w(180), w(320)]);
}

#[test]
fn sums_that_do_not_fit_are_unknown_and_leave_floors() {
    let huge = |key| BudgetNode {
        range: Range::new(w(10), Some(Watts::MAX)).unwrap(),
        desired: Watts::MAX,
        ..node(key, 0, Performance, 0, GrantAccount::NONE)
    };
    let groups = [Group::new(None, Watts::MAX, Some(Watts::ZERO)).unwrap()];
    assert_eq!(plan(&groups, &[huge(1)]).targets, [Watts::MAX]);
    let planned = plan(&groups, &[huge(1), huge(2)]);
    assert_eq!((planned.targets, planned.verdicts), (vec![w(10), w(10)], vec![GroupVerdict::Unknown]));
    let moved = step(0, &groups, &[huge(1), huge(2)], &[Watts::MAX, Watts::MAX]);
    assert_eq!((moved.summary.unknown, moved.summary.raised, moved.standings[0].load()), (1, 0, None));
}

fn any_watts() -> impl Strategy<Value = Watts> {
    prop_oneof![
        6 => (0_i32..2_000, any::<u32>()).prop_map(|(whole, part)| Watts::from_bits((i64::from(whole) << 32) | i64::from(part))),
        1 => Just(Watts::ZERO),
        1 => Just(Watts::MAX),
        1 => any::<i64>().prop_map(|bits| Watts::from_bits(bits & i64::MAX)),
    ]
}

pub(super) fn any_groups() -> impl Strategy<Value = Vec<Group>> {
    let base = prop_oneof![8 => (0_i32..100).prop_map(|base| Some(w(base))), 1 => Just(None), 1 => any_watts().prop_map(Some)];
    let one = (any::<prop::sample::Index>(), 0_u8..6, any_watts(), 1_u8..8, base);
    prop::collection::vec(one, 1..7).prop_map(|raw| {
        let grow = |(index, (parent, root, limit, times, base)): (
            usize,
            (prop::sample::Index, u8, Watts, u8, _),
        )| {
            let parent = (index > 0 && root > 0).then(|| parent.index(index));
            Group::new(parent, limit.times(u32::from(times)), base).unwrap()
        };
        raw.into_iter().enumerate().map(grow).collect()
    })
}

pub(super) fn any_node(groups: usize) -> impl Strategy<Value = BudgetNode> {
    let account = (0_u8..6, any_watts(), any_watts()).prop_map(|(kind, one, other)| {
        let granted = GrantAccount::NONE.granted(one, open());
        match kind {
            0 => GrantAccount::NONE,
            1 => granted,
            2 => granted.heard(one),
            3 => granted.heard(one).granted(other, open()),
            4 => granted.heard(other),
            _ => granted.heard(one).after_sending(&[Grant {
                serial: 2,
                watts: other,
                ceiling: other.max(one),
            }]),
        }
    });
    let range = (any_watts(), any_watts(), 0_u8..8).prop_map(|(one, other, unknown)| {
        Range::new(one.min(other), (unknown > 0).then(|| one.max(other))).unwrap()
    });
    let desired = prop_oneof![4 => any_watts(), 1 => any::<i64>().prop_map(Watts::from_bits)];
    (0..groups, 0_usize..3, range, desired, 0_u8..6, account).prop_map(
        |(group, priority, range, desired, up, account)| BudgetNode {
            key: 0,
            group,
            priority: Priority::ALL[priority],
            range,
            desired,
            reachable: up > 0,
            account,
        },
    )
}

/// A tree, nodes with keys, and the same nodes in another order.
pub(super) fn any_site() -> impl Strategy<Value = (Vec<Group>, Vec<BudgetNode>, Vec<BudgetNode>)> {
    any_groups()
        .prop_flat_map(|groups| {
            let nodes = prop::collection::vec(any_node(groups.len()), 0..10);
            (Just(groups), nodes)
        })
        .prop_flat_map(|(groups, mut nodes)| {
            for (key, node) in nodes.iter_mut().enumerate() {
                node.key = key as u64;
            }
            (Just(groups), Just(nodes.clone()), Just(nodes).prop_shuffle())
        })
}

/// The sum below each group, in exact arithmetic; `None` when a part of it is unknown.
pub(super) fn below(
    groups: &[Group],
    nodes: &[BudgetNode],
    watts: impl Fn(usize, &BudgetNode) -> Option<Watts>,
) -> Vec<Option<i128>> {
    let bits = |watts: Option<Watts>| watts.map(|watts| i128::from(watts.to_bits()));
    let mut sums: Vec<_> = groups.iter().map(|group| bits(group.base())).collect();
    for (index, node) in nodes.iter().enumerate() {
        sums[node.group] = sums[node.group].zip(bits(watts(index, node))).map(|(a, b)| a + b);
    }
    for group in (0..groups.len()).rev() {
        if let Some(parent) = groups[group].parent() {
            sums[parent] = sums[parent].zip(sums[group]).map(|(a, b)| a + b);
        }
    }
    sums
}

pub(super) fn path(groups: &[Group], from: usize) -> Vec<usize> {
    core::iter::successors(Some(from), |&group| groups[group].parent()).collect()
}

/// Groups that have an unknown least draw, or are below a group that has one.
fn held(groups: &[Group], nodes: &[BudgetNode]) -> Vec<bool> {
    let least =
        below(groups, nodes, |_, node| if node.reachable { Some(node.lowest()) } else { node.count() });
    let unknown = |group: usize| least[group].is_none_or(|sum| sum > i128::from(i64::MAX));
    (0..groups.len()).map(|group| path(groups, group).into_iter().any(unknown)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_limit_that_can_be_kept_is_exceeded_and_no_floor_undercut((groups, nodes, _) in any_site()) {
        let planned = plan(&groups, &nodes);
        for (node, &target) in nodes.iter().zip(&planned.targets) {
            prop_assert!(target >= node.lowest());
            prop_assert!(target <= node.wanted() || target == node.lowest());
        }
        let loads = below(&groups, &nodes, |index, node| {
            if node.reachable { Some(planned.targets[index]) } else { node.count() }
        });
        let least = below(&groups, &nodes, |_, node| if node.reachable { Some(node.lowest()) } else { node.count() });
        for (group, facts) in groups.iter().enumerate() {
            let limit = i128::from(facts.limit().to_bits());
            match planned.verdicts[group] {
                GroupVerdict::Kept { spare } => {
                    prop_assert!(loads[group].unwrap() + i128::from(spare.to_bits()) <= limit);
                }
                GroupVerdict::Short { by } => {
                    prop_assert_eq!(least[group].unwrap() - limit, i128::from(by.to_bits()));
                    prop_assert_eq!(loads[group], least[group]);
                }
                GroupVerdict::Unknown => {
                    let huge = i128::from(i64::MAX);
                    let wants = below(&groups, &nodes, |_, node| Some(if node.reachable { node.wanted() } else { Watts::ZERO }));
                    prop_assert!(least[group].is_none_or(|least| least > huge) || wants[group].is_none_or(|wants| wants > huge));
                }
            }
        }
    }

    #[test]
    fn what_is_unknown_raises_nobody_and_lowers_nobody_whom_the_known_does_not((groups, mut nodes, _) in any_site()) {
        let planned = plan(&groups, &nodes);
        let held = held(&groups, &nodes);
        for (node, &target) in nodes.iter().zip(&planned.targets).filter(|(node, _)| held[node.group]) {
            let raised = node.count().is_some_and(|count| target > count.max(node.lowest()));
            prop_assert!(!raised, "{node:?} to {target}");
        }
        // The same site with zero in place of unknown base loads, where no node wants more than it has.
        let nothing: Vec<Group> = groups.iter()
            .map(|group| Group::new(group.parent(), group.limit(), group.base().or(Some(Watts::ZERO))).unwrap())
            .collect();
        for node in &mut nodes {
            if held[node.group] {
                let has = node.count().or(node.account.asked()).unwrap_or(Watts::MAX);
                node.desired = node.desired.min(has);
            }
            if !node.reachable && node.count().is_none() {
                (node.range, node.account) = (Range::new(Watts::ZERO, Some(Watts::ZERO)).unwrap(), GrantAccount::NONE);
            }
        }
        let without = plan(&nothing, &nodes);
        for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.reachable) {
            prop_assert_eq!(planned.targets[index], without.targets[index], "{:?}", node);
        }
    }

    #[test]
    fn a_node_gets_less_than_is_wanted_only_where_a_limit_is_used_up_by_who_comes_first((groups, nodes, _) in any_site()) {
        let planned = plan(&groups, &nodes);
        let held = held(&groups, &nodes);
        // Rounding loses less than one bit for every node and every group.
        let a_trace = Watts::from_bits(64);
        for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.reachable) {
            let has = node.count().or(node.account.asked()).filter(|_| held[node.group]);
            if planned.targets[index] + a_trace >= node.wanted().min(has.unwrap_or(Watts::MAX)) {
                continue;
            }
            let binding = path(&groups, node.group).into_iter().any(|group| {
                let used_up = match planned.verdicts[group] {
                    GroupVerdict::Kept { spare } => spare < a_trace,
                    GroupVerdict::Short { .. } | GroupVerdict::Unknown => true,
                };
                let later_at_floor = nodes.iter().enumerate().all(|(other, facts)| {
                    !facts.reachable
                        || facts.priority <= node.priority
                        || !path(&groups, facts.group).contains(&group)
                        || planned.targets[other] <= facts.lowest() + a_trace
                });
                used_up && later_at_floor
            });
            prop_assert!(binding, "node {index} has {} of {}", planned.targets[index], node.wanted());
        }
    }

    #[test]
    fn the_order_of_the_nodes_does_not_matter((groups, nodes, shuffled) in any_site()) {
        let by_key = |nodes: &[BudgetNode]| {
            let planned = plan(&groups, nodes);
            let moved = step(3, &groups, nodes, &planned.targets);
            let mut rows: Vec<_> = nodes.iter().map(|node| node.key).zip(planned.targets).zip(moved.moves).collect();
            rows.sort_by_key(|((key, _), _)| *key);
            (rows, planned.verdicts, planned.allocation, moved.summary, moved.standings)
        };
        prop_assert_eq!(by_key(&nodes), by_key(&shuffled));
    }
}
