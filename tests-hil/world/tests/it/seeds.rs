//! A few hours a day; `WORLD_SEED=n` plays one of them and tells its story, `WORLD_SEEDS=n` plays so many.

use crate::number;
use world::{Outcome, Plan, run};

/// Six hours take some ten seconds.
const EVERYDAY: u64 = 6;

#[test]
fn no_limit_is_above_the_budget_without_an_excuse() {
    let (first, last) = match number("WORLD_SEED") {
        Some(seed) => (seed, seed),
        None => (1, number("WORLD_SEEDS").unwrap_or(EVERYDAY)),
    };
    let played: Vec<Outcome> = (first..=last).map(|seed| run(&Plan::with(seed, Plan::EVERYDAY))).collect();
    for outcome in played.iter().filter(|outcome| !outcome.is_good()) {
        println!("{}\nseed {}: {:?} {:?}", outcome.story(), outcome.seed, outcome.breaches, outcome.failures);
    }
    let bad: Vec<u64> =
        played.iter().filter(|outcome| !outcome.is_good()).map(|outcome| outcome.seed).collect();
    assert!(bad.is_empty(), "WORLD_SEED=n cargo test -p world tells the story of one of {bad:?}");
}
