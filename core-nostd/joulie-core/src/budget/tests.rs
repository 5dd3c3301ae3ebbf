//! Helpers of the budget's tests: small sites, and one round of planning and moving.

use super::*;
use power_units::Watts;
use std::vec;
use std::vec::Vec;

mod account;
mod admit;
mod allocate;
mod demand;
mod moves;

/// A range of a node whose largest draw is unknown.
fn open() -> Range {
    Range::new(Watts::ZERO, None).unwrap()
}

fn w(watts: i32) -> Watts {
    Watts::from_int(watts)
}

fn group(parent: Option<usize>, limit: i32, base: i32) -> Group {
    Group::new(parent, w(limit), Some(w(base))).unwrap()
}

/// A node that has read back its grant exactly.
fn holding(cap: i32) -> GrantAccount {
    GrantAccount::NONE.granted(w(cap), open()).heard(w(cap))
}

/// A node with a floor of 100 W and a largest draw of 600 W.
fn node(key: u64, group: usize, priority: Priority, desired: i32, account: GrantAccount) -> BudgetNode {
    let range = Range::new(w(100), Some(w(600))).unwrap();
    BudgetNode { key, group, priority, range, desired: w(desired), reachable: true, account }
}

struct Planned {
    allocation: Allocation,
    verdicts: Vec<GroupVerdict>,
    targets: Vec<Watts>,
}

fn plan(groups: &[Group], nodes: &[BudgetNode]) -> Planned {
    let mut shares = vec![GroupShare::EMPTY; groups.len()];
    let mut targets = vec![Watts::ZERO; nodes.len()];
    let allocation = allocate(BudgetTree::new(groups).unwrap(), nodes, &mut shares, &mut targets).unwrap();
    Planned { allocation, verdicts: shares.iter().map(GroupShare::verdict).collect(), targets }
}

struct Moved {
    summary: Summary,
    standings: Vec<GroupState>,
    moves: Vec<Move>,
}

fn step(dead_band: i32, groups: &[Group], nodes: &[BudgetNode], targets: &[Watts]) -> Moved {
    let mut standings = vec![GroupState::EMPTY; groups.len()];
    let mut moves = vec![Move::Keep; nodes.len()];
    let mut queue = vec![Turn::EMPTY; nodes.len()];
    let law = MoveTuning::new(w(dead_band)).unwrap();
    let tree = BudgetTree::new(groups).unwrap();
    let summary = next_moves(law, tree, (nodes, targets), (&mut standings, &mut queue), &mut moves).unwrap();
    Moved { summary, standings, moves }
}

/// Plans, and computes the moves.
fn round(groups: &[Group], nodes: &[BudgetNode]) -> Moved {
    step(0, groups, nodes, &plan(groups, nodes).targets)
}

#[test]
fn slices_of_another_length_and_groups_that_are_not_there_are_refused() {
    let groups = [group(None, 1000, 0)];
    let tree = BudgetTree::new(&groups).unwrap();
    let stray = [node(7, 1, Priority::Eco, 300, GrantAccount::NONE)];
    let (mut share, mut target) = ([GroupShare::EMPTY], [Watts::ZERO]);
    let missing = BudgetError::NoSuchGroup { node: 7 };
    assert_eq!(allocate(tree, &stray, &mut share, &mut target), Err(missing));
    let short = BudgetError::WrongLength { slice: "targets", expected: 1 };
    assert_eq!(allocate(tree, &stray, &mut share, &mut []), Err(short));
    let law = MoveTuning::new(Watts::ZERO).unwrap();
    let (mut standing, mut turn, mut step) = ([GroupState::EMPTY], [Turn::EMPTY], [Move::Keep]);
    let answer = next_moves(law, tree, (&stray, &target), (&mut standing, &mut turn), &mut step);
    assert_eq!(answer, Err(missing));
    let answer = next_moves(law, tree, (&stray, &target), (&mut standing, &mut []), &mut step);
    assert_eq!(answer, Err(BudgetError::WrongLength { slice: "queue", expected: 1 }));
    assert_eq!(demands(tree, &stray, &mut [GroupDemand::EMPTY]), Err(missing));
    assert!(MoveTuning::new(w(-1)).is_err());
}

#[test]
fn a_range_that_makes_no_sense_is_refused() {
    assert_eq!(Range::new(w(-1), None), Err(RangeError::NegativeFloor(w(-1))));
    assert_eq!(Range::new(w(2), Some(w(1))), Err(RangeError::Crossed { floor: w(2), max: w(1) }));
    let fixed = Range::new(w(200), Some(w(200))).unwrap();
    assert_eq!((fixed.limit(Watts::MIN), fixed.limit(Watts::MAX)), (w(200), w(200)));
    assert_eq!(Range::new(w(200), None).unwrap().limit(Watts::MAX), Watts::MAX);
}
