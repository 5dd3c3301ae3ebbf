//! Rounds of moves: what is lowered, awaited and raised, and that no load exceeds its limit in between.

use super::allocate::{any_site, below};
use super::*;
use Priority::{Eco, Performance};
use proptest::prelude::*;

/// All ordered moves land as grants.
fn obey(nodes: &mut [BudgetNode], moves: &[Move]) {
    for (node, step) in nodes.iter_mut().zip(moves) {
        if let Move::Lower(cap) | Move::Raise(cap) = step {
            node.account = node.account.granted(*cap, node.range);
        }
    }
}

/// The node reads back its grant exactly.
fn confirm(node: &mut BudgetNode) {
    node.account = node.account.heard(node.account.asked().unwrap());
}

#[test]
fn two_nodes_change_places_by_lowering_awaiting_and_then_raising() {
    let groups = [group(None, 800, 0)];
    // The eco node is still at full power, the performance node is still capped.
    let mut nodes = [node(1, 0, Eco, 200, holding(600)), node(2, 0, Performance, 600, holding(200))];
    let moved = round(&groups, &nodes);
    assert_eq!(moved.moves, [Move::Lower(w(200)), Move::Wait(Why::NoRoom { group: 0 })]);
    obey(&mut nodes, &moved.moves);
    let moved = round(&groups, &nodes);
    assert_eq!(moved.moves, [Move::Await, Move::Wait(Why::NoRoom { group: 0 })]);
    assert_eq!((moved.summary.awaited, moved.summary.waiting, moved.summary.over), (1, 1, 0));
    confirm(&mut nodes[0]);
    let moved = round(&groups, &nodes);
    assert_eq!(moved.moves, [Move::Keep, Move::Raise(w(600))]);
    obey(&mut nodes, &moved.moves);
    assert_eq!(round(&groups, &nodes).moves, [Move::Keep, Move::Await]);
    confirm(&mut nodes[1]);
    assert_eq!(round(&groups, &nodes).moves, [Move::Keep, Move::Keep]);
}

#[test]
fn a_node_that_has_followed_a_later_grant_than_stands_is_told_again_what_stands() {
    let groups = [group(None, 800, 0)];
    let grant = Grant { serial: 4, watts: w(300), ceiling: w(300) };
    let receipt = GrantReceipt { serial: 9, holds: w(500), floor: Watts::ZERO, yields: None };
    let account = GrantAccount::observed(Some(grant), Some(receipt));
    let nodes = [node(1, 0, Eco, 300, account)];
    assert_eq!(round(&groups, &nodes).moves, [Move::Lower(w(300))]);
}

#[test]
fn room_goes_by_priority_then_key_and_a_part_of_the_way_is_worth_going() {
    let groups = [group(None, 1000, 0), group(Some(0), 500, 0)];
    let nodes = [
        node(4, 0, Eco, 300, holding(100)),
        node(9, 0, Performance, 300, holding(100)),
        node(2, 0, Performance, 300, holding(100)),
        node(3, 1, Eco, 300, holding(100)),
    ];
    // Including a node that is still high, 700 are counted; 300 of room.
    let high = node(5, 0, Eco, 100, holding(300));
    let nodes = [nodes[0], nodes[1], nodes[2], nodes[3], high];
    let targets = [w(200), w(300), w(300), w(100), w(100)];
    let moved = step(0, &groups, &nodes, &targets);
    let full = Move::Wait(Why::NoRoom { group: 0 });
    assert_eq!(
        moved.moves,
        [full, Move::Raise(w(200)), Move::Raise(w(300)), Move::Keep, Move::Lower(w(100))]
    );
    assert_eq!(moved.standings[0].room(), Some(Watts::ZERO));
    // With a dead-band larger than the rest, a partial raise is not ordered.
    assert_eq!(step(150, &groups, &nodes, &targets).moves[1], full);
}

