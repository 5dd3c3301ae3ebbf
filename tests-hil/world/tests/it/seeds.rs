//! A few hours a day; `WORLD_SEED=n` runs one of them and prints its story, `WORLD_SEEDS=n` runs this many.

use crate::number;
use world::{WorldPlan, WorldReport, run};

/// Six hours take some ten seconds.
const EVERYDAY: u64 = 6;
/// A machine boots, its agent starts minutes later, and another agent is disconnected as soon as the others should
/// have made room.
const LATE: u64 = 9;

#[test]
fn no_limit_is_above_the_budget_without_an_excuse() {
    let seeds: Vec<u64> = match (number("WORLD_SEED"), number("WORLD_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(last)) => (1..=last).collect(),
        (None, None) => (1..=EVERYDAY).chain([LATE]).collect(),
    };
    let played: Vec<WorldReport> =
        seeds.into_iter().map(|seed| run(&WorldPlan::with(seed, WorldPlan::EVERYDAY))).collect();
    for outcome in played.iter().filter(|outcome| !outcome.is_good()) {
        println!("{}\nseed {}: {:?} {:?}", outcome.story(), outcome.seed, outcome.breaches, outcome.failures);
    }
    let bad: Vec<u64> =
        played.iter().filter(|outcome| !outcome.is_good()).map(|outcome| outcome.seed).collect();
    assert!(bad.is_empty(), "WORLD_SEED=n cargo test -p world tells the story of one of {bad:?}");
}
