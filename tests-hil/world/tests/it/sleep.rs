//! Hours in which nodes sleep: nothing above the limit, no machine off with a pod on it, no pod that waits for ever.

use crate::number;
use world::{WorldPlan, run};

const EVERYDAY: u64 = 4;

#[test]
fn nodes_sleep_and_wake_and_nothing_is_lost() {
    let seeds = match number("WORLD_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("WORLD_SEEDS").unwrap_or(EVERYDAY),
    };
    let (mut bad, mut sleeps, mut jobs) = (Vec::new(), 0, 0);
    for seed in seeds {
        let hour = run(&WorldPlan::asleep(seed));
        let count = |what: &str| hour.counts.get(what).copied().unwrap_or(0);
        (sleeps, jobs) = (sleeps + count("sleeps"), jobs + count("jobs"));
        // What sleeps uses no part of the limit, so how much of it is used says nothing.
        if !hour.breaches.is_empty() || !hour.failures.is_empty() {
            println!("{}\nseed {seed}: {:?} {:?}", hour.story(), hour.breaches, hour.failures);
            bad.push(seed);
        }
    }
    println!("{sleeps} sleeps, {jobs} pods");
    assert!(bad.is_empty(), "WORLD_SEED=n cargo test -p world tells the story of one of {bad:?}");
    assert!(sleeps > 0 && jobs > 0, "{sleeps} sleeps, {jobs} pods");
}