#[test]
fn a_cut_limit_is_an_overrun_that_says_what_is_awaited_and_what_remains() {
    let groups = [group(None, 5000, 0), group(Some(0), 700, 50)];
    let mut nodes = [node(1, 1, Performance, 600, holding(600)), node(2, 1, Performance, 600, holding(600))];
    let moved = round(&groups, &nodes);
    assert_eq!((moved.summary.over, moved.summary.worst), (1, Some((1, w(550)))));
    assert_eq!(moved.moves, [Move::Lower(w(325)), Move::Lower(w(325))]);
    let told = Overrun { by: w(550), remains: Watts::ZERO, awaited: 2, unreachable: 0 };
    assert_eq!((moved.standings[0].overrun(), moved.standings[1].overrun()), (None, Some(told)));

    obey(&mut nodes, &moved.moves);
    confirm(&mut nodes[0]);
    let overrun = round(&groups, &nodes).standings[1].overrun();
    assert_eq!(overrun, Some(Overrun { by: w(275), awaited: 1, ..told }));

    // The other node stops answering: whether waiting suffices is unknown, and the first is lowered as far as
    // possible.
    nodes[1].reachable = false;
    let moved = round(&groups, &nodes);
    assert_eq!(moved.moves, [Move::Lower(w(100)), Move::Lower(w(100))]);
    let told = Overrun { by: w(275), remains: w(50), awaited: 1, unreachable: 1 };
    assert_eq!(moved.standings[1].overrun(), Some(told));
}

#[test]
fn nothing_is_raised_below_an_exceeded_limit_even_where_it_would_count_nothing() {
    let groups = [group(None, 500, 0)];
    let mut nodes = [node(1, 0, Performance, 300, holding(400)), node(2, 0, Eco, 200, holding(200))];
    // The first was ordered to 150 and may still be at 400.
    nodes[0].account = nodes[0].account.granted(w(150), nodes[0].range);
    let targets = [w(300), w(200)];
    assert_eq!(step(0, &groups, &nodes, &targets).moves, [Move::Wait(Why::NoRoom { group: 0 }), Move::Keep]);
    // When the limit is kept, the order may be raised: the node counts 400 until its receipt.
    let moved = step(0, &[group(None, 600, 0)], &nodes, &targets);
    assert_eq!(moved.moves, [Move::Raise(w(300)), Move::Keep]);
    assert_eq!(moved.standings[0].room(), Some(Watts::ZERO));
}

#[test]
fn where_anything_is_unknown_nothing_is_raised_and_lowering_goes_on() {
    let blind = Group::new(Some(0), w(5000), None).unwrap();
    let groups = [group(None, 9000, 0), blind, group(Some(0), 5000, 0)];
    let nodes = [node(1, 1, Performance, 600, holding(300)), node(2, 2, Performance, 600, holding(300))];
    let moved = step(0, &groups, &nodes, &[w(200), w(600)]);
    assert_eq!(moved.moves, [Move::Lower(w(200)), Move::Wait(Why::Unknown { group: 0 })]);
    // A node with an unknown largest draw makes its groups unknown until its cap is read back.
    let open = Range::new(w(100), None).unwrap();
    let mut nodes = [node(1, 0, Performance, 600, holding(300)), node(2, 0, Eco, 300, GrantAccount::NONE)];
    nodes[1].range = open;
    let groups = [group(None, 1000, 0)];
    let moved = round(&groups, &nodes);
    assert_eq!(moved.moves, [Move::Wait(Why::Unknown { group: 0 }), Move::Lower(w(300))]);
    obey(&mut nodes, &moved.moves);
    confirm(&mut nodes[1]);
    assert_eq!(round(&groups, &nodes).moves, [Move::Raise(w(600)), Move::Keep]);
}

#[test]
fn a_node_that_does_not_answer_is_told_to_go_down_once_and_never_up() {
    let groups = [group(None, 5000, 0)];
    let mut nodes = [node(1, 0, Eco, 200, holding(300)), node(2, 0, Performance, 600, holding(300))];
    nodes[0].reachable = false;
    nodes[1].reachable = false;
    let moved = step(0, &groups, &nodes, &[w(200), w(600)]);
    assert_eq!(moved.moves, [Move::Lower(w(200)), Move::Wait(Why::Unreachable)]);
    obey(&mut nodes, &moved.moves);
    let moved = step(0, &groups, &nodes, &[w(200), w(600)]);
    assert_eq!(moved.moves, [Move::Await, Move::Wait(Why::Unreachable)]);
    assert_eq!(moved.standings[0].load(), Some(w(600)));
}

#[test]
fn a_base_load_that_flickers_gives_no_orders_unless_somebody_waits_for_the_watts() {
    let mut nodes: Vec<BudgetNode> =
        (0..4).map(|key| node(key, 0, Performance, 600, GrantAccount::NONE)).collect();
    let planned = plan(&[group(None, 1000, 100)], &nodes);
    for (node, &target) in nodes.iter_mut().zip(&planned.targets) {
        node.account = node.account.granted(target, node.range);
        confirm(node);
    }
    for base in [96, 98, 100] {
        let groups = [group(None, 1000, base)];
        let moved = step(5, &groups, &nodes, &plan(&groups, &nodes).targets);
        assert!(moved.moves.iter().all(|step| *step == Move::Keep), "{base} {:?}", moved.moves);
    }
    // A base load that has grown by 2 W takes half a watt from each: a small change, but the limit is
    // exceeded.
    let groups = [group(None, 1000, 102)];
    let moved = step(5, &groups, &nodes, &plan(&groups, &nodes).targets);
    assert_eq!((moved.summary.lowered, moved.summary.over), (4, 1));
}

