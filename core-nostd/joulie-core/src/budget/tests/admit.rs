//! Upgrades of one node, and that the allocation keeps what was admitted.

use super::allocate::any_site;
use super::*;
use Priority::{Eco, Performance};
use proptest::prelude::*;

fn ask(groups: &[Group], nodes: &[BudgetNode], index: usize, wish: Wish) -> Admission {
    let tree = BudgetTree::new(groups).unwrap();
    let mut sums = vec![GroupDemand::EMPTY; groups.len()];
    demands(tree, nodes, &mut sums).unwrap();
    admit(tree, &mut sums, &nodes[index], wish)
}

const FULL: Wish = Wish { priority: Performance, desired: Watts::from_int(600) };

#[test]
fn an_upgrade_is_for_now_for_later_or_for_never() {
    let nodes = [
        node(1, 1, Eco, 300, holding(300)),
        node(2, 1, Eco, 300, holding(300)),
        node(3, 1, Performance, 600, holding(600)),
    ];
    let site = |limit| [group(None, 9000, 0), group(Some(0), limit, 50)];
    // Now 1250 W; with the upgrade 1550; with the other eco node at its floor 1350.
    assert_eq!(ask(&site(1550), &nodes, 0, FULL), Admission::Now);
    assert_eq!(ask(&site(1549), &nodes, 0, FULL), Admission::Later { group: 1, watts: w(1) });
    assert_eq!(ask(&site(1350), &nodes, 0, FULL), Admission::Later { group: 1, watts: w(200) });
    assert_eq!(ask(&site(1349), &nodes, 0, FULL), Admission::Never { group: 1, short: w(1) });
    let blind = [group(None, 9000, 0), Group::new(Some(0), w(9000), None).unwrap()];
    assert_eq!(ask(&blind, &nodes, 0, FULL), Admission::Unknown { group: 1 });
    let mut silent = nodes;
    silent[0].reachable = false;
    assert_eq!(ask(&site(9000), &silent, 0, FULL), Admission::Unreachable);
}

#[test]
fn a_downgrade_is_admitted_even_where_nothing_fits() {
    let nodes = [node(1, 0, Performance, 600, holding(600)), node(2, 0, Performance, 600, holding(600))];
    let eco = Wish { priority: Eco, desired: w(200) };
    assert_eq!(ask(&[group(None, 10, 0)], &nodes, 0, eco), Admission::Now);
}

#[test]
fn what_was_admitted_is_known_to_the_next_question() {
    let groups = [group(None, 1000, 0)];
    let nodes: Vec<BudgetNode> = (0..3).map(|key| node(key, 0, Eco, 200, holding(200))).collect();
    let tree = BudgetTree::new(&groups).unwrap();
    let mut sums = [GroupDemand::EMPTY];
    demands(tree, &nodes, &mut sums).unwrap();
    assert_eq!(admit(tree, &mut sums, &nodes[0], FULL), Admission::Now);
    // 600 + 600 + 100 is too much; a refused wish is not booked.
    let never = Admission::Never { group: 0, short: w(300) };
    assert_eq!(admit(tree, &mut sums, &nodes[1], FULL), never);
    assert_eq!(admit(tree, &mut sums, &nodes[1], FULL), never);
    let half = Wish { priority: Performance, desired: w(300) };
    assert_eq!(admit(tree, &mut sums, &nodes[1], half), Admission::Later { group: 0, watts: w(100) });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whoever_is_admitted_gets_all_that_was_wished((groups, mut nodes, _) in any_site(), wishes in prop::collection::vec(any::<bool>(), 10)) {
        for node in &mut nodes {
            node.priority = Eco;
        }
        let tree = BudgetTree::new(&groups).unwrap();
        let mut sums = vec![GroupDemand::EMPTY; groups.len()];
        demands(tree, &nodes, &mut sums).unwrap();
        let mut admitted = Vec::new();
        for index in 0..nodes.len() {
            let wish = Wish { priority: Performance, desired: nodes[index].desired };
            if !wishes[index] {
                continue;
            }
            if let Admission::Now | Admission::Later { .. } = admit(tree, &mut sums, &nodes[index], wish) {
                admitted.push(index);
            }
        }
        for &index in &admitted {
            nodes[index].priority = Performance;
        }
        let planned = plan(&groups, &nodes);
        for index in admitted {
            prop_assert_eq!(planned.targets[index], nodes[index].wanted());
        }
        // The sums are equal to newly computed ones.
        let mut anew = vec![GroupDemand::EMPTY; groups.len()];
        demands(tree, &nodes, &mut anew).unwrap();
        let all_known = nodes.iter().all(|node| node.count().is_some_and(|count| count >= node.wanted()));
        if all_known {
            prop_assert_eq!(sums, anew);
        }
    }
}