#[test]
fn devices_that_do_not_go_lower_are_asked_once() {
    let groups = [group(None, 1000, 0)];
    let mut nodes = [node(1, 0, Eco, 100, GrantAccount::NONE), node(2, 0, Performance, 600, holding(300))];
    let moved = round(&groups, &nodes);
    assert_eq!(moved.moves[0], Move::Lower(w(100)));
    obey(&mut nodes, &moved.moves);
    nodes[0].account = nodes[0].account.heard(w(180));
    assert_eq!(round(&groups, &nodes).moves[0], Move::Keep);
    assert_eq!(nodes[0].count(), Some(w(180)));
}

#[test]
fn a_grant_that_may_still_land_counts_and_is_written_over_although_nothing_else_is_to_be_done() {
    let groups = [group(None, 900, 0)];
    let sent = |watts: i32| {
        let grant = Grant { serial: 2, watts: w(watts), ceiling: w(watts.max(300)) };
        holding(300).after_sending(&[grant])
    };
    let nodes = |account| [node(1, 0, Eco, 300, account), node(2, 0, Performance, 600, holding(300))];
    // 500 W may land on the first node: 900 − 500 = 400 for the second, and the first gets its grant again.
    let moved = round(&groups, &nodes(sent(500)));
    assert_eq!(moved.moves, [Move::Lower(w(300)), Move::Raise(w(400))]);
    assert_eq!(moved.standings[0].load(), Some(w(800)));
    // The sent grant has the same watts as the current one: it can change nothing.
    assert_eq!(round(&groups, &nodes(sent(300))).moves, [Move::Await, Move::Raise(w(600))]);
    // It was sent less: it counts what it has, and gets its grant again.
    assert_eq!(round(&groups, &nodes(sent(200))).moves[0], Move::Lower(w(300)));
    // It was sent the same watts when no receipt fitted, with its largest draw as the ceiling. Now it holds 300 W and
    // counts 500 W, until a higher serial makes that ceiling void: 900 − 500 = 400 for the second.
    let ceiling = holding(300).after_sending(&[Grant { serial: 2, watts: w(300), ceiling: w(500) }]);
    assert_eq!(round(&groups, &nodes(ceiling)).moves, [Move::Lower(w(300)), Move::Raise(w(400))]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// For any targets, also for those that no allocation would give.
    #[test]
    fn no_subset_of_a_rounds_orders_takes_a_load_above_its_limit_or_above_what_it_was(
        (groups, nodes, _) in any_site(),
        wild in prop::collection::vec(any::<i64>(), 10),
        planned in any::<bool>(),
    ) {
        let targets: Vec<Watts> = if planned {
            plan(&groups, &nodes).targets
        } else {
            wild.iter().take(nodes.len()).map(|&bits| Watts::from_bits(bits)).collect()
        };
        let moved = step(0, &groups, &nodes, &targets);
        let before = below(&groups, &nodes, |_, node| node.count());
        let mut after = nodes.clone();
        obey(&mut after, &moved.moves);
        let counted = below(&groups, &after, |_, node| node.count());
        // Every order may have landed or not; the real draw of a node is never above what it counts.
        for subset in 0_u32..1 << nodes.len() {
            let landed = below(&groups, &nodes, |index, node| match moved.moves[index] {
                Move::Lower(cap) | Move::Raise(cap) if subset >> index & 1 == 1 => Some(node.range.limit(cap)),
                Move::Keep | Move::Await | Move::Lower(_) | Move::Raise(_) | Move::Wait(_) => node.count(),
            });
            for (group, facts) in groups.iter().enumerate() {
                let Some(now) = landed[group] else { continue };
                prop_assert!(counted[group].is_none_or(|counted| now <= counted));
                let limit = i128::from(facts.limit().to_bits());
                prop_assert!(before[group].is_none_or(|before| now <= limit.max(before)));
            }
        }
        for (node, step) in nodes.iter().zip(&moved.moves) {
            if let Move::Raise(_) = step {
                for group in super::allocate::path(&groups, node.group) {
                    prop_assert!(before[group].is_some_and(|before| before <= i128::from(groups[group].limit().to_bits())));
                }
            }
        }
    }
}
